"""What a worker works with: the other parts of an agent, behind small protocols."""

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
from plimsoll.node.containers import Runtime
from plimsoll.node.pods.backoff import Timing
from plimsoll.node.pods.checks import Commands
from plimsoll.node.pods.environment import NodeFacts, Objects
from plimsoll.node.pods.writer import Events, StatusWriter
from plimsoll.node.security.policy import SecurityPolicy


class Book(Protocol):
    """The claims of this node: `claims.claim_cache.ClaimInfoCache`."""

    async def prepare(self, pod: Pod, claims: Mapping[str, ResourceClaim]) -> tuple[ClaimFault, ...]: ...

    async def unprepare(self, pod_uid: str) -> tuple[ClaimFault, ...]: ...

    def cdi_ids(self, pod: Pod, container: Container) -> tuple[str, ...]: ...

    def claims_of_container(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None: ...

    def claims_of_pod(self, uid: str) -> tuple[ClaimInfo, ...]: ...


class Plans(Protocol):
    """What is set for pods: `enforcement.CgroupPlanner`."""

    def plan(self, pod: Pod) -> PodCgroupPlans: ...


class DeviceHealth(Protocol):
    """How a device is."""

    @property
    def status(self) -> str: ...

    @property
    def message(self) -> str: ...


class Resizes(Protocol):
    """What pods were given, and whether they may have what they ask for now."""

    def allocated(self, pod: Pod) -> Pod:
        """The pod as if its spec asked for what it was given."""
        ...

    async def check(self, pod: Pod) -> ResizeDecision | None:
        """Whether a pod may have what its spec asks for; None: it has it. What is accepted is given from
        then on, and that is on the disk."""
        ...


def new_id() -> str:
    """An id no container had before."""
    return secrets.token_hex(32)


def _nothing(driver: str, pool: str, device: str) -> DeviceHealth | None:
    return None


def _unobserved(operation: str, seconds: float, failed: bool) -> None:
    return None


def _unmeasured(uid: str) -> PodUsage | None:
    return None


@dataclass(slots=True, kw_only=True)
class Parts:
    """The parts of an agent that the life of a pod needs."""

    runtime: Runtime
    claim_cache: Book
    plans: Plans
    objects: Objects
    writer: StatusWriter
    events: Events
    clock: Callable[[], float] = time.time
    timing: Timing = field(default_factory=Timing)
    facts: Callable[[], NodeFacts] = NodeFacts
    health: Callable[[str, str, str], DeviceHealth | None] = _nothing
    resizes: Resizes | None = None
    #: Runs the commands of probes and hooks in containers; None: they fail.
    commands: Commands | None = None
    #: Judges security contexts; None: nothing runs in the containers, and everything is accepted.
    security: SecurityPolicy | None = None
    #: Nothing runs in the containers: every probe is taken for passed, every hook for done.
    unprobed: bool = False
    #: What a pod uses, by UID, so that no limit is set below it.
    usage: Callable[[str], PodUsage | None] = _unmeasured
    new_id: Callable[[], str] = new_id
    #: Told of every PrepareResources and UnprepareResources: the seconds it took, and whether it failed.
    observe: Callable[[str, float, bool], None] = _unobserved
