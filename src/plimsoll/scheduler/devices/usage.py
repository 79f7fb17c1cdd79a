"""Usage of devices by claims, and by pods that may hold them through a device plugin."""

from __future__ import annotations

from plimsoll.allocator.devices.node_devices import NodeDevices
from plimsoll.allocator.devices.usage import DeviceUsage
from plimsoll.scheduler.filters.mixed_advertisers import held_by_plugins
from plimsoll.scheduler.profile import MixedAdvertisers
from plimsoll.scheduler.snapshot.snapshot import Snapshot


def read_usage(
    snapshot: Snapshot, devices: NodeDevices, rule: MixedAdvertisers = MixedAdvertisers.REFUSE
) -> DeviceUsage:
    """Return the usage of the devices of a node or of a pool."""
    resources: dict[tuple[str, str], str] = {}
    if rule is MixedAdvertisers.REFUSE:
        views = (view for pool in devices.pools for view in pool.slices)
        for name in {view.slice.spec.node_name for view in views} - {None}:
            row = snapshot.row_of(name or "")
            if row is not None:
                resources |= held_by_plugins(snapshot, row)
    return DeviceUsage(devices, snapshot.state, resources)
