"""One of several does the work: leader election by a Lease (coordination.k8s.io).

Owns `Election`, with the fields and the timing that client-go uses, so that candidates of either kind can
share a lease. Promises: work runs only while the lease is ours and was renewed in time; it is cancelled, and
waited for, before anyone else may take over; a candidate that is cancelled gives the lease back. Clocks of
different machines are never compared: a lease is taken over when it has not changed for its duration on our
own clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random
from typing import Any

from plimsoll.cluster.client.client import Client
from plimsoll.cluster.client.endpoints import LEASES
from plimsoll.errors import ApiError, ConfigError

_log = logging.getLogger("plimsoll.leader")
#: Candidates wait a little longer than the retry period, each by another amount.
_JITTER = 0.2


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds; the defaults are those of the Kubernetes control plane."""

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
    """A candidate for one lease."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        timing: Timing | None = None,
        release: bool = True,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
        dice: Random | None = None,
    ) -> None:
        if not identity:
            raise ConfigError("leader election: a candidate needs an identity of its own")
        self.timing = timing or Timing()
        self.timing.check()
        self.namespace = namespace
        self.name = name
        self.identity = identity
        self._client = client
        self._release = release
        self._wall = wall
        self._dice = dice or Random()
        self._lease: dict[str, Any] | None = None  # as last seen
        self._record: dict[str, Any] = {}
        self._seen_at = 0.0

    @property
    def holder(self) -> str:
        """Who holds the lease, as last seen."""
        return str(self._record.get("holderIdentity") or "")

    @property
    def leading(self) -> bool:
        return self.holder == self.identity

    async def run(self, lead: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Campaign, lead, campaign again if the lease is lost; ends when `lead` does, or when cancelled."""
        try:
            while True:
                renewed = await self._acquire()
                _log.info("%s/%s: %s leads", self.namespace, self.name, self.identity)
                work = asyncio.ensure_future(lead())
                keep = asyncio.ensure_future(self._keep(renewed))
                try:
                    await asyncio.wait((work, keep), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    # Whatever happened, the work has stopped before the lease can be given away.
                    keep.cancel()
                    lost = keep.done() and not work.done()
                    work.cancel()
                    await asyncio.gather(work, keep, return_exceptions=True)
                if not lost:
                    return work.result()
                _log.warning("%s/%s: %s lost the lease", self.namespace, self.name, self.identity)
        finally:
            if self._release and self.leading:
                with suppress(ApiError, TimeoutError):
                    async with asyncio.timeout(self.timing.retry):
                        await self.give_back()

    async def _acquire(self) -> float:
        """Wait for the lease; the time at which the call that got it began."""
        while True:
            began = self._clock()
            if await self.attempt(self.timing.renew):
                return began
            await asyncio.sleep(self.timing.retry * (1 + _JITTER * self._dice.random()))

    async def _keep(self, renewed: float) -> None:
        """Renew for as long as it works; returns when the lease is lost."""
        while (left := renewed + self.timing.renew - self._clock()) > 0:
            await asyncio.sleep(min(self.timing.retry, left))
            began = self._clock()
            left = renewed + self.timing.renew - began
            # However long the call takes: when the time is up, the work must stop.
            if left > 0 and await self.attempt(left):
                renewed = began
            elif self.holder and not self.leading:
                return

    async def attempt(self, seconds: float | None = None) -> bool:
        """Take or renew the lease once, in so much time; whether it is ours now."""
        try:
            async with asyncio.timeout(seconds):
                return await self._attempt()
        except TimeoutError:
            _log.warning("%s/%s: no answer in %.1f s", self.namespace, self.name, seconds)
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
                pass  # somebody else wrote, or the answer was lost: look first
        try:
            lease = await self._client.get(LEASES, self.name, self.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            fresh = {"metadata": {"name": self.name, "namespace": self.namespace}, "spec": self._spec({})}
            self._observe(await self._client.create(LEASES, fresh, self.namespace))
            return True
        self._observe(lease)
        if self.holder and not self.leading and self._valid():
            return False
        return await self._write(lease)

    async def _write(self, lease: dict[str, Any]) -> bool:
        spec = lease.get("spec")
        changed = {**lease, "spec": {**(spec or {}), **self._spec(spec or {})}}
        self._observe(await self._client.update(LEASES, changed, self.namespace))
        return True

    async def give_back(self) -> None:
        """Let go of the lease, so that another need not wait for it to run out."""
        if self._lease is None or not self.leading:
            return
        now = _micro(self._wall())
        spec = {**self._record, "holderIdentity": "", "leaseDurationSeconds": 1}
        spec |= {"renewTime": now, "acquireTime": now}
        self._observe(await self._client.update(LEASES, {**self._lease, "spec": spec}, self.namespace))

    def _spec(self, old: dict[str, Any]) -> dict[str, Any]:
        now = _micro(self._wall())
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
        """Our own steady clock: that of the loop, which also measures sleeps and timeouts."""
        return asyncio.get_running_loop().time()

    def _valid(self) -> bool:
        """Whether the lease, as last seen, still binds everyone."""
        duration = self._record.get("leaseDurationSeconds")
        return self._seen_at + (duration if isinstance(duration, int) else 0) > self._clock()


def _micro(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
