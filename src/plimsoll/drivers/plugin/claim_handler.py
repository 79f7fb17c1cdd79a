"""Handler of the node's calls for claims.

`ClaimHandler` reads claims from the API, calls the driver for one claim at a time, validates its responses
and stores CDI files and checkpoints. Guarantees: every claim of a call gets a response; an exception of the
driver fails that claim only and is logged; a call that the node has given up is still completed, and prepares
no claim that the node has unprepared since; with `lock`, two processes of the same driver take turns.

DIFF: in the Go helper one claim that cannot be read fails all claims of a call; here each claim has its own
response (test_a_claim_that_cannot_be_read_fails_alone).
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
from plimsoll.common.tasks import cancel_tasks, start_task
from plimsoll.drivers.plugin.claim_reader import check_ref, read_claim
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError, Driver, InjectedDevice
from plimsoll.drivers.plugin.metadata import POD_CLAIM_NAME, MetadataFiles
from plimsoll.drivers.plugin.prepared_claim_store import PreparedClaimStore
from plimsoll.drivers.plugin.services import Devices
from plimsoll.protocols.cdi import CdiFault, parse_name
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

_log = logging.getLogger("plimsoll.driver")
R = TypeVar("R")

_LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_REQUEST = re.compile(f"{_LABEL}(/{_LABEL})?")
_LOCK_RETRY_SECONDS = 0.02
_BAD_RESPONSE = "BadAnswer"
#: Claims read from the API at the same time.
_MAX_CONCURRENT_READS = 16


@dataclass(frozen=True, slots=True)
class ClaimCall:
    """Completed call for one claim: its duration, and the error if it failed."""

    method: str
    ref: ClaimRef
    seconds: float
    refusal: ClaimError | None = None


@dataclass
class ClaimCallCounters:
    """Numbers of claims by result."""

    prepared: int = 0
    refused: int = 0
    unprepared: int = 0
    kept: int = 0
    faults: int = 0
    #: Called after every claim.
    observers: list[Callable[[ClaimCall], None]] = field(default_factory=list)


class ClaimHandler:
    """Prepares and unprepares the claims of one driver."""

    def __init__(
        self,
        driver: Driver,
        client: Client,
        store: PreparedClaimStore,
        metadata: MetadataFiles,
        *,
        lock: Path | None = None,
    ) -> None:
        self.counters = ClaimCallCounters()
        self._driver = driver
        self._client = client
        self._store = store
        self._metadata = metadata
        self._lock = lock
        self._mutex = asyncio.Lock()
        self._reading = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        #: For each call that prepares claims: the UIDs that were unprepared since it began.
        self._unprepared_since: list[set[str]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def prepare(self, refs: Sequence[ClaimRef]) -> Mapping[str, Devices | ClaimError]:
        """Handle NodePrepareResources."""
        return await self._run_to_completion(self._prepare(refs))

    async def unprepare(self, refs: Sequence[ClaimRef]) -> Mapping[str, ClaimError | None]:
        """Handle NodeUnprepareResources."""
        return await self._run_to_completion(self._unprepare(refs))

    async def release(self, ref: ClaimRef) -> ClaimError | None:
        """Unprepare one claim on behalf of the driver, which may know only its UID."""
        return (await self._run_to_completion(self._unprepare([ref], unnamed=True)))[ref.uid]

    async def restore(self, uids: Callable[[], Container[str]]) -> list[CdiFault]:
        """Write missing CDI files of device metadata while no call is in progress."""
        async with self._serialized():
            return await asyncio.to_thread(self._metadata.restore, uids())

    async def finish(self, grace: float) -> None:
        """Wait for calls in flight; cancel those that take longer than `grace` seconds."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=grace)
        await cancel_tasks(late)

    async def _run_to_completion(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a call to its end even if the caller is cancelled."""
        return await asyncio.shield(start_task(self._tasks, work))

    # -- preparing

    async def _prepare(self, refs: Sequence[ClaimRef]) -> dict[str, Devices | ClaimError]:
        responses: dict[str, Devices | ClaimError] = {}
        unprepared: set[str] = set()
        self._unprepared_since.append(unprepared)
        try:
            # Read before taking the lock, so that other calls can proceed meanwhile.
            claims = await asyncio.gather(*(self._read(ref) for ref in refs))
            async with self._serialized():
                for ref, claim in zip(refs, claims, strict=True):
                    started = time.monotonic()
                    if ref.uid in unprepared:
                        # The node has forgotten this call, and would not unprepare the claim again.
                        claim = ClaimError(f"claim {ref} was unprepared while it was read", "Outdated")
                    response = claim if isinstance(claim, ClaimError) else await self._prepare_one(claim)
                    responses[ref.uid] = response
                    refusal = response if isinstance(response, ClaimError) else None
                    self._record_call(ClaimCall("prepare", ref, time.monotonic() - started, refusal))
        finally:
            # By identity: the sets of other calls may be equal.
            self._unprepared_since = [each for each in self._unprepared_since if each is not unprepared]
        return responses

    async def _read(self, ref: ClaimRef) -> AllocatedClaim | ClaimError:
        async with self._reading:
            return await read_claim(self._client, ref, self._driver.name)

    async def _prepare_one(self, claim: AllocatedClaim) -> Devices | ClaimError:
        try:
            devices = await self._prepare_devices(claim)
            if isinstance(devices, ClaimError):
                return devices
            return await asyncio.to_thread(self._write_metadata, claim, devices)
        except Exception as error:  # an error of the driver fails this claim only
            return self._on_exception("prepare", claim.ref, error)

    async def _prepare_devices(self, claim: AllocatedClaim) -> Devices | ClaimError:
        if self._store.has(claim.ref.uid):
            known = await asyncio.to_thread(self._store.get, claim.ref.uid)
            if known is not None:
                return known if isinstance(known, ClaimError) else known.devices
        response = validate_prepared(self._driver.name, await self._driver.prepare(claim))
        if isinstance(response, ClaimError):
            return response
        injected = [device for device in response if isinstance(device, InjectedDevice)]
        if not injected:
            return tuple(device for device in response if isinstance(device, PreparedDevice))
        done = await asyncio.to_thread(self._store.add, claim.ref, injected)
        return done if isinstance(done, ClaimError) else done.devices

    def _write_metadata(self, claim: AllocatedClaim, devices: Devices) -> Devices | ClaimError:
        """Write the metadata files and add their CDI devices to the first device of each request.

        DIFF: the Go helper logs write failures and containers start without metadata; here the claim fails
        (test_metadata_that_cannot_be_written_fails_the_claim).
        """
        pod_claim = claim.claim.metadata.annotations.get(POD_CLAIM_NAME, "")
        names = self._metadata.write(claim.ref, devices, pod_claim)
        if isinstance(names, ClaimError) or not names:
            return names if isinstance(names, ClaimError) else devices
        mounted = []
        for device in devices:
            short = [request.partition("/")[0] for request in device.requests]
            more = tuple(names.pop(request) for request in dict.fromkeys(short) if request in names)
            mounted.append(replace(device, cdi=device.cdi + more) if more else device)
        return tuple(mounted)

    # -- unpreparing

    async def _unprepare(
        self, refs: Sequence[ClaimRef], *, unnamed: bool = False
    ) -> dict[str, ClaimError | None]:
        responses: dict[str, ClaimError | None] = {}
        async with self._serialized():
            for ref in refs:
                started = time.monotonic()
                for unprepared in self._unprepared_since:
                    unprepared.add(ref.uid)
                responses[ref.uid] = refusal = await self._unprepare_one(ref, unnamed)
                self._record_call(ClaimCall("unprepare", ref, time.monotonic() - started, refusal))
        return responses

    async def _unprepare_one(self, ref: ClaimRef, unnamed: bool) -> ClaimError | None:
        if (refusal := check_ref(ref, unnamed=unnamed)) is not None:
            return refusal
        try:
            if self._store.has(ref.uid):
                not_saved = await asyncio.to_thread(self._store.mark_releasing, ref.uid)
                if not_saved is not None:
                    return not_saved
            response: object = await self._driver.unprepare(ref)
            if isinstance(response, ClaimError):
                return response
            if response is not None:
                kind = type(response).__name__
                return ClaimError(
                    f"driver {self._driver.name} returned {kind} from unprepare; return None or a ClaimError",
                    _BAD_RESPONSE,
                )
            return await asyncio.to_thread(lambda: self._store.remove(ref.uid) or self._metadata.remove(ref))
        except Exception as error:
            return self._on_exception("unprepare", ref, error)

    # -- both

    def _on_exception(self, method: str, ref: ClaimRef, error: Exception) -> ClaimError:
        self.counters.faults += 1
        _log.exception("driver %s: %s of claim %s failed", self._driver.name, method, ref, exc_info=error)
        return ClaimError(f"driver {self._driver.name}: {type(error).__name__}: {error}", "DriverFault")

    def _record_call(self, call: ClaimCall) -> None:
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
                _log.exception("driver %s: observer of claim calls failed", self._driver.name)

    @asynccontextmanager
    async def _serialized(self) -> AsyncIterator[None]:
        async with self._mutex:
            if self._lock is None:
                yield
                return
            file = await acquire_lock(self._lock)
            try:
                yield
            finally:
                os.close(file)


def validate_prepared(driver: str, response: Any) -> Sequence[PreparedDevice | InjectedDevice] | ClaimError:
    """Validate the response of a driver. Pure."""
    if isinstance(response, ClaimError):
        return response
    problem = _find_problem(response)
    if problem:
        return ClaimError(
            f"driver {driver} returned an invalid response from prepare: {problem}", _BAD_RESPONSE
        )
    found: Sequence[PreparedDevice | InjectedDevice] = response
    return found


def _find_problem(response: Any) -> str:
    if not isinstance(response, (list, tuple)):
        return f"{type(response).__name__} instead of a list of devices or a ClaimError"
    kinds = {type(device) for device in response}
    if len(kinds) > 1 or not kinds <= {PreparedDevice, InjectedDevice}:
        names = ", ".join(sorted(kind.__name__ for kind in kinds))
        return f"a list of {names}; use either PreparedDevice or InjectedDevice for all devices of a claim"
    for device in response:
        for what, text in (("pool", device.pool), ("device", device.device)):
            if not isinstance(text, str) or not text:
                return f"a device without a {what} name"
        if isinstance(device.requests, str):
            return f"device {device.device}: requests is a string, not a list of names"
        for request in device.requests:
            if not isinstance(request, str) or not _REQUEST.fullmatch(request):
                return f"device {device.device}: {request!r} is not a valid request name"
        if isinstance(device, PreparedDevice):
            for name in device.cdi:
                if not isinstance(name, str) or parse_name(name) is None:
                    return f"device {device.device}: {name!r} is not a valid CDI device name"
    return ""


async def acquire_lock(path: Path) -> int:
    """Lock a file shared by the processes of one driver and return its descriptor; closing it unlocks.

    Uses the same kind of lock as the Go helper, so that drivers of both kinds can replace each other.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        while True:
            try:
                fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
                return file
            except BlockingIOError:
                await asyncio.sleep(_LOCK_RETRY_SECONDS)
    except BaseException:
        os.close(file)
        raise
