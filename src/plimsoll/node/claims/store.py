"""The claims in memory, which are always those on the disk.

Owns `ClaimStore`: changes are written first and seen after that, and changes that come together are written
together. Promises: what can be read here is on the disk; a save that fails changes nothing; a caller that is
cancelled does not leave before its change is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from plimsoll.common.checkpoint import RecordFile
from plimsoll.errors import StoreError
from plimsoll.node.claims.checkpoint import encode_body, encode_claim
from plimsoll.node.claims.holders import releases_devices
from plimsoll.node.prepared import PreparedClaim

#: Changes by claim UID; None removes.
Changes = Mapping[str, PreparedClaim | None]


class ClaimStore:
    """Claims by UID and by pod. Without a file they are in memory only."""

    def __init__(self, claims: Iterable[PreparedClaim], file: RecordFile | None, boot: str = "") -> None:
        self.claims: dict[str, PreparedClaim] = {}
        self.revision = 0
        #: Why the last save failed; empty if it did not.
        self.problem = ""
        #: Called with the UIDs of claims that were removed or hold fewer devices than before.
        self.on_release: Callable[[frozenset[str]], None] = lambda _: None
        self._by_pod: dict[str, dict[str, PreparedClaim]] = {}
        self._rows: dict[str, msgspec.Raw] = {}
        self._file = file
        self._boot = boot
        self._queue: list[tuple[Changes, asyncio.Future[str]]] = []
        self._writer: asyncio.Task[None] | None = None
        self._apply({claim.ref.uid: claim for claim in claims})

    def of_pod(self, pod: str) -> Mapping[str, PreparedClaim]:
        """The claims that a pod uses, by UID."""
        return self._by_pod.get(pod, {})

    def find(self, pod: str, namespace: str, name: str) -> PreparedClaim | None:
        """The claim that a pod uses under this name."""
        for claim in self.of_pod(pod).values():
            if claim.ref.name == name and claim.ref.namespace == namespace:
                return claim
        return None

    @property
    def pods(self) -> frozenset[str]:
        """The pods that use a claim."""
        return frozenset(self._by_pod)

    async def commit(self, changes: Changes) -> str:
        """Make changes; returns why they were not made, or nothing."""
        if not changes:
            return ""
        if self._file is None:
            self._apply(changes)
            return ""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append((changes, future))
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write(self._file))
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
        """Write until nothing is queued; all that came in the meantime goes into one file."""
        while self._queue:
            batch, self._queue = self._queue, []
            merged = {uid: claim for changes, _ in batch for uid, claim in changes.items()}
            try:
                rows = self._rows_after(merged)
                body = encode_body((rows[uid] for uid in sorted(rows)), self._boot)
                await asyncio.to_thread(file.save, body)
            except StoreError as error:
                self.problem = str(error)
                self._settle(batch, self.problem)
            except asyncio.CancelledError:
                self._settle([*batch, *self._queue], "the agent stops")
                raise
            except Exception as error:  # a bug; those who wait must hear of it
                for _, future in batch:
                    future.set_exception(error)
            else:
                self.problem = ""
                self._apply(merged, rows)
                self._settle(batch, "")

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
