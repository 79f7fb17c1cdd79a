"""Names of CDI devices: `vendor/class=device`.

Owns the grammar of the three parts and of environment entries. Everything here is a function of texts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_LETTER_FIRST = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?", re.ASCII)
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)


class QualifiedName(NamedTuple):
    """A device of a vendor's class."""

    vendor: str
    cls: str
    device: str

    @property
    def kind(self) -> str:
        return f"{self.vendor}/{self.cls}"

    def __str__(self) -> str:
        return f"{self.vendor}/{self.cls}={self.device}"


def parse_name(text: str) -> QualifiedName | None:
    """A qualified name, or None if the text is none."""
    kind, equals, device = text.partition("=")
    parts = split_kind(kind)
    if not equals or parts is None or check_device(device):
        return None
    return QualifiedName(*parts, device)


def split_kind(kind: str) -> tuple[str, str] | None:
    """Vendor and class of a kind, or None if it is none."""
    vendor, slash, cls = kind.partition("/")
    if not slash or not _LETTER_FIRST.fullmatch(vendor) or not _LETTER_FIRST.fullmatch(cls):
        return None
    return vendor, cls


def check_kind(kind: str) -> str:
    """What is wrong with a kind, or nothing."""
    vendor, slash, cls = kind.partition("/")
    if not slash:
        return f"{kind!r} is no kind: write vendor/class"
    for what, name in (("vendor", vendor), ("class", cls)):
        if not _LETTER_FIRST.fullmatch(name):
            return (
                f"{name!r} is no {what}: start with a letter, end with a letter or digit, "
                "with letters, digits, '_', '-' and '.' between"
            )
    return ""


def check_device(name: str) -> str:
    """What is wrong with a device's name, or nothing."""
    if _DEVICE.fullmatch(name):
        return ""
    return (
        f"{name!r} is no name of a device: start and end with a letter or digit, "
        "with letters, digits, '_', '-', '.' and ':' between"
    )


def check_env(entry: str) -> str:
    """What is wrong with an environment entry, or nothing."""
    if entry.find("=") <= 0:
        return f"invalid environment variable {entry!r}: write NAME=VALUE"
    if "\0" in entry:
        return f"invalid environment variable {entry!r}: it holds a zero byte"
    return ""
