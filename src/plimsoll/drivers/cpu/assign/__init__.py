"""Which CPUs a request gets: the kubelet's static algorithm, as a function of values."""

from plimsoll.drivers.cpu.assign.options import Algorithm, AssignOptions, Sorting

__all__ = ["Algorithm", "AssignOptions", "Sorting"]
