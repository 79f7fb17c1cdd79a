"""Scripts of tests, a step in a line: files of titled scripts, and the coroutine functions of the steps."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

Step = Callable[..., Awaitable[Any]]


def read_scripts(path: Path) -> dict[str, str]:
    """Read the scripts of a file by title: `== title`, then their lines; `-- ` begins a comment."""
    found = {}
    for part in re.split(r"^== ", path.read_text(), flags=re.MULTILINE)[1:]:
        title, _, lines = part.partition("\n")
        assert title not in found, f"{path.name} has two of {title!r}"
        found[title] = re.sub(r"^-- .*$", "", lines, flags=re.MULTILINE)
    return found


class StepTable:
    """Steps by the pattern of their line."""

    def __init__(self) -> None:
        self._steps: list[tuple[re.Pattern[str], Step]] = []

    def on_step(self, pattern: str) -> Callable[[Step], Step]:
        def note(step: Step) -> Step:
            self._steps.append((re.compile(pattern), step))
            return step

        return note

    async def perform(self, target: object, line: str) -> None:
        """Run the step of a line with the groups of its pattern."""
        for pattern, step in self._steps:
            if found := pattern.fullmatch(line):
                await step(target, *found.groups())
                return
        raise AssertionError(f"no such step: {line!r}")
