"""Script of a case: what happened in the simulator, as data that real processes can be put through.

A fault names its request by what the request is for, not by when it was sent: "the second binding of pod
p-3-plain". So it hits the same decision in both, although real processes send their requests at other times.
Calls for a lease are too many for that: their faults hit the next one of the leader, or of the other replica.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from tests.chaos.scheduler_faults.faults import CallKind, classify_call

Tree = dict[str, Any]

#: Names of replicas as faults have them: which of them leads is not the same in both.
LEADER, OTHER, CONTROLLERS = "leader", "other", "controllers"
_DECISIONS = (CallKind.CLAIM, CallKind.BINDING, CallKind.POD_STATUS, CallKind.OTHER)
#: Names of pods, with which those of their generated claims begin, and of other claims.
_OBJECT = re.compile(r"/((?:p-\d+|fill|extra)-[a-z]+(?:-\d+)?|named-\d)")


class Target(NamedTuple):
    """Purpose of a request: requests of one purpose are counted together."""

    who: str
    call: str
    object: str


def target_of(program: str, method: str, path: str, *, watch: bool) -> Target:
    """Return the purpose of a request; any scheduler may make a decision."""
    kind = classify_call(method, path, watch)
    who = "scheduler" if kind in _DECISIONS and program != CONTROLLERS else program
    found = _OBJECT.search(path)
    return Target(who, kind.value, found[1] if found else path.rsplit("/", 1)[-1])


class Step(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that happens, at a time of the case."""

    at: float
    do: str  #: see `tests.chaos.scheduler_faults.player`
    #: Pod to create, or state that is expected.
    tree: Tree = {}
    name: str = ""  #: pod to delete
    grace: int | None = None
    seconds: float = 0.0
    #: Replica that is killed or paused.
    who: str = ""
    #: Replica and resource of the watches that are cut, held or expired.
    watches: list[tuple[str, str]] = []
    #: Fault of the request of a purpose with this number, the first is 1.
    target: Target | None = None
    number: int = 0
    fault: str = ""
    status: int = 0


def write_script(steps: Iterable[Step]) -> str:
    """Write a step per line, as JSON."""
    return "".join(msgspec.json.encode(step).decode() + "\n" for step in steps)


def read_script(text: str) -> list[Step]:
    return [msgspec.json.decode(line, type=Step) for line in text.splitlines()]
