"""Dependencies of the pod workers: the other components of an agent, behind small protocols."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll.api.core import Container, Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.node.admission.resize import ResizeDecision
from plimsoll.node.cgroup_planner import PodCgroupPlans
from plimsoll.node.cgroups.values import PodUsage
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.faults import ClaimFault
from plimsoll.node.containers import Runtime, VolumeMount
from plimsoll.node.device_plugins.devices import PluginDeviceAllocation
from plimsoll.node.pods.backoff import PodTiming
from plimsoll.node.pods.downward_fields import DownwardNodeInfo
from plimsoll.node.pods.environment import ApiObjectReader
from plimsoll.node.pods.handlers import CommandRunner
from plimsoll.node.pods.service_reader import ServiceReader
from plimsoll.node.pods.writer import PodEvents, StatusWriter
from plimsoll.node.security.policy import SecurityPolicy


class ClaimManager(Protocol):
    """Claims of this node: `claims.claim_info_cache.ClaimInfoCache`."""

    @property
    def needs_rebuild(self) -> bool:
        """True while the checkpoint is lost and not rebuilt."""
        ...

    async def prepare(self, pod: Pod, claims: Mapping[str, ResourceClaim]) -> tuple[ClaimFault, ...]: ...

    async def unprepare(self, pod_uid: str) -> tuple[ClaimFault, ...]: ...

    def cdi_ids(self, pod: Pod, container: Container) -> tuple[str, ...]: ...

    def claims_of_container(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None: ...

    def claims_of_pod(self, uid: str) -> tuple[ClaimInfo, ...]: ...


class DeviceAllocator(Protocol):
    """Devices of device plugins: `device_plugins.manager.DeviceManager`."""

    async def allocate(self, pod: Pod) -> str: ...

    def of_container(self, uid: str, container: str) -> tuple[PluginDeviceAllocation, ...]: ...

    async def announce_start(self, uid: str, container: str) -> str: ...

    async def release(self, uid: str) -> None: ...


class PodVolumeManager(Protocol):
    """Volumes of pods: `volumes.manager.VolumeManager`."""

    async def set_up(self, pod: Pod) -> str: ...

    def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> list[VolumeMount]: ...

    def update(self, pod: Pod) -> None: ...

    def adopt(self, pod: Pod) -> None: ...

    def forget(self, uid: str) -> None: ...


class PodPlanner(Protocol):
    """Cgroup plans of pods: `cgroup_planner.CgroupPlanner`."""

    def plan(self, pod: Pod) -> PodCgroupPlans: ...


class ReportedHealth(Protocol):
    """Health of a device."""

    @property
    def status(self) -> str: ...

    @property
    def message(self) -> str: ...


class Resizer(Protocol):
    """Allocated resources of pods, and their resizes: `admission.resize_manager.ResizeManager`."""

    def allocated(self, pod: Pod) -> Pod:
        """Return the pod with its allocated resources in place of those of its spec."""
        ...

    async def check(self, pod: Pod) -> ResizeDecision | None:
        """Check whether a pod can be allocated what its spec asks for; None if it already is. An accepted
        resize is allocated and on disk when this returns.
        """
        ...


def new_id() -> str:
    """Return a new container ID."""
    return secrets.token_hex(32)


@dataclass(slots=True, kw_only=True)
class WorkerDependencies:
    """Components of an agent that pod workers use."""

    runtime: Runtime
    claim_cache: ClaimManager
    plans: PodPlanner
    objects: ApiObjectReader
    writer: StatusWriter
    events: PodEvents
    clock: Callable[[], float] = time.time
    timing: PodTiming = field(default_factory=PodTiming)
    facts: Callable[[], DownwardNodeInfo] = DownwardNodeInfo
    health: Callable[[str, str, str], ReportedHealth | None] = lambda driver, pool, device: None
    resizer: Resizer | None = None
    #: Devices of device plugins; None: the node has no socket for them.
    devices: DeviceAllocator | None = None
    #: Volumes; None: the runtime provides none, or simulates all.
    volumes: PodVolumeManager | None = None
    #: Services for the environment of containers; None: nothing runs in them.
    services: ServiceReader | None = None
    #: Runner of the commands of probes and hooks; None: they fail.
    commands: CommandRunner | None = None
    #: Check of security contexts; None: nothing runs in the containers, and everything is accepted.
    security: SecurityPolicy | None = None
    #: Nothing runs in the containers: every probe passes and every hook succeeds.
    skip_probes: bool = False
    #: Resource usage of a pod, by UID, so that no limit is set below it.
    usage: Callable[[str], PodUsage | None] = lambda uid: None
    new_id: Callable[[], str] = new_id
    #: Called after every PrepareResources and UnprepareResources with its duration in seconds and whether it
    #: failed.
    observe: Callable[[str, float, bool], None] = lambda operation, seconds, failed: None
