"""Lines one can grep: one for each decision, as key=value or as JSON.

Owns what a line looks like and the words for what the scheduler did. A line has a word for what happened and
its facts; as text `bound pod=default/web node=n1`, as JSON one object with the same names. Values with blanks
or quotes are written as JSON strings, so that a line is always a line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

LOG = logging.getLogger("plimsoll.scheduler")
FORMATS = ("text", "json")
_PLAIN = re.compile(r"[^\s\"=\\]+")


def set_up_logging(
    form: str = "text",
    *,
    verbose: bool = False,
    stream: TextIO | None = None,
    handlers: Sequence[logging.Handler] = (),
) -> None:
    """Send everything that is logged to a stream (standard error), or elsewhere, in one of the `FORMATS`."""
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    for handler in handlers or (logging.StreamHandler(stream or sys.stderr),):
        handler.setFormatter(JsonLines() if form == "json" else TextLines())
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("plimsoll").setLevel(logging.DEBUG if verbose else logging.INFO)


def tell(what: str, /, level: int = logging.INFO, **facts: object) -> None:
    """Log what happened, with its facts in the order given; empty ones are left out."""
    if LOG.isEnabledFor(level):
        LOG.log(level, what, extra={"facts": facts})


def write_line(what: str, facts: dict[str, object], form: str = "text") -> str:
    """One line as it stands in the log, without time and level."""
    if form == "json":
        return json.dumps({"msg": what, **_present(facts)}, default=str, ensure_ascii=False)
    return " ".join([what, *(f"{name}={_text(value)}" for name, value in _present(facts).items())])


class TextLines(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO plimsoll.scheduler bound pod=default/web node=n1`"""

    def format(self, record: logging.LogRecord) -> str:
        facts = getattr(record, "facts", {})
        line = write_line(record.getMessage().replace("\n", " "), facts)
        text = f"{_time(record)} {record.levelname} {record.name} {line}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonLines(logging.Formatter):
    """One JSON object: ts, level, logger, msg, and the facts."""

    def format(self, record: logging.LogRecord) -> str:
        tree: dict[str, Any] = {"ts": _time(record), "level": record.levelname, "logger": record.name}
        tree["msg"] = record.getMessage()
        tree |= _present(getattr(record, "facts", {}))
        if record.exc_info:
            tree["trace"] = self.formatException(record.exc_info)
        return json.dumps(tree, default=str, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _present(facts: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = ",".join(map(str, value)) if isinstance(value, list | tuple | frozenset | set) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
