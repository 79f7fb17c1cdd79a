"""The end-to-end tests of the Go CPU driver, with our driver or with the Go driver.

    KUBEBUILDER_ASSETS=DIRECTORY python -m tests.real.go_cpu_suite [--mode individual] [--mapping] [--go]
        [--scheduler plimsoll] [-- OPTIONS OF GINKGO]

Besides the programs of Kubernetes, containerd and runc the directory has those of dra-driver-cpu: its suite
as `e2e.cpu`, `dracpu`, `dracpu-gatherinfo`, and `dracpuinfo`, `dracputester` and `dracpumetadata` of its test
image. docs/conformance.md has the commands that build them. Runs kube-apiserver, kube-controller-manager, a
scheduler and a kubelet with containerd, and the driver as a DaemonSet from an image. Port 8080 must be free.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml
from release.image import build_image

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import NODES, PODS
from tests.deploy.render import objects
from tests.real.e2e_clusters import real_server
from tests.real.images import Image
from tests.real.kubelet import RealNode, cannot_run
from tests.real.programs import ASSETS, Cluster, missing
from tests.waiting import until

_PROGRAMS = ("dracpu", "dracpu-gatherinfo", "dracpuinfo", "dracputester", "dracpumetadata", "e2e.cpu")
_OURS, _GO, _TESTER = (
    "docker.io/library/plimsoll:e2e",
    "docker.io/library/dracpu:e2e",
    "docker.io/library/dracputester:e2e",
)
_NAME, _NODE = "dracpu", "real"
Tree = dict[str, Any]


def settings(mode: str, *, mapping: bool, go: bool) -> Tree:
    """Return the configuration; ours has a setting for each difference that the suite tests."""
    fields: Tree = {"apiVersion": "v1alpha1", "cpuDeviceMode": mode}
    fields |= {"groupBy": "numanode"} if mode == "grouped" else {}
    if not go:
        fields |= {"shareAcrossContainers": False, "updateRunning": "never"}
        fields |= {"minSharedCPUs": 0, "allowEmptySharedPool": True}
    return fields | {"publishNodeAllocatableResourceMapping": mapping}


def driver_objects(kubeconfig: str, config: Tree, *, go: bool) -> list[Tree]:
    """Return the objects of the chart, under the names that the suite expects."""
    trees = objects(part="cpu-driver")
    (daemon_set,) = [tree for tree in trees if tree["kind"] == "DaemonSet"]
    daemon_set["metadata"] = {"name": _NAME, "namespace": "kube-system", "labels": {"app": _NAME}}
    daemon_set["spec"]["selector"] = {"matchLabels": {"app": _NAME}}
    template = daemon_set["spec"]["template"]
    template["metadata"]["labels"] = {"app": _NAME}
    spec = template["spec"]
    # There is no proxy of services; the driver reaches the server through its own address.
    spec |= {"serviceAccountName": "default", "automountServiceAccountToken": False}
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] != "config"]
    spec["volumes"].append({"name": "config", "configMap": {"name": f"{_NAME}-config"}})
    (container,) = spec["containers"]
    # Without requests: the pods of the suite request all CPUs of a small machine.
    container |= {"image": _GO if go else _OURS, "imagePullPolicy": "Never", "resources": {}}
    args = [*container["args"], "--kubeconfig=/etc/plimsoll/kubeconfig"]
    if go:
        args = [
            "/dracpu",
            "--v=4",
            *(each for each in args if each.startswith(("--config", "--kube", "--host"))),
        ]
        container["securityContext"] = {"privileged": True}
        for probe in ("livenessProbe", "readinessProbe"):
            container[probe]["httpGet"] = {"path": "/healthz", "port": 8080}
        del container["ports"]
    container["args"] = args
    config_map = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{_NAME}-config", "namespace": "kube-system"},
        "data": {"config.yaml": yaml.safe_dump(config), "kubeconfig": kubeconfig},
    }
    return [*(tree for tree in trees if tree["kind"] == "DeviceClass"), config_map, daemon_set]


async def install(cluster: Cluster, trees: list[Tree]) -> None:
    """Create the objects and wait until the pod of the driver is ready."""
    async with Client.connect(cluster.config()) as client:

        async def ready(endpoint: Any, namespace: str) -> bool:
            found = (await client.list(endpoint, namespace)).items
            conditions = [codec.decode_tree(raw)["status"].get("conditions", []) for raw in found]
            states = [{each["type"]: each["status"] for each in listed} for listed in conditions]
            return bool(states) and all(state.get("Ready") == "True" for state in states)

        await until(lambda: ready(NODES, ""))
        served = {(each.endpoint.group, each.endpoint.kind): each.endpoint for each in await discover(client)}
        for tree in trees:
            group = tree["apiVersion"].rpartition("/")[0]
            await client.create(served[group, tree["kind"]], tree)
        await until(lambda: ready(PODS, "kube-system"))


@contextmanager
def running(options: argparse.Namespace) -> Iterator[Cluster]:
    """Run the cluster, the node and the driver."""
    images = {
        _TESTER: Image({f"/{name}": str(ASSETS / name) for name in _PROGRAMS[2:5]}, ("/dracputester",)),
        _GO: Image({f"/{name}": str(ASSETS / name) for name in _PROGRAMS[:2]}, ()),
    }
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="g-", dir="/tmp")))
        for name in ("w", "n"):
            (directory / name).mkdir()
        cluster = stack.enter_context(real_server(directory / "w", options.scheduler, heartbeats=True))
        node = RealNode(directory / "n", _NODE, images, address="0.0.0.0")
        stack.callback(node.stop)
        if reason := node.start(cluster.kubeconfig):
            raise SystemExit(reason)
        if not options.go:
            build_image(directory / "plimsoll.tar", _OURS, None)
            node.import_image(directory / "plimsoll.tar")
        config = settings(options.mode, mapping=options.mapping, go=options.go)
        trees = driver_objects(cluster.kubeconfig.read_text(), config, go=options.go)
        try:
            asyncio.run(install(cluster, trees))
            yield cluster
        finally:
            if options.keep:
                subprocess.run(["cp", "-r", node.directory / "logs", options.keep], check=False)
                subprocess.run(["cp", node.directory / "kubelet.log", options.keep], check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", choices=("grouped", "individual"), default="grouped")
    parser.add_argument("--mapping", action="store_true", help="publish node allocatable resource mappings")
    parser.add_argument("--go", action="store_true", help="run the Go driver")
    parser.add_argument("--scheduler", choices=("kubernetes", "plimsoll"), default="kubernetes")
    parser.add_argument("--keep", type=Path, help="directory for the logs of pods and kubelet")
    parser.add_argument("suite", nargs="*", help="options of the suite, after --")
    options = parser.parse_args()
    if reason := cannot_run() or missing(*_PROGRAMS):
        raise SystemExit(reason)
    with running(options) as cluster:
        environment = {"KUBECONFIG": str(cluster.kubeconfig), "DRACPU_E2E_TARGET_NODE": _NODE}
        environment |= {"DRACPU_E2E_TEST_IMAGE": _TESTER}
        command = [ASSETS / "e2e.cpu", "--ginkgo.v", *options.suite]
        done = subprocess.run(command, env={**os.environ, **environment})
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
