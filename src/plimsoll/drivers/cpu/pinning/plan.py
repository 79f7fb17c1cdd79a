"""Desired cpuset of each container. Pure.

A container with claims runs on the CPUs of its claims, one without on the shared pool
(docs/spec/cpu-driver.md, "NRI plugin"). Guarantees: exclusive CPUs are those of allocations that match the
container's environment; no container gets an empty cpuset; a malformed environment never raises.

DIFF: the containers of one pod may share a claim, including init containers and sidecars; the Go driver binds
a claim to one container (test_problem_7_containers_of_one_pod_share_a_claim). DIFF: a claim can be used only
in its own namespace; the Go driver trusts any container that names a prepared claim
(test_a_claim_of_another_namespace_is_refused). DIFF: offline CPUs are omitted from cpusets; the Go driver
does not follow hotplug (test_offline_cpus_are_left_out). DIFF: a running container with a malformed
environment is moved to the shared pool; the Go driver leaves it where it is
(test_an_unreadable_running_container_is_moved_to_the_shared_pool).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.api.go_text import quote_go
from plimsoll.common.checkpoint import NodeFinding
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state.cdi import ENV, REQUEST_ENV
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.errors import InputError

PREFIX = f"{ENV}_"
REQUEST_PREFIX = f"{REQUEST_ENV}_"
#: Limits on CPU numbers and lists; longer ones are invalid.
_LONG_NUMBER = re.compile(r"[0-9]{6}")
_MAX_LIST_LENGTH = 1 << 16
_MAX_SHOWN = 200


class PinFaultReason(StrEnum):
    """Reason why a container does not have its desired cpuset."""

    MALFORMED = "malformed"  # its environment is malformed
    UNKNOWN = "unknown"  # the claim is not prepared
    MISMATCH = "mismatch"  # the claim has other CPUs than the container's environment
    DISPUTED = "disputed"  # sources contradict each other about the claim
    OWNED = "owned"  # the claim is used by another pod
    FOREIGN = "foreign"  # the claim belongs to another namespace
    EMPTY_POOL = "empty-pool"  # no shared CPU is left
    OFFLINE = "offline"  # no CPU of its claims is online
    OVERLAPPING = "overlapping"  # another container is still on its CPUs
    REFUSED = "refused"  # the runtime or kernel rejects the update
    DRIFTED = "drifted"  # something else has set other CPUs


@dataclass(frozen=True, slots=True)
class PinFault:
    """Pinning problem of a container: `claim` is a UID, `other` another pod, namespace or container."""

    reason: PinFaultReason
    container: str = ""
    where: str = ""
    claim: str = ""
    desired: CpuSet = EMPTY
    found: CpuSet = EMPTY
    other: str = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """Message for users; the Go driver's text where it has the case."""
        claim, desired, found = quote_go(self.claim), quote_go(str(self.desired)), quote_go(str(self.found))
        match self.reason:
            case PinFaultReason.MALFORMED:
                return self.detail
            case PinFaultReason.UNKNOWN:
                return f"claim {claim} is not prepared by this driver"
            case PinFaultReason.MISMATCH:
                return (
                    f"validation failed for claim {claim}: cpuset mismatch (expected {desired}, got {found})"
                )
            case PinFaultReason.DISPUTED:
                return f"claim {claim} is in dispute, nothing may start on its CPUs: {self.detail}"
            case PinFaultReason.OWNED:
                return f"claimUID {claim} already bound to pod {quote_go(self.other)}"
            case PinFaultReason.FOREIGN:
                return f"claim {claim} is of namespace {quote_go(self.other)}"
            case PinFaultReason.EMPTY_POOL:
                return "no shared CPUs are left for containers without exclusive CPUs"
            case PinFaultReason.OFFLINE:
                return f"no CPU of the container's claims is online: {desired}"
            case PinFaultReason.OVERLAPPING:
                return f"CPUs {found} are still used by container {quote_go(self.other)}"
            case PinFaultReason.REFUSED:
                return f"CPUs {desired} are not set: {self.detail}"
            case PinFaultReason.DRIFTED:
                return f"runs on CPUs {found} instead of {desired}: something else has set them"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True, slots=True)
class ContainerEnv:
    """Claims in a container's environment: CPUs by claim UID, and the requests it names."""

    claims: Mapping[str, CpuSet] = field(default_factory=dict)
    requests: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerView:
    """Container as reported by its runtime. No `requests` for a claim means all of them.

    `running` is false while it is being created. `malformed` is set if its environment cannot be parsed.
    """

    id: str
    pod_uid: str = ""
    namespace: str = ""
    pod: str = ""
    name: str = ""
    claims: Mapping[str, CpuSet] = field(default_factory=dict)
    running: bool = True
    cpus: str = ""
    mems: str = ""
    quota: int = 0
    requests: Mapping[str, frozenset[str]] = field(default_factory=dict)
    malformed: str = ""
    sandbox: str = ""
    pid: int = 0

    @property
    def where(self) -> str:
        return "/".join(filter(None, (self.namespace, self.pod, self.name))) or self.id

    @property
    def shared(self) -> bool:
        """True if it runs on the shared pool."""
        return not self.claims


@dataclass(frozen=True, slots=True)
class DesiredCpuset:
    """Desired cpuset of a container. Empty `cpus` means that it is not managed.

    `offline` are CPUs of its claims that are offline.
    """

    cpus: CpuSet
    mems: str = ""
    lift_quota: bool = False
    exclusive: CpuSet = EMPTY
    offline: CpuSet = EMPTY


@dataclass(frozen=True, slots=True)
class PinDecision:
    """Decision about a running container: `desired` None means that it keeps its cpuset."""

    desired: DesiredCpuset | None
    fault: PinFault | None = None


class CpuStateView(Protocol):
    """Part of the CPU state that pinning uses."""

    @property
    def allocations(self) -> Mapping[str, ClaimAllocation]: ...
    @property
    def shared(self) -> CpuSet: ...
    @property
    def revision(self) -> int: ...
    def check_containers(self, containers: Iterable[ContainerView]) -> tuple[NodeFinding, ...]: ...


@dataclass(frozen=True, slots=True)
class PinSnapshot:
    """Consistent snapshot of everything a decision depends on, except the container."""

    allocations: Mapping[str, ClaimAllocation]
    shared: CpuSet
    topology: Topology
    pin: PinSettings = field(default_factory=PinSettings)
    owners: Mapping[str, str] = field(default_factory=dict)


def take_snapshot(state: CpuStateView, topology: Topology, pin: PinSettings) -> PinSnapshot:
    """Take a consistent snapshot of the state, even if another thread changes it."""
    while True:
        revision = state.revision
        allocations = dict(state.allocations)
        shared = state.shared - union(allocation.cpus for allocation in allocations.values())
        if state.revision == revision:
            return PinSnapshot(allocations, shared, topology, pin)


class SnapshotCache:
    """Snapshots of a state, taken again only if it has changed: one claim needs several."""

    def __init__(self, state: CpuStateView, pin: PinSettings) -> None:
        self._state, self._pin = state, pin
        self._revision = -1
        self._last: PinSnapshot | None = None

    def take(self, topology: Topology) -> PinSnapshot:
        """Return what `take_snapshot` returns, or the last snapshot if it is still current."""
        # Read before the state, so that a snapshot of a newer state is taken again rather than kept.
        revision = self._state.revision
        last = self._last
        if last is None or revision != self._revision or last.topology is not topology:
            last = take_snapshot(self._state, topology, self._pin)
            self._last, self._revision = last, revision
        return last


def read_env(env: Iterable[str]) -> ContainerEnv | PinFault:
    """Parse the claims in a container's environment."""
    claims: dict[str, CpuSet] = {}
    requests: dict[str, set[str]] = {}
    for entry in env:
        if entry.startswith(REQUEST_PREFIX):
            uid, _, request = entry.partition("=")[0].removeprefix(REQUEST_PREFIX).partition("_")
            if uid and request:
                requests.setdefault(uid, set()).add(request)
            continue
        if not entry.startswith(ENV):
            continue
        name, sign, value = entry.partition("=")
        if not sign:
            return PinFault(PinFaultReason.MALFORMED, detail=f"malformed DRA env entry {_quote(entry)}")
        if not name.startswith(PREFIX):
            continue
        cpus = _read_cpus(value)
        if isinstance(cpus, str):
            text = f"failed to parse cpuset value {_quote(value)} from env {_quote(entry)}: {cpus}"
            return PinFault(PinFaultReason.MALFORMED, detail=text)
        claims[name.removeprefix(PREFIX)] = cpus
    return ContainerEnv(claims, {uid: frozenset(named) for uid, named in requests.items() if uid in claims})


@lru_cache(maxsize=64)  # all containers of the shared pool have the same CPUs
def _read_cpus(text: str) -> CpuSet | str:
    if len(text) > _MAX_LIST_LENGTH or _LONG_NUMBER.search(text):
        return "no machine has that many CPUs"
    try:
        return CpuSet.parse(text)
    except InputError as error:
        return str(error)[:_MAX_SHOWN]


def read_cpus(text: str) -> CpuSet | None:
    """Parse a cpuset reported by a runtime or kernel; None if it is invalid."""
    cpus = _read_cpus(text.strip())
    return cpus if isinstance(cpus, CpuSet) else None


def _quote(text: str) -> str:
    return quote_go(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")


def compute_desired(
    container: ContainerView,
    allocations: Mapping[str, ClaimAllocation],
    shared: CpuSet,
    topology: Topology,
    pin: PinSettings,
    *,
    owners: Mapping[str, str] | None = None,
) -> DesiredCpuset | PinFault:
    """Compute the cpuset of a new container, or the fault for which it must not be created.

    `owners` are the pods that use claims, by claim.
    """
    if container.malformed:
        return _fault(container, PinFaultReason.MALFORMED, detail=container.malformed)
    snapshot = PinSnapshot(allocations, shared, topology, pin, owners or {})
    for uid in container.claims:
        fault = _claim_fault(container, uid, snapshot)
        if fault is not None:
            return fault
    return _compute_cpuset(container, container.claims, snapshot)


def decide(container: ContainerView, snapshot: PinSnapshot) -> PinDecision:
    """Decide about a running container, even one that should not have been created.

    Claims that are not allocated give no CPUs: such a container is moved to the shared pool. If the right
    CPUs cannot be determined, it keeps its cpuset.
    """
    if container.malformed:
        fault: PinFault | None = _fault(container, PinFaultReason.MALFORMED, detail=container.malformed)
        return _make_decision(container, (), snapshot, fault)
    kept: list[str] = []
    fault = None
    for uid in container.claims:
        owned = found = _claim_fault(container, uid, snapshot)
        if found is not None and found.reason is PinFaultReason.OWNED:
            # A container that already runs on a shared claim is not moved away.
            found = _claim_fault(container, uid, replace(snapshot, owners={}))
        if found is not None and found.reason in (PinFaultReason.MISMATCH, PinFaultReason.DISPUTED):
            return PinDecision(None, found)
        if found is None:
            kept.append(uid)
        fault = fault or found or owned
    return _make_decision(container, kept, snapshot, fault)


def _make_decision(
    container: ContainerView, claims: Iterable[str], snapshot: PinSnapshot, fault: PinFault | None
) -> PinDecision:
    share = _compute_cpuset(container, claims, snapshot)
    if isinstance(share, PinFault):
        return PinDecision(None, share)
    return PinDecision(share, fault)


def _claim_fault(container: ContainerView, uid: str, snapshot: PinSnapshot) -> PinFault | None:
    """Return the fault for which a container may not use a claim, checked in the Go driver's order."""
    owner = snapshot.owners.get(uid, container.pod_uid)
    if owner != container.pod_uid and not snapshot.pin.across_pods:
        return _fault(container, PinFaultReason.OWNED, uid, other=owner)
    allocation = snapshot.allocations.get(uid)
    if allocation is None:
        return _fault(container, PinFaultReason.UNKNOWN, uid)
    if allocation.disputed:
        return _fault(container, PinFaultReason.DISPUTED, uid, detail=allocation.disputed)
    if allocation.assigned != container.claims[uid]:
        return _fault(
            container, PinFaultReason.MISMATCH, uid, desired=allocation.assigned, found=container.claims[uid]
        )
    namespace = allocation.ref.namespace
    if namespace and container.namespace and namespace != container.namespace:
        return _fault(container, PinFaultReason.FOREIGN, uid, other=namespace)
    return None


def _compute_cpuset(
    container: ContainerView, claims: Iterable[str], snapshot: PinSnapshot
) -> DesiredCpuset | PinFault:
    """Compute the cpuset from these claims, or from the shared pool."""
    used = [uid for uid in claims if snapshot.allocations[uid].assigned]
    online, shared = snapshot.topology.all, snapshot.shared & snapshot.topology.all
    if not used:
        if shared:
            return DesiredCpuset(shared)
        if not snapshot.allocations or snapshot.pin.empty_pool:
            # Nothing is allocated and the shared pool is empty: containers are not managed.
            return DesiredCpuset(EMPTY)
        return _fault(container, PinFaultReason.EMPTY_POOL)
    all_own = union(_get_claim_cpus(container, uid, snapshot) for uid in used)
    own = all_own & online
    if not own:
        return _fault(container, PinFaultReason.OFFLINE, desired=all_own)
    default = snapshot.pin.include_shared
    mixed = any(snapshot.allocations[uid].includes_shared(default) for uid in used)
    cpus = own | shared if mixed else own
    nodes = [node for node in snapshot.topology.numa_of(cpus) if node >= 0]
    return DesiredCpuset(
        cpus,
        mems=str(CpuSet(nodes)) if snapshot.pin.mems else "",
        lift_quota=snapshot.pin.lift_quota and not mixed,
        exclusive=own,
        offline=all_own - online,
    )


def _get_claim_cpus(container: ContainerView, uid: str, snapshot: PinSnapshot) -> CpuSet:
    """Return the CPUs of a claim for this container."""
    allocation = snapshot.allocations[uid]
    named = container.requests.get(uid)
    if named and (snapshot.pin.per_request_cpus or allocation.per_request) and not allocation.adopted:
        # A request for another driver's device does not restrict the CPUs.
        return union(map(allocation.get_request_cpus, named)) or allocation.assigned
    return allocation.assigned


def _fault(
    container: ContainerView,
    reason: PinFaultReason,
    claim: str = "",
    *,
    desired: CpuSet = EMPTY,
    found: CpuSet = EMPTY,
    other: str = "",
    detail: str = "",
) -> PinFault:
    return PinFault(reason, container.id, container.where, claim, desired, found, other, detail)


def make_refused_fault(container: ContainerView, cpus: CpuSet, why: str) -> PinFault:
    """Build the fault for a failed update."""
    return _fault(container, PinFaultReason.REFUSED, desired=cpus, detail=why[:_MAX_SHOWN])


def make_owned_fault(container: ContainerView, claim: str, other: str) -> PinFault:
    """Build the fault for a claim that another container of the pod uses."""
    return _fault(container, PinFaultReason.OWNED, claim, other=f"{container.pod_uid}/{other}")


def make_overlap_fault(container: ContainerView, other: ContainerView, both: CpuSet) -> PinFault:
    """Build the fault for another container on exclusive CPUs."""
    return _fault(container, PinFaultReason.OVERLAPPING, found=both, other=other.where)


def make_drift_fault(container: ContainerView, cpus: CpuSet, found: CpuSet) -> PinFault:
    return _fault(container, PinFaultReason.DRIFTED, desired=cpus, found=found)
