"""What CPUs a machine has and how they lie to each other.

`topology` are the values, `sysfs` reads them from a machine (through the files of `overlay`, and `placement`,
which is pure), `watch` tells when they change.
"""

from plimsoll.drivers.cpu.topology.overlay import read_overlay
from plimsoll.drivers.cpu.topology.sysfs import read_topology
from plimsoll.drivers.cpu.topology.topology import CoreKind, Cpu, Skipped, Topology
from plimsoll.drivers.cpu.topology.watch import Machine, TopologyWatch

__all__ = [
    "CoreKind",
    "Cpu",
    "Machine",
    "Skipped",
    "Topology",
    "TopologyWatch",
    "read_overlay",
    "read_topology",
]
