"""Objects from files: what `kubectl get -o yaml|json` writes and what people keep in folders and tarballs.

Owns reading files, folders, archives and standard input into objects, `kubectl cluster-info dump` included.
Promises: lists are unfolded, unknown kinds are passed on, and whatever cannot be read is an InputError that
names the file (and the file inside an archive), the document and the line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.cluster.archives import SUFFIXES, Bounds, is_wanted, read_texts
from plimsoll.cluster.yaml import load_documents
from plimsoll.errors import DecodeError, InputError

__all__ = ["SUFFIXES", "Found", "parse_objects", "read_objects"]

_LOGS = ("==== START logs for container ", "==== END logs for container ")
_scan = json.JSONDecoder().raw_decode


@dataclass(frozen=True, slots=True)
class Found:
    """One object and where it stands."""

    tree: dict[str, Any]
    source: str
    document: int
    line: int

    @property
    def kind(self) -> str:
        return str(self.tree.get("kind", ""))

    @property
    def name(self) -> str:
        metadata = self.tree.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""

    @property
    def where(self) -> str:
        return f"{self.source}, document {self.document}, line {self.line}"


def read_objects(paths: Iterable[str | Path], bounds: Bounds = Bounds()) -> Iterator[Found]:  # noqa: B008
    """The objects of files, folders and archives in order; `-` is standard input."""
    for path in paths:
        if str(path) == "-":
            for source, text in read_texts(sys.stdin.buffer, "standard input", bounds):
                yield from parse_objects(text, source)
            continue
        for file in _files(Path(path)):
            try:
                with file.open("rb") as content:
                    for source, text in read_texts(content, str(file), bounds):
                        yield from parse_objects(text, source)
            except OSError as error:
                raise InputError(f"{file}: {error.strerror}") from None


def parse_objects(text: bytes | str, source: str) -> Iterator[Found]:
    """The objects in one YAML or JSON stream; lists are unfolded."""
    documents = _load(text)
    number = 0
    while True:
        number += 1
        try:
            line, tree = next(documents)
        except StopIteration:
            return
        except InputError as error:
            raise InputError(f"{source}, document {number}: {error}") from None
        yield from _unfold(tree, source, number, line, "")


def _unfold(tree: Any, source: str, document: int, line: int, place: str) -> Iterator[Found]:
    where = f"{source}, document {document}, line {line}{place}"
    if not isinstance(tree, dict):
        raise InputError(f"{where}: an object must be a mapping")
    kind = tree.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{where}: kind is missing")
    items = tree.get("items")
    if kind.endswith("List") and "items" in tree and (items is None or isinstance(items, list)):
        for number, item in enumerate(items or ()):
            if isinstance(item, dict) and "kind" not in item:
                item = {"apiVersion": tree.get("apiVersion", ""), "kind": kind.removesuffix("List"), **item}
            yield from _unfold(item, source, document, line, f"{place}, items[{number}]")
        return
    yield Found(tree, source, document, line)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if is_wanted(file.name) and file.is_file())
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    return [path]


# -- JSON documents one after the other, as `kubectl cluster-info dump` writes them, with logs in between


def _load(text: bytes | str) -> Iterator[tuple[int, Any]]:
    """The documents of a text, whichever way they are written."""
    whole = _decoded(text)
    if whole is None or not whole[:200].lstrip().startswith(("{", _LOGS[0])):
        return load_documents(text)
    try:
        return iter([(1, codec.decode_tree(text))])
    except DecodeError:
        return _load_json_stream(whole) if _goes_on(whole) else load_documents(text)


def _decoded(text: bytes | str) -> str | None:
    if isinstance(text, str):
        return text
    try:
        return text.decode()
    except UnicodeDecodeError:
        return None


def _goes_on(text: str) -> bool:
    """Whether JSON or logs come after the first piece: YAML could not read that."""
    try:
        place = _skip(text, 0)
        if text.startswith("{", place):
            place = _skip(text, _scan(text, place)[1])
    except (ValueError, RecursionError):
        return False
    return place == len(text) or text.startswith("{", place)


def _load_json_stream(whole: str) -> Iterator[tuple[int, Any]]:
    place, line, counted = 0, 1, 0
    while (place := _skip(whole, place)) < len(whole):
        line += whole.count("\n", counted, place)
        counted = place
        try:
            _, end = _scan(whole, place)
        except json.JSONDecodeError as error:
            raise InputError(f"line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from None
        except RecursionError:
            raise InputError(f"line {line}: nested too deeply") from None
        try:
            yield line, codec.decode_tree(whole[place:end])
        except DecodeError as error:
            raise InputError(f"line {line}: {error}") from None
        place = end


def _skip(text: str, place: int) -> int:
    """The next place that is neither blank nor in the logs of a container."""
    while True:
        while place < len(text) and text[place] in " \t\r\n":
            place += 1
        if not text.startswith(_LOGS[0], place):
            return place
        end = text.find(f"\n{_LOGS[1]}", place)
        end = text.find("\n", end + 1) if end >= 0 else -1
        place = len(text) if end < 0 else end + 1
