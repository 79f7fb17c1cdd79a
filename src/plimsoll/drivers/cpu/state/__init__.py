"""CPU state: allocations of claims, the shared pool, and their checkpoint.

Start at `cpu_state.py`. `prepare.py` decides which CPUs a claim gets, `reconcile.py` compares checkpoint, CDI
files and containers after a restart; both are pure.
"""

from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation, CpuAssignment
from plimsoll.drivers.cpu.state.cpu_state import CPUState, read_allocated_cpus

__all__ = [
    "CPUState",
    "ClaimAllocation",
    "CpuAssignment",
    "read_allocated_cpus",
]
