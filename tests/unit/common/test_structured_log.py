"""Structured log lines: text and JSON, always exactly one line per event."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common.structured_log import format_line, log_event, set_up_logging

LOG = logging.getLogger("plimsoll.scheduler")


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Restore the logging configuration afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("plimsoll")
    handlers, levels = list(root.handlers), (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def test_text_lines(restored_logging: None) -> None:
    stream = io.StringIO()
    set_up_logging("text", stream=stream)
    log_event(
        LOG,
        "bound",
        pod="default/web",
        node="n1",
        attempts=2,
        ms=1.5,
        preempted=["a", "b"],
        note="",
        why=None,
    )
    log_event(LOG, "refused", pod="default/web", why='0/3 nodes are available: 3 "x".')
    log_event(LOG, "detail", level=logging.DEBUG)
    first, second = stream.getvalue().splitlines()
    time, rest = first.split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == "INFO plimsoll.scheduler bound pod=default/web node=n1 attempts=2 ms=1.5 preempted=a,b"
    assert second.endswith(r'refused pod=default/web why="0/3 nodes are available: 3 \"x\"."')


def test_json_lines(restored_logging: None) -> None:
    stream = io.StringIO()
    set_up_logging("json", verbose=True, stream=stream)
    log_event(LOG, "bound", pod="default/web", attempts=2)
    log_event(LOG, "detail", level=logging.DEBUG)
    try:
        raise ValueError("no")
    except ValueError:
        LOG.exception("it broke")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["msg"] for line in lines] == ["bound", "detail", "it broke"]
    assert lines[0]["attempts"] == 2
    assert lines[0]["level"] == "INFO"
    assert "ValueError: no" in lines[2]["trace"]


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.text(min_size=1)))
def test_an_event_is_one_line_and_can_be_parsed_back(fields: dict[str, str]) -> None:
    text = format_line("word", dict(fields))
    assert "\n" not in text
    assert "\r" not in text
    rest, found = text.removeprefix("word"), {}
    while rest:
        name, _, rest = rest.removeprefix(" ").partition("=")
        if rest.startswith('"'):
            found[name], end = json.JSONDecoder().raw_decode(rest)
            rest = rest[end:]
        else:
            found[name], _, rest = rest.partition(" ")
            rest = f" {rest}" if rest else ""
    assert found == fields
    assert json.loads(format_line("word", dict(fields), "json")) == {"msg": "word", **fields}
