"""START HERE: `schedule_group`, one scheduling attempt of one pod group.

A pure function of a PodGroup, its pods without a node, a snapshot and profiles. The members are placed one
after the other, each on the state that the earlier ones left, as kube-scheduler does. If fewer than minCount
of them can be placed, other orders and other nodes are searched (`search`). With a topology constraint this
is done for each domain, and the one with the most members is chosen. The snapshot is not changed: the caller
assumes the placements, all of them or none.

DIFF: kube-scheduler gives up if placing the members one after the other fails; here a limited search for
another placement follows (test_a_gang_that_one_by_one_scheduling_misses_is_placed).

DIFF: an error in the selector of one member keeps the group pending only if the others are too few; in
kube-scheduler it always does (test_a_gang_that_is_complete_without_a_failing_member_is_placed).

DIFF: of topology domains with equally many members kube-scheduler chooses one by a score of its nodes; here
it is the first by name (test_a_group_stays_in_one_domain).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard, TypeVar

import numpy as np

from plimsoll.api.core import Pod
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.devices import NewId
from plimsoll.scheduler.gang.attempt import GroupAttempt, ProfileOf
from plimsoll.scheduler.gang.members import GangMessage, min_count
from plimsoll.scheduler.gang.search import STEPS, GroupSearch
from plimsoll.scheduler.node_selection import NominationCheck
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.group_members import GroupMembers
from plimsoll.scheduler.snapshot.snapshot import Snapshot

T = TypeVar("T")
#: How often an attempt starts again because the cluster changed.
RESTARTS = 3


@dataclass(frozen=True, slots=True)
class GroupResult:
    """Result of an attempt to schedule a group."""

    members: int  #: pods that were to be placed
    needed: int  #: how many of them must be placed at once; 0 if each is placed on its own
    #: In the order in which they must be assumed; if the group is unschedulable, those that fit together.
    placements: tuple[Placement, ...] = ()
    #: Members that were not placed, by pod key; a NodeReason if they cannot be attempted yet.
    failures: Mapping[str, FitError | NodeReason] = field(default_factory=dict)
    reason: NodeReason | None = None  #: about the group itself, if no node was considered
    searched: int = 0  #: steps of the search
    gave_up: bool = False  #: whether the search ended early: at its limit, or because the cluster changed

    @property
    def is_scheduled(self) -> bool:
        """True if enough members are placed; the others are unschedulable on their own."""
        return len(self.placements) >= max(self.needed, 1)

    @property
    def error(self) -> FitError | None:
        """First failure of a member that is an error, such as that of a selector, and not a lack of nodes."""
        return next((each for each in self.failures.values() if _is_error(each)), None)


def schedule_group(
    group: PodGroup,
    members: Sequence[Pod],
    snapshot: Snapshot,
    profile_of: ProfileOf,
    new_id: NewId,
    nominations: NominationCheck | None = None,
    *,
    steps: int = STEPS,
) -> GroupResult:
    """Place the members of a group; `members` are in scheduling order, the snapshot has none of them."""
    return finish(group_turns(group, members, snapshot, profile_of, new_id, nominations, steps=steps))


def finish(turns: Generator[None, bool | None, T]) -> T:
    """Take all turns of an attempt; return its result."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def group_turns(
    group: PodGroup,
    members: Sequence[Pod],
    snapshot: Snapshot,
    profile_of: ProfileOf,
    new_id: NewId,
    nominations: NominationCheck | None = None,
    *,
    steps: int = STEPS,
) -> Generator[None, bool | None, GroupResult]:
    """Place the members of a group as `schedule_group` does, in turns.

    Between two turns the snapshot has some members assumed, and may change. If that affects the members
    placed so far, the attempt starts again, a limited number of times. The caller may send True, to end the
    search for other placements.
    """
    for _ in range(RESTARTS + 1):
        result = yield from _attempt_turns(
            group, members, snapshot, profile_of, new_id, nominations, steps=steps
        )
        if result is not None:
            return result
    return GroupResult(len(members), _needed(group, snapshot), gave_up=True)


def _needed(group: PodGroup, snapshot: Snapshot) -> int:
    """Return how many members must be placed at once, in addition to those that are scheduled."""
    scheduled = snapshot.index(GroupMembers).of(group.metadata.key)
    return max(0, min_count(group, snapshot.gates) - len(scheduled))


def _attempt_turns(
    group: PodGroup,
    members: Sequence[Pod],
    snapshot: Snapshot,
    profile_of: ProfileOf,
    new_id: NewId,
    nominations: NominationCheck | None,
    *,
    steps: int,
) -> Generator[None, bool | None, GroupResult | None]:
    """Attempt to place the members; return None if the cluster changed so that it is to be repeated."""
    needed = _needed(group, snapshot)
    base = GroupResult(len(members), needed)
    names = {pod.spec.scheduler_name: pod for pod in members}
    if len(names) > 1:
        one, other = list(names)[:2]
        return _rejected(base, GangMessage.SCHEDULER_NAMES, one=one, other=other)
    domains = find_domains(group, snapshot)
    if isinstance(domains, NodeReason):
        return GroupResult(len(members), needed, reason=domains)
    best: GroupResult | None = None
    revision = snapshot.revision
    for allowed in domains:
        if snapshot.revision != revision:
            if not _are_domains(domains, group, snapshot):
                return None
            revision = snapshot.revision
        with GroupAttempt(snapshot, profile_of, new_id, nominations, allowed) as attempt:
            result = yield from _place_members(attempt, members, needed, steps)
        if result is None:
            return None
        steps = max(0, steps - result.searched)  # for all domains together
        if best is None or len(result.placements) > len(best.placements):
            best = result
    assert best is not None, "there is at least one domain"
    if snapshot.revision != revision and not _are_domains(domains, group, snapshot):
        return None
    is_there = all(snapshot.row_of(each.node) == each.row for each in best.placements)
    return best if is_there else None


def _are_domains(domains: Sequence[Mask | None], group: PodGroup, snapshot: Snapshot) -> bool:
    """Return whether the domains of a group are still these."""
    found = find_domains(group, snapshot)
    if isinstance(found, NodeReason) or len(found) != len(domains):
        return False
    pairs = zip(found, domains, strict=True)
    return all(new is old if new is None or old is None else np.array_equal(new, old) for new, old in pairs)


def _place_members(
    attempt: GroupAttempt, members: Sequence[Pod], needed: int, steps: int
) -> Generator[None, bool | None, GroupResult | None]:
    """Place the members within one domain: one after the other, then by search; None if it changed."""
    failures = yield from _place_in_order(attempt, members)
    if failures is None:
        return None
    placements = attempt.placements
    if len(placements) >= needed or not _may_search(failures.values()):
        return GroupResult(len(members), needed, tuple(placements), failures)
    while attempt.placements:
        attempt.undo()
    candidates = [pod for pod in members if not _is_error(failures.get(pod_key(pod)))]
    search = GroupSearch(attempt, candidates, needed, steps)
    found = yield from search.turns()
    if not found:
        gave_up = search.is_exhausted
        return GroupResult(
            len(members), needed, tuple(placements), failures, searched=search.steps, gave_up=gave_up
        )
    placed = {placement.pod_info.key for placement in attempt.placements}
    failures = yield from _place_in_order(attempt, [pod for pod in members if pod_key(pod) not in placed])
    if failures is None:
        return None
    return GroupResult(len(members), needed, tuple(attempt.placements), failures, searched=search.steps)


def _place_in_order(
    attempt: GroupAttempt, members: Iterable[Pod]
) -> Generator[None, bool | None, dict[str, FitError | NodeReason] | None]:
    """Place members one after the other; return why the others do not fit, or None if placements are void."""
    failures: dict[str, FitError | NodeReason] = {}
    for pod in members:
        outcome = attempt.schedule(pod)
        if isinstance(outcome, Placement):
            attempt.assume(outcome)
        else:
            failures[pod_key(pod)] = outcome
        yield
        if not attempt.is_intact():
            return None
    return failures


def _is_error(failure: FitError | NodeReason | None) -> TypeGuard[FitError]:
    return isinstance(failure, FitError) and failure.is_error


def _may_search(failures: Iterable[FitError | NodeReason]) -> bool:
    """Return whether other placements may help: a member failed on nodes, not by itself."""
    return any(isinstance(each, FitError) and any(count for _, count in each.reasons) for each in failures)


def find_domains(group: PodGroup, snapshot: Snapshot) -> list[Mask | None] | NodeReason:
    """Return the rows of each topology domain that a group may use; None stands for all nodes."""
    constraints = group.spec.scheduling_constraints
    gate = snapshot.gates.enabled("TopologyAwareWorkloadScheduling")
    if constraints is None or not constraints.topology or not gate:
        return [None]
    key = constraints.topology[0].key
    required: str | None = None
    for row, pod in snapshot.index(GroupMembers).of(group.metadata.key).values():
        domain = snapshot.node(row).metadata.labels.get(key)
        if domain is None:
            return _reason(GangMessage.NO_DOMAIN_OF_POD, pod=pod.metadata.full_name)
        if required is not None and domain != required:
            return _reason(GangMessage.SEVERAL_DOMAINS, one=required, other=domain)
        required = domain
    rows: dict[str, list[int]] = {}
    for row in snapshot.rows():
        domain = snapshot.node(row).metadata.labels.get(key)
        if domain is not None and required in (None, domain):
            rows.setdefault(domain, []).append(row)
    if not rows:
        return _reason(GangMessage.NO_DOMAIN, key=key)
    masks: list[Mask | None] = []
    for domain in sorted(rows):
        mask = np.zeros(snapshot.size, dtype=np.bool_)
        mask[rows[domain]] = True
        masks.append(mask)
    return masks


def _reason(message: GangMessage, **facts: object) -> NodeReason:
    return NodeReason.unresolvable(Rule.GANG, message, **facts)


def _rejected(base: GroupResult, message: GangMessage, **facts: object) -> GroupResult:
    return GroupResult(base.members, base.needed, reason=_reason(message, **facts))
