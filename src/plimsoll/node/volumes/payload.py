"""Files of volumes that are made from API objects: configMap, secret, downwardAPI and projected. Pure.

Rules and messages are the kubelet's: `items` select and rename keys, missing objects and keys are faults
unless `optional`, and modes are that of the item, else `defaultMode`, else 0644.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.common.json_tree import branch, items, text
from plimsoll.errors import InputError

DEFAULT_MODE = 0o644


@dataclass(frozen=True, slots=True)
class VolumeFile:
    """Content, mode and owner of one file."""

    data: bytes
    mode: int = DEFAULT_MODE
    owner: int | None = None  #: user, if not that of the agent


Files = dict[str, VolumeFile]


def object_files(
    tree: Mapping[str, Any] | None, source: Mapping[str, Any], kind: str, name: str, mode: int
) -> Files:
    """Return the files of a ConfigMap or Secret; InputError if it, or a selected key, does not exist."""
    optional = source.get("optional") is True
    if tree is None:
        if optional:
            return {}
        raise InputError(f'{kind.lower()} "{name}" not found')
    data = _object_data(tree, secret=kind == "Secret")
    selected = items(source, "items")
    if not selected:
        return {check_path(key): VolumeFile(value, mode) for key, value in data.items()}
    found: Files = {}
    for item in selected:
        key, path = text(item, "key"), text(item, "path")
        if key not in data:
            if optional:
                continue
            raise InputError(f"references non-existent {_kind_word(kind)} key: {key}")
        found[check_path(path)] = VolumeFile(data[key], item_mode(item, mode))
    return found


def _kind_word(kind: str) -> str:
    return "secret" if kind == "Secret" else "config"


def _object_data(tree: Mapping[str, Any], *, secret: bool) -> dict[str, bytes]:
    found = {}
    encoded = branch(tree, "data") if secret else branch(tree, "binaryData")
    for key, value in encoded.items():
        try:
            found[key] = base64.b64decode(str(value), validate=True)
        except (binascii.Error, ValueError):
            raise InputError(f"the value of {key} is not valid base64") from None
    if not secret:
        found |= {
            key: str(value).encode(errors="surrogateescape") for key, value in branch(tree, "data").items()
        }
    return found


def item_mode(item: Mapping[str, Any], mode: int) -> int:
    given = item.get("mode")
    return given & 0o777 if isinstance(given, int) and not isinstance(given, bool) else mode


def default_mode(source: Mapping[str, Any]) -> int:
    given = source.get("defaultMode")
    return given & 0o777 if isinstance(given, int) and not isinstance(given, bool) else DEFAULT_MODE


def check_path(path: str) -> str:
    """Return a relative path below the volume; InputError for any other."""
    parts = path.split("/")
    if not path or path.startswith("/") or any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise InputError(f"invalid path {path!r}")
    if parts[0].startswith("..") or len(path) > 4096:
        raise InputError(f"invalid path {path!r}")
    return path


def merge(parts: Sequence[Files]) -> Files:
    """Merge the files of projected sources; later ones win."""
    found: Files = {}
    for files in parts:
        found |= files
    return found
