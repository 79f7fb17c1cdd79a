"""Writers and watches of a server that is killed repeatedly, and the guarantees they rely on.

A writer knows what was acknowledged: after every lost answer it looks, and finds either that or what it had
asked for. A follower resumes its watch where it was: what it sees must leave nothing out, and nothing twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS
from plimsoll.errors import ApiError, UnreachableError

Tree = dict[str, Any]
NS = "default"
LABEL = "chaos"


class State(NamedTuple):
    """Object as a writer knows it; value "" means that it does not exist."""

    value: str
    revision: int = 0


NONE = State("")


@dataclass
class RevisionLog:
    """Writes observed by all clients: each revision stands for one write."""

    writes: dict[int, tuple[str, str]] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)

    def note(self, revision: int, name: str, value: str) -> None:
        known = self.writes.setdefault(revision, (name, value))
        assert known == (name, value), f"revision {revision} is {known} and {(name, value)}"

    def count(self, what: str) -> None:
        self.counts[what] += 1


def read(tree: Tree) -> State:
    return State(tree["data"]["value"], int(tree["metadata"]["resourceVersion"]))


class Writer:
    """Client that creates, changes and deletes its own objects, one call at a time."""

    def __init__(self, number: int, client: Client, ledger: RevisionLog, dice: Random) -> None:
        self._number = number
        self._client = client
        self._ledger = ledger
        self._dice = dice
        self._turn = 0
        self._latest = 0
        self.known: dict[str, State] = {f"w{number}-{place}": NONE for place in range(4)}

    async def run(self, stopped: asyncio.Event) -> None:
        while not stopped.is_set():
            name = self._dice.choice(sorted(self.known))
            self._turn += 1
            wanted = State(f"{self._number}.{self._turn}")
            if self.known[name] != NONE and self._dice.random() < 0.2:
                wanted = NONE
            try:
                self.known[name] = await self._write(name, wanted)
                self._ledger.count("acknowledged")
            except UnreachableError as error:
                self._ledger.count("lost" if error.sent else "refused")
                await self._look(name, wanted if error.sent else self.known[name])
                await self.check()
                # Deleted and made again under one lost answer cannot be: there is one call at a time.

    async def _write(self, name: str, wanted: State) -> State:
        known = self.known[name]
        if wanted == NONE:
            await self._client.delete(CONFIG_MAPS, name, NS, revision=str(known.revision))
            return NONE
        tree: Tree = {
            "metadata": {"name": name, "labels": {LABEL: "true"}},
            "data": {"value": wanted.value},
        }
        if known == NONE:
            answer = await self._client.create(CONFIG_MAPS, tree, NS)
        elif self._dice.random() < 0.5:
            patch = {"data": tree["data"], "metadata": {"resourceVersion": str(known.revision)}}
            answer = await self._client.patch(CONFIG_MAPS, name, patch, NS)
        else:
            tree["metadata"]["resourceVersion"] = str(known.revision)
            answer = await self._client.update(CONFIG_MAPS, tree, NS)
        state = read(answer)
        assert state.value == wanted.value
        assert state.revision > self._latest, "revisions only grow"
        self._latest = state.revision
        self._ledger.note(state.revision, name, state.value)
        self._ledger.acknowledged.add(state.revision)
        return state

    async def _look(self, name: str, wanted: State) -> None:
        """Find the result of a call whose response was lost."""
        known, found = self.known[name], await self._get(name)
        if found != known:
            assert found.value == wanted.value, f"{name} is {found}, was {known}, should be {wanted}"
            assert found == NONE or found.revision > known.revision
            self._ledger.count("done all the same")
        self.known[name] = found

    async def check(self) -> None:
        """Check that every acknowledged write is there."""
        for name, known in self.known.items():
            found = await self._get(name)
            assert found == known, f"{name} is {found}, was acknowledged as {known}"

    async def _get(self, name: str) -> State:
        while True:
            try:
                return read(await self._client.get(CONFIG_MAPS, name, NS))
            except UnreachableError:
                await asyncio.sleep(0.01)
            except ApiError as error:
                if error.code != 404:
                    raise
                return NONE


class Follower:
    """Watch from a revision that resumes whenever the connection breaks."""

    def __init__(self, client: Client, ledger: RevisionLog, *, labels: str = "") -> None:
        self._client = client
        self._ledger = ledger
        self._labels = labels
        self.since = 0
        self.revision = 0
        self.seen: list[int] = []
        self.resumed = 0
        self.objects: dict[str, int] = {}

    async def begin(self) -> None:
        listing = await self._client.list(CONFIG_MAPS, NS, labels=self._labels)
        self.since = self.revision = int(listing.revision)
        for raw in listing.items:
            self._put(json.loads(raw))

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except UnreachableError:
                self._ledger.count("watches broken")
            self.resumed += 1
            await asyncio.sleep(0.01)

    async def _follow(self) -> None:
        events = self._client.watch(CONFIG_MAPS, NS, since=str(self.revision), labels=self._labels)
        async for event in events:
            revision = int(event.revision)
            if event.type == "BOOKMARK":
                assert revision >= self.revision
                self.revision = revision
                continue
            assert revision > self.revision, f"{event.type} {revision} after {self.revision}"
            self.revision = revision
            self.seen.append(revision)
            tree = json.loads(event.raw)
            name = tree["metadata"]["name"]
            if event.type == "DELETED":
                assert self.objects.pop(name, None), f"{name} is deleted and was not there"
                self._ledger.note(revision, name, "deleted")
                continue
            assert (event.type == "ADDED") == (name not in self.objects), f"{event.type} of {name}"
            if LABEL in (tree["metadata"].get("labels") or {}):
                self._ledger.note(revision, name, tree["data"]["value"])
            self._put(tree)

    def _put(self, tree: Tree) -> None:
        self.objects[tree["metadata"]["name"]] = int(tree["metadata"]["resourceVersion"])
