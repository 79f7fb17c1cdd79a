"""Real control plane for predictions: kube-apiserver, kube-scheduler and the claim controller.

Owns `run_oracle`, which starts them, and `Oracle`: clusters are furnished, pods created one after the other,
each decided about before the next comes, so that the order is known. A barrier (a pod that wants the last
node, the last slice and the last class) shows when the scheduler has seen everything.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.client.responses import read_tree
from plimsoll.errors import ApiError
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.real.kubelet import Process
from tests.real.programs import ASSETS
from tests.real.random_clusters import DRA, NS, Tree
from tests.waiting import until

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
ON = "DRANodeAllocatableResources=true"
#: Kinds to dump, as documented.
DUMPED = (
    "nodes,pods,namespaces,resourceslices,resourceclaims,resourceclaimtemplates,deviceclasses,priorityclasses"
)
_ENDPOINTS: dict[str, Endpoint] = {
    "Node": NODES,
    "Pod": PODS,
    "DeviceClass": DEVICE_CLASSES,
    "ResourceSlice": RESOURCE_SLICES,
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
}
_BARRIER = "barrier.example.com"
#: Or pods that back off would be tried whenever the scheduler has nothing else to do.
_PATIENCE = "SchedulerPopFromBackoffQ=false"


@dataclass(frozen=True)
class Decision:
    """Decision of kube-scheduler about a pod: its node or its condition, and its claims at that time."""

    name: str
    node: str
    why: str
    reason: str
    pod: Tree = field(repr=False)
    claims: tuple[Tree, ...] = field(repr=False)


class Oracle:
    """Cluster scheduled by kube-scheduler."""

    def __init__(self, client: Client, kubeconfig: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig

    async def furnish(self, trees: Iterable[Tree]) -> None:
        """Replace all objects by these and wait until the scheduler has seen them."""
        await self.clear()
        trees = list(trees)
        last = ""
        for tree in trees:
            endpoint = _ENDPOINTS[tree["kind"]]
            given = {key: value for key, value in tree.items() if key != "status"}
            await self.client.create(endpoint, given, tree["metadata"].get("namespace", ""))
            if tree["kind"] == "Node":
                last = tree["metadata"]["name"]
                await self.client.patch(NODES, last, {"status": tree["status"]}, subresource="status")
                # The API server taints nodes that are not ready yet.
                await self.client.patch(NODES, last, {"spec": {"taints": tree["spec"].get("taints")}})
        await self._meet(last)

    async def _meet(self, node: str) -> None:
        expression = f'device.driver == "{_BARRIER}"'
        await self.client.patch(NODES, node, {"metadata": {"labels": {_BARRIER: "last"}}})
        devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": _BARRIER}}]}
        pool = {"name": "barrier", "generation": 1, "resourceSliceCount": 1}
        slice = {"driver": _BARRIER, "pool": pool, "allNodes": True, "devices": [{"name": "only"}]}
        for kind, spec, namespace in (
            ("ResourceSlice", slice, ""),
            ("DeviceClass", {"selectors": [{"cel": {"expression": expression}}]}, ""),
            ("ResourceClaim", {"devices": devices}, NS),
        ):
            metadata: Tree = {"name": _BARRIER}
            whole = {"apiVersion": DRA, "kind": kind, "metadata": metadata, "spec": spec}
            await self.client.create(_ENDPOINTS[kind], whole, namespace)
        probe: Tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "barrier"},
            "spec": {
                "containers": [{"name": "c", "image": "example.org/app:1"}],
                "nodeSelector": {_BARRIER: "last"},
                "tolerations": [{"operator": "Exists"}],
                "resourceClaims": [{"name": "c", "resourceClaimName": _BARRIER}],
            },
        }

        # Who is refused because the scheduler has not seen everything yet is not tried again for long.
        async def decide() -> Decision:
            decision = await self.decide(probe)
            if not decision.node:
                await self.client.delete(PODS, decision.name, NS, grace=0)
            return decision

        await until(decide, lambda decision: decision.node)

    async def decide(self, tree: Tree) -> Decision:
        """Create a pod and wait until it has a node or an Unschedulable condition."""
        await self.client.create(PODS, tree, NS)
        return await self.look(tree["metadata"]["name"])

    async def look(self, name: str) -> Decision:
        pod = await until(
            lambda: self.client.get(PODS, name, NS), lambda pod: pod["spec"].get("nodeName") or _refused(pod)
        )
        made = [status.get("resourceClaimName") for status in pod["status"].get("resourceClaimStatuses", ())]
        named = [entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims", ())]
        claims = [await self.client.get(RESOURCE_CLAIMS, each, NS) for each in {*made, *named} if each]
        condition = _refused(pod) or {}
        node = pod["spec"].get("nodeName", "")
        return Decision(
            name, node, condition.get("message", ""), condition.get("reason", ""), pod, tuple(claims)
        )

    async def nodes_of_pods(self) -> dict[str, str]:
        pods = [read_tree(raw) for raw in (await self.client.list(PODS, NS)).items]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}

    async def clear(self) -> None:
        for kind in ("Pod", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice", "DeviceClass", "Node"):
            endpoint = _ENDPOINTS[kind]
            for raw in (await self.client.list(endpoint)).items:
                metadata = read_tree(raw)["metadata"]
                name, place = metadata["name"], metadata.get("namespace", "")
                with suppress(ApiError):  # its controller may be faster
                    if metadata.get("finalizers"):
                        await self.client.patch(endpoint, name, {"metadata": {"finalizers": None}}, place)
                    await self.client.delete(endpoint, name, place, grace=0)

    def dump(self) -> bytes:
        """Return the output of plain kubectl."""
        return self.kubectl("get", DUMPED, "-A", "-o", "yaml")

    def kubectl(self, *words: str) -> bytes:
        command = [str(ASSETS / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words]
        return subprocess.run(command, check=True, capture_output=True).stdout


def _refused(pod: Tree) -> Tree | None:
    conditions = pod.get("status", {}).get("conditions", ())
    return next((c for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)


@contextmanager
def _programs(directory: Path, config: ClientConfig, gates: str, controllers: str) -> Any:
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
    own = tuple(f"--{kind}kubeconfig={kubeconfig}" for kind in ("", "authentication-", "authorization-"))
    own += ("--secure-port=0", "--leader-elect=false", "--kube-api-qps=500", "--kube-api-burst=1000")
    settings = directory / "kube-scheduler.yaml"
    settings.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
                "leaderElection": {"leaderElect": False},
                # A pod that waits is not tried again while others are decided about (see _PATIENCE).
                "podInitialBackoffSeconds": 3600,
                "podMaxBackoffSeconds": 3600,
            }
        )
    )
    patient = ",".join(filter(None, (gates, _PATIENCE)))
    scheduler = Process(
        (ASSETS / "kube-scheduler", *own, f"--feature-gates={patient}", f"--config={settings}"),
        directory / "kube-scheduler.log",
    )
    manager = Process(
        (
            ASSETS / "kube-controller-manager",
            *own,
            f"--feature-gates={gates}",
            f"--controllers={controllers}",
        ),
        directory / "kube-controller-manager.log",
    )
    scheduler.start()
    manager.start()
    try:
        yield kubeconfig
    finally:
        scheduler.stop()
        manager.stop()


@asynccontextmanager
async def run_oracle(
    directory: Path, gates: str, controllers: str = "resourceclaim-controller"
) -> AsyncIterator[Oracle]:
    """Run an empty control plane with these feature gates and controllers."""
    (directory / "server").mkdir(parents=True)
    with (
        run_apiserver(ASSETS, directory / "server", gates) as config,
        _programs(directory, config, gates, controllers) as kubeconfig,
    ):
        async with Client.connect(config) as client:
            yield Oracle(client, kubeconfig)
