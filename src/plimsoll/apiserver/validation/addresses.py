"""IP address and CIDR validation, as strict as in Kubernetes 1.36.

Rejects leading zeros, IPv4-mapped IPv6 addresses, zones, and CIDRs with bits set beyond the prefix length.
Non-canonical spellings are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrors, FieldPath, invalid

_LONGEST = 64
_ZEROS = re.compile(r"(?<![0-9a-fA-F:])0+(?=[0-9])")
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


@lru_cache(maxsize=4096)
def parse_address(text: str) -> str | None:
    """Return the canonical form of an address that may have leading zeros, or None if it is not an
    address.
    """
    if len(text) > _LONGEST or "%" in text:
        return None
    try:
        return str(ip_address(_ZEROS.sub("", text) if ":" not in text else text))
    except ValueError:
        return None


def validate_address(text: str, path: FieldPath) -> FieldErrors:
    if parse_address(text) is None:
        yield invalid(path, text, _NO_ADDRESS)
        return
    try:
        address = ip_address(text)
    except ValueError:
        yield invalid(path, text, "must not have leading 0s")
        return
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        yield invalid(path, text, "must not be an IPv4-mapped IPv6 address")


def parse_network(text: str) -> IPv4Network | IPv6Network | None:
    """Parse a CIDR as leniently as older servers: leading zeros and bits beyond the prefix are ignored."""
    address, slash, length = text.partition("/")
    if len(text) > _LONGEST or not slash or "%" in address or not (length.isascii() and length.isdigit()):
        return None
    try:
        return ip_network(f"{parse_address(address)}/{int(length)}", strict=False)
    except ValueError:
        return None


def validate_network(text: str, path: FieldPath) -> FieldErrors:
    found = parse_network(text)
    if found is None:
        yield invalid(path, text, _NO_NETWORK)
    else:
        error = _find_format_error(text, path)
        if error is not None:
            yield error


def _find_format_error(text: str, path: FieldPath) -> FieldError | None:
    address, _, length = text.partition("/")
    try:
        ip = ip_address(address)
    except ValueError:
        ip = None
    if ip is None or length != str(int(length)):
        return invalid(path, text, "must not have leading 0s in IP or prefix length")
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None:
        return invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    try:
        ip_network(text)
    except ValueError:
        return invalid(path, text, "must not have bits set beyond the prefix length")
    return None


# -- warnings: accepted spellings that are not canonical


def find_address_warning(text: str, path: str) -> Iterator[str]:
    canonical = parse_address(text)
    if canonical is not None and ":" in canonical and canonical != text:
        yield f'{path}: IPv6 address "{text}" should be in RFC 5952 canonical format ("{canonical}")'
    elif canonical is not None and canonical != text:
        yield f'{path}: non-standard IP address "{text}" is invalid: use "{canonical}"'


def find_network_warning(text: str, path: str) -> Iterator[str]:
    network = parse_network(text)
    if network is None:
        return
    address, _, length = text.partition("/")
    ip = parse_address(address)
    if ip != str(network.network_address):
        single = f"{ip}/{network.max_prefixlen}"
        meant = f'(should be "{network}" or "{single}"?)'
        yield f'{path}: CIDR value "{text}" is ambiguous in this context {meant}'
    elif ":" in text and str(network) != text:
        yield f'{path}: IPv6 CIDR value "{text}" should be in RFC 5952 canonical format ("{network}")'
    if ":" not in text and (ip != address or length != str(network.prefixlen)):
        yield f'{path}: non-standard CIDR value "{text}" is invalid: use "{network}"'
