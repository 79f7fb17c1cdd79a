"""Fields that belong to a switched-off gate (section 8 of the API semantics).

Owns one table: for each gate the fields it controls and what counts as using the feature. A field of a
gate that is off is taken out of the new object, unless the stored object already uses the feature
somewhere. Works in place on canonical trees (`trees.canonicalise`).

DIFF: beside the fields of Kubernetes 1.36, DRANodeAllocatableResources controls the 1.37 and draft forms
and the accounting policies (test_node_allocatable_gate_controls_every_form,
test_class_policies_follow_the_gate).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.object_trees import Tree, find, holds


@dataclass(frozen=True, slots=True)
class Feature:
    """The fields of a gate, as paths, and the fields whose use in the stored object keeps them.

    `if_present` counts a field that is given at all, `if_filled` one that is also not empty. All `gates`
    must be on for the feature to be on.
    """

    gates: tuple[str, ...]
    fields: tuple[str, ...]
    if_present: tuple[str, ...] = ()
    if_filled: tuple[str, ...] = ()
    always_off: bool = False

    def is_on(self, gates: Gates) -> bool:
        return not self.always_off and all(gates.enabled(gate) for gate in self.gates)

    def is_used(self, tree: Tree) -> bool:
        return any(True for path in self.if_present for _ in find(tree, path)) or any(
            holder[name] for path in self.if_filled for holder, name in find(tree, path)
        )

    def is_mentioned(self, tree: Tree) -> bool:
        """Whether there is anything to take out."""
        return any(holds(tree, path) for path in self.fields)

    def take_out(self, tree: Tree) -> None:
        for path in self.fields:
            for holder, name in list(find(tree, path)):
                del holder[name]


def drop_disabled(endpoint: tuple[str, str], tree: Tree, old: Tree | None, gates: Gates) -> None:
    """Take the fields of switched-off gates out of the tree; `endpoint` is (kind, subresource)."""
    for feature in FEATURES.get(endpoint, ()):
        if feature.is_on(gates) or not feature.is_mentioned(tree):
            continue
        if old is None or not feature.is_used(old):
            feature.take_out(tree)


_DEVICE_FORMS = tuple(
    f"spec.devices[].{name}"
    for name in ("nodeAllocatableResourceMappings", "nodeAllocatableResources", "nativeResourceMappings")
)
_LISTS = tuple(f"spec.devices[].attributes{{}}.{name}" for name in ("bools", "ints", "strings", "versions"))
_PER_DEVICE_NODES = tuple(f"spec.devices[].{name}" for name in ("nodeName", "nodeSelector", "allNodes"))
_SHARING = ("spec.devices[].allowMultipleAllocations", "spec.devices[].capacity{}.requestPolicy")
_BINDING = ("spec.devices[].bindingConditions", "spec.devices[].bindingFailureConditions")

_SLICE = (
    Feature(
        ("DRADeviceTaints",),
        ("spec.devices[].taints",),
        if_filled=("spec.devices[].taints",),
    ),
    Feature(
        ("DRAPartitionableDevices",),
        (
            "spec.sharedCounters",
            "spec.perDeviceNodeSelection",
            "spec.devices[].consumesCounters",
            *_PER_DEVICE_NODES,
        ),
        if_present=("spec.perDeviceNodeSelection", *_PER_DEVICE_NODES),
        if_filled=("spec.sharedCounters", "spec.devices[].consumesCounters"),
    ),
    Feature(
        ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"),
        (*_BINDING, "spec.devices[].bindsToNode"),
        if_present=("spec.devices[].bindsToNode",),
        if_filled=_BINDING,
    ),
    Feature(("DRAConsumableCapacity",), _SHARING, if_present=_SHARING),
    Feature(("DRANodeAllocatableResources",), _DEVICE_FORMS, if_filled=_DEVICE_FORMS),
    Feature(("DRAListTypeAttributes",), _LISTS, if_present=_LISTS),
)


def _claim_spec(spec: str) -> tuple[Feature, ...]:
    """The features of a claim's spec, which a template holds one level deeper."""
    request = f"{spec}.devices.requests[]"
    forms = (f"{request}.exactly", f"{request}.firstAvailable[]")
    tolerations = tuple(f"{form}.tolerations" for form in forms)
    capacity = (f"{spec}.devices.constraints[].distinctAttribute", *(f"{form}.capacity" for form in forms))
    alternatives = (f"{request}.firstAvailable",)
    admin = (f"{request}.exactly.adminAccess",)
    return (
        Feature(("DRAPrioritizedList",), alternatives, if_filled=alternatives),
        Feature(("DRADeviceTaints",), tolerations, if_filled=tolerations),
        Feature(("DRAAdminAccess",), admin, if_present=admin),
        Feature(("DRAConsumableCapacity",), capacity, if_present=capacity),
    )


def _used_in_spec(gate: str) -> tuple[str, ...]:
    """The spec fields whose use also keeps the status fields of a gate."""
    return next(feature.if_present for feature in _claim_spec("spec") if feature.gates == (gate,))


_RESULT = "status.allocation.devices.results[]"
_RESULT_BINDING = (f"{_RESULT}.bindingConditions", f"{_RESULT}.bindingFailureConditions")
_RESULT_SHARES = (f"{_RESULT}.shareID", f"{_RESULT}.consumedCapacity", "status.devices[].shareID")

_CLAIM_STATUS = (
    Feature(("DRAResourceClaimDeviceStatus",), ("status.devices",), if_filled=("status.devices",)),
    Feature(
        ("DRAAdminAccess",),
        (f"{_RESULT}.adminAccess",),
        if_present=(*_used_in_spec("DRAAdminAccess"), f"{_RESULT}.adminAccess"),
    ),
    Feature(
        ("DRAConsumableCapacity",),
        _RESULT_SHARES,
        if_present=(*_used_in_spec("DRAConsumableCapacity"), *_RESULT_SHARES),
    ),
    Feature(("DRADeviceBindingConditions",), _RESULT_BINDING, if_present=_RESULT_BINDING),
)

_POLICIES = ("spec.nodeAllocatableResourceAccountingPolicies", "spec.nativeResourceAccountingPolicies")
_MANAGES = ("spec.managesNodeAllocatableResources", "spec.managesNativeResources")

_CLASS = (
    Feature(
        ("DRAExtendedResource",), ("spec.extendedResourceName",), if_present=("spec.extendedResourceName",)
    ),
    Feature(
        ("DRANodeAllocatableResources",), (*_POLICIES, *_MANAGES), if_present=_MANAGES, if_filled=_POLICIES
    ),
)

_CHARGES = ("status.nodeAllocatableResourceClaimStatuses", "status.nativeResourceClaimStatus")

_CONTAINERS = ("spec.containers[]", "spec.initContainers[]", "spec.ephemeralContainers[]")
_CONTAINER_STATUSES = (
    "status.containerStatuses[]",
    "status.initContainerStatuses[]",
    "status.ephemeralContainerStatuses[]",
)

#: Fields of pods that belong to alpha features of Kubernetes 1.36, which are off.
_ALPHA_FIELDS: tuple[tuple[str, ...], ...] = (
    ("spec.schedulingGroup",),
    ("spec.volumes[].projected.sources[].clusterTrustBundle",),
    ("spec.volumes[].projected.sources[].podCertificate",),
    tuple(f"{container}.lifecycle.stopSignal" for container in _CONTAINERS),
    tuple(f"{status}.volumeMounts[].volumeStatus" for status in _CONTAINER_STATUSES),
)


def _dropped(fields: tuple[str, ...]) -> Feature:
    """Fields that are taken out unless the stored object has one of them."""
    return Feature((), fields, if_present=fields, always_off=True)


_POD = (
    Feature(
        ("DynamicResourceAllocation",),
        (
            "spec.resourceClaims",
            "spec.containers[].resources.claims",
            "spec.initContainers[].resources.claims",
            "spec.ephemeralContainers[].resources.claims",
            "status.resourceClaimStatuses",
        ),
        if_filled=("spec.resourceClaims",),
    ),
    Feature(
        ("DRAExtendedResource",),
        ("status.extendedResourceClaimStatus",),
        if_present=("status.extendedResourceClaimStatus",),
    ),
    Feature(("DRANodeAllocatableResources",), _CHARGES, if_filled=_CHARGES),
    Feature(
        ("PodLevelResources",),
        ("spec.resources",),
        if_filled=("spec.resources.requests", "spec.resources.limits"),
    ),
    Feature(
        ("InPlacePodLevelResourcesVerticalScaling",),
        ("status.resources", "status.allocatedResources"),
        if_present=("status.resources", "status.allocatedResources"),
    ),
    *map(_dropped, _ALPHA_FIELDS),
)

#: What each endpoint drops, by (kind, subresource).
FEATURES: Mapping[tuple[str, str], tuple[Feature, ...]] = {
    ("ResourceSlice", ""): _SLICE,
    ("ResourceClaim", ""): _claim_spec("spec"),
    ("ResourceClaim", "status"): _CLAIM_STATUS,
    ("ResourceClaimTemplate", ""): _claim_spec("spec.spec"),
    ("DeviceClass", ""): _CLASS,
    ("Pod", ""): _POD,
    ("Pod", "status"): _POD,
    ("Pod", "resize"): _POD,
    ("Pod", "ephemeralcontainers"): _POD,
}
