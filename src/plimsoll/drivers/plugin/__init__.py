"""Framework for DRA drivers: subclass `Driver` and pass it to a `PluginServer`.

`PluginServer` publishes the driver's devices, registers it with the kubelet or node agent, answers their
calls and keeps the state that survives a restart. Start at `plugin_server.py`; `docs/drivers.md` has an
example.
"""

from plimsoll.drivers.plugin.calls import Call
from plimsoll.drivers.plugin.command import run_driver
from plimsoll.drivers.plugin.driver import (
    AllocatedClaim,
    DeviceCondition,
    DeviceHealth,
    DeviceReport,
    Driver,
    Health,
    InjectedDevice,
    PluginNotifier,
    Pool,
    Prepared,
    Refusal,
)
from plimsoll.drivers.plugin.plugin_server import CDI_FOLDER, KUBELET_ROOT, PluginServer, PluginServerMetrics
from plimsoll.protocols.dra import ClaimRef, PreparedDevice

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
    "Health",
    "InjectedDevice",
    "PluginNotifier",
    "PluginServer",
    "PluginServerMetrics",
    "Pool",
    "Prepared",
    "PreparedDevice",
    "Refusal",
    "run_driver",
]
