"""Availability: what claims can still get, by device class, for all commands.

START HERE: `availability.py`. The numbers are those of the allocator and the ledger together: devices that
exclude each other are not added up (`allocator/packing.py`), devices of several nodes count once, and what
devices charge must fit into what is left of their node. `node_stock.py` reads the devices of a node and
whether the node takes pods at all, `charges.py` what devices charge to it.
"""

from plimsoll.tools.availability.availability import (
    Availability,
    ClassAvailability,
    DevicesOnNodes,
)
from plimsoll.tools.availability.charges import CapacityLeft, limit_pool_capacity, select_offered
from plimsoll.tools.availability.node_stock import closed_reason

__all__ = [
    "Availability",
    "CapacityLeft",
    "ClassAvailability",
    "DevicesOnNodes",
    "closed_reason",
    "limit_pool_capacity",
    "select_offered",
]
