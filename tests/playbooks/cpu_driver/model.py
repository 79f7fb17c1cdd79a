"""Naive model of the driver in sets and loops; it shares no code with the driver.

`Model` knows the machine, what was granted to claims, what their CDI files say, and which claims are in
dispute; from that follows what every container should run on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: A CDI file that cannot be read.
DAMAGED: frozenset[int] = frozenset({-1})


@dataclass
class Model:
    online: set[int]
    reserved: set[int]
    include_shared: bool = False
    assigned: dict[str, set[int]] = field(default_factory=dict)
    contested: dict[str, set[int]] = field(default_factory=dict)
    disputed: set[str] = field(default_factory=set)
    files: dict[str, set[int]] = field(default_factory=dict)
    #: Claims of which a container had other CPUs when the driver last checked all of them, and the CPUs
    #: that are kept for it; the driver chooses among those.
    conflicts: dict[str, set[int]] = field(default_factory=dict)
    #: Claims deleted from the cluster: without a file they were released by another driver.
    deleted: set[str] = field(default_factory=set)
    #: Whether the record on the disk is gone or damaged.
    amnesia: bool = False
    #: Whether the driver has started without its record and not yet seen the containers.
    recovering: bool = False

    # -- derived state

    @property
    def usable(self) -> set[int]:
        return self.online - self.reserved

    @property
    def allocated(self) -> set[int]:
        held: set[int] = set()
        for uid in self.assigned:
            held |= self.cpus(uid)
        return held

    @property
    def shared(self) -> set[int]:
        return self.usable - self.allocated

    def cpus(self, uid: str) -> set[int]:
        """Return all CPUs that are reserved for a claim."""
        return self.assigned[uid] | self.contested.get(uid, set()) | self.conflicts.get(uid, set())

    @property
    def in_dispute(self) -> set[str]:
        return self.disputed | self.conflicts.keys()

    @property
    def strangers(self) -> bool:
        """Return whether there are files of unknown claims."""
        return any(uid not in self.assigned and cpus != DAMAGED for uid, cpus in self.files.items())

    def compute_desired(self, env_claims: dict[str, set[int]]) -> set[int] | None:
        """Return the CPUs that a container should run on; None if it keeps its current ones."""
        own: set[int] = set()
        claims = False
        for uid, cpus in env_claims.items():
            if uid not in self.assigned:
                continue
            if uid in self.in_dispute or self.assigned[uid] != cpus:
                return None
            own |= cpus
            claims = True
        if not claims:
            return self.shared or None
        if not own & self.online:
            return None
        return own & self.online | (self.shared if self.include_shared else set())

    def to_claim_error(self, env_claims: dict[str, set[int]]) -> str:
        """Return why a container must not be created, as far as it does not depend on others."""
        for uid, cpus in env_claims.items():
            if uid not in self.assigned:
                return "unknown"
            if uid in self.in_dispute:
                return "disputed"
            if self.assigned[uid] != cpus:
                return "mismatch"
        if not env_claims and not self.shared and self.assigned:
            return "empty"
        if env_claims and not set().union(*env_claims.values()) & self.online:
            return "offline"
        return ""

    # -- events

    def assignment(self, uid: str, cpus: Iterable[int]) -> None:
        self.assigned[uid] = set(cpus)
        self.files[uid] = set(cpus)
        self.amnesia = False

    def release(self, uid: str) -> None:
        if self.assigned.pop(uid, None) is not None:
            self.amnesia = False
        self.contested.pop(uid, None)
        self.conflicts.pop(uid, None)
        self.files.pop(uid, None)
        self.disputed.discard(uid)

    def restart(self) -> None:
        """Read and compare the checkpoint and the files."""
        self.conflicts = {}
        self.recovering = self.recovering or self.amnesia
        if self.amnesia:
            self.assigned, self.contested, self.disputed = {}, {}, set()
        self.compare()

    def end_recovery(self) -> None:
        """Save the checkpoint and compare it with the files once more."""
        self.recovering = self.amnesia = False
        self.compare()

    def compare(self) -> None:
        before = (dict(self.assigned), dict(self.contested), set(self.disputed))
        for uid, named in self.files.items():
            if named == DAMAGED:
                continue
            if uid not in self.assigned:
                self.assigned[uid] = set(named)
                if not named <= self.usable:
                    self.disputed.add(uid)
            elif named != self.assigned[uid]:
                self.contested[uid] = self.contested.get(uid, set()) | (named - self.assigned[uid])
                self.disputed.add(uid)
        for uid in self.assigned:
            for other in self.assigned:
                if uid != other and self.cpus(uid) & self.cpus(other):
                    self.disputed.add(uid)
        for uid in self.assigned:
            whole = self.files.get(uid, DAMAGED) != DAMAGED
            if uid not in self.files and uid in self.deleted:
                continue
            if not whole and uid not in self.disputed:
                self.files[uid] = set(self.assigned[uid])
        if (self.assigned, self.contested, self.disputed) != before:
            self.amnesia = False
