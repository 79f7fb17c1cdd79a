"""Harness for tests of the CPU driver: a cluster, a real kubelet, the driver, and pods that claim CPUs."""

from __future__ import annotations

import asyncio
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS_V1,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from plimsoll.errors import ApiError
from tests.cluster.kube_apiserver import free_ports
from tests.deploy.render import objects
from tests.real.clusters import RunningCluster
from tests.real.kubelet import IMAGE, Process, RealNode
from tests.real.programs import ASSETS
from tests.waiting import DEADLINE, until

NS = "default"
#: Until CPUs are correct, once the driver has been notified.
SOON = 5.0
Tree = dict[str, Any]

#: Ends at once on SIGTERM.
RUN = ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.2; done"]


def container(name: str, *, claim: str = "", command: list[str] = RUN, **more: Any) -> Tree:
    tree: Tree = {"name": name, "image": IMAGE, "command": command, **more}
    if claim:
        tree["resources"] = {**tree.get("resources", {}), "claims": [{"name": claim}]}
    return tree


def pod(name: str, *containers: Tree, template: str = "", first: list[Tree] | None = None) -> Tree:
    """Return a pod; with a template it has a claim named `cpus`. `first` are its init containers."""
    spec: Tree = {"containers": list(containers), "initContainers": first or []}
    spec |= {"automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    if template:
        spec["resourceClaims"] = [{"name": "cpus", "resourceClaimTemplateName": template}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def neighbour(name: str = "neighbour") -> Tree:
    return pod(name, container("app"))


def pinned(name: str = "pinned") -> Tree:
    """Return a pod whose container `app` has an exclusive CPU and whose `side` has none."""
    return pod(name, container("app", claim="cpus"), container("side"), template="one")


class DriverHarness:
    """Node of a cluster with a driver that can be replaced."""

    def __init__(self, cluster: RunningCluster, node: RealNode) -> None:
        self.cluster, self.node = cluster, node
        self.driver: Process | None = None
        self._url = ""
        self._log = 0

    # -- the driver

    async def drive(self, *options: object, go: bool = False) -> None:
        """Start the driver and wait until it is healthy. `go`: the Go driver."""
        (port,) = free_ports(1)
        self._url = f"http://127.0.0.1:{port}/healthz"
        node = self.node
        common: tuple[object, ...] = ("--kubeconfig", self.cluster.driver, "--hostname-override", node.name)
        common = (*common, "--kubelet-root-dir", node.root, "--bind-address", f"127.0.0.1:{port}")
        ours = ("-m", "plimsoll.cli.main", "driver", "cpu", "--cdi-dir", node.cdi, "--nri-socket", node.nri)
        command = node.inside(ASSETS / "dracpu", *common) if go else [sys.executable, *ours, *common]
        self._log += 1
        self.driver = Process([*command, *options], node.directory / f"driver{self._log}.log")
        self.driver.start()
        try:
            await self.well()
        except BaseException:
            await self.leave()  # the next scenario starts its own
            raise

    async def well(self, seconds: float = DEADLINE) -> None:
        async def is_well() -> bool:
            assert self.driver is not None
            assert self.driver.alive, self.driver.text()[-3000:]
            return await asyncio.to_thread(self._is_well)

        await until(is_well, seconds=seconds, context=self.log_text)

    def _is_well(self) -> bool:
        try:
            with urllib.request.urlopen(self._url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    async def leave(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the driver."""
        driver, self.driver = self.driver, None
        return await asyncio.to_thread(driver.stop, number) if driver is not None else 0

    def log_text(self) -> str:
        """Return the end of the driver's log."""
        return self.driver.text()[-3000:] if self.driver is not None else "is not there"

    # -- a scenario

    async def furnish(self) -> None:
        """Create the objects that every scenario needs, once the node is ready."""
        async with Client.connect(self.cluster.config) as client:
            for tree in objects():
                if tree["kind"] == "DeviceClass":
                    await client.create(DEVICE_CLASSES, tree)
            for name, amount in (("one", "1"), ("half", "500m"), ("all", "")):
                await client.create(RESOURCE_CLAIM_TEMPLATES, template(name, amount), NS)

            async def ready() -> bool:
                assert self.node.kubelet.alive, self.node.kubelet.text()[-3000:]
                with suppress(ApiError):
                    node = await client.get(NODES, self.node.name)
                    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
                    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
                return False

            await until(ready, context=lambda: f"no node: {self.node.kubelet.text()[-3000:]}")

    @asynccontextmanager
    async def session(self, *options: object) -> AsyncIterator[DriverSession]:
        """Run a driver on an empty node, and clean up."""
        async with Client.connect(self.cluster.config) as client:
            await self.drive(*options)
            session = DriverSession(self, client)
            try:
                yield session
            finally:
                if not self.node.containerd.alive:
                    self.node.containerd.stop()
                    self.node.start_containerd()
                if self.driver is None or not self.driver.alive:
                    await self.leave()
                    await self.drive(*options)
                await session.clear()
                await self.leave()


class DriverSession:
    """One scenario: creates and deletes pods, and observes their processes."""

    def __init__(self, harness: DriverHarness, client: Client) -> None:
        self.harness, self.client = harness, client
        self.online = CpuSet.parse(Path("/sys/devices/system/cpu/online").read_text().strip())

    async def create(self, tree: Tree) -> None:
        await self.client.create(PODS, tree, NS)

    async def run(self, *trees: Tree) -> None:
        """Create pods and wait until they run."""
        for tree in trees:
            await self.create(tree)
        for tree in trees:
            await self.runs(tree["metadata"]["name"])

    async def get(self, name: str) -> Tree:
        return await self.client.get(PODS, name, NS)

    async def runs(self, name: str) -> None:
        async def look() -> bool:
            tree = await self.get(name)
            statuses = tree["status"].get("containerStatuses") or ()
            return bool(statuses) and all("running" in each["state"] for each in statuses)

        await until(look, context=lambda: f"{name} does not run: {self.harness.node.kubelet.text()[-4000:]}")

    async def delete(self, *names: str) -> None:
        """Delete pods and wait until they are gone, and their claims."""
        for name in names:
            with suppress(ApiError):
                await self.client.delete(PODS, name, NS)

        async def gone() -> bool:
            pods = [codec.decode_tree(raw) for raw in (await self.client.list(PODS, NS)).items]
            return not {each["metadata"]["name"] for each in pods} & set(names)

        await until(gone, context=lambda: f"{names} do not go: {self.harness.node.kubelet.text()[-3000:]}")

    async def clear(self) -> None:
        pods = [codec.decode_tree(raw) for raw in (await self.client.list(PODS, NS)).items]
        await self.delete(*(each["metadata"]["name"] for each in pods))

        async def gone() -> bool:
            return not (await self.client.list(RESOURCE_CLAIMS, NS)).items and not self.files()

        await until(gone, context=lambda: f"claims or files stay: {self.files()}")

    # -- state

    async def processes(self, name: str, part: str) -> list[int]:
        """Return the processes of a running container."""
        status = (await self.get(name))["status"]
        for each in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
            if each["name"] == part and "running" in each["state"]:
                return self.harness.node.processes(each["containerID"].rpartition("/")[2])
        return []

    async def cpus(self, name: str, part: str = "app") -> CpuSet | None:
        """Return the effective CPUs of a container; None if it does not run or its processes differ."""
        found = set()
        for process in await self.processes(name, part):
            with suppress(OSError):
                for line in Path(f"/proc/{process}/status").read_text().splitlines():
                    if line.startswith("Cpus_allowed_list:"):
                        found.add(CpuSet.parse(line.split()[1]))
        return found.pop() if len(found) == 1 else None

    async def claimed(self, name: str, part: str = "app") -> CpuSet:
        """Return the CPUs assigned to a container by its claim."""
        found = set()
        for process in await self.processes(name, part):  # some shells do not hand such names on
            with suppress(OSError):
                words = Path(f"/proc/{process}/environ").read_text().split("\0")
                found |= {word.partition("=")[2] for word in words if word.startswith("DRA_CPUSET_")}
        assert len(found) == 1, found
        return CpuSet.parse(found.pop())

    async def settles(self, wanted: Mapping[tuple[str, str], CpuSet], seconds: float = SOON) -> None:
        """Wait until containers have these CPUs."""
        seen: dict[tuple[str, str], CpuSet | None] = {}

        async def look() -> bool:
            seen.update({key: await self.cpus(*key) for key in wanted})
            return seen == dict(wanted)

        await until(
            look,
            context=lambda: f"{seen} is not {wanted}; the driver: {self.harness.log_text()}",
            seconds=seconds,
        )

    async def stays(self, wanted: Mapping[tuple[str, str], CpuSet], seconds: float = 1.0) -> None:
        """Check that containers have these CPUs and keep them."""
        for _ in range(10):
            seen = {key: await self.cpus(*key) for key in wanted}
            assert seen == dict(wanted)
            await asyncio.sleep(seconds / 10)

    async def claim(self, name: str) -> tuple[Tree, Tree]:
        """Return the claim of a pod and its only device."""
        (status,) = (await self.get(name))["status"]["resourceClaimStatuses"]
        tree = await self.client.get(RESOURCE_CLAIMS, status["resourceClaimName"], NS)
        (result,) = tree["status"]["allocation"]["devices"]["results"]
        return tree, result

    def files(self) -> list[str]:
        return sorted(path.name for path in self.harness.node.cdi.iterdir())

    async def events(self, name: str) -> list[str]:
        """Return the events of a pod."""
        trees = [codec.decode_tree(raw) for raw in (await self.client.list(EVENTS_V1, NS)).items]
        return [each.get("note", "") for each in trees if each["regarding"].get("name") == name]

    async def devices(self) -> list[Tree]:
        listing = await self.client.list(RESOURCE_SLICES)
        trees = [codec.decode_tree(raw) for raw in listing.items]
        return [device for tree in trees for device in tree["spec"]["devices"]]


def template(name: str, amount: str) -> Tree:
    """Return a claim template for one CPU, or for all of a device."""
    exactly: Tree = {"deviceClassName": "dra.cpu"}
    if amount:
        exactly["capacity"] = {"requests": {"dra.cpu/cpu": amount}}
    requests = [{"name": "cpu", "exactly": exactly}]
    tree: Tree = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return tree | {"metadata": {"name": name}, "spec": {"spec": {"devices": {"requests": requests}}}}
