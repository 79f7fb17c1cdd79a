"""Devices of a cluster: slices and taint rules, indexed by node and by pool.

`Inventory` is immutable. `devices_for` returns a node's devices and caches them; `replace` returns the next
inventory and reuses everything computed for unchanged slices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.pools import build_cluster_pool, gather_pools, rename_pools
from plimsoll.allocator.devices.slices import SliceView, apply_taint_rules
from plimsoll.allocator.features import Features
from plimsoll.allocator.input_errors import AllocationFault
from plimsoll.api.core import Node
from plimsoll.api.identity import PoolId
from plimsoll.api.resource import OPTIONAL_NODE_OPERATIONS, DeviceTaintRule, ResourceSlice
from plimsoll.cel import ProgramCache

#: Maximum number of cached devices over all nodes; a pool for all nodes counts once per node.
MAX_CACHED_DEVICES = 1_000_000


@dataclass(frozen=True, slots=True)
class _CachedNode:
    """A node's devices, with the inputs they were computed from."""

    labels: dict[str, str]
    features: tuple[str, ...]  #: declared by the node
    candidates: list[SliceView]
    pools: list[list[SliceView]]
    devices: NodeDevices

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.devices.all.bit_length()

    def is_of(self, node: Node) -> bool:
        """Return whether the devices were computed for a node like this."""
        return self.labels == node.metadata.labels and self.features == node.status.declared_features

    def is_current(self, node: Node, candidates: list[SliceView], pools: list[list[SliceView]]) -> bool:
        """Return whether the devices were computed from these inputs."""
        return self.is_of(node) and self.candidates == candidates and self.pools == pools


class Inventory:
    """All slices of a cluster."""

    __slots__ = (
        "_by_pool",
        "_kept",
        "_known",
        "_nodes",
        "_on_node",
        "_previous",
        "_programs",
        "_rules",
        "_shared",
        "_slices",
        "_types",
        "features",
    )

    _kept: int  #: number of cached devices

    def __init__(
        self,
        slices: Iterable[ResourceSlice],
        features: Features | None = None,
        taint_rules: Iterable[DeviceTaintRule] = (),
        programs: ProgramCache | None = None,
    ) -> None:
        self.features = features or Features()
        self._programs = ProgramCache() if programs is None else programs
        self._rules = tuple(taint_rules) if self.features.device_taints else ()
        self._slices = tuple(slices)
        self._known: dict[int, SliceView] = {}
        self._index({})

    @property
    def slices(self) -> Sequence[ResourceSlice]:
        return self._slices

    def replace(
        self, slices: Iterable[ResourceSlice], taint_rules: Iterable[DeviceTaintRule] | None = None
    ) -> Inventory:
        """Return an inventory with other slices (identical objects where unchanged) and other rules."""
        new = Inventory.__new__(Inventory)
        new.features, new._programs = self.features, self._programs
        new._rules = self._rules
        if taint_rules is not None and self.features.device_taints:
            new._rules = tuple(taint_rules)
        new._slices = tuple(slices)
        new._known = {}
        new._index(self._known if new._rules == self._rules else {})
        new._previous = {**self._previous, **self._nodes}
        _forget_oldest(new._previous, sum(known.size for known in new._previous.values()))
        return new

    def devices_for(self, node: Node) -> NodeDevices | AllocationFault:
        """Return the devices that a node may use."""
        name = node.metadata.name
        known = self._nodes.get(name)
        if known is not None:
            if known.is_of(node):
                return known.devices
            self._kept -= self._nodes.pop(name).size
        candidates = [*self._on_node.get(name, ()), *self._shared]
        pools = [self._by_pool[pool] for pool in dict.fromkeys(view.pool for view in candidates)]
        known = self._previous.get(name)
        if known is None or not known.is_current(node, candidates, pools):
            devices = self._build(node, candidates)
            if isinstance(devices, AllocationFault):
                return devices
            features = node.status.declared_features
            known = _CachedNode(dict(node.metadata.labels), features, candidates, pools, devices)
        self._keep(name, known)
        return known.devices

    def cluster_pools(self) -> Iterator[tuple[NodeDevices, Sequence[SliceView]]]:
        """Yield every pool of the cluster, by name: its devices on all nodes, and all of its slices.

        The devices have no node: `DeviceUsage` applies to them, selectors do not.
        """
        for pool in self.pool_ids():
            yield self.cluster_pool(pool), self.slices_of(pool)

    def pool_ids(self) -> list[PoolId]:
        """Return all pools, by name."""
        return sorted(self._by_pool)

    def slices_of(self, pool: PoolId) -> Sequence[SliceView]:
        """Return all slices of a pool, of any generation."""
        return self._by_pool.get(pool, ())

    def cluster_pool(self, pool: PoolId) -> NodeDevices:
        """Return the devices of one known pool on all nodes."""
        views = sorted(self._by_pool[pool], key=_search_order)
        type = self._node_type(Node(), views)
        known = None if type is None else self._types.get(("pool", *type))
        if known is not None:
            return known[0].renamed(Node(), rename_pools(known[0].pools, known[1], views))
        devices = NodeDevices(
            Node(), [build_cluster_pool(self._by_pool[pool], self.features)], self.features, self._programs
        )
        if type is not None:
            self._types["pool", *type] = devices, views
        return devices

    def _build(self, node: Node, candidates: Sequence[SliceView]) -> NodeDevices | AllocationFault:
        """Build the devices of a node, or rename those of a node of the same type."""
        views = sorted(candidates, key=_search_order)
        type = self._node_type(node, views)
        known = None if type is None else self._types.get(type)
        if known is not None:
            return known[0].renamed(node, rename_pools(known[0].pools, known[1], views))
        gathered = gather_pools(candidates, node, self.features, self._by_pool)
        if isinstance(gathered, AllocationFault):
            return gathered
        devices = NodeDevices(node, gathered, self.features, self._programs)
        if type is not None:
            self._types[type] = devices, views
        return devices

    def _node_type(self, node: Node, views: Sequence[SliceView]) -> tuple[object, ...] | None:
        """Return a key that is equal for nodes whose devices differ only in names of slices and pools and in
        attributes.

        None if a slice or pool is not of this node alone.
        """
        type: list[object] = [OPTIONAL_NODE_OPERATIONS in node.status.declared_features]
        pools: dict[PoolId, int] = {}
        for view in views:
            spec = view.slice.spec
            if not spec.node_name or spec.per_device_node_selection is not None:
                return None
            pools[view.pool] = pools.get(view.pool, 0) + 1
            type.append((len(pools), spec.pool.generation, spec.pool.resource_slice_count, view.structure))
        if any(len(self._by_pool[pool]) != count for pool, count in pools.items()):
            return None
        return tuple(type)

    def _keep(self, name: str, known: _CachedNode) -> None:
        """Cache a node's devices."""
        self._nodes[name] = known
        self._kept = _forget_oldest(self._nodes, self._kept + known.size)

    def _index(self, known: dict[int, SliceView]) -> None:
        self._nodes: dict[str, _CachedNode] = {}
        self._kept = 0
        #: Devices of the first node of each type, and its slices in search order.
        self._types: dict[tuple[object, ...], tuple[NodeDevices, list[SliceView]]] = {}
        self._previous: dict[str, _CachedNode] = {}
        self._on_node: dict[str, list[SliceView]] = {}
        self._shared: list[SliceView] = []
        self._by_pool: dict[PoolId, list[SliceView]] = {}
        for slice in self._slices:
            # The views keep their slices alive, so that an ID is never reused.
            view = known.get(id(slice)) or apply_taint_rules(slice, self._rules)
            self._known[id(slice)] = view
            self._by_pool.setdefault(view.pool, []).append(view)
            if slice.spec.node_name:
                self._on_node.setdefault(slice.spec.node_name, []).append(view)
            else:
                self._shared.append(view)


def _search_order(view: SliceView) -> tuple[PoolId, str]:
    return view.pool, view.name


def _forget_oldest(nodes: dict[str, _CachedNode], kept: int) -> int:
    """Evict the oldest nodes while too many devices are cached; return the number left."""
    while kept > MAX_CACHED_DEVICES and len(nodes) > 1:
        kept -= nodes.pop(next(iter(nodes))).size
    return kept
