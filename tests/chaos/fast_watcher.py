"""Watcher of containers in a process of its own, which samples them every few milliseconds.

    python -m tests.chaos.fast_watcher DIRECTORY CPUS [--real]

Runs with a high priority, if that is allowed, until its input is closed. Prints each violation as a line of
JSON as soon as it has seen it, and at the end the number of samples and the time between them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from operator import is_
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet
from tests.chaos.cpuset_watcher import CpusetWatcher, ObservedContainer, read

#: Seconds between two samples, less the time that one takes.
_PAUSE = 0.003
#: Nanoseconds that are longer than a tick of the kernel.
_TICK = 50_000_000
_STATE = re.compile(rb"(?m)^(?:State|Cpus_allowed_list):.*")


class Directory:
    """Subdirectories of a directory, listed again only when it has changed."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed = -1
        self._found: list[str] = []

    def list(self) -> list[str]:
        """Return the paths of the subdirectories."""
        try:
            changed = os.stat(self._path).st_mtime_ns
            if changed != self._changed:
                with os.scandir(self._path) as entries:
                    self._found = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
                # Times of files are those of the kernel's last tick: more may change in the same one.
                self._changed = changed if time.time_ns() - changed > _TICK else -1
        except OSError:
            self._changed, self._found = -1, []
        return self._found


class Attempt:
    """Container in a directory, read again only when its files or its process have changed."""

    def __init__(self, path: str, *, real: bool, every: CpuSet) -> None:
        self._path, self._real, self._every = Path(path), real, every
        self._version: object = None
        self._found: ObservedContainer | None = None
        #: Open `/proc` file of the process: reading it fails as soon as that very process is gone.
        self._process: int | None = None

    def __del__(self) -> None:
        self._close()

    def look(self) -> ObservedContainer | None:
        version = self._see_version()
        if version is None or version != self._version:
            # The version was seen before the files are read, so a later change has another one.
            self._version = version
            self._set(read(self._path, real=self._real, every=self._every))
        return self._found

    def _see_version(self) -> object:
        """Return something that differs when `read` may differ; None if that is not known."""
        try:
            files = [_version_of(f"{self._path}/{name}") for name in ("run.json", "state.json")]
            if self._process is None or os.path.exists(f"{self._path}/exit.json"):
                return None
            text = os.pread(self._process, 4096, 0)
        except OSError:
            return None
        if self._real:
            return *files, _STATE.findall(text)
        return *files, text.rpartition(b")")[2][:2]

    def _set(self, found: ObservedContainer | None) -> None:
        if found is None or self._found is None or found.pid != self._found.pid:
            self._close()
        self._found = found
        if found is not None and self._process is None:
            with suppress(OSError):
                self._process = os.open(
                    f"/proc/{found.pid}/{'status' if self._real else 'stat'}", os.O_RDONLY
                )

    def _close(self) -> None:
        if self._process is not None:
            os.close(self._process)
        self._process = None


def _version_of(path: str) -> tuple[int, ...]:
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


class Sampler(CpusetWatcher):
    """Watcher that reads only what has changed since its last sample."""

    def __init__(self, root: Path, *, real: bool, every: CpuSet) -> None:
        super().__init__(root, real=real, every=every)
        self._directories: dict[str, Directory] = {}
        self._attempts: dict[str, Attempt] = {}
        self._judged: list[ObservedContainer] = []

    def look(self) -> list[ObservedContainer]:
        directories, attempts = self._directories, self._attempts
        self._directories, self._attempts = {}, {}

        def list_(path: str) -> list[str]:
            self._directories[path] = directory = directories.get(path) or Directory(path)
            return directory.list()

        found = []
        for pod in list_(f"{self._root}/pods"):
            for name in list_(f"{pod}/containers"):
                for path in list_(name):
                    attempt = attempts.get(path) or Attempt(path, real=self._real, every=self._every)
                    self._attempts[path] = attempt
                    if box := attempt.look():
                        found.append(box)
        return found

    def judge(self, boxes: list[ObservedContainer]) -> None:
        if len(boxes) != len(self._judged) or not all(map(is_, boxes, self._judged)):
            self._judged = boxes
            super().judge(boxes)


class FastWatcher(CpusetWatcher):
    """The watcher in a process of its own."""

    def __init__(self, root: Path, *, real: bool, every: CpuSet) -> None:
        super().__init__(root, real=real, every=every)
        self._process: subprocess.Popen[bytes] | None = None
        #: Median milliseconds between samples, and the percentage of those below 10 ms; known after `stop`.
        self.gaps = (0.0, 0)

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.chaos.fast_watcher", str(self._root), str(self._every)]
        command += ["--real"] if self._real else []
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._thread = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._thread.join()
        if self._process.wait():
            self.error = f"the watcher ended with {self._process.returncode}"

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if "wrong" in event:
                self.wrongs[event["wrong"]] = None
            else:
                self.looks, self.gaps = event["samples"], (event["median"], event["below10"])


def _print(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("cpus", type=CpuSet.parse)
    parser.add_argument("--real", action="store_true", help="read the CPUs from /proc")
    options = parser.parse_args()
    with suppress(OSError):
        os.nice(-19)
    sampler = Sampler(options.directory, real=options.real, every=options.cpus)
    gaps: list[float] = []
    known: set[str] = set()
    last = time.monotonic()
    while not select.select([sys.stdin], [], [], _PAUSE)[0]:
        sampler.judge(sampler.look())
        for wrong in sampler.wrongs.keys() - known:
            known.add(wrong)
            _print({"wrong": wrong})
        now = time.monotonic()
        gaps.append((now - last) * 1000)
        last = now
    below = sum(gap < 10 for gap in gaps) * 100 // max(1, len(gaps))
    median = statistics.median(gaps) if gaps else 0.0
    _print({"samples": len(gaps), "median": median, "below10": below})


if __name__ == "__main__":
    main()
