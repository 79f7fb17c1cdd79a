"""Reasons why a node cannot serve claims: a tree of counts, from requests to devices.

`diagnosis.py` fills in the values; callers format them. Per request: the number of devices, how many each
rule removed, and for each rule the closest device with its numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from plimsoll.api.core import NodeSelector
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceTaint, ResourceClaim


class RefusalRule(Enum):
    """Rules that can exclude a device, in the order of evaluation."""

    BINDING = "binding conditions are switched off"
    CLASS_SELECTOR = "class selector"
    REQUEST_SELECTOR = "request selector"
    NODE = "not for this node"
    FAILED = "cannot be evaluated"
    CAPACITY = "capacity"
    WITHHELD = "may be held through a device plugin"
    TAKEN = "already allocated"
    PICKED = "taken by this pod already"
    NODE_OPERATIONS = "skipped node operations"
    TAINT = "taint"
    GROUPS = "compatibility groups"
    COUNTER = "shared counters"
    CONSTRAINT = "constraint"
    BUDGET = "node resources"


@dataclass(frozen=True, slots=True)
class CapacityShortage:
    """An insufficient capacity; `rule` is one of the rules in `capacity.py`."""

    rule: str
    name: str
    wanted: Quantity
    had: Quantity


@dataclass(frozen=True, slots=True)
class CounterShortage:
    """An insufficient shared counter; amounts in nano-units."""

    counter_set: str
    counter: str
    wanted: int
    had: int


@dataclass(frozen=True, slots=True)
class GroupConflict:
    """A counter set whose devices in use are not compatible with a device; no groups are empty tuples.

    `others` are the groups that the devices in use have in common; `agree` is False if they have none.
    """

    counter_set: str
    groups: tuple[str, ...]
    others: tuple[str, ...]
    agree: bool = True


@dataclass(frozen=True, slots=True)
class NodeOperationsRefusal:
    """Node operations that the device's driver skips, and the node does not."""

    operations: tuple[str, ...]
    enabled: bool  #: whether the feature gate is on, so that the node is at fault


@dataclass(frozen=True, slots=True)
class ConstraintConflict:
    """A constraint that a device violates, and the device it conflicts with.

    Without values the device lacks the attribute.
    """

    attribute: str
    distinct: bool
    values: tuple[str, ...]
    other: DeviceId | None
    other_values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetShortage:
    """A node resource that the device's charge would exceed, and the bound; in the units of the budget."""

    line: str
    resource: str
    wanted: int
    had: int


@dataclass(frozen=True, slots=True)
class TaintRefusal:
    """A taint that the request does not tolerate."""

    taint: DeviceTaint


@dataclass(frozen=True, slots=True)
class PluginConflict:
    """An extended resource through which pods of the node may hold a device."""

    resource: str


@dataclass(frozen=True, slots=True)
class SelectorRefusal:
    """The first selector that did not match."""

    index: int
    expression: str


RemovalDetail = (
    CapacityShortage
    | CounterShortage
    | GroupConflict
    | NodeOperationsRefusal
    | ConstraintConflict
    | BudgetShortage
    | TaintRefusal
    | SelectorRefusal
    | PluginConflict
    | None
)


@dataclass(frozen=True, slots=True)
class Removal:
    """Number of devices removed by a rule, and the closest one."""

    rule: RefusalRule
    count: int
    device: DeviceId
    detail: RemovalDetail = None


@dataclass(frozen=True, slots=True)
class RequestRefusal:
    """One request (or subrequest): devices available, removed by each rule, and left."""

    claim: str
    request: str
    wanted: int
    takes_all: bool
    devices: int  #: devices of complete pools on this node
    removals: tuple[Removal, ...]
    left: int  #: devices that pass every rule one by one
    largest_group: int | None = None  #: maximum number of those that satisfy the constraints together
    conflict: tuple[DeviceId, ConstraintConflict] | None = None  #: two of them that violate a constraint

    @property
    def served(self) -> bool:
        """True if enough devices are left for this request."""
        if self.takes_all and any(removal.rule in _AFTER_MATCHING for removal in self.removals):
            return False
        enough = self.left if self.largest_group is None else min(self.left, self.largest_group)
        return enough >= max(self.wanted, 1)


#: Rules that every matching device must pass if a request is for all of them.
_AFTER_MATCHING = (
    RefusalRule.WITHHELD,
    RefusalRule.TAKEN,
    RefusalRule.PICKED,
    RefusalRule.NODE_OPERATIONS,
    RefusalRule.TAINT,
    RefusalRule.GROUPS,
    RefusalRule.COUNTER,
    RefusalRule.CONSTRAINT,
    RefusalRule.BUDGET,
)


@dataclass(frozen=True, slots=True)
class AllocatedElsewhere:
    """A claim whose devices cannot be used on this node."""

    claim: str
    selector: NodeSelector | None

    @staticmethod
    def of(claim: ResourceClaim) -> AllocatedElsewhere:
        allocation = claim.status.allocation
        return AllocatedElsewhere(claim.metadata.full_name, allocation.node_selector if allocation else None)


@dataclass(frozen=True, slots=True)
class UnusablePool:
    """A pool whose devices are not allocated, and the reason."""

    pool: PoolId
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class ValueCount:
    """Value of an attribute, with the devices of a request that have it."""

    value: str
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class RequestValues:
    """Values of an attribute on the devices that match a request, those of most free devices first."""

    request: str
    wanted: int
    values: tuple[ValueCount, ...]
    without: int  #: devices that lack the attribute


@dataclass(frozen=True, slots=True)
class GroupShortage:
    """A constraint that no choice of devices satisfies."""

    claim: str
    attribute: str
    distinct: bool
    requests: tuple[str, ...]
    wanted: int  #: devices that must agree, or values that must differ
    had: int  #: maximum number of devices with one value, or number of values
    index: int = field(default=0, compare=False)  #: of the constraint in its claim
    present: tuple[RequestValues, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class SearchDeadEnd:
    """The furthest position of the search: the request that failed, and the devices of the earlier ones."""

    held: tuple[tuple[str, str, DeviceId], ...]  #: (claim, request, device)
    request: RequestRefusal


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that cannot serve the claims.

    `requests` evaluates every request alone; if each could be served alone, `together` is set and the reason
    is in `groups` or `dead_end`.
    """

    node: str
    requests: tuple[RequestRefusal, ...] = ()
    together: bool = False
    groups: tuple[GroupShortage, ...] = ()
    dead_end: SearchDeadEnd | None = None
    pools: tuple[UnusablePool, ...] = ()
    allocated_elsewhere: AllocatedElsewhere | None = None

    @property
    def has_several_requests(self) -> bool:
        """True unless all refusals are of one request, or of subrequests of one."""
        return len({(each.claim, each.request.partition("/")[0]) for each in self.requests}) > 1
