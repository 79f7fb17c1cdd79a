"""Input of a pod's status: the pod, the runtime's state, and the status reported before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plimsoll.api.core import Pod, ResourceRequirements
from plimsoll.api.meta import Condition
from plimsoll.node.containers import ContainerInfo, SandboxInfo
from plimsoll.node.pods.pod_state import ProbeResults, Termination, WaitingReason

Tree: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInput:
    """Everything that determines a pod's status at one time."""

    pod: Pod
    now: float
    #: Status reported last, or the one the API has.
    before: Mapping[str, Any] = field(default_factory=dict)
    states: Sequence[ContainerInfo] = ()
    sandbox: SandboxInfo | None = None
    probes: Mapping[str, ProbeResults] = field(default_factory=dict)
    waiting: Mapping[str, WaitingReason] = field(default_factory=dict)
    termination: Termination | None = None
    #: No container of the pod runs, nor will one be started.
    terminal: bool = False
    disruption: str = ""
    #: Name of the runtime, for container IDs.
    runtime: str = ""
    #: The runtime has no processes, see `SIMULATED`.
    simulated: bool = False
    host_ips: tuple[str, ...] = ()
    #: Allocated resources by container, where they differ from the spec.
    allocated: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    #: Allocated pod-level resources, if the spec has any.
    pod_level: ResourceRequirements | None = None
    #: Resources of running containers that differ from the allocated ones, by name.
    actual: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    #: `allocatedResourcesStatus` by container.
    health: Mapping[str, Sequence[Tree]] = field(default_factory=dict)
    resize: Sequence[Condition] = ()
