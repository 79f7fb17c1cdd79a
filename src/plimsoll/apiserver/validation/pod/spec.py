"""START HERE for pods: the rules of a pod's spec, apart from claims (`claims.py`).

`check_spec` calls the modules of the single topics in the order of Kubernetes 1.36: volumes, containers,
resources, network, security, placement. What a stored pod already has and a new one may not have any more is
gathered once (`Allowance`) and let be.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll.api.gates import Gates
from plimsoll.api.names import dns_subdomain, label_key
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.metadata import check_labels
from plimsoll.apiserver.validation.name_formats import check_format
from plimsoll.apiserver.validation.pod.annotations import (
    DELETION_COST,
    check_agreement,
    check_annotations,
    is_deletion_cost,
)
from plimsoll.apiserver.validation.pod.containers import (
    Surroundings,
    check_containers,
    check_image_blanks,
    is_sidecar,
)
from plimsoll.apiserver.validation.pod.env import check_files_of_variables
from plimsoll.apiserver.validation.pod.network import check_network
from plimsoll.apiserver.validation.pod.placement import (
    Stored,
    check_affinity,
    check_spreading,
    check_tolerations,
    find_stored,
)
from plimsoll.apiserver.validation.pod.pod_view import WholePod, WholePodSpec
from plimsoll.apiserver.validation.pod.resources import check_overhead, check_pod_level, has_odd_pages
from plimsoll.apiserver.validation.pod.security import check_host_users, check_pod_security, shared_namespace
from plimsoll.apiserver.validation.pod.volumes import check_volumes, has_outside_token
from plimsoll.apiserver.validation.pod.windows import check_host_process, check_os, containers_with_paths
from plimsoll.apiserver.validation.priority_classes import check_preemption_policy

_SPEC = Path("spec")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DEADLINE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is let be because a stored pod has it."""

    placement: Stored = field(default_factory=Stored)
    any_pages: bool = False
    any_token_path: bool = False
    any_sysctls: bool = False
    any_cost: bool = False
    any_init_resize: bool = False
    any_se_linux_policy: bool = False
    user_devices: bool = False
    user_host_network: bool = False


NOTHING = Allowance()


def find_allowance(old: WholePod) -> Allowance:
    spec = old.spec
    context = spec.security_context
    sysctls = () if context is None else context.sysctls
    cost = old.metadata.annotations.get(DELETION_COST)
    in_user_namespace = spec.host_users is False
    return Allowance(
        placement=find_stored(spec),
        any_pages=has_odd_pages(spec),
        any_token_path=has_outside_token(spec),
        any_sysctls=any(shared_namespace(sysctl.name, spec) for sysctl in sysctls),
        any_cost=cost is not None and not is_deletion_cost(cost),
        any_init_resize=any(
            policy.restart_policy == "RestartContainer"
            for container in spec.init_containers
            if not is_sidecar(container)
            for policy in container.resize_policy
        ),
        any_se_linux_policy=context is not None and context.se_linux_change_policy is not None,
        user_devices=in_user_namespace
        and any(container.volume_devices for container, _ in containers_with_paths(spec, _SPEC)),
        user_host_network=in_user_namespace and spec.host_network,
    )


def check_new(pod: WholePod) -> Problems:
    """What holds for a new pod alone."""
    if pod.spec.node_name and pod.spec.scheduling_gates:
        detail = "cannot be set until all schedulingGates have been cleared"
        yield forbidden(_SPEC.child("nodeName"), detail)
    yield from check_agreement(pod, _SPEC)


def check_spec(pod: WholePod, gates: Gates, allowed: Allowance = NOTHING) -> Problems:
    """The spec of a pod and the annotations that belong to it."""
    spec = pod.spec
    yield from check_annotations(pod, allowed.placement, any_cost=allowed.any_cost)
    volumes, problems = check_volumes(
        spec, pod.metadata.name, _SPEC.child("volumes"), any_token_path=allowed.any_token_path
    )
    yield from problems
    around = Surroundings(spec, volumes, allowed.any_pages, allowed.any_init_resize)
    yield from check_containers(around, _SPEC)
    if gates.enabled("PodLevelResources"):
        yield from check_pod_level(pod, _SPEC.child("resources"), any_pages=allowed.any_pages)
    yield from check_network(spec, _SPEC)
    yield from _check_single_fields(spec)
    yield from _check_security(spec, allowed)
    yield from _check_placement(spec, allowed)
    yield from check_overhead(spec.overhead, _SPEC.child("overhead"), any_pages=allowed.any_pages)
    yield from check_os(spec, _SPEC)
    yield from check_files_of_variables(spec, _SPEC)
    yield from _check_tokens(spec)
    for group, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for place, container in enumerate(containers):
            yield from check_image_blanks(container, _SPEC.child(group).index(place))


def _check_single_fields(spec: WholePodSpec) -> Problems:
    if spec.termination_grace_period_seconds is None:
        yield required(_SPEC.child("terminationGracePeriodSeconds"))
    if spec.restart_policy not in _RESTART_POLICIES:
        yield not_supported(_SPEC.child("restartPolicy"), spec.restart_policy, _RESTART_POLICIES)
    deadline = spec.active_deadline_seconds
    if deadline is not None and not 1 <= deadline <= _DEADLINE_MAX:
        detail = f"must be between 1 and {_DEADLINE_MAX}, inclusive"
        yield invalid(_SPEC.child("activeDeadlineSeconds"), deadline, detail)
    for name, value in (
        ("serviceAccountName", spec.service_account_name),
        ("nodeName", spec.node_name),
        ("priorityClassName", spec.priority_class_name),
    ):
        if value:
            yield from check_format(value, _SPEC.child(name), dns_subdomain)
    if spec.runtime_class_name is not None:
        yield from check_format(spec.runtime_class_name, _SPEC.child("runtimeClassName"), dns_subdomain)
    if spec.preemption_policy is not None:
        yield from check_preemption_policy(spec.preemption_policy, _SPEC.child("preemptionPolicy"))
    for place, gate in enumerate(spec.readiness_gates):
        at = _SPEC.child("readinessGates").index(place).child("conditionType")
        yield from check_format(gate.condition_type, at, label_key)
    taken: set[str] = set()
    for place, scheduling in enumerate(spec.scheduling_gates):
        at = _SPEC.child("schedulingGates").index(place)
        yield from check_format(scheduling.name, at, label_key)
        if scheduling.name in taken:
            yield duplicate(at, scheduling.name)
        taken.add(scheduling.name)


def _check_security(spec: WholePodSpec, allowed: Allowance) -> Problems:
    yield from check_pod_security(
        spec,
        _SPEC.child("securityContext"),
        any_sysctls=allowed.any_sysctls,
        any_se_linux_policy=allowed.any_se_linux_policy,
    )
    yield from check_host_process(spec, _SPEC)
    yield from check_host_users(
        spec, _SPEC, with_devices=allowed.user_devices, with_host_network=allowed.user_host_network
    )


def _check_placement(spec: WholePodSpec, allowed: Allowance) -> Problems:
    yield from check_labels(spec.node_selector, _SPEC.child("nodeSelector"))
    yield from check_affinity(spec.affinity, _SPEC.child("affinity"), allowed.placement)
    at = _SPEC.child("topologySpreadConstraints")
    yield from check_spreading(spec.topology_spread_constraints, at, allowed.placement)
    yield from check_tolerations(spec.tolerations, _SPEC.child("tolerations"), allowed.placement)


def _check_tokens(spec: WholePodSpec) -> Problems:
    """A token is one of a service account."""
    if spec.service_account_name:
        return
    for place, volume in enumerate(spec.volumes):
        if volume.projected is None:
            continue
        for position, source in enumerate(volume.projected.sources):
            if source.service_account_token is not None:
                at = _SPEC.child("volumes").index(place).child("projected", "sources").index(position)
                detail = "must not be specified when serviceAccountName is not set"
                yield forbidden(at.child("serviceAccountToken"), detail)
