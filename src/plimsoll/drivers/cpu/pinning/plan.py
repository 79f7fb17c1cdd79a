"""What containers may run on. Pure.

Owns `ContainerView`, `Wanted`, `PinFault` and the rules between them (section 8 of the CPU driver's
specification): a container with claims runs on the CPUs of its claims, one without on the shared pool.
Promises: exclusive CPUs are those of holdings that agree with what the container was told; nobody is ever
given an empty set; whatever a container's environment says, nothing raises.

DIFF: the containers of one pod may use a claim together, init containers and sidecars too; the Go driver
binds a claim to one container (test_problem_7_containers_of_one_pod_share_a_claim).
DIFF: a claim can be used only in its own namespace; the Go driver believes any container that names a
prepared claim (test_a_claim_of_another_namespace_is_refused).
DIFF: CPUs that are offline are left out of what is set; the Go driver does not follow them
(test_offline_cpus_are_left_out).
DIFF: a running container whose environment cannot be read goes on on the shared pool; the Go driver leaves it
where it is (test_a_running_container_that_cannot_be_read_goes_to_the_shared_pool).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Protocol

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import Finding
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state.cdi import ENV, REQUEST_ENV
from plimsoll.drivers.cpu.state.holdings import Holding, union
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.errors import InputError
from plimsoll.protocols.nri.names import quote

PREFIX = f"{ENV}_"
REQUEST_PREFIX = f"{REQUEST_ENV}_"
#: No CPU has a longer number, and no list of them is longer; what is, is nonsense.
_LONG_NUMBER = re.compile(r"[0-9]{6}")
_LONGEST_LIST = 1 << 16
_SHOWN = 200


class Reason(StrEnum):
    """Why a container cannot be given what it should have, or has not got it."""

    MALFORMED = "malformed"  # its environment cannot be read
    UNKNOWN = "unknown"  # nobody prepared the claim
    MISMATCH = "mismatch"  # the claim holds other CPUs than the container was told
    DISPUTED = "disputed"  # witnesses do not agree about the claim
    OWNED = "owned"  # the claim is used by another pod
    FOREIGN = "foreign"  # the claim is of another namespace
    EMPTY_POOL = "empty-pool"  # no shared CPU is left
    OFFLINE = "offline"  # no CPU of its claims is online
    CROWDED = "crowded"  # another container is still on its CPUs
    REFUSED = "refused"  # the runtime or the kernel does not set what is wanted
    DRIFTED = "drifted"  # something else has set other CPUs


@dataclass(frozen=True, slots=True)
class PinFault:
    """What is wrong with one container. `claim` and `other` are UIDs and ids, where there are any."""

    reason: Reason
    container: str = ""
    where: str = ""
    claim: str = ""
    wanted: CpuSet = EMPTY
    found: CpuSet = EMPTY
    other: str = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """As users see it; in the Go driver's words where it has the case."""
        claim, wanted, found = quote(self.claim), quote(str(self.wanted)), quote(str(self.found))
        match self.reason:
            case Reason.MALFORMED:
                return self.detail
            case Reason.UNKNOWN:
                return f"claim {claim} is not prepared by this driver"
            case Reason.MISMATCH:
                return (
                    f"validation failed for claim {claim}: cpuset mismatch (expected {wanted}, got {found})"
                )
            case Reason.DISPUTED:
                return f"claim {claim} is in dispute, nothing may start on its CPUs: {self.detail}"
            case Reason.OWNED:
                return f"claimUID {claim} already bound to pod {quote(self.other)}"
            case Reason.FOREIGN:
                return f"claim {claim} is of namespace {quote(self.other)}"
            case Reason.EMPTY_POOL:
                return "no shared CPUs are left for containers without exclusive CPUs"
            case Reason.OFFLINE:
                return f"no CPU of the container's claims is online: {wanted}"
            case Reason.CROWDED:
                return f"CPUs {found} are still used by container {quote(self.other)}"
            case Reason.REFUSED:
                return f"CPUs {wanted} are not set: {self.detail}"
            case Reason.DRIFTED:
                return f"runs on CPUs {found} instead of {wanted}: something else has set them"

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True, slots=True)
class Told:
    """What the environment of a container says: CPUs by claim, and the requests that were picked of each."""

    claims: Mapping[str, CpuSet] = field(default_factory=dict)
    requests: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container as its runtime shows it. No `requests` of a claim: all of it.

    `running` is false while it is being made. `malformed` says that its environment cannot be read.
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
        """Whether it runs on the shared pool."""
        return not self.claims


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a container is to be given. Without CPUs: nothing is managed here, leave it as it is.

    `left_out` are CPUs of its claims that are offline.
    """

    cpus: CpuSet
    mems: str = ""
    lift_quota: bool = False
    exclusive: CpuSet = EMPTY
    left_out: CpuSet = EMPTY


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to become of a container that runs: nothing wanted means that it keeps what it has."""

    wanted: Wanted | None
    fault: PinFault | None = None


class Holdings(Protocol):
    """What pinning needs of the book."""

    @property
    def holdings(self) -> Mapping[str, Holding]: ...
    @property
    def shared(self) -> CpuSet: ...
    @property
    def revision(self) -> int: ...
    def witness(self, containers: Iterable[ContainerView]) -> tuple[Finding, ...]: ...


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a decision depends on beside the container, at one moment."""

    holdings: Mapping[str, Holding]
    shared: CpuSet
    topology: Topology
    pin: PinSettings = field(default_factory=PinSettings)
    owners: Mapping[str, str] = field(default_factory=dict)


def take_scene(book: Holdings, topology: Topology, pin: PinSettings) -> Scene:
    """The book at one moment, even if another thread writes to it."""
    while True:
        revision = book.revision
        holdings = dict(book.holdings)
        shared = book.shared - union(holding.cpus for holding in holdings.values())
        if book.revision == revision:
            return Scene(holdings, shared, topology, pin)


def read_env(env: Iterable[str]) -> Told | PinFault:
    """What the environment of a container says about claims."""
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
            return PinFault(Reason.MALFORMED, detail=f"malformed DRA env entry {_quoted(entry)}")
        if not name.startswith(PREFIX):
            continue
        cpus = _read_cpus(value)
        if isinstance(cpus, str):
            text = f"failed to parse cpuset value {_quoted(value)} from env {_quoted(entry)}: {cpus}"
            return PinFault(Reason.MALFORMED, detail=text)
        claims[name.removeprefix(PREFIX)] = cpus
    return Told(claims, {uid: frozenset(named) for uid, named in requests.items() if uid in claims})


@lru_cache(maxsize=64)  # all containers of the shared pool have the same CPUs
def _read_cpus(text: str) -> CpuSet | str:
    if len(text) > _LONGEST_LIST or _LONG_NUMBER.search(text):
        return "no machine has that many CPUs"
    try:
        return CpuSet.parse(text)
    except InputError as error:
        return str(error)[:_SHOWN]


def read_cpus(text: str) -> CpuSet | None:
    """What a runtime or a kernel says, None if that is no set of CPUs."""
    cpus = _read_cpus(text.strip())
    return cpus if isinstance(cpus, CpuSet) else None


def _quoted(text: str) -> str:
    return quote(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def wanted(
    container: ContainerView,
    holdings: Mapping[str, Holding],
    shared: CpuSet,
    topology: Topology,
    pin: PinSettings,
    *,
    owners: Mapping[str, str] | None = None,
) -> Wanted | PinFault:
    """What a container is to be given, or why it must not be made.

    `owners` are the pods that use claims, by claim.
    """
    if container.malformed:
        return _fault(container, Reason.MALFORMED, detail=container.malformed)
    scene = Scene(holdings, shared, topology, pin, owners or {})
    for uid in container.claims:
        fault = _claim_fault(container, uid, scene)
        if fault is not None:
            return fault
    return _share(container, container.claims, scene)


def judge(container: ContainerView, scene: Scene) -> Verdict:
    """What is to become of a container that runs already, whether or not it should have been made.

    Claims that nobody holds (any more) give no right to CPUs: such a container goes on on the shared pool. If
    it cannot be told which CPUs are right, it keeps what it has.
    """
    if container.malformed:
        fault: PinFault | None = _fault(container, Reason.MALFORMED, detail=container.malformed)
        return _settle(container, (), scene, fault)
    kept: list[str] = []
    fault = None
    for uid in container.claims:
        owned = found = _claim_fault(container, uid, scene)
        if found is not None and found.reason is Reason.OWNED:
            # Who got in meanwhile uses the claim with others; to move it away would help nobody.
            found = _claim_fault(container, uid, replace(scene, owners={}))
        if found is not None and found.reason in (Reason.MISMATCH, Reason.DISPUTED):
            return Verdict(None, found)
        if found is None:
            kept.append(uid)
        fault = fault or found or owned
    return _settle(container, kept, scene, fault)


def _settle(container: ContainerView, claims: Iterable[str], scene: Scene, fault: PinFault | None) -> Verdict:
    share = _share(container, claims, scene)
    if isinstance(share, PinFault):
        return Verdict(None, share)
    return Verdict(share, fault)


def _claim_fault(container: ContainerView, uid: str, scene: Scene) -> PinFault | None:
    """Why a container may not use a claim; in the order in which the Go driver looks."""
    owner = scene.owners.get(uid, container.pod_uid)
    if owner != container.pod_uid and not scene.pin.across_pods:
        return _fault(container, Reason.OWNED, uid, other=owner)
    holding = scene.holdings.get(uid)
    if holding is None:
        return _fault(container, Reason.UNKNOWN, uid)
    if holding.disputed:
        return _fault(container, Reason.DISPUTED, uid, detail=holding.disputed)
    if holding.granted != container.claims[uid]:
        return _fault(container, Reason.MISMATCH, uid, wanted=holding.granted, found=container.claims[uid])
    namespace = holding.ref.namespace
    if namespace and container.namespace and namespace != container.namespace:
        return _fault(container, Reason.FOREIGN, uid, other=namespace)
    return None


def _share(container: ContainerView, claims: Iterable[str], scene: Scene) -> Wanted | PinFault:
    """The CPUs of these claims, or of the shared pool."""
    used = [uid for uid in claims if scene.holdings[uid].granted]
    online, shared = scene.topology.all, scene.shared & scene.topology.all
    if not used:
        if shared:
            return Wanted(shared)
        if not scene.holdings:
            # Nothing is claimed, and no CPU is left to this driver: it has no say here.
            return Wanted(EMPTY)
        return _fault(container, Reason.EMPTY_POOL)
    all_own = union(_own(container, uid, scene) for uid in used)
    own = all_own & online
    if not own:
        return _fault(container, Reason.OFFLINE, wanted=all_own)
    mixed = any(_mixed(scene.holdings[uid], scene.pin) for uid in used)
    cpus = own | shared if mixed else own
    nodes = [node for node in scene.topology.numa_of(cpus) if node >= 0]
    return Wanted(
        cpus,
        mems=str(CpuSet(nodes)) if scene.pin.mems else "",
        lift_quota=scene.pin.lift_quota and not mixed,
        exclusive=own,
        left_out=all_own - online,
    )


def _own(container: ContainerView, uid: str, scene: Scene) -> CpuSet:
    """The CPUs of a claim that are for this container."""
    holding = scene.holdings[uid]
    named = container.requests.get(uid)
    if named and (scene.pin.requests_apart or holding.apart) and not holding.adopted:
        # A name that is none of the claim's (a request for another driver's device) says nothing about CPUs.
        return union(map(holding.of_request, named)) or holding.granted
    return holding.granted


def _mixed(holding: Holding, pin: PinSettings) -> bool:
    return pin.mix if holding.mix is None else holding.mix


def _fault(
    container: ContainerView,
    reason: Reason,
    claim: str = "",
    *,
    wanted: CpuSet = EMPTY,
    found: CpuSet = EMPTY,
    other: str = "",
    detail: str = "",
) -> PinFault:
    return PinFault(reason, container.id, container.where, claim, wanted, found, other, detail)


def refuse(container: ContainerView, cpus: CpuSet, why: str) -> PinFault:
    """Someone does not set what a container is to have."""
    return _fault(container, Reason.REFUSED, wanted=cpus, detail=why[:_SHOWN])


def crowd(container: ContainerView, other: ContainerView, both: CpuSet) -> PinFault:
    """Another container is on CPUs that this one is to have for itself."""
    return _fault(container, Reason.CROWDED, found=both, other=other.where)


def drift(container: ContainerView, cpus: CpuSet, found: CpuSet) -> PinFault:
    return _fault(container, Reason.DRIFTED, wanted=cpus, found=found)
