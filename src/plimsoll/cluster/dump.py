"""Objects from files: what `kubectl get -o yaml|json` writes and what people keep in folders.

Owns reading files, folders and standard input into objects. Promises: lists are unfolded, unknown kinds are
passed on, and whatever cannot be read is an InputError that names the file, the document and the line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.cluster.yaml import load_documents
from plimsoll.errors import InputError

SUFFIXES = (".yaml", ".yml", ".json")


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


def read_objects(paths: Iterable[str | Path]) -> Iterator[Found]:
    """The objects of files and folders in order; `-` is standard input."""
    for path in paths:
        if str(path) == "-":
            yield from parse_objects(sys.stdin.buffer.read(), "standard input")
            continue
        for file in _files(Path(path)):
            try:
                text = file.read_bytes()
            except OSError as error:
                raise InputError(f"{file}: {error.strerror}") from None
            yield from parse_objects(text, str(file))


def parse_objects(text: bytes | str, source: str) -> Iterator[Found]:
    """The objects in one YAML or JSON stream; lists are unfolded."""
    documents = load_documents(text)
    number = 0
    while True:
        number += 1
        try:
            line, tree = next(documents)
        except StopIteration:
            return
        except InputError as error:
            raise InputError(f"{source}, document {number}: {error}") from None
        yield from _unfold(tree, source, number, line)


def _unfold(tree: Any, source: str, document: int, line: int) -> Iterator[Found]:
    if not isinstance(tree, dict):
        raise InputError(f"{source}, document {document}, line {line}: an object must be a mapping")
    kind = tree.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError(f"{source}, document {document}, line {line}: kind is missing")
    items = tree.get("items")
    if kind.endswith("List") and isinstance(items, list):
        for item in items:
            if isinstance(item, dict) and "kind" not in item:
                item = {"apiVersion": tree.get("apiVersion", ""), "kind": kind.removesuffix("List"), **item}
            yield from _unfold(item, source, document, line)
        return
    yield Found(tree, source, document, line)


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    return [path]
