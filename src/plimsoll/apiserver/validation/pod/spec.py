"""START HERE for pods: validation of the pod spec, except claims (`claims.py`).

`validate_spec` runs the modules of the individual topics in the order of Kubernetes 1.36: volumes,
containers, resources, network, security, placement. Exceptions for what a stored pod already has and a new
one must not have are collected once (`PodValidationOptions`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from plimsoll.api.gates import Gates
from plimsoll.api.names import dns_subdomain, label_key
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.metadata import validate_labels
from plimsoll.apiserver.validation.name_formats import validate_format
from plimsoll.apiserver.validation.pod.annotations import (
    DELETION_COST,
    is_deletion_cost,
    validate_annotations,
    validate_profile_annotations_match,
)
from plimsoll.apiserver.validation.pod.containers import (
    ContainerContext,
    is_sidecar,
    validate_containers,
    validate_image_blanks,
)
from plimsoll.apiserver.validation.pod.env import validate_env_file_volumes
from plimsoll.apiserver.validation.pod.network import validate_network
from plimsoll.apiserver.validation.pod.placement import (
    PlacementOptions,
    options_for_stored_spec,
    validate_affinity,
    validate_tolerations,
    validate_topology_spread_constraints,
)
from plimsoll.apiserver.validation.pod.resources import (
    has_indivisible_huge_pages,
    validate_overhead,
    validate_pod_level,
)
from plimsoll.apiserver.validation.pod.security import (
    host_namespace_field,
    validate_host_users,
    validate_pod_security,
)
from plimsoll.apiserver.validation.pod.volumes import has_nonlocal_token_path, validate_volumes
from plimsoll.apiserver.validation.pod.windows import (
    containers_with_paths,
    validate_host_process,
    validate_os,
)
from plimsoll.apiserver.validation.priority_classes import validate_preemption_policy

_SPEC = FieldPath("spec")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_DEADLINE_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PodValidationOptions:
    """Exceptions to validation rules for values that a stored pod already has (upstream's
    PodValidationOptions).
    """

    placement: PlacementOptions = field(default_factory=PlacementOptions)
    allow_indivisible_huge_pages: bool = False
    allow_nonlocal_token_path: bool = False
    allow_host_sysctls: bool = False
    allow_invalid_deletion_cost: bool = False
    allow_init_resize_policy: bool = False
    allow_se_linux_change_policy: bool = False
    allow_user_namespace_devices: bool = False
    allow_user_namespace_host_network: bool = False


STRICT = PodValidationOptions()


def options_for_stored_pod(old: View) -> PodValidationOptions:
    spec = old.spec
    context = spec.security_context
    sysctls = () if context is None else context.sysctls
    cost = old.metadata.annotations.get(DELETION_COST)
    in_user_namespace = spec.host_users is False
    return PodValidationOptions(
        placement=options_for_stored_spec(spec),
        allow_indivisible_huge_pages=has_indivisible_huge_pages(spec),
        allow_nonlocal_token_path=has_nonlocal_token_path(spec),
        allow_host_sysctls=any(host_namespace_field(sysctl.name, spec) for sysctl in sysctls),
        allow_invalid_deletion_cost=cost is not None and not is_deletion_cost(cost),
        allow_init_resize_policy=any(
            policy.restart_policy == "RestartContainer"
            for container in spec.init_containers
            if not is_sidecar(container)
            for policy in container.resize_policy
        ),
        allow_se_linux_change_policy=context is not None and context.se_linux_change_policy is not None,
        allow_user_namespace_devices=in_user_namespace
        and any(container.volume_devices for container, _ in containers_with_paths(spec, _SPEC)),
        allow_user_namespace_host_network=in_user_namespace and spec.host_network,
    )


def validate_new_pod(pod: View) -> FieldErrors:
    """Validate what applies only to new pods."""
    if pod.spec.node_name and pod.spec.scheduling_gates:
        detail = "cannot be set until all schedulingGates have been cleared"
        yield forbidden(_SPEC.child("nodeName"), detail)
    yield from validate_profile_annotations_match(pod, _SPEC)


def validate_spec(pod: View, gates: Gates, options: PodValidationOptions = STRICT) -> FieldErrors:
    """Validate the spec of a pod and the related annotations."""
    spec = pod.spec
    yield from validate_annotations(
        pod, options.placement, allow_invalid_deletion_cost=options.allow_invalid_deletion_cost
    )
    volumes, errors = validate_volumes(
        spec,
        pod.metadata.name,
        _SPEC.child("volumes"),
        allow_nonlocal_token_path=options.allow_nonlocal_token_path,
    )
    yield from errors
    context = ContainerContext(
        spec, volumes, options.allow_indivisible_huge_pages, options.allow_init_resize_policy
    )
    yield from validate_containers(context, _SPEC)
    if gates.enabled("PodLevelResources"):
        yield from validate_pod_level(
            pod, _SPEC.child("resources"), allow_indivisible_huge_pages=options.allow_indivisible_huge_pages
        )
    yield from validate_network(spec, _SPEC)
    yield from _validate_single_fields(spec)
    yield from _validate_security(spec, options)
    yield from _validate_placement(spec, options)
    yield from validate_overhead(
        spec.overhead,
        _SPEC.child("overhead"),
        allow_indivisible_huge_pages=options.allow_indivisible_huge_pages,
    )
    yield from validate_os(spec, _SPEC)
    yield from validate_env_file_volumes(spec, _SPEC)
    yield from _validate_tokens(spec)
    for group, containers in (("containers", spec.containers), ("initContainers", spec.init_containers)):
        for index, container in enumerate(containers):
            yield from validate_image_blanks(container, _SPEC.child(group).index(index))


def _validate_single_fields(spec: View) -> FieldErrors:
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
            yield from validate_format(value, _SPEC.child(name), dns_subdomain)
    if spec.runtime_class_name is not None:
        yield from validate_format(spec.runtime_class_name, _SPEC.child("runtimeClassName"), dns_subdomain)
    if spec.preemption_policy is not None:
        yield from validate_preemption_policy(spec.preemption_policy, _SPEC.child("preemptionPolicy"))
    for index, gate in enumerate(spec.readiness_gates):
        at = _SPEC.child("readinessGates").index(index).child("conditionType")
        yield from validate_format(gate.condition_type, at, label_key)
    taken: set[str] = set()
    for index, scheduling in enumerate(spec.scheduling_gates):
        at = _SPEC.child("schedulingGates").index(index)
        yield from validate_format(scheduling.name, at, label_key)
        if scheduling.name in taken:
            yield duplicate(at, scheduling.name)
        taken.add(scheduling.name)
    group = spec.scheduling_group
    if group is not None:
        at = _SPEC.child("schedulingGroup", "podGroupName")
        if group.pod_group_name is None:
            yield invalid(at, None, "must specify one of: `podGroupName`")
        else:
            yield from validate_format(group.pod_group_name, at, dns_subdomain)


def _validate_security(spec: View, options: PodValidationOptions) -> FieldErrors:
    yield from validate_pod_security(
        spec,
        _SPEC.child("securityContext"),
        allow_host_sysctls=options.allow_host_sysctls,
        allow_se_linux_change_policy=options.allow_se_linux_change_policy,
    )
    yield from validate_host_process(spec, _SPEC)
    yield from validate_host_users(
        spec,
        _SPEC,
        allow_devices=options.allow_user_namespace_devices,
        allow_host_network=options.allow_user_namespace_host_network,
    )


def _validate_placement(spec: View, options: PodValidationOptions) -> FieldErrors:
    yield from validate_labels(spec.node_selector, _SPEC.child("nodeSelector"))
    yield from validate_affinity(spec.affinity, _SPEC.child("affinity"), options.placement)
    at = _SPEC.child("topologySpreadConstraints")
    yield from validate_topology_spread_constraints(spec.topology_spread_constraints, at, options.placement)
    yield from validate_tolerations(spec.tolerations, _SPEC.child("tolerations"), options.placement)


def _validate_tokens(spec: View) -> FieldErrors:
    """Validate that a pod with service account tokens has a service account."""
    if spec.service_account_name:
        return
    for index, volume in enumerate(spec.volumes):
        if volume.projected is None:
            continue
        for position, source in enumerate(volume.projected.sources):
            if source.service_account_token is not None:
                at = _SPEC.child("volumes").index(index).child("projected", "sources").index(position)
                detail = "must not be specified when serviceAccountName is not set"
                yield forbidden(at.child("serviceAccountToken"), detail)
