"""The sampler of the fast watcher, compared with reading everything each time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from plimsoll.api.cpuset import CpuSet
from tests.chaos.cpuset_watcher import look
from tests.chaos.fast_watcher import Sampler

EVERY = CpuSet.parse("0-7")


class Containers:
    """Files of containers as the agent writes them, with processes that only wait."""

    def __init__(self, root: Path, dice: Random) -> None:
        self.root, self._dice = root, dice
        self._processes: list[subprocess.Popen[bytes]] = []
        self._count = 0

    def start(self) -> None:
        process = subprocess.Popen(["sleep", "1000"])
        self._processes.append(process)
        self._count += 1
        start = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19]
        directory = self.root / "pods" / f"p{self._dice.randrange(3)}" / "containers" / f"c{self._count}/0"
        directory.mkdir(parents=True)
        self._write(directory / "state.json", self._state())
        self._write(directory / "run.json", {"pid": process.pid, "pid_start": start})

    def _state(self) -> object:
        env = {"DRA_CPUSET_a": str(self._dice.randrange(8))} if self._dice.random() < 0.5 else {}
        spec = {"pod": "p", "name": "c", "env": env}
        return {"resources": {"cpus": self._dice.choice(["", "1", "2-3"])}, "spec": spec}

    def _write(self, path: Path, tree: object) -> None:
        path.with_suffix(".new").write_text(json.dumps(tree))
        path.with_suffix(".new").replace(path)

    def _attempts(self) -> list[Path]:
        return sorted(self.root.glob("pods/*/containers/*/*"))

    def change(self) -> None:
        if self._attempts():
            self._write(self._dice.choice(self._attempts()) / "state.json", self._state())

    def end(self) -> None:
        if self._attempts():
            (self._dice.choice(self._attempts()) / "exit.json").touch()

    def remove(self) -> None:
        if self._attempts():
            shutil.rmtree(self._dice.choice(self._attempts()).parent)

    def pin(self) -> None:
        if self._processes:
            cpus = self._dice.sample(sorted(os.sched_getaffinity(0)), 1)
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self._dice.choice(self._processes).pid, cpus)

    def kill(self) -> None:
        if self._processes:
            process = self._processes.pop(self._dice.randrange(len(self._processes)))
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

    def kill_only(self) -> None:
        """Kill a process that stays a zombie."""
        if self._processes:
            pid = self._dice.choice(self._processes).pid
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def clear(self) -> None:
        while self._processes:
            self.kill()


@pytest.fixture
def containers(tmp_path: Path, seed: int) -> Iterator[Containers]:
    made = Containers(tmp_path, Random(seed))
    yield made
    made.clear()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("real", [False, True])
def test_samples_are_what_a_full_look_finds(containers: Containers, seed: int, real: bool) -> None:
    dice = Random(seed)
    sampler = Sampler(containers.root, real=real, every=EVERY)
    acts = [containers.start] * 3 + [containers.change] * 3
    acts += [containers.end, containers.remove, containers.kill, containers.kill_only, containers.pin]
    seen = set()
    for _ in range(60):
        dice.choice(acts)()
        wanted = look(containers.root, real=real, every=EVERY)
        for _ in range(2):
            assert sorted(sampler.look(), key=str) == sorted(wanted, key=str)
        seen.add(len(wanted))
    assert len(seen) > 2
