"""Image references: detection of the `latest` tag and the default pull policy."""

from __future__ import annotations

import re
from functools import lru_cache

_LONGEST_NAME = 255
_LONGEST = 2048
_HEX_LENGTHS = {"sha256": 64, "sha384": 96, "sha512": 128}

_DOMAIN = re.compile(
    r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*"
    r"|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
)
_PART = re.compile(r"[a-z0-9]+(?:(?:__|[._]|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]+")
_IDENTIFIER = re.compile(r"[a-f0-9]{64}")


@lru_cache(maxsize=4096)
def is_latest(image: str) -> bool:
    """Report whether an image has the tag `latest` or neither tag nor digest; False for invalid
    references.
    """
    if len(image) > _LONGEST or _IDENTIFIER.fullmatch(image):
        return False
    name, at, digest = image.partition("@")
    if at and not _is_digest(digest):
        return False
    head, slash, rest = name.partition("/")
    if not slash:
        domain, path = "docker.io", f"library/{name}"
    elif head == "localhost" or any(letter in head for letter in ".:") or head.lower() != head:
        domain, path = head, rest
    else:
        domain, path = "docker.io", name
    path, colon, tag = path.partition(":")
    if not _DOMAIN.fullmatch(domain) or (colon and not _TAG.fullmatch(tag)):
        return False
    if len(path) > _LONGEST_NAME or not all(_PART.fullmatch(part) for part in path.split("/")):
        return False
    return tag == "latest" if colon else not at


def _is_digest(digest: str) -> bool:
    algorithm, _, value = digest.partition(":")
    return len(value) == _HEX_LENGTHS.get(algorithm) and bool(_HEX.fullmatch(value))


def default_pull_policy(image: str) -> str:
    return "Always" if is_latest(image) else "IfNotPresent"
