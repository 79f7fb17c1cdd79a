"""Writer that keeps the device statuses of claims as a driver wants them.

`ClaimStatusWriter` writes `status.devices` in the background, one claim at a time, by server-side apply with
the driver's name as field manager. Guarantees: preparing claims never waits for it; quick changes are merged
into one write, and unchanged statuses are not written; claims that are deleted, replaced or deallocated are
dropped; failed writes are retried with backoff; a rejected write is logged once, retried a few times, and
then waits for the next change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random

from plimsoll.api.timestamps import format_time
from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.client.retries import Backoff
from plimsoll.common.tasks import at_most
from plimsoll.drivers.plugin.claim_reader import check_ref
from plimsoll.drivers.plugin.claim_status import (
    Tree,
    build_entries,
    build_patch,
    contains_entries,
    get_device_key,
    is_current,
    read_device_statuses,
)
from plimsoll.drivers.plugin.driver import DeviceStatus
from plimsoll.errors import ApiError, InputError
from plimsoll.protocols.dra import ClaimRef

_log = logging.getLogger("plimsoll.driver")

#: Delay before a change is written, so that related changes are merged into one write.
SETTLE_SECONDS = 0.05
#: Number of attempts for a claim whose status the server rejects or drops.
MAX_REFUSALS = 6
#: HTTP status codes that do not change by retrying soon.
_REFUSALS = frozenset({400, 403, 405, 406, 413, 415, 422})
#: Limit on distinct problems that are remembered as logged.
_MAX_LOGGED = 100
_DROPPED = "the API server drops device statuses: its feature gate DRAResourceClaimDeviceStatus is off"


@dataclass
class ClaimStatusCounters:
    """Numbers of writes, rejected writes and failures."""

    written: int = 0
    refused: int = 0
    failures: int = 0


@dataclass
class _Claim:
    """Claim with a desired status. `due` is the time of the next sync, None: not before a change.

    `statuses` are those that `desired` was built from.
    """

    ref: ClaimRef
    desired: tuple[Tree, ...] = ()
    statuses: list[DeviceStatus] = field(default_factory=list)
    due: float | None = None
    failures: int = 0
    refusals: int = 0
    problem: str = ""


class ClaimStatusWriter:
    """Device statuses of one driver on one node: `set_statuses` sets the desired state, `run` writes it."""

    def __init__(
        self,
        client: Client,
        driver: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        backoff: Backoff | None = None,
        refusal_backoff: Backoff | None = None,
        settle: float = SETTLE_SECONDS,
        counters: ClaimStatusCounters | None = None,
    ) -> None:
        """`backoff` delays retries of failed writes, `refusal_backoff` those of rejected writes."""
        self.counters = counters or ClaimStatusCounters()
        self._client = client
        self._driver = driver
        self._clock = clock
        self._now = now
        self._backoff = backoff or Backoff(first=0.5, most=60.0)
        self._refusal_backoff = refusal_backoff or Backoff(first=30.0, most=900.0)
        self._settle = settle
        self._random = Random()
        self.claims: dict[str, _Claim] = {}
        self.current_uid = ""
        self._logged: set[str] = set()
        self._wake = asyncio.Event()

    # -- state

    @property
    def problems(self) -> tuple[str, ...]:
        """Reasons why statuses could not be written, without duplicates."""
        by_reason: dict[str, list[ClaimRef]] = {}
        for claim in self.claims.values():
            if claim.problem:
                by_reason.setdefault(claim.problem, []).append(claim.ref)
        return tuple(
            f"claim {refs[0]}{f' and {len(refs) - 1} more' if len(refs) > 1 else ''}: {reason}"
            for reason, refs in sorted(by_reason.items())
        )

    @property
    def synced(self) -> bool:
        """True if nothing is waiting to be written."""
        return not self.current_uid and all(claim.due is None for claim in self.claims.values())

    # -- updates

    def set_statuses(self, statuses: Iterable[DeviceStatus]) -> None:
        """Replace the desired statuses; claims without one lose theirs."""
        listed: dict[str, list[DeviceStatus]] = {}
        for status in statuses:
            listed.setdefault(status.claim.uid, []).append(status)
        for uid, claim in self.claims.items():
            if uid not in listed:
                self._set_desired(claim, ())
        for uid, wanted in listed.items():
            known = self.claims.get(uid)
            if known is None or known.statuses != wanted:
                self._set_statuses(uid, wanted)

    def _set_statuses(self, uid: str, statuses: list[DeviceStatus]) -> None:
        """Replace the desired statuses of one claim."""
        desired, errors = build_entries(self._driver, statuses)
        for error in errors:
            self._warn_once(error.problem, str(error))
        ref, entries = desired.get(uid, (statuses[-1].claim, ()))
        # An invalid reference cannot be written.
        if (entries or uid in self.claims) and check_ref(ref) is None:
            claim = self.claims.setdefault(uid, _Claim(ref))
            self._set_desired(claim, entries)
            claim.statuses = statuses

    def clear(self, ref: ClaimRef) -> None:
        """Remove the statuses of a claim, including those written by an earlier process."""
        if ref.uid not in self.claims:
            self.claims[ref.uid] = _Claim(ref, due=self._clock())
            self._wake.set()
        else:
            self._set_desired(self.claims[ref.uid], ())

    def _set_desired(self, claim: _Claim, desired: tuple[Tree, ...]) -> None:
        claim.statuses = []
        if claim.desired == desired:
            return
        claim.desired, claim.problem = desired, ""
        # Remove the status of released claims at once, so that no two claims show the same device.
        claim.due = self._clock() + (self._settle if desired else 0.0)
        claim.failures = claim.refusals = 0
        self._wake.set()

    # -- writing

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                await self._wait_until_due()
                for uid in self._due():
                    self.current_uid = uid
                    await self._sync_claim(uid)
                    self.current_uid = ""
        finally:
            self.current_uid = ""

    async def finish(self, seconds: float) -> None:
        """Wait up to `seconds` for pending writes that have not failed."""
        async with at_most(seconds):
            while self.current_uid or any(
                claim.due is not None and not claim.failures and not claim.refusals
                for claim in self.claims.values()
            ):
                await asyncio.sleep(0.01)

    def _due(self) -> list[str]:
        now = self._clock()
        due = [(uid, each) for uid, each in self.claims.items() if each.due is not None and each.due <= now]
        return [uid for uid, each in sorted(due, key=lambda pair: (bool(pair[1].desired), pair[1].due))]

    async def _wait_until_due(self) -> None:
        """Wait until a claim is due."""
        while not self._due():
            self._wake.clear()
            wait = min((each.due for each in self.claims.values() if each.due is not None), default=None)
            async with at_most(None if wait is None else max(0.0, wait - self._clock())):
                await self._wake.wait()

    async def _sync_claim(self, uid: str) -> None:
        claim = self.claims[uid]
        desired, claim.due = claim.desired, None
        refused = failed = ""
        code = 0
        try:
            refused = await self._write_status(claim.ref, desired)
        except ApiError as error:
            code = error.code
            if code in _REFUSALS:
                refused = str(error)
            elif code != 404:
                failed = str(error)
        except InputError as error:
            failed = str(error)
        if claim.desired is not desired:
            return  # changed meanwhile: it is due again
        if failed:
            self._on_failure(claim, failed, at_once=code == 409)
        elif refused:
            self._on_refusal(claim, refused, code)
        else:
            claim.failures = claim.refusals = 0
            claim.problem = ""
            if not desired:
                del self.claims[uid]

    async def _write_status(self, ref: ClaimRef, desired: Sequence[Tree]) -> str:
        """Write the status of a claim if it differs; return the reason if some of it was not stored."""
        tree = await self._client.get(RESOURCE_CLAIMS, ref.name, ref.namespace)
        current = read_device_statuses(tree, self._driver)
        if current.uid != ref.uid or not current.allocated:
            return ""  # replaced or deallocated: the server has removed the entries
        allocated = [entry for entry in desired if get_device_key(entry) in current.allocated]
        unallocated = [entry for entry in desired if get_device_key(entry) not in current.allocated]
        if not is_current(current, allocated):
            timestamp = format_time(self._now().timestamp())
            answer = await self._client.patch(
                RESOURCE_CLAIMS,
                ref.name,
                build_patch(ref, current, allocated, timestamp),
                ref.namespace,
                subresource="status",
                type="apply",
                field_manager=self._driver,
                force=True,
            )
            if not contains_entries(read_device_statuses(answer, self._driver), allocated):
                return _DROPPED
            self.counters.written += 1
        if unallocated:
            names = ", ".join("/".join(filter(None, get_device_key(entry))) for entry in unallocated)
            return f"not allocated from driver {self._driver}: {names}"
        return ""

    def _on_failure(self, claim: _Claim, problem: str, *, at_once: bool) -> None:
        claim.failures += 1
        self.counters.failures += 1
        if not at_once:  # a conflict is expected and not a problem
            claim.problem = problem
        _log.debug("%s: claim %s: writing status failed: %s", self._driver, claim.ref, problem)
        waits = Backoff(first=0.02, most=5.0) if at_once else self._backoff
        claim.due = self._clock() + waits.delay(claim.failures, self._random)

    def _on_refusal(self, claim: _Claim, problem: str, code: int) -> None:
        claim.refusals += 1
        self.counters.refused += 1
        # Strip the claim's name from the server's message, so that equal reasons compare equal.
        _, _, reason = problem.partition(f'"{claim.ref.name}" is ')
        claim.problem = reason or problem
        what = f"claim {claim.ref}: device status not written: {claim.problem}"
        self._warn_once(claim.problem if code else claim.problem.partition(":")[0], what)
        if claim.refusals < MAX_REFUSALS:
            claim.due = self._clock() + self._refusal_backoff.delay(claim.refusals, self._random)
        elif not claim.desired:
            del self.claims[claim.ref.uid]

    def _warn_once(self, kind: str, what: str) -> None:
        if kind not in self._logged and len(self._logged) < _MAX_LOGGED:
            self._logged.add(kind)
            _log.warning("driver %s: %s", self._driver, what)
