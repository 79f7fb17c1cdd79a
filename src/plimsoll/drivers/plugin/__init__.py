"""Framework for DRA drivers: subclass `Driver` and pass it to a `PluginServer`.

`PluginServer` publishes the driver's devices, registers it with the kubelet or node agent, answers their
calls and keeps the state that survives a restart. Start at `plugin_server.py`; `docs/drivers.md` has an
example.
"""

from plimsoll.drivers.plugin.claim_handler import ClaimCall
from plimsoll.drivers.plugin.command import run_driver
from plimsoll.drivers.plugin.driver import (
    AllocatedClaim,
    ClaimError,
    DeviceCondition,
    DeviceHealth,
    DevicePool,
    DeviceStatus,
    Driver,
    Health,
    InjectedDevice,
    PluginNotifier,
    Prepared,
)
from plimsoll.drivers.plugin.plugin_server import CDI_DIR, KUBELET_ROOT, PluginServer, PluginServerMetrics
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

__all__ = [
    "CDI_DIR",
    "KUBELET_ROOT",
    "AllocatedClaim",
    "ClaimCall",
    "ClaimError",
    "ClaimRef",
    "DeviceCondition",
    "DeviceHealth",
    "DevicePool",
    "DeviceStatus",
    "Driver",
    "Health",
    "InjectedDevice",
    "PluginNotifier",
    "PluginServer",
    "PluginServerMetrics",
    "Prepared",
    "PreparedDevice",
    "run_driver",
]
