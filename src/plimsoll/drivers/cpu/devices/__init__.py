"""Published devices: CPUs grouped into domains, and domains as ResourceSlice devices.

Start at `groups.py`; `devices.py` builds the API objects.
"""

from plimsoll.drivers.cpu.devices.devices import (
    ServerCapabilities,
    check_form,
    describe_server,
    device_health,
    make_devices,
    per_slice,
)
from plimsoll.drivers.cpu.devices.groups import CpuLayout, compute_layout
from plimsoll.drivers.cpu.devices.machine_description import make_annotations
from plimsoll.drivers.cpu.devices.reserved import check_against_node
from plimsoll.drivers.cpu.devices.wire_form import detect_capabilities

__all__ = [
    "CpuLayout",
    "ServerCapabilities",
    "check_against_node",
    "check_form",
    "compute_layout",
    "describe_server",
    "detect_capabilities",
    "device_health",
    "make_annotations",
    "make_devices",
    "per_slice",
]
