"""Line wrapping at blanks to the terminal width, with continuation lines indented by two."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

_LEAST = 40


def fold(color: Callable[[str], str], text: str, label: str, width: int) -> Iterator[str]:
    """Yield a label and a text in as many lines as needed; only the text is colored."""
    indent = " " * (len(label) - len(label.lstrip()) + 2)
    room = max(width, _LEAST)
    lines = textwrap.wrap(
        label.lstrip() + text,
        room,
        initial_indent=" " * (len(label) - len(label.lstrip())),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [label.rstrip()]
    first, *rest = lines
    yield first[: len(label)] + color(first[len(label) :])
    for line in rest:
        yield indent + color(line[len(indent) :])
