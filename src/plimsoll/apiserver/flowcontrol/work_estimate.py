"""Estimate of the seats that a request takes: more than one for lists, and for watches that begin with one.

DIFF: upstream also holds seats for some milliseconds after a write to resources with many watches; here all
watches of a resource share the encoded event (test_writes_take_one_seat).
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.flowcontrol.configuration import PriorityLevel
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.storage import Store

_BYTES_PER_SEAT = 100_000
#: Lists are sent in chunks from memory, so that they take no more at once.
_MAX_BYTES = 1_000_000
_MAX_SEATS = 100
_INITIAL_VERSIONS = ("", "0")
_TRUE = ("true", "True", "TRUE", "t", "T", "1")


def max_seats(level: PriorityLevel, nominal: int) -> int:
    """Return the most seats of one request: 15% of a level, and not more than the share of one queue."""
    if not level.queues:
        return _MAX_SEATS
    return min(max(1, min(-(-nominal * 15 // 100), nominal // level.hand_size)), _MAX_SEATS)


def estimate_seats(info: RequestInfo | None, query: Mapping[str, str], store: Store, most: int) -> int:
    """Return the seats of a request, by the size of the objects that it lists."""
    if info is None or not _lists(info, query) or _names_one(info, query):
        return 1
    count, size = store.resource_size(info.resource.storage_key)
    limit = query.get("limit", "")
    if limit.isdecimal() and 0 < int(limit[:10]) < count:
        size = size * int(limit[:10]) // count
    return min(max(1, -(-min(size, _MAX_BYTES) // _BYTES_PER_SEAT)), most)


def _lists(info: RequestInfo, query: Mapping[str, str]) -> bool:
    if info.verb != "watch":
        return info.verb == "list"
    initial = query.get("sendInitialEvents", "")
    return initial in _TRUE or query.get("resourceVersion", "") in _INITIAL_VERSIONS


def _names_one(info: RequestInfo, query: Mapping[str, str]) -> bool:
    return bool(info.name) or "metadata.name=" in query.get("fieldSelector", "")
