"""The status of claims kept as a driver wants it.

Owns `Reporter`: which entries claims should have in `status.devices`, and writing them, in the background and
one claim at a time, by server-side apply as a manager of the driver's name. Promises: nobody ever waits for
it; changes that follow each other quickly become one write, and what a claim tells already is not written;
claims that are gone, were replaced or have no devices any more are let go; while the API is away it goes on
trying with longer and longer waits; who is refused is told of it once, tries a few times more, and then waits
for the next change.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

from plimsoll.client import Client
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.client.retries import Backoff
from plimsoll.drivers.plugin.claim_status import (
    Tree,
    covers,
    key_of,
    make_entries,
    make_patch,
    same,
    see_claim,
)
from plimsoll.drivers.plugin.claims import check_ref
from plimsoll.drivers.plugin.driver import DeviceReport
from plimsoll.errors import ApiError, InputError
from plimsoll.protocols.dra import ClaimRef

_log = logging.getLogger("plimsoll.driver")

#: The wait before a change is written, so that what belongs to it is there too.
SETTLE_SECONDS = 0.05
#: How often a claim is tried for which the server refuses, or drops, what is written.
MOST_REFUSALS = 6
#: Answers that will be the same until somebody does something about it.
_REFUSALS = frozenset({400, 403, 405, 406, 413, 415, 422})
#: Different things to tell once.
_MOST_TOLD = 100
_DROPPED = (
    "the API server keeps nothing of what drivers tell: its feature gate DRAResourceClaimDeviceStatus is off"
)


@dataclass
class ReportCounters:
    """Writes so far."""

    written: int = 0
    refused: int = 0
    failures: int = 0


@dataclass
class _Claim:
    """A claim that tells, or told, something. `due`: when to look at it, None: not before it changes."""

    ref: ClaimRef
    wanted: tuple[Tree, ...] = ()
    due: float | None = None
    failures: int = 0
    refusals: int = 0
    problem: str = ""


class Reporter:
    """What the claims of one driver on one node tell about their devices; `run` writes, `want` says what."""

    def __init__(
        self,
        client: Client,
        driver: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        backoff: Backoff | None = None,
        seldom: Backoff | None = None,
        settle: float = SETTLE_SECONDS,
        counters: ReportCounters | None = None,
    ) -> None:
        """`backoff` are the waits while the API is away, `seldom` those after a refusal."""
        self.counters = counters or ReportCounters()
        self._client = client
        self._driver = driver
        self._clock = clock
        self._now = now
        self._backoff = backoff or Backoff(first=0.5, most=60.0)
        self._seldom = seldom or Backoff(first=30.0, most=900.0)
        self._settle = settle
        self._dice = Random()
        self._claims: dict[str, _Claim] = {}
        self._busy = ""
        self._told: set[str] = set()
        self._wake = asyncio.Event()

    # -- looking

    @property
    def problems(self) -> tuple[str, ...]:
        """Why claims do not tell what they should, each reason once."""
        by_reason: dict[str, list[ClaimRef]] = {}
        for claim in self._claims.values():
            if claim.problem:
                by_reason.setdefault(claim.problem, []).append(claim.ref)
        return tuple(
            f"claim {refs[0]}{f' and {len(refs) - 1} more' if len(refs) > 1 else ''}: {reason}"
            for reason, refs in sorted(by_reason.items())
        )

    @property
    def in_line(self) -> bool:
        """Whether nothing is left to be written, as far as is known."""
        return not self._busy and all(claim.due is None for claim in self._claims.values())

    # -- telling

    def want(self, reports: Iterable[DeviceReport]) -> None:
        """From now on claims tell this, and others nothing."""
        wanted, faults = make_entries(self._driver, reports)
        for fault in faults:
            self._tell_once(fault.problem, str(fault))
        for uid, claim in self._claims.items():
            if uid not in wanted:
                self._change(claim, ())
        for uid, (ref, entries) in wanted.items():
            if check_ref(ref) is None:  # else nobody knows what it is called
                self._change(self._claims.setdefault(uid, _Claim(ref)), entries)

    def clear(self, ref: ClaimRef) -> None:
        """A claim is to tell nothing; if it is not known, a former run may have told something."""
        if ref.uid not in self._claims:
            self._claims[ref.uid] = _Claim(ref, due=self._clock())
            self._wake.set()
        else:
            self._change(self._claims[ref.uid], ())

    def _change(self, claim: _Claim, wanted: tuple[Tree, ...]) -> None:
        if claim.wanted == wanted:
            return
        claim.wanted, claim.problem = wanted, ""
        # What is released goes at once: nobody should see two claims with the same devices.
        claim.due = self._clock() + (self._settle if wanted else 0.0)
        claim.failures = claim.refusals = 0
        self._wake.set()

    # -- writing

    async def run(self) -> None:
        """Write until cancelled."""
        try:
            while True:
                await self._pause()
                for uid in self._due():
                    self._busy = uid
                    await self._serve(uid)
                    self._busy = ""
        finally:
            self._busy = ""

    async def finish(self, seconds: float) -> None:
        """Wait for writes that nothing is known to stand in the way of, so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._busy or any(
                    claim.due is not None and not claim.failures and not claim.refusals
                    for claim in self._claims.values()
                ):
                    await asyncio.sleep(0.01)

    def _due(self) -> list[str]:
        now = self._clock()
        due = [(uid, each) for uid, each in self._claims.items() if each.due is not None and each.due <= now]
        return [uid for uid, each in sorted(due, key=lambda pair: (bool(pair[1].wanted), pair[1].due))]

    async def _pause(self) -> None:
        """Until there is something to do."""
        while not self._due():
            self._wake.clear()
            wait = min((each.due for each in self._claims.values() if each.due is not None), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if wait is None else max(0.0, wait - self._clock())):
                    await self._wake.wait()

    async def _serve(self, uid: str) -> None:
        claim = self._claims[uid]
        wanted, claim.due = claim.wanted, None
        refused = failed = ""
        code = 0
        try:
            refused = await self._bring_in_line(claim.ref, wanted)
        except ApiError as error:
            code = error.code
            if code in _REFUSALS:
                refused = str(error)
            elif code != 404:
                failed = str(error)
        except InputError as error:
            failed = str(error)
        if claim.wanted is not wanted:
            return  # it is due again
        if failed:
            self._failed(claim, failed, at_once=code == 409)
        elif refused:
            self._refused(claim, refused, code)
        else:
            claim.failures = claim.refusals = 0
            claim.problem = ""
            if not wanted:
                del self._claims[uid]

    async def _bring_in_line(self, ref: ClaimRef, wanted: Sequence[Tree]) -> str:
        """Read a claim, and write what it should tell if it does not; what the server left out of it."""
        tree = await self._client.get(RESOURCE_CLAIMS, ref.name, ref.namespace)
        sight = see_claim(tree, self._driver)
        if sight.uid != ref.uid or not sight.allocated:
            return ""  # replaced, or deallocated: the server has taken out what was told
        there = [entry for entry in wanted if key_of(entry) in sight.allocated]
        strange = [entry for entry in wanted if key_of(entry) not in sight.allocated]
        if not same(sight, there):
            moment = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
            answer = await self._client.patch(
                RESOURCE_CLAIMS,
                ref.name,
                make_patch(ref, sight, there, moment),
                ref.namespace,
                subresource="status",
                type="apply",
                field_manager=self._driver,
                force=True,
            )
            if not covers(see_claim(answer, self._driver), there):
                return _DROPPED
            self.counters.written += 1
        if strange:
            names = ", ".join("/".join(filter(None, key_of(entry))) for entry in strange)
            return f"it has no such devices of driver {self._driver}: {names}"
        return ""

    def _failed(self, claim: _Claim, problem: str, *, at_once: bool) -> None:
        claim.failures += 1
        self.counters.failures += 1
        if not at_once:  # else somebody has written the claim meanwhile
            claim.problem = problem
        _log.debug("%s: claim %s: its status is not written: %s", self._driver, claim.ref, problem)
        waits = Backoff(first=0.02, most=5.0) if at_once else self._backoff
        claim.due = self._clock() + waits.delay(claim.failures, self._dice)

    def _refused(self, claim: _Claim, problem: str, code: int) -> None:
        claim.refusals += 1
        self.counters.refused += 1
        # The server begins with the claim's name; without it the reason is the same for all.
        _, _, reason = problem.partition(f'"{claim.ref.name}" is ')
        claim.problem = reason or problem
        what = f"claim {claim.ref}: its status does not tell about devices: {claim.problem}"
        self._tell_once(claim.problem if code else claim.problem.partition(":")[0], what)
        if claim.refusals < MOST_REFUSALS:
            claim.due = self._clock() + self._seldom.delay(claim.refusals, self._dice)
        elif not claim.wanted:
            del self._claims[claim.ref.uid]

    def _tell_once(self, kind: str, what: str) -> None:
        if kind not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(kind)
            _log.warning("driver %s: %s", self._driver, what)
