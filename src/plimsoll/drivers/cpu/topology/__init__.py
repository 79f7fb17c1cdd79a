"""CPU topology of a machine.

`topology.py` defines the values, `sysfs.py` reads them from a machine (through `overlay.py` and the pure
`placement.py`), `watch.py` reports changes.
"""

from plimsoll.drivers.cpu.topology.overlay import read_overlay
from plimsoll.drivers.cpu.topology.sysfs import read_topology
from plimsoll.drivers.cpu.topology.topology import CoreKind, Cpu, SkippedCpu, Topology
from plimsoll.drivers.cpu.topology.watch import MachineReader, TopologyWatch

__all__ = [
    "CoreKind",
    "Cpu",
    "MachineReader",
    "SkippedCpu",
    "Topology",
    "TopologyWatch",
    "read_overlay",
    "read_topology",
]
