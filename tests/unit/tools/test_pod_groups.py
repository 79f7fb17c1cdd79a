"""Pod groups in explain, whatif and dry runs."""

from __future__ import annotations

from typing import Any

from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.dry_run import report_pending
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.explain.pending import summarize_pending
from plimsoll.tools.explain.pods import explain_pod
from plimsoll.tools.explain.verdict import ExplainVerdict
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.scheduling import schedule_all
from tests.build import member, node, pod, pod_group


def state(*objects: Any) -> ClusterState:
    made = ClusterObjects()
    for each in objects:
        made.set(each)
    return ClusterState(made)


def cluster_of(*objects: Any) -> MemoryCluster:
    return MemoryCluster(state(*objects), SchedulerProfile.default())


def gang(count: int, cpu: str = "1", **fields: Any) -> list[Any]:
    return [member(f"p{i}", cpu=cpu, **fields) for i in range(count)]


SHORT = "pod group default/gang: 3 of 4 needed pods fit together"
WAITING = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled"


def test_explain_counts_the_members_that_fit() -> None:
    members = gang(4)
    cluster = state(node("a", cpu="3"), pod_group(min_count=4), *members)
    found = explain_pod(cluster, members[0])
    assert (found.verdict, found.summary, found.node) == (ExplainVerdict.PENDING, WAITING, "")
    assert found.notes[:2] == (SHORT, "default/p3: 0/1 nodes are available: 1 Insufficient cpu.")
    assert {why for _, why in summarize_pending(cluster)} == {SHORT}


def test_explain_of_a_gang_that_fits() -> None:
    small, large = member("p1", cpu="2"), member("p2", cpu="4")
    cluster = state(node("small", cpu="2"), node("large", cpu="4"), pod_group(min_count=2), small, large)
    found = explain_pod(cluster, small)
    assert (found.verdict, found.node) == (ExplainVerdict.FITS, "small")
    assert found.summary == "it fits on node small now, together with its pod group"
    assert {why for _, why in summarize_pending(cluster)} == {"fits now; waiting for its scheduler"}


def test_explain_of_an_incomplete_gang() -> None:
    members = gang(2)
    cluster = state(node("a"), pod_group(min_count=3), *members)
    found = explain_pod(cluster, members[0])
    assert found.summary == "waiting for minCount pods from a gang to appear in scheduling queue"
    assert found.notes[0] == "pod group default/gang has 2 pods without a node"


def test_whatif_schedules_a_gang_as_a_whole() -> None:
    fits = schedule_all(cluster_of(node("a", cpu="4"), pod_group(min_count=4), *gang(4)))
    assert len(fits.placed) == 4
    refused = schedule_all(
        cluster_of(node("a", cpu="3"), pod_group(min_count=4), *gang(4), pod("q", cpu="3"))
    )
    assert [each.pod[1] for each in refused.placed] == ["q"]
    assert {each.why.partition(":")[0] for each in refused.pending} == {"pod group default/gang"}


def test_whatif_preempts_for_a_gang() -> None:
    running = [pod(f"v{i}", cpu="2", node="a") for i in range(2)]
    group = pod_group(min_count=2, priority=10)
    outcome = schedule_all(cluster_of(node("a", cpu="4"), group, *running, *gang(2, "2", priority=10)))
    assert len(outcome.placed) == 2
    assert len(outcome.evicted) == 2


def dry_run(*objects: Any) -> tuple[list[str], bool]:
    context = SchedulerContext.create(SchedulerSettings())
    for each in objects:
        on_event = context.informers.on_pod_event if hasattr(each.spec, "containers") else None
        (on_event or context.informers.on_event)(None, each)
    context.informers.synced = True
    lines: list[str] = []
    placed = report_pending(context, lines.append)
    return sorted(lines), placed


def test_a_dry_run_places_a_gang_as_a_whole() -> None:
    members = gang(2, schedulerName="plimsoll")
    assert {pod_key(each) for each in members} == {"uid-p0", "uid-p1"}
    lines, placed = dry_run(node("a", cpu="2"), pod_group(min_count=2), *members)
    assert placed
    assert all("would-bind" in line for line in lines)
    lines, placed = dry_run(node("a", cpu="1"), pod_group(min_count=2), *members)
    assert not placed
    assert all("would-refuse" in line for line in lines)
    assert any(WAITING in line for line in lines)
    lines, _ = dry_run(node("a", cpu="1"), *members)
    assert all("would-hold" in line for line in lines)
