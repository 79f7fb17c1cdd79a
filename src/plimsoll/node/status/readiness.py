"""Readiness of a node from several sources: it is Ready while none of them has a problem."""

from __future__ import annotations

from collections.abc import Callable


class Readiness:
    """Problems of a node by source."""

    def __init__(self, set_ready: Callable[[str], None]) -> None:
        """Create it; `set_ready` takes all problems, or "" when there are none, whenever they change."""
        self._set_ready = set_ready
        self._problems: dict[str, str] = {}
        self._reported = ""

    def source(self, name: str) -> Callable[[str], None]:
        """Return the function by which a source sets its problem; "" is none."""

        def set_problem(problem: str) -> None:
            self._problems[name] = problem
            together = "; ".join(filter(None, self._problems.values()))
            if together != self._reported:
                self._reported = together
                self._set_ready(together)

        return set_problem
