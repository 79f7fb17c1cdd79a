"""Random faults per request, by a mode that changes from time to time."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

from tests.chaos.scheduler_faults.faults import Call, CallKind, Fault, FaultKind
from tests.chaos.scheduler_faults.replicas import LEASE_SECONDS


class Mode(Enum):
    """Behavior of the network and the server for a while."""

    CALM = "calm"
    SLOW = "slow"
    LOSSY = "lossy"
    FAILING = "failing"
    MIXED = "mixed"
    #: Bindings fail, so that claims are released, and the releases arrive late.
    UNDOING = "bindings fail"
    #: The lease calls of one replica hang or fail, and what it decided arrives later than its lease lasts.
    LEASE_LOST = "lease lost"


_SLOW = {FaultKind.DELAY_REQUEST: 0.2, FaultKind.DELAY_ANSWER: 0.12, FaultKind.REORDER: 0.1}
_LOSSY = {
    FaultKind.LOSE_REQUEST: 0.08,
    FaultKind.LOSE_ANSWER: 0.12,
    FaultKind.LATE_REQUEST: 0.12,
    FaultKind.DUPLICATE: 0.12,
}
_FAILING = {FaultKind.REFUSE: 0.1, FaultKind.ERROR_BEFORE: 0.15, FaultKind.ERROR_AFTER: 0.15}
_MIXED = {kind: chance / 3 for table in (_SLOW, _LOSSY, _FAILING) for kind, chance in table.items()}
_CHANCES: dict[Mode, dict[FaultKind, float]] = {
    Mode.CALM: {},
    Mode.SLOW: _SLOW,
    Mode.LOSSY: _LOSSY,
    Mode.FAILING: _FAILING,
    Mode.MIXED: _MIXED,
    Mode.UNDOING: {FaultKind.DELAY_REQUEST: 0.4, FaultKind.LATE_REQUEST: 0.1},
    Mode.LEASE_LOST: {FaultKind.DELAY_REQUEST: 0.7},
}
_FAILING_BINDINGS = {FaultKind.ERROR_BEFORE: 0.7, FaultKind.ERROR_AFTER: 0.1, FaultKind.LATE_REQUEST: 0.1}
#: Reads matter less than writes, and events not at all.
_READS = 0.3
#: Of delays, so many are longer than a lease.
_LONG = 0.2


@dataclass
class RandomFaults:
    """Random choice of faults; the same seed and the same requests give the same choices."""

    dice: Random
    mode: Mode = Mode.CALM
    #: Whose lease is lost, in that mode.
    victim: str = ""
    _lease_faults: tuple[FaultKind, ...] = field(default=(FaultKind.LEASE_STALLED, FaultKind.LEASE_FAILED))

    def choose(self, call: Call) -> Fault | None:
        if call.kind is CallKind.EVENT or self.mode is Mode.CALM:
            return None
        if self.mode is Mode.LEASE_LOST and call.client != self.victim:
            return None
        if call.kind is CallKind.LEASE:
            return self._choose_lease()
        scale = _READS if call.kind is CallKind.READ else 1.0
        left = self.dice.random()
        chances = _CHANCES[self.mode]
        if self.mode is Mode.UNDOING and call.kind is CallKind.BINDING:
            chances = _FAILING_BINDINGS
        for kind, chance in chances.items():
            left -= chance * scale
            if left < 0:
                return Fault(kind, self._seconds(), self.dice.choice((500, 502, 503, 504)))
        return None

    def _choose_lease(self) -> Fault | None:
        lost = self.mode is Mode.LEASE_LOST
        if not lost and self.dice.random() > 0.1:
            return None
        seconds = LEASE_SECONDS * (1 + self.dice.random()) if lost else self.dice.random()
        return Fault(self.dice.choice(self._lease_faults), seconds, self.dice.choice((500, 503)))

    def _seconds(self) -> float:
        if self.mode in (Mode.LEASE_LOST, Mode.UNDOING) or self.dice.random() < _LONG:
            return LEASE_SECONDS * (1 + self.dice.random())
        return 0.05 + self.dice.random()
