"""Formats of Kubernetes names: DNS labels and subdomains, label keys and values.

A format is a function from a text to its errors, because one name can violate several rules. Lengths are in
bytes; all checks are linear. Used by validation and by the `format` library of CEL selectors.
"""

from __future__ import annotations

import re

LABEL_MAX = 63
SUBDOMAIN_MAX = 253

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_LABEL_KEY_NAME = re.compile(r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_LABEL_RULE = "must be lower case letters, digits and '-', with a letter or digit at both ends"
_KEY_RULE = "must be letters, digits, '-', '_' and '.', with a letter or digit at both ends"


def byte_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def dns_label(text: str) -> list[str]:
    """Check a DNS label: `gpu-0`."""
    found = [f"must be at most {LABEL_MAX} bytes long"] if byte_length(text) > LABEL_MAX else []
    if not _LABEL.fullmatch(text):
        found.append("must not contain dots" if _is_subdomain(text) else _LABEL_RULE)
    return found


def dns_subdomain(text: str) -> list[str]:
    """Check a DNS subdomain, labels joined with dots: `gpu.example.com`."""
    found = [f"must be at most {SUBDOMAIN_MAX} bytes long"] if byte_length(text) > SUBDOMAIN_MAX else []
    if not _is_subdomain(text):
        found.append(f"{_LABEL_RULE}, or several such parts joined with '.'")
    return found


def _is_subdomain(text: str) -> bool:
    return all(_LABEL.fullmatch(part) for part in text.split("."))


def label_key(text: str) -> list[str]:
    """Check a label key, also used for taints, conditions and resource names: `[prefix/]name`."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return [f"must be a name or prefix/name with a single '/'; the name {_KEY_RULE}"]
    found = []
    if slash and not prefix:
        found.append("must have a prefix before the '/'")
    elif slash:
        found.extend(f"the prefix {complaint}" for complaint in dns_subdomain(prefix))
    if not name:
        found.append("must have a name")
    elif byte_length(name) > LABEL_MAX:
        found.append(f"the name must be at most {LABEL_MAX} bytes long")
    if not _LABEL_KEY_NAME.fullmatch(name):
        found.append(f"the name {_KEY_RULE}")
    return found


def label_value(text: str) -> list[str]:
    """Check a label value: empty, or like the name of a label key."""
    found = [f"must be at most {LABEL_MAX} bytes long"] if byte_length(text) > LABEL_MAX else []
    if text and not _LABEL_KEY_NAME.fullmatch(text):
        found.append(f"must be empty, or {_KEY_RULE}")
    return found
