"""What is known of a pod at one moment, and what is decided about it: the values of `decisions.py`.

A Situation holds everything a decision depends on, so that deciding is a function. Times are seconds since
1970.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from plimsoll.api.core import Container, Pod
from plimsoll.node.containers import ContainerInfo, SandboxInfo
from plimsoll.node.pods.backoff import Failure, Timing, Wait


class Cause(StrEnum):
    """Why a pod ends."""

    VANISHED = "vanished"  #: it is gone from the API
    ORDERED = "ordered"  #: someone on the node wants it to fail: eviction
    DELETED = "deleted"  #: it is being deleted
    TERMINAL = "terminal"  #: the API has it as Succeeded or Failed
    DEADLINE = "deadline"  #: it was active for too long
    FAILED = "failed"  #: an init container failed for good
    FINISHED = "finished"  #: all its containers have ended for good


@dataclass(frozen=True, slots=True)
class TerminationRequest:
    """An order to end a pod as Failed; `disruption` is the reason for the condition DisruptionTarget."""

    reason: str
    message: str
    grace: float | None = None
    disruption: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """A pod that ends: why, since when, and when what still runs is killed."""

    cause: Cause
    since: float
    deadline: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """What probes say of a container that runs; `failed` is the kind of probe that wants it killed."""

    started: bool = True
    ready: bool = True
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A pod, and all that counts for what is to be done about it."""

    pod: Pod
    now: float
    timing: Timing = field(default_factory=Timing)
    sandbox: SandboxInfo | None = None
    #: All attempts the runtime still knows, oldest first.
    states: Sequence[ContainerInfo] = ()
    #: Restarts the API knows of, by container: attempts are counted on from there.
    restarts: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, Wait] = field(default_factory=dict)
    #: Steps that failed, by container; those of the whole pod go by the empty name.
    failures: Mapping[str, Failure] = field(default_factory=dict)
    #: By container id.
    probes: Mapping[str, Probed] = field(default_factory=dict)
    order: TerminationRequest | None = None
    vanished: bool = False
    started_at: float | None = None
    ending: Ending | None = None
    #: Containers to be started again however they ended: a resize asks for it.
    forced: Collection[str] = ()
    #: Stops under way: container id -> when it will be killed.
    stopping: Mapping[str, float] = field(default_factory=dict)


# -- what to do


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Prepare the claims of the pod and make its sandbox; what is left of an older one goes first."""

    stale: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Create a container and start it. `ended_at` is when its last attempt ended; `replaces` was created,
    could not be started, and is removed first."""

    container: Container
    attempt: int
    ended_at: float | None = None
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start a container that was created before."""

    container: Container
    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Have a container end within `grace` seconds."""

    id: str
    name: str
    grace: float
    message: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Forget a container that has ended, or was never started."""

    id: str


Action: TypeAlias = RunSandbox | Begin | Launch | Stop | Remove


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container does not run, as its status shows it."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do now, in this order, and when to look again though nothing changes."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    ending: Ending | None = None

    @property
    def stops(self) -> tuple[Stop, ...]:
        return tuple(action for action in self.actions if isinstance(action, Stop))

    @property
    def others(self) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if not isinstance(action, Stop))
