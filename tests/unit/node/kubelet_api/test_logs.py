"""Container logs: selection, format, tails, following across rotations."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.errors import InputError
from plimsoll.node.kubelet_api.log_format import LogFormatter, LogOptions, parse_log_options
from plimsoll.node.kubelet_api.logs import LogFile, read_log
from plimsoll.node.runtime.container_log import ContainerLog
from tests.directories import short_directory

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOG = (
    b"2026-01-02T03:04:01.000000000Z stdout F one\n"
    b"2026-01-02T03:04:02.000000000Z stderr F two\n"
    b"2026-01-02T03:04:03.000000000Z stdout P thr\n"
    b"2026-01-02T03:04:03.500000000Z stdout F ee\n"
    b"2026-01-02T03:04:04.000000000Z stdout F \n"
)


async def collect(path: Path, **query: str) -> bytes:
    options = parse_log_options(query, NOW)
    return b"".join([chunk async for chunk in read_log(str(path), options)])


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ({}, b"one\ntwo\nthree\n\n"),
        ({"tailLines": "2"}, b"ee\n\n"),
        ({"tailLines": "0"}, b""),
        ({"tailLines": "99"}, b"one\ntwo\nthree\n\n"),
        ({"sinceSeconds": "2"}, b"three\n\n"),
        ({"sinceTime": "2026-01-02T04:04:04+01:00"}, b"\n"),
        ({"limitBytes": "5"}, b"one\nt"),
        ({"stream": "Stderr"}, b"two\n"),
        (
            {"timestamps": "true", "sinceSeconds": "2"},
            b"2026-01-02T03:04:03.000000000Z three\n2026-01-02T03:04:04.000000000Z \n",
        ),
    ],
)
def test_options_select_and_format(tmp_path: Path, query: dict[str, str], text: bytes) -> None:
    path = tmp_path / "log"
    path.write_bytes(LOG)
    assert asyncio.run(collect(path, **query)) == text


@pytest.mark.parametrize(
    "query",
    [
        {"tailLines": "-1"},
        {"limitBytes": "0"},
        {"sinceSeconds": "0"},
        {"sinceSeconds": "x"},
        {"sinceTime": "yesterday"},
        {"sinceTime": "2026-01-02T03:04:04Z", "sinceSeconds": "1"},
        {"follow": "maybe"},
        {"stream": "Both"},
    ],
)
def test_invalid_options_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(InputError, match="|".join(query)):
        parse_log_options(query, NOW)


@given(st.lists(st.text("ab\n ", max_size=12), max_size=20), st.integers(0, 25))
def test_a_tail_is_the_end_of_all_lines(parts: list[str], count: int) -> None:
    lines = [
        b"2026-01-02T03:04:01.000000000Z stdout F %s" % part.encode().replace(b"\n", b"") for part in parts
    ]
    with short_directory() as directory:
        (directory / "log").write_bytes(b"".join(line + b"\n" for line in lines))
        reader = LogFile(str(directory / "log"))
        reader.seek_tail(count)
        found = b""
        while piece := reader.read_lines():
            found += piece
        reader.close()
    assert found.splitlines() == lines[len(lines) - min(count, len(lines)) :]


def test_lines_in_another_format_are_skipped() -> None:
    assert LogFormatter(LogOptions()).format(b"nonsense\n" + LOG[:44]) == b"one\n"


async def test_a_log_is_followed_across_rotations_until_the_container_exits(tmp_path: Path) -> None:
    log = ContainerLog(str(tmp_path / "log"), 300, 5)
    log.feed(b"stdout", b"first\n")
    running = True
    options = parse_log_options({"follow": "true"}, NOW)
    chunks = read_log(str(tmp_path / "log"), options, lambda: running, poll_seconds=0)
    found = await anext(chunks)
    for number in range(100):
        log.feed(b"stdout", b"line %d\n" % number)
        while not found.endswith(b"line %d\n" % number):
            found += await anext(chunks)
    log.feed(b"stdout", b"no end")
    log.close()
    running = False
    async for chunk in chunks:
        found += chunk
    assert found == b"first\n" + b"".join(b"line %d\n" % number for number in range(100)) + b"no end"
