"""Faults of the calls between kubelet and driver, and of the drivers' work, decided by the seed."""

from __future__ import annotations

from enum import Enum

from tests.simulation.faults import Dice, FaultPlan, Weather


class CallFault(Enum):
    """Faults of a call on its way."""

    LOSE_CALL = "driver call lost"
    LOSE_ANSWER = "driver answer lost"
    DUPLICATE = "driver called twice"  #: a second call follows before the first is answered
    SKIP = "driver answer lacks a claim"


class DriverFaultKind(Enum):
    """Faults of a driver at work on one claim."""

    REFUSE = "driver refuses"
    RAISE = "driver raises"
    RAISE_AFTER = "driver raises after the effect"
    SLOW = "driver slow"
    HANG = "driver hangs"  #: for longer than the kubelet waits, then it does the work
    KILL_BEFORE = "driver killed before the effect"
    KILL_AFTER = "driver killed after the effect"


_CALLS = {
    CallFault.LOSE_CALL: 0.04,
    CallFault.LOSE_ANSWER: 0.05,
    CallFault.DUPLICATE: 0.05,
    CallFault.SKIP: 0.02,
}
_WORK = {
    DriverFaultKind.REFUSE: 0.04,
    DriverFaultKind.RAISE: 0.03,
    DriverFaultKind.RAISE_AFTER: 0.04,
    DriverFaultKind.SLOW: 0.05,
    DriverFaultKind.HANG: 0.03,
    DriverFaultKind.KILL_BEFORE: 0.02,
    DriverFaultKind.KILL_AFTER: 0.03,
}


class NodeFaults:
    """Choice of the faults of one node, as of one plan."""

    def __init__(self, plan: FaultPlan) -> None:
        self.plan = plan

    def choose_for_call(self, key: str) -> CallFault | None:
        dice = self._dice(key)
        if dice is None:
            return None
        left = dice.random()
        for kind, chance in _CALLS.items():
            left -= chance
            if left < 0:
                self.plan.note(key, kind.value)
                return kind
        return None

    def choose_for_work(self, key: str) -> tuple[DriverFaultKind | None, Dice]:
        """Return the fault of a driver at work, and the dice for its length."""
        dice = self._dice(key)
        if dice is not None:
            left = dice.random()
            for kind, chance in _WORK.items():
                left -= chance
                if left < 0:
                    self.plan.note(key, kind.value)
                    return kind, dice
        return None, dice or Dice(self.plan.seed, key)

    def _dice(self, key: str) -> Dice | None:
        if self.plan.weather is Weather.CALM or not self.plan.permits(key):
            return None
        return Dice(self.plan.seed, key)
