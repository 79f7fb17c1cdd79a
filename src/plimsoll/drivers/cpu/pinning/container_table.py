"""The containers of a runtime, what they were given, and what is to be changed. Pure: nothing here waits.

Owns `Roll`. What a container has is what was last said about it: by the runtime, or to it. What was said in
the answer to an event may not have come to pass (runtimes pass over failures there), so it is not relied on
when another container is about to get the same CPUs for itself.

DIFF: a container is not made with exclusive CPUs while another one is known to stay on them; the Go driver
makes it all the same (test_issue_297_a_claim_of_everything_does_not_start_over_shared_containers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    PinFault,
    Scene,
    Verdict,
    Wanted,
    crowd,
    judge,
    read_cpus,
    refuse,
    wanted,
)
from plimsoll.drivers.cpu.state.holdings import union


@dataclass(slots=True)
class Entry:
    """A container. `made`: the runtime can change it. `sure`: the runtime has agreed to what the view says.

    `stamp` is another whenever something was said about it, `refused` is why it could not be changed.
    """

    view: ContainerView
    made: bool = True
    sure: bool = True
    stamp: int = 0
    refused: PinFault | None = None

    @property
    def cpus(self) -> CpuSet | None:
        """What it runs on, None if that is not known."""
        return read_cpus(self.view.cpus) or None


@dataclass(frozen=True, slots=True)
class Change:
    """A container that is to be given something else. `loses`: some of what it has, or may have."""

    view: ContainerView
    wanted: Wanted
    loses: bool
    stamp: int


@dataclass(frozen=True, slots=True)
class Admission:
    """What a new container is given, and what others are given before."""

    wanted: Wanted
    changes: tuple[Change, ...]


def agrees(view: ContainerView, wanted: Wanted) -> bool:
    """Whether a container has all that is wanted."""
    if not wanted.cpus:
        return True
    if read_cpus(view.cpus) != wanted.cpus:
        return False
    if wanted.mems and read_cpus(view.mems) != read_cpus(wanted.mems):
        return False
    return not wanted.lift_quota or view.quota <= 0


def given(view: ContainerView, wanted: Wanted) -> ContainerView:
    """The container after it was given what is wanted."""
    return replace(
        view,
        cpus=str(wanted.cpus) or view.cpus,
        mems=wanted.mems or view.mems,
        quota=-1 if wanted.lift_quota else view.quota,
    )


class Roll:
    """Containers by id, sandboxes and the pods that use claims."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.owners: dict[str, str] = {}
        self._sandboxes: dict[str, str] = {}
        self._stamps = count(1)

    # -- what the runtime says

    def start_over(self, sandboxes: Mapping[str, str], views: Iterable[ContainerView]) -> None:
        """All there is: sandboxes with the UIDs of their pods, and containers."""
        self._sandboxes = dict(sandboxes)
        self.entries = {view.id: Entry(view, stamp=next(self._stamps)) for view in views}
        alive = set(self._sandboxes.values()) | {entry.view.pod_uid for entry in self.entries.values()}
        self.owners = {uid: pod for uid, pod in self.owners.items() if pod in alive}
        for entry in self.entries.values():
            for uid in entry.view.claims:
                self.owners.setdefault(uid, entry.view.pod_uid)

    def see(self, view: ContainerView) -> Entry:
        """News of a container that is made; what the runtime says about its CPUs counts."""
        entry = self.entries.get(view.id)
        if entry is None:
            entry = self.entries[view.id] = Entry(view, stamp=next(self._stamps))
            for uid in view.claims:
                self.owners.setdefault(uid, view.pod_uid)
            return entry
        old = entry.view
        entry.made = True
        entry.view = replace(
            old,
            running=True,
            cpus=view.cpus or old.cpus,
            mems=view.mems or old.mems,
            quota=view.quota or old.quota,
            pid=view.pid or old.pid,
        )
        return entry

    def forget(self, container: str) -> bool:
        return self.entries.pop(container, None) is not None

    def add_sandbox(self, sandbox: str, pod: str) -> None:
        self._sandboxes[sandbox] = pod

    def forget_sandbox(self, sandbox: str) -> None:
        """With its last sandbox a pod lets go of its claims."""
        pod = self._sandboxes.pop(sandbox, None)
        if pod is None or pod in self._sandboxes.values():
            return
        if not any(entry.view.pod_uid == pod for entry in self.entries.values()):
            self.owners = {uid: owner for uid, owner in self.owners.items() if owner != pod}

    # -- what follows

    @property
    def shared_in_use(self) -> bool:
        """Whether some container needs the shared pool; may be asked by any thread."""
        return any(entry.view.shared for entry in tuple(self.entries.values()))

    def prune(self, scene: Scene) -> None:
        """Claims that nobody holds belong to no pod."""
        self.owners = {uid: pod for uid, pod in self.owners.items() if uid in scene.holdings}

    def verdicts(self, scene: Scene) -> dict[str, Verdict]:
        scene = replace(scene, owners=self.owners)
        return {id: judge(entry.view, scene) for id, entry in self.entries.items()}

    def due(self, scene: Scene, *, unsure: bool = False, besides: str = "") -> list[Change]:
        """Containers that are to be changed, those first that lose CPUs; `unsure` ones too if asked for."""
        changes = []
        for id, verdict in self.verdicts(scene).items():
            entry = self.entries[id]
            if id == besides or not entry.made or verdict.wanted is None or not verdict.wanted.cpus:
                continue
            if agrees(entry.view, verdict.wanted) and (entry.sure or not unsure):
                continue
            has = entry.cpus
            loses = has is None or not entry.sure or not has <= verdict.wanted.cpus
            changes.append(Change(entry.view, verdict.wanted, loses, entry.stamp))
        changes.sort(key=lambda change: not change.loses)
        return changes

    def outdated(self, scene: Scene) -> bool:
        """Whether containers are being made that were given CPUs which they should not have any more."""
        being_made = {id for id, entry in self.entries.items() if not entry.made}
        if not being_made:
            return False
        verdicts = self.verdicts(scene)
        return any(
            (want := verdicts[id].wanted) is not None and not agrees(self.entries[id].view, want)
            for id in being_made
        )

    def admit(self, view: ContainerView, scene: Scene, *, patient: bool) -> Admission | PinFault:
        """Whether a container may be made, what it is given and what others are given before it.

        `patient`: containers that are just being made can be changed as soon as they are.
        """
        self.prune(scene)
        found = wanted(view, scene.holdings, scene.shared, scene.topology, scene.pin, owners=self.owners)
        if isinstance(found, PinFault):
            return found
        if found.exclusive:
            fault = self._crowd(view, found.exclusive, scene, patient=patient)
            if fault is not None:
                return fault
        changes = self.due(scene, unsure=bool(found.exclusive), besides=view.id)
        self.entries[view.id] = Entry(
            given(replace(view, running=False), found), made=False, stamp=next(self._stamps)
        )
        for uid in view.claims:
            self.owners.setdefault(uid, view.pod_uid)
        return Admission(found, tuple(changes))

    def _crowd(self, view: ContainerView, own: CpuSet, scene: Scene, *, patient: bool) -> PinFault | None:
        """Who would stay on CPUs that a new container is to have for itself."""
        for id, verdict in self.verdicts(scene).items():
            entry = self.entries[id]
            if id == view.id:
                continue
            common = view.claims.keys() & entry.view.claims.keys() & scene.holdings.keys()
            alone = own - union(scene.holdings[uid].granted for uid in common)
            future = verdict.wanted.cpus if verdict.wanted is not None else EMPTY
            # One that may not have done as it was told may be anywhere, and so may one whose CPUs are all
            # offline: the kernel lets it run where its parent may.
            has = entry.cpus if entry.sure else None
            both = alone if has is None or not has & scene.topology.all else has & alone
            stays = not future or entry.refused is not None or not (entry.made or patient)
            if both and stays:
                return crowd(view, entry.view, both)
        return None

    def say(self, change: Change, *, sure: bool) -> None:
        """A container was told to change."""
        entry = self.entries.get(change.view.id)
        if entry is None:
            return
        if entry.stamp != change.stamp:
            # Two were told at the same time, and nobody knows which came last.
            entry.sure = False
            entry.view = replace(entry.view, cpus="")
            return
        entry.stamp = next(self._stamps)
        entry.view = given(entry.view, change.wanted)
        entry.sure = sure
        if sure:
            entry.refused = None

    def doubt(self, change: Change, why: str) -> PinFault | None:
        """A container was not changed, or nobody knows."""
        entry = self.entries.get(change.view.id)
        if entry is None:
            return None
        entry.sure = False
        if entry.stamp != change.stamp:
            return None
        entry.stamp = next(self._stamps)
        entry.view = replace(entry.view, cpus="")
        entry.refused = refuse(entry.view, change.wanted.cpus, why)
        return entry.refused

    def faults(self, scene: Scene) -> tuple[PinFault, ...]:
        """What is wrong now."""
        found = [verdict.fault for verdict in self.verdicts(scene).values() if verdict.fault is not None]
        named = {fault.container for fault in found}
        for id, entry in self.entries.items():
            if entry.refused is not None and id not in named:
                found.append(entry.refused)
        return tuple(found)
