"""Devices and books as one question: of one node (`exact`), of many (`filter`), and remembered (`memory`)."""

from plimsoll.schedule.devices.chargers import charges_node
from plimsoll.schedule.devices.exact import (
    BEST,
    NO_CLAIMS,
    Fit,
    NewId,
    is_usable_on,
    judge_devices,
    try_place,
)
from plimsoll.schedule.devices.filter import DevicesFilter
from plimsoll.schedule.devices.memory import Memory, Shape

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
