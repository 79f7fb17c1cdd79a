"""Clusters for a real kubelet: all components ours, or all of Kubernetes.

Each has a server, controllers and a scheduler as processes, and kubeconfigs for a node, for the CPU driver
(with the rights that it has in earnest) and for an administrator.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from plimsoll.client import Client, ClientConfig
from plimsoll.client.discovery import discover
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.deploy.render import RELEASE, objects
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, missing
from tests.smoke.process import ServerProcess

#: Which worlds there are, and the programs they need.
CLUSTERS = {
    "plimsoll": (),
    "kubernetes": ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"),
}
_DRIVER = f"system:serviceaccount:{RELEASE['Namespace']}:{RELEASE['Name']}-cpu-driver"


@dataclass(frozen=True)
class RunningCluster:
    """Running cluster: its administrator's configuration, and kubeconfigs of others."""

    name: str
    config: ClientConfig
    admin: Path
    node: Path
    driver: Path


def cannot_run(cluster: str) -> str:
    return missing(*CLUSTERS[cluster])


@contextmanager
def run_cluster(name: str, directory: Path, node: str) -> Iterator[RunningCluster]:
    """Run a cluster that expects a node of this name."""
    with (_run_ours if name == "plimsoll" else _run_kubernetes)(directory, node) as cluster:
        yield cluster


@contextmanager
def _run_ours(directory: Path, node: str) -> Iterator[RunningCluster]:
    server = ServerProcess(directory)
    server.start()
    files = {}
    try:
        for who in ("scheduler", f"node:{node}", "driver:dra.cpu"):
            files[who] = directory / f"{who.partition(':')[0]}.kubeconfig"
            where = ("--data", server.data, "--server", server.url, "--out", files[who])
            subprocess.run(_ours("kubeconfig", who, *where), check=True, capture_output=True)
        options = ("--scheduler-name", "default-scheduler", "--listen", "")
        scheduler = Process(
            _ours("scheduler", "--kubeconfig", files["scheduler"], *options), directory / "scheduler.log"
        )
        scheduler.start()
        try:
            yield RunningCluster(
                "plimsoll", server.config(), server.kubeconfig, files[f"node:{node}"], files["driver:dra.cpu"]
            )
        finally:
            scheduler.stop()
    finally:
        server.stop()


@contextmanager
def _run_kubernetes(directory: Path, node: str) -> Iterator[RunningCluster]:
    nodes, driver = "system:nodes", "system:serviceaccounts"
    tokens = [
        (TOKEN, "admin", "system:masters"),
        ("of-the-node", f"system:node:{node}", nodes),
        ("of-the-driver", _DRIVER, driver),
    ]
    # Not in the server's own directory: that is gone with it.
    rows = (f'{token},{user},{number},"{group}"\n' for number, (token, user, group) in enumerate(tokens))
    (directory / "users.csv").write_text("".join(rows))
    (directory / "server").mkdir()
    option = f"--token-auth-file={directory / 'users.csv'}"
    with run_apiserver(ASSETS, directory / "server", options=(option,)) as config:
        files = {token: directory / f"{number}.kubeconfig" for number, (token, *_) in enumerate(tokens)}
        for token, path in files.items():
            path.write_text(yaml.safe_dump(kubeconfig_for(config.server, token)))
        admin = files[TOKEN]
        asyncio.run(_give_rights(config))
        own = tuple(f"--{kind}kubeconfig={admin}" for kind in ("", "authentication-", "authorization-"))
        programs = [
            Process(
                (ASSETS / name, *own, "--secure-port=0", "--leader-elect=false"), directory / f"{name}.log"
            )
            for name in ("kube-controller-manager", "kube-scheduler")
        ]
        for program in programs:
            program.start()
        try:
            yield RunningCluster("kubernetes", config, admin, files["of-the-node"], files["of-the-driver"])
        finally:
            for program in programs:
                program.stop()


async def _give_rights(config: ClientConfig) -> None:
    """Create the permissions of the manifests, for a driver that may write cgroups as well."""
    async with Client.connect(config) as client:
        served = {(each.endpoint.group, each.endpoint.kind): each.endpoint for each in await discover(client)}
        for tree in objects({"driver": {"config": {"enforcement": "cgroups"}}}):
            if tree["kind"] in ("ClusterRole", "ClusterRoleBinding"):
                await client.create(served["rbac.authorization.k8s.io", tree["kind"]], tree)


def _ours(*words: object) -> Sequence[str]:
    return [sys.executable, "-m", "plimsoll.cli.main", *map(str, words)]
