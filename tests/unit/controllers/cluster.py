"""Cluster in memory: the real API, the controllers, and a manual clock.

Nothing here runs by itself: `settle` lets the caches catch up and the controllers work until nothing is left
to do, and only `advance` makes time pass. So a test sees what comes of a story, and never waits.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, TypeVar

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.users import MASTERS, User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.in_process import InProcessTransport, connect_in_process
from plimsoll.apiserver.storage import Store
from plimsoll.client import Client
from plimsoll.client.discovery import Served
from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    ENDPOINT_SLICES,
    EVENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Endpoint,
)
from plimsoll.client.informer import Informer
from plimsoll.controllers import ControllerManager, ControllerSettings
from plimsoll.controllers.controller import process_key
from plimsoll.errors import ApiError
from tests.waiting import until

T = TypeVar("T")
Tree = dict[str, Any]
ADMIN = User("admin", groups=(MASTERS,))
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
ALL = frozenset({"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"})
#: Enough kinds for the scenarios; watching all of them would only be slower.
KINDS: tuple[Endpoint, ...] = (
    *(CONFIG_MAPS, SECRETS, NAMESPACES, NODES, PODS, SERVICES, PERSISTENT_VOLUME_CLAIMS, RESOURCE_QUOTAS),
    *(RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_SLICES, DEVICE_CLASSES, DEVICE_TAINT_RULES),
    *(LEASES, POD_GROUPS, RESOURCE_POOL_STATUS_REQUESTS, SERVICE_ACCOUNTS),
    *(REPLICATION_CONTROLLERS, REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, CONTROLLER_REVISIONS),
    *(JOBS, CRON_JOBS, ENDPOINT_SLICES, POD_DISRUPTION_BUDGETS, PERSISTENT_VOLUMES, STORAGE_CLASSES),
)


class ManualClock:
    """Clock that is advanced by the test."""

    def __init__(self) -> None:
        self._now = START
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self.now()

    async def sleep(self, seconds: float) -> None:
        sleeper = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, sleeper))
        await sleeper

    def advance(self, seconds: float) -> None:
        self._now += seconds
        for when, sleeper in list(self._sleepers):
            if when <= self._now:
                self._sleepers.remove((when, sleeper))
                if not sleeper.done():
                    sleeper.set_result(None)


class Crash(BaseException):
    """Crash of the controller process."""


class CrashingTransport(InProcessTransport):
    """Transport that crashes just before or after a chosen write."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.writes = 0
        self.fatal: tuple[int, bool] | None = None
        #: What to refuse the next writes with.
        self.refusals: list[ApiError] = []

    async def send(self, request: Any) -> Any:
        if request.method == "GET":
            return await super().send(request)
        self.writes += 1
        if self.refusals:
            raise self.refusals.pop(0)
        if self.fatal == (self.writes, False):
            raise Crash
        reply = await super().send(request)
        if self.fatal == (self.writes, True):
            raise Crash
        return reply


class Cluster:
    """API, controllers and clock; see the module."""

    def __init__(
        self, *, only: Iterable[str] | None = None, settings: ControllerSettings | None = None
    ) -> None:
        self.clock = ManualClock()
        self.store = Store.open(None)
        numbers = itertools.count(1)
        context = ApiContext.for_store(
            self.store,
            now=lambda: datetime.fromtimestamp(self.clock.now(), UTC),
            new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
        )
        self.api = Api(context)
        self.client = connect_in_process(self.api.handle, ADMIN)
        self.transport = CrashingTransport(self.api.handle, ADMIN)
        self._only = None if only is None else list(only)
        self._settings = settings
        self.controllers: ControllerManager | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- controllers

    async def start(self) -> None:
        """Start the controllers."""
        client = Client(self.transport, attempts=1, sleep=self.clock.sleep)
        self.controllers = ControllerManager(
            client,
            clock=self.clock,
            only=self._only,
            settings=self._settings,
            served=[Served(endpoint, ALL) for endpoint in KINDS],
        )
        await self.controllers.start()
        informers = self.controllers.informers.all()
        self._tasks = [asyncio.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.synced(10)

    async def stop(self) -> None:
        """Stop them, wherever they are."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self.controllers = [], None

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def catch_up(self) -> None:
        """Bring the caches up to date with the store."""
        assert self.controllers is not None
        for informer in self.controllers.informers.all():
            await until(partial(self._is_current, informer), pause=0.0002)

    def _is_current(self, informer: Informer[Any]) -> bool:
        endpoint = informer.endpoint
        key = f"{endpoint.plural}.{endpoint.group}" if endpoint.group else endpoint.plural
        have = {
            (item.metadata.namespace, item.metadata.name): item.metadata.resource_version
            for item in informer.items()
        }
        return have == {
            (stored.key.namespace, stored.key.name): str(stored.revision)
            for stored in self.store.list(key).items
        }

    async def step(self, dice: Random | None = None) -> bool:
        """Work on one key; return whether there was one."""
        assert self.controllers is not None
        await self.catch_up()
        ready = []
        for controller in self.controllers.controllers:
            controller.queue.wake()
            if len(controller.queue):
                ready.append(controller)
        if not ready:
            return False
        controller = dice.choice(ready) if dice else ready[0]
        await process_key(controller, controller.queue.take())
        return True

    async def settle(self, dice: Random | None = None, *, max_wait: float = 1.0) -> None:
        """Work until only keys are left that wait longer than `max_wait` seconds."""
        for _ in range(2000):
            if await self.step(dice):
                continue
            assert self.controllers is not None
            due = [controller.queue.next_due for controller in self.controllers.controllers]
            soon = min((when for when in due if when is not None), default=None)
            if soon is None or soon - self.clock.now() > max_wait:
                return
            self.clock.advance(max(0.0, soon - self.clock.now()))
        raise AssertionError("the controllers do not come to rest")

    async def advance(self, seconds: float) -> None:
        """Advance the clock while the controllers work."""
        until = self.clock.now() + seconds
        await self.settle(max_wait=0)
        while self.clock.now() < until:
            assert self.controllers is not None
            due = [controller.queue.next_due for controller in self.controllers.controllers]
            soon = min((when for when in due if when is not None), default=until)
            self.clock.advance(max(0.001, min(soon, until) - self.clock.now()))
            await self.settle(max_wait=0)

    # -- actions there is

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "n") -> Tree | None:
        try:
            return await self.client.get(endpoint, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def names(self, endpoint: Endpoint, namespace: str = "n") -> list[str]:
        return sorted(tree["metadata"]["name"] for tree in await self.trees(endpoint, namespace))

    async def trees(self, endpoint: Endpoint, namespace: str | None = "n") -> list[Tree]:
        listing = await self.client.list(endpoint, namespace if endpoint.namespaced else None)
        return [decode_tree(raw) for raw in listing.items]

    async def events(self, namespace: str = "n") -> list[tuple[str, str, str]]:
        """Return type, reason and message of the events of a namespace."""
        return [
            (tree["type"], tree["reason"], tree["message"]) for tree in await self.trees(EVENTS, namespace)
        ]

    # -- actions others do

    async def finish(self, pod: str, phase: str = "Succeeded") -> None:
        await self.client.patch(PODS, pod, {"status": {"phase": phase}}, "n", subresource="status")

    async def allocate(self, claim: str, *pods: str, device: str = "x", **result: Any) -> None:
        """Protect, allocate and reserve a claim, as a scheduler does."""
        finalizers = ["resource.kubernetes.io/delete-protection"]
        await self.client.patch(RESOURCE_CLAIMS, claim, {"metadata": {"finalizers": finalizers}}, "n")
        reserved = []
        for name in pods:
            tree = await self.client.get(PODS, name, "n")
            reserved.append({"resource": "pods", "name": name, "uid": tree["metadata"]["uid"]})
        results = [{"request": "r", "driver": "d.example.com", "pool": "p", "device": device, **result}]
        status: Tree = {"allocation": {"devices": {"results": results}}}
        if reserved:
            status["reservedFor"] = reserved
        await self.client.patch(RESOURCE_CLAIMS, claim, {"status": status}, "n", subresource="status")

    async def bind(self, pod: str, node: str = "w") -> None:
        target = {"kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": target}
        await self.client.post(PODS, pod, "binding", binding, "n")


@asynccontextmanager
async def running_cluster(**options: Any) -> AsyncIterator[Cluster]:
    made = Cluster(**options)
    try:
        for name in ("n", "default", "kube-node-lease"):
            await made.client.create(NAMESPACES, {"metadata": {"name": name}})
        await made.start()
        yield made
    finally:
        await made.stop()
        await made.store.close()


def run_scenario(scenario: Callable[[Cluster], Awaitable[T]], **options: Any) -> T:
    """Run a scenario in a fresh cluster with the namespace `n`."""

    async def run() -> T:
        async with running_cluster(**options) as made:
            return await scenario(made)

    return asyncio.run(run())
