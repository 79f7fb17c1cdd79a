"""Domains as devices of the API. Pure.

Owns `make_devices` (trees as they stand in a ResourceSlice of resource.k8s.io/v1), how many of them go into
one slice, and what is told about their health. Names, attributes, the deprecated duplicates among them and
the capacity are the Go driver's (section 4 of the CPU driver's specification); the policy for amounts,
overheads and taints are ours.

A device of which no CPU is online stays published while claims hold it, with a taint that keeps new claims
away: what is charged for those claims, and which node they are on, is read from the slices. Where CPUs that
claims hold are offline and others are not, they stay in the capacity, for the scheduler goes on counting the
claims against it: what is left of it is then exactly what is free.

DIFF: amounts have a policy: fractions are rounded up by the scheduler; with the Go driver they fail on the
node (test_problem_8_fractions_are_rounded_up_by_the_scheduler).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.api.forms import Form
from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.drivers.cpu.devices.groups import ROOTS_MAX, Arrangement, Domain
from plimsoll.drivers.cpu.settings import CpuSettings, GroupBy, Mode
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin import DeviceHealth, Health

#: The capacity of grouped devices.
CAPACITY = "dra.cpu/cpu"
NUMA_NODE = "resource.kubernetes.io/numaNode"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
#: On devices none of whose CPUs is online.
OFFLINE_TAINT = "dra.cpu/offline"

#: How many devices the API takes in one slice, and how many where one of them has a list or a taint.
PER_SLICE = 128
PER_SLICE_WITH_EXTRAS = 64

Tree = dict[str, Any]
_NONE: Mapping[str, CpuSet] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an API server keeps of a device; other fields it drops.

    `form` is the form in which it knows what devices take from the node.
    """

    form: Form | None = None
    policy: bool = True
    taints: bool = True
    lists: bool = True


def make_devices(
    topology: Topology,
    arrangement: Arrangement,
    settings: CpuSettings,
    form: Form | None,
    *,
    lost: Mapping[str, CpuSet] = _NONE,
    able: Abilities | None = None,
) -> list[Tree]:
    """All devices, in order. `lost` are CPUs that claims hold and that are offline, by device."""
    able = able or Abilities(form)
    devices = []
    for domain in arrangement.domains.values():
        gone = lost.get(domain.name, EMPTY) - topology.all
        capacity = len(domain.cpus | gone) // domain.step * domain.step
        devices.append(_device(topology, settings, domain, capacity, form, able))
    for name in sorted(lost):
        gone = lost[name] - topology.all
        if not able.taints or not gone or name in arrangement.domains or not name:
            continue
        domain = arrangement.away.get(name) or Domain(name, EMPTY)
        capacity = -(-len(gone) // domain.step) * domain.step
        tree = _device(topology, settings, domain, capacity, form, able)
        tree["taints"] = [{"key": OFFLINE_TAINT, "effect": "NoSchedule"}]
        devices.append(tree)
    return devices


def per_slice(settings: CpuSettings, devices: list[Tree] | None = None) -> int:
    """How many devices go into one slice: fewer where any has a list or a taint."""
    extras = any(
        "taints" in device or any("strings" in value for value in device.get("attributes", {}).values())
        for device in devices or ()
    )
    return PER_SLICE_WITH_EXTRAS if settings.pcie_roots or extras else PER_SLICE


def _device(
    topology: Topology,
    settings: CpuSettings,
    domain: Domain,
    capacity: int,
    form: Form | None,
    able: Abilities,
) -> Tree:
    single = settings.mode is Mode.INDIVIDUAL
    attributes = _cpu_attributes(domain) if single else _group_attributes(domain, settings.group_by)
    attributes["dra.cpu/smtEnabled"] = {"bool": topology.smt}
    if domain.numa >= 0 and (single or settings.group_by in _WITH_NUMA):
        for name in (NUMA_NODE, "dra.cpu/numaNodeID", "dra.net/numaNode"):
            attributes[name] = {"int": domain.numa}
    roots = list(domain.pcie_roots[:ROOTS_MAX])
    if roots and settings.needs_pcie:
        if able.lists:
            attributes[PCIE_ROOT] = {"strings": roots}
        elif len(roots) == 1:
            attributes[PCIE_ROOT] = {"string": roots[0]}
    tree: Tree = {"name": domain.name, "attributes": dict(sorted(attributes.items()))}
    if not single:
        amount: Tree = {"value": str(capacity)}
        if settings.policy.publish and able.policy:
            amount["requestPolicy"] = _policy(settings, domain, capacity)
        tree["capacity"] = {CAPACITY: amount}
        tree["allowMultipleAllocations"] = True
    return tree | _mapping(settings, form, single=single)


_WITH_NUMA = (GroupBy.NUMA, GroupBy.L3, GroupBy.PCIE)


def _cpu_attributes(domain: Domain) -> Tree:
    cpu = domain.cpu
    if cpu is None:
        return {}
    return {
        "dra.cpu/cpuID": {"int": cpu.id},
        # What the machine says, as the Go driver publishes it; several sockets may have the same.
        "dra.cpu/coreID": {"int": cpu.core_id if cpu.core_id >= 0 else cpu.core},
        "dra.cpu/coreType": {"string": cpu.kind.value},
        "dra.cpu/cacheL3ID": {"int": cpu.l3_id},
        "dra.cpu/socketID": {"int": cpu.socket},
    }


def _group_attributes(domain: Domain, group_by: GroupBy) -> Tree:
    attributes: Tree = {"dra.cpu/numCPUs": {"int": len(domain.cpus)}}
    if domain.socket >= 0 and group_by is not GroupBy.MACHINE:
        attributes["dra.cpu/socketID"] = {"int": domain.socket}
    if group_by is GroupBy.L3:
        attributes["dra.cpu/cacheL3ID"] = {"int": domain.l3}
    return attributes


def _policy(settings: CpuSettings, domain: Domain, capacity: int) -> Tree:
    """Amounts are whole multiples of the step.

    A request without an amount takes the whole device, as it does of a device without a policy: with the Go
    driver, too.
    """
    step, default = domain.step, settings.policy.default
    usual = capacity if default is None else min(-(-default // step) * step, capacity)
    # One step above the least amount must still be in the capacity, says the API: a device of one core has no
    # room for a step.
    room = {"step": str(step)} if 2 * step <= capacity else {"max": str(step)}
    return {"default": str(max(usual, step)), "validRange": {"min": str(step), **room}}


def _mapping(settings: CpuSettings, form: Form | None, *, single: bool) -> Tree:
    """What is charged to the node's allocatable: one CPU for each CPU."""
    if form is Form.V1_36:
        key = {} if single else {"capacityKey": CAPACITY}
        return {"nodeAllocatableResourceMappings": {"cpu": key | {"allocationMultiplier": "1"}}}
    if form is Form.V1_37:
        grouped = {"capacityKey": CAPACITY, "capacityMultiplier": "1"}
        mapping = {"deviceMultiplier": "1"} if single else grouped
        overhead = {
            key: str(amount)
            for key, amount in (
                ("perPod", settings.overhead.per_pod),
                ("perContainer", settings.overhead.per_container),
            )
            if amount is not None
        }
        entry: Tree = {"mapping": mapping}
        if overhead:
            entry["overhead"] = overhead
        return {"nodeAllocatableResources": {"cpu": entry}}
    return {}


def check_form(
    settings: CpuSettings, form: Form | None, able: Abilities | None = None
) -> tuple[Finding, ...]:
    """What the settings ask for and the API server does not keep, or the form cannot say."""
    able = able or Abilities(form)
    found: list[tuple[str, str]] = []
    if settings.overhead and form is not Form.V1_37:
        why = f"the {form.value} form has no room for it" if form else "nothing is charged to the node"
        found.append(
            (f"overhead is not published: {why}", "take out overhead, or use a server of 1.37 or later")
        )
    if form is None and settings.mapping in (MappingChoice.V1_36, MappingChoice.V1_37):
        what = f"the API server drops the {settings.mapping.value} form: claims are not charged to the node"
        found.append(
            (what, "switch on its gate DRANodeAllocatableResources, or set nodeAllocatableForm: auto")
        )
    if settings.needs_pcie and not able.lists:
        what = "the API server drops lists: PCIe roots are published of devices with one root only"
        found.append((what, "switch on its gate DRAListTypeAttributes"))
    if settings.mode is Mode.GROUPED and settings.policy.publish and not able.policy:
        what = "the API server drops amounts: a grouped device goes to one claim as a whole"
        found.append((what, "switch on its gate DRAConsumableCapacity, or set cpuDeviceMode: individual"))
    return tuple(Finding(Severity.WARNING, what, fix) for what, fix in found)


def device_health(
    topology: Topology,
    arrangement: Arrangement,
    pool: str,
    *,
    lost: Mapping[str, CpuSet] = _NONE,
    problem: str = "",
) -> list[DeviceHealth]:
    """How the devices are. `problem` is why no device can be relied on, such as that nothing pins containers.

    A CPU that went offline and that no claim holds has left its device, which is smaller then, and well.
    """
    told = []
    for name in [*arrangement.domains, *sorted(set(lost) - set(arrangement.domains) - {""})]:
        gone = lost.get(name, EMPTY) - topology.all
        domain = arrangement.domains.get(name)
        if gone:
            verb = "is" if len(gone) == 1 else "are"
            text = f"{_cpus(gone)} of this device {verb} held by claims and offline"
            told.append(DeviceHealth(pool, name, Health.UNHEALTHY, text))
        elif problem:
            told.append(DeviceHealth(pool, name, Health.UNHEALTHY, problem))
        elif domain is not None:
            told.append(DeviceHealth(pool, name, Health.HEALTHY, f"{_cpus(domain.cpus)} online"))
    return told


def _cpus(cpus: CpuSet) -> str:
    return f"CPU{'' if len(cpus) == 1 else 's'} {cpus}"
