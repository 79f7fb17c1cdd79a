"""What the driver publishes: CPUs in groups, groups as devices, in the words the API server knows.

Start at `groups.py`; `devices.py` makes API trees of what it says.
"""

from plimsoll.drivers.cpu.devices.chart import make_annotations
from plimsoll.drivers.cpu.devices.choice import check_against_node
from plimsoll.drivers.cpu.devices.devices import (
    CAPACITY,
    Abilities,
    check_form,
    device_health,
    make_devices,
    per_slice,
)
from plimsoll.drivers.cpu.devices.form import detect_abilities
from plimsoll.drivers.cpu.devices.groups import Arrangement, Domain, arrange

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
