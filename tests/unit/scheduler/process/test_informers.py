"""What the snapshot and the queue are told, object by object, and over a real API."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.client import Client
from plimsoll.client.discovery import Served
from plimsoll.client.discovery import discover as discover_served
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import UnreachableError
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.events import ClusterEvent
from plimsoll.scheduler.process import informers as feed_module
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.context import World
from plimsoll.scheduler.process.informers import FOLLOWED
from plimsoll.scheduler.process.loop import decide
from plimsoll.scheduler.queue import QueueState
from plimsoll.scheduler.reasons import Rule
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.verify import verify
from plimsoll.up.local_cluster import LocalCluster
from tests.unit.scheduler.build import claim, container, exactly, node, pod


@pytest.fixture
def world() -> World:
    world = World.make(SchedulerSettings().named(["mine", "also-mine"]))
    world.feed.synced = True
    return world


def waiting(name: str, scheduler: str = "mine", **fields: object) -> Pod:
    return pod(name, cpu="1", scheduler_name=scheduler, **fields)  # type: ignore[arg-type]


def test_only_our_pods_without_a_node_are_in_the_queue(world: World) -> None:
    hear = world.feed.hear_pod
    world.feed.hear(None, node("n1"))
    hear(None, waiting("a"))
    hear(None, waiting("b", "also-mine"))
    hear(None, waiting("c", "somebody-else"))
    hear(None, waiting("d", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}))
    hear(None, waiting("e", node="n1"))
    assert sorted(each.metadata.name for each in world.queue) == ["a", "b"]
    assert [each.metadata.name for each in world.snapshot.pods_at(0 if world.snapshot.alive[0] else 63)] == [
        "e"
    ]


def test_a_pod_leaves_the_queue_when_it_has_a_node_or_goes(world: World) -> None:
    left: list[str] = []
    world.feed.left = left.append
    world.feed.hear(None, node("n1"))
    for name in ("bound", "deleted", "ending", "renamed"):
        world.feed.hear_pod(None, waiting(name))
    world.feed.hear_pod(waiting("bound"), waiting("bound", node="n1"))
    world.feed.hear_pod(waiting("deleted"), None)
    gone = waiting("ending", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    world.feed.hear_pod(waiting("ending"), gone)
    assert [each.metadata.name for each in world.queue] == ["renamed"]
    assert left == [pod_key(waiting(name)) for name in ("bound", "deleted", "ending")]
    assert verify(world.snapshot) == []


def test_the_snapshot_knows_before_the_queue_wakes_anyone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def happen(happening: ClusterEvent, now: int) -> int:
        seen.append(len(world.snapshot))
        return 0

    monkeypatch.setattr(world.queue, "on_event", happen)
    world.feed.synced = False
    world.feed.hear(None, node("n0"))
    world.feed.synced = True
    world.feed.hear(None, node("n1"))
    assert seen == [2], "and before everything is listed there is nobody to wake"


def refuse(world: World, *rules: Rule) -> str:
    """Take the next pod and say that these rules are in its way."""
    attempt = world.queue.pop(world.now())
    assert attempt is not None
    world.queue.mark_unschedulable(attempt.key, frozenset(rules), world.now())
    return attempt.key


@pytest.mark.parametrize(
    ("rule", "tell"),
    [
        (Rule.RESOURCES, lambda world: world.feed.hear(None, node("n2"))),
        (Rule.RESOURCES, lambda world: world.feed.hear(node("n1"), node("n1", cpu="64"))),
        (Rule.RESOURCES, lambda world: world.feed.hear_pod(waiting("x", node="n1"), None)),
        (Rule.DEVICES, lambda world: world.feed.hear_pod(waiting("x", node="n1"), None)),
        (Rule.TAINTS, lambda world: world.feed.hear(node("n1", taints=["a:NoSchedule"]), node("n1"))),
    ],
)
def test_what_helps_wakes(world: World, rule: Rule, tell: Callable[[World], None]) -> None:
    world.feed.hear(None, node("n1"))
    world.feed.hear_pod(None, waiting("a"))
    key = refuse(world, rule)
    world.feed.hear(node("n1"), replace(node("n1"), kind="Node"))
    assert world.queue.state_of(key) is QueueState.UNSCHEDULABLE, "a change of nothing wakes nobody"
    tell(world)
    assert world.queue.state_of(key) is not QueueState.UNSCHEDULABLE


def test_old_news_of_a_pod_that_we_have_bound_does_not_bring_it_back(world: World) -> None:
    world.feed.hear(None, node("n1"))
    world.feed.hear_pod(None, waiting("a"))
    attempt = world.queue.pop(world.now())
    assert attempt is not None
    outcome = decide(world, attempt.pod)
    assert isinstance(outcome, Placement)
    world.snapshot.assume(outcome)
    world.feed.hear_pod(waiting("a"), waiting("a", status={"phase": "Pending"}))
    world.snapshot.confirm(attempt.key)
    world.queue.done(attempt.key)
    # the watch is late: the pod as it was before it was bound
    world.feed.hear_pod(waiting("a"), waiting("a", status={"phase": "Pending", "message": "x"}))
    assert len(world.queue) == 0
    world.feed.hear_pod(waiting("a"), waiting("a", node="n1"))
    assert not world.snapshot.assumed
    assert verify(world.snapshot) == []


def test_who_joins_the_queue_is_counted(world: World) -> None:
    world.feed.hear(None, node("n1"))
    world.feed.hear_pod(None, waiting("a"))
    world.feed.hear_pod(None, waiting("g", scheduling_gates=[{"name": "g"}]))
    refuse(world, Rule.RESOURCES)
    world.feed.hear(None, node("n2"))
    assert world.metrics.incoming.values == {
        ("active", "PodAdd"): 1,
        ("gated", "PodAdd"): 1,
        ("backoff", "NodeAdded"): 1,
    }


def test_claims_are_told_to_those_who_wait_for_them(world: World) -> None:
    heard: list[str] = []
    world.feed.claim_changed = lambda each: heard.append(each.metadata.name)
    world.feed.hear(None, claim("c", exactly("r")))
    world.feed.hear(claim("c", exactly("r")), None)
    assert heard == ["c"]


def test_a_promise_counts_until_the_pod_is_gone(world: World) -> None:
    promised = waiting("a", status={"nominatedNodeName": "n1"})
    world.feed.hear_pod(None, promised)
    assert len(world.nominations) == 1
    world.feed.hear_pod(promised, None)
    assert len(world.nominations) == 0


def test_gated_pods_are_kept_aside(world: World) -> None:
    gated = waiting("a", scheduling_gates=[{"name": "g"}])
    world.feed.hear_pod(None, gated)
    assert world.queue.pop(world.now()) is None
    world.feed.hear_pod(gated, waiting("a"))
    assert world.queue.pop(world.now()) is not None


def test_everything_is_read_from_an_api() -> None:
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
        worlds = []

        async def read() -> None:
            world = World.make(SchedulerSettings().named(["mine"]))
            assert world.feed.missing() == "not listed yet: what the API serves"
            async with cluster.connect() as client:
                await world.feed.read(client)
            worlds.append(world)

        asyncio.run(read())
        (world,) = worlds
    assert len(world.snapshot) == 2
    assert [each.metadata.name for each in world.queue] == ["p"]
    assert world.feed.missing() == ""
    assert not any(kind.optional for kind in FOLLOWED if kind.endpoint in (NODES, PODS))


def test_profiles_go_by_name() -> None:
    settings = SchedulerSettings()
    other = dataclasses.replace(settings.profiles[0], name="other", explore=9)
    world = World.make(dataclasses.replace(settings, profiles=(*settings.profiles, other)))
    assert world.profile(waiting("a", "other")).explore == 9
    assert world.profile(waiting("a", "plimsoll")).name == "plimsoll"


def test_a_server_that_does_not_answer_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it serves is asked again, not guessed: it may have other versions than the usual."""
    monkeypatch.setattr(feed_module, "_AGAIN", 0.0)
    real = discover_served
    asked: list[str] = []

    async def discover(client: Client) -> list[Served]:
        asked.append("")
        if len(asked) < 3:
            raise UnreachableError("Connection refused", sent=False)
        return await real(client)

    monkeypatch.setattr(feed_module, "discover", discover)

    async def story(cluster: LocalCluster) -> None:
        world = World.make(SchedulerSettings())
        async with cluster.connect() as client:
            running = asyncio.create_task(world.feed.run(client))
            async with asyncio.timeout(20):
                while not world.feed.synced:
                    assert not running.done()
                    await asyncio.sleep(0.01)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with LocalCluster(controllers=False) as cluster:
        asyncio.run(story(cluster))
    assert len(asked) == 3
