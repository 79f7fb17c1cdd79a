"""Gathering of pools from slices, in search order.

docs/spec/allocator.md, "Gathering pools": a pool is used only if it is complete in its newest generation and
consistent; incomplete and invalid pools remain in the list, because allocation mode All fails on them.
Counter slices follow their own node selection and are fetched when a pool needs them, as in Kubernetes 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from plimsoll.allocator.devices.slices import SliceView
from plimsoll.allocator.features import Features
from plimsoll.allocator.input_errors import NODE_SELECTION, AllocationFault
from plimsoll.api.core import Node
from plimsoll.api.identity import PoolId
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.node_selection import node_matches
from plimsoll.api.quantity import ZERO


class PoolStatus(Enum):
    """Usability of a pool's devices."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"  #: slices of the newest generation are missing, or there are too many
    INVALID = "invalid"  #: the slices contradict each other


@dataclass(frozen=True, slots=True)
class GatheredPool:
    """One pool as seen from one node."""

    id: PoolId
    status: PoolStatus = PoolStatus.COMPLETE
    reason: str = ""  #: why it is invalid or incomplete
    slices: tuple[SliceView, ...] = ()  #: device slices for this node, by name
    elsewhere: tuple[SliceView, ...] = ()  #: device slices of other nodes, which use the same counters
    counters: dict[tuple[str, str], int] = field(default_factory=dict)  #: (set, counter) -> nano-units


_GROUPS_OFF = "has compatibility groups, and the feature gate DRADeviceCompatibilityGroups is disabled"


def gather_pools(
    candidates: Iterable[SliceView],
    node: Node,
    features: Features,
    by_pool: dict[PoolId, list[SliceView]],
) -> list[GatheredPool] | AllocationFault:
    """Return the pools of a node; `candidates` are slices that may apply to it, `by_pool` all slices."""
    relevant: dict[PoolId, list[SliceView]] = {}
    for view in candidates:
        spec = view.slice.spec
        if not features.partitionable_devices and (
            spec.per_device_node_selection is not None or view.is_counters
        ):
            continue
        matches = _is_relevant(view, node)
        if isinstance(matches, SelectorProblem):
            return AllocationFault(NODE_SELECTION, {"slice": view.name, "problem": matches})
        if matches:
            _keep_newest(relevant.setdefault(view.pool, []), view)
    plain: list[GatheredPool] = []
    binding: list[GatheredPool] = []
    for pool_id, views in relevant.items():
        pool = _build(pool_id, views, features, by_pool[pool_id])
        if pool is not None:
            (binding if _has_binding_conditions(pool) else plain).append(pool)
    plain.sort(key=lambda pool: pool.id)
    binding.sort(key=lambda pool: pool.id)
    return plain + binding


def rename_pools(
    pools: Iterable[GatheredPool], views: Sequence[SliceView], others: Sequence[SliceView]
) -> list[GatheredPool]:
    """Return the pools of a node of the same type; `views` are the slices of the pools, `others` its own."""
    own = {id(view): other for view, other in zip(views, others, strict=True)}
    ids = {view.pool: other.pool for view, other in zip(views, others, strict=True)}
    return [
        GatheredPool(
            ids[pool.id],
            pool.status,
            pool.reason,
            tuple([own[id(view)] for view in pool.slices]),
            counters=pool.counters,
        )
        for pool in pools
    ]


def build_cluster_pool(views: Sequence[SliceView], features: Features) -> GatheredPool:
    """Return a pool independent of nodes: the newest generation of all of its slices."""
    newest: list[SliceView] = []
    for view in views:
        _keep_newest(newest, view)
    pool = _build(views[0].pool, newest, features, list(views))
    assert pool is not None, "no generation is newer than the newest"
    return pool


def _is_relevant(view: SliceView, node: Node) -> bool | SelectorProblem:
    # DIFF: Kubernetes 1.36 uses all counter slices for all nodes; 1.37 and Plimsoll apply its node selection.
    # Test: test_counter_slices_of_other_nodes_are_ignored
    spec = view.slice.spec
    if spec.node_name or spec.all_nodes or spec.node_selector is not None:
        return node_matches(node, spec.node_name, spec.all_nodes, spec.node_selector)
    if spec.per_device_node_selection:
        for device in view.devices:
            matches = node_matches(node, device.node_name, device.all_nodes, device.node_selector)
            if matches:  # true, or a problem with the selector
                return matches
    return False


def _keep_newest(views: list[SliceView], view: SliceView) -> None:
    if views:
        known, new = views[0].slice.spec.pool.generation, view.slice.spec.pool.generation
        if new < known:
            return
        if new > known:
            views.clear()
    views.append(view)


def _build(
    pool_id: PoolId, views: list[SliceView], features: Features, known: list[SliceView]
) -> GatheredPool | None:
    """Build a pool from its relevant slices; None if a newer generation is being published."""
    expected = views[0].slice.spec.pool.resource_slice_count
    generation = views[0].slice.spec.pool.generation
    if not features.compatibility_groups and any(
        view.has_groups for view in known if view.slice.spec.pool.generation == generation
    ):
        # DIFF: Kubernetes ignores the slices; a pool with others is then incomplete, one without them does
        # not exist, so that a request for all devices is served without it. Here it is always incomplete.
        # Test: test_a_pool_of_grouped_slices_only_is_incomplete
        return GatheredPool(pool_id, PoolStatus.INCOMPLETE, _GROUPS_OFF)
    others: list[SliceView] = []
    if len(views) != expected:
        # A pool is complete if its slices for all nodes are.
        if any(view.slice.spec.pool.generation > generation for view in known):
            return None
        whole = [view for view in known if view.slice.spec.pool.generation == generation]
        if len(whole) != expected:
            reason = f"has {len(whole)} of {expected} slices of generation {generation}"
            return GatheredPool(pool_id, PoolStatus.INCOMPLETE, reason)
        if len(views) < len(whole):
            names = {view.name for view in views}
            others = [view for view in whole if view.name not in names]
    views = sorted(views, key=lambda view: view.name)
    if not features.partitionable_devices:
        return _checked(GatheredPool(pool_id, slices=tuple(views)))
    counters = _read_counters([view for view in (*views, *others) if view.is_counters])
    if isinstance(counters, str):
        devices = tuple(view for view in views if not view.is_counters)
        return _checked(GatheredPool(pool_id, slices=devices), counters)
    return _checked(
        GatheredPool(
            pool_id,
            slices=tuple(view for view in views if not view.is_counters),
            elsewhere=tuple(view for view in others if not view.is_counters),
            counters=counters,
        ),
        counting=True,
    )


def _read_counters(views: Iterable[SliceView]) -> dict[tuple[str, str], int] | str:
    """Return the counters of a pool, or an error. Empty counter sets are recorded by name."""
    counters: dict[tuple[str, str], int] = {}
    for view in views:
        for counter_set in view.slice.spec.shared_counters or ():
            if (counter_set.name, "") in counters:
                return f"duplicate counter set name {counter_set.name}"
            counters[counter_set.name, ""] = 0
            for name, counter in counter_set.counters.items():
                counters[counter_set.name, name] = (counter.value or ZERO).nano
    return counters


def _checked(pool: GatheredPool, problem: str = "", counting: bool = False) -> GatheredPool:
    """Return the pool, or a placeholder if it is invalid."""
    problem = _name_problem(pool.slices) or problem
    if not problem and counting:
        problem = _consumption_problem((*pool.slices, *pool.elsewhere), pool.counters)
    if problem:
        return GatheredPool(pool.id, PoolStatus.INVALID, problem)
    # The entries with the names of the sets are needed for the checks only.
    return GatheredPool(
        pool.id,
        slices=pool.slices,
        elsewhere=pool.elsewhere,
        counters={key: value for key, value in pool.counters.items() if key[1]},
    )


def _name_problem(views: Sequence[SliceView]) -> str:
    names: set[str] = set()
    for view in views:
        for device in view.devices:
            if device.name in names:
                return f"duplicate device name {device.name}"
            names.add(device.name)
    return ""


def _consumption_problem(views: Iterable[SliceView], counters: dict[tuple[str, str], int]) -> str:
    for view in views:
        for device in view.devices:
            for consumption in device.consumes_counters:
                counter_set = consumption.counter_set
                if (counter_set, "") not in counters:
                    return f"counter set {counter_set} not found"
                for name in consumption.counters:
                    if (counter_set, name) not in counters:
                        return f"counter {name} not found in counter set {counter_set}"
    return ""


def _has_binding_conditions(pool: GatheredPool) -> bool:
    return any(device.binding_conditions for view in pool.slices for device in view.devices)
