"""Reconciliation of checkpoint, CDI files and containers after a restart. Pure.

Rules (docs/spec/cpu-driver.md, "State and restart" has the Go driver's): sources that agree are trusted, a
missing one is restored, and if two contradict each other none is trusted: all CPUs that any of them names are
withheld until the claim is released. The environment of a container is never trusted alone, because pod
authors can set it.

DIFF: a contradiction makes one claim disputed; in the Go driver it makes all of Synchronize fail, or is not
noticed (test_a_disputed_claim_is_refused_until_it_is_released,
test_a_container_with_other_cpus_disputes_its_claim).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.state.cdi import CpuClaimCdiFile, list_requests
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.state.prepare import PrepareContext, get_device_cpus
from plimsoll.protocols.dra import ClaimRef

_RELEASE = "delete the pods of the claim: the dispute ends when it is unprepared"


class ContainerClaims(Protocol):
    """Claims of a container, as needed for comparison."""

    @property
    def where(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def pod_uid(self) -> str: ...
    @property
    def claims(self) -> Mapping[str, CpuSet]: ...


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Result of the reconciliation. `rewrite` are claims whose CDI file must be written again.

    Disputes are part of the allocations; `find_disputes` describes them.
    """

    allocations: Mapping[str, ClaimAllocation]
    findings: tuple[NodeFinding, ...] = ()
    rewrite: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContainerConflict:
    """Contradiction between a running container and an allocation on which checkpoint and CDI file agree."""

    text: str
    contested: CpuSet = EMPTY


def reconcile(
    record: Mapping[str, ClaimAllocation],
    files: Mapping[str, CpuClaimCdiFile],
    context: PrepareContext,
    released_elsewhere: Collection[str] = (),
) -> Reconciled:
    """Merge checkpoint and CDI files.

    `released_elsewhere` are claims that are deallocated in the cluster: if their file is missing as well,
    another driver has released them. They keep their CPUs until no container uses them, and do not dispute
    others.
    """
    allocations: dict[str, ClaimAllocation] = {}
    findings: list[NodeFinding] = []
    rewrite: list[str] = []
    for uid in sorted(record.keys() | files.keys()):
        known, file = record.get(uid), files.get(uid)
        if known is not None and file is None and uid in released_elsewhere:
            allocations[uid] = known
            what = f"claim {name(known)} was released meanwhile: it has neither an allocation nor a CDI file"
            findings.append(NodeFinding(FindingSeverity.INFO, what))
        elif known is not None:
            allocations[uid], again = _compare(known, file, findings)
            if again:
                rewrite.append(uid)
        elif file is not None and file.cpus:
            allocations[uid] = _adopt_file(file, context, findings)
        elif file is not None:
            what = (
                f"the CDI file of claim {uid} cannot be used, and it is not in the checkpoint: {file.fault}"
            )
            findings.append(NodeFinding(FindingSeverity.ERROR, what, f"remove {file.path}", file.path))
    dispute_overlaps(allocations, [uid for uid in released_elsewhere if uid not in files])
    disputed = [uid for uid, allocation in allocations.items() if allocation.disputed]
    return Reconciled(allocations, tuple(findings), tuple(uid for uid in rewrite if uid not in disputed))


def find_misplaced(
    allocations: Mapping[str, ClaimAllocation], context: PrepareContext
) -> tuple[NodeFinding, ...]:
    """Return findings for allocated CPUs that cannot be claimed any more; claims keep them until released."""
    findings = []
    for uid in sorted(allocations):
        allocation = allocations[uid]
        if offline := allocation.assigned - context.topology.all:
            what = f"CPUs {offline} of claim {name(allocation)} are offline"
            findings.append(
                NodeFinding(FindingSeverity.WARNING, what, "bring them online, or delete its pods")
            )
        if allocation.disputed:
            continue
        for cpus, kind in (
            (context.layout.reserved, "reserved"),
            (context.layout.always_shared, "always shared"),
        ):
            if overlap := allocation.assigned & cpus:
                what = f"CPUs {overlap} of claim {name(allocation)} are now {kind}; it keeps them"
                findings.append(
                    NodeFinding(FindingSeverity.WARNING, what, "delete its pods to have them back")
                )
    return tuple(findings)


def find_unused_adopted(
    allocations: Mapping[str, ClaimAllocation], used: Collection[str]
) -> tuple[NodeFinding, ...]:
    """Return findings for claims that were adopted from a CDI file and that no container uses."""
    return tuple(
        NodeFinding(
            FindingSeverity.WARNING,
            f"claim {name(allocations[uid])} was adopted from its CDI file with CPUs"
            f" {allocations[uid].assigned}, and no container uses it",
            "it is released after five minutes if the cluster has not allocated it; at once with"
            f" plimsoll driver cpu forget {uid}",
        )
        for uid in sorted(allocations)
        if allocations[uid].adopted and uid not in used
    )


def compare_containers(
    allocations: Mapping[str, ClaimAllocation], containers: Iterable[ContainerClaims], context: PrepareContext
) -> tuple[dict[str, ContainerConflict], tuple[NodeFinding, ...]]:
    """Compare running containers with the allocations.

    A container with other CPUs than checkpoint and CDI file makes its claim disputed as long as it exists.
    CPUs that only the container names are withheld too, as far as they could have been assigned to the claim:
    unallocated CPUs of its devices, and never the last shared one.
    """
    conflicts: dict[str, ContainerConflict] = {}
    findings: list[NodeFinding] = []
    # Not the current shared pool: contested CPUs are determined again.
    free = context.topology.all - context.layout.reserved - union(h.cpus for h in allocations.values())
    for container in sorted(containers, key=lambda seen: seen.where):
        for uid in sorted(container.claims):
            env_cpus, allocation = container.claims[uid], allocations.get(uid)
            if allocation is None:
                what = (
                    f"container {container.where} has CPUs {env_cpus} of claim {uid}, which is not prepared"
                )
                fix = "delete the pod; its environment is not trusted"
                findings.append(NodeFinding(FindingSeverity.WARNING, what, fix))
                continue
            if env_cpus == allocation.assigned:
                continue
            what = (
                f"container {container.where} has CPUs {env_cpus} in its environment,"
                f" the claim has {allocation.assigned}"
            )
            home = allocation.ref.namespace
            if home and container.namespace and home != container.namespace:
                what = f"claim {name(allocation)}: {what}; it belongs to another namespace and is not trusted"
                findings.append(NodeFinding(FindingSeverity.WARNING, what, "delete the pod"))
                continue
            reach = union(_get_reachable_cpus(assignment, context) for assignment in allocation.assignments)
            more = (env_cpus - allocation.cpus) & reach & free
            if more == free:
                more = EMPTY
            free -= more
            before = conflicts.get(uid, ContainerConflict(what))
            conflicts[uid] = ContainerConflict(before.text, before.contested | more)
            findings.append(_dispute_finding(allocation, what))
    return conflicts, tuple(findings)


def find_disputes(allocations: Mapping[str, ClaimAllocation]) -> tuple[NodeFinding, ...]:
    """Return findings for the disputed allocations."""
    return tuple(
        _dispute_finding(allocations[uid], allocations[uid].disputed)
        for uid in sorted(allocations)
        if allocations[uid].disputed
    )


def apply_conflict(allocation: ClaimAllocation, conflict: ContainerConflict | None) -> ClaimAllocation:
    """Return an allocation with a conflict applied."""
    if conflict is None:
        return allocation
    contested = (allocation.contested | conflict.contested) - allocation.assigned
    return replace(allocation, disputed=allocation.disputed or conflict.text, contested=contested)


def name(allocation: ClaimAllocation) -> str:
    """Format the name of a claim as far as it is known."""
    ref = allocation.ref
    return f"{ref} ({ref.uid})" if ref.name else ref.uid


def _compare(
    known: ClaimAllocation, file: CpuClaimCdiFile | None, findings: list[NodeFinding]
) -> tuple[ClaimAllocation, bool]:
    """Compare an allocation with its file; return it and whether the file must be written again."""
    if file is None:
        what = f"the CDI file of claim {name(known)} is missing; writing it again"
        findings.append(NodeFinding(FindingSeverity.INFO, what))
        return known, True
    if file.cpus == known.assigned and not file.fault:
        return known, known.per_request and set(list_requests(known)) - file.requests.keys() != set()
    if file.fault and file.cpus <= known.assigned:
        what = f"the CDI file of claim {name(known)} cannot be used: {file.fault}; writing it again"
        findings.append(NodeFinding(FindingSeverity.WARNING, what, path=file.path))
        return known, True
    what = f"the checkpoint has CPUs {known.assigned}, the CDI file {file.cpus}"
    if file.fault:
        what += f" ({file.fault})"
    contested = (known.contested | file.cpus) - known.assigned
    return replace(known, disputed=known.disputed or what, contested=contested), False


def adopt_cpus(ref: ClaimRef, cpus: CpuSet, context: PrepareContext) -> ClaimAllocation:
    """Build an adopted allocation: the devices of the CPUs are known, the requests are not."""
    node = context.settings.node
    assignments = [
        CpuAssignment("", node, device, cpus & domain.cpus, source=AssignmentSource.ADOPTED)
        for device, domain in context.layout.domains.items()
        if cpus & domain.cpus
    ]
    if rest := cpus - union(assignment.cpus for assignment in assignments):
        assignments.append(CpuAssignment("", node, "", rest, source=AssignmentSource.ADOPTED))
    return ClaimAllocation(ref, tuple(assignments), adopted=True)


def _adopt_file(
    file: CpuClaimCdiFile, context: PrepareContext, findings: list[NodeFinding]
) -> ClaimAllocation:
    """Build an allocation from a CDI file of another driver or of a lost checkpoint."""
    cpus = file.cpus
    allocation = replace(
        adopt_cpus(ClaimRef("", "", file.uid), cpus, context), per_request=bool(file.requests)
    )
    why = [file.fault] if file.fault else []
    if overlap := cpus & context.layout.reserved:
        why.append(f"CPUs {overlap} are reserved")
    if away := cpus - context.topology.all:
        why.append(f"CPUs {away} are offline")
    if why:
        return replace(allocation, disputed=f"its CDI file has CPUs {cpus}: {'; '.join(why)}")
    what = f"claim {file.uid} is not in the checkpoint; adopted from its CDI file with CPUs {cpus}"
    findings.append(NodeFinding(FindingSeverity.INFO, what, path=file.path))
    return allocation


def dispute_overlaps(
    allocations: dict[str, ClaimAllocation], released_elsewhere: Collection[str] = ()
) -> None:
    """Mark all claims with common CPUs as disputed: which one is right cannot be determined."""
    owners: dict[int, list[str]] = {}
    for uid, allocation in allocations.items():
        for cpu in allocation.cpus if uid not in released_elsewhere else ():
            owners.setdefault(cpu, []).append(uid)
    rivals: dict[str, set[str]] = {}
    for uids in owners.values():
        for uid in uids if len(uids) > 1 else ():
            rivals.setdefault(uid, set()).update(uids)
    for uid in sorted(rivals):
        allocation = allocations[uid]
        others = sorted(rivals[uid] - {uid})
        shared = union(allocations[other].cpus for other in others) & allocation.cpus
        what = f"CPUs {shared} are also those of claim {', '.join(others)}"
        if not allocation.disputed:
            allocations[uid] = replace(allocation, disputed=what)


def _dispute_finding(allocation: ClaimAllocation, what: str) -> NodeFinding:
    return NodeFinding(FindingSeverity.ERROR, f"claim {name(allocation)} is disputed: {what}", _RELEASE)


def _get_reachable_cpus(assignment: CpuAssignment, context: PrepareContext) -> CpuSet:
    domain = context.layout.domains.get(assignment.device)
    return assignment.cpus if domain is None else get_device_cpus(domain, context)
