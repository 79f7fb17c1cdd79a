"""Parsing of YAML and JSON manifests from files, directories, archives and standard input.

Also reads `kubectl cluster-info dump`. Lists are flattened and unknown kinds are passed through. Anything
unreadable raises InputError with the file (and the file inside an archive), document and line. Text is UTF-8,
or UTF-16 with a byte order mark, as PowerShell redirection writes it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.api.kinds import KINDS
from plimsoll.common.archives import SUFFIXES, UTF16, TextReader, is_manifest_file
from plimsoll.common.input_limits import Bounds, check_density, default_bounds
from plimsoll.common.yaml import load_documents
from plimsoll.common.yaml_documents import DocumentPart, load_parts
from plimsoll.errors import DecodeError, InputError

__all__ = ["SUFFIXES", "ParsedObject", "parse_objects", "read_objects", "read_sources"]

#: Called with the number of bytes read so far.
BytesRead = Callable[[int], None]

#: Lists under the names of their kinds, as scripts collect them: {"nodes": [...], "pods": [...]}.
SECTIONS: Mapping[str, tuple[str, str]] = {
    kind.plural: (kind.api_version, kind.kind)
    for kind in KINDS
    if kind.key in ("nodes", "namespaces", "pods")
    or (kind.group == "resource.k8s.io" and kind.versions[0] == "v1")
}
_LOGS = ("==== START logs for container ", "==== END logs for container ")
_JSON_START = re.compile(r'\s*\{\s*"')
_LONG = 8 << 20
_scan = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class ParsedObject:
    """One object and its location in the input."""

    tree: dict[str, Any]
    source: str
    document: int = 0  #: 0 if not from a file
    line: int = 0
    place: str = ""  #: item of a list

    @property
    def kind(self) -> str:
        return str(self.tree.get("kind", ""))

    @property
    def name(self) -> str:
        metadata = self.tree.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""

    @property
    def namespace(self) -> str:
        metadata = self.tree.get("metadata")
        return str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""

    @property
    def full_name(self) -> str:
        """NAMESPACE/NAME, or NAME of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def where(self) -> str:
        if not self.document:
            return f"{self.source} {self.full_name}"
        return f"{self.source}, document {self.document}, line {self.line}{self.place}"


def read_objects(
    paths: Iterable[str | Path], bounds: Bounds | None = None, *, needs_kind: bool = True
) -> Iterator[ParsedObject]:
    """Iterate over the objects of files, directories and archives in order; `-` is standard input.

    Objects without a kind raise InputError, unless they are allowed.
    """
    bounds = bounds or default_bounds()
    for source, text in read_sources(paths, bounds):
        yield from parse_objects(text, source, bounds=bounds, needs_kind=needs_kind)


def read_sources(paths: Iterable[str | Path], bounds: Bounds | None = None) -> Iterator[tuple[str, bytes]]:
    """Iterate over (source name, UTF-8 text) of files, directories and archives."""
    reader = TextReader(bounds)
    for path in paths:
        if str(path) == "-":
            for source, text in reader.read(sys.stdin.buffer, "standard input"):
                yield source, _as_utf8(text, source)
            continue
        for file in _files(Path(path)):
            try:
                with file.open("rb") as content:
                    for source, text in reader.read(content, str(file)):
                        yield source, _as_utf8(text, source)
            except OSError as error:
                raise InputError(f"{file}: {error.strerror}") from None


def _as_utf8(text: bytes, source: str) -> bytes:
    if text.startswith(UTF16):
        try:
            return text.decode("utf-16").encode()
        except UnicodeError:
            raise InputError(f"{source}: invalid UTF-16: use UTF-8") from None
    return text.removeprefix(b"\xef\xbb\xbf")


def parse_objects(
    text: bytes | str,
    source: str,
    on_bytes: BytesRead = lambda done: None,
    bounds: Bounds | None = None,
    *,
    needs_kind: bool = True,
) -> Iterator[ParsedObject]:
    """Iterate over the objects in one YAML or JSON stream; lists are flattened."""
    parts = _load(text, source, bounds)
    number = 0
    while True:
        try:
            part = next(parts)
        except StopIteration:
            return
        except InputError as error:
            raise InputError(f"{source}, document {number + 1}: {error}") from None
        number += part.item <= 0
        item = _single_item(part.tree) if part.item >= 0 else None
        tree = part.tree
        if item is not None:
            yield ParsedObject(item, source, number, part.line, f", items[{part.item}]")
        elif not needs_kind and isinstance(tree, dict) and not tree.get("kind") and tree.get("metadata"):
            yield ParsedObject(tree, source, number, part.line)
        else:
            yield from _flatten(tree, source, number, part.line, "", part.item)
        on_bytes(part.end)


def _single_item(tree: Any) -> dict[str, Any] | None:
    """Return the item of a list with one item; None if it has no kind, or is itself a list."""
    kind, item = tree.get("kind"), tree["items"][0]
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(item, dict):
        return None
    own = item.get("kind")
    return item if isinstance(own, str) and own and not own.endswith("List") else None


def _flatten(
    tree: Any, source: str, document: int, line: int, place: str, first: int = -1
) -> Iterator[ParsedObject]:
    """Flatten lists. `first` is the index of the first item where the tree holds only part of a list."""
    if not isinstance(tree, dict):
        where = f"{source}, document {document}, line {line}{place}"
        raise InputError(f"{where}: an object must be a mapping")
    kind = tree.get("kind")
    if "kind" not in tree and (sections := [name for name in SECTIONS if isinstance(tree.get(name), list)]):
        for name in sections:
            api_version, kind = SECTIONS[name]
            for number, item in enumerate(tree[name]):
                if isinstance(item, dict):
                    item = {"apiVersion": api_version, "kind": kind, **item}
                yield from _flatten(item, source, document, line, f"{place}, {name}[{number}]")
        return
    if not isinstance(kind, str) or not kind:
        cut = "; the list may be truncated" if isinstance(tree.get("items"), list) else ""
        where = f"{source}, document {document}, line {line}{place}"
        raise InputError(f"{where}: kind is missing{cut}")
    items = tree.get("items")
    if kind.endswith("List") and "items" in tree and (items is None or isinstance(items, list)):
        for number, item in enumerate(items or (), max(first, 0)):
            if isinstance(item, dict) and "kind" not in item:
                item = {"apiVersion": tree.get("apiVersion", ""), "kind": kind.removesuffix("List"), **item}
            yield from _flatten(item, source, document, line, f"{place}, items[{number}]")
        return
    yield ParsedObject(tree, source, document, line, place)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if is_manifest_file(file.name) and file.is_file())
        if not found:
            raise InputError(f"{path}: no {', '.join(SUFFIXES)} file in this directory")
        return found
    if not path.exists():
        raise InputError(f"{path}: no such file or directory")
    return [path]


# -- JSON documents one after the other, as `kubectl cluster-info dump` writes them, with logs in between


def _load(text: bytes | str, source: str, bounds: Bounds | None) -> Iterator[DocumentPart]:
    """Parse the documents of a text in any of the supported formats."""
    document_text = _decoded(text)
    if document_text is None:
        return _as_parts(load_documents(text))
    head = document_text[:200].lstrip()
    if head.startswith(("{", "[")):
        check_density(text, source, bounds or default_bounds())
    if not head.startswith(("{", _LOGS[0])):
        try:
            return load_parts(text.encode() if isinstance(text, str) else text)
        except UnicodeEncodeError:
            return _as_parts(load_documents(text))
    try:
        return _as_parts(iter([(1, codec.decode_tree(text))]))
    except DecodeError:
        # The YAML reader reports errors best, but needs minutes for a very long text.
        json_only = len(document_text) > _LONG and _JSON_START.match(document_text) is not None
        return _as_parts(
            _load_json_stream(document_text)
            if json_only or _has_more_documents(document_text)
            else load_documents(text)
        )


def _as_parts(documents: Iterator[tuple[int, Any]]) -> Iterator[DocumentPart]:
    for line, tree in documents:
        yield DocumentPart(line, tree, -1, 0)


def _decoded(text: bytes | str) -> str | None:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _has_more_documents(text: str) -> bool:
    """Return whether JSON or logs follow the first document, which YAML could not parse."""
    try:
        place = _skip(text, 0)
        if text.startswith("{", place):
            place = _skip(text, _scan(text, place)[1])
    except (ValueError, RecursionError):
        return False
    return place == len(text) or text.startswith("{", place)


def _load_json_stream(document_text: str) -> Iterator[tuple[int, Any]]:
    place, line, counted = 0, 1, 0
    while (place := _skip(document_text, place)) < len(document_text):
        line += document_text.count("\n", counted, place)
        counted = place
        try:
            _, end = _scan(document_text, place)
        except json.JSONDecodeError as error:
            cut = "" if "\n" in document_text[error.pos :].rstrip() else "; it may be truncated"
            raise InputError(
                f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}{cut}"
            ) from None
        except RecursionError:
            raise InputError(f"line {line}: nested too deeply") from None
        try:
            yield line, codec.decode_tree(document_text[place:end])
        except DecodeError as error:
            raise InputError(f"line {line}: {error}") from None
        place = end


def _skip(text: str, place: int) -> int:
    """Return the next position that is neither blank nor inside container logs."""
    while True:
        while place < len(text) and text[place] in " \t\r\n":
            place += 1
        if not text.startswith(_LOGS[0], place):
            return place
        end = text.find(f"\n{_LOGS[1]}", place)
        end = text.find("\n", end + 1) if end >= 0 else -1
        place = len(text) if end < 0 else end + 1
