"""Peers of an agent in their own processes, built from the public `.proto` files only.

Owns `make_stubs` and `DriverProcess`, which runs `driver.py`: chaos, playbooks and smoke tests share it.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from grpc_tools import protoc

from tests.waiting import DEADLINE, wait_until

_PROTOS = Path(__file__).parents[2] / "src" / "plimsoll" / "protocols" / "proto"


def make_stubs(directory: Path, *names: str) -> Path:
    """Copy `.proto` files into a directory and generate code there; by default all that a driver needs."""
    directory.mkdir(parents=True, exist_ok=True)
    names = names or ("registration", "dra_v1", "dra_v1beta1", "health_v1", "health_v1alpha1")
    for name in names:
        shutil.copy(_PROTOS / f"{name}.proto", directory)
    files = [f"{name}.proto" for name in names]
    options = [f"-I{directory}", f"--python_out={directory}", f"--grpc_python_out={directory}"]
    assert protoc.main(["protoc", *options, *files]) == 0
    return directory


class DriverProcess:
    """`driver.py` as a process; every start uses the same files."""

    def __init__(
        self, root: Path, stubs: Path, directory: Path, *options: str, name: str = "peer.example.com"
    ):
        """`directory` has its log and the files that configure its behavior and devices."""
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._log = directory / "log.jsonl"
        self._errors = directory / "errors.txt"
        self._behave = directory / "behave.json"
        self._health = directory / "health.json"
        script = Path(__file__).with_name("driver.py")
        self._command = [sys.executable, "-I", str(script), f"--stubs={stubs}", f"--root={root}"]
        self._command += [f"--driver={name}", f"--log={self._log}", f"--behave={self._behave}"]
        self._command += [f"--health={self._health}", *options]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> DriverProcess:
        """Start it and wait until it serves."""
        before = len(self.events("start"))
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(self._command, stdout=errors, stderr=errors)
        self.wait(lambda: len(self.events("start")) > before)
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop it with SIGTERM or another signal; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            return process.wait(DEADLINE)
        finally:
            process.kill()
            process.wait()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def behave(self, **how: Any) -> None:
        """Set its behavior from now on (see `driver.py`); without arguments, normal behavior."""
        _replace(self._behave, how)

    def set_health(self, devices: Sequence[dict[str, Any]]) -> None:
        _replace(self._health, list(devices))

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return its events since the first start, oldest first."""
        try:
            lines = self._log.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return []
        found = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [event for event in found if not kinds or event["event"] in kinds]

    def wait(self, condition: Callable[[], object]) -> None:
        """Block until a condition is true; AssertionError with the log if the process ends before."""

        def log() -> str:
            return self._errors.read_text(errors="replace")[-2000:]

        def check() -> object:
            found = condition()
            assert found or self.alive, f"the driver ended: {log()}"
            return found

        wait_until(check, context=log)


def _replace(path: Path, value: Any) -> None:
    hidden = path.with_suffix(".new")
    hidden.write_text(json.dumps(value))
    hidden.rename(path)
