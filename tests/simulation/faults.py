"""Faults of a case: which requests they hit, and what happens to processes, all decided by the seed.

Every decision is a hash of the seed and of the name of what it is about, not the next number of one stream:
leaving out one fault changes no other decision, so that a failing case can be shrunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import Enum
from hashlib import blake2b
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class FaultKind(Enum):
    """Faults of requests and watches."""

    DELAY_REQUEST = "request delayed"  #: it reaches the server late, even if its sender has given up
    DELAY_ANSWER = "answer delayed"
    LOSE_REQUEST = "request lost"  #: the connection breaks, the server never sees it
    LOSE_ANSWER = "answer lost"  #: the connection breaks after the server has done it
    LATE_REQUEST = "request late"  #: the connection breaks at once, the request arrives afterward
    DUPLICATE = "request duplicated"  #: a second copy arrives later, its answer is discarded
    NO_ANSWER = "no answer"  #: done, and nothing comes back until the sender gives up
    REFUSE = "429 with Retry-After"
    CONFLICT = "409 without effect"
    ERROR_BEFORE = "5xx without effect"
    ERROR_AFTER = "5xx after the effect"
    FORBID = "403 without effect"
    INVALIDATE = "422 without effect"
    WATCH_REFUSED = "watch answered with 410"
    WATCH_CUT = "watch cut"
    WATCH_HELD = "watch events held back"


class Fault(NamedTuple):
    """Fault of one request."""

    kind: FaultKind
    seconds: float
    status: int


class Dice:
    """Numbers that depend on a seed and a name only."""

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed.to_bytes(8, "little", signed=True)
        self._name = name
        self._rounds = 0
        self._numbers: list[int] = []

    def random(self) -> float:
        """Return a number of at least 0 and less than 1."""
        if not self._numbers:
            name = f"{self._name}#{self._rounds}".encode()
            digest = blake2b(name, digest_size=32, key=self._seed).digest()
            self._numbers = [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 32, 4)]
            self._rounds += 1
        return self._numbers.pop() / 2**32

    def choice(self, items: Sequence[T]) -> T:
        return items[int(self.random() * len(items))]

    def some(self, items: Sequence[T]) -> list[T]:
        """Return at least one of the items, mostly about half of them."""
        return [each for each in items if self.random() < 0.5] or [self.choice(items)]

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()


class Weather(Enum):
    """Behavior of the network and the server for a while."""

    CALM = "calm"
    SLOW = "slow"
    LOSSY = "lossy"
    FAILING = "failing"
    MIXED = "mixed"
    #: Bindings fail, so that claims are released, and the releases arrive late.
    UNDOING = "bindings fail"
    #: Writes are refused for good, as admission plugins of a cluster may.
    REFUSING = "writes are refused"
    #: The lease calls of one process hang or fail, and what it decided arrives later than its lease lasts.
    LEASE_LOST = "lease lost"


K = FaultKind
_SLOW = {K.DELAY_REQUEST: 0.2, K.DELAY_ANSWER: 0.2}
_LOSSY = {
    K.LOSE_REQUEST: 0.1,
    K.LOSE_ANSWER: 0.15,
    K.LATE_REQUEST: 0.12,
    K.DUPLICATE: 0.12,
    K.NO_ANSWER: 0.03,
}
_FAILING = {K.REFUSE: 0.1, K.CONFLICT: 0.08, K.ERROR_BEFORE: 0.12, K.ERROR_AFTER: 0.15}
_MIXED = {kind: chance / 2 for table in (_SLOW, _LOSSY, _FAILING) for kind, chance in table.items()}
_CHANCES: dict[Weather, dict[FaultKind, float]] = {
    Weather.CALM: {},
    Weather.SLOW: _SLOW,
    Weather.LOSSY: _LOSSY,
    Weather.FAILING: _FAILING,
    Weather.MIXED: _MIXED,
    Weather.UNDOING: {K.DELAY_REQUEST: 0.4, K.LATE_REQUEST: 0.1},
    Weather.LEASE_LOST: {K.DELAY_REQUEST: 0.7},
    Weather.REFUSING: {K.FORBID: 0.12, K.INVALIDATE: 0.08, K.DELAY_REQUEST: 0.05},
}
_FAILING_BINDINGS = {K.ERROR_BEFORE: 0.7, K.ERROR_AFTER: 0.1, K.LATE_REQUEST: 0.1}
_REFUSED_BINDINGS = {K.FORBID: 0.3, K.INVALIDATE: 0.1}
_WATCHES = {K.WATCH_REFUSED: 0.1, K.WATCH_CUT: 0.5, K.WATCH_HELD: 0.5}
_LEASES = (K.DELAY_REQUEST, K.NO_ANSWER, K.ERROR_BEFORE, K.LOSE_ANSWER)
#: Of delays, so many are longer than a lease.
_LONG = 0.15


class Call(NamedTuple):
    """Request of a process, with what decides about its faults."""

    key: str  #: process and number of the request
    process: str
    method: str
    path: str
    watch: bool

    @property
    def is_lease(self) -> bool:
        return "/leases" in self.path


class FaultPlan:
    """Choice of faults by request; `weather` and `victim` change as the case goes on."""

    def __init__(self, seed: int, lease_seconds: float, allowed: frozenset[str] | None = None) -> None:
        self.seed = seed
        self.weather = Weather.CALM
        #: Process whose lease is lost, in that weather.
        self.victim = ""
        self.counts: Counter[str] = Counter()
        #: Keys of the faults injected so far, in order.
        self.injected: list[str] = []
        self._lease_seconds = lease_seconds
        self._allowed = allowed

    def permits(self, key: str) -> bool:
        """Return whether a fault is part of the case, of which some may be left out."""
        return self._allowed is None or key in self._allowed

    def note(self, key: str, what: str) -> None:
        self.injected.append(key)
        self.counts[what] += 1

    def choose(self, call: Call) -> Fault | None:
        """Return the fault of a request, if it is to have one."""
        weather = self.weather
        if weather is Weather.CALM or (self._allowed is not None and call.key not in self._allowed):
            return None
        if weather is Weather.LEASE_LOST and call.process != self.victim:
            return None
        dice = Dice(self.seed, call.key)
        kind = self._choose_kind(call, dice)
        if kind is None:
            return None
        self.note(call.key, kind.value)
        return Fault(kind, self._seconds(dice), dice.choice((500, 502, 503, 504)))

    def _choose_kind(self, call: Call, dice: Dice) -> FaultKind | None:
        left = dice.random()
        weather = self.weather
        if call.is_lease:
            return dice.choice(_LEASES) if weather is Weather.LEASE_LOST or left < 0.12 else None
        chances = _CHANCES[weather]
        if call.watch:
            chances = _WATCHES
        elif weather is Weather.UNDOING and call.path.endswith("/binding"):
            chances = _FAILING_BINDINGS
        elif weather is Weather.REFUSING:
            if call.method == "GET" or not call.process.startswith(("scheduler", "controllers")):
                return None
            chances = _REFUSED_BINDINGS if call.path.endswith("/binding") else chances
        kind = None
        for each, chance in chances.items():
            left -= chance
            if left < 0:
                kind = each
                break
        late = (K.DELAY_REQUEST, K.LATE_REQUEST, K.DUPLICATE)
        if kind in late and call.process.startswith("kubelet") and call.path.endswith("/status"):
            return (
                None  # a late status of a kubelet, which has no precondition, undoes a newer one for a while
            )
        return kind

    def _seconds(self, dice: Dice) -> float:
        if self.weather in (Weather.LEASE_LOST, Weather.UNDOING) or dice.random() < _LONG:
            return self._lease_seconds * dice.between(1, 2)
        return dice.between(0.02, 1)
