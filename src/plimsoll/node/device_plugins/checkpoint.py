"""Checkpoint of device plugins: the devices of containers, and the devices that plugins offered last.

Containers keep their devices across a restart of the agent, with what the plugin injected: a restarted
container gets the same, and the plugin is not asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from plimsoll.node.device_plugins.devices import PluginDeviceAllocation

KIND = "device-plugins"


class DeviceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the checkpoint: allocations by pod UID and container, and device IDs by resource."""

    pods: dict[str, dict[str, tuple[PluginDeviceAllocation, ...]]] = {}
    devices: dict[str, tuple[str, ...]] = {}


def write_record(
    pods: Mapping[str, Mapping[str, tuple[PluginDeviceAllocation, ...]]],
    devices: Mapping[str, tuple[str, ...]],
) -> Any:
    """Return the body of the checkpoint."""
    record = DeviceRecord(pods={uid: dict(each) for uid, each in pods.items()}, devices=dict(devices))
    return msgspec.to_builtins(record)


def read_record(body: Any) -> DeviceRecord:
    """Read the body of the checkpoint; raises ValueError if it is none."""
    return msgspec.convert(body, DeviceRecord) if body is not None else DeviceRecord()
