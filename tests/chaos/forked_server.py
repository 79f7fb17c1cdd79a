"""Server process that starts quickly."""

from __future__ import annotations

from pathlib import Path

from plimsoll.client import ClientConfig
from plimsoll.client.kubeconfig import find_config
from tests.chaos.forked import Forked


class ForkedServer(Forked):
    """`plimsoll server` on one data directory and port, which can be killed and restarted."""

    def __init__(self, directory: Path, options: str = "") -> None:
        self.kubeconfig = directory / "kubeconfig"
        self._directory = directory
        self._port = 0
        self._options = options
        super().__init__(directory / "server.log")

    def config(self) -> ClientConfig:
        return find_config(self.kubeconfig)

    def launch(self) -> None:
        """Start without waiting."""
        where = f"--data {self._directory / 'data'} --listen 127.0.0.1:{self._port}"
        self.run(f"server {where} --kubeconfig-out {self.kubeconfig} {self._options}")

    def await_ready(self) -> None:
        self._port = int(self.read(rb"serving the Kubernetes API at https://127\.0\.0\.1:(\d+)\n"))

    def start(self) -> None:
        self.launch()
        self.await_ready()
