"""Availability: what claims can still get, by device class, for all commands.

START HERE: `availability.py`. The numbers are those of the allocator and the ledger together: devices that
exclude each other are not added up (`allocator/packing.py`), devices of several nodes count once, and what
devices charge must fit into what is left of their node. `node_stock.py` reads the devices of a node and
whether the node takes pods at all, `charges.py` what devices charge to it, `devices.py` counts given devices
instead of those of a class.
"""

from plimsoll.tools.availability.availability import (
    Availability,
    ClassAvailability,
    DevicesOnNodes,
)
from plimsoll.tools.availability.charges import (
    CapacityLeft,
    NodeShortage,
    limit_pool_capacity,
    select_offered,
)
from plimsoll.tools.availability.devices import DeviceAvailability
from plimsoll.tools.availability.node_stock import closed_reason

__all__ = [
    "Availability",
    "CapacityLeft",
    "ClassAvailability",
    "DeviceAvailability",
    "DevicesOnNodes",
    "NodeShortage",
    "closed_reason",
    "limit_pool_capacity",
    "select_offered",
]
