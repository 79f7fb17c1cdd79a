"""The keeper creates placeholders that are missing when they can be created, and says why if they cannot."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import POD_KEY
from plimsoll.errors import ApiError
from plimsoll.scheduler.process.event_recorder import SchedulerEventRecorder
from plimsoll.scheduler.process.metrics import Metrics
from plimsoll.scheduler.process.placeholder_keeper import PlaceholderKeeper
from plimsoll.scheduler.process.placeholder_writer import PlaceholderApiWriter
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.manifests import pod
from tests.waiting import until


class Kubelet:
    """Writer of placeholders and recorder of events; pods are admitted at once."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.events: list[str] = []
        self.errors: list[ApiError] = []

    def is_writing(self, name: str) -> bool:
        return False

    async def list_all(self) -> Sequence[Pod]:
        return ()

    async def create(self, placeholder: Pod) -> Pod:
        if self.errors:
            raise self.errors.pop()
        self.created.append(placeholder.spec.node_name)
        return placeholder

    async def wait_for_admission(self, placeholder: Pod, timeout_ms: int) -> Pod:
        return replace(placeholder, status=replace(placeholder.status, start_time="2026-11-19T00:00:00Z"))

    def record(self, pod: Pod, reason: str, *words: Any, **options: Any) -> None:
        self.events.append(reason)


def make_node(*, cordoned: bool = False) -> Node:
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    spec = {"unschedulable": cordoned}
    return codec.convert({"metadata": {"name": "n1"}, "spec": spec, "status": {"allocatable": amounts}}, Node)


@asynccontextmanager
async def running(kubelet: Kubelet, node: Node) -> AsyncIterator[tuple[PlaceholderKeeper, Snapshot]]:
    """Run a keeper for one node with one pod, whose claim takes two CPUs."""
    tree = pod("p", node="n1", resourceClaims=[{"name": "c", "resourceClaimName": "c"}])
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "c"}]
    charges = [{"resourceClaimName": "c", "containers": ["main"], "resources": {"cpu": "2"}}]
    tree["metadata"] |= {"namespace": "default", "uid": "1", "annotations": {POD_KEY: json.dumps(charges)}}
    snapshot = Snapshot()
    snapshot.set(node)
    snapshot.set(codec.convert(tree, Pod))
    snapshot.set_placeholders(True)
    writer, recorder = cast(PlaceholderApiWriter, kubelet), cast(SchedulerEventRecorder, kubelet)
    metrics = Metrics(snapshot, dict)
    keeper = PlaceholderKeeper(snapshot, writer, recorder, metrics, lambda pod: True, error_seconds=0.01)
    keeper.creates = True
    task = asyncio.create_task(keeper.run())
    try:
        yield keeper, snapshot
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_node_that_is_uncordoned_is_compared_at_once() -> None:
    kubelet, node = Kubelet(), make_node(cordoned=True)
    async with running(kubelet, node) as (keeper, snapshot):
        await asyncio.sleep(0.05)
        assert kubelet.created == []
        snapshot.set(make_node())
        keeper.on_node_changed(node, make_node())
        await until(lambda: kubelet.created == ["n1"])


async def test_an_error_of_the_server_is_no_lack_of_room() -> None:
    kubelet = Kubelet()
    kubelet.errors = [ApiError(503, "ServiceUnavailable", "away"), ApiError(500, "InternalError", "away")]
    async with running(kubelet, make_node()):
        await until(lambda: kubelet.created == ["n1"])
    assert kubelet.events == []
