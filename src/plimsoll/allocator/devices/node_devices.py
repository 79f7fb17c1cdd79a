"""Devices of one node in search order, with everything that does not change between searches.

Devices are numbered, so that a set of devices is an integer and a rule is a mask. Caches the matches of
selectors, the values of attributes and the consumption of capacity requests; all of these depend on slices,
classes and requests only, never on allocations.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from plimsoll.allocator.devices.attributes import (
    AttributeSource,
    AttributeTable,
    build_tables,
    read_derived,
    read_published,
)
from plimsoll.allocator.devices.capacity import CapacityFault, CapacityRefusal, Consumption, consume
from plimsoll.allocator.devices.groups import GroupSet, GroupUse, number_groups, read_groups
from plimsoll.allocator.devices.pools import GatheredPool, PoolStatus
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.allocator.features import Features
from plimsoll.api.core import Node
from plimsoll.api.forms import device_forms
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.node_selection import node_matches
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import (
    OPTIONAL_NODE_OPERATIONS,
    CapacityRequestPolicy,
    Device,
    DeviceCapacity,
    DeviceTaint,
)
from plimsoll.cel import DerivedResult, Environment, ProgramCache
from plimsoll.errors import CelCompileError, CelRuntimeError

K = TypeVar("K")
T = TypeVar("T")
MAX_CACHED = 1024  #: cached selections, consumptions and attribute tables per node, each

#: (counter number, amount in nano-units) pairs.
CounterDraw = tuple[tuple[int, int], ...]


class DeviceEntry:
    """One device of a node."""

    __slots__ = ("capacity", "device", "draw", "groups", "id", "shareable", "view")

    def __init__(
        self,
        id: DeviceId,
        device: Device,
        view: SliceView,
        shareable: bool,
        capacity: int,
        draw: CounterDraw,
        groups: GroupUse,
    ) -> None:
        self.id = id
        self.device = device
        self.view = view
        self.shareable = shareable
        self.capacity = capacity  #: number of its capacity shape; devices of one shape consume the same
        self.draw = draw  #: consumption of shared counters
        self.groups = groups  #: compatibility groups, of counter sets in which some device declares groups


@dataclass(frozen=True, slots=True)
class SelectorFailure:
    """A selector that failed: its index, whether it is of the class, and the error."""

    of_class: bool
    index: int
    error: CelCompileError | CelRuntimeError | SelectorProblem


@dataclass(frozen=True, slots=True)
class DeviceSelection:
    """Result of class and request selectors on a node's devices."""

    mask: int
    failures: Mapping[int, SelectorFailure]  #: devices that could not be evaluated
    survivors: tuple[int, ...]  #: masks after each class selector, then after each request selector


@dataclass(frozen=True, slots=True)
class CounterPool:
    """Counters of one pool: a range of counter numbers, and the devices that consume them."""

    pool: PoolId
    first: int
    names: tuple[tuple[str, str], ...]
    consumers: Mapping[str, CounterDraw]  #: device name -> consumption, including devices of other nodes
    groups: Mapping[str, GroupUse]  #: device name -> compatibility groups, likewise
    mask: int  #: devices of this node that consume counters


class NodeDevices:
    """Devices that a node may use."""

    __slots__ = (
        "_consumptions",
        "_environment",
        "_programs",
        "_selections",
        "_source",
        "_structure",
        "_tables",
        "_twin",
        "all",
        "base_counters",
        "binding",
        "blocked_masks",
        "capacities",
        "capacity_masks",
        "counter_pools",
        "counting",
        "elsewhere",
        "entries",
        "features",
        "group_sets",
        "index",
        "mapped",
        "node",
        "pools",
        "selection_problems",
        "shareable",
        "taint_masks",
        "unsupported",
    )

    def __init__(
        self, node: Node, pools: Sequence[GatheredPool], features: Features, programs: ProgramCache
    ) -> None:
        self.node = node
        self.features = features
        self._source: tuple[NodeDevices, tuple[int, ...]] | None = None
        self._twin: NodeDevices | None = None
        self.pools = tuple(pools)
        self.entries: list[DeviceEntry] = []
        self.index: dict[PoolId, dict[str, int]] = {}
        self.capacities: list[Mapping[str, DeviceCapacity]] = []  #: shape number -> capacities
        self.capacity_masks: list[int] = []  #: shape number -> mask of its devices
        #: Mask of the devices blocked by usage, by what is left of counters and groups (`DeviceUsage`).
        self.blocked_masks: dict[tuple[object, ...], int] = {}
        self.base_counters: list[int] = []
        self.counter_pools: list[CounterPool] = []
        self.group_sets: list[GroupSet] = []  #: counter sets with compatibility groups
        self.selection_problems: dict[int, SelectorProblem] = {}
        #: Masks: all devices; shareable ones; those that consume counters; those of other nodes; those with
        #: binding conditions.
        self.all = self.shareable = self.counting = self.elsewhere = self.binding = 0
        self.mapped = 0  #: mask of the devices with mappings to node resources
        #: Mask of the devices whose node operations this node cannot skip (`skipNodeOperations`).
        self.unsupported = 0
        self.taint_masks: dict[tuple[DeviceTaint, ...], int] = {}
        self._programs = programs
        self._structure: tuple[object, ...] | None = None
        self._environment = selector_environment(features)
        self._selections: dict[tuple[tuple[str, ...], tuple[str, ...]], DeviceSelection] = {}
        self._tables: dict[tuple[str, tuple[str, ...]], tuple[AttributeTable, ...]] = {}
        self._consumptions: dict[tuple[object, ...], list[Consumption | CapacityRefusal | CapacityFault]] = {}
        shapes: dict[object, int] = {}
        for pool in pools:
            if pool.status is PoolStatus.COMPLETE:
                self._add_pool(pool, shapes)
        self.all = (1 << len(self.entries)) - 1

    @property
    def signature(self) -> tuple[object, ...] | None:
        """Equal for nodes whose devices differ only in the names of their pools.

        None if devices are not local to the node, because usage on other nodes matters, too.
        """
        return self._describe(lambda view: view.signature) if self.structure is not None else None

    @property
    def structure(self) -> tuple[object, ...] | None:
        """Equal for nodes whose devices differ only in the names of their pools and in attributes: with equal
        selections and attribute tables, searches end alike. None as for `signature`.
        """
        if self._structure is None:
            views = [view for pool in self.pools for view in pool.slices]
            own = all(view.slice.spec.node_name for view in views)
            if not own or any(pool.elsewhere for pool in self.pools):
                return None
            self._structure = self._describe(lambda view: view.structure)
        return self._structure

    def _describe(self, digest: Callable[[SliceView], bytes]) -> tuple[object, ...]:
        pools = (
            (pool.id.driver, pool.status, tuple(map(digest, pool.slices)), *pool.counters.items())
            for pool in self.pools
        )
        return (self.unsupported, *pools)

    # -- cached results

    def select(self, class_selectors: tuple[str, ...], request_selectors: tuple[str, ...]) -> DeviceSelection:
        """Return the devices that pass all selectors and are available on this node."""
        key = (class_selectors, request_selectors)
        known = self._selections.get(key)
        if known is None:
            known = _remember(self._selections, key, self._select(class_selectors, request_selectors))
        return known

    def tables(self, attribute: str, sources: tuple[str, ...] = ("",)) -> tuple[AttributeTable, ...]:
        """Return the values of an attribute, by source: "" if it is published, or a CEL expression."""
        key = (attribute, sources)
        known = self._tables.get(key)
        if known is None:
            found = [self._derive(each) if each else self._read(attribute) for each in sources]
            known = _remember(self._tables, key, build_tables(found, self.features.list_attributes))
        return known

    def consumptions(
        self, requests: Mapping[str, Quantity]
    ) -> Sequence[Consumption | CapacityRefusal | CapacityFault]:
        """Return the consumption of a capacity request, by capacity shape."""
        # The text of an amount is recorded, so equal amounts with different texts are different keys.
        key = tuple((name, str(amount)) for name, amount in requests.items())
        known = self._consumptions.get(key)
        if known is None:
            fractional = self.features.fractional_ranges
            made = [consume(requests, capacity, fractional) for capacity in self.capacities]
            known = _remember(self._consumptions, key, made)
        return known

    def renamed(self, node: Node, pools: Sequence[GatheredPool]) -> NodeDevices:
        """Return the devices of a node of the same type: `pools` differ from those here in their names and in
        attributes only. Everything that does not depend on these is shared; entries are made when they are
        read.
        """
        clone = NodeDevices.__new__(NodeDevices)
        for name in _SHARED:
            setattr(clone, name, getattr(self, name))
        clone.node, clone.pools, clone._twin = node, tuple(pools), self
        clone._selections, clone._tables = {}, {}
        ids = {before.id: after.id for before, after in zip(self.pools, pools, strict=True)}
        clone.index = {ids[pool]: numbers for pool, numbers in self.index.items()}
        clone.counter_pools = [dataclasses.replace(pool, pool=ids[pool.pool]) for pool in self.counter_pools]
        return clone

    def __getattr__(self, name: str) -> list[DeviceEntry]:
        """Make the entries of renamed devices."""
        if name != "entries" or self._twin is None:
            raise AttributeError(name)
        devices = [
            (pool.id, view, device) for pool in self.pools for view in pool.slices for device in view.devices
        ]
        self.entries = [
            DeviceEntry(
                DeviceId(*id, device.name),
                device,
                view,
                like.shareable,
                like.capacity,
                like.draw,
                like.groups,
            )
            for (id, view, device), like in zip(devices, self._twin.entries, strict=True)
        ]
        return self.entries

    def reordered(self, order: Sequence[int]) -> NodeDevices:
        """Return the same devices in another search order."""
        clone = NodeDevices.__new__(NodeDevices)
        for name in NodeDevices.__slots__:
            setattr(clone, name, getattr(self, name))
        clone._source = (self, tuple(order))
        clone.entries = [self.entries[number] for number in order]
        places = {old: new for new, old in enumerate(order)}
        clone.index = {
            pool: {name: places[number] for name, number in names.items()}
            for pool, names in self.index.items()
        }
        clone._selections, clone._tables, clone.blocked_masks = {}, {}, {}
        clone.capacity_masks = [_moved(mask, places) for mask in self.capacity_masks]
        clone.shareable = _moved(self.shareable, places)
        clone.counting = _moved(self.counting, places)
        clone.elsewhere = _moved(self.elsewhere, places)
        clone.binding = _moved(self.binding, places)
        clone.mapped = _moved(self.mapped, places)
        clone.unsupported = _moved(self.unsupported, places)
        clone.taint_masks = {key: _moved(mask, places) for key, mask in self.taint_masks.items()}
        clone.counter_pools = [
            dataclasses.replace(pool, mask=_moved(pool.mask, places)) for pool in self.counter_pools
        ]
        return clone

    # -- construction

    def _add_pool(self, pool: GatheredPool, shapes: dict[object, int]) -> None:
        names: dict[str, int] = {}
        self.index[pool.id] = names
        numbers = {key: len(self.base_counters) + i for i, key in enumerate(pool.counters)}
        consumers: dict[str, CounterDraw] = {}
        sets = number_groups(pool, self.group_sets)
        groups: dict[str, GroupUse] = {}
        pool_mask = 0
        for view in pool.slices:
            per_device = bool(view.slice.spec.per_device_node_selection)
            supported = not view.slice.spec.skip_node_operations or self._can_skip_operations()
            for device, (draw, shape) in zip(view.devices, _read_consumption(view, numbers), strict=True):
                number = len(self.entries)
                flag = 1 << number
                names[device.name] = number
                shareable = bool(self.features.consumable_capacity and device.allow_multiple_allocations)
                if shape not in shapes:
                    shapes[shape] = len(shapes)
                    self.capacities.append(device.capacity)
                    self.capacity_masks.append(0)
                self.capacity_masks[shapes[shape]] |= flag
                id = DeviceId(pool.id.driver, pool.id.pool, device.name)
                own_groups = read_groups(device, sets) if sets else ()
                self.entries.append(DeviceEntry(id, device, view, shareable, shapes[shape], draw, own_groups))
                if not supported:
                    self.unsupported |= flag
                if shareable:
                    self.shareable |= flag
                if device.consumes_counters:
                    self.counting |= flag
                    pool_mask |= flag
                    consumers[device.name] = consumers.get(device.name, ()) + draw
                    groups[device.name] = own_groups
                if device.binding_conditions:
                    self.binding |= flag
                if device_forms(device):
                    self.mapped |= flag
                if device.taints:
                    self.taint_masks[device.taints] = self.taint_masks.get(device.taints, 0) | flag
                if per_device:
                    self._note_selection(number, device)
        if pool.counters:
            for view in pool.elsewhere:
                for device in view.devices:
                    if device.consumes_counters:
                        consumers[device.name] = consumers.get(device.name, ()) + _draw(device, numbers)
                        groups[device.name] = groups.get(device.name, ()) + read_groups(device, sets)
            first = len(self.base_counters)
            made = CounterPool(pool.id, first, tuple(pool.counters), consumers, groups, pool_mask)
            self.counter_pools.append(made)
            self.base_counters.extend(pool.counters.values())

    def _can_skip_operations(self) -> bool:
        """Return whether the node can skip node operations; a pool without a node is not judged by it."""
        if not self.features.optional_node_operations:
            return False
        return not self.node.metadata.name or OPTIONAL_NODE_OPERATIONS in self.node.status.declared_features

    def _read(self, attribute: str) -> AttributeSource:
        devices = [(entry.id.driver, entry.device) for entry in self.entries]
        return read_published(devices, attribute, self.features.list_attributes)

    def _derive(self, expression: str) -> AttributeSource:
        try:
            derived = self._programs.compile_derived(expression, self._environment)
        except CelCompileError as error:
            count = len(self.entries)
            return AttributeSource([None] * count, dict.fromkeys(range(count), error))
        source, order = self._source or (self, None)
        found: list[DerivedResult] = []
        for pool in source.pools:
            for view in pool.slices if pool.status is PoolStatus.COMPLETE else ():
                found += view.derive(derived)
        if order is not None:
            found = [found[number] for number in order]
        return read_derived(found, self.features.list_attributes)

    def _note_selection(self, number: int, device: Device) -> None:
        matches = node_matches(self.node, device.node_name, device.all_nodes, device.node_selector)
        if isinstance(matches, SelectorProblem):
            self.selection_problems[number] = matches
        elif not matches:
            self.elsewhere |= 1 << number

    def _select(
        self, class_selectors: tuple[str, ...], request_selectors: tuple[str, ...]
    ) -> DeviceSelection:
        if self._source is not None:
            return self._select_moved(class_selectors, request_selectors)
        alive = self.all
        if not self.features.binding_conditions:
            alive &= ~self.binding
        failures: dict[int, SelectorFailure] = {}
        survivors: list[int] = []
        for of_class, expressions in ((True, class_selectors), (False, request_selectors)):
            for index, expression in enumerate(expressions):
                alive = self._apply(expression, alive, of_class, index, failures)
                survivors.append(alive)
        for number, problem in self.selection_problems.items():
            if alive >> number & 1:
                failures[number] = SelectorFailure(False, 0, problem)
                alive ^= 1 << number
        return DeviceSelection(alive & ~self.elsewhere, failures, tuple(survivors))

    def _select_moved(
        self, class_selectors: tuple[str, ...], request_selectors: tuple[str, ...]
    ) -> DeviceSelection:
        assert self._source is not None
        source, order = self._source
        places = {old: new for new, old in enumerate(order)}
        found = source.select(class_selectors, request_selectors)
        return DeviceSelection(
            _moved(found.mask, places),
            {places[number]: failure for number, failure in found.failures.items()},
            tuple(_moved(mask, places) for mask in found.survivors),
        )

    def _apply(
        self, expression: str, alive: int, of_class: bool, index: int, failures: dict[int, SelectorFailure]
    ) -> int:
        if not alive:
            return 0
        try:
            selector = self._programs.compile(expression, self._environment)
        except CelCompileError as error:
            for number in bit_numbers(alive):
                failures[number] = SelectorFailure(of_class, index, error)
            return 0
        passed, offset = 0, 0
        for pool in self.pools:
            if pool.status is not PoolStatus.COMPLETE:
                continue
            for view in pool.slices:
                count = len(view.devices)
                if alive >> offset & ((1 << count) - 1):
                    matches = view.matches(selector)
                    passed |= matches.bits << offset
                    for position, failure in matches.errors.items():
                        if alive >> (offset + position) & 1:
                            failures[offset + position] = SelectorFailure(of_class, index, failure)
                offset += count
        return alive & passed


#: What nodes of one type have in common.
_SHARED = tuple(
    name
    for name in NodeDevices.__slots__
    if name not in ("_selections", "_tables", "_twin", "counter_pools", "entries", "index", "node", "pools")
)


def selector_environment(features: Features) -> Environment:
    """Return the CEL environment of stored selectors, which always has list values."""
    # DIFF: Kubernetes 1.36 fails on any list value if the gate is off; 1.37 and Plimsoll do not.
    # Test: test_list_values_never_break_a_selector
    return Environment("stored", features.consumable_capacity, list_attributes=True)


def bit_numbers(mask: int) -> list[int]:
    """Return the numbers of the devices in a mask, ascending."""
    numbers = []
    while mask:
        low = mask & -mask
        numbers.append(low.bit_length() - 1)
        mask ^= low
    return numbers


def _moved(mask: int, places: Mapping[int, int]) -> int:
    """Return a mask after the devices were reordered."""
    return sum(1 << places[number] for number in bit_numbers(mask))


#: Consumption of counters and capacity shape of each device, by the structure of the slice and the numbers of
#: the counters; the slice keeps the identities in the shapes alive.
_consumption: dict[tuple[object, ...], tuple[SliceView, list[tuple[CounterDraw, object]]]] = {}


def _read_consumption(
    view: SliceView, numbers: Mapping[tuple[str, str], int]
) -> list[tuple[CounterDraw, object]]:
    """Return the consumption of counters and the capacity shape of each device of a slice."""
    key = (view.structure, *numbers.items())
    known = _consumption.get(key)
    if known is None:
        found = [(_draw(device, numbers), _shape(device.capacity)) for device in view.devices]
        known = _remember(_consumption, key, (view, found))
    return known[1]


def _draw(device: Device, numbers: Mapping[tuple[str, str], int]) -> CounterDraw:
    """Return a device's consumption of its pool's counters; repeated counters add up."""
    amounts: dict[int, int] = {}
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            number = numbers.get((consumption.counter_set, name))
            if number is not None:
                amounts[number] = amounts.get(number, 0) + (counter.value or ZERO).nano
    return tuple(sorted(amounts.items()))


def _shape(capacity: Mapping[str, DeviceCapacity]) -> object:
    """Return a key that distinguishes capacities by the identity of their amounts.

    Amounts with equal text are usually one object (`Quantity.parse` caches them); if not, there is one more
    shape. The text matters because it is recorded.
    """
    return tuple(
        [(name, id(entry.value), _policy_key(entry.request_policy)) for name, entry in capacity.items()]
    )


def _policy_key(policy: CapacityRequestPolicy | None) -> object:
    if policy is None:
        return None
    bounds = policy.valid_range
    return (
        id(policy.default),
        tuple(map(id, policy.valid_values)),
        None if bounds is None else (id(bounds.min), id(bounds.max), id(bounds.step)),
    )


def _remember(cache: dict[K, T], key: K, value: T) -> T:
    if len(cache) >= MAX_CACHED:
        cache.pop(next(iter(cache)))
    cache[key] = value
    return value
