"""Pod groups in explain, whatif and dry runs."""

from __future__ import annotations

from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.pod_claims import owner_group
from plimsoll.api.resource import ResourceClaim, ResourceClaimTemplate
from plimsoll.api.scheduling import PodGroup
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.dry_run import report_pending
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.explain.pending import summarize_pending
from plimsoll.tools.explain.pods import explain_pod
from plimsoll.tools.explain.verdict import ExplainVerdict
from plimsoll.tools.whatif import Whatif
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.scheduling import schedule_all
from tests.build import (
    claim,
    device,
    device_class,
    exactly,
    member,
    node,
    pod,
    pod_group,
    resource_slice,
)


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
    assert {why for _, why in summarize_pending(cluster)} == {
        "fits now; waiting for scheduler default-scheduler"
    }


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


# -- claims of a group

SHARED: dict[str, Any] = {"resource_claims": [{"name": "fabric", "resourceClaimTemplateName": "fabric"}]}
TEMPLATE = convert(
    {"metadata": {"name": "fabric", "namespace": "default"},
     "spec": {"spec": {"devices": {"requests": [exactly()]}}}},
    ResourceClaimTemplate,
)  # fmt: skip


def devices(*nodes: str) -> list[Any]:
    return [device_class(), *(resource_slice([device("d")], each) for each in nodes)]


def claims_of(whatif: Whatif) -> list[ResourceClaim]:
    return sorted(whatif.cluster_state.objects.all(ResourceClaim), key=lambda each: each.metadata.name)


def test_whatif_generates_a_claim_of_a_group_once() -> None:
    whatif = Whatif(state(node("a"), node("b"), *devices("a", "b"), TEMPLATE))
    whatif.add(pod_group(min_count=3, **SHARED), *gang(3, **SHARED))
    outcome = whatif.schedule()
    assert len({each.node for each in outcome.placed}) == 1
    assert len(outcome.placed) == 3
    (made,) = claims_of(whatif)
    assert owner_group(made) == ("gang", "uid-gang")
    (consumer,) = made.status.reserved_for
    assert (consumer.resource, consumer.name) == ("podgroups", "gang")
    group = whatif.cluster_state.objects.find(PodGroup, "default", "gang")
    assert group is not None
    assert [each.resource_claim_name for each in group.status.resource_claim_statuses] == [made.metadata.name]


def test_an_entry_that_the_group_does_not_have_is_a_claim_of_the_pod() -> None:
    whatif = Whatif(state(node("a"), node("b"), *devices("a", "b"), TEMPLATE))
    whatif.add(pod_group(min_count=2), *gang(2, **SHARED))
    assert len({each.node for each in whatif.schedule().placed}) == 2
    assert [owner_group(each) for each in claims_of(whatif)] == [None, None]


def test_a_group_takes_its_claims_along() -> None:
    whatif = Whatif(state(node("a"), *devices("a"), TEMPLATE))
    whatif.add(pod_group(min_count=1, **SHARED), *gang(1, **SHARED))
    assert len(whatif.schedule().placed) == 1
    whatif.remove("Pod/default/p0", "PodGroup/default/gang")
    assert claims_of(whatif) == []


def test_a_group_without_scheduled_pods_chooses_other_devices() -> None:
    whatif = Whatif(state(node("a", cpu="2"), node("b", cpu="2"), *devices("a", "b"), TEMPLATE))
    whatif.add(pod_group(min_count=1, **SHARED), *gang(1, **SHARED))
    (first,) = whatif.schedule().placed
    whatif.remove("Pod/default/p0")
    whatif.cordon(first.node)
    whatif.add(member("again", **SHARED))
    whatif.schedule()  # the claim is still allocated where no pod can run, and is released
    (second,) = whatif.schedule().placed
    assert {first.node, second.node} == {"a", "b"}


def test_members_that_share_a_claim_reserve_it_for_each() -> None:
    whatif = Whatif(state(node("a"), *devices("a"), claim("c", exactly())))
    whatif.add(pod_group(min_count=2), *gang(2, claims=["c"]))
    assert len(whatif.schedule().placed) == 2
    assert sorted(each.name for each in claims_of(whatif)[0].status.reserved_for) == ["p0", "p1"]
