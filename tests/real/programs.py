"""Kubernetes programs as processes with their default settings, against our server."""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from plimsoll.client import ClientConfig
from tests.waiting import DEADLINE

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere")
#: What they say at any server.
_USUAL = re.compile("The manifest file is empty, ignoring")
#: What they say while a server is away.
_AWAY = re.compile(
    "connection refused|connection reset|EOF|Error retrieving lease lock|http2: client connection lost"
    "|is already assigned to node"  # a binding whose answer was lost
)


def missing(*names: str) -> str:
    """Return why a test cannot run, or an empty string."""
    absent = [name for name in names if not (ASSETS / name).is_file()]
    return f"no {' and no '.join(absent)}: set KUBEBUILDER_ASSETS to a directory with them" if absent else ""


@cache
def minor_version() -> int:
    """Return the minor version of the kube-apiserver: 36 for 1.36.4."""
    command = [str(ASSETS / "kube-apiserver"), "--version"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=DEADLINE).stdout
    return int(text.split(".")[1])


def skip_before(minor: int, why: str = "") -> None:
    """Skip the test if the kube-apiserver is older than 1.`minor`."""
    if minor_version() < minor:
        pytest.skip(f"kube-apiserver 1.{minor_version()}: needs 1.{minor}{why and f', {why}'}")


def emulate(release: str) -> list[str]:
    """Return the options with which a kube-apiserver emulates a release such as 1.34; none for ""."""
    if not release:
        return []
    skip_before(int(release.partition(".")[2]))
    return [f"--emulated-version=kube={release}"]


class Cluster(Protocol):
    """Running server, as tests and components see it."""

    @property
    def directory(self) -> Path: ...

    @property
    def kubeconfig(self) -> Path: ...

    def config(self) -> ClientConfig: ...


class Program:
    """kube-scheduler or kube-controller-manager, by default as the administrator of a server."""

    def __init__(self, name: str, server: Cluster, *options: str, kubeconfig: Path | None = None) -> None:
        self.name = name
        self.log = server.directory / f"{name}.log"
        kinds = ("", "authentication-", "authorization-")
        own = kubeconfig or server.kubeconfig
        command = [str(ASSETS / name), *(f"--{kind}kubeconfig={own}" for kind in kinds)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--secure-port=0", *options], stdout=log, stderr=subprocess.STDOUT
            )

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def complaints(self, *, away: bool = False) -> list[str]:
        """Return errors and panics in its log; `away`: the server was unreachable for a time."""
        found = []
        for line in self.text().splitlines():
            if not re.match(r"E\d{4} |panic:|fatal error:", line) or _USUAL.search(line):
                continue
            if not (away and _AWAY.search(line)):
                found.append(line)
        return found
