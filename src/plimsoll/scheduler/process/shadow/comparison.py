"""Comparison of our decision about a pod with the binding that another scheduler made.

The pod is scheduled on a snapshot of the state before its binding: claims that were allocated for it alone
are taken back for the comparison. The other node is then judged by the same rules and scores: it may be equal
(a tie, which kube-scheduler breaks at random), worse, or not feasible.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from uuid import uuid4

from msgspec.structs import replace as amend

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.columns import Column, Mask
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.nominations import Nominations
from plimsoll.scheduler.preemption.simulated_node import NodeSimulation
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class ShadowOutcome(Enum):
    """Result of a comparison; the value is its name in metrics and reports."""

    SAME = "same"  #: the same node
    TIE = "tie"  #: another node with the same score
    ELSEWHERE = "elsewhere"  #: another node
    WAITS = "waits"  #: pending here, bound by the other scheduler
    SOONER = "sooner"  #: scheduled here, pending there
    BOTH_PENDING = "both-pending"

    @property
    def is_difference(self) -> bool:
        return self in (ShadowOutcome.ELSEWHERE, ShadowOutcome.WAITS, ShadowOutcome.SOONER)


@dataclass(frozen=True, slots=True)
class ScoreDifference:
    """Weighted score of one plugin on both nodes."""

    plugin: str
    ours: int
    theirs: int


@dataclass(frozen=True, slots=True)
class ShadowComparison:
    """Our decision about a pod, compared with the node of another scheduler ("": pending there)."""

    outcome: ShadowOutcome
    theirs: str
    ours: str = ""
    why: tuple[str, ...] = ()  #: reasons, most important first
    plugins: tuple[str, ...] = ()  #: plugins of the reasons
    scores: tuple[ScoreDifference, ...] = ()


class _AttemptObserver(CycleObserver):
    """Filters and scores of an attempt."""

    def __init__(self) -> None:
        self.removed: list[tuple[Filter, Mask]] = []
        self.devices: DynamicResourcesFilter | None = None
        self.scores: list[tuple[str, int, Column]] = []

    def on_filter(self, rule: Filter, removed: Mask) -> None:
        if isinstance(rule, DynamicResourcesFilter):
            self.devices = rule
        elif removed.any():
            self.removed.append((rule, removed))

    def on_score(self, scorer: str, weight: int, scores: Column) -> None:
        self.scores.append((scorer, weight, scores))

    def rejections(self, row: int) -> tuple[NodeReason, ...]:
        """Return the reasons why a node is not feasible; empty if it is."""
        for rule, removed in self.removed:
            if removed[row]:
                return rule.filter_node(row)
        if self.devices is None:
            return ()
        answer = self.devices.search_uncached(row)
        return () if isinstance(answer, NodeFit) else answer


def compare(
    pod: Pod,
    theirs: str,
    snapshot: Snapshot,
    profile: SchedulerProfile,
    nominations: Nominations | None = None,
) -> ShadowComparison:
    """Schedule a pod that the snapshot has as pending, and compare with the node it was bound to.

    All feasible nodes are scored, although kube-scheduler samples them in clusters of 100 nodes and more.
    """
    profile = replace(profile, percentage_of_nodes_to_score=100)
    row = snapshot.row_of(theirs) if theirs else None
    with _before_allocation(pod, snapshot, profile) as pod_info:
        if isinstance(pod_info, NodeReason):
            return _judge_pending(theirs, (render(pod_info),), (pod_info.rule.value,))
        observer = _AttemptObserver()
        found = schedule_one(pod_info, snapshot, profile, _new_id, nominations, observer)
        if isinstance(found, FitError):
            plugins = sorted(rule.value for rule in found.rules)
            return _judge_pending(theirs, (render_fit_error(found),), tuple(plugins))
        if not theirs:
            return ShadowComparison(ShadowOutcome.SOONER, "", found.node)
        if found.node == theirs:
            return ShadowComparison(ShadowOutcome.SAME, theirs, theirs)
        if row is None:
            why = f"node {theirs} is not known"
            return ShadowComparison(ShadowOutcome.ELSEWHERE, theirs, found.node, (why,))
        return _judge_other_node(found, theirs, row, observer)


def _new_id() -> str:
    return str(uuid4())


def _judge_pending(theirs: str, why: tuple[str, ...], plugins: tuple[str, ...]) -> ShadowComparison:
    outcome = ShadowOutcome.WAITS if theirs else ShadowOutcome.BOTH_PENDING
    return ShadowComparison(outcome, theirs, "", why, plugins)


def _judge_other_node(
    found: Placement, theirs: str, row: int, observer: _AttemptObserver
) -> ShadowComparison:
    reasons = observer.rejections(row)
    if reasons:
        texts = tuple(f"{theirs}: {render(reason)}" for reason in reasons)
        plugins = tuple(dict.fromkeys(reason.rule.value for reason in reasons))
        return ShadowComparison(ShadowOutcome.ELSEWHERE, theirs, found.node, texts, plugins)
    scores = [
        ScoreDifference(plugin, weight * int(column[found.row]), weight * int(column[row]))
        for plugin, weight, column in observer.scores
    ]
    ours, others = sum(each.ours for each in scores), sum(each.theirs for each in scores)
    if ours == others:
        return ShadowComparison(ShadowOutcome.TIE, theirs, found.node)
    differing = sorted(
        (each for each in scores if each.ours != each.theirs), key=lambda each: each.theirs - each.ours
    )
    why = f"score {ours} on {found.node}, {others} on {theirs}"
    plugins = tuple(each.plugin for each in differing if each.ours > each.theirs)
    return ShadowComparison(ShadowOutcome.ELSEWHERE, theirs, found.node, (why,), plugins, tuple(differing))


@contextmanager
def _before_allocation(
    pod: Pod, snapshot: Snapshot, profile: SchedulerProfile
) -> Iterator[PodInfo | NodeReason]:
    """Yield the pod as it was before the other scheduler allocated its claims."""
    pod_info = read_pod_info(pod, snapshot, profile)
    own: list[ResourceClaim] = []
    if isinstance(pod_info, PodInfo):
        own = [claim for claim in pod_info.claims if _is_own(claim, pod)]
        if pod_info.stale_claim is not None:
            own.append(pod_info.stale_claim)
    rows = list(snapshot.rows())
    if not own or not rows or isinstance(pod_info, NodeReason):
        yield pod_info
        return
    with NodeSimulation(snapshot, rows[0]) as simulation:
        simulation.release_claims(own)
        uids = {claim.metadata.uid for claim in own}
        claims = tuple(
            _without_allocation(claim) if claim.metadata.uid in uids else claim for claim in pod_info.claims
        )
        yield pod_info.without_stale_claim().with_claims(claims)


def _is_own(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim is allocated, and for this pod alone."""
    users = {user.uid for user in claim.status.reserved_for}
    return claim.status.allocation is not None and users <= {pod.metadata.uid}


def _without_allocation(claim: ResourceClaim) -> ResourceClaim:
    return amend(claim, status=amend(claim.status, allocation=None, reserved_for=()))
