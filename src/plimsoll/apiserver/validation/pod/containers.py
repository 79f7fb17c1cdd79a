"""Validation of containers: regular, init (including sidecars) and ephemeral."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll.apiserver.registry.schema_view import View, attribute_name
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from plimsoll.apiserver.validation.name_formats import port_name, port_number, validate_format, validate_label
from plimsoll.apiserver.validation.pod.env import validate_environment
from plimsoll.apiserver.validation.pod.network import validate_port_conflicts
from plimsoll.apiserver.validation.pod.probes import validate_lifecycle, validate_probes
from plimsoll.apiserver.validation.pod.resources import validate_requirements
from plimsoll.apiserver.validation.pod.security import validate_container_security
from plimsoll.apiserver.validation.pod.volume_sources import validate_pull_policy
from plimsoll.apiserver.validation.pod.volumes import validate_mounts

RULES_MAX = 20
EXIT_CODES_MAX = 255

_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESIZABLE = ("cpu", "memory")
_RESIZE_POLICIES = ("NotRequired", "RestartContainer")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_ACTIONS = ("Restart", "RestartAllContainers")
_OPERATORS = ("In", "NotIn")
_SIDECARS_ONLY = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL = "cannot be set for an Ephemeral Container"

#: Fields that are forbidden for ephemeral containers; resources are in `claims.py`.
_NO_EPHEMERAL = (
    "ports",
    "resizePolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """The properties of the pod that the validation of its containers depends on."""

    spec: View
    volumes: Mapping[str, View]
    allow_indivisible_huge_pages: bool
    allow_init_resize_policy: bool

    @property
    def grace(self) -> int | None:
        seconds: int | None = self.spec.termination_grace_period_seconds
        return seconds

    @property
    def os(self) -> str | None:
        return None if self.spec.os is None else self.spec.os.name


def is_sidecar(container: View) -> bool:
    return bool(container.restart_policy == "Always")


def validate_containers(context: ContainerContext, path: FieldPath) -> FieldErrors:
    containers, at = context.spec.containers, path.child("containers")
    if not containers:
        yield required(at)
    taken: set[str] = set()
    for index, container in enumerate(containers):
        where = at.index(index)
        yield from _validate_common(container, context, where)
        if container.name in taken:
            yield duplicate(where.child("name"), container.name)
        taken.add(container.name)
        yield from _validate_hooks(container, context, where)
        yield from _validate_restarts(container, where)
    yield from validate_port_conflicts(enumerate(containers), at)
    yield from _validate_init_containers(context, set(taken), path.child("initContainers"))
    names = {container.name for container in (*containers, *context.spec.init_containers)}
    yield from _validate_ephemeral(context, names, path.child("ephemeralContainers"))


def _validate_init_containers(context: ContainerContext, taken: set[str], path: FieldPath) -> FieldErrors:
    for index, container in enumerate(context.spec.init_containers):
        at = path.index(index)
        yield from _validate_common(container, context, at)
        yield from _validate_restarts(container, at)
        if container.name in taken:
            yield duplicate(at.child("name"), container.name)
        elif container.name:
            taken.add(container.name)
        # Ports conflict only within one container, which is always reported with index 0.
        yield from validate_port_conflicts([(0, container)], path)
        if is_sidecar(container):
            yield from _validate_hooks(container, context, at)
            continue
        for name, given in (
            ("lifecycle", container.lifecycle),
            ("livenessProbe", container.liveness_probe),
            ("readinessProbe", container.readiness_probe),
            ("startupProbe", container.startup_probe),
        ):
            if given is not None:
                yield forbidden(at.child(name), _SIDECARS_ONLY)
        if not context.allow_init_resize_policy:
            for position, policy in enumerate(container.resize_policy):
                if policy.restart_policy == "RestartContainer":
                    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                    where = at.child("resizePolicy").index(position).child("restartPolicy")
                    yield invalid(where, policy.restart_policy, detail)


def _validate_ephemeral(context: ContainerContext, others: set[str], path: FieldPath) -> FieldErrors:
    taken = set(others)
    for index, container in enumerate(context.spec.ephemeral_containers):
        at = path.index(index)
        yield from _validate_common(container, context, at)
        yield from validate_image_blanks(container, at)
        if container.name in taken:
            yield duplicate(at.child("name"), container.name)
        taken.add(container.name)
        if container.target_container_name and container.target_container_name not in others:
            where = at.child("targetContainerName")
            yield not_found(where, container.target_container_name, "must be the name of a container")
        for name in _NO_EPHEMERAL:
            if getattr(container, attribute_name(name)):
                yield forbidden(at.child(name), _NOT_EPHEMERAL)
        if container.restart_policy is not None:
            yield forbidden(at.child("restartPolicy"), _NOT_EPHEMERAL)
        for position, mount in enumerate(container.volume_mounts):
            where = at.child("volumeMounts").index(position)
            if mount.sub_path:
                yield forbidden(where.child("subPath"), _NOT_EPHEMERAL)
            if mount.sub_path_expr:
                yield forbidden(where.child("subPathExpr"), _NOT_EPHEMERAL)


def validate_image_blanks(container: View, path: FieldPath) -> FieldErrors:
    if container.image != container.image.strip():
        detail = "must not have leading or trailing whitespace"
        yield invalid(path.child("image"), container.image, detail)


# -- rules for all containers


def _validate_common(container: View, context: ContainerContext, path: FieldPath) -> FieldErrors:
    if not container.name:
        yield required(path.child("name"))
    else:
        yield from validate_label(container.name, path.child("name"))
    if not container.image:
        yield required(path.child("image"))
    policy, at = container.termination_message_policy, path.child("terminationMessagePolicy")
    if not policy:
        yield required(at)
    elif policy not in _MESSAGE_POLICIES:
        yield not_supported(at, policy, _MESSAGE_POLICIES)
    yield from _validate_ports(container.ports, path.child("ports"))
    yield from validate_environment(container, path)
    yield from validate_mounts(container, context.volumes, path)
    yield from validate_pull_policy(container.image_pull_policy, path.child("imagePullPolicy"))
    yield from validate_requirements(
        container.resources,
        path.child("resources"),
        allow_indivisible_huge_pages=context.allow_indivisible_huge_pages,
    )
    yield from _validate_resize(container, context.spec.restart_policy, path.child("resizePolicy"))
    yield from validate_container_security(
        container.security_context,
        path.child("securityContext"),
        host_users=context.spec.host_users is not False,
    )


def _validate_ports(ports: Sequence[View], path: FieldPath) -> FieldErrors:
    taken: set[str] = set()
    for index, port in enumerate(ports):
        at = path.index(index)
        if port.name:
            messages = port_name(port.name)
            if messages:
                yield from validate_format(port.name, at.child("name"), port_name)
            elif port.name in taken:
                yield duplicate(at.child("name"), port.name)
            else:
                taken.add(port.name)
        if not port.container_port:
            yield required(at.child("containerPort"))
        for name, number in (("containerPort", port.container_port), ("hostPort", port.host_port)):
            if number:
                for message in port_number(number):
                    yield invalid(at.child(name), number, message)
        if not port.protocol:
            yield required(at.child("protocol"))
        elif port.protocol not in _PROTOCOLS:
            yield not_supported(at.child("protocol"), port.protocol, _PROTOCOLS)


def _validate_resize(container: View, restart_policy: str, path: FieldPath) -> FieldErrors:
    taken: set[str] = set()
    for index, policy in enumerate(container.resize_policy):
        if policy.resource_name in taken:
            yield duplicate(path.index(index), policy.resource_name)
        taken.add(policy.resource_name)
        for value, allowed in (
            (policy.resource_name, _RESIZABLE),
            (policy.restart_policy, _RESIZE_POLICIES),
        ):
            if not value:
                yield required(path)
            elif value not in allowed:
                yield not_supported(path, value, allowed)
        if restart_policy == "Never" and policy.restart_policy != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            yield invalid(path, policy.restart_policy, detail)


def _validate_hooks(container: View, context: ContainerContext, path: FieldPath) -> FieldErrors:
    if container.lifecycle is not None:
        yield from validate_lifecycle(container.lifecycle, context.grace, context.os, path.child("lifecycle"))
    probes = (container.liveness_probe, container.readiness_probe, container.startup_probe)
    yield from validate_probes(*probes, context.grace, path)


def _validate_restarts(container: View, path: FieldPath) -> FieldErrors:
    """Validate the restart policy and restart policy rules of a container."""
    policy, rules = container.restart_policy, container.restart_policy_rules
    if policy is None:
        if rules:
            detail = "must specify restartPolicy when restart rules are used"
            yield required(path.child("restartPolicy"), detail)
    elif policy not in _RESTART_POLICIES:
        yield not_supported(path.child("restartPolicy"), policy, _RESTART_POLICIES)
    at = path.child("restartPolicyRules")
    if len(rules) > RULES_MAX:
        yield too_many(at, len(rules), RULES_MAX)
    for index, rule in enumerate(rules):
        where = at.index(index)
        if rule.action not in _ACTIONS:
            yield not_supported(where.child("action"), rule.action, _ACTIONS)
        if rule.exit_codes is None:
            yield required(where.child("exitCodes"), "must be specified")
            continue
        if rule.exit_codes.operator not in _OPERATORS:
            yield not_supported(where.child("exitCodes", "operator"), rule.exit_codes.operator, _OPERATORS)
        count = len(rule.exit_codes.values)
        if count > EXIT_CODES_MAX:
            yield too_many(where.child("exitCodes", "values"), count, EXIT_CODES_MAX)
