"""Observed state of a pod, and the actions computed from it: the values of `pod_actions.py`.

A `PodState` holds everything the computation depends on, so that it is a pure function. Times are seconds
since the epoch.
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
    """Cause of a pod's termination."""

    VANISHED = "vanished"  #: it was removed from the API
    ORDERED = "ordered"  #: the node requested that it fails: eviction
    DELETED = "deleted"  #: it is being deleted
    TERMINAL = "terminal"  #: its phase in the API is Succeeded or Failed
    DEADLINE = "deadline"  #: it exceeded its active deadline
    FAILED = "failed"  #: an init container failed and is not restarted
    FINISHED = "finished"  #: all its containers terminated and are not restarted


@dataclass(frozen=True, slots=True)
class TerminationRequest:
    """Request to terminate a pod as Failed; `disruption` is the reason of the condition DisruptionTarget."""

    reason: str
    message: str
    grace: float | None = None
    disruption: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """Termination of a pod: the cause, the start, and the time at which remaining containers are killed."""

    cause: Cause
    since: float
    deadline: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Probed:
    """Probe results of a running container; `failed` is the kind of probe that requires killing it."""

    started: bool = True
    ready: bool = True
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Pod, with everything that determines its next actions."""

    pod: Pod
    now: float
    timing: Timing = field(default_factory=Timing)
    sandbox: SandboxInfo | None = None
    #: All attempts the runtime still knows, oldest first.
    states: Sequence[ContainerInfo] = ()
    #: Restart counts reported to the API, by container; attempts continue from there.
    restarts: Mapping[str, int] = field(default_factory=dict)
    waits: Mapping[str, Wait] = field(default_factory=dict)
    #: Failed steps by container; those of the pod itself have an empty name.
    failures: Mapping[str, Failure] = field(default_factory=dict)
    #: By container ID.
    probes: Mapping[str, Probed] = field(default_factory=dict)
    order: TerminationRequest | None = None
    vanished: bool = False
    started_at: float | None = None
    ending: Ending | None = None
    #: Containers to restart however they exited: a resize requires it.
    forced: Collection[str] = ()
    #: Stops in progress: container ID -> time at which it will be killed.
    stopping: Mapping[str, float] = field(default_factory=dict)


# -- actions


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Prepare the claims of the pod and create its sandbox, after removing a stale one."""

    stale: bool = False


@dataclass(frozen=True, slots=True)
class Begin:
    """Create and start a container. `ended_at` is when its last attempt exited; `replaces` was created, could
    not be started, and is removed first.
    """

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
    """Stop a container within `grace` seconds."""

    id: str
    name: str
    grace: float
    message: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a container that has exited or was never started."""

    id: str


Action: TypeAlias = RunSandbox | Begin | Launch | Stop | Remove


@dataclass(frozen=True, slots=True)
class Waiting:
    """Reason why a container does not run, as its status shows it."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Actions to perform now, in this order, and the time of the next sync if nothing changes."""

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
