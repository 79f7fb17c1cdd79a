"""Store killed at any time: no acknowledged write is lost, no revision used twice, watches have no gaps."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(directory: Path, kills: int, seed: int, timeout: int) -> list[int]:
    command = [sys.executable, "-m", "tests.chaos.store_kills", str(directory), str(kills), str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    return [int(number) for number in re.findall(r"\d+", done.stdout)]


def test_a_few_kills(tmp_path: Path) -> None:
    kills, late, revisions, _, acknowledged = run(tmp_path, 12, 5, 300)
    assert kills > late
    assert acknowledged > revisions > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_hundreds_of_kills(tmp_path: Path, seed: int) -> None:
    _, late, revisions, floor, acknowledged = run(tmp_path, 200, seed, 900)
    assert late < 100
    assert acknowledged > revisions > 10_000
    assert floor > 0  # old rows were being deleted meanwhile
