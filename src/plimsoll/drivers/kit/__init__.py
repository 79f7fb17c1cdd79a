"""What a driver is made of: subclass `Driver`, give it to a `Station`.

`Station` publishes the driver's devices, registers it with the kubelet or node agent, answers their calls and
keeps what must survive a restart. Start at `station.py`; `docs/drivers.md` has an example.
"""

from plimsoll.drivers.kit.calls import Call
from plimsoll.drivers.kit.command import run_driver
from plimsoll.drivers.kit.driver import (
    AllocatedClaim,
    DeviceCondition,
    DeviceHealth,
    DeviceReport,
    Driver,
    Handed,
    Health,
    Pool,
    Prepared,
    Refusal,
)
from plimsoll.drivers.kit.station import CDI_FOLDER, KUBELET_ROOT, Station, StationMetrics
from plimsoll.wire.dra import ClaimRef, PreparedDevice

__all__ = [
    "CDI_FOLDER",
    "KUBELET_ROOT",
    "AllocatedClaim",
    "Call",
    "ClaimRef",
    "DeviceCondition",
    "DeviceHealth",
    "DeviceReport",
    "Driver",
    "Handed",
    "Health",
    "Pool",
    "Prepared",
    "PreparedDevice",
    "Refusal",
    "Station",
    "StationMetrics",
    "run_driver",
]
