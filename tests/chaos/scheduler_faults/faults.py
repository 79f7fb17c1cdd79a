"""Kinds of faults, the calls they affect, and a count of injected faults."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class FaultKind(Enum):
    """Faults of the network, the server and the processes."""

    # -- requests
    DELAY_REQUEST = "request delayed"  #: it reaches the server late, even if its sender has given up
    DELAY_ANSWER = "answer delayed"  #: the server has done it, the sender learns of it late
    LOSE_REQUEST = "request lost"  #: connection closed, the server never sees it
    LOSE_ANSWER = "answer lost"  #: connection closed after the server has done it
    LATE_REQUEST = "request late"  #: connection closed at once, the request reaches the server afterwards
    DUPLICATE = "request duplicated"  #: a second copy reaches the server later, its answer is discarded
    REORDER = "request reordered"  #: held until others have passed
    REFUSE = "429 with Retry-After"
    ERROR_BEFORE = "5xx without effect"
    ERROR_AFTER = "5xx after the effect"
    # -- watches
    WATCH_EXPIRED = "watch expired (410)"
    WATCH_CUT = "watch cut"
    WATCH_STALLED = "watch stalled"
    # -- leases
    LEASE_STALLED = "lease call stalled"
    LEASE_FAILED = "lease call failed"
    # -- processes
    SCHEDULER_KILLED = "scheduler killed"
    SCHEDULER_PAUSED = "scheduler paused beyond its lease"
    SERVER_KILLED = "server killed"


class CallKind(Enum):
    """Purpose of a request."""

    LEASE = "lease"
    WATCH = "watch"
    READ = "read"
    CLAIM = "claim"
    POD_STATUS = "pod status"
    BINDING = "binding"
    EVENT = "event"
    OTHER = "other"

    @property
    def writes_decision(self) -> bool:
        """Return whether such a call writes a scheduling decision."""
        return self in (CallKind.CLAIM, CallKind.BINDING, CallKind.POD_STATUS)


@dataclass(frozen=True, slots=True)
class Call:
    """One request of one client of the proxy."""

    number: int
    client: str
    method: str
    path: str
    kind: CallKind
    body: bytes = b""

    @property
    def object_name(self) -> str:
        """Return the name of the object a namespaced call is about."""
        parts = self.path.split("/")
        where = parts.index("namespaces") + 3 if "namespaces" in parts else len(parts)
        return parts[where] if where < len(parts) else ""


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault to inject into one request."""

    kind: FaultKind
    seconds: float = 0.0
    status: int = 503
    #: Scripted tests: hold until this is set, instead of for `seconds`.
    until: asyncio.Event | None = field(default=None, compare=False)


Chooser: TypeAlias = Callable[[Call], Fault | None]


@dataclass
class FaultCounter:
    """Injected faults by kind."""

    counts: Counter[FaultKind] = field(default_factory=Counter)

    def add(self, kind: FaultKind) -> None:
        self.counts[kind] += 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def lines(self) -> list[str]:
        return [f"{self.counts[kind]:6d}  {kind.value}" for kind in FaultKind if self.counts[kind]]


def classify_call(method: str, path: str, watch: bool) -> CallKind:
    """Return the purpose of a request."""
    parts = path.strip("/").split("/")
    if watch:
        return CallKind.WATCH
    if "leases" in parts:
        return CallKind.LEASE
    if method == "GET":
        return CallKind.READ
    if "events" in parts:
        return CallKind.EVENT
    if parts[-1] == "binding":
        return CallKind.BINDING
    if "resourceclaims" in parts:
        return CallKind.CLAIM
    if "pods" in parts and parts[-1] == "status":
        return CallKind.POD_STATUS
    return CallKind.OTHER
