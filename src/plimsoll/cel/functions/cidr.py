"""Networks in CIDR notation; host bits are allowed and kept."""

from __future__ import annotations

from math import ceil

from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions import ip
from plimsoll.cel.overloads.costs import PARSING, STRING_FACTOR, Args, CallCost, CallEstimate, Nodes
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.overloads.ranges import ONE, Range
from plimsoll.cel.values import CIDR, IP, Value, size_of
from plimsoll.errors import CelRuntimeError


def _read(text: str) -> CIDR | None:
    address_text, slash, length = text.rpartition("/")
    found = ip.read_address(address_text) if slash else None
    if found is None or found[1] or not length.isascii() or not length.isdigit() or len(length) > 3:
        return None
    address = found[0]
    if (len(length) > 1 and length[0] == "0") or int(length) > address.bits:
        return None
    return None if ip.is_mapped(address) else CIDR(address.number, address.bits, int(length))


def parse(text: str) -> CIDR:
    network = _read(text)
    if network is None:
        raise CelRuntimeError(f"network address parse error during conversion from string: {text[:80]!r}")
    return network


def contains_ip(network: CIDR, address: IP) -> bool:
    host = network.bits - network.prefix
    return network.bits == address.bits and network.number >> host == address.number >> host


def contains_cidr(network: CIDR, other: CIDR) -> bool:
    return network.prefix <= other.prefix and contains_ip(network, IP(other.number, other.bits))


def masked(network: CIDR) -> CIDR:
    host = network.bits - network.prefix
    return CIDR(network.number >> host << host, network.bits, network.prefix)


def format_cidr(network: CIDR) -> str:
    return f"{ip.format_ip(IP(network.number, network.bits))}/{network.prefix}"


# -- costs

_IP_BYTES = Range(4, 16)


def _containment(network: bool, parsed: bool) -> CallCost:
    """Return the cost of testing for an address or a network, which may have to be parsed first."""

    def measure(run: Meter, args: Args, result: Value) -> int:
        size = size_of(args[0])
        cost = ceil((size + size) * STRING_FACTOR) + (ceil(size * STRING_FACTOR) + 1 if network else 0)
        return cost + (ceil(size_of(args[1]) * STRING_FACTOR) if parsed else 0)

    def estimate(args: Nodes) -> CallEstimate:
        cost = _IP_BYTES.plus(_IP_BYTES).scaled(STRING_FACTOR)
        if network:
            cost = cost.plus(_IP_BYTES.scaled(STRING_FACTOR)).plus(ONE)
        if parsed:
            cost = cost.plus(args[1].some_size.scaled(STRING_FACTOR))
        return CallEstimate(cost)

    return CallCost(measure=measure, estimator=estimate)


FUNCTIONS: tuple[Function, ...] = (
    function("cidr", "string_to_cidr (string) -> CIDR", call=parse, cost=PARSING),
    function(
        "containsIP",
        overload(
            "cidr_contains_ip_string CIDR.(string) -> bool",
            lambda network, text: contains_ip(network, ip.parse(text)),
            cost=_containment(network=False, parsed=True),
        ),
        overload("cidr_contains_ip_ip CIDR.(IP) -> bool", contains_ip),
        cost=_containment(network=False, parsed=False),
    ),
    function(
        "containsCIDR",
        overload(
            "cidr_contains_cidr_string CIDR.(string) -> bool",
            lambda network, text: contains_cidr(network, parse(text)),
            cost=_containment(network=True, parsed=True),
        ),
        overload("cidr_contains_cidr CIDR.(CIDR) -> bool", contains_cidr),
        cost=_containment(network=True, parsed=False),
    ),
    function("ip", "cidr_ip CIDR.() -> IP", call=lambda network: IP(network.number, network.bits)),
    function("prefixLength", "cidr_prefix_length CIDR.() -> int", call=lambda network: network.prefix),
    function("masked", "cidr_masked CIDR.() -> CIDR", call=masked),
    function("isCIDR", "is_cidr (string) -> bool", call=lambda text: _read(text) is not None, cost=PARSING),
    function("string", "cidr_to_string (CIDR) -> string", call=format_cidr),
)
