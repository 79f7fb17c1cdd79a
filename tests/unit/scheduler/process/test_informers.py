"""Informer events that reach the snapshot and the queue, singly and over a real API."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import EXTENDED_RESOURCE_CLAIM
from plimsoll.api.resource import ResourceClaim
from plimsoll.client import Client, ClientConfig
from plimsoll.client.discovery import Served
from plimsoll.client.discovery import discover as discover_served
from plimsoll.client.endpoints import NODES, PODS, RESOURCE_CLAIMS
from plimsoll.client.informer import Informer
from plimsoll.errors import UnreachableError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import ClusterEvent
from plimsoll.scheduler.process import informers as feed_module
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.informers import WATCHED_KINDS
from plimsoll.scheduler.queue import QueueState
from plimsoll.scheduler.reasons import Rule
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.up.local_cluster import LocalCluster
from tests.build import claim, container, exactly, node, pod, result
from tests.waiting import until


@pytest.fixture
def context() -> SchedulerContext:
    context = SchedulerContext.create(SchedulerSettings().named(["mine", "also-mine"]))
    context.informers.synced = True
    return context


def waiting(name: str, scheduler: str = "mine", **fields: object) -> Pod:
    return pod(name, cpu="1", scheduler_name=scheduler, **fields)  # type: ignore[arg-type]


def test_only_unscheduled_pods_of_this_scheduler_are_queued(context: SchedulerContext) -> None:
    on_event = context.informers.on_pod_event
    context.informers.on_event(None, node("n1"))
    on_event(None, waiting("a"))
    on_event(None, waiting("b", "also-mine"))
    on_event(None, waiting("c", "other-scheduler"))
    on_event(None, waiting("d", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    on_event(None, waiting("e", node="n1"))
    assert sorted(each.metadata.name for each in context.queue) == ["a", "b"]
    assert [
        each.metadata.name for each in context.snapshot.pods_at(0 if context.snapshot.alive[0] else 63)
    ] == ["e"]


def test_a_bound_or_deleted_pod_leaves_the_queue(context: SchedulerContext) -> None:
    left: list[str] = []
    context.informers.on_pod_left = left.append
    context.informers.on_event(None, node("n1"))
    for name in ("bound", "deleted", "ending", "renamed"):
        context.informers.on_pod_event(None, waiting(name))
    context.informers.on_pod_event(waiting("bound"), waiting("bound", node="n1"))
    context.informers.on_pod_event(waiting("deleted"), None)
    gone = waiting("ending", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    context.informers.on_pod_event(waiting("ending"), gone)
    assert [each.metadata.name for each in context.queue] == ["renamed"]
    assert left == [pod_key(waiting(name)) for name in ("bound", "deleted", "ending")]
    assert verify(context.snapshot) == []


def test_the_snapshot_is_updated_before_the_queue(
    context: SchedulerContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def happen(event: ClusterEvent, now: int) -> int:
        seen.append(len(context.snapshot))
        return 0

    monkeypatch.setattr(context.queue, "on_event", happen)
    context.informers.synced = False
    context.informers.on_event(None, node("n0"))
    context.informers.synced = True
    context.informers.on_event(None, node("n1"))
    assert seen == [2], "no pod is woken before the first list is complete"


def refuse(context: SchedulerContext, *rules: Rule) -> str:
    """Pop the next pod and reject it by these plugins."""
    attempt = context.queue.pop(context.now())
    assert attempt is not None
    context.queue.mark_unschedulable(attempt.key, frozenset(rules), context.now())
    return attempt.key


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (Rule.RESOURCES, lambda context: context.informers.on_event(None, node("n2"))),
        (Rule.RESOURCES, lambda context: context.informers.on_event(node("n1"), node("n1", cpu="64"))),
        (Rule.RESOURCES, lambda context: context.informers.on_pod_event(waiting("x", node="n1"), None)),
        (Rule.DEVICES, lambda context: context.informers.on_pod_event(waiting("x", node="n1"), None)),
        (
            Rule.TAINTS,
            lambda context: context.informers.on_event(node("n1", taints=["a:NoSchedule"]), node("n1")),
        ),
    ],
)
def test_helpful_events_wake_pods(
    context: SchedulerContext, rule: Rule, change: Callable[[SchedulerContext], None]
) -> None:
    context.informers.on_event(None, node("n1"))
    context.informers.on_pod_event(None, waiting("a"))
    key = refuse(context, rule)
    context.informers.on_event(node("n1"), replace(node("n1"), kind="Node"))
    assert context.queue.state_of(key) is QueueState.UNSCHEDULABLE, "an update without change wakes no pod"
    change(context)
    assert context.queue.state_of(key) is not QueueState.UNSCHEDULABLE


def test_stale_events_of_a_bound_pod_are_ignored(context: SchedulerContext) -> None:
    context.informers.on_event(None, node("n1"))
    context.informers.on_pod_event(None, waiting("a"))
    attempt = context.queue.pop(context.now())
    assert attempt is not None
    outcome = context.schedule(attempt.pod)
    assert isinstance(outcome, Placement)
    context.snapshot.assume(outcome)
    context.informers.on_pod_event(waiting("a"), waiting("a", status={"phase": "Pending"}))
    context.snapshot.confirm(attempt.key)
    context.queue.done(attempt.key, context.now())
    # the watch is late: the pod as it was before it was bound
    context.informers.on_pod_event(waiting("a"), waiting("a", status={"phase": "Pending", "message": "x"}))
    assert len(context.queue) == 0
    context.informers.on_pod_event(waiting("a"), waiting("a", node="n1"))
    assert not context.snapshot.assumed
    assert verify(context.snapshot) == []


def test_queued_pods_are_counted(context: SchedulerContext) -> None:
    context.informers.on_event(None, node("n1"))
    context.informers.on_pod_event(None, waiting("a"))
    context.informers.on_pod_event(None, waiting("g", scheduling_gates=[{"name": "g"}]))
    refuse(context, Rule.RESOURCES)
    context.informers.on_event(None, node("n2"))
    assert context.metrics.incoming.values == {
        ("active", "PodAdd"): 1,
        ("gated", "PodAdd"): 1,
        ("backoff", "NodeAdded"): 1,
    }


def test_waiters_are_notified_of_claims(context: SchedulerContext) -> None:
    notified: list[str] = []
    context.informers.on_claim_changed = lambda each: notified.append(each.metadata.name)
    context.informers.on_event(None, claim("c", exactly("r")))
    context.informers.on_event(claim("c", exactly("r")), None)
    assert notified == ["c"]


def test_the_devices_of_a_created_claim_are_taken_before_it_is_seen(context: SchedulerContext) -> None:
    informers, uid = context.informers, "uid-p"
    client = Client.connect(ClientConfig("http://127.0.0.1:1"))  # it is never called
    watching = Informer(client, RESOURCE_CLAIMS, partial(codec.decode, view=ResourceClaim))
    informers.informers.append(watching)
    watching.cache.revision = "5"
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    metadata = {
        "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
        "ownerReferences": [owner],
        "resourceVersion": "7",
    }
    created = claim("c", exactly("r"), results=[result("d0")], metadata=metadata)
    informers.on_claim_created(created)
    bound = pod("p", node="n1", scheduler_name="mine")
    informers.on_pod_event(None, bound)
    informers.on_pod_event(bound, None)  # the pod is deleted, and the claim is still on its way
    assert context.snapshot.allocations.of(created.metadata.uid) is not None
    watching.cache.revision = "9"  # the watch was started again, after the claim was deleted
    informers.on_event(None, node("n2"))
    assert context.snapshot.allocations.of(created.metadata.uid) is None
    informers.on_claim_created(created)  # a response that comes late
    assert context.snapshot.allocations.of(created.metadata.uid) is None
    watching.cache.revision = "6"
    informers.on_claim_created(created)
    informers.on_event(None, created)
    watching.cache.revision = "9"
    informers.on_event(None, node("n3"))
    assert context.snapshot.allocations.of(created.metadata.uid) is not None
    assert verify(context.snapshot) == []


def test_a_nomination_counts_until_the_pod_is_deleted(context: SchedulerContext) -> None:
    promised = waiting("a", status={"nominatedNodeName": "n1"})
    context.informers.on_pod_event(None, promised)
    assert len(context.nominations) == 1
    context.informers.on_pod_event(promised, None)
    assert len(context.nominations) == 0


def test_gated_pods_are_not_active(context: SchedulerContext) -> None:
    gated = waiting("a", scheduling_gates=[{"name": "g"}])
    context.informers.on_pod_event(None, gated)
    assert context.queue.pop(context.now()) is None
    context.informers.on_pod_event(gated, waiting("a"))
    assert context.queue.pop(context.now()) is not None


def test_informers_list_all_kinds() -> None:
    with LocalCluster(controllers=False) as cluster:
        for name in ("n1", "n2"):
            tree = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            tree["status"] = {"allocatable": {"cpu": "4"}, "capacity": {"cpu": "4"}}
            cluster.apply(tree)
        spec = {"schedulerName": "mine", "containers": [{**container(), "image": "x"}]}
        cluster.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
        done = {"metadata": {"name": "done"}, "spec": {**spec, "nodeName": "n1"}}
        cluster.client.create(PODS, done, "default")
        cluster.client.patch(
            PODS, "done", {"status": {"phase": "Succeeded"}}, "default", subresource="status"
        )
        contexts = []

        async def list_once() -> None:
            context = SchedulerContext.create(SchedulerSettings().named(["mine"]))
            assert context.informers.sync_problem() == "not synced: API discovery"
            async with cluster.connect() as client:
                await context.informers.list_once(client)
            contexts.append(context)

        asyncio.run(list_once())
        (context,) = contexts
    assert len(context.snapshot) == 2
    assert [each.metadata.name for each in context.queue] == ["p"]
    assert context.informers.sync_problem() == ""
    assert not any(kind.optional for kind in WATCHED_KINDS if kind.endpoint in (NODES, PODS))


def test_profiles_go_by_name() -> None:
    settings = SchedulerSettings()
    other = dataclasses.replace(settings.profiles[0], name="other", explore=9)
    context = SchedulerContext.create(replace(settings, profiles=(*settings.profiles, other)))
    assert context.profile(waiting("a", "other")).explore == 9
    assert context.profile(waiting("a", "plimsoll")).name == "plimsoll"


def test_informers_wait_for_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discovery is repeated, not guessed: the server may serve other versions than the default."""
    monkeypatch.setattr(feed_module, "DISCOVERY_RETRY_SECONDS", 0.0)
    real = discover_served
    asked: list[str] = []

    async def discover(client: Client) -> list[Served]:
        asked.append("")
        if len(asked) < 3:
            raise UnreachableError("Connection refused", sent=False)
        return await real(client)

    monkeypatch.setattr(feed_module, "discover", discover)

    async def scenario(cluster: LocalCluster) -> None:
        context = SchedulerContext.create(SchedulerSettings())
        async with cluster.connect() as client:
            running = asyncio.create_task(context.informers.run(client))
            await until(lambda: context.informers.synced or running.done())
            assert not running.done()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with LocalCluster(controllers=False) as cluster:
        asyncio.run(scenario(cluster))
    assert len(asked) == 3
