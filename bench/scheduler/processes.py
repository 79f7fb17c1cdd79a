"""Measured programs as processes: a server, and our scheduler or kube-scheduler."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.cluster.kube_apiserver import run_apiserver, write_kubeconfig

from plimsoll.client import Client
from plimsoll.client.kubeconfig import find_config

_TICKS = os.sysconf("SC_CLK_TCK")
_GATES = "DRANodeAllocatableResources=true"
#: What generates claims, and removes those of deleted pods.
_CONTROLLERS = "resourceclaim-controller,garbage-collector-controller"
#: Nodes without a kubelet are ready.
_NO_TAINTS = ("--disable-admission-plugins=TaintNodesByCondition",)
_PYTHON = (sys.executable, "-m", "plimsoll.cli.main")


@dataclass(frozen=True)
class Usage:
    """CPU time and memory of a process so far."""

    cpu: float  #: seconds
    peak: int  #: MiB


def usage_of(pid: int) -> Usage:
    place = Path(f"/proc/{pid}")
    fields = (place / "stat").read_text().rpartition(")")[2].split()
    peak = re.search(r"^VmHWM:\s+(\d+)", (place / "status").read_text(), re.MULTILINE)
    return Usage((int(fields[11]) + int(fields[12])) / _TICKS, int(peak[1]) >> 10 if peak else 0)


class Program:
    """Process with its log."""

    def __init__(self, name: str, command: list[str], directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)

    def usage(self) -> Usage:
        return usage_of(self._process.pid)

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


class Server(Protocol):
    """API server with its controllers."""

    kubeconfig: Path

    def usages(self) -> Mapping[str, Usage]:
        """Return what each of its processes has used; the first is the API server."""

    def stop(self) -> None: ...


def connect(server: Server) -> Client:
    return Client.connect(find_config(server.kubeconfig, environ={}))


class EmbeddedServer(Program):
    """`plimsoll server`, every write on disk before it is answered."""

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

    def usages(self) -> Mapping[str, Usage]:
        return {"server": self.usage()}


class RealServer:
    """kube-apiserver, etcd (without fsync) and, if found, kube-controller-manager of KUBEBUILDER_ASSETS."""

    def __init__(self, directory: Path) -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._stack = ExitStack()
        programs = find_assets()
        assert programs is not None
        data = directory / "kube"
        data.mkdir()
        try:
            before = _children()
            config = self._stack.enter_context(run_apiserver(programs, data, options=_NO_TAINTS))
            started = {name: pid for pid, name in _children().items() if pid not in before}
            self._pids = {name: started[name] for name in ("kube-apiserver", "etcd")}
            write_kubeconfig(self.kubeconfig, config, config.server)
            self._controllers: Program | None = None
            if find_assets("kube-controller-manager"):
                command = [str(programs / "kube-controller-manager"), *_kubeconfigs(self)]
                command += ["--secure-port=0", "--leader-elect=false", f"--controllers={_CONTROLLERS}"]
                command += ["--kube-api-qps=5000", "--kube-api-burst=5000"]
                self._controllers = Program("controllers", command, directory)
                self._stack.callback(self._controllers.stop)
        except BaseException:
            self._stack.close()
            raise

    def usages(self) -> Mapping[str, Usage]:
        usages = {name: usage_of(pid) for name, pid in self._pids.items()}
        return {**usages, "controllers": self._controllers.usage()} if self._controllers else usages

    def stop(self) -> None:
        self._stack.close()


def _children() -> Mapping[int, str]:
    """Return the names of the child processes of this one."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has ended
        if int(tail.split()[1]) == os.getpid():
            found[int(stat.parent.name)] = head.partition("(")[2]
    return found


SERVERS: Mapping[str, type[EmbeddedServer] | type[RealServer]] = {
    "embedded": EmbeddedServer,
    "real": RealServer,
}


def start_ours(server: Server, directory: Path) -> Program:
    """Start `plimsoll scheduler` as the default scheduler."""
    command = [*_PYTHON, "scheduler", "--kubeconfig", str(server.kubeconfig)]
    command += ["--scheduler-name", "default-scheduler", "--listen", "127.0.0.1:0"]
    return Program("scheduler", command, directory)


def start_theirs(server: Server, directory: Path) -> Program:
    """Start kube-scheduler with high client limits."""
    programs = find_assets()
    assert programs is not None
    command = [str(programs / "kube-scheduler"), *_kubeconfigs(server)]
    command += ["--secure-port=0", "--leader-elect=false", f"--feature-gates={_GATES}"]
    return Program("kube-scheduler", [*command, "--kube-api-qps=5000", "--kube-api-burst=5000"], directory)


def _kubeconfigs(server: Server) -> list[str]:
    return [f"--{kind}kubeconfig={server.kubeconfig}" for kind in ("", "authentication-", "authorization-")]


def find_assets(*programs: str) -> Path | None:
    """Return the directory KUBEBUILDER_ASSETS, if it has these programs."""
    directory = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere")
    return directory if all((directory / program).is_file() for program in programs) else None
