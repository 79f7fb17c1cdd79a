"""Query worker: one state for each query while the cluster changes, and cached answers."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.errors import ApiError, InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.dashboard import lists, nodes
from plimsoll.tools.dashboard.changes import ChangeScope, ObjectChange, apply_change
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.lists import ListQuery
from plimsoll.tools.dashboard.metrics import show_metrics
from plimsoll.tools.dashboard.query_worker import MOST_WAITING, QueryWorker
from plimsoll.tools.dashboard.service import DashboardService
from plimsoll.tools.dashboard.whatif_request import Deadline, read_plan
from plimsoll.tools.top import device_rows, pool_rows
from tests.dumps import big_cluster, objects_of
from tests.sizes import examples
from tests.unit.tools.dashboard.pages import WANTED, small
from tests.waiting import DEADLINE

OBJECTS: list[Any] = list(objects_of(big_cluster(3, pods_per_node=4, devices=2, pending=3)))


# -- changes


@st.composite
def changes(draw: st.DrawFn) -> list[ObjectChange]:
    """Random additions, changes and removals."""
    made = []
    for _ in range(draw(st.integers(1, 8))):
        item = draw(st.sampled_from(OBJECTS))
        if isinstance(item, Pod) and draw(st.booleans()):  # nothing moves a pod: it is another of this name
            node = draw(st.sampled_from(["", "node-0000", "node-0001", "nowhere"]))
            meta = replace(item.metadata, uid=f"{item.metadata.name}-{node}")
            item = replace(item, metadata=meta, spec=replace(item.spec, node_name=node))
        elif isinstance(item, Node) and draw(st.booleans()):
            allocatable = {**item.status.allocatable}
            allocatable.pop(draw(st.sampled_from(["cpu", "memory"])), None)
            item = replace(item, status=replace(item.status, allocatable=allocatable))
        elif isinstance(item, ResourceClaim) and draw(st.booleans()):
            item = replace(item, status=replace(item.status, allocation=None, reserved_for=()))
        elif isinstance(item, ResourceSlice) and draw(st.booleans()):
            item = replace(item, spec=replace(item.spec, devices=()))
        made.append(ObjectChange(item, gone=draw(st.booleans())))
    return made


@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(changes(), min_size=1, max_size=4))
def test_cached_answers_equal_new_ones(rounds: list[list[ObjectChange]]) -> None:
    cluster_state = ClusterState(ClusterObjects(OBJECTS))
    kept = CachedAnswers()
    revision = 1
    for pile in rounds:
        kept.answers(cluster_state)
        touched = ChangeScope()
        for change in pile:
            revision += 1
            meta = replace(change.thing.metadata, resource_version=str(revision))
            apply_change(
                cluster_state, ObjectChange(replace(change.thing, metadata=meta), change.gone), touched
            )
        if touched:
            kept.invalidate(touched)
    first_answers = kept.answers(cluster_state)
    assert first_answers == CachedAnswers().answers(cluster_state), "computed again"
    assert first_answers == CachedAnswers().answers(ClusterState(ClusterObjects(cluster_state.objects))), (
        "read anew"
    )
    assert first_answers["pools"] == [row.as_json() for row in pool_rows(cluster_state)]
    assert first_answers["devices"] == [row.as_json() for row in device_rows(cluster_state)]


class CachedAnswers:
    """All caches of the worker."""

    def __init__(self) -> None:
        self.node_rows, self.devices, self.namespaces = (
            nodes.NodeRowCache(),
            DeviceCache(),
            lists.NamespaceCache(),
        )

    def invalidate(self, touched: ChangeScope) -> None:
        for each in (self.node_rows, self.devices, self.namespaces):
            each.invalidate(touched)

    def answers(self, cluster_state: ClusterState) -> dict[str, Any]:
        return {
            "nodes": nodes.all_nodes(cluster_state, self.node_rows, self.devices),
            "overview": nodes.overview(cluster_state, self.node_rows, self.devices),
            "devices": lists.list_devices(cluster_state, ListQuery(), self.devices)["items"],
            "pools": lists.list_pools(cluster_state, ListQuery(), self.devices)["items"],
            "namespaces": lists.list_namespaces(cluster_state, ListQuery(), self.namespaces),
            "metrics": show_metrics(cluster_state, self.node_rows, self.devices),
        }


# -- desks


async def test_changes_wait_for_the_running_query() -> None:
    worker = QueryWorker(ClusterState(ClusterObjects(OBJECTS)))
    go_on, began = threading.Event(), threading.Event()

    def slow() -> dict[str, Any]:
        before = len(worker.cluster_state.objects)
        began.set()
        assert go_on.wait(10)
        return {"same": before == len(worker.cluster_state.objects)}

    asked = asyncio.create_task(worker.ask("slow", slow))
    assert await asyncio.to_thread(began.wait, 10)
    worker.on_change(ObjectChange(OBJECTS[-1], gone=True))
    entering = asyncio.create_task(worker.catch_up(lambda touched: 2))
    await asyncio.sleep(0.01)
    assert not entering.done()
    go_on.set()
    answer = await asked
    assert codec.decode_tree(answer.body) == {"revision": 1, "same": True}
    await entering
    assert worker.revision == 2


async def test_the_thread_of_a_cancelled_query_ends_before_the_next_query() -> None:
    worker = QueryWorker(ClusterState(ClusterObjects()))
    go_on, began, running = threading.Event(), threading.Event(), [0]

    def slow() -> dict[str, Any]:
        running[0] += 1
        began.set()
        assert go_on.wait(10)
        running[0] -= 1
        return {}

    cancelled = asyncio.create_task(worker.ask("slow", slow))
    assert await asyncio.to_thread(began.wait, 10)
    cancelled.cancel()
    following = asyncio.create_task(worker.ask("next", lambda: {"running": running[0]}))
    await asyncio.sleep(0.01)
    assert not following.done()
    go_on.set()
    assert codec.decode_tree((await following).body)["running"] == 0
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_cached_answers_do_not_wait() -> None:
    worker = QueryWorker(ClusterState(ClusterObjects()))
    first = await worker.ask("a", lambda: {"x": 1})
    go_on = threading.Event()
    slow = asyncio.create_task(worker.ask("b", lambda: {"y": go_on.wait(10)}))
    await asyncio.sleep(0)
    async with asyncio.timeout(DEADLINE):
        assert await worker.ask("a", lambda: {"x": 2}) is first
    go_on.set()
    await slow
    await worker.catch_up(lambda _: 2)
    assert (await worker.ask("a", lambda: {"x": 2})).revision == 2


async def test_equal_queries_are_computed_once() -> None:
    worker = QueryWorker(ClusterState(ClusterObjects()))
    asked: list[int] = []

    def question() -> dict[str, Any]:
        asked.append(1)
        return {}

    answers = await asyncio.gather(*(worker.ask("a", question) for _ in range(10)))
    assert len(asked) == 1
    assert all(answer is answers[0] for answer in answers)


async def test_too_many_queries_get_retry_after() -> None:
    worker = QueryWorker(ClusterState(ClusterObjects()))
    go_on = threading.Event()
    waiting = [
        asyncio.create_task(worker.ask(number, lambda: {"x": go_on.wait(10)}))
        for number in range(MOST_WAITING)
    ]
    await asyncio.sleep(0.01)
    with pytest.raises(ApiError, match="too many concurrent queries") as refused:
        await worker.ask("one more", dict)
    assert refused.value.code == 503
    go_on.set()
    await asyncio.gather(*waiting)


async def test_a_failing_query_does_not_block_others() -> None:
    worker = QueryWorker(ClusterState(ClusterObjects()))

    def broken() -> None:
        raise InputError("no")

    for _ in range(MOST_WAITING + 1):
        with pytest.raises(InputError):
            await worker.ask("a", broken)
    assert (await worker.ask("a", dict)).body == b'{"revision":1}'


# -- long queries


async def test_a_long_query_uses_current_state_after_waiting() -> None:
    """A change announced to a page before its query is part of the answer."""
    service = DashboardService(ClusterState(ClusterObjects(OBJECTS)))
    key = ("work", "waiting-0000")
    first = codec.decode_tree((await service.explain_pod(*key)).body)
    assert first["verdict"] == "pending"
    began, go_on = threading.Event(), threading.Event()

    def slow(worker: QueryWorker) -> dict[str, Any]:
        began.set()
        return {"x": go_on.wait(10)}

    running = asyncio.create_task(service.run_long("slow", slow))
    assert await asyncio.to_thread(began.wait, 10)
    pod = next(item for item in OBJECTS if isinstance(item, Pod) and item.metadata.name == key[1])
    meta = replace(pod.metadata, resource_version="2")
    service.on_change(
        ObjectChange(replace(pod, metadata=meta, spec=replace(pod.spec, node_name="node-0001")))
    )
    await service.catch_up()  # pages are notified now
    assert service.revision == 2
    asked = asyncio.create_task(service.explain_pod(*key))
    await asyncio.sleep(0)
    go_on.set()
    await running
    answer = await asked
    assert answer.revision == 2
    assert codec.decode_tree(answer.body)["verdict"] == "placed"


async def test_waiting_for_another_query_is_not_part_of_its_time() -> None:
    """A what-if behind a long query is answered: its own time begins with its turn."""
    service = DashboardService(small(), query_timeout=DEADLINE)
    began, go_on = threading.Event(), threading.Event()

    def slow(worker: QueryWorker) -> dict[str, Any]:
        began.set()
        return {"x": go_on.wait(DEADLINE)}

    running = asyncio.create_task(service.run_long("slow", slow))
    assert await asyncio.to_thread(began.wait, DEADLINE)
    waiting = asyncio.create_task(service.whatif({}))
    await asyncio.sleep(0)
    go_on.set()
    assert (await running).revision == 1
    assert codec.decode_tree((await waiting).body)["groups"] is not None


async def test_a_query_that_never_gets_its_turn_is_dropped() -> None:
    service = DashboardService(small(), query_timeout=0.05)
    began, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def slow(worker: QueryWorker) -> dict[str, Any]:
        began.set()
        return {"x": go_on.wait(DEADLINE)}

    def late(worker: QueryWorker) -> dict[str, Any]:
        ran.append("late")
        return {}

    running = asyncio.create_task(service.run_long("slow", slow))
    assert await asyncio.to_thread(began.wait, DEADLINE)
    with pytest.raises(ApiError, match=r"0.05 s of waiting for other queries: retry later") as refused:
        await service.run_long("late", late)
    assert refused.value.code == 503
    go_on.set()
    with pytest.raises(ApiError, match="reduce the request"):
        await running
    worker = service.slow_worker
    assert worker is not None
    async with asyncio.timeout(DEADLINE):
        await worker.ask("last", dict)  # after all that were waiting
    assert ran == []


async def test_a_following_worker_drops_outdated_answers() -> None:
    now = [1]
    worker = QueryWorker(ClusterState(ClusterObjects(OBJECTS)), follows=lambda: now[0])
    first = await worker.ask("a", lambda: {"x": 1})
    assert await worker.ask("a", lambda: {"x": 2}) is first
    worker.on_change(ObjectChange(OBJECTS[-1], gone=True))
    # Delivered, but not yet counted: the answer is new, and so is the next one once it is counted.
    assert (await worker.ask("a", lambda: {"x": 3})).body == b'{"revision":1,"x":3}'
    now[0] = 2
    assert (await worker.ask("a", lambda: {"x": 4})).body == b'{"revision":2,"x":4}'


async def test_long_waits_time_out_and_short_queries_continue() -> None:
    service = DashboardService(small(), query_timeout=0.05)
    go_on = threading.Event()
    with pytest.raises(ApiError, match=r"timed out after 0.05 s") as refused:
        await service.run_long("slow", lambda _: {"x": go_on.wait(10)})
    assert refused.value.code == 503
    async with asyncio.timeout(DEADLINE):
        assert (await service.nodes()).revision == 1
    go_on.set()


def test_a_whatif_query_ends_at_its_deadline() -> None:
    tick = Deadline(0.0)
    with pytest.raises(ApiError, match="reduce the request"):
        tick("scheduling pods", 100, 0)
    Deadline(60.0)("scheduling pods", 100, 0)


@pytest.mark.parametrize("again", range(2))
async def test_whatif_leaves_the_cluster_state_unchanged(again: int) -> None:
    service = DashboardService(ClusterState(ClusterObjects(OBJECTS)))
    before = (await service.nodes()).body
    plan = {"add": WANTED, "remove": ["Node/node-0000"], "replicas": 3, "as": ["kube-1.36"]}
    first = (await service.whatif(plan)).body
    assert (await service.whatif(plan)).body == first
    assert service.slow_worker is not None
    fresh = CachedAnswers().answers(service.slow_worker.cluster_state)["nodes"]
    assert codec.encode({"revision": 1, **fresh}) == before


def test_plans() -> None:
    plan = read_plan({"add": "x", "remove": [" Pod/a/b ", ""], "taints": ["n k=v:NoSchedule"], "as": None})
    assert (plan.add, plan.remove, plan.taints) == (("x\n",), ("Pod/a/b",), (("n", "k=v:NoSchedule"),))
    assert read_plan({}) == read_plan({"add": "  ", "remove": [], "preempt": True})
