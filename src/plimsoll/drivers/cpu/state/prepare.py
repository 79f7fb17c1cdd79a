"""Planning of a claim's CPUs. Pure: a function of the claim, the machine and the other allocations.

Plans one assignment for each allocation result of this driver, in order (docs/spec/cpu-driver.md, "Prepare
and unprepare"), so that several requests on one device, and several shares of it, are kept apart.

DIFF: results with administrative access take no CPUs: the observer gets a device and stays in the shared
pool; the Go driver treats them like any other (test_administrative_access_takes_no_cpus).

DIFF: in machine mode CPUs are chosen here if the claim's configuration names none, which the Go driver
refuses (test_issue_217_machine_mode_without_a_cpuset).

DIFF: a claim that would take the last shared CPU is refused while containers share CPUs, and one that would
leave fewer than the configured minimum always is; the Go driver then lets shared containers run on exclusive
CPUs (test_issue_295_a_claim_does_not_empty_the_shared_pool).

DIFF: a claim that is prepared again with another allocation is refused; the Go driver returns the old CPUs
and the new devices (test_another_allocation_is_refused).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.api.quantity import NANO
from plimsoll.api.resource import DeviceRequestAllocationResult
from plimsoll.drivers.cpu.allocation.allocate import Assigned, InsufficientCpus, assign, explain
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions
from plimsoll.drivers.cpu.claim_config import ClaimConfig, read_claim_config
from plimsoll.drivers.cpu.devices.groups import CpuDomain, CpuLayout
from plimsoll.drivers.cpu.settings import CAPACITY, DRIVER_NAME, CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.state.prepare_errors import PrepareError, PrepareErrorReason, unknown_device
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin.driver import AllocatedClaim


@dataclass(frozen=True, slots=True)
class PrepareContext:
    """Inputs for preparing a claim. `allocated` are the CPUs of other claims."""

    settings: CpuSettings
    topology: Topology
    layout: CpuLayout
    allocated: CpuSet = EMPTY

    @property
    def shared(self) -> CpuSet:
        return self.topology.all - self.layout.reserved - self.allocated

    @property
    def free(self) -> CpuSet:
        """CPUs that can be claimed."""
        return self.shared - self.layout.always_shared

    @property
    def group(self) -> GroupBy | None:
        return None if self.settings.mode is DeviceMode.INDIVIDUAL else self.settings.group_by


@dataclass(frozen=True, slots=True)
class PreparePlan:
    """Assignments of a claim; `why` has lines for each assignment."""

    assignments: tuple[CpuAssignment, ...]
    include_shared: bool | None = None
    why: tuple[tuple[str, ...], ...] = ()

    @property
    def cpus(self) -> CpuSet:
        return union(assignment.cpus for assignment in self.assignments)


@dataclass(frozen=True, slots=True)
class _Chosen:
    cpus: CpuSet
    source: AssignmentSource
    why: tuple[str, ...]
    options: AssignOptions | None = None


def plan_claim(
    claim: AllocatedClaim,
    context: PrepareContext,
    *,
    affinity: Mapping[str, CpuSet] | None = None,
    shared_pool_in_use: bool = False,
) -> PreparePlan | PrepareError:
    """Plan the CPUs of a new claim.

    `affinity` are CPUs to prefer, by request. `shared_pool_in_use`: there are containers that share CPUs.
    """
    if claim.claim.status.allocation is None and not claim.results:
        return PrepareError(PrepareErrorReason.NO_ALLOCATION, str(claim.ref))
    assignments: list[CpuAssignment] = []
    reasons: list[tuple[str, ...]] = []
    include_shared_values: set[bool | None] = set()
    taken = EMPTY
    for result in _list_own_results(claim):
        config = read_claim_config(claim.config, result.request, context.settings)
        if not isinstance(config, ClaimConfig):
            return PrepareError(PrepareErrorReason.CONFIG, str(claim.ref), result.device, text=str(config))
        include_shared_values.add(config.include_shared)
        chosen = _choose_cpus(
            claim, result, config, context, taken, (affinity or {}).get(_base(result.request), EMPTY)
        )
        if isinstance(chosen, PrepareError):
            return chosen
        taken |= chosen.cpus
        assignments.append(_make_assignment(result, chosen.cpus, chosen.source, chosen.options))
        reasons.append(chosen.why)
    if fault := _check_shared_pool(claim, context, taken, shared_pool_in_use):
        return fault
    return PreparePlan(tuple(assignments), _merge_include_shared(include_shared_values), tuple(reasons))


def _merge_include_shared(values: Collection[bool | None]) -> bool | None:
    """Return True if any request includes the shared pool, None if no request sets it."""
    return True if True in values else False if False in values else None


def get_cpu_count(result: DeviceRequestAllocationResult) -> int | PrepareError:
    """Return the number of CPUs of a result on a grouped device."""
    device, amount = result.device, result.consumed_capacity.get(CAPACITY)
    if amount is None:
        return PrepareError(PrepareErrorReason.CAPACITY_MISSING, device=device)
    if amount.sign() <= 0:
        return PrepareError(PrepareErrorReason.CAPACITY_NOT_POSITIVE, device=device, amount=str(amount))
    if amount.nano % NANO:
        return PrepareError(PrepareErrorReason.CAPACITY_NOT_WHOLE, device=device, amount=str(amount))
    return amount.value()


def check_repeated(
    claim: AllocatedClaim, allocation: ClaimAllocation, context: PrepareContext
) -> PrepareError | None:
    """Return an error if a prepared claim has another allocation than before."""
    results = _list_own_results(claim)
    if context.group is None:
        domains = context.layout.domains
        asked = union(domains[r.device].cpus for r in results if r.device in domains and not r.admin_access)
        known = all(result.device in domains for result in results)
        if known and asked != allocation.assigned:
            return PrepareError(
                PrepareErrorReason.OTHER_CPUS, str(claim.ref), cpus=allocation.assigned, other=asked
            )
    # Compared by identity, not by order.
    before = sorted(
        (g.request, g.pool, g.device, g.share_id or "", len(g.cpus)) for g in allocation.assignments
    )
    after = []
    for result in results:
        grouped = CAPACITY in result.consumed_capacity and not result.admin_access
        count = get_cpu_count(result) if grouped else 0 if result.admin_access else 1
        if isinstance(count, PrepareError):
            return count
        after.append((result.request, result.pool, result.device, result.share_id or "", count))
    if before == sorted(after):
        return None
    text = f"{_format_results(sorted(after))} where {_format_results(before)} was"
    return PrepareError(
        PrepareErrorReason.OTHER_ALLOCATION, str(claim.ref), cpus=allocation.assigned, text=text
    )


def match_adopted(
    claim: AllocatedClaim,
    adopted: ClaimAllocation,
    context: PrepareContext,
    requests: Mapping[str, CpuSet] | None = None,
) -> PreparePlan | PrepareError:
    """Match the CPUs of an adopted claim with its allocation.

    All CPUs must be accounted for, each by a device that contains it. `requests` are the CPUs per request in
    the CDI file; without them, CPUs of one device are assigned in the order of the results, which has no
    effect: containers of such a claim use all of it.
    """
    left = adopted.assigned
    assignments: list[CpuAssignment] = []

    def unfit(text: str) -> PrepareError:
        return PrepareError(PrepareErrorReason.UNFIT, str(claim.ref), cpus=adopted.assigned, text=text)

    include_shared_values: set[bool | None] = set()
    for result in _list_own_results(claim):
        if result.admin_access:
            assignments.append(_make_assignment(result, EMPTY, AssignmentSource.ADMIN))
            continue
        config = read_claim_config(claim.config, result.request, context.settings)
        if not isinstance(config, ClaimConfig):
            return PrepareError(PrepareErrorReason.CONFIG, str(claim.ref), result.device, text=str(config))
        include_shared_values.add(config.include_shared)
        domain = context.layout.domains.get(result.device)
        if domain is None:
            return unknown_device(result.device, context.group)
        count = get_cpu_count(result) if context.group is not None else 1
        if isinstance(count, PrepareError):
            return count
        inside = left & get_device_cpus(domain, context)
        named = (requests or {}).get(_base(result.request))
        if config.cpuset is not None:
            named = config.cpuset
        if named is not None:
            inside &= named
        if len(inside) < count:
            return unfit(f"{count} of device {result.device} are requested, it has {len(inside)}")
        chosen = inside if len(inside) == count else assign(context.topology, inside, count)
        if isinstance(chosen, InsufficientCpus):
            return unfit(chosen.text)
        cpus = chosen.cpus if isinstance(chosen, Assigned) else chosen
        left -= cpus
        assignments.append(_make_assignment(result, cpus, AssignmentSource.ADOPTED))
    if left:
        return unfit(f"CPUs {left} belong to no request")
    lines = (f"from the existing CDI file: {adopted.assigned}",)
    include_shared = _merge_include_shared(include_shared_values)
    return PreparePlan(tuple(assignments), include_shared, tuple(lines for _ in assignments))


def get_device_cpus(domain: CpuDomain, context: PrepareContext) -> CpuSet:
    """Return all CPUs of a device, including those that cannot be claimed now."""
    topology = context.topology
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
    group = groups.get(context.group) if context.group is not None else None
    return domain.cpus | (group() if group is not None else EMPTY)


def _choose_cpus(
    claim: AllocatedClaim,
    result: DeviceRequestAllocationResult,
    config: ClaimConfig,
    context: PrepareContext,
    taken: CpuSet,
    affinity: CpuSet,
) -> _Chosen | PrepareError:
    """Choose the CPUs of one result; `taken` are CPUs already chosen for the claim."""
    if result.admin_access:
        return _Chosen(EMPTY, AssignmentSource.ADMIN, ("administrative access takes no CPUs",))
    domain = context.layout.domains.get(result.device)
    if domain is None:
        return unknown_device(result.device, context.group)
    if context.group is None:
        if not domain.cpus <= context.free - taken:
            return PrepareError(PrepareErrorReason.OVERLAP, str(claim.ref), result.device, cpus=domain.cpus)
        return _Chosen(domain.cpus, AssignmentSource.DEVICE, (f"the device is CPU {domain.cpus}",))
    count = get_cpu_count(result)
    if isinstance(count, PrepareError):
        return count
    if config.cpuset is not None:
        fault = check_cpuset(config.cpuset, count, context, taken)
        return fault or _Chosen(config.cpuset, AssignmentSource.CPUSET, (f"the claim names {config.cpuset}",))
    available = (context.free - taken) & domain.cpus
    assigned, notes = assign_with_affinity(context.topology, available, count, config.options, affinity)
    if isinstance(assigned, InsufficientCpus):
        return PrepareError(
            PrepareErrorReason.NOT_ENOUGH,
            str(claim.ref),
            result.device,
            requested=count,
            available=len(available),
            text=str(assigned.text),
        )
    steps = (f"{count} of {available} free in {result.device}", *notes, *explain(assigned))
    return _Chosen(assigned.cpus, AssignmentSource.ASSIGNED, steps, config.options)


def check_cpuset(cpus: CpuSet, count: int, context: PrepareContext, taken: CpuSet) -> PrepareError | None:
    """Check an explicit cpuset, in the Go driver's order."""

    def fault(why: PrepareErrorReason, other: CpuSet = EMPTY) -> PrepareError:
        return PrepareError(why, cpus=cpus, other=other, requested=count, available=len(cpus))

    if len(cpus) != count:
        return fault(PrepareErrorReason.CPUSET_SIZE)
    unknown = CpuSet(skipped.cpu for skipped in context.topology.skipped)
    if offline := cpus - context.topology.all - unknown:
        return fault(PrepareErrorReason.CPUSET_OFFLINE, offline)
    if overlap := cpus & context.layout.reserved:
        return fault(PrepareErrorReason.CPUSET_RESERVED, overlap)
    if overlap := cpus & unknown:
        return fault(PrepareErrorReason.CPUSET_UNKNOWN, overlap)
    if overlap := cpus & context.layout.always_shared:
        return fault(PrepareErrorReason.CPUSET_FLOOR, overlap)
    if overlap := cpus & taken:
        return fault(PrepareErrorReason.CPUSET_TWICE, overlap)
    if overlap := cpus & context.allocated:
        return fault(PrepareErrorReason.CPUSET_TAKEN, overlap)
    return None


def assign_with_affinity(
    topology: Topology, available: CpuSet, count: int, options: AssignOptions, affinity: CpuSet
) -> tuple[Assigned | InsufficientCpus, tuple[str, ...]]:
    """Choose available CPUs, preferring those in `affinity`, and describe the choice.

    All CPUs have the affinity if possible; else all of those and the rest from elsewhere, except for the
    distributed algorithm, which determines the NUMA nodes itself.
    """
    close = available & affinity
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


def _check_shared_pool(
    claim: AllocatedClaim, context: PrepareContext, taken: CpuSet, shared_pool_in_use: bool
) -> PrepareError | None:
    left, minimum = context.shared - taken, context.layout.min_shared
    if not taken or (left and len(left) >= minimum):
        return None
    if minimum:
        return PrepareError(
            PrepareErrorReason.POOL_SMALL,
            str(claim.ref),
            cpus=taken,
            other=left,
            requested=minimum,
            available=len(left),
        )
    if shared_pool_in_use and not context.settings.pin.empty_pool:
        return PrepareError(PrepareErrorReason.POOL_EMPTY, str(claim.ref), cpus=taken)
    return None


def _list_own_results(claim: AllocatedClaim) -> tuple[DeviceRequestAllocationResult, ...]:
    return tuple(result for result in claim.results if result.driver == DRIVER_NAME)


def _base(request: str) -> str:
    return request.partition("/")[0]


def _make_assignment(
    result: DeviceRequestAllocationResult,
    cpus: CpuSet,
    source: AssignmentSource,
    options: AssignOptions | None = None,
) -> CpuAssignment:
    return CpuAssignment(result.request, result.pool, result.device, cpus, result.share_id, source, options)


def _format_results(rows: list[tuple[str, str, str, str, int]]) -> str:
    return ", ".join(f"{count} of {device}" for _, _, device, _, count in rows) or "nothing"
