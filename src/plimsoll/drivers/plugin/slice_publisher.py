"""Publisher that keeps the ResourceSlices of one driver on one node in sync with its pools.

`SlicePublisher` watches the slices and applies the plans of `slices.py`, pool by pool. Guarantees: failed
writes are retried with backoff; slices that others change or delete are restored, immediately at first and
with increasing delays if it recurs; an invalid pool does not block the others.
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
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.client.retries import Backoff
from plimsoll.common.tasks import at_most
from plimsoll.drivers.plugin.driver import DevicePool
from plimsoll.drivers.plugin.slices import (
    DesiredSlice,
    ExistingSlice,
    PoolError,
    SlicePlan,
    Tree,
    build_slices,
    decode_slice,
    find_dropped_gates,
    format_name_prefix,
    has_annotations,
    is_same_content,
    keep_taint_times,
    parse_slice,
    plan_slices,
)
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger("plimsoll.driver")

#: Time for which own writes are trusted before the watch delivers them: a slice that was deleted before it
#: was seen causes no event.
MUTATION_TTL_SECONDS = 60.0
#: Delay before a foreign change is handled, so that related changes are handled together. DIFF: the Go helper
#: waits for 30 seconds, during which a node whose kubelet was just started has no devices:
#: test_altered_and_deleted_slices_are_restored.
SETTLE_SECONDS = 0.1
#: Time for deleting the slices.
_WITHDRAW_SECONDS = 10.0
#: Longest delay before slices are restored that others keep changing, and time after which it is reset.
_MAX_RESTORE_DELAY, _RESTORE_RESET_SECONDS = 30.0, 300.0


@dataclass
class SliceCounters:
    """Numbers of writes and failures."""

    created: int = 0
    updated: int = 0
    deleted: int = 0
    failures: int = 0


@dataclass
class _PoolState:
    """Sync state of one pool. `due` is the time of the next sync, None: not before a change."""

    desired: tuple[DesiredSlice, ...] = ()
    due: float | None = 0.0
    failures: int = 0
    synced: bool = False
    problem: str = ""
    #: Error in the pool as last set by the driver; the previous valid one stays in effect.
    error: str = ""
    restored: int = 0
    restored_at: float = 0.0
    #: Contents that the server stores differently, by index.
    altered: dict[int, tuple[Tree, Tree]] = field(default_factory=dict)
    #: Annotations that the server does not store, by index.
    dropped_annotations: dict[int, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WrittenSlice:
    """Slice as written by this publisher, until the watch delivers it; `slice` is None if it was deleted."""

    slice: ExistingSlice | None
    uid: str
    version: int
    at: float


class SlicePublisher:
    """Keeps the slices of a driver on a node: `set_pools` sets the desired state, `run` reconciles it."""

    def __init__(
        self,
        client: Client,
        driver: str,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
        settle: float = SETTLE_SECONDS,
        mutation_ttl: float = MUTATION_TTL_SECONDS,
        counters: SliceCounters | None = None,
    ) -> None:
        self.counters = counters or SliceCounters()
        self._client = client
        self._driver = driver
        self._node = node
        self.clock = clock
        self._backoff = backoff or Backoff(first=0.25, most=30.0)
        self._settle = settle
        self._mutation_ttl = mutation_ttl
        self._random = Random()
        self._pools: dict[str, _PoolState] = {}
        self.written: dict[str, WrittenSlice] = {}
        self._owner = ""
        self._wake = asyncio.Event()
        self._has_pools = False
        self._informer = Informer(
            client,
            RESOURCE_SLICES,
            decode_slice,
            fields=f"spec.driver={driver},spec.nodeName={node}",
            backoff=Backoff(first=0.2, most=10.0),
        )
        self._informer.add_handler(_SliceEventHandler(self._on_slice_event))

    # -- state

    @property
    def published(self) -> bool:
        """True if all existing slices are as desired, as far as known."""
        return self._has_pools and all(state.synced and not state.error for state in self._pools.values())

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why pools are not published as desired."""
        states = [state for _, state in sorted(self._pools.items())]
        found = [text for state in states for text in (state.error, state.problem) if text]
        if self._informer.error is not None:
            found.append(f"reading ResourceSlices failed: {self._informer.error}")
        return tuple(found)

    def slices(self) -> tuple[ExistingSlice, ...]:
        """Return the existing slices, including own writes that the watch has not delivered yet."""
        return merge_written(self._informer.items(), self.written, self.clock() - self._mutation_ttl)

    # -- updates

    def set_pools(self, pools: Iterable[DevicePool]) -> tuple[PoolError, ...]:
        """Replace the desired pools; return those that are invalid."""
        errors: list[PoolError] = []
        given: dict[str, DevicePool] = {}
        for pool in pools:
            if pool.name in given:
                errors.append(PoolError("pool", pool.name))
            given.setdefault(pool.name, pool)
        self._has_pools = True  # until then unknown pools must not be deleted
        for name in {*self._pools, *(slice_.pool for slice_ in self._informer.items())} - set(given):
            self._set_desired(name, ())
        for name, pool in given.items():
            parts = build_slices(pool)
            if isinstance(parts, PoolError):
                errors.append(parts)
                # DIFF: the Go helper stops syncing all pools while one is invalid:
                # test_a_malformed_pool_does_not_block_others.
                self._pools.setdefault(name, _PoolState(due=None)).error = str(parts)
                continue
            self._set_desired(name, parts)
        self._wake.set()
        return tuple(errors)

    def _set_desired(self, name: str, desired: tuple[DesiredSlice, ...]) -> None:
        state = self._pools.setdefault(name, _PoolState())
        if state.desired != desired:
            state.synced = False
        state.desired, state.error = desired, ""
        state.altered = {
            index: pair for index, pair in state.altered.items() if pair[0] in _list_contents(desired)
        }
        state.due, state.failures = self.clock(), 0

    # -- reconciling

    async def run(self) -> None:
        """Reconcile until cancelled."""
        following = asyncio.create_task(self._informer.run(), name=f"slices of {self._driver}")
        try:
            await self._informer.synced()
            while True:
                await self._wait_until_due()
                for name in self._due():
                    await self._sync_pool(name)
        finally:
            following.cancel()
            with suppress(asyncio.CancelledError, InputError):
                await following

    async def withdraw(self) -> str:
        """Delete all slices of the driver on this node; return "" or the reason for failure."""
        fields = f"spec.driver={self._driver},spec.nodeName={self._node}"
        try:
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                listing = await self._client.list(RESOURCE_SLICES, fields=fields)
                for raw in listing.items:
                    await self._delete(decode_slice(raw))
        except TimeoutError:
            return "timed out waiting for the API server"
        except InputError as error:
            return str(error)
        return ""

    def _due(self) -> list[str]:
        now = self.clock()
        return sorted(
            name for name, state in self._pools.items() if state.due is not None and state.due <= now
        )

    async def _wait_until_due(self) -> None:
        """Wait until a pool is due for a sync."""
        while not self._due():
            self._wake.clear()
            times = [state.due for state in self._pools.values() if state.due is not None]
            times += [written.at + self._mutation_ttl + 0.1 for written in self.written.values()]
            wait = min(times, default=None)
            async with at_most(None if wait is None else max(0.0, wait - self.clock())):
                await self._wake.wait()
            self._expire()

    def _expire(self) -> None:
        """Sync pools again whose written slices were never seen by the watch."""
        limit = self.clock() - self._mutation_ttl
        for name, written in list(self.written.items()):
            if written.at < limit:
                del self.written[name]
                state = self._pools.get(written.slice.pool) if written.slice is not None else None
                if state is not None and state.due is None:
                    state.due = self.clock()

    def _on_slice_event(self, slice_: ExistingSlice, *, gone: bool = False) -> None:
        """Schedule a sync after a slice changed, usually by our own write."""
        written = self.written.get(slice_.name)
        if written is not None and written.uid == slice_.uid:
            existing = written.slice is not None and written.version <= slice_.version
            if gone or existing:
                del self.written[slice_.name]
        if not self._has_pools:
            return
        state = self._pools.setdefault(slice_.pool, _PoolState(due=None))
        if state.due is None and not state.failures:
            state.due = self.clock() + max(self._settle, self._penalty(state))
            self._wake.set()

    def _penalty(self, state: _PoolState) -> float:
        if self.clock() - state.restored_at > _RESTORE_RESET_SECONDS:
            state.restored = 0
        return 0.0 if state.restored < 3 else min(_MAX_RESTORE_DELAY, 0.25 * 2.0 ** (state.restored - 3))

    async def _sync_pool(self, name: str) -> None:
        state = self._pools[name]
        state.due = None
        if state.error and not state.desired:
            return  # the desired state is unknown
        desired, before = state.desired, state.synced
        try:
            plan = await self._plan(name, state)
            if plan:
                _log.debug("%s: pool %s: %s", self._driver, name, _summary(plan))
                await self._apply_plan(name, state, plan)
        except InputError as error:
            self._on_failure(name, state, error)
            return
        if state.desired is not desired:
            return  # changed meanwhile: it is due again
        if not desired:
            del self._pools[name]
            return
        if plan and before:
            state.restored, state.restored_at = state.restored + 1, self.clock()
            _log.warning(
                "%s: slices of pool %s were changed by another client: %s", self._driver, name, _summary(plan)
            )
        state.synced, state.failures = True, 0
        state.problem = _describe_dropped_fields(name, state)

    async def _plan(self, name: str, state: _PoolState) -> SlicePlan:
        existing = [slice_ for slice_ in self.slices() if slice_.pool == name]

        def make() -> SlicePlan:
            return plan_slices(
                state.desired,
                existing,
                owner=self._owner,
                altered=state.altered,
                dropped_annotations=state.dropped_annotations,
            )

        plan = make()
        if plan.create or plan.update or (state.desired and not self._owner):
            # DIFF: the Go helper reads the Node once; when it is created again with another UID, all slices
            # are garbage-collected from then on: test_a_recreated_node_owns_the_slices.
            self._owner = await self._read_owner()
            plan = make()
        return plan

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

    async def _apply_plan(self, name: str, state: _PoolState, plan: SlicePlan) -> None:
        pool = {"name": name, "generation": plan.generation, "resourceSliceCount": plan.count}
        for slice_ in plan.delete:
            await self._delete(slice_)
        for slice_, desired in plan.update:
            content = keep_taint_times(desired.content, slice_.content)
            tree = {
                **slice_.tree,
                "metadata": {
                    **slice_.tree["metadata"],
                    "ownerReferences": [self._owner_reference()],
                    **_annotations_member({**slice_.annotations, **desired.annotations}),
                },
                "spec": self._spec(pool, content),
            }
            try:
                answer = await self._client.update(RESOURCE_SLICES, tree)
            except ApiError as error:
                if error.code == 404:
                    self.written[slice_.name] = WrittenSlice(None, slice_.uid, 0, self.clock())
                raise InputError(f"update resource slice: {error}") from None
            self.counters.updated += 1
            self._record_stored(state, desired, content, answer)
        for desired in plan.create:
            tree = {
                "apiVersion": RESOURCE_SLICES.api_version,
                "kind": RESOURCE_SLICES.kind,
                "metadata": {
                    "generateName": format_name_prefix(desired.index, plan.count, self._driver, self._node),
                    "ownerReferences": [self._owner_reference()],
                    **_annotations_member(desired.annotations),
                },
                "spec": self._spec(pool, desired.content),
            }
            try:
                answer = await self._client.create(RESOURCE_SLICES, tree)
            except ApiError as error:
                raise InputError(f"create resource slice: {error}") from None
            self.counters.created += 1
            self._record_stored(state, desired, desired.content, answer)

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

    async def _delete(self, slice_: ExistingSlice) -> None:
        try:
            await self._client.delete(
                RESOURCE_SLICES,
                slice_.name,
                uid=slice_.uid or None,
                revision=slice_.resource_version or None,
            )
            self.counters.deleted += 1
        except ApiError as error:
            if error.code != 404:
                raise InputError(f"delete resource slice: {error}") from None
        self.written[slice_.name] = WrittenSlice(None, slice_.uid, 0, self.clock())

    def _record_stored(self, state: _PoolState, desired: DesiredSlice, sent: Tree, answer: Tree) -> None:
        """Remember how the server stored a slice."""
        kept = parse_slice(answer)
        self.written[kept.name] = WrittenSlice(kept, kept.uid, kept.version, self.clock())
        if has_annotations(kept, desired.annotations):
            state.dropped_annotations.pop(desired.index, None)
        else:
            state.dropped_annotations[desired.index] = desired.annotations
        if is_same_content(sent, kept.content):
            state.altered.pop(desired.index, None)
        else:
            state.altered[desired.index] = (desired.content, kept.content)

    def _on_failure(self, name: str, state: _PoolState, error: InputError) -> None:
        self.counters.failures += 1
        state.failures += 1
        state.synced = False
        state.problem = f'pool "{name}": {error}'
        wait = self._backoff.delay(state.failures, self._random)
        if state.due is None:
            state.due = self.clock() + wait
        _log.warning("%s: %s; retrying in %.1f s", self._driver, state.problem, wait)


def merge_written(
    items: Iterable[ExistingSlice], mine: Mapping[str, WrittenSlice], since: float
) -> tuple[ExistingSlice, ...]:
    """Merge watched slices with newer own writes that are not older than `since`."""
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


def _annotations_member(desired: Mapping[str, str]) -> Tree:
    return {"annotations": dict(desired)} if desired else {}


def _list_contents(desired: Iterable[DesiredSlice]) -> list[Tree]:
    return [each.content for each in desired]


def _describe_dropped_fields(name: str, state: _PoolState) -> str:
    texts = []
    for index, (sent, kept) in sorted(state.altered.items()):
        gates = " ".join(find_dropped_gates(sent, kept)) or "unknown"
        texts.append(
            f'pool "{name}", slice #{index}: some fields were dropped by the apiserver,'
            f" probably because these features are disabled: {gates}"
        )
    return "; ".join(texts[:3]) + (f" and {len(texts) - 3} more" if len(texts) > 3 else "")


def _summary(plan: SlicePlan) -> str:
    return (
        f"{len(plan.create)} to create, {len(plan.update)} to update, {len(plan.delete)} to delete,"
        f" generation {plan.generation}"
    )


class _SliceEventHandler(EventHandler[ExistingSlice]):
    """Informer handler that forwards slice events."""

    def __init__(self, on_slice_event: Callable[..., None]) -> None:
        self._on_slice_event = on_slice_event

    def on_added(self, new: ExistingSlice) -> None:
        self._on_slice_event(new)

    def on_changed(self, old: ExistingSlice, new: ExistingSlice) -> None:
        self._on_slice_event(new)

    def on_removed(self, old: ExistingSlice) -> None:
        self._on_slice_event(old, gone=True)
