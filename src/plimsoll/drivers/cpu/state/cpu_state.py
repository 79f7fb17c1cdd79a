"""CPU state of a driver: allocations of claims and the shared pool.

Defines the order of durable writes. Prepare: decide, save the checkpoint, write the CDI file; failures are
rolled back. Release: remove the CDI file, then save the checkpoint; on failure the claim keeps its CPUs. So
at any time, also after a crash, a CPU that a container was given is in the checkpoint or in a CDI file, and
no other claim gets it.

`open`, `prepare`, `release` and `reconcile_files` do a little blocking I/O (a synced file of some KiB). The
state may be used from any thread: changes are serialized, and `allocations` is replaced, never modified, so
that readers keep a consistent view.

DIFF: CPUs stay allocated from prepare to release across restarts of driver, runtime and machine; the Go
driver forgets claims without a running container (test_issue_258_claims_survive_a_restart).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.api.go_text import quote_go
from plimsoll.api.resource import ResourceSlice
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding, RecordFile
from plimsoll.drivers.cpu.devices.groups import CpuLayout
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state import cdi
from plimsoll.drivers.cpu.state.affinity import find_affinity, needs_affinity
from plimsoll.drivers.cpu.state.checkpoint import AllocationEncoder, open_checkpoint
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.cpu.state.claim_explanation import explain_allocation
from plimsoll.drivers.cpu.state.prepare import (
    PrepareContext,
    PreparePlan,
    check_repeated,
    match_adopted,
    plan_claim,
)
from plimsoll.drivers.cpu.state.prepare_errors import PrepareError, PrepareErrorReason
from plimsoll.drivers.cpu.state.reconcile import (
    ContainerClaims,
    ContainerConflict,
    apply_conflict,
    compare_containers,
    dispute_overlaps,
    find_disputes,
    find_misplaced,
    reconcile,
)
from plimsoll.drivers.cpu.state.recovery import find_unverified
from plimsoll.drivers.cpu.state.storage import StorageMonitor
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim, ClaimError
from plimsoll.errors import StoreError
from plimsoll.protocols.cdi import CdiFault
from plimsoll.protocols.dra import ClaimRef

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _locked(
    method: Callable[Concatenate[CPUState, _P], _R],
) -> Callable[Concatenate[CPUState, _P], _R]:
    """Serialize the decorated methods of a state."""

    @wraps(method)
    def locked(state: CPUState, /, *args: _P.args, **more: _P.kwargs) -> _R:
        with state.lock:
            return method(state, *args, **more)

    return locked


def read_allocated_cpus(settings: CpuSettings) -> dict[str, CpuSet]:
    """Read the allocated CPUs by device name from checkpoint and CDI files, without changing anything.

    Used to compute the layout before the state is opened. CPUs named only by CDI files have the device name
    "".
    """
    record = open_checkpoint(settings).look().value or {}
    files, _ = cdi.read_files(settings.cdi)
    allocated = _by_device(record.values())
    if stray := union(file.cpus for uid, file in files.items() if uid not in record):
        allocated[""] = allocated.get("", EMPTY) | stray
    return allocated


def find_claims_without_cdi_file(settings: CpuSettings) -> tuple[ClaimRef, ...]:
    """Return checkpointed claims without a CDI file, without changing anything."""
    record = open_checkpoint(settings).look().value or {}
    return tuple(allocation.ref for uid, allocation in record.items() if not cdi.exists(settings.cdi, uid))


class CPUState:
    """Allocations of claims on one machine. Create it with `open`."""

    def __init__(
        self, settings: CpuSettings, topology: Topology, layout: CpuLayout, record: RecordFile
    ) -> None:
        self.settings = settings
        #: Returns whether containers use the shared pool, so that it must not become empty.
        self.shared_pool_in_use: Callable[[], bool] = lambda: False
        self.revision = 0
        self._topology, self._layout = topology, layout
        self._checkpoint = record
        self._encoder = AllocationEncoder()
        self.storage = StorageMonitor(settings.plugin_dir, settings.cdi)
        self.lock = threading.RLock()
        self._file_findings: tuple[NodeFinding, ...] = ()
        #: Claims of containers that are known from their environment only.
        self._unverified: dict[str, ClaimAllocation] = {}
        self._recovering = False
        #: Claims released during the recovery: what the cluster had of them before is out of date.
        self._released: set[str] = set()
        self._stored: dict[str, ClaimAllocation] = {}
        self._conflicts: dict[str, ContainerConflict] = {}
        self._released_elsewhere: frozenset[str] = frozenset()
        self._explanations: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._holdings: Mapping[str, ClaimAllocation] = MappingProxyType({})
        self._held = EMPTY

    @classmethod
    def open(
        cls,
        settings: CpuSettings,
        topology: Topology,
        layout: CpuLayout,
        *,
        released_elsewhere: Iterable[str] = (),
    ) -> CPUState:
        """Open the state from checkpoint and CDI files; `findings` lists their problems.

        `released_elsewhere` are UIDs of claims that are no longer allocated in the cluster.
        """
        state = cls(settings, topology, layout, open_checkpoint(settings))
        loaded = state._checkpoint.load()
        state._stored = dict(loaded.value or {})
        state._recovering = loaded.value is None or os.path.lexists(state._recovery_marker)
        if state._recovering:
            state._begin_recovery()
        state._released_elsewhere = frozenset(released_elsewhere)
        state._file_findings = (loaded.finding,) if loaded.finding is not None else ()
        state.reconcile_files()
        return state

    # -- current state

    @property
    def allocations(self) -> Mapping[str, ClaimAllocation]:
        """Allocations by claim UID. Never modified, only replaced."""
        return self._holdings

    @property
    def findings(self) -> tuple[NodeFinding, ...]:
        """Findings of the last comparison with the files, and current ones."""
        allocations = self._holdings
        return (
            *self._file_findings,
            *find_disputes(allocations),
            *find_misplaced(allocations, self._context()),
        )

    @property
    def shared(self) -> CpuSet:
        """Shared pool: CPUs of containers without claims."""
        return self._topology.all - self._layout.reserved - self.allocated

    @property
    def allocated(self) -> CpuSet:
        return self._held

    @property
    def by_device(self) -> dict[str, CpuSet]:
        """Allocated CPUs by device name, to compute a layout."""
        return _by_device(self._holdings.values())

    @property
    def has_missing_cdi_files(self) -> bool:
        """True if a CDI file is missing, without which no container of its claim can start."""
        directory, gone = self.settings.cdi, self.released_elsewhere
        wanted = (uid for uid, h in self._holdings.items() if not h.disputed and uid not in gone)
        return any(not cdi.exists(directory, uid) for uid in wanted)

    @property
    def released_elsewhere(self) -> frozenset[str]:
        """Claims that another driver has released; `release` or `keep_claims` must follow."""
        return self._released_elsewhere & self._holdings.keys()

    @property
    def recovering(self) -> bool:
        """True if the checkpoint was lost and `restore_claims` must follow.

        Claims of containers are then withheld from others although neither checkpoint nor CDI file has them.
        """
        return self._recovering

    @property
    def unverified(self) -> frozenset[str]:
        """Claims that are known from the environment of containers only."""
        return frozenset(self._unverified)

    @property
    def context(self) -> PrepareContext:
        return self._context()

    @property
    def topology(self) -> Topology:
        return self._topology

    @property
    def layout(self) -> CpuLayout:
        return self._layout

    # -- claims

    def needs_affinity(self, claim: AllocatedClaim) -> bool:
        """Report whether `find_affinity` needs the slices of other drivers for a claim without CPUs."""
        return claim.ref.uid not in self._stored and needs_affinity(claim)

    def find_affinity(self, claim: AllocatedClaim, slices: Iterable[ResourceSlice]) -> Mapping[str, CpuSet]:
        return find_affinity(claim, slices, self._topology)

    @_locked
    def prepare(
        self, claim: AllocatedClaim, *, affinity: Mapping[str, CpuSet] | None = None
    ) -> ClaimAllocation | ClaimError:
        """Allocate CPUs to a claim. `affinity` are CPUs to prefer, by request.

        A claim without CPUs of this driver gets an allocation without assignments, which is not stored.
        """
        uid, label = claim.ref.uid, str(claim.ref)
        if problem := cdi.validate_uid(uid):
            return PrepareError(PrepareErrorReason.UID, label, text=problem).to_claim_error()
        self._released_elsewhere -= {uid}
        file = cdi.read_file(self.settings.cdi, uid)
        if uid not in self._stored and cdi.has_unknown_claims(self.settings.cdi, self._stored):
            # Another driver has prepared claims since the last check: two drivers run by mistake.
            self.reconcile_files()
        known = self._holdings.get(uid)
        context = self._context(without=uid)
        if known is None:
            plan = plan_claim(claim, context, affinity=affinity, shared_pool_in_use=self.shared_pool_in_use())
            return self._commit(claim, plan)
        if known.disputed:
            return PrepareError(
                PrepareErrorReason.DISPUTED, label, cpus=known.cpus, text=known.disputed
            ).to_claim_error()
        if known.adopted:
            return self._commit(claim, match_adopted(claim, known, context, file.requests))
        if fault := check_repeated(claim, known, context):
            return fault.to_claim_error()
        if file.fault or file.cpus != known.assigned:
            failed = self._write(known)
            return known if failed is None else self._cdi_refusal("write", uid, failed)
        return known

    @_locked
    def release(self, ref: ClaimRef) -> ClaimError | None:
        """Release the CPUs of a claim; a claim without CPUs is already released."""
        uid = ref.uid
        if cdi.validate_uid(uid):
            return None
        # Remove the file first: a container must not get CPUs that are free.
        failed = cdi.remove_file(self.settings.cdi, uid)
        if failed is not None:
            return self._cdi_refusal("remove", uid, failed)
        if self._recovering:
            self._released.add(uid)
            self._mark_recovery()
        if self._unverified.pop(uid, None) is not None:
            self._set_allocations(self._stored)
        if uid not in self._stored:
            return None
        after = {other: allocation for other, allocation in self._stored.items() if other != uid}
        if problem := self._save(after):
            self._write(self._stored[uid])  # what is refused has not happened
            return PrepareError(
                PrepareErrorReason.STORE, str(ref), text=f"{problem}; it keeps its CPUs"
            ).to_claim_error()
        self._conflicts.pop(uid, None)
        self._explanations.pop(uid, None)
        self._set_allocations(after)
        return None

    # -- reconciliation

    @_locked
    def keep_claims(self, uids: Iterable[str]) -> None:
        """Keep claims that seemed to be released elsewhere but are in use."""
        self._released_elsewhere -= frozenset(uids)
        self.reconcile_files()

    @_locked
    def name_claims(self, refs: Mapping[str, ClaimRef]) -> None:
        """Set the names of adopted claims, by UID; without effect if they cannot be saved."""
        named = {
            uid: replace(self._stored[uid], ref=ref)
            for uid, ref in refs.items()
            if uid in self._stored and not self._stored[uid].ref.name
        }
        after = {**self._stored, **named}
        if named and not self._save(after):
            self._set_allocations(after)

    @_locked
    def reconcile_files(self) -> tuple[NodeFinding, ...]:
        """Compare with the CDI files and repair them where possible; also updates `findings`."""
        files, faults = cdi.read_files(self.settings.cdi)
        context = self._context()
        found = reconcile(self._stored, files, context, self._released_elsewhere)
        findings = [
            NodeFinding(FindingSeverity.WARNING, str(fault), f"remove {fault.where}", fault.where)
            for fault in faults
        ]
        findings += found.findings
        if dict(found.allocations) != self._stored and (problem := self._save(found.allocations)):
            what = f"saving the checkpoint failed: {problem}"
            findings.append(NodeFinding(FindingSeverity.ERROR, what, "make the directory writable"))
        self._set_allocations(dict(found.allocations))
        for uid in found.rewrite:
            if failed := self._write(self._stored[uid]):
                findings.append(
                    NodeFinding(
                        FindingSeverity.ERROR, str(failed), "make the directory writable", failed.where
                    )
                )
        damaged = [
            note for note in self._file_findings if note.path.startswith(str(self.settings.plugin_dir))
        ]
        self._file_findings = (*damaged, *findings)
        return self.findings

    @_locked
    def check_containers(self, containers: Iterable[ContainerClaims]) -> tuple[NodeFinding, ...]:
        """Compare with all containers of the runtime, replacing earlier results."""
        listed = list(containers)
        self._conflicts, findings = compare_containers(self._stored, listed, self._context())
        self._unverified = find_unverified(self._stored, listed, self._context()) if self._recovering else {}
        self._set_allocations(self._stored)
        return findings

    @_locked
    def restore_claims(self, recovered: Mapping[str, ClaimAllocation]) -> str:
        """End the recovery with these claims; return the error if they cannot be saved, or "".

        Those that were released since the cluster was asked stay released.
        """
        unknown = recovered.keys() - self._stored.keys() - self._released
        after = {**self._stored, **{uid: recovered[uid] for uid in recovered if uid in unknown}}
        dispute_overlaps(after)
        if problem := self._save(after):
            return problem
        self._unverified, self._released = {}, set()
        self._set_allocations(after)
        self.reconcile_files()
        with contextlib.suppress(OSError):  # it is removed after the next start
            os.unlink(self._recovery_marker)
        self._recovering = False  # last: others read it without the lock
        return ""

    @_locked
    def update_topology(self, topology: Topology, layout: CpuLayout) -> tuple[NodeFinding, ...]:
        """Set topology and layout after hotplug. Claims keep their CPUs, including offline ones."""
        self._topology, self._layout = topology, layout
        self.revision += 1
        return find_misplaced(self._holdings, self._context())

    def explain(self, uid: str) -> list[str]:
        """Describe why a claim has its CPUs."""
        allocation = self._holdings.get(uid)
        if allocation is None:
            return [f"claim {uid} has no CPUs"]
        return explain_allocation(allocation, self._explanations.get(uid))

    # -- internals

    def _context(self, without: str = "") -> PrepareContext:
        allocated = self._held
        if without in self._holdings:
            allocated = union(h.cpus for uid, h in self._holdings.items() if uid != without)
        return PrepareContext(self.settings, self._topology, self._layout, allocated)

    def _commit(
        self, claim: AllocatedClaim, plan: PreparePlan | PrepareError
    ) -> ClaimAllocation | ClaimError:
        """Make a plan durable: checkpoint, then CDI file; neither if one of them fails."""
        if isinstance(plan, PrepareError):
            return plan.to_claim_error()
        uid, per_request = claim.ref.uid, self.settings.pin.per_request_cpus
        allocation = ClaimAllocation(
            claim.ref, plan.assignments, include_shared=plan.include_shared, per_request=per_request
        )
        if not plan.cpus:
            return replace(allocation, per_request=False)
        earlier = dict(self._stored)
        after = {**earlier, uid: allocation}
        if problem := self._save(after):
            undone = self._restore_checkpoint(earlier)
            return PrepareError(
                PrepareErrorReason.STORE, str(claim.ref), text=problem + undone
            ).to_claim_error()
        if failed := self._write(allocation):
            # The file may exist nevertheless. That of an adopted claim has not changed.
            if uid not in earlier and cdi.remove_file(self.settings.cdi, uid) is not None:
                self._set_allocations(after)
                return self._cdi_refusal(
                    "write", uid, failed, "; it cannot be removed either and keeps its CPUs"
                )
            return self._cdi_refusal("write", uid, failed, self._restore_checkpoint(earlier))
        self._explanations[uid] = plan.why
        self._set_allocations(after)
        return allocation

    def _set_allocations(self, stored: dict[str, ClaimAllocation]) -> None:
        """Replace the allocations in effect."""
        self._stored = stored
        every = {**self._unverified, **stored}
        for uid, conflict in self._conflicts.items():
            if uid in every:
                every[uid] = apply_conflict(every[uid], conflict)
        seen = {uid: every[uid] for uid in sorted(every)}
        if seen != self._holdings:
            self._holdings = MappingProxyType(seen)
            self._held = union(allocation.cpus for allocation in seen.values())
            self.revision += 1

    @property
    def _recovery_marker(self) -> Path:
        """File that exists during a recovery: a driver that is killed must start it again.

        It has the UIDs of claims that were released meanwhile, one in each line.
        """
        return self.settings.plugin_dir / "recovering"

    def _begin_recovery(self) -> None:
        with contextlib.suppress(OSError, UnicodeError):
            self._released = set(self._recovery_marker.read_text().split())
        self._mark_recovery()

    def _mark_recovery(self) -> None:
        with contextlib.suppress(OSError):  # without it, only a crash during the recovery is not covered
            self.settings.plugin_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._recovery_marker.write_text("".join(f"{uid}\n" for uid in sorted(self._released)))

    def _save(self, allocations: Mapping[str, ClaimAllocation]) -> str:
        """Save the checkpoint; return the error or ""."""
        problem = ""
        try:
            self._checkpoint.save(self._encoder.encode(allocations))
        except StoreError as error:
            problem = str(error)
        self.storage.record(self.settings.plugin_dir, problem)
        return problem

    def _restore_checkpoint(self, earlier: Mapping[str, ClaimAllocation]) -> str:
        """Save the previous checkpoint; return a message if that fails.

        The file may then still contain the claim. That is safe: the next save replaces it before its CPUs are
        assigned again, and after a crash the claim keeps them until it is released.
        """
        problem = self._save(earlier)
        return f"; the checkpoint cannot be restored either: {problem}" if problem else ""

    def _write(self, allocation: ClaimAllocation) -> CdiFault | None:
        mixed = allocation.includes_shared(self.settings.pin.include_shared)
        fault = cdi.write_file(self.settings.cdi, allocation, self._layout.always_shared if mixed else EMPTY)
        self.storage.record(self.settings.cdi, str(fault) if fault is not None else "")
        return fault

    def _cdi_refusal(self, verb: str, uid: str, fault: CdiFault, more: str = "") -> ClaimError:
        text = f"failed to {verb} CDI spec {quote_go(cdi.file_name(uid))}: {fault.message}{more}"
        return PrepareError(PrepareErrorReason.CDI, text=text).to_claim_error()


def _by_device(allocations: Iterable[ClaimAllocation]) -> dict[str, CpuSet]:
    allocated: dict[str, CpuSet] = {}
    for allocation in allocations:
        for assignment in allocation.assignments:
            if assignment.cpus:
                allocated[assignment.device] = allocated.get(assignment.device, EMPTY) | assignment.cpus
        if allocation.contested:
            allocated[""] = allocated.get("", EMPTY) | allocation.contested
    return allocated
