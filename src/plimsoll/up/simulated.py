"""Simulated nodes of manifests and dumps.

Nodes with the annotation `plimsoll.dev/simulated` get an agent whose machine has exactly the allocatable
resources of the Node object. Pods that run when the agent starts are accepted without admission, as they were
running in the dumped cluster; later pods are admitted as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll.api import codec
from plimsoll.api.core import Node, ResourceList
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, MEMORY
from plimsoll.ledger.units import PODS as PODS_RESOURCE
from plimsoll.node.agent import Agent
from plimsoll.node.machine.machine import MAX_PODS, Machine, Reservations
from plimsoll.node.process.assembly import make_agent
from plimsoll.node.process.metrics import NodeMetrics
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime.stages import Stage
from plimsoll.up.manifests.completion import SIMULATED

_ARCHITECTURE = "kubernetes.io/arch"
#: More CPUs than any node has; a node that reports more is simulated without CPU numbers.
_MOST_CPUS = 4096


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A simulated node: its machine description and the resources that pods do not get."""

    machine: Machine
    reserved: Reservations


def machine_of(node: Node) -> tuple[Machine, Reservations]:
    """Return a machine with the allocatable amounts of a Node; the rest of its capacity is reserved."""
    line: ResourceList = dict(node.status.allocatable or node.status.capacity)
    line.setdefault(PODS_RESOURCE, Quantity.of(MAX_PODS))
    capacity: ResourceList = {}
    reserved: ResourceList = {}
    for name in sorted(line, key=lambda name: name == MEMORY):
        least = line[name]
        if name == MEMORY:  # a kubelet subtracts all huge pages from allocatable memory
            least += sum((amount for other, amount in capacity.items() if is_huge_page(other)), ZERO)
        capacity_of_node = node.status.capacity.get(name, least)
        capacity[name] = capacity_of_node if capacity_of_node >= least else least
        if capacity_of_node > least:
            reserved[name] = capacity_of_node - least
    cpus = min(_MOST_CPUS, -(-capacity.get(CPU, ZERO).milli() // 1000))
    machine = Machine(
        capacity=capacity,
        cpus=tuple(range(cpus)),
        hostname=node.metadata.labels.get("kubernetes.io/hostname", ""),
        kernel="6.1.0",
        os_image="Linux",
        arch=node.metadata.labels.get(_ARCHITECTURE) or "amd64",
    )
    return machine, Reservations(system=reserved, eviction_hard={})


def is_simulated(node: Node) -> bool:
    """Return whether a Node is to be simulated and describes its resources."""
    line = node.status.allocatable or node.status.capacity
    wanted = node.metadata.annotations.get(SIMULATED) == "true"
    return wanted and all(line.get(name, ZERO).sign() > 0 for name in (CPU, MEMORY))


async def find_simulated(client: Client, own: Collection[str] = ()) -> dict[str, SimulatedNode]:
    """Return the nodes to simulate, by name; `own` are those that have agents already."""
    nodes = [codec.decode(raw, Node) for raw in (await client.list(NODES)).items]
    wanted = {node.metadata.name: node for node in nodes if is_simulated(node)}
    for name in own:
        wanted.pop(name, None)
    return {name: SimulatedNode(*machine_of(node)) for name, node in sorted(wanted.items())}


def start_simulated(
    client: Client,
    nodes: Mapping[str, SimulatedNode],
    root: Path,
    gates: Gates,
    client_for: Callable[[str], Client],
    stages: tuple[Stage, ...] = (),
) -> NodeProcess:
    """Create a process with the agents of simulated nodes."""

    def make(
        client: Client, settings: NodeSettings, name: str, machine: Machine, metrics: NodeMetrics
    ) -> Agent:
        simulated = nodes[name]
        own = replace(settings, reservations=simulated.reserved)
        return make_agent(client, own, name, simulated.machine, metrics)

    settings = NodeSettings(
        listed=tuple(nodes),
        count=len(nodes),
        root=root,
        runtime="none",
        bare=True,
        machine=next(iter(nodes.values())).machine,
        stages=stages,
        gates=gates,
        listen="",
    )
    return NodeProcess(client, settings, client_for=client_for, make=make)
