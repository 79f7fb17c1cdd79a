"""Reader of CDI files, robust against hostile content.

Guarantees: whatever a file contains, the result is a valid `CdiSpec` or a `CdiFault` that names the file;
nothing is raised and reading never blocks.

DIFF: files over 4 MiB, YAML with aliases and files that are not regular files are reported and skipped; other
readers accept them (test_hostile_files_are_reported_and_others_still_work).
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from plimsoll.protocols.cdi.spec import CdiSpec, check_spec

#: Maximum size of a file in bytes; files of drivers have a few KiB, rarely some hundreds.
MAX_SIZE = 4 * 1024 * 1024
MAX_DEPTH = 32
_MAX_TEXT = 300

_Parser = cast(Any, getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class CdiFault:
    """Reason why a file or a device cannot be used.

    `code`: unreadable, malformed or invalid for a file; unresolvable or conflict for a device; unwritable.
    `where` is the file's path or the device's name.
    """

    code: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


def read_spec(path: Path) -> CdiSpec | CdiFault:
    """Read the file at a path."""
    data = _read(path)
    return data if isinstance(data, CdiFault) else parse_spec(data, str(path))


def parse_spec(data: bytes, where: str) -> CdiSpec | CdiFault:
    """Parse a file's content; YAML by its name, else JSON."""

    def malformed(problem: object) -> CdiFault:
        return CdiFault("malformed", where, f"failed to parse CDI Spec: {str(problem)[:_MAX_TEXT]}")

    try:
        text = data.decode()
    except UnicodeDecodeError:
        return malformed("not UTF-8 text")
    try:
        tree = _yaml(text) if where.endswith(".yaml") else json.loads(text, object_pairs_hook=_pairs)
        _bound(tree)
        spec = msgspec.convert(_without_nulls(tree), CdiSpec)
    except RecursionError:
        return malformed("nested too deeply")
    except (ValueError, TypeError, OverflowError, yaml.YAMLError) as error:  # msgspec's are ValueErrors
        return malformed(" ".join(str(error).split()))
    if findings := check_spec(spec):
        shown = "; ".join(finding[:_MAX_TEXT] for finding in findings[:5])
        more = f"; and {len(findings) - 5} more" if len(findings) > 5 else ""
        return CdiFault("invalid", where, f"invalid CDI Spec: {shown}{more}")
    return spec


def _read(path: Path) -> bytes | CdiFault:
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        return CdiFault("unreadable", str(path), f"failed to read CDI Spec: {_reason(error)}")
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            return CdiFault("unreadable", str(path), "failed to read CDI Spec: not a regular file")
        if info.st_size > MAX_SIZE:
            message = f"failed to read CDI Spec: {info.st_size} bytes are more than {MAX_SIZE}"
            return CdiFault("unreadable", str(path), message)
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(MAX_SIZE + 1)
    except OSError as error:
        return CdiFault("unreadable", str(path), f"failed to read CDI Spec: {_reason(error)}")
    finally:
        os.close(fd)
    if len(data) > MAX_SIZE:
        return CdiFault("unreadable", str(path), f"failed to read CDI Spec: more than {MAX_SIZE} bytes")
    return data


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    tree = dict(pairs)
    if len(tree) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"key {twice[:80]!r} is given twice")
    return tree


def _yaml(text: str) -> Any:
    """Parse one document without aliases: CDI files do not need them, and they can exhaust memory."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Parser):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("aliases are not accepted")
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise RecursionError
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
    if documents > 1:
        raise ValueError("more than one document")
    return yaml.load(text, Loader=_Strict)


class _Strict(_Parser):  # type: ignore[misc, valid-type]
    """Loader that rejects duplicate keys and reads dates as strings, as other readers do."""


def _mapping(loader: Any, node: Any) -> dict[Any, Any]:
    return _pairs(
        [
            (loader.construct_object(k, deep=True), loader.construct_object(v, deep=True))
            for k, v in node.value
        ]
    )


_Strict.add_constructor("tag:yaml.org,2002:map", _mapping)
_Strict.add_constructor("tag:yaml.org,2002:timestamp", lambda loader, node: loader.construct_scalar(node))


def _bound(tree: Any) -> None:
    """Raise RecursionError if a tree is deeper than any valid file."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for node in level
            if isinstance(node, (dict, list))
            for child in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return
    raise RecursionError


def _without_nulls(tree: Any) -> Any:
    """Remove nulls, which equal absent fields in Go."""
    if isinstance(tree, dict):
        return {name: _without_nulls(value) for name, value in tree.items() if value is not None}
    return [_without_nulls(value) for value in tree] if isinstance(tree, list) else tree
