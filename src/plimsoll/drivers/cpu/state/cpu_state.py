"""The book of a CPU driver: who holds which CPUs, and what is left to share.

Owns the order in which things become lasting. Prepare: decide, save the record, write the CDI file; what
fails is undone. Release: remove the CDI file, then save the record; what fails leaves the claim its CPUs. So
at every moment, also after a crash, a CPU that a container was told of is in the record or in a CDI file, and
no other claim gets it.

A book does a little blocking I/O in `open`, `prepare`, `release` and `recheck` (a file of some KiB, synced).
It may be used from any thread: what changes it happens one at a time, and `holdings` is never changed but
replaced, so that a reader keeps what it has read.

DIFF: CPUs are held from prepare to release through restarts of driver, runtime and machine; the Go driver
forgets those of claims without a running container (test_issue_258_claims_survive_a_restart).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.resource import ResourceSlice
from plimsoll.common.checkpoint import Finding, RecordFile, Severity
from plimsoll.drivers.cpu.devices.groups import Arrangement
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state import cdi
from plimsoll.drivers.cpu.state.affinity import near_of, needs_neighbours
from plimsoll.drivers.cpu.state.checkpoint import make_body, record_file
from plimsoll.drivers.cpu.state.holdings import Holding, How, union
from plimsoll.drivers.cpu.state.prepare import Plan, Scene, fill, plan, repeat
from plimsoll.drivers.cpu.state.reconcile import (
    Doubt,
    Seen,
    apply,
    doubt,
    find_disputes,
    find_misplaced,
    reconcile,
)
from plimsoll.drivers.cpu.state.refusals import PrepareFault, Why, quote
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.errors import StoreError
from plimsoll.protocols.cdi import CdiFault
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _alone(
    method: Callable[Concatenate[CpuBook, _P], _R],
) -> Callable[Concatenate[CpuBook, _P], _R]:
    """One such method of a book at a time."""

    @wraps(method)
    def locked(book: CpuBook, /, *args: _P.args, **more: _P.kwargs) -> _R:
        with book.lock:
            return method(book, *args, **more)

    return locked


def held_before(settings: CpuSettings) -> dict[str, CpuSet]:
    """What claims hold by the name of the device, as far as the record tells; nothing is touched.

    For arranging CPUs before there is a book. CPUs that only CDI files name are under no device.
    """
    record = record_file(settings).look().value or {}
    files, _ = cdi.read_files(settings.cdi)
    held = _by_device(record.values())
    if stray := union(file.cpus for uid, file in files.items() if uid not in record):
        held[""] = held.get("", EMPTY) | stray
    return held


def unfiled(settings: CpuSettings) -> tuple[ClaimRef, ...]:
    """Claims of the record without a CDI file, as far as their names are known; nothing is touched."""
    record = record_file(settings).look().value or {}
    refs = (holding.ref for uid, holding in record.items() if not cdi.is_there(settings.cdi, uid))
    return tuple(ref for ref in refs if ref.name)


class CpuBook:
    """Holdings of claims on one machine. Make one with `open`."""

    def __init__(
        self, settings: CpuSettings, topology: Topology, arrangement: Arrangement, record: RecordFile
    ) -> None:
        self.settings = settings
        #: Whether containers share CPUs, so that some must be left to them.
        self.needed: Callable[[], bool] = lambda: False
        self.revision = 0
        self._topology, self._arrangement = topology, arrangement
        self._record = record
        self.lock = threading.RLock()
        self._notes: tuple[Finding, ...] = ()
        self._kept: dict[str, Holding] = {}
        self._doubts: dict[str, Doubt] = {}
        self._leaving: frozenset[str] = frozenset()
        self._why: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._holdings: Mapping[str, Holding] = MappingProxyType({})
        self._held = EMPTY

    @classmethod
    def open(
        cls,
        settings: CpuSettings,
        topology: Topology,
        arrangement: Arrangement,
        *,
        leaving: Iterable[str] = (),
    ) -> CpuBook:
        """The book as record and CDI files have it; `findings` tells what was wrong with them.

        `leaving` are claims (UIDs) that the cluster does not know any more.
        """
        book = cls(settings, topology, arrangement, record_file(settings))
        loaded = book._record.load()
        book._kept = dict(loaded.value or {})
        book._leaving = frozenset(leaving)
        book._notes = (loaded.finding,) if loaded.finding is not None else ()
        book.recheck()
        return book

    # -- what there is

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """By the UID of the claim. Never changed: replaced."""
        return self._holdings

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was wrong when files were last compared, and what is wrong now."""
        holdings = self._holdings
        return (*self._notes, *find_disputes(holdings), *find_misplaced(holdings, self._scene()))

    @property
    def shared(self) -> CpuSet:
        """The CPUs of everybody without a claim."""
        return self._topology.all - self._arrangement.reserved - self.held

    @property
    def held(self) -> CpuSet:
        return self._held

    @property
    def lost(self) -> Mapping[str, CpuSet]:
        """CPUs of claims that are offline, by the UID of the claim."""
        online = self._topology.all
        return {uid: h.granted - online for uid, h in self._holdings.items() if not h.granted <= online}

    @property
    def by_device(self) -> dict[str, CpuSet]:
        """What is held by the name of the device, for arranging CPUs anew."""
        return _by_device(self._holdings.values())

    @property
    def lacks_files(self) -> bool:
        """Whether a CDI file is gone, so that no container of its claim could start; `recheck` helps."""
        folder, gone = self.settings.cdi, self.leaving
        wanted = (uid for uid, h in self._holdings.items() if not h.disputed and uid not in gone)
        return any(not cdi.is_there(folder, uid) for uid in wanted)

    @property
    def leaving(self) -> frozenset[str]:
        """Claims that another driver has released; they are to be `release`d, or to `stay`."""
        return self._leaving & self._holdings.keys()

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def arrangement(self) -> Arrangement:
        return self._arrangement

    # -- claims

    def needs_neighbours(self, claim: AllocatedClaim) -> bool:
        """Whether `near_of` wants the slices of other drivers for a claim that has no CPUs yet."""
        return claim.ref.uid not in self._kept and needs_neighbours(claim)

    def near_of(self, claim: AllocatedClaim, slices: Iterable[ResourceSlice]) -> Mapping[str, CpuSet]:
        return near_of(claim, slices, self._topology)

    @_alone
    def prepare(
        self, claim: AllocatedClaim, *, near: Mapping[str, CpuSet] | None = None
    ) -> Holding | ClaimError:
        """Give a claim its CPUs. `near` are CPUs to prefer, by request.

        A claim without CPUs for this driver gets a holding without grants, of which nothing is kept.
        """
        uid, label = claim.ref.uid, str(claim.ref)
        if problem := cdi.check_uid(uid):
            return PrepareFault(Why.UID, label, text=problem).refusal()
        self._leaving -= {uid}
        file = cdi.read_file(self.settings.cdi, uid)
        if uid not in self._kept and cdi.names_others(self.settings.cdi, self._kept):
            # Somebody else has prepared it, or another one, since we looked: two drivers by mistake.
            self.recheck()
        known = self._holdings.get(uid)
        scene = self._scene(without=uid)
        if known is None:
            planned = plan(claim, scene, near=near, needed=self.needed())
            return self._settle(claim, planned)
        if known.disputed:
            return PrepareFault(Why.DISPUTED, label, cpus=known.cpus, text=known.disputed).refusal()
        if known.adopted:
            return self._settle(claim, fill(claim, known, scene, file.requests))
        if fault := repeat(claim, known, scene):
            return fault.refusal()
        if file.fault or file.cpus != known.granted:
            failed = self._write(known)
            return known if failed is None else self._cdi_refusal("write", uid, failed)
        return known

    @_alone
    def release(self, ref: ClaimRef) -> ClaimError | None:
        """Take the CPUs of a claim back. One that has none is released already."""
        uid = ref.uid
        if cdi.check_uid(uid):
            return None
        # A container must not be told of CPUs that are free, so the file goes first.
        failed = cdi.remove_file(self.settings.cdi, uid)
        if failed is not None:
            return self._cdi_refusal("remove", uid, failed)
        if uid not in self._kept:
            return None
        after = {other: holding for other, holding in self._kept.items() if other != uid}
        if problem := self._save(after):
            return PrepareFault(Why.STORE, str(ref), text=f"{problem}; it keeps its CPUs").refusal()
        self._doubts.pop(uid, None)
        self._why.pop(uid, None)
        self._keep(after)
        return None

    def devices_of(
        self, holding: Holding, attributes: Mapping[str, Mapping[str, object]] | None = None
    ) -> list[PreparedDevice]:
        """What the node is told about a claim; `attributes` of devices go into their metadata."""
        uid = holding.ref.uid
        devices = []
        for grant in holding.grants:
            name = cdi.cdi_id(uid, grant.base if holding.apart else "")
            metadata = None
            if attributes and grant.device in attributes:
                metadata = {"attributes": _metadata(attributes[grant.device], grant.how, len(grant.cpus))}
            devices.append(
                PreparedDevice(
                    grant.pool,
                    grant.device,
                    (grant.base,) if grant.request else (),
                    (name,) if grant.cpus else (),
                    grant.share_id,
                    metadata,
                )
            )
        return devices

    # -- witnesses

    @_alone
    def stay(self, uids: Iterable[str]) -> None:
        """Claims that seemed to be released are in use."""
        self._leaving -= frozenset(uids)
        self.recheck()

    @_alone
    def recheck(self) -> tuple[Finding, ...]:
        """Compare with the CDI files, and mend what can be mended; what was found is in `findings`, too."""
        files, faults = cdi.read_files(self.settings.cdi)
        scene = self._scene()
        found = reconcile(self._kept, files, scene, self._leaving)
        findings = [
            Finding(Severity.WARNING, str(fault), f"remove {fault.where}", fault.where) for fault in faults
        ]
        findings += found.findings
        if dict(found.holdings) != self._kept and (problem := self._save(found.holdings)):
            what = f"what was found cannot be recorded: {problem}"
            findings.append(Finding(Severity.ERROR, what, "make the folder writable"))
        self._keep(dict(found.holdings))
        for uid in found.rewrite:
            if failed := self._write(self._kept[uid]):
                findings.append(
                    Finding(Severity.ERROR, str(failed), "make the folder writable", failed.where)
                )
        damaged = [note for note in self._notes if note.path.startswith(str(self.settings.folder))]
        self._notes = (*damaged, *findings)
        return self.findings

    @_alone
    def witness(self, containers: Iterable[Seen]) -> tuple[Finding, ...]:
        """Compare with all containers of the runtime; earlier ones are forgotten."""
        self._doubts, findings = doubt(self._kept, containers, self._scene())
        self._keep(self._kept)
        return findings

    @_alone
    def change(self, topology: Topology, arrangement: Arrangement) -> tuple[Finding, ...]:
        """CPUs have come or gone. Claims keep theirs, also those that are offline (`lost`)."""
        self._topology, self._arrangement = topology, arrangement
        self.revision += 1
        return find_misplaced(self._holdings, self._scene())

    def explain(self, uid: str) -> list[str]:
        """Why a claim has the CPUs it has."""
        holding = self._holdings.get(uid)
        if holding is None:
            return [f"claim {uid} holds no CPUs"]
        ref = holding.ref
        lines = [f"claim {ref if ref.name else uid} holds CPUs {holding.granted}"]
        if holding.disputed:
            lines.append(f"disputed: {holding.disputed}; kept from everybody: {holding.cpus}")
        why = self._why.get(uid)
        for index, grant in enumerate(holding.grants):
            request = f"request {grant.request}" if grant.request else "unknown request"
            share = f", share {grant.share_id}" if grant.share_id else ""
            lines.append(f"{request} on {grant.device or 'no device'}{share}: {grant.cpus or 'no CPUs'}")
            if why is not None:
                lines += [f"  {line}" for line in why[index]]
            else:
                lines.append(f"  {_HOW[grant.how]}, as the record has it; the steps were not kept")
                if grant.options is not None:
                    chosen = grant.options
                    lines.append(
                        f"  {chosen.algorithm.value}, sorted {chosen.sorting.value}"
                        + (f", groups of {chosen.group_size}" if chosen.group_size > 1 else "")
                        + (", whole cores" if chosen.full_cores else "")
                        + ("" if chosen.align_l3 else ", not aligned to L3 caches")
                    )
        return lines

    # -- inside

    def _scene(self, without: str = "") -> Scene:
        held = union(h.cpus for uid, h in self._holdings.items() if uid != without)
        return Scene(self.settings, self._topology, self._arrangement, held)

    def _settle(self, claim: AllocatedClaim, planned: Plan | PrepareFault) -> Holding | ClaimError:
        """Make a decision lasting: record, then CDI file; neither if one of them fails."""
        if isinstance(planned, PrepareFault):
            return planned.refusal()
        uid, apart = claim.ref.uid, self.settings.pin.requests_apart
        holding = Holding(claim.ref, planned.grants, mix=planned.mix, apart=apart)
        if not planned.cpus:
            return replace(holding, apart=False)
        earlier = dict(self._kept)
        after = {**earlier, uid: holding}
        if problem := self._save(after):
            undone = self._undo(earlier)
            return PrepareFault(Why.STORE, str(claim.ref), text=problem + undone).refusal()
        if failed := self._write(holding):
            # It may be there all the same. One of a claim taken over says the same as before.
            if uid not in earlier and cdi.remove_file(self.settings.cdi, uid) is not None:
                self._keep(after)
                return self._cdi_refusal(
                    "write", uid, failed, "; it cannot be removed either and keeps its CPUs"
                )
            return self._cdi_refusal("write", uid, failed, self._undo(earlier))
        self._why[uid] = planned.why
        self._keep(after)
        return holding

    def _keep(self, kept: dict[str, Holding]) -> None:
        """Make holdings those that count."""
        self._kept = kept
        seen = MappingProxyType({uid: apply(kept[uid], self._doubts.get(uid)) for uid in sorted(kept)})
        if dict(seen) != dict(self._holdings):
            self._holdings = seen
            self._held = union(holding.cpus for holding in seen.values())
            self.revision += 1

    def _save(self, holdings: Mapping[str, Holding]) -> str:
        """Why the record is not saved, or nothing."""
        try:
            self._record.save(make_body(holdings))
        except StoreError as error:
            return str(error)
        return ""

    def _undo(self, earlier: Mapping[str, Holding]) -> str:
        """Save the record as it was, and say so if that fails.

        If it fails too, the file may have the claim. That is safe: the next save replaces it before anybody
        else is given its CPUs, and after a crash the claim holds them until it is released.
        """
        problem = self._save(earlier)
        return f"; the record cannot be put back either: {problem}" if problem else ""

    def _write(self, holding: Holding) -> CdiFault | None:
        mix = self.settings.pin.mix if holding.mix is None else holding.mix
        shared = self._arrangement.floor if mix else EMPTY
        return cdi.write_file(self.settings.cdi, holding, shared)

    def _cdi_refusal(self, verb: str, uid: str, fault: CdiFault, more: str = "") -> ClaimError:
        text = f"failed to {verb} CDI spec {quote(cdi.file_name(uid))}: {fault.message}{more}"
        return PrepareFault(Why.CDI, text=text).refusal()


_HOW = {
    How.ASSIGNED: "chosen by the driver",
    How.CPUSET: "named by the claim",
    How.DEVICE: "the device is the CPU",
    How.ADOPTED: "found in a CDI file",
    How.ADMIN: "administrative access",
}


def _by_device(holdings: Iterable[Holding]) -> dict[str, CpuSet]:
    held: dict[str, CpuSet] = {}
    for holding in holdings:
        for grant in holding.grants:
            if grant.cpus:
                held[grant.device] = held.get(grant.device, EMPTY) | grant.cpus
        if holding.contested:
            held[""] = held.get("", EMPTY) | holding.contested
    return held


def _metadata(attributes: Mapping[str, object], how: How, count: int) -> dict[str, object]:
    """Attributes of a device as containers find them; those of many CPUs say how many there are for them."""
    told = dict(attributes)
    if how is not How.DEVICE:
        told["dra.cpu/allocatedNumCPUs"] = {"int": count}
    return told
