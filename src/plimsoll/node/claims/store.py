"""Store of claims in memory that always matches the checkpoint.

Changes are written first and visible after that; concurrent changes are written together. Guarantees that
everything readable here is on disk, that a failed save changes nothing, and that a canceled caller does not
return before its change is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from plimsoll.common.checkpoint import RecordFile
from plimsoll.errors import StoreError
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.checkpoint import encode_body, encode_claim
from plimsoll.node.claims.device_conflicts import releases_devices

#: Changes by claim UID; None removes the claim.
Changes = Mapping[str, ClaimInfo | None]


class ClaimStore:
    """Claims by UID and by pod. Without a file they are kept in memory only."""

    def __init__(
        self, claims: Iterable[ClaimInfo], file: RecordFile | None, boot: str = "", *, lost: bool = False
    ) -> None:
        self.claims: dict[str, ClaimInfo] = {}
        #: Saved with the claims: an earlier checkpoint was lost, and not all claims have been prepared again.
        self.lost = lost
        self.revision = 0
        #: Called with the UIDs of claims that were removed or hold fewer devices than before.
        self.on_release: Callable[[frozenset[str]], None] = lambda _: None
        self._by_pod: dict[str, dict[str, ClaimInfo]] = {}
        self._rows: dict[str, msgspec.Raw] = {}
        self._file = file
        self._boot = boot
        self._queue: list[tuple[Changes, asyncio.Future[str]]] = []
        self._writing: list[tuple[Changes, asyncio.Future[str]]] = []
        self.writer: asyncio.Task[None] | None = None
        self._apply({claim.ref.uid: claim for claim in claims})

    def claims_of_pod(self, pod: str) -> Mapping[str, ClaimInfo]:
        """Return the claims that a pod uses, by UID."""
        return self._by_pod.get(pod, {})

    def find(self, pod: str, namespace: str, name: str) -> ClaimInfo | None:
        """Return the claim that a pod uses under this name."""
        for claim in self.claims_of_pod(pod).values():
            if claim.ref.name == name and claim.ref.namespace == namespace:
                return claim
        return None

    @property
    def pods(self) -> frozenset[str]:
        """UIDs of the pods that use a claim."""
        return frozenset(self._by_pod)

    async def commit(self, changes: Changes) -> str:
        """Apply changes; return an error message, or "" on success."""
        return await self._commit(changes) if changes else ""

    async def set_lost(self, lost: bool) -> str:
        """Save whether claims are missing; return an error message, or "" on success."""
        self.lost = lost
        return await self._commit({})

    async def _commit(self, changes: Changes) -> str:
        if self._file is None:
            self._apply(changes)
            return ""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append((changes, future))
        if self.writer is None or self.writer.done():
            self.writer = asyncio.create_task(self._write(self._file))
            self.writer.add_done_callback(self._settle_rest)
        cancelled: asyncio.CancelledError | None = None
        while not future.done():
            try:
                await asyncio.shield(future)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        return future.result()

    async def _write(self, file: RecordFile) -> None:
        """Write until the queue is empty; all changes queued in the meantime are written together."""
        while self._queue:
            batch, self._queue = self._queue, []
            self._writing = batch
            merged = {uid: claim for changes, _ in batch for uid, claim in changes.items()}
            try:
                rows = self._rows_after(merged)
                body = encode_body((rows[uid] for uid in sorted(rows)), self._boot, lost=self.lost)
                await asyncio.to_thread(file.save, body)
            except StoreError as error:
                self._settle(batch, str(error))
            except Exception as error:  # a bug; the callers must see it
                for _, future in batch:
                    future.set_exception(error)
            else:
                self._apply(merged, rows)
                self._settle(batch, "")

    def _settle_rest(self, writer: asyncio.Task[None]) -> None:
        """Answer the callers of a writer that was cancelled, even before its first step: they wait for it."""
        batch, self._writing = [*self._writing, *self._queue], []
        if writer.cancelled():
            self._queue = []
            self._settle(batch, "the agent stops")

    @staticmethod
    def _settle(batch: Iterable[tuple[Changes, asyncio.Future[str]]], problem: str) -> None:
        for _, future in batch:
            if not future.done():
                future.set_result(problem)

    def _rows_after(self, changes: Changes) -> dict[str, msgspec.Raw]:
        rows = dict(self._rows)
        for uid, claim in changes.items():
            if claim is None:
                rows.pop(uid, None)
            else:
                rows[uid] = encode_claim(claim)
        return rows

    def _apply(self, changes: Changes, rows: dict[str, msgspec.Raw] | None = None) -> None:
        self._rows = self._rows_after(changes) if rows is None else rows
        released = set()
        for uid, claim in changes.items():
            before = self.claims.pop(uid, None)
            if before is not None and releases_devices(before, claim):
                released.add(uid)
            for pod in before.pods if before is not None else ():
                self._by_pod[pod].pop(uid)
                if not self._by_pod[pod]:
                    del self._by_pod[pod]
            if claim is not None:
                self.claims[uid] = claim
                for pod in claim.pods:
                    self._by_pod.setdefault(pod, {})[uid] = claim
        if changes:
            self.revision += 1
        if released:
            self.on_release(frozenset(released))
