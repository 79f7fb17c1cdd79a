"""YAML as kubectl reads it: plain scalars by Go's rules, to and from plain trees.

Guarantees: numbers keep every digit, dates stay text, duplicate keys and invalid documents are InputErrors
with the line, and the expansion of aliases is bounded. Reads JSON as well, which is YAML. Time is linear in
the length of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

import yaml

from plimsoll.api import codec
from plimsoll.api.quantity import Number
from plimsoll.errors import DecodeError, InputError

_BOOLS = {
    word: value
    for value, names in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for name in names
    for word in (name, name.capitalize(), name.upper())
}
_NULLS = {"", "~", "null", "Null", "NULL"}
#: Words that are not texts.
_WORDS: dict[str, bool | None] = {**_BOOLS, **dict.fromkeys(_NULLS)}
_INT = re.compile(r"[-+]?(0|[1-9][0-9_]*|0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+)", re.ASCII)
_FLOAT = re.compile(r"[-+]?[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?|[-+]?[0-9]+\.", re.ASCII)
_JSON_START = re.compile(r'\s*\{\s*"')
#: Maximum values that the aliases of one document expand to.
MAX_COPIES = 500_000
_MAX_DEPTH = 300
#: Maximum values of one document: each takes microseconds, while JSON is read a hundred times as fast.
MAX_VALUES = 5_000_000

_SlowParser = cast(Any, yaml.SafeLoader)
_Parser = cast(Any, getattr(yaml, "CSafeLoader", None) or yaml.SafeLoader)
#: Surrogate pairs of JSON escapes are supported by the slow parser only, up to this length of text.
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD]")
_SLOW_MAX = 32 * 1024


def load_documents(text: str | bytes, max_copies: int = MAX_COPIES) -> Iterator[tuple[int, Any]]:
    """Yield the documents of a stream as (line, tree), without empty ones.

    The aliases of one document may expand to `max_copies` values.
    """
    if text[:1] in ("{", "[", b"{", b"["):  # most likely JSON, which has a faster reader
        try:
            tree = codec.decode_tree(text)
        except DecodeError:
            pass
        else:
            yield 1, tree
            return
    try:
        parser = _choose_parser(text)(text)
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                tree = _Builder(parser, max_copies).build()
                if tree is not None:
                    yield _line(event), tree
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where, at_end = _place(text, mark) if mark else ("", False)
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
        cut = "; it may be truncated" if at_end or "end of stream" in problem else ""
        raise InputError(f"{where}not {'JSON' if _is_json(text) else 'YAML'}: {problem}{cut}") from None
    except UnicodeDecodeError:
        raise InputError("not YAML: the text is not UTF-8") from None
    except RecursionError:
        raise InputError("not YAML: nested too deeply") from None


def _is_json(text: str | bytes) -> bool:
    """Return whether a text was probably meant to be JSON: a brace followed by a quote."""
    shown = text[:200].decode("latin-1") if isinstance(text, bytes) else text[:200]
    return bool(_JSON_START.match(shown))


def _choose_parser(text: str | bytes) -> Any:
    if len(text) > _SLOW_MAX:
        return _Parser
    shown = text.decode("latin-1") if isinstance(text, bytes) else text
    return _SlowParser if _PAIR.search(shown) else _Parser


def _place(text: str | bytes, mark: Any) -> tuple[str, bool]:
    """Return the location of an error, and whether it is the end of the text, reported as its last line."""
    newline: Any = b"\n" if isinstance(text, bytes) else "\n"
    last = text.rstrip(newline).count(newline)
    if mark.line > last:
        return f"line {last + 1}: ", True
    return f"line {mark.line + 1}, column {mark.column + 1}: ", False


class _Builder:
    """Builder of one document from parser events."""

    def __init__(self, parser: Any, max_copies: int) -> None:
        self.parser = parser
        self.max_copies = max_copies
        #: Values by anchor, with the number of values they consist of.
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.copies = 0
        self.values = 0
        self.expanded = 0  #: values so far, with those of aliases

    def build(self) -> Any:
        return self.node(self.parser.get_event(), 0)

    def node(self, event: Any, depth: int) -> Any:
        self.values += 1
        if depth > _MAX_DEPTH:
            raise InputError(f"line {_line(event)}: nested too deeply")
        if self.values > MAX_VALUES:
            raise InputError(
                f"line {_line(event)}: one document has more than {MAX_VALUES:,} values; give it as JSON "
                "(kubectl get -o json), or in several documents"
            )
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self.anchors:
                raise InputError(f"line {_line(event)}: unknown alias *{event.anchor}")
            return self.copy(*self.anchors[event.anchor], event)
        before = self.expanded
        self.expanded += 1
        if isinstance(event, yaml.ScalarEvent):
            value: Any = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = []
            while not isinstance(item := self.parser.get_event(), yaml.SequenceEndEvent):
                value.append(self.node(item, depth + 1))
        else:
            value = self.mapping(depth)
        if event.anchor:
            self.anchors[event.anchor] = value, self.expanded - before
        return value

    def mapping(self, depth: int) -> dict[str, Any]:
        tree: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        while not isinstance(event := self.parser.get_event(), yaml.MappingEndEvent):
            line = _line(event)
            merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]
            before = self.expanded
            key = self.node(event, depth + 1)
            self.expanded = before
            value = self.node(self.parser.get_event(), depth + 1)
            if merge:
                merged = _merge(merged, value, line)
                continue
            name = _key(key, line)
            if name in tree:
                raise InputError(f"line {line}: key {name!r} is given twice")
            tree[name] = value
        return {**merged, **tree} if merged else tree

    def copy(self, value: Any, size: int, event: Any) -> Any:
        """Copy the target of an alias; the number of copies is limited, because aliases can nest."""
        self.copies += size
        self.expanded += size
        if self.copies > self.max_copies:
            raise InputError(f"line {_line(event)}: aliases expand to more than {self.max_copies:,} values")
        return _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def _merge(into: dict[str, Any], value: Any, line: int) -> dict[str, Any]:
    for source in value if isinstance(value, list) else [value]:
        if not isinstance(source, dict):
            raise InputError(f"line {line}: << must be given a mapping")
        into = {**source, **into}
    return into


def _key(key: Any, line: int) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if key is None or isinstance(key, (dict, list)):
        raise InputError(f"line {line}: a key must be a word")
    return str(key)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if not event.implicit[0]:
        text = _join_surrogates(text)
    if event.tag == "tag:yaml.org,2002:str" or not event.implicit[0]:
        return text
    return resolve_plain(text)


def resolve_plain(text: str) -> Any:
    """Resolve a plain scalar."""
    value = _WORDS.get(text, text)
    if value is not text:
        return value
    if text[0] in "0123456789+-.":
        if _INT.fullmatch(text) and len(text) < 400:
            return _integer(text)
        if _FLOAT.fullmatch(text):
            return Number(text)
    return text


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    bare = digits.lstrip("+-")
    if len(bare) > 1 and bare[0] == "0" and bare[1].isdigit():
        return int(digits, 8)  # a leading zero means octal, as in Go
    return int(digits, 0)


def _join_surrogates(text: str) -> str:
    """Join surrogate pairs, which JSON uses to escape characters beyond U+FFFF."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def dump_document(tree: Any) -> bytes:
    """Dump a tree as one document, keys in order; it loads as the same tree."""
    text = _dump(tree, visible=True)
    if not text.replace("\n", "").isprintable():  # escape characters that are not printable
        text = _dump(tree, visible=False)
    return text.encode()


def _dump(tree: Any, *, visible: bool) -> str:
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=True, allow_unicode=visible, width=2**20))


class _Dumper(getattr(yaml, "CSafeDumper", None) or yaml.SafeDumper):  # type: ignore[misc]
    """Dumper for Go readers: texts that look like another type are quoted."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def _represent_text(self, text: str) -> Any:
        plain = text not in _NULLS and text not in _BOOLS and not (text[0].isdigit() or text[0] in "+-.=<")
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')

    def _represent_number(self, number: Number) -> Any:
        mantissa, mark, exponent = number.text.lower().partition("e")
        if "." not in mantissa:
            mantissa += ".0"
        if mark and exponent[0] not in "+-":
            exponent = f"+{exponent}"
        return self.represent_scalar("tag:yaml.org,2002:float", mantissa + mark + exponent)


_Dumper.add_representer(str, _Dumper._represent_text)
_Dumper.add_representer(Number, _Dumper._represent_number)
