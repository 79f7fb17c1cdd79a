"""Fake driver: simulated devices described by a YAML file (GPUs with partitions, network cards,
accelerators).

Start at `device_file.py` for the file format (docs/drivers.md, "Devices from a file"), at `devices.py` for
the devices on a node, and at `driver.py` for preparing claims. The built-in files are `gpus.yaml`,
`nics.yaml` and `accelerators.yaml` in this directory.
"""

from plimsoll.drivers.fake.device_file import BUILT_IN, find_drivers, parse_drivers
from plimsoll.drivers.fake.devices import FakeDevice, FakeInventory, make_devices
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.fake.fault_injection import Control, parse_control
from plimsoll.drivers.fake.plan import DriverPlan

__all__ = [
    "BUILT_IN",
    "Control",
    "DriverPlan",
    "FakeDevice",
    "FakeDriver",
    "FakeInventory",
    "find_drivers",
    "make_devices",
    "parse_control",
    "parse_drivers",
]
