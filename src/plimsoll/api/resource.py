"""Typed views of `resource.k8s.io/v1`: slices, claims, templates, classes, taint rules.

Includes the fields of KEP-5075 (consumable capacity, request policies, shareID), those that Kubernetes 1.37
added (compatibility groups, derived attributes, skipped node operations, partition types), and the
node-allocatable fields of KEP-5517 and its earlier draft in all three wire forms; `api.forms` converts those
to one internal form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import msgspec

from plimsoll.api.core import NodeSelector, ResourceList
from plimsoll.api.meta import Condition, Int, ObjectMeta, Wire
from plimsoll.api.quantity import Quantity

#: Standard device attributes.
NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
#: Node operations that a driver can declare unnecessary: the two calls, or all of them.
NODE_PREPARE, NODE_UNPREPARE, ALL_NODE_OPERATIONS = "NodePrepareResources", "NodeUnprepareResources", "*"
#: Feature that a node declares if it can skip node operations.
OPTIONAL_NODE_OPERATIONS = "DRAOptionalNodeOperations"
#: Allocation modes: an exact count, or all matching devices.
EXACT_COUNT, ALL = "ExactCount", "All"
#: Maximum number of devices of one claim.
MAX_ALLOCATION_RESULTS = 32

# -- devices


class DeviceAttribute(Wire, frozen=True):
    """Exactly one of the values; lists are None if absent, because an empty list is an error."""

    int_value: Int | None = msgspec.field(name="int", default=None)
    bool_value: bool | None = msgspec.field(name="bool", default=None)
    string_value: str | None = msgspec.field(name="string", default=None)
    version_value: str | None = msgspec.field(name="version", default=None)
    int_values: tuple[Int, ...] | None = msgspec.field(name="ints", default=None)
    bool_values: tuple[bool, ...] | None = msgspec.field(name="bools", default=None)
    string_values: tuple[str, ...] | None = msgspec.field(name="strings", default=None)
    version_values: tuple[str, ...] | None = msgspec.field(name="versions", default=None)


class CapacityRequestPolicyRange(Wire, frozen=True):
    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityRequestPolicy(Wire, frozen=True):
    """`zero_consumption` and `request_policy_name` are ideas of KEP-5075, "Future Possibilities":
    `api/request_policies.py` replaces them.
    """

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None
    zero_consumption: bool | None = None
    request_policy_name: str | None = None


class DeviceCapacity(Wire, frozen=True):
    value: Quantity | None = None
    request_policy: CapacityRequestPolicy | None = None


class Counter(Wire, frozen=True):
    value: Quantity | None = None


class CounterSet(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("counter_set",)
    counter_set: str = ""
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] = ()


class DeviceTaint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeAllocatableResourceMapping(Wire, frozen=True):
    """1.36: mapping from an allocated device to an amount of one node resource."""

    capacity_key: str | None = None
    allocation_multiplier: Quantity | None = None
    accounting_policy: str = ""


class ResourceMapping(Wire, frozen=True):
    """1.37: mapping from an allocated device to the node's resources."""

    capacity_key: str | None = None
    capacity_multiplier: Quantity | None = None
    device_multiplier: Quantity | None = None


class ResourceOverhead(Wire, frozen=True):
    """1.37: charges of using the device in addition to its mapping."""

    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableResource(Wire, frozen=True):
    mapping: ResourceMapping | None = None
    overhead: ResourceOverhead | None = None
    accounting_policy: str = ""


class QuantitySource(Wire, frozen=True):
    """Draft: `quantityFrom`, exactly one of the two."""

    per_instance_quantity: Quantity | None = None
    capacity: str | None = None


class NativeResourceMapping(Wire, frozen=True):
    """A mapping in the draft's form."""

    quantity_from: QuantitySource | None = None
    accounting_policy: str = ""


class Device(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    request_policies: dict[str, CapacityRequestPolicy] = {}
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}
    native_resource_mappings: dict[str, NativeResourceMapping] = {}


def find_attribute(device: Device, driver: str, attribute: str) -> DeviceAttribute | None:
    """Return an attribute by its full name; a name without a domain is in the driver's domain."""
    found = device.attributes.get(attribute)
    if found is None:
        domain, slash, name = attribute.partition("/")
        if slash and domain == driver:
            found = device.attributes.get(name)
    return found


class ResourcePool(Wire, frozen=True):
    name: str = ""
    generation: Int = 0
    resource_slice_count: Int = 0


class ResourceSliceSpec(Wire, frozen=True):
    """Slice spec; `devices` and `shared_counters` are None if absent: setting both, even empty, is an
    error.
    """

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None
    shared_counters: tuple[CounterSet, ...] | None = None
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


class ResourceSlice(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


# -- claims


class CELDeviceSelector(Wire, frozen=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    cel: CELDeviceSelector | None = None

    @property
    def expression(self) -> str:
        """The CEL expression, or "" without one."""
        return self.cel.expression if self.cel is not None else ""


def expressions_of(selectors: Iterable[DeviceSelector]) -> tuple[str, ...]:
    return tuple(selector.expression for selector in selectors)


class DeviceToleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int | None = None


class CapacityRequirements(Wire, frozen=True):
    requests: ResourceList = {}


class DeviceDerivedAttribute(Wire, frozen=True):
    """An attribute that a CEL expression computes, for the constraints of the claim."""

    name: str = ""
    expression: str = ""


class ExactDeviceRequest(Wire, frozen=True):
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int = 0
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class DeviceSubRequest(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = ""
    count: Int = 0
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


class DeviceRequest(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(Wire, frozen=True):
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class OpaqueDeviceConfiguration(Wire, frozen=True):
    driver: str = ""
    parameters: Any = None


class DeviceClaimConfiguration(Wire, frozen=True):
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(Wire, frozen=True):
    devices: DeviceClaim = DeviceClaim()


class DeviceAllocationConfiguration(Wire, frozen=True):
    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceRequestAllocationResult(Wire, frozen=True):
    """One result of an allocation: a device, or a share of one."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = msgspec.field(name="shareID", default=None)
    consumed_capacity: ResourceList = {}
    skip_node_operations: tuple[str, ...] = ()


class DeviceAllocationResult(Wire, frozen=True):
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(Wire, frozen=True):
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: str | None = None


class ResourceClaimConsumerReference(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("uid",)
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class NetworkDeviceData(Wire, frozen=True):
    interface_name: str = ""
    ips: tuple[str, ...] = ()
    hardware_address: str = ""


class AllocatedDeviceStatus(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("driver", "pool", "device", "share_id")
    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = msgspec.field(name="shareID", default=None)
    conditions: tuple[Condition, ...] = ()
    data: Any = None
    network_data: NetworkDeviceData | None = None


class ResourceClaimStatus(Wire, frozen=True):
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


class ResourceClaim(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def allocation_results(self) -> tuple[DeviceRequestAllocationResult, ...]:
        """Devices allocated to the claim; empty if it is not allocated."""
        allocation = self.status.allocation
        return allocation.devices.results if allocation is not None else ()


class ResourceClaimTemplateSpec(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


class ResourceClaimTemplate(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


# -- classes and taint rules


class DeviceClassConfiguration(Wire, frozen=True):
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(Wire, frozen=True):
    """Device class spec; `manages_*` and accounting policies exist under their own and the draft's names."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extended_resource_name: str | None = None
    manages_node_allocatable_resources: bool | None = None
    node_allocatable_resource_accounting_policies: dict[str, str] = {}
    manages_native_resources: bool | None = None
    native_resource_accounting_policies: dict[str, str] = {}


class DeviceClass(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaintSelector(Wire, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(Wire, frozen=True):
    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = DeviceTaint()


class DeviceTaintRuleStatus(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()


class DeviceTaintRule(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
