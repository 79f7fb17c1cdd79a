"""Calls of a node about claims, carried out by a driver.

Owns `Calls`: reads claims, asks the driver, one claim after the other, judges its answers, and keeps files
and records for it. Promises: every claim of a call gets an answer; what a driver raises becomes a refusal of
that claim and a line in the log; a node that gives up waiting does not interrupt a driver half way; with
`lock` two processes of the same driver take turns.

DIFF: in the Go helper one claim that cannot be read fails all claims of a call; here each claim has its own
answer (test_a_claim_that_cannot_be_read_fails_alone).
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import struct
import time
from collections.abc import AsyncIterator, Callable, Container, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.client import Client
from plimsoll.drivers.plugin.claims import READ_SECONDS, check_ref, read_claim
from plimsoll.drivers.plugin.driver import AllocatedClaim, Driver, InjectedDevice, Refusal
from plimsoll.drivers.plugin.metadata import POD_CLAIM_NAME, MetadataFiles
from plimsoll.drivers.plugin.prepared_claim_store import PreparedClaimStore
from plimsoll.drivers.plugin.services import Devices
from plimsoll.protocols.cdi import CdiFault, parse_name
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

_log = logging.getLogger("plimsoll.driver")
R = TypeVar("R")

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_REQUEST = re.compile(f"{_LABEL}(/{_LABEL})?")
_NO_LOCK_RETRY = 0.02
_BAD = "BadAnswer"
#: Claims read from the API at the same time.
_MOST_READS = 16


@dataclass(frozen=True, slots=True)
class Call:
    """One claim made ready or released: how long the driver took, and why it refused, if it did."""

    method: str
    ref: ClaimRef
    seconds: float
    refusal: Refusal | None = None


@dataclass
class CallCounters:
    """Claims by outcome."""

    prepared: int = 0
    refused: int = 0
    unprepared: int = 0
    kept: int = 0
    faults: int = 0
    #: Told of every claim.
    observers: list[Callable[[Call], None]] = field(default_factory=list)


class Calls:
    """The claims of one driver."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        hands: PreparedClaimStore,
        metadata: MetadataFiles,
        *,
        lock: Path | None = None,
        read_seconds: float = READ_SECONDS,
    ) -> None:
        self.counters = CallCounters()
        self._driver = driver
        self._client = client
        self._hands = hands
        self._metadata = metadata
        self._lock = lock
        self._read_seconds = read_seconds
        self._turn = asyncio.Lock()
        self._reading = asyncio.Semaphore(_MOST_READS)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def prepare(self, refs: Sequence[ClaimRef]) -> Mapping[str, Devices | Refusal]:
        """NodePrepareResources."""
        return await self._uninterrupted(self._prepare(refs))

    async def unprepare(self, refs: Sequence[ClaimRef]) -> Mapping[str, Refusal | None]:
        """NodeUnprepareResources."""
        return await self._uninterrupted(self._unprepare(refs))

    async def restore(self, uids: Callable[[], Container[str]]) -> list[CdiFault]:
        """Write CDI files of metadata again where they are missing, while no call is under way."""
        async with self._one_at_a_time():
            return await asyncio.to_thread(self._metadata.restore, uids())

    async def finish(self, grace: float) -> None:
        """Wait for calls under way; those that take longer are cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _uninterrupted(self, work: Coroutine[Any, Any, R]) -> R:
        """Carry out a call to its end, whether or not somebody still waits for its answer."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    # -- making ready

    async def _prepare(self, refs: Sequence[ClaimRef]) -> dict[str, Devices | Refusal]:
        # What takes long comes before the turn: others may go on meanwhile.
        claims = await asyncio.gather(*(self._read(ref) for ref in refs))
        answers: dict[str, Devices | Refusal] = {}
        async with self._one_at_a_time():
            for ref, claim in zip(refs, claims, strict=True):
                began = time.monotonic()
                answer = claim if isinstance(claim, Refusal) else await self._prepare_one(claim)
                answers[ref.uid] = answer
                refusal = answer if isinstance(answer, Refusal) else None
                self._note(Call("prepare", ref, time.monotonic() - began, refusal))
        return answers

    async def _read(self, ref: ClaimRef) -> AllocatedClaim | Refusal:
        async with self._reading:
            return await read_claim(self._client, ref, self._driver.name, timeout=self._read_seconds)

    async def _prepare_one(self, claim: AllocatedClaim) -> Devices | Refusal:
        try:
            devices = await self._ask(claim)
            if isinstance(devices, Refusal):
                return devices
            return await asyncio.to_thread(self._tell_containers, claim, devices)
        except Exception as error:  # the driver's own: nobody else's claim suffers
            return self._fault("prepare", claim.ref, error)

    async def _ask(self, claim: AllocatedClaim) -> Devices | Refusal:
        known = await asyncio.to_thread(self._hands.known, claim.ref.uid)
        if known is not None:
            return known if isinstance(known, Refusal) else known.devices
        answer = judge(self._driver.name, await self._driver.prepare(claim))
        if isinstance(answer, Refusal):
            return answer
        handed = [device for device in answer if isinstance(device, InjectedDevice)]
        if not handed:
            return tuple(device for device in answer if isinstance(device, PreparedDevice))
        done = await asyncio.to_thread(self._hands.hand, claim.ref, handed)
        return done if isinstance(done, Refusal) else done.devices

    def _tell_containers(self, claim: AllocatedClaim, devices: Devices) -> Devices | Refusal:
        """Write the files about devices, and add what mounts them to the first device of each request.

        DIFF: the Go helper logs what it cannot write and containers start without; here the claim is not
        ready (test_metadata_that_cannot_be_written_is_a_refusal).
        """
        pod_claim = claim.claim.metadata.annotations.get(POD_CLAIM_NAME, "")
        names = self._metadata.write(claim.ref, devices, pod_claim)
        if isinstance(names, Refusal) or not names:
            return names if isinstance(names, Refusal) else devices
        mounted = []
        for device in devices:
            short = [request.partition("/")[0] for request in device.requests]
            more = tuple(names.pop(request) for request in dict.fromkeys(short) if request in names)
            mounted.append(replace(device, cdi=device.cdi + more) if more else device)
        return tuple(mounted)

    # -- releasing

    async def _unprepare(self, refs: Sequence[ClaimRef]) -> dict[str, Refusal | None]:
        answers: dict[str, Refusal | None] = {}
        async with self._one_at_a_time():
            for ref in refs:
                began = time.monotonic()
                answers[ref.uid] = refusal = await self._unprepare_one(ref)
                self._note(Call("unprepare", ref, time.monotonic() - began, refusal))
        return answers

    async def _unprepare_one(self, ref: ClaimRef) -> Refusal | None:
        if (refusal := check_ref(ref)) is not None:
            return refusal
        try:
            answer: object = await self._driver.unprepare(ref)
            if isinstance(answer, Refusal):
                return answer
            if answer is not None:
                kind = type(answer).__name__
                return Refusal(f"driver {self._driver.name} answered with {kind}, not with a Refusal", _BAD)
            return await asyncio.to_thread(
                lambda: self._hands.take_back(ref.uid) or self._metadata.remove(ref)
            )
        except Exception as error:
            return self._fault("unprepare", ref, error)

    # -- both

    def _fault(self, method: str, ref: ClaimRef, error: Exception) -> Refusal:
        self.counters.faults += 1
        _log.exception("driver %s: %s of claim %s failed", self._driver.name, method, ref, exc_info=error)
        return Refusal(f"driver {self._driver.name}: {type(error).__name__}: {error}", "DriverFault")

    def _note(self, call: Call) -> None:
        counters = self.counters
        if call.method == "prepare":
            counters.prepared += call.refusal is None
            counters.refused += call.refusal is not None
        else:
            counters.unprepared += call.refusal is None
            counters.kept += call.refusal is not None
        if call.refusal is not None and call.refusal.code != "DriverFault":
            _log.warning(
                "driver %s: %s of claim %s refused: %s",
                self._driver.name,
                call.method,
                call.ref,
                call.refusal,
            )
        for observer in counters.observers:
            try:
                observer(call)
            except Exception:
                _log.exception("driver %s: an observer of calls failed", self._driver.name)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        async with self._turn:
            if self._lock is None:
                yield
                return
            file = await take_lock(self._lock)
            try:
                yield
            finally:
                os.close(file)


def judge(driver: str, answer: Any) -> Sequence[PreparedDevice | InjectedDevice] | Refusal:
    """What a driver answered, if it can be used. Pure."""
    if isinstance(answer, Refusal):
        return answer
    problem = _problem(answer)
    if problem:
        return Refusal(f"driver {driver} prepared what cannot be used: {problem}", _BAD)
    found: Sequence[PreparedDevice | InjectedDevice] = answer
    return found


def _problem(answer: Any) -> str:
    if not isinstance(answer, (list, tuple)):
        return f"{type(answer).__name__} in place of a list of devices or a Refusal"
    kinds = {type(device) for device in answer}
    if len(kinds) > 1 or not kinds <= {PreparedDevice, InjectedDevice}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        return f"a list of {names}; all devices of a claim are PreparedDevice, or all are InjectedDevice"
    for device in answer:
        for what, text in (("pool", device.pool), ("device", device.device)):
            if not isinstance(text, str) or not text:
                return f"a device without the name of its {what}"
        if isinstance(device.requests, str):
            return f"device {device.device}: requests is a text; write a list of names"
        for request in device.requests:
            if not isinstance(request, str) or not _REQUEST.fullmatch(request):
                return f"device {device.device}: {request!r} is not the name of a request"
        if isinstance(device, PreparedDevice):
            for name in device.cdi:
                if not isinstance(name, str) or parse_name(name) is None:
                    return f"device {device.device}: {name!r} is not the name of a CDI device"
    return ""


async def take_lock(path: Path) -> int:
    """The lock that processes of one driver share, as a file that is open; closing it gives it back.

    It is of the kind that the Go helper takes, so that a driver of either sort can relieve the other.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        while True:
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, whole)
                return file
            except BlockingIOError:
                await asyncio.sleep(_NO_LOCK_RETRY)
    except BaseException:
        os.close(file)
        raise
