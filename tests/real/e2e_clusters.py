"""Servers with controllers and a scheduler for upstream's e2e tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from plimsoll.client import ClientConfig
from plimsoll.controllers import NAMES
from tests.cluster.kube_apiserver import run_apiserver, write_kubeconfig
from tests.real.programs import ASSETS, Cluster, Program, minor_version
from tests.smoke.process import ServerProcess

_WORKLOADS = (
    "replicaset-controller",
    "replicationcontroller-controller",
    "deployment-controller",
    "job-controller",
    "cronjob-controller",
    "endpoints-controller",
    "endpointslice-controller",
)
#: Options of our server: which of its controllers run.
_SERVER_OPTIONS = {
    "ours": [],
    "workloads": ["--controllers=*" + "".join(f",-{name}" for name in NAMES if name in _WORKLOADS)],
    "upstream": ["--no-controllers"],
}
_EVERYTHING = "*,-node-ipam-controller"
#: Simulated nodes send no heartbeats.
_WITHOUT_HEARTBEATS = f"{_EVERYTHING},-node-lifecycle-controller"
#: Of kube-controller-manager with our server.
_GATES = ("DRAResourcePoolStatus", "DRADeviceTaintRules", "GenericWorkload", "DRAWorkloadResourceClaims")
_REAL_APIS = tuple(f"resource.k8s.io/{version}" for version in ("v1beta1", "v1beta2", "v1alpha3"))


def real_gates() -> tuple[str, ...]:
    """Return the gates of every component of a real control plane; 1.37 has none for gangs."""
    gates = (*_GATES, "DRANodeAllocatableResources", "DRAListTypeAttributes")
    return gates if minor_version() > 36 else (*gates, "GangScheduling")


def _on(names: Sequence[str]) -> str:
    return ",".join(f"{name}=true" for name in names)


@dataclass(frozen=True)
class RealServer:
    """kube-apiserver that runs."""

    directory: Path
    kubeconfig: Path
    client_config: ClientConfig

    def config(self) -> ClientConfig:
        return self.client_config


def _command(*words: object) -> list[str]:
    return [sys.executable, "-m", "plimsoll.cli.main", *map(str, words)]


def _kubeconfig(server: ServerProcess, user: str) -> Path:
    path = server.directory / f"{user}.kubeconfig"
    where = ("--data-dir", server.data, "--server", server.url, "--out", path)
    subprocess.run(_command("kubeconfig", user, *where), check=True, capture_output=True)
    return path


@contextmanager
def _scheduler(cluster: Cluster, which: str, kubeconfig: Path) -> Iterator[None]:
    if which == "kubernetes":
        gates = f"--feature-gates={_on(real_gates())}"
        program = Program("kube-scheduler", cluster, "--leader-elect=false", gates, kubeconfig=kubeconfig)
        try:
            yield
        finally:
            program.stop()
        return
    options = ("--kubeconfig", kubeconfig, "--scheduler-name", "default-scheduler", "--listen", "")
    with (cluster.directory / "scheduler.log").open("wb") as log:
        process = subprocess.Popen(_command("scheduler", *options), stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


@contextmanager
def our_server(directory: Path, scheduler: str, controllers: str) -> Iterator[Cluster]:
    """Run our server with a scheduler, and kube-controller-manager if it is asked for."""
    volumes = ("--volumes-dir", str(directory / "volumes"))
    server = ServerProcess(directory, *_SERVER_OPTIONS[controllers], *volumes)
    server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        stack.enter_context(_scheduler(server, scheduler, _kubeconfig(server, "scheduler")))
        if controllers != "ours":
            names = ",".join(_WORKLOADS)
            manager = Program(
                "kube-controller-manager",
                server,
                "--leader-elect=false",
                "--use-service-account-credentials",
                f"--root-ca-file={server.data}/ca.crt",
                f"--controllers={names if controllers == 'workloads' else _WITHOUT_HEARTBEATS}",
                f"--feature-gates={_on(_GATES)}",
                kubeconfig=_kubeconfig(server, "controller-manager"),
            )
            stack.callback(manager.stop)
        yield server


@contextmanager
def real_server(directory: Path, scheduler: str, *, heartbeats: bool) -> Iterator[Cluster]:
    """Run kube-apiserver, kube-controller-manager and a scheduler."""
    files = directory / "server"
    files.mkdir(exist_ok=True)
    groups = f"scheduling.k8s.io/{'v1beta1' if minor_version() > 36 else 'v1alpha2'}"
    apis = f"--runtime-config={_on((*_REAL_APIS, groups))}"
    options = ("--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP", apis)
    with ExitStack() as stack:
        config = stack.enter_context(run_apiserver(ASSETS, files, _on(real_gates()), options))
        kubeconfig = directory / "kubeconfig"
        write_kubeconfig(kubeconfig, config, config.server)
        server = RealServer(directory, kubeconfig, config)
        stack.enter_context(_scheduler(server, scheduler, kubeconfig))
        manager = Program(
            "kube-controller-manager",
            server,
            "--leader-elect=false",
            f"--root-ca-file={files / 'certs' / 'apiserver.crt'}",
            f"--service-account-private-key-file={files / 'sa.key'}",
            f"--controllers={_EVERYTHING if heartbeats else _WITHOUT_HEARTBEATS}",
            f"--feature-gates={_on(real_gates())}",
        )
        stack.callback(manager.stop)
        yield server
