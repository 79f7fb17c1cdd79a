"""Containers of a runtime, their cpusets and pending changes. Pure: never blocks.

The cpuset of a container is the last one reported by the runtime or sent to it. An update in a response to an
event may have failed (runtimes ignore such failures), so it is not relied upon when another container is
about to get the same CPUs exclusively.

DIFF: a container is not created with exclusive CPUs while another one is known to stay on them; the Go driver
creates it (test_issue_297_a_claim_of_everything_does_not_start_over_shared_containers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    DesiredCpuset,
    PinDecision,
    PinFault,
    PinSnapshot,
    compute_desired,
    decide,
    make_overlap_fault,
    make_owned_fault,
    make_refused_fault,
    read_cpus,
)


@dataclass(slots=True)
class ContainerEntry:
    """Entry of a container. `created`: the runtime can update it. `confirmed`: the runtime has confirmed the
    view.

    `generation` changes with every report or update; `refused` is the fault of a failed update.
    """

    view: ContainerView
    created: bool = True
    confirmed: bool = True
    generation: int = 0
    refused: PinFault | None = None

    @property
    def cpus(self) -> CpuSet | None:
        """CPUs of the container, None if unknown."""
        return read_cpus(self.view.cpus) or None


@dataclass(frozen=True, slots=True)
class ContainerChange:
    """Pending update of a container.

    `shrinks`: it loses CPUs that it has, or may have. `grows`: it gains CPUs, or loses none. Both are true if
    it gains some and loses others, or its last update is unconfirmed.
    """

    view: ContainerView
    desired: DesiredCpuset
    shrinks: bool
    generation: int
    grows: bool = False


@dataclass(frozen=True, slots=True)
class ContainerAdmission:
    """Cpuset of a new container, and the updates of others that precede it."""

    desired: DesiredCpuset
    changes: tuple[ContainerChange, ...]


def matches_desired(view: ContainerView, desired: DesiredCpuset) -> bool:
    """Report whether a container has the desired cpuset, memory nodes and quota."""
    if not desired.cpus:
        return True
    if read_cpus(view.cpus) != desired.cpus:
        return False
    if desired.mems and read_cpus(view.mems) != read_cpus(desired.mems):
        return False
    return not desired.lift_quota or view.quota <= 0


def apply_desired(view: ContainerView, desired: DesiredCpuset) -> ContainerView:
    """Return the container after an update."""
    return replace(
        view,
        cpus=str(desired.cpus) or view.cpus,
        mems=desired.mems or view.mems,
        quota=-1 if desired.lift_quota else view.quota,
    )


class ContainerTable:
    """Containers by ID, sandboxes, and the pods that use claims."""

    def __init__(self) -> None:
        self.entries: dict[str, ContainerEntry] = {}
        self.owners: dict[str, str] = {}
        #: Name of the first container that used a claim.
        self._first_users: dict[str, str] = {}
        self._sandboxes: dict[str, str] = {}
        self._generations = count(1)

    # -- reports of the runtime

    def reset(self, sandboxes: Mapping[str, str], views: Iterable[ContainerView]) -> None:
        """Replace all entries: sandboxes with the UIDs of their pods, and containers."""
        self._sandboxes = dict(sandboxes)
        self.entries = {view.id: ContainerEntry(view, generation=next(self._generations)) for view in views}
        alive = set(self._sandboxes.values()) | {entry.view.pod_uid for entry in self.entries.values()}
        self.owners = {uid: pod for uid, pod in self.owners.items() if pod in alive}
        for entry in self.entries.values():
            self._add_user(entry.view)

    def update_container(self, view: ContainerView) -> ContainerEntry:
        """Update the entry of a created container from a report of the runtime."""
        entry = self.entries.get(view.id)
        if entry is None:
            entry = self.entries[view.id] = ContainerEntry(view, generation=next(self._generations))
            self._add_user(view)
            return entry
        old = entry.view
        entry.created = True
        entry.view = replace(
            old,
            running=True,
            cpus=view.cpus or old.cpus,
            mems=view.mems or old.mems,
            quota=view.quota or old.quota,
            pid=view.pid or old.pid,
        )
        return entry

    def _add_user(self, view: ContainerView) -> None:
        for uid in view.claims:
            if uid not in self.owners:
                self.owners[uid], self._first_users[uid] = view.pod_uid, view.name

    def _find_other_user(self, view: ContainerView) -> tuple[str, str] | None:
        """Return a claim of a container that another container of its pod has used, and that container."""
        for uid in view.claims:
            if uid in self.owners and self._first_users[uid] != view.name:
                return uid, self._first_users[uid]
        return None

    def forget(self, container: str) -> bool:
        return self.entries.pop(container, None) is not None

    def add_sandbox(self, sandbox: str, pod: str) -> None:
        self._sandboxes[sandbox] = pod

    def forget_sandbox(self, sandbox: str) -> None:
        """Remove a sandbox; with its last sandbox a pod stops using its claims."""
        pod = self._sandboxes.pop(sandbox, None)
        if pod is None or pod in self._sandboxes.values():
            return
        if not any(entry.view.pod_uid == pod for entry in self.entries.values()):
            self.owners = {uid: owner for uid, owner in self.owners.items() if owner != pod}

    # -- decisions

    @property
    def shared_in_use(self) -> bool:
        """True if a container uses the shared pool; safe to call from any thread."""
        # A copy is made in one step; `tuple` and `list` may let another thread run while they read.
        return any(entry.view.shared for entry in self.entries.copy().values())

    def prune(self, snapshot: PinSnapshot) -> None:
        """Remove the owners of claims that are not allocated."""
        self.owners = {uid: pod for uid, pod in self.owners.items() if uid in snapshot.allocations}

    def decisions(self, snapshot: PinSnapshot) -> dict[str, PinDecision]:
        snapshot = replace(snapshot, owners=self.owners)
        return {id: decide(entry.view, snapshot) for id, entry in self.entries.items()}

    def list_changes(
        self, snapshot: PinSnapshot, *, include_unconfirmed: bool = False, exclude: str = ""
    ) -> list[ContainerChange]:
        """Return pending updates, shrinking ones first; with `include_unconfirmed` also repetitions."""
        changes = []
        for id, decision in self.decisions(snapshot).items():
            entry = self.entries[id]
            if id == exclude or not entry.created or decision.desired is None or not decision.desired.cpus:
                continue
            if matches_desired(entry.view, decision.desired) and (entry.confirmed or not include_unconfirmed):
                continue
            has = entry.cpus
            shrinks = has is None or not entry.confirmed or not has <= decision.desired.cpus
            grows = not shrinks or (has is not None and not decision.desired.cpus <= has)
            changes.append(ContainerChange(entry.view, decision.desired, shrinks, entry.generation, grows))
        changes.sort(key=lambda change: not change.shrinks)
        return changes

    def has_outdated_creations(self, snapshot: PinSnapshot) -> bool:
        """Report whether containers are being created with CPUs that they must no longer have."""
        being_made = {id for id, entry in self.entries.items() if not entry.created}
        if not being_made:
            return False
        decisions = self.decisions(snapshot)
        return any(
            (want := decisions[id].desired) is not None and not matches_desired(self.entries[id].view, want)
            for id in being_made
        )

    def admit(
        self, view: ContainerView, snapshot: PinSnapshot, *, can_defer: bool
    ) -> ContainerAdmission | PinFault:
        """Admit a new container: return its cpuset and the updates of others that precede it, or a fault.

        `can_defer`: containers that are being created can be updated as soon as they are.
        """
        self.prune(snapshot)
        found = compute_desired(
            view, snapshot.allocations, snapshot.shared, snapshot.topology, snapshot.pin, owners=self.owners
        )
        if isinstance(found, PinFault):
            return found
        if not snapshot.pin.across_containers and (other := self._find_other_user(view)):
            return make_owned_fault(view, *other)
        if found.exclusive:
            fault = self._find_overlap(view, found.exclusive, snapshot, can_defer=can_defer)
            if fault is not None:
                return fault
        changes = self.list_changes(snapshot, include_unconfirmed=bool(found.exclusive), exclude=view.id)
        self.entries[view.id] = ContainerEntry(
            apply_desired(replace(view, running=False), found),
            created=False,
            generation=next(self._generations),
        )
        self._add_user(view)
        return ContainerAdmission(found, tuple(changes))

    def _find_overlap(
        self, view: ContainerView, own: CpuSet, snapshot: PinSnapshot, *, can_defer: bool
    ) -> PinFault | None:
        """Return a fault if another container would stay on CPUs that a new one is to have exclusively."""
        for id, decision in self.decisions(snapshot).items():
            entry = self.entries[id]
            if id == view.id:
                continue
            if snapshot.pin.empty_pool and entry.view.shared and not snapshot.shared:
                continue  # it stays where it is
            common = view.claims.keys() & entry.view.claims.keys() & snapshot.allocations.keys()
            alone = own - union(snapshot.allocations[uid].assigned for uid in common)
            future = decision.desired.cpus if decision.desired is not None else EMPTY
            # A container with an unconfirmed update may be anywhere, and so may one whose CPUs are all
            # offline: the kernel then uses the cpuset of its parent.
            has = entry.cpus if entry.confirmed else None
            both = alone if has is None or not has & snapshot.topology.all else has & alone
            stays = not future or entry.refused is not None or not (entry.created or can_defer)
            if both and stays:
                return make_overlap_fault(view, entry.view, both)
        return None

    def record_change(self, change: ContainerChange, *, confirmed: bool) -> None:
        """Record that an update was sent."""
        entry = self.entries.get(change.view.id)
        if entry is None:
            return
        if entry.generation != change.generation:
            # Concurrent updates: the order in which they took effect is unknown.
            entry.confirmed = False
            entry.view = replace(entry.view, cpus="")
            return
        entry.generation = next(self._generations)
        entry.view = apply_desired(entry.view, change.desired)
        entry.confirmed = confirmed
        if confirmed:
            entry.refused = None

    def record_failure(self, change: ContainerChange, why: str) -> PinFault | None:
        """Record that an update failed or its result is unknown."""
        entry = self.entries.get(change.view.id)
        if entry is None:
            return None
        entry.confirmed = False
        if entry.generation != change.generation:
            return None
        entry.generation = next(self._generations)
        entry.view = replace(entry.view, cpus="")
        entry.refused = make_refused_fault(entry.view, change.desired.cpus, why)
        return entry.refused

    def faults(self, snapshot: PinSnapshot) -> tuple[PinFault, ...]:
        """Return the current faults."""
        found = [
            decision.fault for decision in self.decisions(snapshot).values() if decision.fault is not None
        ]
        named = {fault.container for fault in found}
        for id, entry in self.entries.items():
            if entry.refused is not None and id not in named:
                found.append(entry.refused)
        return tuple(found)
