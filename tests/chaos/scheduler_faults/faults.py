"""Requests by their purpose, and the faults that the proxy injects into them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tests.simulation.faults import FaultKind


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
