"""Cases of fixed seeds, planted faults, and repeatability.

Each test runs the simulator in a process of its own, because its clocks replace those of the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.simulation.shrink import shrink
from tests.waiting import DEADLINE

_STOCK, _NODES = ("--mode", "STOCK"), ("--mode", "NODES")
#: Faults that a few cases find.
_QUICK = {
    "assumption-forgotten-too-early": (),
    "charge-not-written": ("--mode", "CONTROL_PLANE"),
    "event-lost": ("--mode", "CONTROL_PLANE"),
    "placeholder-not-created": _STOCK,
    "reservation-kept": (),
    "wake-up-lost": ("--mode", "CONTROL_PLANE"),
}
#: Faults that need more.
_RARE = {
    "device-prepared-twice": _NODES,
    "event-out-of-order": ("--mode", "CONTROL_PLANE"),
    "leader-goes-on": ("--mode", "CONTROL_PLANE"),
    "new-leader-does-not-fence": ("--mode", "CONTROL_PLANE"),
    "new-leader-trusts-its-cache": ("--mode", "CONTROL_PLANE"),
    "release-without-its-allocation": ("--mode", "CONTROL_PLANE"),
    "taint-not-seen": ("--mode", "CONTROL_PLANE"),
    "unanswered-write-not-fenced": ("--mode", "CONTROL_PLANE"),
}


def simulate(*arguments: object, seconds: float = 2 * DEADLINE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.simulation", *map(str, arguments)],
        env=os.environ | {"PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def check(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("seed", [1, 1001, 2001, 3001])
def test_fixed_seeds(seed: int) -> None:
    check(simulate("--seed", seed, "--cases", 8))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_new_seeds(part: int) -> None:
    seed = int(time.time()) * 10_000 + part * 1_000_000_000
    check(simulate("--seed", seed, "--cases", 100_000, "--seconds", 300, seconds=1200))


def test_a_seed_gives_the_same_history() -> None:
    first, second = (simulate("--seed", 7, "--cases", 3) for _ in range(2))
    check(first)
    histories = [line for line in first.stdout.splitlines() if line.startswith("seed")]
    assert len(histories) == 3
    assert histories == [line for line in second.stdout.splitlines() if line.startswith("seed")]


def find(fault: str, options: tuple[str, ...], cases: int, seconds: float) -> None:
    done = simulate("--seed", 1, "--cases", cases, "--plant", fault, *options, seconds=seconds)
    assert done.returncode == 1, f"{fault} was not found: {done.stdout[-1000:]}{done.stderr[-1000:]}"
    assert ", 1 failed" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("fault", _QUICK)
def test_planted_faults_are_found(fault: str) -> None:
    find(fault, _QUICK[fault], 60, 2 * DEADLINE)


@pytest.mark.slow
@pytest.mark.parametrize("fault", _RARE)
def test_rare_planted_faults_are_found(fault: str) -> None:
    find(fault, _RARE[fault], 2000, 3600)


def test_a_failing_case_is_shrunk() -> None:
    needed = {"b", "e", "h"}
    keys = [chr(ord("a") + number) for number in range(20)]
    assert shrink(keys, lambda some: needed <= some) == ["b", "e", "h"]
    assert shrink(keys, lambda some: "c" in some or "d" in some) in (["c"], ["d"])
