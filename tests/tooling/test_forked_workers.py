"""Tests in forked workers: all are run once and reported, also those of a worker that dies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.waiting import DEADLINE

ROOT = Path(__file__).parents[2]
CASES = """
import os, pytest

@pytest.fixture(scope="module")
def shared():
    yield []

@pytest.mark.parametrize("number", range(60))
def test_many(number, shared, tmp_path):
    shared.append(number)
    assert shared == list(range(shared[0], number + 1))

def test_failing(): print("a last word"); assert 0
def test_without_its_fixture(missing): pass
@pytest.mark.skip(reason="because")
def test_skipped(): pass
@pytest.mark.xfail(strict=True)
def test_expected_to_fail(): assert 0
"""
DEADLY = """
import os
def test_fine(): pass
def test_deadly(): os.kill(os.getpid(), 9)
def test_left(): pass
"""


def run_pytest(tmp_path: Path, *options: str) -> tuple[int, str]:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugins = ("--disable-plugin-autoload", "-p", "tests.forked_workers", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", *plugins, "--forked", "2", *options, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    return done.returncode, done.stdout + done.stderr


def test_results_of_all_workers_are_reported(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    (tmp_path / "test_deadly.py").write_text(DEADLY)
    code, output = run_pytest(tmp_path)
    assert code == 1, output
    assert re.search(r"= 3 failed, 61 passed, 1 skipped, 1 xfailed, 1 error in", output), output
    assert "a last word" in output
    assert set(re.findall(r"^(?:FAILED|ERROR) .*::(\w+)", output, re.MULTILINE)) == {
        "test_failing",
        "test_without_its_fixture",
        "test_deadly",
        "test_left",
    }
    assert "worker ended with code -9 in this test" in output
    assert "not run: its worker ended" in output


def test_the_first_failure_ends_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    code, output = run_pytest(tmp_path, "-x")
    assert code == 1, output
    assert "stopping after 1 failures" in output


def test_a_run_without_failures(tmp_path: Path) -> None:
    (tmp_path / "test_cases.py").write_text(CASES)
    code, output = run_pytest(tmp_path, "-q", "-k", "many or skipped or expected")
    assert code == 0, output
    assert "60 passed, 1 skipped, 2 deselected, 1 xfailed" in output
