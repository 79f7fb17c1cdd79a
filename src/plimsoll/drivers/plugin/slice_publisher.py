"""ResourceSlices kept as a driver wants them.

Owns `Publisher`: follows the slices of one driver on one node and brings them in line, pool by pool, with
what `slices.py` says. Promises: while the API is away, or refuses, it goes on trying with longer and longer
waits; what others alter or delete is restored, at once the first time and less and less often against someone
who keeps doing it; a pool that cannot be published does not hold up another one.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from plimsoll.client.informer import Handler, Informer
from plimsoll.client.retries import Backoff
from plimsoll.drivers.plugin.driver import Pool
from plimsoll.drivers.plugin.slices import (
    Plan,
    PoolFault,
    Seen,
    Tree,
    Wanted,
    cut,
    dropped,
    has_annotations,
    keep_times,
    name_prefix,
    plan,
    same,
    see,
    see_tree,
)
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger("plimsoll.driver")

#: How long what was written is believed without being seen: if it was deleted before anybody saw it, nobody
#: will ever tell.
BELIEVED_SECONDS = 60.0
#: The wait before a change of others is looked at, so that the rest of it is there too.
#: DIFF: the Go helper waits for 30 seconds, in which a node whose kubelet was just started has no devices:
#: test_altered_and_deleted_slices_are_restored.
SETTLE_SECONDS = 0.1
#: Restoring slices that somebody else keeps altering: at most so rarely, and forgiven after so long.
_SELDOM, _FORGIVEN = 30.0, 300.0


@dataclass
class PublishCounters:
    """What was written so far."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    failures: int = 0


@dataclass
class _PoolState:
    """What is known about the writing of one pool. `due`: when to look at it, None: not before it changes."""

    wanted: tuple[Wanted, ...] = ()
    due: float | None = 0.0
    failures: int = 0
    in_line: bool = False
    problem: str = ""
    #: What is wrong with the pool as the driver gave it last; until it is mended the one before counts.
    fault: str = ""
    restored: int = 0
    restored_at: float = 0.0
    #: Contents of which the server keeps something else, by index.
    taken: dict[int, tuple[Tree, Tree]] = field(default_factory=dict)
    #: Annotations that the server does not keep, by index.
    unkept: dict[int, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Written:
    """A slice after a write of ours, until it is seen. No slice: it was deleted."""

    slice: Seen | None
    uid: str
    version: int
    at: float


class Publisher:
    """The slices of a driver on a node; `run` keeps them, `want` says what they should be."""

    def __init__(
        self,
        client: Client,
        driver: str,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
        settle: float = SETTLE_SECONDS,
        believed: float = BELIEVED_SECONDS,
        counters: PublishCounters | None = None,
    ) -> None:
        self.counters = counters or PublishCounters()
        self._client = client
        self._driver = driver
        self._node = node
        self._clock = clock
        self._backoff = backoff or Backoff(first=0.25, most=30.0)
        self._settle = settle
        self._believed = believed
        self._dice = Random()
        self._pools: dict[str, _PoolState] = {}
        self._mine: dict[str, _Written] = {}
        self._owner = ""
        self._wake = asyncio.Event()
        self._told = False
        self._informer = Informer(
            client,
            RESOURCE_SLICES,
            see,
            fields=f"spec.driver={driver},spec.nodeName={node}",
            backoff=Backoff(first=0.2, most=10.0),
        )
        self._informer.add_handler(_Changes(self._heard))

    # -- looking

    @property
    def published(self) -> bool:
        """Whether all that is wanted is there, as far as is known."""
        return self._told and all(state.in_line and not state.fault for state in self._pools.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Why something is not published, or not as wanted."""
        states = [state for _, state in sorted(self._pools.items())]
        found = [text for state in states for text in (state.fault, state.problem) if text]
        if self._informer.error is not None:
            found.append(f"ResourceSlices are not read: {self._informer.error}")
        return tuple(found)

    def slices(self) -> tuple[Seen, ...]:
        """The slices there are, as far as is known."""
        return overlay(self._informer.items(), self._mine, self._clock() - self._believed)

    # -- telling

    def want(self, pools: Iterable[Pool]) -> tuple[PoolFault, ...]:
        """From now on these pools, and no others; what cannot be published."""
        faults: list[PoolFault] = []
        given: dict[str, Pool] = {}
        for pool in pools:
            if pool.name in given:
                faults.append(PoolFault("pool", pool.name))
            given.setdefault(pool.name, pool)
        self._told = True  # not before: what nobody spoke of is deleted
        for name in {*self._pools, *(slice_.pool for slice_ in self._informer.items())} - set(given):
            self._again(name, ())
        for name, pool in given.items():
            parts = cut(pool)
            if isinstance(parts, PoolFault):
                faults.append(parts)
                # DIFF: the Go helper stops keeping all pools while one is wrong:
                # test_a_malformed_pool_holds_up_no_other.
                self._pools.setdefault(name, _PoolState(due=None)).fault = str(parts)
                continue
            self._again(name, parts)
        self._wake.set()
        return tuple(faults)

    def _again(self, name: str, wanted: tuple[Wanted, ...]) -> None:
        state = self._pools.setdefault(name, _PoolState())
        if state.wanted != wanted:
            state.in_line = False
        state.wanted, state.fault = wanted, ""
        state.taken = {index: pair for index, pair in state.taken.items() if pair[0] in _contents(wanted)}
        state.due, state.failures = self._clock(), 0

    # -- keeping

    async def run(self) -> None:
        """Keep the slices until cancelled."""
        following = asyncio.create_task(self._informer.run(), name=f"slices of {self._driver}")
        try:
            await self._informer.synced()
            while True:
                await self._pause()
                for name in self._due():
                    await self._bring_in_line(name)
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError, InputError):
                await following

    async def withdraw(self, timeout: float = 10.0) -> str:
        """Delete all slices of the driver on this node; why that did not work, if it did not."""
        fields = f"spec.driver={self._driver},spec.nodeName={self._node}"
        try:
            async with asyncio.timeout(timeout):
                listing = await self._client.list(RESOURCE_SLICES, fields=fields)
                for raw in listing.items:
                    await self._delete(see(raw))
        except TimeoutError:
            return "the API server did not answer in time"
        except InputError as error:
            return str(error)
        return ""

    def _due(self) -> list[str]:
        now = self._clock()
        return sorted(
            name for name, state in self._pools.items() if state.due is not None and state.due <= now
        )

    async def _pause(self) -> None:
        """Until there is something to do."""
        while not self._due():
            self._wake.clear()
            times = [state.due for state in self._pools.values() if state.due is not None]
            times += [written.at + self._believed + 0.1 for written in self._mine.values()]
            wait = min(times, default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait is None else max(0.0, wait - self._clock())):
                    await self._wake.wait()
            self._expire()

    def _expire(self) -> None:
        """Look again at pools with slices that were written and never seen."""
        limit = self._clock() - self._believed
        for name, written in list(self._mine.items()):
            if written.at < limit:
                del self._mine[name]
                state = self._pools.get(written.slice.pool) if written.slice is not None else None
                if state is not None and state.due is None:
                    state.due = self._clock()

    def _heard(self, slice_: Seen, *, gone: bool = False) -> None:
        """Somebody wrote a slice: we ourselves, most of the time."""
        written = self._mine.get(slice_.name)
        if written is not None and written.uid == slice_.uid:
            seen = written.slice is not None and written.version <= slice_.version
            if gone or seen:
                del self._mine[slice_.name]
        if not self._told:
            return
        state = self._pools.setdefault(slice_.pool, _PoolState(due=None))
        if state.due is None and not state.failures:
            state.due = self._clock() + max(self._settle, self._penalty(state))
            self._wake.set()

    def _penalty(self, state: _PoolState) -> float:
        if self._clock() - state.restored_at > _FORGIVEN:
            state.restored = 0
        return 0.0 if state.restored < 3 else min(_SELDOM, 0.25 * 2.0 ** (state.restored - 3))

    async def _bring_in_line(self, name: str) -> None:
        state = self._pools[name]
        state.due = None
        if state.fault and not state.wanted:
            return  # it is not known what should be there
        wanted, before = state.wanted, state.in_line
        try:
            todo = await self._plan(name, state)
            if todo:
                _log.debug("%s: pool %s: %s", self._driver, name, _summary(todo))
                await self._carry_out(name, state, todo)
        except InputError as error:
            self._failed(name, state, error)
            return
        if state.wanted is not wanted:
            return  # it is due again
        if not wanted:
            del self._pools[name]
            return
        if todo and before:
            state.restored, state.restored_at = state.restored + 1, self._clock()
            _log.warning(
                "%s: slices of pool %s were altered by others: %s", self._driver, name, _summary(todo)
            )
        state.in_line, state.failures = True, 0
        state.problem = _lost(name, state)

    async def _plan(self, name: str, state: _PoolState) -> Plan:
        seen = [slice_ for slice_ in self.slices() if slice_.pool == name]
        todo = plan(state.wanted, seen, owner=self._owner, taken=state.taken, unkept=state.unkept)
        if todo.create or todo.update or (state.wanted and not self._owner):
            # DIFF: the Go helper asks once, and when the Node is made anew (another UID), what it publishes
            # is collected as garbage for ever: test_a_node_made_anew_owns_the_slices.
            self._owner = await self._read_owner()
            todo = plan(state.wanted, seen, owner=self._owner, taken=state.taken, unkept=state.unkept)
        return todo

    async def _read_owner(self) -> str:
        try:
            node = await self._client.get(NODES, self._node)
        except ApiError as error:
            raise InputError(f'retrieve node "{self._node}": {error}') from None
        metadata = node.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else None
        if not isinstance(uid, str) or not uid:
            raise InputError(f'retrieve node "{self._node}": it has no UID')
        return uid

    async def _carry_out(self, name: str, state: _PoolState, todo: Plan) -> None:
        pool = {"name": name, "generation": todo.generation, "resourceSliceCount": todo.count}
        for slice_ in todo.delete:
            await self._delete(slice_)
        for slice_, wanted in todo.update:
            content = keep_times(wanted.content, slice_.content)
            tree = {
                **slice_.tree,
                "metadata": {
                    **slice_.tree["metadata"],
                    "ownerReferences": [self._owner_reference()],
                    **_annotations({**slice_.annotations, **wanted.annotations}),
                },
                "spec": self._spec(pool, content),
            }
            try:
                answer = await self._client.update(RESOURCE_SLICES, tree)
            except ApiError as error:
                if error.code == 404:
                    self._mine[slice_.name] = _Written(None, slice_.uid, 0, self._clock())
                raise InputError(f"update resource slice: {error}") from None
            self.counters.updated += 1
            self._stored(state, wanted, content, answer)
        for wanted in todo.create:
            tree = {
                "apiVersion": RESOURCE_SLICES.api_version,
                "kind": RESOURCE_SLICES.kind,
                "metadata": {
                    "generateName": name_prefix(wanted.index, todo.count, self._driver, self._node),
                    "ownerReferences": [self._owner_reference()],
                    **_annotations(wanted.annotations),
                },
                "spec": self._spec(pool, wanted.content),
            }
            try:
                answer = await self._client.create(RESOURCE_SLICES, tree)
            except ApiError as error:
                raise InputError(f"create resource slice: {error}") from None
            self.counters.created += 1
            self._stored(state, wanted, wanted.content, answer)

    def _spec(self, pool: Mapping[str, Any], content: Mapping[str, Any]) -> Tree:
        return {"driver": self._driver, "pool": pool, "nodeName": self._node, **content}

    def _owner_reference(self) -> Tree:
        return {
            "apiVersion": NODES.api_version,
            "kind": NODES.kind,
            "name": self._node,
            "uid": self._owner,
            "controller": True,
        }

    async def _delete(self, slice_: Seen) -> None:
        try:
            await self._client.delete(
                RESOURCE_SLICES, slice_.name, uid=slice_.uid or None, revision=slice_.revision or None
            )
            self.counters.deleted += 1
        except ApiError as error:
            if error.code != 404:
                raise InputError(f"delete resource slice: {error}") from None
        self._mine[slice_.name] = _Written(None, slice_.uid, 0, self._clock())

    def _stored(self, state: _PoolState, wanted: Wanted, sent: Tree, answer: Tree) -> None:
        """Remember what the server made of a slice."""
        kept = see_tree(answer)
        self._mine[kept.name] = _Written(kept, kept.uid, kept.version, self._clock())
        if has_annotations(kept, wanted.annotations):
            state.unkept.pop(wanted.index, None)
        else:
            state.unkept[wanted.index] = wanted.annotations
        if same(sent, kept.content):
            state.taken.pop(wanted.index, None)
        else:
            state.taken[wanted.index] = (wanted.content, kept.content)

    def _failed(self, name: str, state: _PoolState, error: InputError) -> None:
        self.counters.failures += 1
        state.failures += 1
        state.in_line = False
        state.problem = f'pool "{name}": {error}'
        wait = self._backoff.delay(state.failures, self._dice)
        if state.due is None:
            state.due = self._clock() + wait
        _log.warning("%s: %s; trying again in %.1f s", self._driver, state.problem, wait)


def overlay(items: Iterable[Seen], mine: Mapping[str, _Written], since: float) -> tuple[Seen, ...]:
    """What there is: what was seen, corrected by what was written after it and not before `since`."""
    found = {slice_.name: slice_ for slice_ in items}
    for name, written in mine.items():
        if written.at < since:
            continue
        old = found.get(name)
        if written.slice is None:
            if old is not None and old.uid == written.uid:
                del found[name]
        elif old is None or (old.uid == written.uid and old.version < written.version):
            found[name] = written.slice
    return tuple(found.values())


def _annotations(wanted: Mapping[str, str]) -> Tree:
    return {"annotations": dict(wanted)} if wanted else {}


def _contents(wanted: Iterable[Wanted]) -> list[Tree]:
    return [each.content for each in wanted]


def _lost(name: str, state: _PoolState) -> str:
    texts = []
    for index, (sent, kept) in sorted(state.taken.items()):
        gates = " ".join(dropped(sent, kept)) or "unknown"
        texts.append(
            f'pool "{name}", slice #{index}: some fields were dropped by the apiserver,'
            f" probably because these features are disabled: {gates}"
        )
    return "; ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _summary(todo: Plan) -> str:
    return (
        f"{len(todo.create)} to create, {len(todo.update)} to update, {len(todo.delete)} to delete,"
        f" generation {todo.generation}"
    )


class _Changes(Handler[Seen]):
    """Which slices somebody wrote."""

    def __init__(self, heard: Callable[..., None]) -> None:
        self._heard = heard

    def on_added(self, new: Seen) -> None:
        self._heard(new)

    def on_changed(self, old: Seen, new: Seen) -> None:
        self._heard(new)

    def on_removed(self, old: Seen) -> None:
        self._heard(old, gone=True)
