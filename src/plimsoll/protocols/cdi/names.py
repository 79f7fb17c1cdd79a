"""Qualified names of CDI devices: `vendor/class=device`, and environment entries."""

from __future__ import annotations

import re
from typing import NamedTuple

_LETTER_FIRST = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)


class QualifiedName(NamedTuple):
    """Device of a vendor's class."""

    vendor: str
    cls: str
    device: str

    @property
    def kind(self) -> str:
        return f"{self.vendor}/{self.cls}"

    def __str__(self) -> str:
        return f"{self.vendor}/{self.cls}={self.device}"


def parse_name(text: str) -> QualifiedName | None:
    """Parse a qualified name; None if it is invalid."""
    kind, equals, device = text.partition("=")
    if not equals or check_kind(kind) or check_device(device):
        return None
    vendor, _, cls = kind.partition("/")
    return QualifiedName(vendor, cls, device)


def check_kind(kind: str) -> str:
    """Return the error of a kind, or ""."""
    vendor, slash, cls = kind.partition("/")
    if not slash:
        return f"{kind!r} is not a valid kind: write vendor/class"
    for what, name in (("vendor", vendor), ("class", cls)):
        if not _LETTER_FIRST.fullmatch(name):
            return (
                f"{name!r} is not a valid {what}: start with a letter, end with a letter or digit, "
                "with letters, digits, '_', '-' and '.' between"
            )
    return ""


def check_device(name: str) -> str:
    """Return the error of a device name, or ""."""
    if _DEVICE.fullmatch(name):
        return ""
    return (
        f"{name!r} is not a valid device name: start and end with a letter or digit, "
        "with letters, digits, '_', '-', '.' and ':' between"
    )


def check_env(entry: str) -> str:
    """Return the error of an environment entry, or ""."""
    if entry.find("=") <= 0:
        return f"invalid environment variable {entry!r}: write NAME=VALUE"
    if "\0" in entry:
        return f"invalid environment variable {entry!r}: it contains a zero byte"
    return ""
