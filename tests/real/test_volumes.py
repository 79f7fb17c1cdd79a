"""Volumes that wait for their first consumer on a real kube-apiserver with kube-controller-manager.

Our scheduler, with the rights of the Helm chart, and kube-scheduler do the same, and give the same messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from plimsoll.api.storage import SELECTED_NODE
from plimsoll.client import Client, ClientConfig, Material
from plimsoll.client.endpoints import (
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    DEVICE_CLASSES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Endpoint,
)
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.deploy.render import objects
from tests.manifests import DRIVER, NODE_STATUS, claim, device_class, pod, resource_slice
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, missing
from tests.volume_provisioner import (
    HOST,
    PROVISIONER,
    VolumeProvisioner,
    local_volume,
    storage_class,
    using,
    volume_claim,
    volume_provisioner,
)
from tests.waiting import DEADLINE, until

OURS, KUBE = "plimsoll", "kube-scheduler"
_MISSING = missing("kube-apiserver", "etcd", "kube-controller-manager", KUBE)
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NS = "default"
SEEDS = (1, 2)
ACCOUNT = "system:serviceaccount:kube-system:plimsoll-scheduler"
_RBAC = "rbac.authorization.k8s.io"
ROLES = {
    "ClusterRole": Endpoint(_RBAC, "v1", "clusterroles", "ClusterRole", False),
    "ClusterRoleBinding": Endpoint(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", False),
}
CONTROLLERS = ("persistentvolume-binder-controller", "ephemeral-volume-controller",
               "persistentvolumeclaim-protection-controller")  # fmt: skip
PREEMPTION = (
    "no new claims to deallocate, preemption: 0/2 nodes are available: "
    "2 Preemption is not helpful for scheduling."
)


@dataclass(slots=True)
class VolumeCluster:
    """Two nodes, a class of local volumes and one that provisions."""

    client: Client
    provisioner: VolumeProvisioner
    scheduler: str

    async def build(self) -> None:
        for name in ("a", "b"):
            await self.client.create(NODES, {"metadata": {"name": name, "labels": {HOST: name}}})
            await self.client.patch(NODES, name, {"status": NODE_STATUS}, subresource="status")
            await self.client.patch(NODES, name, {"spec": {"taints": None}})
        await self.client.create(STORAGE_CLASSES, storage_class("fast"))
        await self.client.create(STORAGE_CLASSES, storage_class("local", "kubernetes.io/no-provisioner"))

    async def add_volume(self, name: str, host: str, size: str) -> None:
        await self.client.create(PERSISTENT_VOLUMES, local_volume(name, host, "local", size))
        await until(
            lambda: self.client.get(PERSISTENT_VOLUMES, name),
            lambda one: one["status"]["phase"] == "Available",
        )

    async def add_pod(self, name: str, *claims: str, **spec: Any) -> None:
        spec = {"volumes": using(*claims), **spec}
        name_of = "plimsoll" if self.scheduler == OURS else "default-scheduler"
        await self.client.create(PODS, pod(name, schedulerName=name_of, **spec), NS)

    async def add_claim(self, name: str, group: str, size: str) -> None:
        await self.client.create(PERSISTENT_VOLUME_CLAIMS, volume_claim(name, group, size), NS)

    async def get_claim(self, name: str) -> dict[str, Any]:
        return dict(await self.client.get(PERSISTENT_VOLUME_CLAIMS, name, NS))

    async def bound(self, name: str) -> str:
        tree = await until(lambda: self.client.get(PODS, name, NS), lambda one: one["spec"].get("nodeName"))
        return str(tree["spec"]["nodeName"])

    async def message(self, name: str, part: str) -> str:
        """Return the message of a pending pod that has this part."""
        tree = await until(
            lambda: self.client.get(PODS, name, NS),
            lambda one: any(part in each.get("message", "") for each in one["status"].get("conditions", ())),
        )
        return str(tree["status"]["conditions"][0]["message"])


@contextmanager
def control_plane(directory: Path, scheduler: str) -> Iterator[ClientConfig]:
    """Run the API server, the volume controllers, and kube-scheduler if it is the one."""
    tokens = f'{TOKEN},admin,1,"system:masters"\nour-scheduler,{ACCOUNT},2\n'
    (directory / "users.csv").write_text(tokens)
    (directory / "server").mkdir()
    option = f"--token-auth-file={directory / 'users.csv'}"
    with run_apiserver(ASSETS, directory / "server", "", (option,)) as config, ExitStack() as stack:
        admin = directory / "admin.kubeconfig"
        admin.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
        own = tuple(f"--{kind}kubeconfig={admin}" for kind in ("", "authentication-", "authorization-"))
        rest = ("--secure-port=0", "--leader-elect=false")
        programs: dict[str, tuple[str, ...]] = {
            "kube-controller-manager": (f"--controllers={','.join(CONTROLLERS)}",)
        }
        if scheduler == KUBE:
            programs[KUBE] = ()
        for name, options in programs.items():
            process = Process((ASSETS / name, *own, *rest, *options), directory / f"{name}.log")
            process.start()
            stack.callback(process.stop)
        yield config


@asynccontextmanager
async def volume_cluster(config: ClientConfig, scheduler: str) -> AsyncIterator[VolumeCluster]:
    async with (
        asyncio.timeout(4 * DEADLINE),
        Client.connect(config) as client,
        volume_provisioner(client, binds=False) as provisioner,
    ):
        cluster = VolumeCluster(client, provisioner, scheduler)
        await cluster.build()
        if scheduler == KUBE:
            yield cluster
            return
        for tree in objects(part="scheduler"):
            if tree["kind"] in ROLES:
                await client.create(ROLES[tree["kind"]], tree)
        own = ClientConfig(config.server, insecure=True, token=Material(b"our-scheduler"))
        async with Client.connect(own) as limited:
            process = SchedulerProcess(limited, SchedulerSettings())
            task = asyncio.create_task(process.run())
            try:
                await process.ready(DEADLINE)
                yield cluster
                snapshot = process.context.snapshot
                await until(lambda: len(snapshot.assumed_volumes) == 0)
            finally:
                process.stop()
                await task


async def bind_local_volumes(cluster: VolumeCluster) -> None:
    await cluster.add_volume("va", "a", "1Gi")
    await cluster.add_volume("vb", "b", "5Gi")
    await cluster.add_claim("data", "local", "2Gi")
    await cluster.add_pod("p", "data")
    assert await cluster.bound("p") == "b"
    known = await cluster.get_claim("data")
    assert known["spec"]["volumeName"] == "vb"
    assert known["status"]["phase"] == "Bound"

    await cluster.add_claim("huge", "local", "100Gi")
    await cluster.add_claim("small", "local", "1Gi")
    await cluster.add_pod("q", "small", "huge")
    message = await cluster.message("q", "nodes are available")
    problem = "2 node(s) didn't find available persistent volumes to bind."
    assert message == f"0/2 nodes are available: {problem} {PREEMPTION}"
    await cluster.add_volume("vh", "a", "100Gi")
    assert await cluster.bound("q") == "a"
    assert (await cluster.get_claim("small"))["spec"]["volumeName"] == "va"
    assert (await cluster.get_claim("huge"))["spec"]["volumeName"] == "vh"


async def provision_volumes(cluster: VolumeCluster) -> None:
    await cluster.add_claim("one", "fast", "1Gi")
    await cluster.add_claim("two", "fast", "1Gi")
    await cluster.add_pod("r", "one", "two")
    node = await cluster.bound("r")
    for name in ("one", "two"):
        known = await cluster.get_claim(name)
        assert known["metadata"]["annotations"][SELECTED_NODE] == node
        assert known["spec"]["volumeName"] == f"pvc-{known['metadata']['uid']}"
    template = {"spec": volume_claim("", "fast")["spec"]}
    ephemeral = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    await cluster.add_pod("s", volumes=ephemeral)
    node = await cluster.bound("s")
    assert (await cluster.get_claim("s-scratch"))["metadata"]["annotations"][SELECTED_NODE] == node


async def respect_capacity(cluster: VolumeCluster) -> None:
    client = cluster.client
    await client.create(CSI_DRIVERS, {"metadata": {"name": PROVISIONER}, "spec": {"storageCapacity": True}})
    room = {
        "metadata": {"name": "of-b"}, "storageClassName": "fast", "capacity": "10Gi",
        "nodeTopology": {"matchLabels": {HOST: "b"}},
    }  # fmt: skip
    await client.create(CSI_STORAGE_CAPACITIES, room, NS)
    await cluster.add_claim("wide", "fast", "50Gi")
    await cluster.add_pod("t", "wide")
    message = await cluster.message("t", "nodes are available")
    assert message == (f"0/2 nodes are available: 2 node(s) did not have enough free storage. {PREEMPTION}")
    await cluster.add_claim("narrow", "fast", "5Gi")
    await cluster.add_pod("u", "narrow")
    assert await cluster.bound("u") == "b"
    await client.patch(CSI_STORAGE_CAPACITIES, "of-b", {"capacity": "60Gi"}, NS)
    assert await cluster.bound("t") == "b"


async def retry_failed_provisioning(cluster: VolumeCluster) -> None:
    cluster.provisioner.full = {"a", "b"}
    await cluster.client.create(DEVICE_CLASSES, device_class(DRIVER))
    await cluster.client.create(RESOURCE_SLICES, resource_slice("b-gpu", "b", 1))
    await cluster.client.create(RESOURCE_CLAIMS, claim("gpu"), NS)
    await cluster.add_claim("late", "fast", "1Gi")
    await cluster.add_pod("v", "late", resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])
    message = await cluster.message("v", "provisioning failed")
    failed = 'binding volumes: provisioning failed for PVC "late"'
    assert message == f'running PreBind plugin "VolumeBinding": {failed}'
    cluster.provisioner.full = set()
    assert await cluster.bound("v") == "b"
    reserved = (await cluster.client.get(RESOURCE_CLAIMS, "gpu", NS))["status"]["reservedFor"]
    assert [each["name"] for each in reserved] == ["v"]


@pytest.mark.parametrize("scheduler", [OURS, KUBE])
def test_volumes_are_bound_and_provisioned(tmp_path: Path, scheduler: str) -> None:
    async def scenario(config: ClientConfig) -> None:
        async with volume_cluster(config, scheduler) as cluster:
            await bind_local_volumes(cluster)
            await provision_volumes(cluster)
            await respect_capacity(cluster)
            await retry_failed_provisioning(cluster)

    with control_plane(tmp_path, scheduler) as config:
        asyncio.run(scenario(config))


# -- random claims


@dataclass(frozen=True, slots=True)
class VolumeCase:
    """Volumes, and pods with claims, each of which may run on one node only."""

    volumes: tuple[dict[str, Any], ...]
    pods: tuple[tuple[str, tuple[dict[str, Any], ...]], ...]  #: node, claims


def random_case(random: Random) -> VolumeCase:
    """Return volumes of different sizes, so that the choice on a node is unique."""
    modes = (["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"], ["ReadOnlyMany"])
    sizes = random.sample(range(1, 40), 12)
    volumes = []
    for number, size in enumerate(sizes):
        volume = local_volume(f"v{number}", random.choice("ab"), "local", f"{size}Gi")
        volume["metadata"]["labels"] = {"tier": random.choice(("fast", "slow"))}
        volume["spec"]["accessModes"] = random.choice(modes)
        volume["spec"]["volumeMode"] = random.choice(("Filesystem", "Filesystem", "Block"))
        if random.random() < 0.2:
            reserved = f"p{random.randrange(8)}-c0"
            volume["spec"]["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": NS, "name": reserved}
        volumes.append(volume)
    pods = []
    for number in range(8):
        claims = []
        for part in range(random.choice((1, 1, 2))):
            one = volume_claim(f"p{number}-c{part}", "local", f"{random.randrange(1, 30)}Gi")
            one["spec"]["accessModes"] = random.choice(modes)[:1]
            one["spec"]["volumeMode"] = random.choice(("Filesystem", "Filesystem", "Block"))
            if random.random() < 0.3:
                one["spec"]["selector"] = {"matchLabels": {"tier": "fast"}}
            claims.append(one)
        pods.append((random.choice("ab"), tuple(claims)))
    return VolumeCase(tuple(volumes), tuple(pods))


async def play(cluster: VolumeCluster, case: VolumeCase) -> list[tuple[str, tuple[str, ...]]]:
    """Schedule the pods one after the other; return the message of each, or the volumes of its claims."""
    client = cluster.client
    for volume in case.volumes:
        await client.create(PERSISTENT_VOLUMES, volume)
    for volume in case.volumes:
        await until(
            partial(client.get, PERSISTENT_VOLUMES, volume["metadata"]["name"]),
            lambda one: one.get("status", {}).get("phase") == "Available",
        )
    found: list[tuple[str, tuple[str, ...]]] = []
    for number, (host, claims) in enumerate(case.pods):
        for one in claims:
            await client.create(PERSISTENT_VOLUME_CLAIMS, one, NS)
        name, names = f"p{number}", [one["metadata"]["name"] for one in claims]
        await cluster.add_pod(name, *names, nodeSelector={HOST: host})
        tree = await until(
            partial(client.get, PODS, name, NS),
            # On a busy machine a scheduler may know the pod before its claim: it tries again at once.
            lambda one: (
                one["spec"].get("nodeName")
                or ("nodes are available" in str(one["status"]) and "not found" not in str(one["status"]))
            ),
        )
        conditions = tree["status"].get("conditions") or [{}]
        message = "" if tree["spec"].get("nodeName") else conditions[0]["message"]
        bound = [(await cluster.get_claim(each))["spec"].get("volumeName", "") for each in names]
        found.append((message, tuple(bound)))
        if message:
            await client.delete(PODS, name, NS, grace=0)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_random_claims_get_the_volumes_that_kube_scheduler_chooses(tmp_path: Path, seed: int) -> None:
    case, answers = random_case(Random(seed)), []

    async def scenario(config: ClientConfig, scheduler: str) -> None:
        async with volume_cluster(config, scheduler) as cluster:
            answers.append(await play(cluster, case))

    for scheduler in (OURS, KUBE):
        directory = tmp_path / scheduler
        directory.mkdir()
        with control_plane(directory, scheduler) as config:
            asyncio.run(scenario(config, scheduler))
    assert answers[0] == answers[1]
    assert any(not message for message, _ in answers[0])
