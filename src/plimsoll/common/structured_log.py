"""Structured logging: one line per event, as key=value text or as JSON.

A line holds a message and its fields: as text `bound pod=default/web node=n1`, as JSON one object with the
same names. Values with blanks or quotes are written as JSON strings, so that an event is always exactly one
line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

_PLAIN = re.compile(r"[^\s\"=\\]+")


def set_up_logging(
    form: str = "text",
    *,
    verbose: bool = False,
    level: int = logging.INFO,
    stream: TextIO | None = None,
    handlers: Sequence[logging.Handler] = (),
) -> None:
    """Configure the root logger: `form` is text or json, to a stream (default: standard error) or handlers.

    Messages of Plimsoll are logged from `level` on, or all if `verbose`; those of libraries from WARNING on.
    """
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    for handler in handlers or (logging.StreamHandler(stream or sys.stderr),):
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("plimsoll").setLevel(logging.DEBUG if verbose else level)


def log_event(logger: logging.Logger, message: str, /, level: int = logging.INFO, **fields: object) -> None:
    """Log an event with its fields in the order given; fields that are None or empty are omitted."""
    if logger.isEnabledFor(level):
        logger.log(level, message, extra={"fields": fields})


def format_line(message: str, fields: dict[str, object], form: str = "text") -> str:
    """Format an event as one line, without time and level."""
    if form == "json":
        return json.dumps({"msg": message, **_non_empty(fields)}, default=str, ensure_ascii=False)
    return " ".join(
        [message, *(f"{name}={_format_value(value)}" for name, value in _non_empty(fields).items())]
    )


class TextFormatter(logging.Formatter):
    """Formatter for text: `2026-01-31T12:00:00.000Z INFO plimsoll.scheduler bound pod=default/web`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        line = format_line(record.getMessage().replace("\n", " "), fields)
        text = f"{_format_time(record)} {record.levelname} {record.name} {line}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """Formatter for JSON lines: ts, level, logger, msg, and the fields."""

    def format(self, record: logging.LogRecord) -> str:
        tree: dict[str, Any] = {"ts": _format_time(record), "level": record.levelname, "logger": record.name}
        tree["msg"] = record.getMessage()
        tree |= _non_empty(getattr(record, "fields", {}))
        if record.exc_info:
            tree["trace"] = self.formatException(record.exc_info)
        return json.dumps(tree, default=str, ensure_ascii=False)


def _format_time(record: logging.LogRecord) -> str:
    when = datetime.fromtimestamp(record.created, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{int(record.msecs):03d}Z"


def _non_empty(fields: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = ",".join(map(str, value)) if isinstance(value, list | tuple | frozenset | set) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
