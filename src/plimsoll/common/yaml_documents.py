"""Incremental YAML reader: one document at a time, and one item of a `kind: List` at a time.

A dump of a cluster is one list of up to a hundred thousand items. Read at once it is a tree of gigabytes;
read item by item it needs little memory, every item has its line number, and progress can be reported. Texts
are split only where that is possible without a parser: at `---` in the first column, and at the dashes of a
block list below `items:`. Guarantees the same result as `load_documents` on the complete text (a property
test compares them), which also reads all other syntax. Items and small documents as kubectl writes them are
read by `yaml_block.py`; documents that consist of comments are skipped without a parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from plimsoll.common.yaml import load_documents
from plimsoll.common.yaml_block import NOT_PLAIN, read_plain
from plimsoll.errors import InputError

_MARKER = re.compile(rb"^---(?=\s|\Z)", re.MULTILINE)
_UNUSUAL = re.compile(rb"^(?:%|\.\.\.(?:\s|\Z))", re.MULTILINE)
#: `items:` in the first column and its first dash. Possessive, because backtracking over a million comments
#: would take hundreds of megabytes.
_ITEMS = re.compile(rb"^items:[ \t]*\r?\n(?>[ \t]*(?:#[^\n]*)?\r?\n)*+( *)- ", re.MULTILINE)
#: Begins with the newline: the search for a character is much faster than that for the start of a line.
_NEXT_KEY = re.compile(rb"\n[^\s#-]")
_ITEMS_AGAIN = re.compile(rb"^[\"']?items[\"']?[ \t]*:", re.MULTILINE)
#: Size up to which the complete text is parsed again to report an error exactly.
_SMALL = 4 << 20
#: A line that is neither blank nor a comment.
_CONTENT = re.compile(rb"^[ \t\r]*[^ \t\r\n#]", re.MULTILINE)
_ASCII = bytes([*range(32, 127), 10, 13])  # the parser decides where tabs are allowed


class DocumentPart(NamedTuple):
    """Document, or one item of a list with the list's own fields."""

    line: int
    tree: Any
    item: int  #: index in the list; -1: a complete document
    end: int  #: bytes read up to its end


def load_parts(text: bytes) -> Iterator[DocumentPart]:
    """Yield the documents of a stream without empty ones; lists item by item."""
    if _has_line(text, b"%", b"...") and _UNUSUAL.search(text):
        yield from _load_with_parser(text, 0, 1)
        return
    line, counted = 1, 0
    found = _MARKER.finditer(text) if _has_line(text, b"---") else iter(())
    for start, end in _spans(text, (match.start() for match in found)):
        line += text.count(b"\n", counted, start)
        counted = start
        if not _is_empty(text, start, end):
            yield from _document(text, start, end, line)


def _has_line(text: bytes, *beginnings: bytes) -> bool:
    """Return whether a line begins with one of these; much faster than a regular expression."""
    return any(text.startswith(begin) or b"\n" + begin in text for begin in beginnings)


def _spans(text: bytes, markers: Iterator[int]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each document; a generator, since a hostile text has very many."""
    start = 0
    for marker in markers:
        if start or text[:marker].strip(b" \r\n"):
            yield start, marker
        start = marker
    yield start, len(text)


def _is_empty(text: bytes, start: int, end: int) -> bool:
    """Return whether a document consists of blanks and comments in plain ASCII."""
    if text.startswith(b"---", start):
        start += 3
        newline = text.find(b"\n", start, end)
        rest = text[start : newline if newline >= 0 else end].strip()
        if rest and not rest.startswith(b"#"):
            return False
        start = newline if newline >= 0 else end
    return _CONTENT.search(text, start, end) is None and not text[start:end].translate(None, _ASCII)


def _document(text: bytes, start: int, end: int, line: int) -> Iterator[DocumentPart]:
    cut = _cut(text, start, end)
    if cut is None:
        yield from _load_document(text, start, end, line)
        return
    pieces, head = cut
    counted, start_line = start, line
    for number, (begin, stop) in enumerate(pieces):
        line += text.count(b"\n", counted, begin)
        counted = begin
        try:
            trees = _load(text[begin:stop])
        except InputError:
            if end - start <= _SMALL:
                # The text may have been split at the wrong place; parse it completely.
                ((_, whole),) = load_documents(b"\n" * (start_line - 1) + text[start:end])
                for later, item in enumerate(whole["items"][number:], number):
                    yield DocumentPart(line, {**head, "items": [item]}, later, end)
                return
            list(load_documents(b"\n" * (line - 1) + text[begin:stop]))  # raises, with the right line
            raise
        if len(trees) != 1 or not isinstance(trees[0], list) or len(trees[0]) != 1:
            raise InputError(f"line {line}: not YAML: an item of a list was expected")
        yield DocumentPart(line, {**head, "items": trees[0]}, number, stop)


def _cut(text: bytes, start: int, end: int) -> tuple[Iterator[tuple[int, int]], Any] | None:
    """Return the positions of the items of a list and its other fields; None if it cannot be split."""
    found = _ITEMS.search(text, start, end)
    if found is None:
        return None
    first = found.start(1)
    after = _NEXT_KEY.search(text, found.end(), end)
    stop = after.start() + 1 if after else end
    if _ITEMS_AGAIN.search(text, stop, end):
        return None
    dash = re.compile(rb"\n" + found[1] + rb"-(?=\s)")
    try:
        heads = [tree for _, tree in load_documents(text[start : found.start()] + text[stop:end])]
    except InputError:
        return None
    head = heads[0] if heads else {}
    if len(heads) > 1 or not isinstance(head, dict) or "items" in head:
        return None
    return _items(text, dash, first, stop), head


def _items(text: bytes, dash: re.Pattern[bytes], first: int, stop: int) -> Iterator[tuple[int, int]]:
    begin = first
    for match in dash.finditer(text, first, stop):
        yield begin, match.start() + 1
        begin = match.start() + 1
    yield begin, stop


def _load(piece: bytes) -> list[Any]:
    try:
        tree = read_plain(piece.decode())
    except UnicodeDecodeError:
        tree = NOT_PLAIN
    return [tree for _, tree in load_documents(piece)] if tree is NOT_PLAIN else [tree]


def _load_document(text: bytes, start: int, end: int, line: int) -> Iterator[DocumentPart]:
    """Load a document that is not a list, with the fast reader if it is small and plain."""
    piece = text[start:end]
    tree = NOT_PLAIN
    if len(piece) <= _SMALL and b"\0" not in piece:
        try:
            tree = read_plain(piece.decode())
        except UnicodeDecodeError:
            tree = NOT_PLAIN
    if tree is NOT_PLAIN or tree is None:
        yield from _load_with_parser(piece, start, line)
        return
    if not piece.startswith(b"---"):  # it starts with its first content
        found = _CONTENT.search(piece)
        line += piece.count(b"\n", 0, found.end()) if found else 0
    yield DocumentPart(line, tree, -1, end)


def _load_with_parser(text: bytes, before: int, line: int) -> Iterator[DocumentPart]:
    try:
        for at, tree in load_documents(text):
            yield DocumentPart(line + at - 1, tree, -1, before + len(text))
    except InputError:
        if line > 1:
            list(load_documents(b"\n" * (line - 1) + text))  # raises, with the right line
        raise
