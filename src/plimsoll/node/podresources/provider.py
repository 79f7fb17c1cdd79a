"""PodResources provider: the node's pods, their claims, their CPUs, memory and devices.

Combines the agent's state. Claims come from the claim info cache, so that no driver is called (KEP-3695);
devices of device plugins from the device manager. Memory is listed where claims charge it and a driver pinned
the container to NUMA nodes; otherwise it is not known, and absent.
CPUs are listed if a claim gave them to the container exclusively; one alone on the shared CPUs has none.

DIFF: the kubelet lists only CPUs of its own CPU manager; here CPUs that a claim gave to one container alone
are listed too (test_exclusive_cpus_of_a_container).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from plimsoll.api.core import Container, Pod
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.charges import read_charges, sum_container_charges
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.containers import Runtime
from plimsoll.node.device_plugins import DeviceManager
from plimsoll.node.device_plugins.devices import PluginDevice
from plimsoll.node.exclusive_cpus import UnsharedCpus, exclusive_cpus, find_unshared_cpus
from plimsoll.node.machine.machine import Machine, Reservations, parse_cpus
from plimsoll.node.podresources.source import Allocatable, MemoryBlock, PluginDevices, PodResourcesSource


class PodResourcesProvider(PodResourcesSource):
    """Pods of a node and their resources, from the state of its agent."""

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        is_active: Callable[[Pod], bool],
        claim_cache: ClaimInfoCache,
        runtime: Runtime,
        machine: Callable[[], Machine],
        reservations: Reservations,
        *,
        devices: DeviceManager | None = None,
        memory_nodes: Callable[[], Mapping[tuple[str, str], str]] = dict,
    ) -> None:
        """`memory_nodes` returns the NUMA nodes that drivers pinned containers to, by pod and name."""
        self._pods = pods
        self._is_active = is_active
        self._claim_cache = claim_cache
        self._runtime = runtime
        self._machine = machine
        self._reservations = reservations
        self._devices = devices
        self._memory_nodes = memory_nodes
        self._changes = 0
        self._read_at = -1
        self._unshared: UnsharedCpus = {}
        self._pinned: Mapping[tuple[str, str], str] = {}

    def invalidate(self) -> None:
        """Invalidate cached responses after a change of pods or containers."""
        self._changes += 1

    def revision(self) -> object:
        devices = self._devices.revision if self._devices is not None else 0
        return self._changes, self._claim_cache.revision, devices

    def pods(self) -> Sequence[Pod]:
        return self._pods()

    def is_active(self, pod: Pod) -> bool:
        return self._is_active(pod)

    def claims_of(self, pod: Pod, container: Container) -> tuple[ClaimInfo, ...] | None:
        return self._claim_cache.claims_of_container(pod, container)

    def cpus_of(self, pod: Pod, container: Container) -> tuple[int, ...]:
        self._refresh()
        return exclusive_cpus(pod, self._unshared).get(container.name, ())

    def _refresh(self) -> None:
        """Read the runtime once for all containers, after a change."""
        if self._read_at != self._changes:
            self._unshared = find_unshared_cpus(self._runtime.containers())
            self._pinned = self._memory_nodes()
            self._read_at = self._changes

    def memory_of(self, pod: Pod, container: Container) -> tuple[MemoryBlock, ...]:
        """Return the memory of a container's claims, if a driver pinned the container to NUMA nodes.

        DIFF: the kubelet lists memory of its memory manager only; here that of claims is listed
        (test_memory_of_claims_on_pinned_numa_nodes).
        """
        self._refresh()
        pinned = self._pinned.get((pod.metadata.uid, container.name))
        charges = read_charges(pod) if pinned else ()
        if not pinned or not charges:
            return ()
        nodes = parse_cpus(pinned)
        claimed = sum_container_charges(charges, container.name)
        return tuple(
            MemoryBlock(name, amount.value(), nodes)
            for name, amount in sorted(claimed.items())
            if (name == "memory" or is_huge_page(name)) and amount.value() > 0
        )

    def devices_of(self, pod: Pod, container: Container) -> tuple[PluginDevices, ...]:
        if self._devices is None:
            return ()
        allocations = self._devices.of_container(pod.metadata.uid, container.name)
        return tuple(block for each in allocations for block in _plugin_devices(each.resource, each.devices))

    def allocatable(self) -> Allocatable:
        machine = self._machine()
        cpus = tuple(cpu for cpu in machine.cpus if cpu not in self._reservations.cpus)
        healthy = self._devices.healthy_devices() if self._devices is not None else {}
        devices = (block for resource, each in healthy.items() for block in _plugin_devices(resource, each))
        return Allocatable(cpus=cpus, memory=tuple(_memory_blocks(machine)), devices=tuple(devices))


def _plugin_devices(resource: str, devices: Iterable[PluginDevice]) -> Iterator[PluginDevices]:
    """Yield an entry for each device and NUMA node, as a kubelet does."""
    for device in devices:
        if not device.nodes:
            yield PluginDevices(resource, (device.id,))
        for node in device.nodes:
            yield PluginDevices(resource, (device.id,), (node,))


def _memory_blocks(machine: Machine) -> list[MemoryBlock]:
    """Return memory and huge pages by NUMA node."""
    blocks = []
    for node in machine.numa:
        blocks.append(MemoryBlock("memory", node.memory, (node.id,)))
        blocks += [
            MemoryBlock(f"hugepages-{size}", n, (node.id,)) for size, n in node.huge_pages.items() if n
        ]
    return blocks
