"""Pager of long reports: when one is used, and which."""

from __future__ import annotations

import os
import pty
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from plimsoll.cli.pager import pager_program
from tests.fork_server import start_forked
from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[3]
DUMP = str(ROOT / "examples" / "top" / "cluster.yaml")


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    for name in ("PAGER", "PLIMSOLL_PAGER"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("terminal")
def test_the_environment_names_the_pager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "sh -c cat")
    assert pager_program() == "sh -c cat"
    monkeypatch.setenv("PLIMSOLL_PAGER", "env")
    assert pager_program() == "env"
    for none in ("", " ", "cat", "no-such-pager-here"):
        monkeypatch.setenv("PLIMSOLL_PAGER", none)
        assert pager_program() == ""


def test_a_pipe_has_no_pager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_PAGER", "env")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert pager_program() == ""


Run = Callable[..., str]


@pytest.fixture
def run_on_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return partial(_run_on_terminal, tmp_path, monkeypatch)


def _run_on_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int, *words: str) -> str:
    """Return what a pager received from a command on a terminal with so many lines; "" if none was used."""
    pager = tmp_path / "pager"
    pager.write_text(f"#!/bin/sh\ncat > {tmp_path}/paged\n")
    pager.chmod(0o755)
    (tmp_path / "paged").unlink(missing_ok=True)
    monkeypatch.setenv("PLIMSOLL_PAGER", str(pager))
    monkeypatch.setenv("LINES", str(lines))
    master, slave = pty.openpty()
    try:
        start_forked(words, stdin=slave, stdout=slave, stderr=slave).wait(DEADLINE)
    finally:
        os.close(slave)
        os.close(master)
    paged = tmp_path / "paged"
    return paged.read_text() if paged.exists() else ""


def test_only_a_report_that_is_longer_than_the_terminal_is_paged(run_on_terminal: Run) -> None:
    words = ("top", "nodes", "--limit", "0", "-f", DUMP)
    assert "node-a" in run_on_terminal(5, *words)
    assert run_on_terminal(500, *words) == ""
    assert run_on_terminal(5, "--no-pager", *words) == ""
    assert run_on_terminal(5, *words, "-o", "json") == ""
