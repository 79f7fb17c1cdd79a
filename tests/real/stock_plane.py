"""Control plane as people have it: default gates, kube-scheduler, and our scheduler for pods with claims.

Owns `StockPlane`: every program can be killed and started again. The namespace of placeholders enforces the
restricted Pod Security Standard.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, PRIORITY_CLASSES
from plimsoll.errors import ApiError
from plimsoll.ledger.placeholders import NAMESPACE, PRIORITY, PRIORITY_CLASS
from tests.cluster.kube_apiserver import TOKEN, ApiServer, kubeconfig_for, run_etcd_and_apiserver
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, minor_version

Tree = dict[str, Any]
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
#: Of the pod network, which has no images to pull.
PLACEHOLDER_IMAGE = "docker.io/local/pause:1"
#: Not the controllers of node leases: simulated kubelets have none.
_CONTROLLERS = (
    "resourceclaim-controller,garbage-collector-controller,namespace-controller,"
    "pod-garbage-collector-controller,disruption-controller"
)
_FAST = ("--kube-api-qps=1000", "--kube-api-burst=2000")


class StockPlane:
    """Programs of a control plane."""

    def __init__(self, directory: Path, server: ApiServer, *, placeholders: str) -> None:
        self.directory, self.server = directory, server
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig_for(server.config.server, TOKEN)))
        own = tuple(
            f"--{kind}kubeconfig={self.kubeconfig}" for kind in ("", "authentication-", "authorization-")
        )
        own = (*own, "--secure-port=0", "--leader-elect=false")
        self.controllers = Process(
            (ASSETS / "kube-controller-manager", *own, *_FAST, f"--controllers={_CONTROLLERS}"),
            directory / "kube-controller-manager.log",
        )
        self.kube_scheduler = Process(
            (ASSETS / "kube-scheduler", *own, f"--config={self._write_kube_scheduler()}"),
            directory / "kube-scheduler.log",
        )
        settings = {
            "kind": "SchedulerConfiguration",
            "queue": {"initialBackoff": "200ms", "maxBackoff": "1s"},
            "placeholders": {"mode": placeholders, "image": PLACEHOLDER_IMAGE},
        }
        config = directory / "scheduler.yaml"
        config.write_text(yaml.safe_dump(settings))
        command = (sys.executable, "-m", "plimsoll.cli.main", "scheduler", "--config", config)
        self.scheduler = Process(
            (*command, "--kubeconfig", self.kubeconfig, "--listen", ""), directory / "scheduler.log"
        )

    def _write_kube_scheduler(self) -> Path:
        path = self.directory / "kube-scheduler.yaml"
        tree = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 1000, "burst": 2000},
            "leaderElection": {"leaderElect": False},
            "podInitialBackoffSeconds": 1,
            "podMaxBackoffSeconds": 1,
        }
        path.write_text(yaml.safe_dump(tree))
        return path

    @staticmethod
    async def prepare(client: Client) -> None:
        """Create what the installation creates, if it is not there: the namespace and the priority class."""
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        priority = {"metadata": {"name": PRIORITY_CLASS}, "value": PRIORITY, "preemptionPolicy": "Never"}
        for endpoint, tree in (
            (NAMESPACES, {"metadata": {"name": NAMESPACE, "labels": labels}}),
            (PRIORITY_CLASSES, priority),
        ):
            try:
                await client.create(endpoint, tree)
            except ApiError as error:
                if error.code != 409:
                    raise

    @contextmanager
    def running(self) -> Iterator[None]:
        programs = (self.controllers, self.kube_scheduler, self.scheduler)
        for program in programs:
            program.start()
        try:
            yield
        finally:
            for program in programs:
                program.stop()

    async def restart(self, program: Process) -> None:
        """Kill a program and start it again."""
        await asyncio.to_thread(program.stop, signal.SIGKILL)
        program.start()

    async def restart_server(self, gates: str = "") -> None:
        await asyncio.to_thread(self.server.stop, kill=True)
        await asyncio.to_thread(self.server.start, gates or _default_gates())


@contextmanager
def run_stock_plane(directory: Path, *, placeholders: str = "Auto", gates: str = "") -> Iterator[StockPlane]:
    """Run a server; the caller prepares it and runs the other programs."""
    (directory / "server").mkdir()
    with run_etcd_and_apiserver(ASSETS, directory / "server", gates or _default_gates()) as server:
        yield StockPlane(directory, server, placeholders=placeholders)


def _default_gates() -> str:
    """Return the gates of devices that claims share: on by default from 1.36 on."""
    return "" if minor_version() >= 36 else "DRAConsumableCapacity=true"
