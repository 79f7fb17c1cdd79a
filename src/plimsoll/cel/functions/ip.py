"""IP addresses in CEL: no zones, no IPv4-mapped IPv6, no leading zeros in IPv4."""

from __future__ import annotations

from plimsoll.cel.overloads.costs import (
    PARSING,
    STRING_FACTOR,
    CallCost,
    CallEstimate,
    Nodes,
    measure_text_twice,
)
from plimsoll.cel.overloads.overload import Function, function
from plimsoll.cel.values import IP
from plimsoll.errors import CelRuntimeError

_HEX = frozenset("0123456789abcdefABCDEF")


def read_address(text: str) -> tuple[IP, str] | None:
    """Parse an address and its zone as Go's netip does; None if it is invalid."""
    if len(text) > 256:
        return None
    for char in text:
        if char == ".":
            number = _read_v4(text)
            return None if number is None else (IP(number, 32), "")
        if char == ":":
            body, percent, zone = text.partition("%")
            if percent and not zone:
                return None
            number = _read_v6(body)
            return None if number is None else (IP(number, 128), zone)
        if char == "%":
            return None
    return None


def _read_v4(text: str) -> int | None:
    fields = text.split(".")
    if len(fields) != 4:
        return None
    number = 0
    for part in fields:
        if not 1 <= len(part) <= 3 or not part.isascii() or not part.isdigit():
            return None
        if int(part) > 255 or (len(part) > 1 and part[0] == "0"):
            return None
        number = number << 8 | int(part)
    return number


def _read_v6(text: str) -> int | None:
    head, gap, tail = text.partition("::")
    if gap and ("::" in tail or tail.startswith(":")):
        return None
    front = _read_groups(head, last=not gap)
    back = _read_groups(tail, last=True)
    if front is None or back is None:
        return None
    zeros = 8 - len(front) - len(back)
    if zeros < 1 if gap else zeros != 0:
        return None
    number = 0
    for group in front + [0] * zeros + back:
        number = number << 16 | group
    return number


def _read_groups(text: str, last: bool) -> list[int] | None:
    """Parse the groups between colons; an IPv4 address may replace the last two."""
    if not text:
        return []
    groups: list[int] = []
    fields = text.split(":")
    for index, part in enumerate(fields):
        if "." in part:
            number = _read_v4(part) if last and index == len(fields) - 1 else None
            if number is None:
                return None
            groups += [number >> 16, number & 0xFFFF]
        elif 1 <= len(part) <= 4 and _HEX.issuperset(part):
            groups.append(int(part, 16))
        else:
            return None
    return groups


def is_mapped(address: IP) -> bool:
    return address.bits == 128 and address.number >> 32 == 0xFFFF


def parse(text: str) -> IP:
    found = read_address(text)
    if found is None:
        raise CelRuntimeError(f"IP Address {text[:80]!r} parse error during conversion from string")
    address, zone = found
    if zone:
        raise CelRuntimeError(f"IP address {text[:80]!r} with zone value is not allowed")
    if is_mapped(address):
        raise CelRuntimeError(f"IPv4-mapped IPv6 address {text[:80]!r} is not allowed")
    return address


def is_ip(text: str) -> bool:
    try:
        parse(text)
    except CelRuntimeError:
        return False
    return True


def text_of(address: IP) -> str:
    """Return the canonical text."""
    number = address.number
    if address.bits == 32:
        return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))
    groups = [number >> shift & 0xFFFF for shift in range(112, -1, -16)]
    start, length = _longest_zeros(groups)
    if length < 2:
        return ":".join(f"{group:x}" for group in groups)
    head = ":".join(f"{group:x}" for group in groups[:start])
    tail = ":".join(f"{group:x}" for group in groups[start + length :])
    return f"{head}::{tail}"


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    best = (0, 0)
    start = 0
    while start < 8:
        end = start
        while end < 8 and groups[end] == 0:
            end += 1
        if end - start > best[1]:
            best = (start, end - start)
        start = max(end, start + 1)
    return best


def is_loopback(address: IP) -> bool:
    return address.number >> 24 == 127 if address.bits == 32 else address.number == 1


def is_multicast(address: IP) -> bool:
    return address.number >> 28 == 0xE if address.bits == 32 else address.number >> 120 == 0xFF


def is_link_local_multicast(address: IP) -> bool:
    if address.bits == 32:
        return address.number >> 8 == 0xE00000
    return address.number >> 112 & 0xFF0F == 0xFF02


def is_link_local_unicast(address: IP) -> bool:
    if address.bits == 32:
        return address.number >> 16 == 0xA9FE
    return address.number >> 112 & 0xFFC0 == 0xFE80


def is_global_unicast(address: IP) -> bool:
    if address.number == 0 or (address.bits == 32 and address.number == 0xFFFFFFFF):
        return False
    return not (is_loopback(address) or is_multicast(address) or is_link_local_unicast(address))


def _parse_twice(args: Nodes) -> CallEstimate:
    return CallEstimate(args[0].some_size.scaled(2 * STRING_FACTOR))


FUNCTIONS: tuple[Function, ...] = (
    function("ip", "string_to_ip (string) -> IP", call=parse, cost=PARSING),
    function("family", "ip_family IP.() -> int", call=lambda address: 4 if address.bits == 32 else 6),
    function(
        "ip.isCanonical",
        "ip_is_canonical (string) -> bool",
        call=lambda text: text_of(parse(text)) == text,
        cost=CallCost(measure=measure_text_twice, estimator=_parse_twice),
    ),
    function("isUnspecified", "ip_is_unspecified IP.() -> bool", call=lambda address: address.number == 0),
    function("isLoopback", "ip_is_loopback IP.() -> bool", call=is_loopback),
    function(
        "isLinkLocalMulticast", "ip_is_link_local_multicast IP.() -> bool", call=is_link_local_multicast
    ),
    function("isLinkLocalUnicast", "ip_is_link_local_unicast IP.() -> bool", call=is_link_local_unicast),
    function("isGlobalUnicast", "ip_is_global_unicast IP.() -> bool", call=is_global_unicast),
    function("isIP", "is_ip (string) -> bool", call=is_ip, cost=PARSING),
    function("string", "ip_to_string (IP) -> string", call=text_of),
)
