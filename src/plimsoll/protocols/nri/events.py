"""Events that NRI plugins can subscribe to.

Since NRI 0.12 every event has its own call; earlier versions send most of them as StateChange.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from plimsoll.protocols.messages import nri

PLUGIN = nri.DESCRIPTOR.services_by_name["Plugin"]
RUNTIME = nri.DESCRIPTOR.services_by_name["Runtime"]


class NriEvent(IntEnum):
    """NRI event by its number; `method` is its call."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def method(self) -> str:
        """Name of its call: CreateContainer."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def bit(self) -> int:
        return 1 << (self - 1)

    @property
    def descriptor(self) -> MethodDescriptor:
        return PLUGIN.methods_by_name[self.method]

    @property
    def request(self) -> Any:
        """Type of its request."""
        return getattr(nri, f"{self.method}Request")

    @property
    def response(self) -> Any:
        return getattr(nri, f"{self.method}Response")


#: Mask of all events.
ALL_EVENTS = sum(event.bit for event in NriEvent)

#: Events with an empty response; sent as StateChange to peers that do not implement their calls.
NOTIFICATIONS = frozenset(
    {
        NriEvent.RUN_POD_SANDBOX,
        NriEvent.STOP_POD_SANDBOX,
        NriEvent.REMOVE_POD_SANDBOX,
        NriEvent.POST_CREATE_CONTAINER,
        NriEvent.START_CONTAINER,
        NriEvent.POST_START_CONTAINER,
        NriEvent.POST_UPDATE_CONTAINER,
        NriEvent.REMOVE_CONTAINER,
        NriEvent.POST_UPDATE_POD_SANDBOX,
    }
)


def mask_of(events: Iterable[NriEvent]) -> int:
    mask = 0
    for event in events:
        mask |= event.bit
    return mask
