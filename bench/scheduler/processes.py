"""Measured programs as processes: a server, and our scheduler or kube-scheduler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from plimsoll.client import Client
from plimsoll.client.kubeconfig import find_config

_TICKS = os.sysconf("SC_CLK_TCK")
_GATES = "DRANodeAllocatableResources=true"
_PYTHON = (sys.executable, "-m", "plimsoll.cli.main")


@dataclass(frozen=True)
class Usage:
    """CPU time and memory of a process so far."""

    cpu: float  #: seconds
    peak: int  #: MiB


class Program:
    """Process with its log."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def usage(self) -> Usage:
        place = Path(f"/proc/{self._process.pid}")
        fields = (place / "stat").read_text().rpartition(")")[2].split()
        peak = re.search(r"^VmHWM:\s+(\d+)", (place / "status").read_text(), re.MULTILINE)
        return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(peak[1]) >> 10 if peak else 0)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Server(Program):
    """`plimsoll server` with its controllers, every write on disk before it is answered."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        options = ["--data", str(directory / "data"), "--listen", "127.0.0.1:0"]
        command = [*_PYTHON, "server", *options, "--kubeconfig-out", str(self.kubeconfig)]
        super().__init__("server", command, directory)
        deadline = time.monotonic() + 60
        while not (self.kubeconfig.exists() and b"serving" in self.log.read_bytes()):
            assert self.alive, self.log.read_text()
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.02)

    def client(self) -> Client:
        return Client.connect(find_config(self.kubeconfig, environ={}))


def start_ours(server: Server, directory: Path) -> Program:
    """Start `plimsoll scheduler` as the default scheduler."""
    command = [*_PYTHON, "scheduler", "--kubeconfig", str(server.kubeconfig)]
    command += ["--scheduler-name", "default-scheduler", "--listen", "127.0.0.1:0"]
    return Program("scheduler", command, directory)


def start_theirs(server: Server, directory: Path) -> Program:
    """Start kube-scheduler with high client limits."""
    kinds = ("", "authentication-", "authorization-")
    command = [str(kube_scheduler()), *(f"--{kind}kubeconfig={server.kubeconfig}" for kind in kinds)]
    command += ["--secure-port=0", "--leader-elect=false", f"--feature-gates={_GATES}"]
    return Program("kube-scheduler", [*command, "--kube-api-qps=5000", "--kube-api-burst=5000"], directory)


def kube_scheduler() -> Path | None:
    """Return the kube-scheduler in KUBEBUILDER_ASSETS, if there is one."""
    program = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere") / "kube-scheduler"
    return program if program.is_file() else None
