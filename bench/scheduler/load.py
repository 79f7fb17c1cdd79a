"""Load over HTTP: nodes and devices first, then pods at full speed, with the time each was bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing

import msgspec

from bench.scheduler.workloads import NAMESPACE, Tree, Workload
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
from plimsoll.errors import ApiError

WIDTH = 40  #: requests in flight
_STALL = 60.0  #: seconds without a newly bound pod after which it is given up


class _Meta(msgspec.Struct):
    name: str


class _Spec(msgspec.Struct):
    node: str = msgspec.field(name="nodeName", default="")


class _PodView(msgspec.Struct):
    metadata: _Meta
    spec: _Spec


_decode = msgspec.json.Decoder(_PodView).decode


class Load:
    """Workload on a server, and the pods created there."""

    def __init__(self, client: Client, workload: Workload) -> None:
        self.client = client
        self.workload = workload
        self.bound: dict[str, float] = {}
        self.nodes: dict[str, str] = {}
        self.created: dict[str, float] = {}
        self._news = asyncio.Event()

    async def set_up(self) -> None:
        client, workload = self.client, self.workload
        await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        for tree in workload.classes():
            await client.create(DEVICE_CLASSES, tree)
        if workload.claiming:
            await client.create(RESOURCE_CLAIM_TEMPLATES, workload.template(), NAMESPACE)

        async def make(number: int) -> None:
            for tree in workload.slices(number):
                await client.create(RESOURCE_SLICES, tree)
            await client.create(NODES, workload.node(number))

        await side_by_side(range(workload.nodes), make)

    async def follow(self) -> None:
        """Record when each pod is bound, until cancelled."""
        while True:
            listing = await self.client.list(PODS, NAMESPACE)
            self._note(listing.items)
            events = self.client.watch(
                PODS, NAMESPACE, since=listing.revision, fields="spec.nodeName!=", bookmarks=True
            )
            try:
                async with aclosing(events):
                    async for event in events:
                        if event.type in ("ADDED", "MODIFIED"):
                            self._note([event.raw])
            except ApiError:
                continue  # the watch ended: list again

    def _note(self, items: Iterable[bytes]) -> None:
        now = time.perf_counter()
        for raw in items:
            pod = _decode(raw)
            if pod.spec.node and pod.metadata.name not in self.bound:
                self.bound[pod.metadata.name] = now
                self.nodes[pod.metadata.name] = pod.spec.node
                self._news.set()

    async def create(self, trees: Iterable[Tree]) -> None:
        async def make(tree: Tree) -> None:
            tree["metadata"].pop("uid", None)
            await self.client.create(PODS, tree, NAMESPACE)
            self.created[tree["metadata"]["name"]] = time.perf_counter()

        await side_by_side(trees, make)

    async def replace(self, trees: Iterable[Tree], gone: Iterable[str]) -> None:
        """Create pods, and delete one of the others (as if it had ended) before each."""

        async def make(pair: tuple[Tree, str]) -> None:
            tree, name = pair
            await self.client.delete(PODS, name, NAMESPACE, grace=0)
            await self.client.create(PODS, tree, NAMESPACE)
            self.created[tree["metadata"]["name"]] = time.perf_counter()

        for tree in (pairs := list(zip(trees, gone, strict=True))):
            tree[0]["metadata"].pop("uid", None)
        await side_by_side(pairs, make)

    async def all_bound(self, names: Iterable[str], alive: Callable[[], bool]) -> None:
        """Wait until these pods are bound; stop when `alive` reports that the scheduler has ended."""
        missing = {name for name in names if name not in self.bound}
        last_event = time.perf_counter()
        while missing:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), 1.0)
                last_event = time.perf_counter()
            except TimeoutError:
                assert alive(), "the scheduler has ended"
                silent = time.perf_counter() - last_event
                assert silent < _STALL, f"{len(missing)} pods are not bound after {silent:.0f} s"
            missing = {name for name in missing if name not in self.bound}


async def side_by_side(items: Iterable[object], work: Callable[..., Awaitable[None]]) -> None:
    """Run work on each item, `WIDTH` at a time."""
    waiting = iter(items)

    async def some() -> None:
        for item in waiting:
            await work(item)

    await asyncio.gather(*(some() for _ in range(WIDTH)))
