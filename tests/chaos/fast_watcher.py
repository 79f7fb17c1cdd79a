"""Watcher of containers in a process of its own, which samples them every few milliseconds.

    python -m tests.chaos.fast_watcher DIRECTORY CPUS [--real]

Runs with a high priority, if that is allowed, until its input is closed. Prints each violation as a line of
JSON as soon as it has seen it, and at the end the number of samples and the time between them.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from plimsoll.api.cpuset import CpuSet
from tests.chaos.cpuset_watcher import CpusetWatcher, ObservedContainer, load, look

#: Seconds between two samples, less the time that one takes.
_PAUSE = 0.003


class FileCache:
    """Contents of JSON files, parsed again only when a file was replaced."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, ...], Any]] = {}

    def load(self, path: Path) -> Any:
        found = path.stat()
        version = (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = self._known[path] = (version, load(path))
        return known[1]


class _Sampler(CpusetWatcher):
    def __init__(self, root: Path, *, real: bool, every: CpuSet) -> None:
        super().__init__(root, real=real, every=every)
        self._files = FileCache()

    def look(self) -> list[ObservedContainer]:
        return look(self._root, real=self._real, every=self._every, load=self._files.load)


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
    sampler = _Sampler(options.directory, real=options.real, every=options.cpus)
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
