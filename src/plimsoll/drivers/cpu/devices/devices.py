"""Devices of the API built from CPU domains. Pure.

`make_devices` builds the devices of a ResourceSlice (resource.k8s.io/v1), `device_health` their health.
Names, attributes, the deprecated duplicates among them and the capacity are the Go driver's
(docs/spec/cpu-driver.md, "Devices and ResourceSlices"); the request policy, overheads and taints are
additions.

A device without online CPUs stays published while claims use it, with a taint that keeps new claims away:
charges and node of those claims are read from the slices. If some allocated CPUs are offline, they stay in
the capacity, because the scheduler keeps counting their claims: the rest of the capacity is then exactly what
is free.

DIFF: CPUs that cannot be prepared are not in the capacity: those of claims that the cluster does not know,
and the last shared one (test_capacity_that_cannot_be_prepared_is_not_published).

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
from plimsoll.api.resource import NUMA_NODE, PCIE_ROOT
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.devices.groups import ROOTS_MAX, CpuDomain, CpuLayout
from plimsoll.drivers.cpu.settings import CAPACITY, CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin import DeviceHealth, Health

#: Taint of devices without online CPUs.
OFFLINE_TAINT = "dra.cpu/offline"

#: API limits of devices per slice, without and with list attributes or taints.
PER_SLICE = 128
PER_SLICE_WITH_EXTRAS = 64

Tree = dict[str, Any]
_NONE: Mapping[str, CpuSet] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ServerCapabilities:
    """Device fields that an API server stores; it drops the others.

    `form` is the supported wire form of node resources.
    """

    form: Form | None = None
    policy: bool = True
    taints: bool = True
    lists: bool = True
    sharing: bool = True  #: devices that several claims share


def make_devices(
    topology: Topology,
    layout: CpuLayout,
    settings: CpuSettings,
    form: Form | None,
    *,
    offline_allocated: Mapping[str, CpuSet] = _NONE,
    uncounted: CpuSet = EMPTY,
    capabilities: ServerCapabilities | None = None,
) -> list[Tree]:
    """Build all devices, in order. `offline_allocated` are allocated CPUs that are offline, by device.

    `uncounted` are CPUs of claims that the scheduler does not count: they cannot be assigned, so they are not
    published.
    """
    capabilities = capabilities or ServerCapabilities(form)
    devices = []
    for domain in layout.domains.values():
        gone = offline_allocated.get(domain.name, EMPTY) - topology.all
        capacity = len((domain.cpus | gone) - uncounted) // domain.step * domain.step
        if not capacity:
            continue
        devices.append(_device(topology, settings, domain, capacity, form, capabilities))
    for name in sorted(offline_allocated):
        gone = offline_allocated[name] - topology.all
        if not capabilities.taints or not gone or name in layout.domains or not name:
            continue
        domain = layout.offline_devices.get(name) or CpuDomain(name, EMPTY)
        capacity = -(-len(gone) // domain.step) * domain.step
        tree = _device(topology, settings, domain, capacity, form, capabilities)
        tree["taints"] = [{"key": OFFLINE_TAINT, "effect": "NoSchedule"}]
        devices.append(tree)
    return devices


def per_slice(settings: CpuSettings, devices: list[Tree] | None = None) -> int:
    """Return the number of devices per slice: fewer if any has a list attribute or a taint."""
    extras = any(
        "taints" in device or any("strings" in value for value in device.get("attributes", {}).values())
        for device in devices or ()
    )
    return PER_SLICE_WITH_EXTRAS if settings.pcie_roots or extras else PER_SLICE


def _device(
    topology: Topology,
    settings: CpuSettings,
    domain: CpuDomain,
    capacity: int,
    form: Form | None,
    capabilities: ServerCapabilities,
) -> Tree:
    single = settings.mode is DeviceMode.INDIVIDUAL
    attributes = _cpu_attributes(domain) if single else _group_attributes(domain, settings.group_by)
    attributes["dra.cpu/smtEnabled"] = {"bool": topology.smt}
    if domain.numa >= 0 and (single or settings.group_by in _WITH_NUMA):
        for name in (NUMA_NODE, "dra.cpu/numaNodeID", "dra.net/numaNode"):
            attributes[name] = {"int": domain.numa}
    roots = list(domain.pcie_roots[:ROOTS_MAX])
    if roots and settings.needs_pcie:
        if capabilities.lists:
            attributes[PCIE_ROOT] = {"strings": roots}
        elif len(roots) == 1:
            attributes[PCIE_ROOT] = {"string": roots[0]}
    tree: Tree = {"name": domain.name, "attributes": dict(sorted(attributes.items()))}
    if not single:
        amount: Tree = {"value": str(capacity)}
        if settings.policy.publish and capabilities.policy:
            amount["requestPolicy"] = _policy(settings, domain, capacity)
        tree["capacity"] = {CAPACITY: amount}
        tree["allowMultipleAllocations"] = True
    return tree | _mapping(settings, form, single=single)


_WITH_NUMA = (GroupBy.NUMA, GroupBy.L3, GroupBy.PCIE)


def _cpu_attributes(domain: CpuDomain) -> Tree:
    cpu = domain.cpu
    if cpu is None:
        return {}
    return {
        "dra.cpu/cpuID": {"int": cpu.id},
        # As the machine reports it and the Go driver publishes it; several sockets may have the same.
        "dra.cpu/coreID": {"int": cpu.core_id if cpu.core_id >= 0 else cpu.core},
        "dra.cpu/coreType": {"string": cpu.kind.value},
        "dra.cpu/cacheL3ID": {"int": cpu.l3_id},
        "dra.cpu/socketID": {"int": cpu.socket},
    }


def _group_attributes(domain: CpuDomain, group_by: GroupBy) -> Tree:
    attributes: Tree = {"dra.cpu/numCPUs": {"int": len(domain.cpus)}}
    if domain.socket >= 0 and group_by is not GroupBy.MACHINE:
        attributes["dra.cpu/socketID"] = {"int": domain.socket}
    if group_by is GroupBy.L3:
        attributes["dra.cpu/cacheL3ID"] = {"int": domain.l3}
    return attributes


def _policy(settings: CpuSettings, domain: CpuDomain, capacity: int) -> Tree:
    """Build the request policy: amounts are multiples of the step.

    A request without an amount takes the full device, as without a policy and with the Go driver.
    """
    step, default = domain.step, settings.policy.default
    usual = capacity if default is None else min(-(-default // step) * step, capacity)
    # One step above the least amount must still be in the capacity (API validation): a device of one core has
    # no room for a step.
    room = {"step": str(step)} if 2 * step <= capacity else {"max": str(step)}
    return {"default": str(max(usual, step)), "validRange": {"min": str(step), **room}}


def _mapping(settings: CpuSettings, form: Form | None, *, single: bool) -> Tree:
    """Build the node resource mapping: one CPU for each CPU."""
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
    settings: CpuSettings, form: Form | None, capabilities: ServerCapabilities | None = None
) -> tuple[NodeFinding, ...]:
    """Return findings for settings that the API server or the wire form does not support."""
    capabilities = capabilities or ServerCapabilities(form)
    found: list[tuple[str, str]] = []
    if settings.overhead and form is not Form.V1_37:
        why = f"the {form.value} form has no field for it" if form else "nothing is charged to the node"
        found.append(
            (f"overhead is not published: {why}", "remove overhead, or use a server of 1.37 or later")
        )
    if form is None and settings.mapping in (MappingChoice.V1_36, MappingChoice.V1_37):
        what = f"the API server drops the {settings.mapping.value} form: claims are not charged to the node"
        found.append(
            (what, "enable its feature gate DRANodeAllocatableResources, or set nodeAllocatableForm: auto")
        )
    if settings.needs_pcie and not capabilities.lists:
        what = "the API server drops lists: PCIe roots are published only for devices with one root"
        found.append((what, "enable its feature gate DRAListTypeAttributes"))
    if settings.mode is DeviceMode.GROUPED and settings.policy.publish and not capabilities.policy:
        what = "the API server drops amounts: a grouped device can be allocated to one claim only"
        fix = "enable its feature gate DRAConsumableCapacity, or set cpuDeviceMode: individual"
        found.append((what, fix))
    return tuple(NodeFinding(FindingSeverity.WARNING, what, fix) for what, fix in found)


def describe_server(version: str, capabilities: ServerCapabilities, settings: CpuSettings) -> str:
    """Describe what an API server of this version (or "") gives, and which versions give more."""
    if not capabilities.sharing:
        cpus = "single CPUs (groups of CPUs: from 1.36 on, or with the feature gate DRAConsumableCapacity)"
    elif settings.mode is DeviceMode.INDIVIDUAL:
        cpus = "single CPUs (cpuDeviceMode: individual)"
    else:
        cpus = "groups of CPUs"
    if capabilities.form is not None:
        charges = f"claims are charged by mappings in slices (form {capabilities.form.value})"
    elif settings.mapping is MappingChoice.OFF:
        charges = "claims are charged by annotations of DeviceClasses (nodeAllocatableForm: off)"
    else:
        charges = (
            "claims are charged by annotations of DeviceClasses (mappings in slices: from 1.36 on, with the "
            "feature gate DRANodeAllocatableResources)"
        )
    return f"Kubernetes {version or 'of an unknown version'}: {cpus}; {charges}"


def device_health(
    topology: Topology,
    layout: CpuLayout,
    pool: str,
    *,
    offline_allocated: Mapping[str, CpuSet] = _NONE,
    problem: str = "",
) -> list[DeviceHealth]:
    """Return the health of all devices. `problem` makes all devices unhealthy, such as missing pinning.

    A CPU that went offline without being allocated is removed from its device, which stays healthy.
    """
    health = []
    for name in [*layout.domains, *sorted(set(offline_allocated) - set(layout.domains) - {""})]:
        gone = offline_allocated.get(name, EMPTY) - topology.all
        domain = layout.domains.get(name)
        if gone:
            verb = "is" if len(gone) == 1 else "are"
            text = f"{_cpus(gone)} of this device {verb} allocated to claims and offline"
            health.append(DeviceHealth(pool, name, Health.UNHEALTHY, text))
        elif problem:
            health.append(DeviceHealth(pool, name, Health.UNHEALTHY, problem))
        elif domain is not None:
            health.append(DeviceHealth(pool, name, Health.HEALTHY, f"{_cpus(domain.cpus)} online"))
    return health


def _cpus(cpus: CpuSet) -> str:
    return f"CPU{'' if len(cpus) == 1 else 's'} {cpus}"
