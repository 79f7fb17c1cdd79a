"""Devices and books as one question: of one node (`exact`), of many (`filter`), and remembered (`memory`)."""

from plimsoll.scheduler.devices.charging_nodes import charges_node
from plimsoll.scheduler.devices.exact import (
    BEST,
    NO_CLAIMS,
    Fit,
    NewId,
    is_usable_on,
    judge_devices,
    try_place,
)
from plimsoll.scheduler.devices.filter import DevicesFilter
from plimsoll.scheduler.devices.search_cache import Memory, Shape

__all__ = [
    "BEST",
    "NO_CLAIMS",
    "DevicesFilter",
    "Fit",
    "Memory",
    "NewId",
    "Shape",
    "charges_node",
    "is_usable_on",
    "judge_devices",
    "try_place",
]
