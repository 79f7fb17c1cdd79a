"""Compiled builders of YAML trees: one function for each sequence of line shapes that occurs often.

The place of a scalar in the tree follows from the shapes of the lines alone. So the tree of one text with
numbers in place of its scalars is the pattern of all texts of that shape, and `[{"kind": v[1], ...}]` builds
them many times faster than a loop over the lines. Shapes that occur only a few times, very long ones and
deep ones are not compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from plimsoll.common.yaml_lines import LineShape, ParsedLine, ValueKind

#: Builder of a tree from the scalars of its lines.
TreeBuilder: TypeAlias = Callable[[Sequence[Any]], Any]

#: Lines of the longest text that can be compiled.
MAX_LINES = 5_000
#: Texts of a shape before it is compiled, which takes as long as about ten texts.
_OFTEN = 10
_MAX_DEPTH = 40
#: Limits of the lines of all shapes, compiled and counted.
_MAX_COMPILED = 100_000
_MAX_COUNTED = 500_000
_UNSUITABLE = frozenset((ValueKind.CLIPPED, ValueKind.STRIPPED, ValueKind.NOT_PLAIN))


class _Slot(NamedTuple):
    """Place of the scalar of a line."""

    line: int


class TreeBuilders:
    """Builders by the shapes of the lines. `build` makes a tree from lines, or returns `failed`."""

    def __init__(self, build: Callable[[Sequence[ParsedLine]], Any], failed: object) -> None:
        self._build = build
        self._failed = failed
        self._known: dict[tuple[LineShape, ...], TreeBuilder] = {}
        self._compiled = 0
        self._seen: dict[tuple[LineShape, ...], int] = {}
        self._counted = 0

    def find(self, shapes: tuple[LineShape, ...]) -> TreeBuilder | None:
        """Return the builder of texts of these shapes; None if they have not occurred often enough."""
        return self._known.get(shapes) or self._count(shapes)

    def _count(self, shapes: tuple[LineShape, ...]) -> TreeBuilder | None:
        times = self._seen.get(shapes, 0) + 1
        if times == 1:
            self._counted += len(shapes)
            if self._counted > _MAX_COUNTED:
                self._seen, self._counted = {}, len(shapes)
        self._seen[shapes] = times
        if times != _OFTEN or any(s.kind in _UNSUITABLE for s in shapes):
            return None
        sample = self._build([(shape, _Slot(number)) for number, shape in enumerate(shapes)])
        if sample is self._failed or _depth(sample) > _MAX_DEPTH:
            return None
        if self._compiled + len(shapes) > _MAX_COMPILED:
            self._known, self._compiled = {}, 0
        self._known[shapes] = found = _compile(sample)
        self._compiled += len(shapes)
        return found


def _compile(sample: Any) -> TreeBuilder:
    source = f"lambda v: {''.join(_render(sample))}"
    return cast(TreeBuilder, eval(compile(source, "<yaml shape>", "eval"), {"__builtins__": {}}))


def _render(value: Any) -> Iterator[str]:
    """Render the expression of a tree; keys are literals, and only slots are variable."""
    if isinstance(value, _Slot):
        yield f"v[{value.line}]"
    elif isinstance(value, dict):
        yield "{"
        for key, each in value.items():
            yield f"{key!r}:"
            yield from _render(each)
            yield ","
        yield "}"
    elif isinstance(value, list):
        yield "["
        for each in value:
            yield from _render(each)
            yield ","
        yield "]"
    else:
        yield "None"


def _depth(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, children), default=0)
