"""A driver whose devices stand in a file: GPUs with partitions, network cards, accelerators.

Start at `reading.py` for the file (docs/drivers.md, "Devices from a file"), at `devices.py` for what becomes
of it on a node, and at `driver.py` for how claims are served. The files `gpus.yaml`, `nics.yaml` and
`accelerators.yaml` beside this one are ready to use.
"""

from plimsoll.drivers.fake.device_file import BUILT_IN, find_drivers, parse_drivers
from plimsoll.drivers.fake.devices import Arrangement, FakeDevice, make_devices
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.fake.fault_injection import Control, parse_control
from plimsoll.drivers.fake.plan import DriverPlan

__all__ = [
    "BUILT_IN",
    "Arrangement",
    "Control",
    "DriverPlan",
    "FakeDevice",
    "FakeDriver",
    "find_drivers",
    "make_devices",
    "parse_control",
    "parse_drivers",
]
