"""Comparison of a decision with another scheduler's binding."""

from __future__ import annotations

from random import Random

from hypothesis import given

from plimsoll.api.core import Pod
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.process.shadow.comparison import ScoreDifference, ShadowOutcome, compare
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.scores import score_nodes
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import DRIVER, claim, device, device_class, exactly, node, pod, resource_slice, result
from tests.unit.scheduler.samples import SEEDS, Draws
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

DEFAULT = SchedulerProfile.default()
ONLY_FIT = SchedulerProfile(
    weights={name: 0 for name in SchedulerProfile.default().weights if name != "NodeResourcesFit"}
)


def test_the_same_node() -> None:
    found = compare(pod("p", cpu="1"), "n", snapshot_of(node("n")), DEFAULT)
    assert (found.outcome, found.ours, found.why) == (ShadowOutcome.SAME, "n", ())


def test_an_equal_node_is_a_tie() -> None:
    found = compare(pod("p", cpu="1"), "b", snapshot_of(node("a"), node("b")), DEFAULT)
    assert (found.outcome, found.theirs, found.ours) == (ShadowOutcome.TIE, "b", "a")
    assert not found.outcome.is_difference


def test_a_worse_node_is_explained_by_scores() -> None:
    snapshot = snapshot_of(node("a", cpu="8"), node("b", cpu="8"), pod("x", node="b", cpu="4"))
    found = compare(pod("p", cpu="1", memory="1Gi"), "b", snapshot, ONLY_FIT)
    assert (found.outcome, found.ours) == (ShadowOutcome.ELSEWHERE, "a")
    assert found.plugins == ("NodeResourcesFit",)
    [scores] = found.scores
    assert scores.ours > scores.theirs
    assert found.why == (f"score {scores.ours} on a, {scores.theirs} on b",)
    assert scores == ScoreDifference("NodeResourcesFit", scores.ours, scores.theirs)


def test_a_node_that_is_not_feasible_is_explained_by_its_reasons() -> None:
    snapshot = snapshot_of(node("a"), node("b", taints=["k=v:NoSchedule"]))
    found = compare(pod("p"), "b", snapshot, DEFAULT)
    assert (found.outcome, found.ours, found.plugins) == (ShadowOutcome.ELSEWHERE, "a", ("TaintToleration",))
    assert found.why == ("b: node(s) had untolerated taint(s)",)


def test_a_pod_that_would_wait() -> None:
    found = compare(pod("p", cpu="9"), "n", snapshot_of(node("n", cpu="8")), DEFAULT)
    assert (found.outcome, found.ours, found.plugins) == (ShadowOutcome.WAITS, "", ("NodeResourcesFit",))
    assert found.why == ("0/1 nodes are available: 1 Insufficient cpu.",)


def test_a_pod_that_the_other_scheduler_leaves_pending() -> None:
    snapshot = snapshot_of(node("n", cpu="8"))
    assert compare(pod("p", cpu="1"), "", snapshot, DEFAULT).outcome is ShadowOutcome.SOONER
    assert compare(pod("p", cpu="9"), "", snapshot, DEFAULT).outcome is ShadowOutcome.BOTH_PENDING


def test_an_unknown_node() -> None:
    found = compare(pod("p"), "gone", snapshot_of(node("n")), DEFAULT)
    assert (found.outcome, found.why) == (ShadowOutcome.ELSEWHERE, ("node gone is not known",))


def with_devices(*reserved: str) -> Snapshot:
    """Return two nodes with a device each; the claim is allocated on b for these pods."""
    allocated = claim("c", exactly(), results=[result("d", DRIVER, "b")], node="b", reserved=list(reserved))
    return snapshot_of(
        node("a", cpu="32"),
        node("b", cpu="4"),
        resource_slice([device("d")], "a"),
        resource_slice([device("d")], "b"),
        device_class(),
        allocated,
    )


def test_the_allocation_for_the_pod_itself_is_taken_back() -> None:
    """The other scheduler allocates claims before it binds the pod; the state before is compared."""
    snapshot = with_devices("p")
    wanting = pod("p", cpu="2", claims=["c"])
    before = snapshot.allocations.of(snapshot.claim("default", "c").metadata.uid)  # type: ignore[union-attr]
    found = compare(wanting, "b", snapshot, ONLY_FIT)
    assert (found.outcome, found.ours) == (ShadowOutcome.ELSEWHERE, "a")
    after = snapshot.allocations.of(snapshot.claim("default", "c").metadata.uid)  # type: ignore[union-attr]
    assert before == after is not None
    assert verify(snapshot) == []


def test_a_claim_that_others_use_stays_where_it_is() -> None:
    found = compare(pod("p", cpu="2", claims=["c"]), "b", with_devices("p", "other"), ONLY_FIT)
    assert found.outcome is ShadowOutcome.SAME


def naive(new: Pod, theirs: str, snapshot: Snapshot) -> ShadowOutcome:
    """Judge by all scores of all feasible nodes."""
    found = schedule_one(pod_info_of(new, snapshot), snapshot, DEFAULT, lambda: "")
    if not isinstance(found, Placement):
        return ShadowOutcome.WAITS
    if found.node == theirs:
        return ShadowOutcome.SAME
    row = snapshot.row_of(theirs)
    assert row is not None
    pinned = SchedulerProfile.read(
        {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [theirs]}]}]}}}
    )  # fmt: skip
    if not isinstance(schedule_one(pod_info_of(new, snapshot), snapshot, pinned, lambda: ""), Placement):
        return ShadowOutcome.ELSEWHERE
    feasible = snapshot.alive.copy()
    for other in snapshot.rows():
        alone = SchedulerProfile.read(
            {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In",
                                  "values": [snapshot.node(other).metadata.name]}]}]}}}
        )  # fmt: skip
        fits = schedule_one(pod_info_of(new, snapshot), snapshot, alone, lambda: "")
        feasible[other] = isinstance(fits, Placement)
    scores = score_nodes(pod_info_of(new, snapshot), snapshot, DEFAULT, feasible)
    return ShadowOutcome.TIE if scores[row] == scores[found.row] else ShadowOutcome.ELSEWHERE


@given(seed=SEEDS)
def test_random_clusters_are_judged_as_by_hand(seed: int) -> None:
    draws = Draws(seed)
    snapshot, new = draws.snapshot(), draws.pod("new")
    names = [snapshot.node(row).metadata.name for row in snapshot.rows()]
    if not names:
        return
    theirs = Random(seed).choice(names)
    assert compare(new, theirs, snapshot, DEFAULT).outcome is naive(new, theirs, snapshot)
