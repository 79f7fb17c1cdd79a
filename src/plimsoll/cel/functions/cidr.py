"""Networks in CIDR notation; host bits are allowed and kept."""

from __future__ import annotations

from plimsoll.cel.functions import ip
from plimsoll.cel.functions.registry import ADDRESS, NETWORK, STRING, Function, Overload, function
from plimsoll.cel.values import CIDR, IP
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


def _prefix_bits(number: int, bits: int, prefix: int) -> int:
    return number >> (bits - prefix)


def contains_ip(network: CIDR, address: IP) -> bool:
    if network.bits != address.bits:
        return False
    return _prefix_bits(network.number, network.bits, network.prefix) == _prefix_bits(
        address.number, address.bits, network.prefix
    )


def contains_cidr(network: CIDR, other: CIDR) -> bool:
    return network.prefix <= other.prefix and contains_ip(network, IP(other.number, other.bits))


def masked(network: CIDR) -> CIDR:
    host = network.bits - network.prefix
    return CIDR(network.number >> host << host, network.bits, network.prefix)


def text_of(network: CIDR) -> str:
    return f"{ip.text_of(IP(network.number, network.bits))}/{network.prefix}"


FUNCTIONS: tuple[Function, ...] = (
    function("cidr", Overload("string_to_cidr", (STRING,), parse)),
    function(
        "containsIP",
        Overload(
            "cidr_contains_ip_string",
            (NETWORK, STRING),
            lambda network, text: contains_ip(network, ip.parse(text)),
        ),
        Overload("cidr_contains_ip_ip", (NETWORK, ADDRESS), contains_ip),
    ),
    function(
        "containsCIDR",
        Overload(
            "cidr_contains_cidr_string",
            (NETWORK, STRING),
            lambda network, text: contains_cidr(network, parse(text)),
        ),
        Overload("cidr_contains_cidr", (NETWORK, NETWORK), contains_cidr),
    ),
    function("ip", Overload("cidr_ip", (NETWORK,), lambda network: IP(network.number, network.bits))),
    function("prefixLength", Overload("cidr_prefix_length", (NETWORK,), lambda network: network.prefix)),
    function("masked", Overload("cidr_masked", (NETWORK,), masked)),
    function("isCIDR", Overload("is_cidr", (STRING,), lambda text: _read(text) is not None)),
    function("string", Overload("cidr_to_string", (NETWORK,), text_of)),
)
