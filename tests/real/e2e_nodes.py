"""Nodes for upstream's e2e tests: simulated ones, or kubelets or our agents with containerd."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES
from plimsoll.client.responses import ObjectList
from plimsoll.controllers.bootstrap import ensure_default_class
from tests.real.images import Image, with_busybox
from tests.real.kubelet import Process, RealNode
from tests.real.machines import Machines, Tree
from tests.real.pod_network import pod_network
from tests.real.programs import ASSETS, Cluster
from tests.waiting import until

_SIMULATED = ("node-1", "node-2", "node-3", "node-4")
_REAL = ("node-1", "node-2")
#: Files in KUBEBUILDER_ASSETS that stand in for images of the same name.
IMAGE_PROGRAMS = ("agnhost", "hostpathplugin", "pause", "sampledeviceplugin")
#: An image that `e2e.test` does not list.
_DEVICE_PLUGIN = "registry.k8s.io/e2e-test-images/sample-device-plugin:1.7"


class RunningPods(Machines):
    """Nodes whose pods run once a scheduler has bound them, and never end by themselves."""

    async def _add(self, name: str) -> None:
        await super()._add(name)
        labels = {f"kubernetes.io/{key}": value for key, value in _labels(name).items()}
        await self._client.patch(NODES, name, {"metadata": {"labels": labels}, "spec": {"taints": None}})
        addresses = [{"type": "InternalIP", "address": f"10.2.0.{name[-1]}"}]
        await self._client.patch(NODES, name, {"status": {"addresses": addresses}}, subresource="status")

    async def _bind(self, pod: Tree) -> None:
        """Leave the pod to the scheduler."""

    async def _run(self, pod: Tree) -> None:
        await super()._run({**pod, "spec": {**pod["spec"], "restartPolicy": "Always"}})


def _labels(name: str) -> dict[str, str]:
    return {"hostname": name, "os": "linux", "arch": "amd64"}


@asynccontextmanager
async def simulated_nodes(cluster: Cluster) -> AsyncIterator[None]:
    """Run four nodes that report bound pods as running."""
    async with Client.connect(cluster.config()) as client, RunningPods(client, *_SIMULATED).running():
        yield


@asynccontextmanager
async def real_nodes(cluster: Cluster, gates: Mapping[str, bool]) -> AsyncIterator[None]:
    """Run two kubelets with containerd until both are ready to run pods."""
    images = _images()
    async with AsyncExitStack() as stack:
        network = stack.enter_context(pod_network(cluster.directory))
        for name in _REAL:
            # Sockets have short paths.
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="e2e-", dir="/tmp")))
            node = RealNode(directory, name, images, gates, "0.0.0.0", network)
            stack.callback(node.stop)
            if reason := await asyncio.to_thread(node.start, cluster.kubeconfig):
                raise AssertionError(reason)
        client = await stack.enter_async_context(Client.connect(cluster.config()))
        await until(lambda: client.list(NODES), _are_ready)
        yield


@asynccontextmanager
async def agent_nodes(cluster: Cluster) -> AsyncIterator[None]:
    """Run two agents of ours with containerd (`--runtime cri`) until both are ready to run pods."""
    images = _images()
    async with AsyncExitStack() as stack:
        network = stack.enter_context(pod_network(cluster.directory))
        # Each has an address, so that each can serve the kubelet API on port 10250, which some tests use.
        addresses = f"127.{random.randrange(1, 255)}.{random.randrange(255)}."
        for place, name in enumerate(_REAL, 1):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="e2e-", dir="/tmp")))
            node = RealNode(directory, name, images, network=network)
            stack.callback(node.stop)
            if reason := await asyncio.to_thread(node.start_runtime):
                raise AssertionError(reason)
            options = (
                *("--kubeconfig", cluster.kubeconfig, "--name", name, "--root", "/var/lib/kubelet"),
                *("--runtime", "cri", "--cri-endpoint", f"unix://{node.socket}"),
                *("--cgroup-root", f"{node.cgroups.path}/n", "--listen", "", "--form", "1.36"),
                *("--address", f"{addresses}{place}", "--eviction-hard", "memory.available<1Mi"),
            )
            command = node.inside(sys.executable, "-m", "plimsoll.cli.main", "node", *options)
            agent = Process(command, cluster.directory / f"{name}.log")
            agent.start()
            stack.callback(agent.stop)
        client = await stack.enter_async_context(Client.connect(cluster.config()))
        await until(lambda: client.list(NODES), _are_ready)
        await ensure_default_class(client)
        yield


def _are_ready(nodes: ObjectList) -> bool:
    return sum(_is_ready(codec.decode_tree(raw)) for raw in nodes.items) == len(_REAL)


def _is_ready(node: Tree) -> bool:
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")


def _images() -> dict[str, Image]:
    """Return images under the names that `e2e.test` uses."""
    command = [str(ASSETS / "e2e.test"), "--list-images"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    certificate = dict(zip(("/localhost.crt", "/localhost.key"), _make_certificate(), strict=True))
    found = {_DEVICE_PLUGIN: _image("sampledeviceplugin", "-alsologtostderr")}
    for name in listed:
        program = name.rpartition("/")[2].partition(":")[0]
        if program == "busybox":
            found[name] = with_busybox(("/bin/sh",))
        elif program == "nginx":
            found[name] = with_busybox(("/bin/httpd", "-f", "-p", "80"))
        elif program in IMAGE_PROGRAMS:
            found[name] = _image(program)
        if program == "agnhost":
            programs = {"/bin/curl": "curl", **found[name].programs}
            links = {**found[name].links, "/agnhost-2": "agnhost"}
            found[name] = Image(programs, found[name].entry, ("pause",), links, certificate)
    return found


def _image(program: str, *options: str) -> Image:
    return with_busybox((f"/{program}", *options), {f"/{program}": str(ASSETS / program)})


def _make_certificate() -> tuple[str, str]:
    """Return a serving certificate of "localhost" and its key, as in the image of agnhost."""
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "crt"), Path(directory, "key")
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        options = ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*command, *options], check=True, capture_output=True)
        return certificate.read_text(), key.read_text()
