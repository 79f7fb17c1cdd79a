"""Dropping of fields that belong to disabled feature gates (docs/spec/api.md, "Dropping of gated fields").

One table lists, for each gate, the fields it controls and the fields whose use keeps them. Fields of a
disabled gate are dropped from the new object unless the stored object already uses the feature. Works in
place on canonical trees (`object_trees.canonicalize`).

DIFF: in addition to the fields of Kubernetes 1.36, DRANodeAllocatableResources controls the 1.37 and draft
forms and the accounting policies (test_node_allocatable_gate_controls_every_form,
test_class_policies_follow_the_gate).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.object_trees import (
    Steps,
    StepTree,
    Tree,
    find_fields,
    has_any_steps,
    has_steps,
    merge_steps,
    split_path,
)


@dataclass(frozen=True, slots=True)
class GatedFields:
    """Fields controlled by feature gates, and the fields whose use in the stored object keeps them.

    Fields are paths for `find_fields`. `if_present` lists fields that count as used when set at all,
    `if_nonempty` those that count when not empty. The fields are enabled if all `gates` are.
    """

    gates: tuple[str, ...]
    fields: tuple[str, ...]
    if_present: tuple[str, ...] = ()
    if_nonempty: tuple[str, ...] = ()
    always_off: bool = False

    def is_enabled(self, gates: Gates) -> bool:
        return not self.always_off and all(gates.enabled(gate) for gate in self.gates)

    def is_in_use(self, tree: Tree) -> bool:
        return any(True for path in self.if_present for _ in find_fields(tree, path)) or any(
            holder[name] for path in self.if_nonempty for holder, name in find_fields(tree, path)
        )

    def drop_from(self, tree: Tree) -> None:
        for path in self.fields:
            for holder, name in list(find_fields(tree, path)):
                del holder[name]


def drop_disabled_fields(endpoint: tuple[str, str], tree: Tree, old: Tree | None, gates: Gates) -> None:
    """Drop the fields of disabled gates from the tree; `endpoint` is (kind, subresource)."""
    features, merged = _disabled(endpoint, gates)
    if not has_any_steps(tree, merged):
        return
    for feature, paths in features:
        for path in paths:
            if has_steps(tree, path):
                if old is None or not feature.is_in_use(old):
                    feature.drop_from(tree)
                break


@lru_cache(maxsize=256)
def _disabled(
    endpoint: tuple[str, str], gates: Gates
) -> tuple[tuple[tuple[GatedFields, tuple[Steps, ...]], ...], StepTree]:
    """Return the fields of disabled gates, with their paths as steps; and all paths as one tree."""
    features = tuple(
        (feature, tuple(map(split_path, feature.fields)))
        for feature in GATED_FIELDS.get(endpoint, ())
        if not feature.is_enabled(gates)
    )
    return features, merge_steps(steps for _, paths in features for steps in paths)


_DEVICE_FORMS = tuple(
    f"spec.devices[].{name}"
    for name in ("nodeAllocatableResourceMappings", "nodeAllocatableResources", "nativeResourceMappings")
)
_LISTS = tuple(f"spec.devices[].attributes{{}}.{name}" for name in ("bools", "ints", "strings", "versions"))
_PER_DEVICE_NODES = tuple(f"spec.devices[].{name}" for name in ("nodeName", "nodeSelector", "allNodes"))
_SHARING = (
    "spec.devices[].allowMultipleAllocations",
    "spec.devices[].capacity{}.requestPolicy",
    "spec.devices[].requestPolicies",
)
_GROUPS = ("spec.devices[].consumesCounters[].compatibilityGroups",)
_SKIPPED, _PARTITION_TYPE = ("spec.skipNodeOperations",), ("spec.partitionTypeAttribute",)
_BINDING = ("spec.devices[].bindingConditions", "spec.devices[].bindingFailureConditions")

_SLICE = (
    GatedFields(
        ("DRADeviceTaints",),
        ("spec.devices[].taints",),
        if_nonempty=("spec.devices[].taints",),
    ),
    GatedFields(
        ("DRAPartitionableDevices",),
        (
            "spec.sharedCounters",
            "spec.perDeviceNodeSelection",
            "spec.devices[].consumesCounters",
            *_PER_DEVICE_NODES,
        ),
        if_present=("spec.perDeviceNodeSelection", *_PER_DEVICE_NODES),
        if_nonempty=("spec.sharedCounters", "spec.devices[].consumesCounters"),
    ),
    GatedFields(
        ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
        (*_BINDING, "spec.devices[].bindsToNode"),
        if_present=("spec.devices[].bindsToNode",),
        if_nonempty=_BINDING,
    ),
    GatedFields(("DRAConsumableCapacity",), _SHARING, if_present=_SHARING),
    GatedFields(("DRANodeAllocatableResources",), _DEVICE_FORMS, if_nonempty=_DEVICE_FORMS),
    GatedFields(("DRAListTypeAttributes",), _LISTS, if_present=_LISTS),
    GatedFields(("DRADeviceCompatibilityGroups",), _GROUPS, if_nonempty=_GROUPS),
    GatedFields(("DRAPartitionableDevicesType",), _PARTITION_TYPE, if_present=_PARTITION_TYPE),
    GatedFields(("DRAOptionalNodeOperations",), _SKIPPED, if_nonempty=_SKIPPED),
)


def _claim_spec(spec: str) -> tuple[GatedFields, ...]:
    """Return the gated fields of a claim spec, which a template nests one level deeper."""
    request = f"{spec}.devices.requests[]"
    forms = (f"{request}.exactly", f"{request}.firstAvailable[]")
    tolerations = tuple(f"{form}.tolerations" for form in forms)
    capacity = (f"{spec}.devices.constraints[].distinctAttribute", *(f"{form}.capacity" for form in forms))
    alternatives = (f"{request}.firstAvailable",)
    derived = tuple(f"{form}.derivedAttributes" for form in forms)
    admin = (f"{request}.exactly.adminAccess",)
    return (
        GatedFields(("DRAPrioritizedList",), alternatives, if_nonempty=alternatives),
        GatedFields(("DRADeviceTaints",), tolerations, if_nonempty=tolerations),
        GatedFields(("DRAAdminAccess",), admin, if_present=admin),
        GatedFields(("DRAConsumableCapacity",), capacity, if_present=capacity),
        GatedFields(("DRADerivedAttributes",), derived, if_nonempty=derived),
    )


def _used_in_spec(gate: str) -> tuple[str, ...]:
    """Return the spec fields whose use also keeps the status fields of a gate."""
    return next(feature.if_present for feature in _claim_spec("spec") if feature.gates == (gate,))


_RESULT = "status.allocation.devices.results[]"
_RESULT_BINDING = (f"{_RESULT}.bindingConditions", f"{_RESULT}.bindingFailureConditions")
_RESULT_SKIPPED = (f"{_RESULT}.skipNodeOperations",)
_RESULT_SHARES = (f"{_RESULT}.shareID", f"{_RESULT}.consumedCapacity", "status.devices[].shareID")

_CLAIM_STATUS = (
    GatedFields(("DRAResourceClaimDeviceStatus",), ("status.devices",), if_nonempty=("status.devices",)),
    GatedFields(
        ("DRAAdminAccess",),
        (f"{_RESULT}.adminAccess",),
        if_present=(*_used_in_spec("DRAAdminAccess"), f"{_RESULT}.adminAccess"),
    ),
    GatedFields(
        ("DRAConsumableCapacity",),
        _RESULT_SHARES,
        if_present=(*_used_in_spec("DRAConsumableCapacity"), *_RESULT_SHARES),
    ),
    GatedFields(("DRADeviceBindingConditions",), _RESULT_BINDING, if_present=_RESULT_BINDING),
    GatedFields(("DRAOptionalNodeOperations",), _RESULT_SKIPPED, if_nonempty=_RESULT_SKIPPED),
)

_POLICIES = ("spec.nodeAllocatableResourceAccountingPolicies", "spec.nativeResourceAccountingPolicies")
_MANAGES = ("spec.managesNodeAllocatableResources", "spec.managesNativeResources")

_CLASS = (
    GatedFields(
        ("DRAExtendedResource",), ("spec.extendedResourceName",), if_present=("spec.extendedResourceName",)
    ),
    GatedFields(
        ("DRANodeAllocatableResources",), (*_POLICIES, *_MANAGES), if_present=_MANAGES, if_nonempty=_POLICIES
    ),
)

_CHARGES = ("status.nodeAllocatableResourceClaimStatuses", "status.nativeResourceClaimStatus")

_CONTAINERS = ("spec.containers[]", "spec.initContainers[]", "spec.ephemeralContainers[]")
_CONTAINER_STATUSES = (
    "status.containerStatuses[]",
    "status.initContainerStatuses[]",
    "status.ephemeralContainerStatuses[]",
)

#: Pod fields of alpha features of Kubernetes 1.36, which are disabled.
_ALPHA_FIELDS: tuple[tuple[str, ...], ...] = (
    ("spec.volumes[].projected.sources[].clusterTrustBundle",),
    ("spec.volumes[].projected.sources[].podCertificate",),
    tuple(f"{container}.lifecycle.stopSignal" for container in _CONTAINERS),
    tuple(f"{status}.volumeMounts[].volumeStatus" for status in _CONTAINER_STATUSES),
)


def _dropped(fields: tuple[str, ...]) -> GatedFields:
    """Return fields that are dropped unless the stored object has one of them."""
    return GatedFields((), fields, if_present=fields, always_off=True)


_POD = (
    GatedFields(
        ("DynamicResourceAllocation",),
        (
            "spec.resourceClaims",
            "spec.containers[].resources.claims",
            "spec.initContainers[].resources.claims",
            "spec.ephemeralContainers[].resources.claims",
            "status.resourceClaimStatuses",
        ),
        if_nonempty=("spec.resourceClaims",),
    ),
    GatedFields(
        ("DRAExtendedResource",),
        ("status.extendedResourceClaimStatus",),
        if_present=("status.extendedResourceClaimStatus",),
    ),
    GatedFields(("DRANodeAllocatableResources",), _CHARGES, if_nonempty=_CHARGES),
    GatedFields(("GenericWorkload",), ("spec.schedulingGroup",), if_present=("spec.schedulingGroup",)),
    GatedFields(
        ("PodLevelResources",),
        ("spec.resources",),
        if_nonempty=("spec.resources.requests", "spec.resources.limits"),
    ),
    GatedFields(
        ("InPlacePodLevelResourcesVerticalScaling",),
        ("status.resources", "status.allocatedResources"),
        if_present=("status.resources", "status.allocatedResources"),
    ),
    *map(_dropped, _ALPHA_FIELDS),
)


def _group_fields(holder: str) -> tuple[GatedFields, ...]:
    """Return the gated fields of a PodGroup's spec or of a template of a Workload."""
    constraints, claims = (f"{holder}.schedulingConstraints",), (f"{holder}.resourceClaims",)
    preemption = tuple(f"{holder}.{name}" for name in ("disruptionMode", "priorityClassName", "priority"))
    return (
        GatedFields(("TopologyAwareWorkloadScheduling",), constraints, if_present=constraints),
        GatedFields(("DRAWorkloadResourceClaims",), claims, if_nonempty=claims),
        *(
            GatedFields(("WorkloadAwarePreemption",), (field,), if_present=(field,), if_nonempty=())
            for field in preemption
        ),
    )


#: Gated fields by (kind, subresource).
GATED_FIELDS: Mapping[tuple[str, str], tuple[GatedFields, ...]] = {
    ("ResourceSlice", ""): _SLICE,
    ("ResourceClaim", ""): _claim_spec("spec"),
    ("ResourceClaim", "status"): _CLAIM_STATUS,
    ("ResourceClaimTemplate", ""): _claim_spec("spec.spec"),
    ("DeviceClass", ""): _CLASS,
    ("Pod", ""): _POD,
    ("Pod", "status"): _POD,
    ("Pod", "resize"): _POD,
    ("Pod", "ephemeralcontainers"): _POD,
    ("Workload", ""): _group_fields("spec.podGroupTemplates[]"),
    ("PodGroup", ""): _group_fields("spec"),
    ("PodGroup", "status"): (
        GatedFields(
            ("DRAWorkloadResourceClaims",),
            ("status.resourceClaimStatuses",),
            if_nonempty=("spec.resourceClaims",),
        ),
    ),
}
