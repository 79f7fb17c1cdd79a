"""IP addresses in CEL: no zones, no IPv4-mapped IPv6, no leading zeros in IPv4."""

from __future__ import annotations

import ipaddress

from plimsoll.api.go_text import quote_go
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


def read_address(text: str) -> tuple[IP, str] | None:
    """Parse an address and its zone as Go's netip does; None if it is invalid."""
    body, percent, zone = text.partition("%")
    if percent and (not zone or ":" not in body):
        return None
    try:
        address = ipaddress.ip_address(body)
    except ValueError:
        return None
    return IP(int(address), address.max_prefixlen), zone


def is_mapped(address: IP) -> bool:
    return address.bits == 128 and address.number >> 32 == 0xFFFF


def parse(text: str) -> IP:
    found = read_address(text)
    if found is None:
        quoted = quote_go(text[:80])
        raise CelRuntimeError(
            f"IP Address {quoted} parse error during conversion from string: "
            f"ParseAddr({quoted}): unable to parse IP"
        )
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


def format_ip(address: IP) -> str:
    """Return the canonical text."""
    if address.bits == 32:
        return str(ipaddress.IPv4Address(address.number))
    return str(ipaddress.IPv6Address(address.number))


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
        call=lambda text: format_ip(parse(text)) == text,
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
    function("string", "ip_to_string (IP) -> string", call=format_ip),
)
