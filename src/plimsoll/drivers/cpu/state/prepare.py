"""Which CPUs a claim gets. Pure: a function of the claim, the machine and what others hold.

Owns the steps of section 6 of the CPU driver's specification: one grant for each allocation result of this
driver, in their order, so that several requests on one device, and several shares of it, are kept apart.

DIFF: results with administrative access take no CPUs: who looks on is given a device and stays in the shared
pool; the Go driver takes them for any other (test_administrative_access_takes_no_cpus).

DIFF: in machine mode CPUs are chosen here where the claim's configuration names none, which the Go driver
refuses (test_issue_217_machine_mode_without_a_cpuset).

DIFF: a claim that would take the last shared CPU is refused while containers share CPUs, and one that would
leave fewer than the set minimum always is; the Go driver then lets shared containers run on exclusive CPUs
(test_issue_295_a_claim_does_not_empty_the_shared_pool).

DIFF: a claim that is prepared again with another allocation is refused; the Go driver answers with the old
CPUs and the new devices (test_another_allocation_is_refused).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.quantity import NANO
from plimsoll.api.resource import DeviceRequestAllocationResult
from plimsoll.drivers.cpu.allocation.allocate import Assigned, NotEnough, assign, explain
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions
from plimsoll.drivers.cpu.claim_config import ClaimConfig, read_claim_config
from plimsoll.drivers.cpu.devices.groups import Arrangement, Domain
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, GroupBy, Mode
from plimsoll.drivers.cpu.state.holdings import Grant, Holding, How, union
from plimsoll.drivers.cpu.state.refusals import CAPACITY, PrepareFault, Why, unknown_device
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim


@dataclass(frozen=True, slots=True)
class Scene:
    """What is there when a claim comes. `held` is what other claims have."""

    settings: CpuSettings
    topology: Topology
    arrangement: Arrangement
    held: CpuSet = EMPTY

    @property
    def shared(self) -> CpuSet:
        return self.topology.all - self.arrangement.reserved - self.held

    @property
    def free(self) -> CpuSet:
        """What can be claimed."""
        return self.shared - self.arrangement.floor

    @property
    def group(self) -> GroupBy | None:
        return None if self.settings.mode is Mode.INDIVIDUAL else self.settings.group_by


@dataclass(frozen=True, slots=True)
class Plan:
    """What a claim gets; `why` has lines for each grant."""

    grants: tuple[Grant, ...]
    mix: bool | None = None
    why: tuple[tuple[str, ...], ...] = ()

    @property
    def cpus(self) -> CpuSet:
        return union(grant.cpus for grant in self.grants)


@dataclass(frozen=True, slots=True)
class _Chosen:
    cpus: CpuSet
    how: How
    why: tuple[str, ...]
    options: AssignOptions | None = None


def plan(
    claim: AllocatedClaim, scene: Scene, *, near: Mapping[str, CpuSet] | None = None, needed: bool = False
) -> Plan | PrepareFault:
    """The CPUs of a claim that has none yet.

    `near` are CPUs to prefer, by request. `needed`: there are containers that share CPUs.
    """
    if claim.claim.status.allocation is None and not claim.results:
        return PrepareFault(Why.NO_ALLOCATION, str(claim.ref))
    grants: list[Grant] = []
    reasons: list[tuple[str, ...]] = []
    mixes: set[bool | None] = set()
    taken = EMPTY
    for result in _own(claim):
        config = read_claim_config(claim, result.request, scene.settings)
        if not isinstance(config, ClaimConfig):
            return PrepareFault(Why.CONFIG, str(claim.ref), result.device, text=str(config))
        mixes.add(config.mix)
        chosen = _choose(claim, result, config, scene, taken, (near or {}).get(_base(result.request), EMPTY))
        if isinstance(chosen, PrepareFault):
            return chosen
        taken |= chosen.cpus
        grants.append(_grant(result, chosen.cpus, chosen.how, chosen.options))
        reasons.append(chosen.why)
    if fault := _check_pool(claim, scene, taken, needed):
        return fault
    mix = True if True in mixes else False if False in mixes else None
    return Plan(tuple(grants), mix, tuple(reasons))


def count_of(result: DeviceRequestAllocationResult) -> int | PrepareFault:
    """How many CPUs of a device of many a result has."""
    device, amount = result.device, result.consumed_capacity.get(CAPACITY)
    if amount is None:
        return PrepareFault(Why.CAPACITY_MISSING, device=device)
    if amount.sign() <= 0:
        return PrepareFault(Why.CAPACITY_NOT_POSITIVE, device=device, amount=str(amount))
    if amount.nano % NANO:
        return PrepareFault(Why.CAPACITY_NOT_WHOLE, device=device, amount=str(amount))
    return amount.value()


def repeat(claim: AllocatedClaim, holding: Holding, scene: Scene) -> PrepareFault | None:
    """Whether a claim that is prepared already still has the allocation that it had then."""
    results = _own(claim)
    if scene.group is None:
        domains = scene.arrangement.domains
        asked = union(domains[r.device].cpus for r in results if r.device in domains and not r.admin_access)
        known = all(result.device in domains for result in results)
        if known and asked != holding.granted:
            return PrepareFault(Why.OTHER_CPUS, str(claim.ref), cpus=holding.granted, other=asked)
    # By what identifies them, not in their order.
    before = sorted((g.request, g.pool, g.device, g.share_id or "", len(g.cpus)) for g in holding.grants)
    after = []
    for result in results:
        grouped = CAPACITY in result.consumed_capacity and not result.admin_access
        count = count_of(result) if grouped else 0 if result.admin_access else 1
        if isinstance(count, PrepareFault):
            return count
        after.append((result.request, result.pool, result.device, result.share_id or "", count))
    if before == sorted(after):
        return None
    text = f"{_listing(sorted(after))} where {_listing(before)} was"
    return PrepareFault(Why.OTHER_ALLOCATION, str(claim.ref), cpus=holding.granted, text=text)


def fill(
    claim: AllocatedClaim, adopted: Holding, scene: Scene, requests: Mapping[str, CpuSet] | None = None
) -> Plan | PrepareFault:
    """The grants of a claim whose CPUs came from a CDI file, now that its allocation is known.

    All of the CPUs must be accounted for, each by a device that it is part of. `requests` is what the file
    says about single requests; without it, CPUs of one device are dealt out in the order of the results,
    which is without consequence: containers of such a claim use all of it.
    """
    left = adopted.granted
    grants: list[Grant] = []

    def unfit(text: str) -> PrepareFault:
        return PrepareFault(Why.UNFIT, str(claim.ref), cpus=adopted.granted, text=text)

    mixes: set[bool | None] = set()
    for result in _own(claim):
        if result.admin_access:
            grants.append(_grant(result, EMPTY, How.ADMIN))
            continue
        config = read_claim_config(claim, result.request, scene.settings)
        if not isinstance(config, ClaimConfig):
            return PrepareFault(Why.CONFIG, str(claim.ref), result.device, text=str(config))
        mixes.add(config.mix)
        domain = scene.arrangement.domains.get(result.device)
        if domain is None:
            return unknown_device(result.device, scene.group)
        count = count_of(result) if scene.group is not None else 1
        if isinstance(count, PrepareFault):
            return count
        inside = left & extent(domain, scene)
        named = (requests or {}).get(_base(result.request))
        if config.cpuset is not None:
            named = config.cpuset
        if named is not None:
            inside &= named
        if len(inside) < count:
            return unfit(f"{count} of device {result.device} are asked for, {len(inside)} are there")
        dealt = inside if len(inside) == count else assign(scene.topology, inside, count)
        if isinstance(dealt, NotEnough):
            return unfit(str(dealt.text))
        cpus = dealt.cpus if isinstance(dealt, Assigned) else dealt
        left -= cpus
        grants.append(_grant(result, cpus, How.ADOPTED))
    if left:
        return unfit(f"CPUs {left} belong to no request")
    mix = True if True in mixes else False if False in mixes else None
    lines = (f"as the CDI file that was there says: {adopted.granted}",)
    return Plan(tuple(grants), mix, tuple(lines for _ in grants))


def extent(domain: Domain, scene: Scene) -> CpuSet:
    """All CPUs that a device stands for, also those that cannot be claimed now."""
    topology = scene.topology
    cpus = [topology.by_id[cpu] for cpu in domain.cpus if cpu in topology.by_id]
    groups = {
        GroupBy.NUMA: lambda: union(topology.numa[n] for n in {cpu.numa for cpu in cpus}),
        GroupBy.SOCKET: lambda: union(topology.sockets[n] for n in {cpu.socket for cpu in cpus}),
        GroupBy.L3: lambda: union(topology.l3.get(n, EMPTY) for n in {cpu.l3 for cpu in cpus}),
        GroupBy.PCIE: lambda: CpuSet(
            cpu.id for cpu in topology.cpus if any(set(cpu.pcie_roots) == set(c.pcie_roots) for c in cpus)
        ),
        GroupBy.MACHINE: lambda: topology.all,
    }
    group = groups.get(scene.group) if scene.group is not None else None
    return domain.cpus | (group() if group is not None else EMPTY)


def _choose(
    claim: AllocatedClaim,
    result: DeviceRequestAllocationResult,
    config: ClaimConfig,
    scene: Scene,
    taken: CpuSet,
    near: CpuSet,
) -> _Chosen | PrepareFault:
    """The CPUs of one result; `taken` is what the claim has so far."""
    if result.admin_access:
        return _Chosen(EMPTY, How.ADMIN, ("administrative access takes no CPUs",))
    domain = scene.arrangement.domains.get(result.device)
    if domain is None:
        return unknown_device(result.device, scene.group)
    if scene.group is None:
        if not domain.cpus <= scene.free - taken:
            return PrepareFault(Why.OVERLAP, str(claim.ref), result.device, cpus=domain.cpus)
        return _Chosen(domain.cpus, How.DEVICE, (f"the device is CPU {domain.cpus}",))
    count = count_of(result)
    if isinstance(count, PrepareFault):
        return count
    if config.cpuset is not None:
        fault = check_cpuset(config.cpuset, count, scene, taken)
        return fault or _Chosen(config.cpuset, How.CPUSET, (f"the claim names {config.cpuset}",))
    available = (scene.free - taken) & domain.cpus
    assigned, notes = prefer(scene.topology, available, count, config.options, near)
    if isinstance(assigned, NotEnough):
        return PrepareFault(
            Why.NOT_ENOUGH,
            str(claim.ref),
            result.device,
            requested=count,
            available=len(available),
            text=str(assigned.text),
        )
    steps = (f"{count} of {available} free in {result.device}", *notes, *explain(assigned))
    return _Chosen(assigned.cpus, How.ASSIGNED, steps, config.options)


def check_cpuset(cpus: CpuSet, count: int, scene: Scene, taken: CpuSet) -> PrepareFault | None:
    """What is wrong with CPUs that a claim names, in the order in which the Go driver looks."""

    def fault(why: Why, other: CpuSet = EMPTY) -> PrepareFault:
        return PrepareFault(why, cpus=cpus, other=other, requested=count, available=len(cpus))

    if len(cpus) != count:
        return fault(Why.CPUSET_SIZE)
    unknown = CpuSet(skipped.cpu for skipped in scene.topology.skipped)
    if offline := cpus - scene.topology.all - unknown:
        return fault(Why.CPUSET_OFFLINE, offline)
    if overlap := cpus & scene.arrangement.reserved:
        return fault(Why.CPUSET_RESERVED, overlap)
    if overlap := cpus & unknown:
        return fault(Why.CPUSET_UNKNOWN, overlap)
    if overlap := cpus & scene.arrangement.floor:
        return fault(Why.CPUSET_FLOOR, overlap)
    if overlap := cpus & taken:
        return fault(Why.CPUSET_TWICE, overlap)
    if overlap := cpus & scene.held:
        return fault(Why.CPUSET_TAKEN, overlap)
    return None


def prefer(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions, near: CpuSet
) -> tuple[Assigned | NotEnough, tuple[str, ...]]:
    """CPUs of those available, near ones first, and what is to be said about that.

    All of them near if that is possible; else all near ones and the rest from elsewhere, unless they are to
    be distributed evenly, which says where they come from.
    """
    close = available & near
    if not close or close == available:
        return assign(topology, available, count, options), ()
    if len(close) >= count:
        within = assign(topology, close, count, options)
        if isinstance(within, Assigned):
            return within, (f"near the other device of the claim: {close}",)
    elif options.algorithm is Algorithm.PACKED:
        if options.full_cores:
            close = union(core for core in topology.cores.values() if core <= close)
        rest = assign(topology, available - close, count - len(close), options)
        if close and isinstance(rest, Assigned):
            note = f"all that is near the other device of the claim: {close}; the rest from elsewhere"
            return Assigned(close | rest.cpus, rest.steps), (note,)
    return assign(topology, available, count, options), (
        f"near the other device of the claim are only {close}",
    )


def _check_pool(claim: AllocatedClaim, scene: Scene, taken: CpuSet, needed: bool) -> PrepareFault | None:
    left, minimum = scene.shared - taken, scene.settings.min_shared
    if not taken or (left and len(left) >= minimum):
        return None
    if minimum:
        return PrepareFault(
            Why.POOL_SMALL, str(claim.ref), cpus=taken, other=left, requested=minimum, available=len(left)
        )
    return PrepareFault(Why.POOL_EMPTY, str(claim.ref), cpus=taken) if needed else None


def _own(claim: AllocatedClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    return tuple(result for result in claim.results if result.driver == DRIVER_NAME)


def _base(request: str) -> str:
    return request.partition("/")[0]


def _grant(
    result: DeviceRequestAllocationResult, cpus: CpuSet, how: How, options: AssignOptions | None = None
) -> Grant:
    return Grant(result.request, result.pool, result.device, cpus, result.share_id, how, options)


def _listing(rows: list[tuple[str, str, str, str, int]]) -> str:
    return ", ".join(f"{count} of {device}" for _, _, device, _, count in rows) or "nothing"
