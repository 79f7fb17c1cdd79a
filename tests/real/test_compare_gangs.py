"""Random gangs on a real kube-apiserver, scheduled by kube-scheduler and by ours on equal sets of nodes.

Where kube-scheduler places a gang, ours does; neither places a part of one. Gangs that only ours places are
those that its search finds; their placements are checked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from plimsoll.api import codec
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.manifests import DRIVER, NODE_STATUS, claim, device_class, pod, resource_slice
from tests.real.kubelet import Process
from tests.real.pod_groups import NS, options_of_groups
from tests.real.programs import ASSETS, missing
from tests.waiting import DEADLINE, until

OURS, KUBE = "plimsoll", "default-scheduler"
_MISSING = missing("kube-apiserver", "etcd", "kube-scheduler")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
SEEDS = (1, 2)
GANGS = 15
Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class GangMember:
    cpu: int
    rack: str = ""  #: of its node selector
    has_device: bool = False


@dataclass(frozen=True, slots=True)
class GangNode:
    cpu: int
    rack: str
    devices: int
    running: tuple[int, ...] = ()  #: CPUs of pods of lower priority


@dataclass(frozen=True, slots=True)
class GangCase:
    nodes: tuple[GangNode, ...]
    members: tuple[GangMember, ...]
    min_count: int
    by_rack: bool  #: topology constraint
    is_urgent: bool  #: of higher priority than the running pods


def random_gang(random: Random) -> GangCase:
    nodes = []
    for _ in range(random.randint(1, 3)):
        cpu = random.randint(2, 6)
        running = [1] * random.choice((0, 0, 1, cpu - 1))
        nodes.append(GangNode(cpu, random.choice("xy"), random.choice((0, 1, 2)), tuple(running)))
    members = tuple(
        GangMember(random.randint(1, 4), random.choice(("", "", "", "x")), random.random() < 0.3)
        for _ in range(random.randint(2, 5))
    )
    return GangCase(
        tuple(nodes), members, random.randint(1, len(members)), random.random() < 0.3, random.random() < 0.4
    )


@dataclass(frozen=True, slots=True)
class GangSet:
    """A case on nodes of its own, for one scheduler."""

    client: Client
    case: GangCase
    name: str
    scheduler: str

    async def build(self) -> None:
        client = self.client
        for number, each in enumerate(self.case.nodes):
            name = f"{self.name}-n{number}"
            labels = {"set": self.name, "rack": f"{self.name}-{each.rack}"}
            await client.create(NODES, {"metadata": {"name": name, "labels": labels}})
            amounts = NODE_STATUS["allocatable"] | {"cpu": str(each.cpu)}
            status = NODE_STATUS | {"allocatable": amounts, "capacity": amounts}
            await client.patch(NODES, name, {"status": status}, subresource="status")
            await client.patch(NODES, name, {"spec": {"taints": None}})
            if each.devices:
                await client.create(RESOURCE_SLICES, resource_slice(f"{name}-gpu", name, each.devices))
            for index, cpu in enumerate(each.running):
                await self._create_pod(f"{name}-low{index}", cpu, nodeName=name)

    async def create_gang(self) -> None:
        """Create the pods, then their group, so that the first attempt sees all of them."""
        for number, each in enumerate(self.case.members):
            name = f"{self.name}-p{number}"
            selector = {"set": self.name} | ({"rack": f"{self.name}-{each.rack}"} if each.rack else {})
            spec: Tree = {"nodeSelector": selector, "schedulingGroup": {"podGroupName": self.name}}
            if self.case.is_urgent:
                spec["priorityClassName"] = "urgent"
            if each.has_device:
                await self.client.create(RESOURCE_CLAIMS, claim(name), NS)
                spec["resourceClaims"] = [{"name": "d", "resourceClaimName": name}]
            await self._create_pod(name, each.cpu, **spec)
        group: Tree = {"schedulingPolicy": {"gang": {"minCount": self.case.min_count}}}
        if self.case.by_rack:
            group["schedulingConstraints"] = {"topology": [{"key": "rack"}]}
        if self.case.is_urgent:
            group["priorityClassName"] = "urgent"
        await self.client.create(POD_GROUPS, {"metadata": {"name": self.name}, "spec": group}, NS)

    async def _create_pod(self, name: str, cpu: int, **spec: Any) -> None:
        tree = pod(name, schedulerName=self.scheduler, terminationGracePeriodSeconds=0, **spec)
        tree["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cpu)}
        await self.client.create(PODS, tree, NS)

    async def outcome(self) -> dict[str, str]:
        """Return the nodes of the members that are placed, once the attempts have ended."""
        await until(self._pods, self._is_decided)
        return {name: node for name, node in (await self._nodes()).items() if node}

    async def _pods(self) -> tuple[Tree, list[Tree]]:
        group = await self.client.get(POD_GROUPS, self.name, NS)
        pods = [codec.decode_tree(raw) for raw in (await self.client.list(PODS, NS)).items]
        return dict(group), [one for one in pods if one["metadata"]["name"].startswith(f"{self.name}-p")]

    async def _nodes(self) -> dict[str, str]:
        _, pods = await self._pods()
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods}

    def _is_decided(self, found: tuple[Tree, list[Tree]]) -> bool:
        group, pods = found
        conditions = {each["type"]: each for each in group.get("status", {}).get("conditions", ())}
        decision = conditions.get("PodGroupScheduled")
        if decision is None or "waiting for preemption" in decision.get("message", ""):
            return False
        if decision["status"] == "False":
            return True
        return (
            all(
                one["spec"].get("nodeName")
                or any(
                    each["type"] == "PodScheduled" and each["status"] == "False"
                    for each in one["status"].get("conditions", ())
                )
                for one in pods
            )
            and sum(bool(one["spec"].get("nodeName")) for one in pods) >= self.case.min_count
        )

    def check(self, placed: dict[str, str], devices: dict[str, list[str]]) -> None:
        """Assert that the placement is all or nothing, and valid."""
        assert not placed or len(placed) >= self.case.min_count
        used: Counter[str] = Counter()
        racks = set()
        for name, node in placed.items():
            number = int(name.rpartition("-p")[2])
            place = self.case.nodes[int(node.rpartition("-n")[2])]
            one = self.case.members[number]
            used[node] += one.cpu
            racks.add(place.rack)
            assert not one.rack or place.rack == one.rack
            assert bool(devices.get(name)) == one.has_device
        assert all(used[node] <= self.case.nodes[int(node.rpartition("-n")[2])].cpu for node in used)
        assert not self.case.by_rack or len(racks) <= 1
        held = [each for name in placed for each in devices.get(name, ())]
        assert len(held) == len(set(held))


@contextmanager
def both_schedulers(directory: Path) -> Iterator[ClientConfig]:
    """Run the API server and kube-scheduler, with the gates of pod groups."""
    (directory / "server").mkdir()
    gates, served = options_of_groups()
    with run_apiserver(ASSETS, directory / "server", gates, served) as config:
        admin = directory / "admin.kubeconfig"
        admin.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
        own = tuple(f"--{kind}kubeconfig={admin}" for kind in ("", "authentication-", "authorization-"))
        options = (*own, "--secure-port=0", "--leader-elect=false", f"--feature-gates={gates}")
        process = Process((ASSETS / "kube-scheduler", *options), directory / "kube-scheduler.log")
        process.start()
        try:
            yield config
        finally:
            process.stop()


async def devices_of(client: Client) -> dict[str, list[str]]:
    """Return the devices of each claim."""
    found = {}
    for raw in (await client.list(RESOURCE_CLAIMS, NS)).items:
        tree = codec.decode_tree(raw)
        results = tree.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
        found[tree["metadata"]["name"]] = [f"{each['pool']}/{each['device']}" for each in results]
    return found


async def compare(client: Client, cases: list[GangCase]) -> list[tuple[int, int]]:
    """Return how many pods of each gang kube-scheduler and our scheduler place."""
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    await client.create(PRIORITY_CLASSES, {"metadata": {"name": "urgent"}, "value": 100})
    sets = [
        (GangSet(client, case, f"k{number}", KUBE), GangSet(client, case, f"o{number}", OURS))
        for number, case in enumerate(cases)
    ]
    for pair in sets:
        for each in pair:
            await each.build()
    counts = []
    for pair in sets:
        await asyncio.gather(*(each.create_gang() for each in pair))
        placed = await asyncio.gather(*(each.outcome() for each in pair))
        devices = await devices_of(client)
        for each, found in zip(pair, placed, strict=True):
            each.check(found, devices)
        counts.append((len(placed[0]), len(placed[1])))
    return counts


@pytest.mark.parametrize("seed", SEEDS)
def test_gangs_that_kube_scheduler_places_are_placed(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    cases = [random_gang(random) for _ in range(GANGS)]

    async def scenario(config: ClientConfig) -> list[tuple[int, int]]:
        async with asyncio.timeout(6 * DEADLINE), Client.connect(config) as client:
            process = SchedulerProcess(client, SchedulerSettings())
            task = asyncio.create_task(process.run())
            try:
                await process.ready(DEADLINE)
                return await compare(client, cases)
            finally:
                process.stop()
                with suppress(asyncio.CancelledError):
                    await task

    with both_schedulers(tmp_path) as config:
        counts = asyncio.run(scenario(config))
    for case, (kube, ours) in zip(cases, counts, strict=True):
        assert bool(ours) >= bool(kube), case
    assert any(kube for kube, _ in counts)
    assert any(not kube for kube, _ in counts)
