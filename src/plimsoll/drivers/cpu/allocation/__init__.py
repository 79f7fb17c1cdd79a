"""CPU allocator: the algorithms of the kubelet's static CPU manager policy, as pure functions.

Start at `allocate.py`; `packed.py` and `distributed.py` are the two algorithms, `balance.py` selects NUMA
nodes for the second, `topology_tables.py` holds precomputed masks and `explanation.py` the recorded steps.
"""

from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting

__all__ = ["Algorithm", "AssignOptions", "Sorting"]
