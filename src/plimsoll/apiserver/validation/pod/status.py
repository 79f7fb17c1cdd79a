"""Validation of pod status except claims: conditions, IPs, and transitions of container states."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from plimsoll.api.names import byte_length, dns_subdomain, label_key
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE
from plimsoll.apiserver.validation.name_formats import validate_format
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.pod.network import validate_addresses

HEALTH_MESSAGE_MAX = 1024

_STATUS = FieldPath("status")
_OWN_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_NOT_NEGATIVE = "must be a non-negative integer"
_NOT_TERMINATED_AGAIN = "may not be transitioned to non-terminated state"
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_ID_MAX = 2**31 - 1


def keep_generations(status: Tree, old: Tree) -> None:
    """Keep the observed generations that the new status does not set."""
    if not status.get("observedGeneration") and old.get("observedGeneration"):
        status["observedGeneration"] = old["observedGeneration"]
    before: dict[str, deque[int]] = {}
    for condition in old.get("conditions", ()):
        before.setdefault(condition.get("type", ""), deque()).append(condition.get("observedGeneration", 0))
    for condition in status.get("conditions", ()):
        known = before.get(condition.get("type", ""))
        generation = known.popleft() if known else 0
        if not condition.get("observedGeneration") and generation:
            condition["observedGeneration"] = generation


def validate_status(pod: View, old: View, qos: str) -> FieldErrors:
    """Validate a written status; `qos` is the only QoS class that it may have."""
    status = pod.status
    for index, condition in enumerate(status.conditions):
        at = _STATUS.child("conditions").index(index)
        if condition.observed_generation < 0:
            yield invalid(at.child("observedGeneration"), condition.observed_generation, _NOT_NEGATIVE)
        if condition.type not in _OWN_CONDITIONS:
            yield from validate_format(condition.type, at.child("Type"), label_key)
    yield from _validate_nomination(pod, old)
    if status.observed_generation < 0:
        yield invalid(_STATUS.child("observedGeneration"), status.observed_generation, _NOT_NEGATIVE)
    if status.qos_class != qos:
        yield invalid(_STATUS.child("qosClass"), status.qos_class, IMMUTABLE)
    yield from _validate_transitions(pod, old)
    yield from _validate_addresses(pod, old)
    yield from _validate_users(pod)
    yield from _validate_health(pod)


def _validate_nomination(pod: View, old: View) -> FieldErrors:
    name, path = pod.status.nominated_node_name, _STATUS.child("nominatedNodeName")
    if not name or name == old.status.nominated_node_name:
        return
    yield from validate_format(name, path, dns_subdomain)
    if old.spec.node_name:
        yield forbidden(path, "may not be set on pods that are already bound to a node")


# -- terminated containers


def _validate_transitions(pod: View, old: View) -> FieldErrors:
    """Validate that a terminated container stays terminated unless its restart policy permits a restart."""
    for field, statuses, before, containers in (
        (
            "containerStatuses",
            pod.status.container_statuses,
            old.status.container_statuses,
            old.spec.containers,
        ),
        (
            "initContainerStatuses",
            pod.status.init_container_statuses,
            old.status.init_container_statuses,
            old.spec.init_containers,
        ),
    ):
        if not _all_may_restart(old.spec):
            yield from _validate_terminated(statuses, before, containers, old.spec, _STATUS.child(field))
    at = _STATUS.child("ephemeralContainerStatuses")
    not_terminated = _not_terminated(pod.status.ephemeral_container_statuses)
    for index, status in enumerate(old.status.ephemeral_container_statuses):
        if status.state.terminated is not None and status.name in not_terminated:
            yield forbidden(at.index(index).child("state"), _NOT_TERMINATED_AGAIN)


def _not_terminated(statuses: Sequence[View]) -> frozenset[str]:
    """Return the names of the containers that are not terminated."""
    return frozenset(status.name for status in statuses if status.state.terminated is None)


def _validate_terminated(
    statuses: Sequence[View],
    before: Sequence[View],
    containers: Sequence[View],
    spec: View,
    path: FieldPath,
) -> FieldErrors:
    not_terminated, by_name = _not_terminated(statuses), {c.name: c for c in reversed(containers)}
    for index, status in enumerate(before):
        terminated = status.state.terminated
        if terminated is None or status.name not in not_terminated:
            continue
        container = by_name.get(status.name)
        if container is None or not _may_restart(container, spec, terminated.exit_code):
            yield forbidden(path.index(index).child("state"), _NOT_TERMINATED_AGAIN)


def _all_may_restart(spec: View) -> bool:
    return any(
        rule.action == "RestartAllContainers"
        for container in (*spec.init_containers, *spec.containers)
        for rule in container.restart_policy_rules
    )


def _may_restart(container: View, spec: View, exit_code: int) -> bool:
    """Report whether a container restarts after it exited with this code."""
    policy = spec.restart_policy
    if container.restart_policy is not None:
        for rule in container.restart_policy_rules:
            codes = rule.exit_codes
            if codes is None:
                continue
            listed = exit_code in codes.values
            if (codes.operator == "In" and listed) or (codes.operator == "NotIn" and not listed):
                if rule.action in ("Restart", "RestartAllContainers"):
                    return True
                break
        if container.restart_policy in ("Always", "OnFailure", "Never"):
            policy = container.restart_policy
    return exit_code != 0 if policy == "OnFailure" else policy != "Never"


# -- addresses, users and health


def _validate_addresses(pod: View, old: View) -> FieldErrors:
    now, before = pod.status, old.status
    yield from validate_addresses(
        [address.ip for address in now.pod_ips],
        [address.ip for address in before.pod_ips],
        _STATUS.child("podIPs"),
    )
    if not now.host_ips:
        return
    path = _STATUS.child("hostIPs")
    if now.host_ip != now.host_ips[0].ip:
        yield invalid(path.index(0).child("ip"), now.host_ips[0].ip, "must be equal to `hostIP`")
    yield from validate_addresses(
        [address.ip for address in now.host_ips], [address.ip for address in before.host_ips], path
    )


def _all_statuses(pod: View) -> Sequence[tuple[str, Sequence[View]]]:
    return (
        ("containerStatuses", pod.status.container_statuses),
        ("initContainerStatuses", pod.status.init_container_statuses),
        ("ephemeralContainerStatuses", pod.status.ephemeral_container_statuses),
    )


def _validate_users(pod: View) -> FieldErrors:
    os = "linux" if pod.spec.os is None else pod.spec.os.name
    for field, statuses in _all_statuses(pod):
        for index, status in enumerate(statuses):
            if status.user is None or status.user.linux is None:
                continue
            at, user = _STATUS.child(field).index(index).child("user", "linux"), status.user.linux
            if os == "windows":
                yield forbidden(at, "cannot be set for a windows pod")
            elif os == "linux":
                groups = at.child("supplementalGroups")
                for path, number in (
                    (at.child("uid"), user.uid),
                    (at.child("gid"), user.gid),
                    *((groups.index(i), group) for i, group in enumerate(user.supplemental_groups)),
                ):
                    if not 0 <= number <= _ID_MAX:
                        yield invalid(path, number, f"must be between 0 and {_ID_MAX}, inclusive")


def _validate_health(pod: View) -> FieldErrors:
    containers = {
        "containerStatuses": {c.name: c for c in reversed(pod.spec.containers)},
        "initContainerStatuses": {c.name: c for c in reversed(pod.spec.init_containers)},
    }
    for field, statuses in _all_statuses(pod):
        for index, status in enumerate(statuses):
            at = _STATUS.child(field).index(index).child("allocatedResourcesStatus")
            if field not in containers:
                if status.allocated_resources_status:
                    yield forbidden(at, "must not be specified in container status")
                continue
            container = containers[field].get(status.name)
            for position, resource in enumerate(status.allocated_resources_status):
                yield from _validate_resource(resource, container, at.index(position))


def _validate_resource(resource: View, container: View | None, path: FieldPath) -> FieldErrors:
    """Validate the health of an allocated resource, which the container must have requested."""
    if container is not None:
        claims = {
            f"claim:{claim.name}/{claim.request}" if claim.request else f"claim:{claim.name}"
            for claim in container.resources.claims
        }
        if resource.name.startswith("claim:"):
            if resource.name not in claims:
                detail = (
                    "must match one of the container's resource claims in a format "
                    "'claim:<claimName>/<request>' or 'claim:<claimName>' if request is empty"
                )
                yield invalid(path.child("name"), resource.name, detail)
        elif resource.name not in container.resources.requests:
            detail = "must match one of the container's resource requests"
            yield invalid(path.child("name"), resource.name, detail)
    seen: set[str] = set()
    for index, unit in enumerate(resource.resources):
        at = path.child("resources").index(index)
        if unit.health not in _HEALTH:
            yield not_supported(at.child("health"), unit.health, _HEALTH)
        if unit.message is not None:
            if not unit.message:
                yield required(at.child("message"), "must be non-empty if specified")
            elif byte_length(unit.message) > HEALTH_MESSAGE_MAX:
                yield too_long(at.child("message"), HEALTH_MESSAGE_MAX)
        if unit.resource_id in seen:
            yield duplicate(at.child("resourceID"), unit.resource_id)
        seen.add(unit.resource_id)
