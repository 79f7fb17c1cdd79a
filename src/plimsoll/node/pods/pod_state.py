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
from plimsoll.node.pods.backoff import PodTiming, RestartBackoff, StepFailure


class TerminationCause(StrEnum):
    """Cause of a pod's termination."""

    REMOVED = "removed"  #: it was removed from the API
    REQUESTED = "requested"  #: the node requested that it fails: eviction
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
class Termination:
    """Termination of a pod: the cause, the start, and the time at which remaining containers are killed."""

    cause: TerminationCause
    since: float
    deadline: float
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProbeResults:
    """Probe results of a running container; `failed` is the kind of probe that requires killing it."""

    started: bool = True
    ready: bool = True
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodState:
    """Pod, with everything that determines its next actions."""

    pod: Pod
    now: float
    timing: PodTiming = field(default_factory=PodTiming)
    sandbox: SandboxInfo | None = None
    #: All attempts the runtime still knows, oldest first.
    states: Sequence[ContainerInfo] = ()
    #: Restart counts reported to the API, by container; attempts continue from there.
    restarts: Mapping[str, int] = field(default_factory=dict)
    backoffs: Mapping[str, RestartBackoff] = field(default_factory=dict)
    #: Failed steps by container; those of the pod itself have an empty name.
    failures: Mapping[str, StepFailure] = field(default_factory=dict)
    #: By container ID.
    probes: Mapping[str, ProbeResults] = field(default_factory=dict)
    termination_request: TerminationRequest | None = None
    removed: bool = False
    started_at: float | None = None
    termination: Termination | None = None
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
class CreateContainer:
    """Create and start a container. `ended_at` is when its last attempt exited; `replaces` was created, could
    not be started, and is removed first.
    """

    container: Container
    attempt: int
    ended_at: float | None = None
    replaces: str = ""


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Start a container that was created before."""

    container: Container
    id: str


@dataclass(frozen=True, slots=True)
class StopContainer:
    """Stop a container within `grace` seconds."""

    id: str
    name: str
    grace: float
    message: str


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Remove a container that has exited or was never started."""

    id: str


Action: TypeAlias = RunSandbox | CreateContainer | StartContainer | StopContainer | RemoveContainer


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Reason why a container does not run, as its status shows it."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodActions:
    """Actions to perform now, in this order, and the time of the next sync if nothing changes."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    waiting: Mapping[str, WaitingReason] = field(default_factory=dict)
    termination: Termination | None = None

    @property
    def stops(self) -> tuple[StopContainer, ...]:
        return tuple(action for action in self.actions if isinstance(action, StopContainer))

    @property
    def others(self) -> tuple[Action, ...]:
        return tuple(action for action in self.actions if not isinstance(action, StopContainer))
