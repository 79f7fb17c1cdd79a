"""Observer of every change of pods and claims, directly at the server."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from plimsoll.client import Client
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, Endpoint
from plimsoll.errors import ApiError
from tests.chaos.scheduler_faults import history
from tests.chaos.scheduler_faults.history import Change, Finding, replay
from tests.chaos.scheduler_faults.invariants import Violation, check_devices
from tests.chaos.scheduler_faults.objects import ClusterObjects, Tree, key_of
from tests.waiting import until

_KINDS = {history.PODS: PODS, history.CLAIMS: RESOURCE_CLAIMS}


async def read_objects(client: Client) -> ClusterObjects:
    """List all objects that the invariants read; the lists are not of one revision."""

    async def items(endpoint: Endpoint) -> list[Tree]:
        return [json.loads(raw) for raw in (await client.list(endpoint)).items]

    return ClusterObjects(
        await items(NODES),
        await items(PODS),
        await items(RESOURCE_CLAIMS),
        await items(RESOURCE_SLICES),
        await items(DEVICE_CLASSES),
    )


@dataclass
class Observer:
    """Watcher of pods and claims; nodes, slices and classes are assumed constant."""

    client: Client
    constant: ClusterObjects = field(default_factory=ClusterObjects)
    changes: list[Change] = field(default_factory=list)
    #: What claims showed as it happened.
    seen: dict[Violation, int] = field(default_factory=dict)
    #: How often a watch could not be resumed where it was, so that changes may have been missed.
    gaps: int = 0
    _state: dict[str, dict[tuple[str, str], Tree]] = field(
        default_factory=lambda: {kind: {} for kind in _KINDS}
    )
    _since: dict[str, str] = field(default_factory=dict)

    async def begin(self) -> None:
        """List the objects; changes are watched from here."""
        self.constant = replace(await read_objects(self.client), pods=[], claims=[])
        for kind in _KINDS:
            await self._list(kind)

    async def run(self) -> None:
        """Watch, across restarts of the server."""
        async with asyncio.TaskGroup() as group:
            for kind in _KINDS:
                group.create_task(self._follow(kind))

    async def catch_up(self, seconds: float) -> None:
        """Wait until all objects of the server are known; nothing may be written meanwhile."""
        await until(self._is_current, seconds=seconds)

    async def _is_current(self) -> bool:
        for kind, endpoint in _KINDS.items():
            trees = [json.loads(raw) for raw in (await self.client.list(endpoint)).items]
            if _versions(trees) != _versions(list(self._state[kind].values())):
                return False
        return True

    def findings(self) -> list[Finding]:
        """Return the violations in the history so far."""
        return replay(self.changes, self.constant)

    async def _list(self, kind: str) -> None:
        listing = await self.client.list(_KINDS[kind])
        trees = {key_of(tree): tree for tree in map(json.loads, listing.items)}
        for key, tree in list(self._state[kind].items()):
            if key not in trees:
                gone = {**tree, "metadata": {**tree["metadata"], "resourceVersion": listing.revision}}
                self._note(kind, gone, deleted=True)
        for tree in trees.values():
            self._note(kind, tree, deleted=False)
        self._since[kind] = listing.revision

    async def _follow(self, kind: str) -> None:
        while True:
            try:
                watch = self.client.watch(_KINDS[kind], since=self._since[kind])
                async with aclosing(watch) as events:
                    async for event in events:
                        if event.type != "BOOKMARK":
                            self._note(kind, json.loads(event.raw), deleted=event.type == "DELETED")
                        self._since[kind] = event.revision
            except ApiError as error:
                if error.code == 410:
                    self.gaps += 1
                    await self._list(kind)
            await asyncio.sleep(0.05)

    def _note(self, kind: str, tree: Tree, *, deleted: bool) -> None:
        revision, objects = int(tree["metadata"]["resourceVersion"]), self._state[kind]
        self.changes.append(Change(revision, kind, tree, deleted))
        if deleted:
            objects.pop(key_of(tree), None)
        else:
            objects[key_of(tree)] = tree
        if kind == history.CLAIMS:
            for violation in check_devices(list(objects.values()), self.constant.slices):
                self.seen.setdefault(violation, revision)


def _versions(trees: list[Tree]) -> dict[tuple[str, str], str]:
    return {key_of(tree): tree["metadata"]["resourceVersion"] for tree in trees}
