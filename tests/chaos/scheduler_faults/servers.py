"""API servers of the chaos test: the embedded one, or a real kube-apiserver."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from plimsoll.client import ClientConfig
from tests.chaos.forked_server import ForkedServer
from tests.cluster.kube_apiserver import run_apiserver, write_kubeconfig

#: What generates claims, releases them and removes those of deleted pods.
_CONTROLLERS = "resourceclaim-controller,garbage-collector-controller"


class Server(Protocol):
    """A server, which can be killed or has controllers of its own."""

    can_restart: bool

    def config(self) -> ClientConfig: ...

    def restart(self, seconds: float) -> None:
        """Kill the server and start it again after some seconds, with the same data."""

    def problems(self) -> list[str]:
        """Return unexpected log lines."""


class EmbeddedServer:
    """`plimsoll server`; its controllers are a process of their own."""

    can_restart = True

    def __init__(self, directory: Path) -> None:
        self._process = ForkedServer(directory, "--no-controllers")

    def config(self) -> ClientConfig:
        return self._process.config()

    def start(self) -> None:
        self._process.start()

    def restart(self, seconds: float) -> None:
        self._process.kill()
        time.sleep(seconds)
        self._process.start()

    def close(self) -> None:
        self._process.close()

    def problems(self) -> list[str]:
        return ["server: Traceback"] if "Traceback" in self._process.log.read_text() else []


class RealServer:
    """kube-apiserver, etcd and kube-controller-manager."""

    can_restart = False

    def __init__(self, config: ClientConfig) -> None:
        self._config = config

    def config(self) -> ClientConfig:
        return self._config

    def restart(self, seconds: float) -> None:
        raise NotImplementedError

    def problems(self) -> list[str]:
        return []


@contextmanager
def run_embedded_server(directory: Path) -> Iterator[Server]:
    server = EmbeddedServer(directory)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def run_real_server(assets: Path, directory: Path) -> Iterator[Server]:
    with ExitStack() as stack:
        data = directory / "kube"
        data.mkdir()
        config = stack.enter_context(run_apiserver(assets, data))
        kubeconfig = directory / "controllers.kubeconfig"
        write_kubeconfig(kubeconfig, config, config.server)
        log = stack.enter_context((directory / "controller-manager.log").open("wb"))
        kinds = ("", "authentication-", "authorization-")
        command = [str(assets / "kube-controller-manager"), "--secure-port=0", "--leader-elect=false"]
        command += [f"--{kind}kubeconfig={kubeconfig}" for kind in kinds]
        command.append(f"--controllers={_CONTROLLERS}")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        stack.callback(_end, process)
        yield RealServer(config)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
