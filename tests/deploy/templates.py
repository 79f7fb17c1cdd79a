"""Subset of Helm's template language used by the chart; anything else is refused.

Actions: `if`/`else`/`end`, `with`, `define`, `include`, variables, values of `.`, and pipes of a few
functions. Blanks are trimmed as Go does it (`{{-`, `-}}`). There is no cluster: `lookup` finds nothing, and
what the API server serves is not known.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

_ACTION = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.DOTALL)
_WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\(|\)|\||[^\s()|]+')


@dataclass
class Block:
    """Scope of a template action: the text up to its `else` or `end`, and the text after."""

    kind: str
    argument: str
    body: list[str | Block] = field(default_factory=list)
    otherwise: list[str | Block] = field(default_factory=list)


class Chart:
    """Templates of a chart, by file name."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._defined: dict[str, list[str | Block]] = {}
        self._files = {name: _parse(text) for name, text in files.items()}
        for nodes in self._files.values():
            for node in nodes:
                if isinstance(node, Block) and node.kind == "define":
                    self._defined[json.loads(node.argument)] = node.body

    def render(self, name: str, root: Mapping[str, Any]) -> str:
        return self._write(self._files[name], root, {})

    def _write(self, nodes: list[str | Block], dot: Any, names: dict[str, Any]) -> str:
        return "".join(self._write_one(node, dot, names) for node in nodes)

    def _write_one(self, node: str | Block, dot: Any, names: dict[str, Any]) -> str:
        if isinstance(node, str):
            return node
        if node.kind == "define":
            return ""
        if node.kind == "set":
            name, _, argument = node.argument.partition(":=")
            names[name.strip()] = self._pipe(argument, dot, names)
            return ""
        value = self._pipe(node.argument, dot, names)
        if node.kind == "show":
            if isinstance(value, bool):
                return "true" if value else "false"
            assert value is not None, f"{node.argument} is nothing"
            return str(value)
        inner = value if node.kind == "with" else dot
        if value:
            return self._write(node.body, inner, dict(names))
        return self._write(node.otherwise, dot, dict(names))

    def _pipe(self, text: str, dot: Any, names: Mapping[str, Any]) -> Any:
        words = list(_WORD.findall(text))
        value = self._call_all(words, dot, names)
        assert not words, f"not understood: {text!r}"
        return value

    def _call_all(self, words: list[str], dot: Any, names: Mapping[str, Any]) -> Any:
        value = self._call(words, dot, names, [])
        while words and words[0] == "|":
            words.pop(0)
            value = self._call(words, dot, names, [value])
        return value

    def _call(self, words: list[str], dot: Any, names: Mapping[str, Any], last: list[Any]) -> Any:
        arguments: list[Any] = []
        function = ""
        while words and words[0] not in ("|", ")"):
            word = words.pop(0)
            if word == "(":
                arguments.append(self._call_all(words, dot, names))
                assert words.pop(0) == ")"
            elif word.endswith(".Capabilities.APIVersions.Has"):
                words.pop(0)
                arguments.append(False)
            elif not function and not arguments and re.fullmatch(r"[a-zA-Z][a-zA-Z0-9]*", word):
                function = word
            else:
                arguments.append(_value(word, dot, names))
        arguments += last
        if not function:
            assert len(arguments) == 1, arguments
            return arguments[0]
        return self._apply(function, arguments)

    def _apply(self, function: str, arguments: list[Any]) -> Any:
        match function, arguments:
            case "include", [str(name), dot]:
                return self._write(self._defined[name], dot, {})
            case "dict", pairs:
                return dict(zip(pairs[::2], pairs[1::2], strict=True))
            case "lookup", [str(), str(), str(), str()]:
                return {}
            case "randAlphaNum", [int(length)]:
                return "x" * length
            case "b64enc", [str(text)]:
                return base64.b64encode(text.encode()).decode()
            case "toYaml", [value]:
                return yaml.safe_dump(value, sort_keys=True, default_flow_style=False, width=1000).rstrip(
                    "\n"
                )
            case "nindent", [int(width), str(text)]:
                return "\n" + "\n".join(" " * width + line if line else line for line in text.split("\n"))
            case "quote", [value]:
                return json.dumps(str(value))
            case "default", [other, value]:
                return value or other
            case "eq", [left, right]:
                return left == right
            case "ne", [left, right]:
                return left != right
            case "not", [value]:
                return not value
            case "gt", [left, right]:
                return left > right
            case "int", [value]:
                return int(value)
            case "or", [first, *others]:
                return next((each for each in (first, *others) if each), [first, *others][-1])
            case "and", [first, *others]:
                return next((each for each in (first, *others) if not each), [first, *others][-1])
            case "sha256sum", [str(text)]:
                return hashlib.sha256(text.encode()).hexdigest()
        raise AssertionError(f"no such function: {function} of {len(arguments)}")


def _value(word: str, dot: Any, names: Mapping[str, Any]) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word.isdigit() or word in ("true", "false"):
        return json.loads(word)
    variable, _, path = word.partition(".")
    assert not variable or variable in names, f"not understood: {word!r}"
    value = names[variable] if variable else dot
    for name in filter(None, path.split(".")):
        assert isinstance(value, Mapping), f"{word}: not an object before {name}"
        assert name in value, f"{word}: no {name}"
        value = value[name]
    return value


def _parse(text: str) -> list[str | Block]:
    root = Block("root", "")
    stack = [(root, root.body)]
    for piece in _pieces(text):
        if isinstance(piece, str):
            stack[-1][1].append(piece)
            continue
        (action,) = piece
        word, _, rest = action.partition(" ")
        if word in ("if", "with", "define"):
            block = Block(word, rest)
            stack[-1][1].append(block)
            stack.append((block, block.body))
        elif word == "else":
            assert not rest, "else if is not understood"
            stack[-1] = (stack[-1][0], stack[-1][0].otherwise)
        elif word == "end":
            stack.pop()
        elif re.match(r"\$\w+ :=", action):
            stack[-1][1].append(Block("set", action))
        elif not action.startswith("/*"):
            stack[-1][1].append(Block("show", action))
    assert len(stack) == 1, "an end is missing"
    return root.body


def _pieces(text: str) -> Iterator[str | tuple[str]]:
    """Yield text and actions in turn, with blanks trimmed where actions request it."""
    start, trim = 0, False
    for found in _ACTION.finditer(text):
        before = text[start : found.start()]
        if trim:
            before = before.lstrip()
        yield before.rstrip() if found[1] else before
        yield (found[2],)
        start, trim = found.end(), bool(found[3])
    rest = text[start:]
    yield rest.lstrip() if trim else rest
