"""Leader election by a Lease (coordination.k8s.io).

`Election` uses the fields and the timing of client-go, so that candidates of either kind can share a lease.
Work runs only while the lease is held and was renewed in time; `check` verifies that at any time, also after
the process was stopped or the machine suspended. When the lease is lost, the work is cancelled and awaited,
and `run` raises LeaseLostError: writes may still be in flight, so the same process must not continue. A
candidate whose work ended with responses to all its writes releases the lease. Clocks of different machines
are never compared: a lease is taken over if it has not changed for its duration on the local clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from plimsoll.api.timestamps import format_micro_time
from plimsoll.client.client import Client
from plimsoll.client.endpoints import LEASES
from plimsoll.errors import ApiError, ConfigError, LeaseLostError

_log = logging.getLogger("plimsoll.leader")
#: Random part of the retry period of candidates.
_JITTER = 0.2


def read_uptime() -> float:
    """Return the seconds since boot, including those in which the machine was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Durations in seconds; the defaults are those of the Kubernetes control plane."""

    lease: float = 15.0
    renew: float = 10.0
    retry: float = 2.0

    def check(self) -> None:
        if not self.lease > self.renew > self.retry * (1 + _JITTER) > 0:
            raise ConfigError(
                f"leader election: the lease ({self.lease:g} s) must outlast the renew deadline "
                f"({self.renew:g} s), and that the retry period ({self.retry:g} s) by a fifth"
            )


class Election:
    """Candidate for one lease."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: LeaseTiming | None = None,
        release: bool = True,
        settled: Callable[[], bool] = lambda: True,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        uptime: Callable[[], float] = read_uptime,
        rng: Random | None = None,
    ) -> None:
        """Create a candidate.

        `settled` returns, after the work has ended, whether all its writes have a response; only then is the
        lease released. `uptime` is a clock in seconds that includes the time in which the machine is
        suspended.
        """
        if not identity:
            raise ConfigError("leader election: a candidate needs a unique identity")
        self.timing = timing or LeaseTiming()
        self.timing.check()
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self._client = client
        self.release = release
        self._settled = settled
        self._wall = wall
        self._uptime = uptime
        self._rng = rng or Random()
        self._lease: dict[str, Any] | None = None  # as last seen
        self._record: dict[str, Any] = {}
        self._seen_at = 0.0
        self._write_until = float("-inf")  # by `uptime`
        #: Whether the last holder released the lease, that is, has no writes in flight.
        self.was_released = False

    @property
    def holder(self) -> str:
        """Identity of the holder, as last seen."""
        return str(self._record.get("holderIdentity") or "")

    @property
    def leading(self) -> bool:
        return self.holder == self.identity

    def holds(self) -> bool:
        """Return whether the lease is held now and was renewed in time."""
        return self._uptime() < self._write_until

    def check(self) -> None:
        """Raise LeaseLostError unless the lease is held; call this right before each write."""
        if not self.holds():
            raise LeaseLostError(f"lease {self.namespace}/{self.name} was not renewed in time")

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the lease, then run `lead` to its end; raises LeaseLostError if the lease is lost."""
        try:
            renewed = await self._acquire()
            _log.info("%s/%s: %s leads", self.namespace, self.name, self.identity)
            work = asyncio.ensure_future(lead())
            keep = asyncio.ensure_future(self._keep(renewed))
            try:
                await asyncio.wait((work, keep), return_when=asyncio.FIRST_COMPLETED)
            finally:
                # In any case, the work stops before the lease can be released.
                keep.cancel()
                lost = keep.done() and not work.done()
                if lost:
                    self._write_until = float("-inf")
                work.cancel()
                await asyncio.gather(work, keep, return_exceptions=True)
            if lost:
                raise LeaseLostError(f"lease {self.namespace}/{self.name} was lost by {self.identity}")
            return work.result()
        finally:
            if self.release and self.leading and self.holds() and self._settled():
                with suppress(ApiError, TimeoutError):
                    # As long as client-go: others wait for the whole lease if it is not released.
                    async with asyncio.timeout(self.timing.renew):
                        await self.release_lease()
            self._write_until = float("-inf")

    async def _acquire(self) -> float:
        """Wait for the lease; return the time at which the successful call started."""
        while True:
            started, up = self._clock(), self._uptime()
            if await self.attempt(self.timing.renew):
                self._write_until = up + self.timing.renew
                return started
            await asyncio.sleep(self.timing.retry * (1 + _JITTER * self._rng.random()))

    async def _keep(self, renewed: float) -> None:
        """Renew the lease; returns when it is lost."""
        while (left := renewed + self.timing.renew - self._clock()) > 0:
            await asyncio.sleep(min(self.timing.retry, left))
            started, up = self._clock(), self._uptime()
            left = renewed + self.timing.renew - started
            if not self.holds():
                return  # the process was stopped, or the machine suspended, for too long
            # The call has a timeout, because the work must stop at the renew deadline.
            if left > 0 and await self.attempt(left):
                if not self.holds():
                    return  # writes were refused meanwhile, and are not repeated
                renewed = started
                self._write_until = up + self.timing.renew
            elif self.holder and not self.leading:
                return

    async def attempt(self, seconds: float | None = None) -> bool:
        """Acquire or renew the lease once, within a timeout; return whether it is held."""
        try:
            async with asyncio.timeout(seconds):
                return await self._attempt()
        except TimeoutError:
            _log.warning("%s/%s: no response within %.1f s", self.namespace, self.name, seconds)
            return False
        except ApiError as error:
            if error.code not in (404, 409):
                _log.warning("%s/%s: %s", self.namespace, self.name, error)
            return False

    async def _attempt(self) -> bool:
        if self.leading and self._lease is not None and self._valid():
            try:
                return await self._write(self._lease)
            except ApiError:
                pass  # another candidate wrote, or the response was lost: read first
        try:
            lease = await self._client.get(LEASES, self.name, self.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            fresh = {"metadata": {"name": self.name, "namespace": self.namespace}, "spec": self._spec({})}
            self._observe(await self._client.create(LEASES, fresh, self.namespace))
            self.was_released = False
            return True
        self._observe(lease)
        if self.holder and not self.leading and self._valid():
            return False
        was_released = self.was_released if self.leading else not self.holder
        written = await self._write(lease)
        self.was_released = was_released
        return written

    async def _write(self, lease: dict[str, Any]) -> bool:
        spec = lease.get("spec")
        changed = {**lease, "spec": {**(spec or {}), **self._spec(spec or {})}}
        self._observe(await self._client.update(LEASES, changed, self.namespace))
        return True

    async def release_lease(self) -> None:
        """Release the lease, so that another candidate need not wait for it to expire."""
        try:
            await self._write_release()
        except ApiError as error:
            if error.code != 409:
                raise
            # A renewal that was cancelled may have been stored all the same.
            self._observe(await self._client.get(LEASES, self.name, self.namespace))
            await self._write_release()

    async def _write_release(self) -> None:
        if self._lease is None or not self.leading:
            return
        now = format_micro_time(self._wall().timestamp())
        spec = {**self._record, "holderIdentity": "", "leaseDurationSeconds": 1}
        spec |= {"renewTime": now, "acquireTime": now}
        self._observe(await self._client.update(LEASES, {**self._lease, "spec": spec}, self.namespace))

    def _spec(self, old: dict[str, Any]) -> dict[str, Any]:
        now = format_micro_time(self._wall().timestamp())
        transitions = old.get("leaseTransitions") or 0
        acquired = now
        if old.get("holderIdentity") == self.identity:
            acquired = old.get("acquireTime") or now
        elif old:
            transitions += 1
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(1, round(self.timing.lease)),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _observe(self, lease: dict[str, Any]) -> None:
        spec = lease.get("spec")
        record = spec if isinstance(spec, dict) else {}
        if record != self._record or self._lease is None:
            self._record = record
            self._seen_at = self._clock()
        self._lease = lease

    @staticmethod
    def _clock() -> float:
        """Return the monotonic clock of the event loop."""
        return asyncio.get_running_loop().time()

    def _valid(self) -> bool:
        """Return whether the lease, as last seen, has not expired."""
        duration = self._record.get("leaseDurationSeconds")
        return self._seen_at + (duration if isinstance(duration, int) else 0) > self._clock()
