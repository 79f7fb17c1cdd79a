"""What the driver publishes: CPUs in groups, groups as devices, in the words the API server knows.

Start at `groups.py`; `devices.py` makes API trees of what it says.
"""

from plimsoll.drivers.cpu.devices.devices import (
    CAPACITY,
    Abilities,
    check_form,
    device_health,
    make_devices,
    per_slice,
)
from plimsoll.drivers.cpu.devices.groups import Arrangement, Domain, arrange
from plimsoll.drivers.cpu.devices.machine_description import make_annotations
from plimsoll.drivers.cpu.devices.reserved import check_against_node
from plimsoll.drivers.cpu.devices.wire_form import detect_abilities

__all__ = [
    "CAPACITY",
    "Abilities",
    "Arrangement",
    "Domain",
    "arrange",
    "check_against_node",
    "check_form",
    "detect_abilities",
    "device_health",
    "make_annotations",
    "make_devices",
    "per_slice",
]
