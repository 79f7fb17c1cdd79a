"""Which CPUs a request gets: the kubelet's static algorithm, as a function of values.

`assign` is the entrance; `packed` and `distributed` are the two algorithms, `balance` finds the NUMA nodes of
the second, `tables` and `steps` are what they read and tell.
"""

from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting

__all__ = ["Algorithm", "AssignOptions", "Sorting"]
