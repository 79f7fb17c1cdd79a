"""`group_nodes`: nodes that refuse a pod for the same reason, described once.

Details are computed only for the nearest node of each group. Devices are evaluated once per distinct device
state; beyond a limit, only for the largest groups.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.slices import SliceView
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.units import CPU
from plimsoll.scheduler.devices import DynamicResourcesFilter
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.tools.explain.attempt import AttemptRecorder
from plimsoll.tools.explain.devices import describe_reasons, distance, signature
from plimsoll.tools.explain.node_reasons import (
    DeclaredFeaturesExplainer,
    NodeAffinityExplainer,
    ResourceExplainer,
    TaintExplainer,
    UnschedulableExplainer,
)
from plimsoll.tools.explain.pod_reasons import (
    HostPortExplainer,
    InterPodAffinityExplainer,
    TopologySpreadExplainer,
    VolumeExplainer,
)
from plimsoll.tools.explain.pod_view import PodView, RuleExplainer
from plimsoll.tools.explain.selection import without_other_drivers
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import NodeGroup, Statement
from plimsoll.tools.fixes.nearest_nodes import rank_nodes

EXPLAINERS: Mapping[Rule, type[RuleExplainer]] = {
    Rule.UNSCHEDULABLE: UnschedulableExplainer,
    Rule.TAINTS: TaintExplainer,
    Rule.NODE_AFFINITY: NodeAffinityExplainer,
    Rule.PORTS: HostPortExplainer,
    Rule.RESOURCES: ResourceExplainer,
    Rule.VOLUME_RESTRICTIONS: VolumeExplainer,
    Rule.VOLUME_LIMITS: VolumeExplainer,
    Rule.VOLUME_BINDING: VolumeExplainer,
    Rule.VOLUME_ZONE: VolumeExplainer,
    Rule.SPREAD: TopologySpreadExplainer,
    Rule.INTER_POD: InterPodAffinityExplainer,
    Rule.DECLARED_FEATURES: DeclaredFeaturesExplainer,
}
#: Device states evaluated in detail.
STATES = 128


def group_nodes(view: PodView, attempt: AttemptRecorder, states: int = STATES) -> tuple[NodeGroup, ...]:
    """Return the groups of an attempt, nearest first within each rule."""
    ranks = _NodeRanks(view)
    groups = [
        group for rule, removed in attempt.removed for group in group_removed(view, rule, removed, ranks)
    ]
    if attempt.devices is not None and attempt.refused:
        groups += group_refused(view, attempt.devices, attempt.refused, states)
    return tuple(groups)


class _NodeRanks:
    """Ranks of nodes by what they lack under all rules, computed when a group has several nodes."""

    def __init__(self, view: PodView) -> None:
        self._view = view
        self._ranks: dict[int, int] = {}

    def sort(self, rows: Sequence[int], distance: Callable[[int], Any]) -> list[int]:
        """Return rows by their distance from passing one rule, then by rank."""
        if len(rows) > 1 and not self._ranks:
            view = self._view
            ranked = rank_nodes(view.pod_info, view.snapshot, view.settings)
            self._ranks = {row: rank for rank, row in enumerate(ranked)}
        return sorted(rows, key=lambda row: (distance(row), self._ranks.get(row, 0)))


def group_removed(view: PodView, rule: Filter, removed: Mask, ranks: _NodeRanks) -> list[NodeGroup]:
    """Group the nodes that one rule excluded."""
    rows = np.flatnonzero(removed).tolist()
    explainer = EXPLAINERS.get(rule.rule, RuleExplainer)(view, rule, rows)
    by_key: dict[Hashable, list[int]] = {}
    for row in rows:
        by_key.setdefault(explainer.key(row), []).append(row)
    ranked = [ranks.sort(members, explainer.distance) for members in by_key.values()]
    ranked.sort(key=lambda members: explainer.distance(members[0]))
    return [
        _group(view, rule, rule.filter_node(members[0]), members, explainer.explain(members[0], members))
        for members in ranked
    ]


def _nearest_first(view: PodView, rows: Iterable[int], distance: Callable[[int], Any]) -> list[int]:
    return sorted(rows, key=lambda row: (distance(row), view.name(row)))


def _group(
    view: PodView,
    rule: Filter,
    reasons: Sequence[NodeReason],
    rows: Sequence[int],
    branches: tuple[Statement, ...],
) -> NodeGroup:
    return NodeGroup(
        rule.rule,
        tuple(reasons),
        ", ".join(dict.fromkeys(map(render, reasons))),
        tuple(map(view.name, rows)),
        branches,
        all(reason.resolvable for reason in reasons),
    )


# -- devices


def group_refused(
    view: PodView,
    devices: DynamicResourcesFilter,
    refused: Mapping[int, tuple[NodeReason, ...]],
    states: int = STATES,
) -> list[NodeGroup]:
    """Group the nodes refused for devices or for their charges."""
    by_key: dict[Hashable, list[int]] = {}
    answers: dict[int, tuple[NodeReason, ...]] = {}
    unknown: dict[Hashable, list[int]] = {}
    for row, reasons in refused.items():
        if any(isinstance(reason.cause, Refusal) for reason in reasons):
            messages = tuple((render(reason), reason.code) for reason in reasons)
            unknown.setdefault((messages, device_state(view, row)), []).append(row)
        else:
            by_key.setdefault(signature(reasons), []).append(row)
            answers[row] = reasons
    rest: list[int] = []
    for number, members in enumerate(sorted(unknown.values(), key=len, reverse=True)):
        if number >= states:
            rest += members
            continue
        explained = without_other_drivers(view, devices.filter_node(members[0]), members[0])
        by_key.setdefault(signature(explained), []).extend(members)
        answers.update(dict.fromkeys(members, explained))
    # Of nodes with the same devices, the one with the most free CPU is nearest.
    free_cpu = view.snapshot.columns.free(CPU)
    ranked = [
        _nearest_first(view, each, lambda row: (distance(answers[row]), -int(free_cpu[row])))
        for each in by_key.values()
    ]
    ranked.sort(key=lambda members: (distance(answers[members[0]]), -len(members)))
    groups = []
    for members in ranked:
        reasons = answers[members[0]]
        if any(isinstance(reason.cause, Refusal) for reason in reasons):
            reasons = devices.filter_node(members[0])  # that of an equal node names other devices
        groups.append(_group(view, devices, reasons, members, describe_reasons(view, reasons, members[0])))
    if rest:
        rows = sorted(rest, key=view.name)
        groups.append(
            _group(view, devices, refused[rows[0]], rows, (Statement(StatementKind.NOT_LOOKED_INTO),))
        )
    return groups


def device_state(view: PodView, row: int) -> Hashable:
    """Return a key that is equal for nodes with equal devices in equal use."""
    devices = view.snapshot.inventory.devices_for(view.node(row))
    if isinstance(devices, AllocationFault):
        return str(devices)
    devices_key: object = devices.signature
    if devices_key is None:  # with devices of several nodes, which must be identical
        devices_key = tuple(
            (pool.id.driver, pool.status, tuple(map(_slice_state, pool.slices))) for pool in devices.pools
        )
    return devices_key, devices.elsewhere, read_usage(view.snapshot, devices).signature


def _slice_state(view: SliceView) -> Hashable:
    return view.signature if view.slice.spec.node_name else (view.pool, view.slice.metadata.name)
