"""Formats of names and other short strings (docs/spec/api.md, "Names and formats").

Complements `api.names` and turns format violations into field errors. Lengths are in bytes. All checks are
linear in the length of the string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_interface
from typing import TypeAlias

from plimsoll.api.names import (
    SUBDOMAIN_MAX,
    byte_length,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
)
from plimsoll.apiserver.validation.field_errors import (
    NO_ERRORS,
    FieldError,
    FieldErrors,
    FieldPath,
    invalid,
    required,
    too_long,
)

Format: TypeAlias = Callable[[str], list[str]]

DRIVER_NAME_MAX = 63
IDENTIFIER_MAX = 32
POOL_NAME_MAX = 253
ATTRIBUTE_VALUE_MAX = 64

_CACHED_LENGTH_MAX = 320  # prefix, slash and name

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_VERSION_NUMBER = re.compile(r"0|[1-9][0-9]*")
_VERSION_WORD = re.compile(r"[0-9A-Za-z-]+")
_PREFIX_LENGTH = re.compile(r"0|[1-9][0-9]{0,2}")
_LONGEST_ADDRESS = 64
_NOWHERE = FieldPath("")


# -- formats


def condition_reason(text: str) -> list[str]:
    if _REASON.fullmatch(text):
        return []
    return ["must start with a letter, go on with letters, digits and '_,:', and not end with ',' or ':'"]


def canonical_uuid(text: str) -> list[str]:
    """Return the violation if a string is not a UUID in canonical form."""
    if _UUID.fullmatch(text):
        return []
    return ["must be a UUID in lower case: 8, 4, 4, 4 and 12 hexadecimal digits joined with '-'"]


def semantic_version(text: str) -> list[str]:
    """Return the violation if a string is not a strict semver 2.0.0 (no `v`; optional pre-release and
    build).
    """
    rest, plus, build = text.partition("+")
    core, dash, release = rest.partition("-")
    numbers = core.split(".")
    fine = (
        len(numbers) == 3
        and all(_VERSION_NUMBER.fullmatch(number) for number in numbers)
        and (not dash or all(_is_release_word(word) for word in release.split(".")))
        and (not plus or all(_VERSION_WORD.fullmatch(word) for word in build.split(".")))
    )
    return [] if fine else ["must be a semantic version 2.0.0 such as 1.2.3 or 1.2.3-rc.1+build"]


def _is_release_word(word: str) -> bool:
    if not _VERSION_WORD.fullmatch(word):
        return False
    return not word.isdecimal() or bool(_VERSION_NUMBER.fullmatch(word))


def interface_address(text: str) -> list[str]:
    """Return the violation if a string is not an IP address with prefix length in canonical form; host
    bits may be set.
    """
    message = ["must be an IP address and prefix length in canonical form, such as 10.9.8.7/24 or fd00::1/64"]
    address, slash, length = text.partition("/")
    if len(text) > _LONGEST_ADDRESS or not slash or not _PREFIX_LENGTH.fullmatch(length) or "%" in address:
        return message
    try:
        parsed = ip_interface(text)
    except ValueError:
        return message
    ip = parsed.ip
    mapped = isinstance(ip, IPv6Address) and ip.ipv4_mapped is not None
    return message if mapped or str(ip) != address else []


_PORT_NAME = re.compile(r"[-a-z0-9]+")
_LETTER = re.compile(r"[a-z]")
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_UNDERSCORE_PART = re.compile(r"_?[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?")
_SYSCTL_PART = re.compile(r"[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?")
_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
PORT_NAME_MAX = 15


def port_name(text: str) -> list[str]:
    found = [f"must be no more than {PORT_NAME_MAX} characters"] if byte_length(text) > PORT_NAME_MAX else []
    if not _PORT_NAME.fullmatch(text):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _LETTER.search(text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found


def port_number(port: int) -> list[str]:
    return [] if 1 <= port <= 65535 else ["must be between 1 and 65535, inclusive"]


def variable_name(text: str) -> list[str]:
    """Return the violation if a string is not an environment variable name: printable ASCII except `=`."""
    if not text:
        return ["environment variable name must be non-empty"]
    if text.isascii() and text.isprintable() and "=" not in text:
        return []
    return ["must consist only of printable ASCII characters other than '='"]


def data_key(text: str) -> list[str]:
    """Return the violations of a key of a ConfigMap or Secret."""
    found = [f"must be no more than {SUBDOMAIN_MAX} characters"] if byte_length(text) > SUBDOMAIN_MAX else []
    if not _KEY.fullmatch(text):
        found.append("must be letters, digits, '-', '_' and '.'")
    if text.startswith(".."):
        found.append("must not start with '..'" if text != ".." else "must not be '..'")
    elif text == ".":
        found.append("must not be '.'")
    return found


def header_name(text: str) -> list[str]:
    return [] if _HEADER.fullmatch(text) else ["must be letters, digits and '-', such as X-Header-Name"]


def search_domain(text: str) -> list[str]:
    """Return the violations of a DNS search domain: a subdomain that may contain `_`."""
    found = [f"must be no more than {SUBDOMAIN_MAX} characters"] if byte_length(text) > SUBDOMAIN_MAX else []
    if not all(_UNDERSCORE_PART.fullmatch(part) for part in text.split(".")):
        found.append("must be lower case letters, digits, '-', '_' and '.', such as example.com")
    return found


def sysctl_name(text: str) -> list[str]:
    if byte_length(text) <= SUBDOMAIN_MAX and all(
        _SYSCTL_PART.fullmatch(part) for part in text.replace("/", ".").split(".")
    ):
        return []
    return [f"must have at most {SUBDOMAIN_MAX} characters: words joined with '.' or '/'"]


def decimal_integer(text: str) -> list[str]:
    """Return the violation if a string is not a decimal integer in canonical form."""
    if not _INTEGER.fullmatch(text):
        return ["must be a valid decimal integer in canonical form"]
    return []


# -- resource names


def is_node_allocatable(name: str) -> bool:
    """Report whether a resource belongs to the node itself: unqualified, or in `kubernetes.io/`."""
    return "/" not in name or "kubernetes.io/" in name


def is_extended_resource(name: str) -> bool:
    """Report whether a name is an extended resource such as `example.com/gpu` that is also valid in a
    quota.
    """
    if is_node_allocatable(name) or name.startswith("requests."):
        return False
    return not label_key(f"requests.{name}")


# -- validation of one field


def path_segment(text: str) -> list[str]:
    """Return the violations of a name that only has to be valid as a URL path segment."""
    if text in (".", ".."):
        return [f"may not be '{text}'"]
    return [f"may not contain '{letter}'" for letter in "/%" if letter in text]


def validate_format(text: str, path: FieldPath, format: Format) -> FieldErrors:
    for message in format(text):
        yield invalid(path, text, message)


def validate_label(text: str, path: FieldPath) -> Iterable[FieldError]:
    return NO_ERRORS if _is_label(text) else validate_format(text, path, dns_label)


def validate_subdomain(text: str, path: FieldPath) -> Iterable[FieldError]:
    return NO_ERRORS if _is_subdomain(text) else validate_format(text, path, dns_subdomain)


def validate_label_key(text: str, path: FieldPath) -> Iterable[FieldError]:
    return NO_ERRORS if _is_label_key(text) else validate_format(text, path, label_key)


def validate_label_value(text: str, path: FieldPath) -> Iterable[FieldError]:
    return NO_ERRORS if _is_label_value(text) else validate_format(text, path, label_value)


def _cached_format(format: Format) -> Callable[[str], bool]:
    """Return a cached predicate for a format, as names repeat often. Long strings are not cached."""
    known = lru_cache(maxsize=8192)(lambda text: not format(text))
    return lambda text: len(text) <= _CACHED_LENGTH_MAX and known(text)


_is_label, _is_subdomain, _is_label_key, _is_label_value = map(
    _cached_format, (dns_label, dns_subdomain, label_key, label_value)
)


def validate_driver(name: str, path: FieldPath) -> FieldErrors:
    """Validate a driver name: a subdomain of at most 63 bytes; upper case is accepted."""
    if not name:
        yield required(path, "must be the name of a driver, such as gpu.example.com")
        return
    if byte_length(name) > DRIVER_NAME_MAX:
        yield too_long(path, DRIVER_NAME_MAX)
    for message in dns_subdomain(name.lower()):
        yield invalid(path, name, message)


def validate_pool(name: str, path: FieldPath) -> FieldErrors:
    """Validate a pool name: subdomains separated by slashes."""
    if not name:
        yield required(path, "must be the name of a pool")
        return
    if byte_length(name) > POOL_NAME_MAX:
        yield too_long(path, POOL_NAME_MAX)
    # A name within the limit never has more parts than bytes, which bounds the work for a hostile one.
    for part in name.split("/", POOL_NAME_MAX)[:POOL_NAME_MAX]:
        for message in dns_subdomain(part):
            yield invalid(path, name, f"each part between slashes {message}")


def validate_qualified_name(name: str, path: FieldPath) -> Iterable[FieldError]:
    """Validate the name of an attribute or capacity: `identifier` or `domain/identifier`.

    Names with two or more slashes are not checked, as in Kubernetes 1.36.
    """
    return NO_ERRORS if _is_qualified_name(name) else _validate_qualified_name(name, path)


@lru_cache(maxsize=4096)
def _is_qualified_name(name: str) -> bool:
    """Report whether a name is valid; cached, because the devices of a slice share few names."""
    return not any(True for _ in _validate_qualified_name(name, _NOWHERE))


def _validate_qualified_name(name: str, path: FieldPath) -> FieldErrors:
    parts = name.split("/")
    if len(parts) > 2:
        return
    if len(parts) == 2:
        if parts[0]:
            yield from validate_driver(parts[0], path)
        else:
            yield invalid(path, name, "must have a domain before the '/'")
        if not parts[1]:
            yield invalid(path, name, "must have an identifier after the '/'")
            return
    yield from _validate_identifier(parts[-1], path)


def validate_fully_qualified_name(name: str, path: FieldPath) -> FieldErrors:
    yield from validate_qualified_name(name, path)
    if "/" not in name:
        yield invalid(path, name, "must name the domain too: domain/identifier")


def _validate_identifier(text: str, path: FieldPath) -> FieldErrors:
    if byte_length(text) > IDENTIFIER_MAX:
        yield too_long(path, IDENTIFIER_MAX)
    if not _IDENTIFIER.fullmatch(text):
        yield invalid(path, text, "must be an identifier: letters, digits and '_', no digit first")
