"""Checks of topology: NUMA placement of devices, and CPUs of drivers compared with the kubelet's.

NUMA nodes are read from attributes (`resource.kubernetes.io/numaNode` and older driver-specific names) and
from the status of claims.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from plimsoll.api.core import Pod
from plimsoll.api.cpu_map import ANNOTATION, parse_cpu_map
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.forms import read_device
from plimsoll.api.identity import DeviceId
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import (
    NUMA_NODE,
    PCIE_ROOT,
    Device,
    DeviceRequestAllocationResult,
    ResourceClaim,
    expressions_of,
)
from plimsoll.errors import InputError
from plimsoll.ledger.units import CPU
from plimsoll.tools.amounts import format_short
from plimsoll.tools.audit.checks.capacity import counters_of, draws
from plimsoll.tools.audit.facts import AuditFacts, PodClaims, PoolFacts, shared, subject_of
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.audit.identity_cache import IdentityCache
from plimsoll.tools.claim_users import claims_of
from plimsoll.tools.class_mappings import is_selected
from plimsoll.tools.cluster_state.node_resources import KNOWN_DRIVERS
from plimsoll.tools.cluster_state.objects import key_of
from plimsoll.tools.facts import join_names
from plimsoll.tools.findings import Severity

_NUMA_NAMES = ("numaNode", "numaNodeID", "numa")
#: Differences below one CPU (in milli) are due to rounding.
_ONE_CPU = 1000


# -- NUMA


@dataclass(frozen=True, slots=True)
class _DeviceNuma:
    """Device of a pod and its NUMA nodes."""

    id: DeviceId
    claim: ResourceClaim
    request: str
    nodes: frozenset[int]
    attribute: str  #: published attribute; "" if the driver reports the nodes with the claim


def find_numa_splits(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in facts.bound_with_claims:
        pod, claims = each.pod, each.claims
        if sum([len(claim.allocation_results) for claim in claims]) < 2:
            continue  # nothing can be apart
        places = [place for claim in claims for place in _device_numa_nodes(facts, claim)]
        yield from _roots_apart(facts, each, {place.id.driver for place in places})
        if len(places) < 2:
            continue
        drivers: dict[str, list[_DeviceNuma]] = {}
        for place in places:
            drivers.setdefault(place.id.driver, []).append(place)
        evidence = tuple(
            f"{place.id} of claim {place.claim.metadata.full_name} is on NUMA node {_list(place.nodes)}"
            for place in places[:8]
        )
        apart = [
            (one, other)
            for one, other in combinations(sorted(drivers), 2)
            if not _union(drivers[one]) & _union(drivers[other])
        ]
        if apart:
            one, other = apart[0]
            yield CheckProblem(
                subject_of(pod),
                f"its {one} devices are on NUMA node {_list(_union(drivers[one]))}, "
                f"its {other} devices on {_list(_union(drivers[other]))}",
                (f"on node {pod.spec.node_name}", *evidence),
                _align(places),
                "drivers",
            )
            continue
        for driver, found in sorted(drivers.items()):
            if len(_union(found)) > 1 and _could_be_together(facts, found):
                yield CheckProblem(
                    subject_of(pod),
                    f"its {len(found)} devices of {driver} are on NUMA nodes {_list(_union(found))}, "
                    "but would fit on one",
                    (f"on node {pod.spec.node_name}", *evidence),
                    _align(found),
                    driver,
                    Severity.INFO,
                )


def _roots_apart(facts: AuditFacts, user: PodClaims, known: set[str]) -> Iterator[CheckProblem]:
    """Yield drivers that publish PCIe roots but no NUMA nodes, and have no root in common."""
    pod, drivers = user.pod, dict[str, set[str]]()
    for claim in user.claims:
        for result in claim.allocation_results:
            device = facts.device(DeviceId.of(result))
            root = device.attributes.get(PCIE_ROOT) if device is not None else None
            if root is not None and result.driver not in known:
                values = root.string_values or (() if root.string_value is None else (root.string_value,))
                drivers.setdefault(result.driver, set()).update(values)
    for one, other in combinations(sorted(drivers), 2):
        if drivers[one] and drivers[other] and not drivers[one] & drivers[other]:
            roots = [f"{driver}: {', '.join(sorted(drivers[driver]))}" for driver in (one, other)]
            yield CheckProblem(
                subject_of(pod),
                f"its devices of {one} and of {other} are on different PCIe roots",
                (f"on node {pod.spec.node_name}", *roots),
                "put the devices into one claim with a constraint: "
                f"matchAttribute: {PCIE_ROOT}, if they exchange data",
                f"{one}/{other}",
                Severity.INFO,
            )


def _device_numa_nodes(facts: AuditFacts, claim: ResourceClaim) -> Iterator[_DeviceNuma]:
    reported = _reported(claim)
    for result in claim.allocation_results:
        id = DeviceId.of(result)
        device = facts.device(id)
        nodes = reported.get((id, result.share_id)) if reported else None
        if not nodes and device is not None:
            nodes = _published_numa(facts, device)
        if nodes and not result.admin_access:
            attribute = "" if device is None else _numa_attribute(device, result.driver)
            yield _DeviceNuma(id, claim, result.request, nodes, attribute)


def _numa_attribute(device: Device, driver: str) -> str:
    """Return the qualified name of the attribute with the NUMA node of a device, or ""."""
    name = _find_numa(device)
    return name if "/" in name or not name else f"{driver}/{name}"


def _find_numa(device: Device) -> str:
    """Return the name of the attribute with the NUMA node as it is published, or ""."""
    names = (name for name in device.attributes if name.rpartition("/")[2] in _NUMA_NAMES)
    return NUMA_NODE if NUMA_NODE in device.attributes else next(names, "")


def _align(places: list[_DeviceNuma]) -> str:
    """Return the constraint that keeps devices together: the attribute must be published for all of them."""
    claims = {place.claim.metadata.key for place in places}
    one = (
        "add to the claim a constraint"
        if len(claims) == 1
        else "put the devices into one claim with a constraint"
    )
    names = {place.attribute for place in places}
    if len(names) == 1 and (name := names.pop()):
        return f"{one}: matchAttribute: {name}"
    return f"{one}: matchAttribute: {NUMA_NODE}, once the drivers publish this attribute for all of them"


def _published_numa(facts: AuditFacts, device: Device) -> frozenset[int] | None:
    known: IdentityCache[frozenset[int] | None] = facts.compute_once("numa nodes", IdentityCache)
    return known.get(device, partial(numa_of, device))


def _reported(claim: ResourceClaim) -> dict[tuple[DeviceId, str | None], frozenset[int]]:
    """Return the NUMA nodes that drivers report in the status of a claim."""
    found = {}
    for each in claim.status.devices:
        nodes = _parse_cpu_list(each.data, "numaNodes")
        if nodes:
            found[DeviceId(each.driver, each.pool, each.device), each.share_id] = frozenset(nodes)
    return found


def numa_of(device: Device) -> frozenset[int] | None:
    """Return the NUMA nodes a device publishes, or None."""
    attribute = device.attributes.get(_find_numa(device))
    if attribute is None:
        return None
    values = attribute.int_values or (() if attribute.int_value is None else (attribute.int_value,))
    return frozenset(value for value in values if value >= 0) or None


def _union(places: list[_DeviceNuma]) -> frozenset[int]:
    return frozenset().union(*(place.nodes for place in places))


def _could_be_together(facts: AuditFacts, places: list[_DeviceNuma]) -> bool:
    """Return whether one NUMA node has as many devices that the requests match and that exist together."""
    pool = facts.pools.get(places[0].id.pool_id)
    if pool is None or len({place.id for place in places}) < 2:
        return False
    by_numa: dict[int, list[Device]] = {}
    for _, device in pool.devices.values():
        for node in _published_numa(facts, device) or ():
            by_numa.setdefault(node, []).append(device)
    return any(_serves_all(facts, pool, devices, places) for devices in by_numa.values())


def _serves_all(facts: AuditFacts, pool: PoolFacts, devices: list[Device], places: list[_DeviceNuma]) -> bool:
    """Return whether devices of an unused pool serve all requests, each the first that matches and fits."""
    left = counters_of(pool)
    unused = {device.name: device for device in devices}
    for place in places:
        for name, device in unused.items():
            drawn = list(draws(device))
            if all(left.get(key, ZERO) >= amount for key, amount in drawn) and _matches(facts, place, name):
                break
        else:
            return False
        left.update({key: left[key] - amount for key, amount in drawn})
        if not device.allow_multiple_allocations:
            del unused[name]
    return True


def _matches(facts: AuditFacts, place: _DeviceNuma, name: str) -> bool:
    """Return whether the class and the selectors of a request match a device of its pool."""
    published = facts.find_device(DeviceId(*place.id.pool_id, name))
    body = dict(device_requests(place.claim)).get(place.request)
    if published is None or body is None:
        return False
    device_class = facts.classes.get(body.device_class_name)
    selectors = (*(device_class.spec.selectors if device_class is not None else ()), *body.selectors)
    return is_selected(
        published.view, published.index, expressions_of(selectors), facts.cluster_state.snapshot.features
    )


def _list(nodes: frozenset[int]) -> str:
    return str(CpuSet(nodes))


# -- the CPUs of a node


@dataclass(slots=True)
class _Cpus:
    """CPUs a driver manages on a node, and how many are allocated to claims; in milli."""

    managed: int = 0
    held: int = 0
    shared: int = 0  #: not claimable, shared by all pods
    sure: bool = True


@shared
def _managed(facts: AuditFacts) -> dict[tuple[str, str], _Cpus]:
    """Return {(node, driver): CPUs} for drivers whose devices are CPUs and not partitions of each other."""
    found: dict[tuple[str, str], _Cpus] = {}
    by_device: IdentityCache[tuple[tuple[int, bool], ...]] = IdentityCache()
    for pool_id, pool in facts.pools.items():
        if not facts.may_represent_resources(pool):
            continue
        for name, (slice, device) in pool.devices.items():
            driver, node = pool_id.driver, slice.spec.node_name
            if not node or device.consumes_counters:
                continue
            for managed, sure in by_device.get(device, partial(_cpus_of, facts, driver, device), driver):
                cpus = found.get((node, driver))
                if cpus is None:
                    cpus = found[node, driver] = _Cpus()
                cpus.managed += managed
                cpus.sure = cpus.sure and sure
                for each in facts.held.get(DeviceId(*pool_id, name), ()):
                    cpus.held += _held(facts, each.result, device)
    for pool_id, pool in facts.pools.items():
        for slice in pool.slices:
            text = slice.metadata.annotations.get(ANNOTATION)
            machine = parse_cpu_map(text) if text else None
            known = found.get((slice.spec.node_name or "", pool_id.driver))
            if machine is not None and known is not None:
                known.shared = 1000 * len(machine.shared)
    return found


def _cpus_of(facts: AuditFacts, driver: str, device: Device) -> tuple[tuple[int, bool], ...]:
    """Return how many CPUs a device represents, in milli, and whether that is certain."""
    guesses = [guess for guess in facts.node_resources(driver, device) if guess.resource == CPU]
    return tuple((guess.amount.milli(), guess.sure or CPU in read_device(device)) for guess in guesses)


def _held(facts: AuditFacts, result: DeviceRequestAllocationResult, device: Device) -> int:
    if result.admin_access:
        return 0
    guess = facts.node_resources(result.driver, device)[0]
    consumed = result.consumed_capacity.get(guess.capacity)
    return (guess.amount if consumed is None else consumed).milli()


def find_cpu_mismatches(facts: AuditFacts) -> Iterator[CheckProblem]:
    for (name, driver), cpus in sorted(_managed(facts).items()):
        node = facts.nodes.get(name)
        if node is None or CPU not in node.status.allocatable:
            continue
        line, usable = node.status.allocatable[CPU].milli(), cpus.managed + cpus.shared
        capacity = node.status.capacity.get(CPU, node.status.allocatable[CPU]).milli()
        shared_text = f", and shares {_cpu(cpus.shared)} among all pods" if cpus.shared else ""
        numbers = (
            f"the driver manages {_cpu(cpus.managed)} CPUs, {_cpu(cpus.held)} of them allocated to "
            f"claims{shared_text}",
            f"the kubelet reports {_cpu(capacity)}, of which {_cpu(line)} are allocatable",
        )
        if cpus.managed > capacity:
            yield CheckProblem(
                f"Node/{name}",
                f"{driver} publishes {_cpu(cpus.managed)} CPUs, the machine has {_cpu(capacity)}",
                numbers,
                "correct the driver's slices, or check that the kubelet detected all CPUs at startup",
                driver,
                None if cpus.sure else Severity.INFO,
            )
        elif driver in KNOWN_DRIVERS and line - usable >= _ONE_CPU:
            yield CheckProblem(
                f"Node/{name}",
                f"the kubelet has {_cpu(line)} CPUs allocatable, {driver} manages {_cpu(cpus.managed)}: "
                f"with all of them claimed, {_cpu(line - usable)} more can be requested than remain",
                numbers,
                f"reserve the same CPUs on both sides: kubelet reservedSystemCPUs and the driver's "
                f"reserved CPUs should both leave {_cpu(usable)}",
                driver,
            )
        elif driver in KNOWN_DRIVERS and usable - line >= _ONE_CPU:
            spare = usable - line // _ONE_CPU * _ONE_CPU
            yield CheckProblem(
                f"Node/{name}",
                f"{driver} manages {_cpu(cpus.managed)} CPUs, the kubelet has {_cpu(line)} allocatable: "
                f"claims can take {_cpu(usable - line)} that are reserved for the system",
                numbers,
                f"reserve the same CPUs on both sides: the driver should reserve {_cpu(spare)} more",
                driver,
                Severity.INFO,
            )


def _cpu(milli: int) -> str:
    return format_short(CPU, milli)


def find_shared_pools_empty(facts: AuditFacts) -> Iterator[CheckProblem]:
    for (name, driver), cpus in sorted(_managed(facts).items()):
        node = facts.nodes.get(name)
        line = node.status.allocatable[CPU].milli() if node and CPU in node.status.allocatable else 0
        if not cpus.managed or cpus.held < cpus.managed or cpus.shared:
            continue
        if driver not in KNOWN_DRIVERS and line - cpus.managed >= _ONE_CPU:
            continue  # it manages some of the CPUs, and there are others
        pods = facts.bound_by_node.get(name, [])
        without = [pod for pod in sorted(pods, key=key_of) if not _has_cpus_of(facts, pod, driver)]
        if without:
            names = join_names([f"Pod/{pod.metadata.full_name}" for pod in without], 3)
            yield CheckProblem(
                f"Node/{name}",
                f"all {_cpu(cpus.managed)} CPUs of {driver} are allocated to claims, and {len(without)} pod"
                f"{'s run' if len(without) > 1 else ' runs'} without one: no CPU is left for "
                f"{'them' if len(without) > 1 else 'it'}",
                (names,),
                key=driver,
            )


def _has_cpus_of(facts: AuditFacts, pod: Pod, driver: str) -> bool:
    return any(
        result.driver == driver
        for claim in claims_of(facts.cluster_state.objects, pod)
        for result in claim.allocation_results
    )


def find_cpuset_overlaps(facts: AuditFacts) -> Iterator[CheckProblem]:
    """Find CPUs that drivers report for two claims on one node."""
    owners: dict[tuple[str, str], list[tuple[CpuSet, ResourceClaim]]] = {}
    for claim in facts.claims.values():
        for each in claim.status.devices:
            cpus = _parse_cpu_list(each.data, "cpuset")
            if cpus:
                owners.setdefault((each.driver, each.pool), []).append((cpus, claim))
    for (driver, pool), found in sorted(owners.items()):
        taken = CpuSet()
        for cpus, _ in found:
            if taken & cpus:
                yield from _overlaps(driver, pool, found)
                break
            taken = taken | cpus


def _overlaps(driver: str, pool: str, found: list[tuple[CpuSet, ResourceClaim]]) -> Iterator[CheckProblem]:
    for (one, first), (other, second) in combinations(found, 2):
        both, name = one & other, second.metadata.full_name
        if both:
            yield CheckProblem(
                subject_of(first),
                f"has CPUs {both}" + (" twice" if first is second else f", and so has {name}"),
                (
                    f"driver {driver}, pool {pool}",
                    f"{subject_of(first)}: CPUs {one}",
                    f"{subject_of(second)}: CPUs {other}",
                ),
                key=f"{name}/{both}",
            )


def _parse_cpu_list(data: object, name: str) -> CpuSet | None:
    """Parse a CPU or NUMA list in driver data; None if it is missing or invalid."""
    text = data.get(name) if isinstance(data, dict) else None
    if not isinstance(text, str) or not text or len(text) > 10_000:
        return None
    try:
        return CpuSet.parse(text)
    except InputError:
        return None


def find_devices_not_ready(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim in facts.claims.values():
        for each in claim.status.devices:
            for condition in each.conditions:
                if condition.type == "Ready" and condition.status == "False":
                    id = DeviceId(each.driver, each.pool, each.device)
                    yield CheckProblem(
                        subject_of(claim),
                        f"the driver reports device {each.device} as not ready: {condition.reason}",
                        tuple(filter(None, (condition.message, f"device {id}"))),
                        key=f"{id}/{each.share_id or ''}",
                    )


CHECKS = {
    "PLM050": find_numa_splits,
    "PLM051": find_cpu_mismatches,
    "PLM052": find_cpuset_overlaps,
    "PLM053": find_shared_pools_empty,
    "PLM054": find_devices_not_ready,
}
