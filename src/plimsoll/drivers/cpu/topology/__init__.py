"""What CPUs a machine has and how they lie to each other.

`topology` are the values, `sysfs` reads them from a machine, `watch` tells when they change.
"""

from plimsoll.drivers.cpu.topology.topology import CoreKind, Cpu, Skipped, Topology

__all__ = ["CoreKind", "Cpu", "Skipped", "Topology"]
