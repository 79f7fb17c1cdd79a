"""Pods that claim CPUs, and other pods, on a node whose driver, agent and server are killed at any time.

`DriverCluster` is the cluster in processes, `PodLoad` the pods. What must be so when all have settled is in
`DriverCluster.problems`; invariants that hold at any time are in `cpuset_watcher`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import yaml

from plimsoll.api import codec
from plimsoll.api.cpuset import CpuSet
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Endpoint,
)
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.cgroups.ownership import owner_of
from tests.chaos.cpuset_watcher import CpusetWatcher
from tests.chaos.forked_node import ForkedCpuDriver, ForkedNode
from tests.chaos.forked_scheduler import ForkedScheduler
from tests.chaos.forked_server import ForkedServer
from tests.chaos.scheduler_load import insist
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE, until

Tree = dict[str, Any]
T = TypeVar("T")
NODE, NS = "chaotic", "default"
FAILING = "lone failing"
MOST = 4  #: CPUs in a claim
REQUIRED = {"required-plugins.noderesource.dev": "[dra.cpu]"}
CLASS = {
    "metadata": {"name": "dra.cpu"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
}
_FILE = re.compile(r"(dra\.k8s\.io-cpu_claim-|dra\.cpu_metadata_)(.{36})(_cpus|)\.json")
STAY = ["/bin/sh", "-c", "exec sleep 86400"]
FAIL = ["/bin/sh", "-c", "sleep 0.2; exit 3"]
END = ["/bin/sh", "-c", "sleep 0.3"]


def template(cpus: int) -> Tree:
    wish = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": str(cpus)}}}
    devices = {"requests": [{"name": "cpus", "exactly": wish}]}
    return {"metadata": {"name": f"cpus-{cpus}"}, "spec": {"spec": {"devices": devices}}}


class DriverCluster:
    """Server, scheduler, agent and driver; `real`: on this machine's CPUs, else on 16 simulated ones."""

    def __init__(self, root: Path, directory: Path, *, real: bool) -> None:
        self.root, self.real = root, real
        self.node_root, self.cdi = root / "node", root / "cdi"
        self.record = self.node_root / "plugins/dra.cpu/cpus.json"
        self._cgroups = f"plimsoll-{root.name}-x"
        if real:
            self.every = CpuSet(os.sched_getaffinity(0))
            machine, host = "", "/"
        else:
            topology = make_machine(sockets=2, cores=4, threads=2)
            self.every = topology.all
            self.set_machine(topology)
            numa = [{"id": n, "cpus": str(cpus), "memory": "32Gi"} for n, cpus in topology.numa.items()]
            capacity = {"cpu": 16, "memory": "64Gi"}
            text = yaml.safe_dump({"capacity": capacity, "cpus": "0-15", "numa": numa})
            (root / "machine.yaml").write_text(text)
            machine, host = f"--machine {root / 'machine.yaml'} --cgroups plan", str(root / "host")
        self.server = ForkedServer(directory)
        self.scheduler = ForkedScheduler(directory, self.server.kubeconfig)
        self.node = ForkedNode(
            directory,
            f"node --kubeconfig {self.server.kubeconfig} --name {NODE} --root {self.node_root} --listen= "
            f"--cdi {self.cdi} --cgroup-root {self._cgroups} {machine}",
        )
        self.driver = ForkedCpuDriver(
            directory,
            f"driver cpu --kubeconfig {self.server.kubeconfig} --hostname-override {NODE} "
            f"--bind-address 127.0.0.1:0 --kubelet-root-dir {self.node_root} --cdi-dir {self.cdi} "
            f"--nri-socket {self.node_root}/nri/nri.sock --enforcement nri --host-root {host}",
        )
        self.watch = CpusetWatcher(self.node_root, real=real, every=self.every)

    def set_machine(self, topology: Topology) -> None:
        """Change all files of the simulated machine at once."""
        place = Path(tempfile.mkdtemp(prefix="machine-", dir=self.root))
        write_sysfs(topology, place)
        link = self.root / "host.new"
        link.symlink_to(place)
        os.replace(link, self.root / "host")

    def start(self) -> None:
        self.server.start()
        self.scheduler.start()
        self.node.start()
        self.node.await_ready()
        self.driver.start()
        self.driver.await_ready()
        self.watch.start()

    def close(self) -> None:
        with suppress(RuntimeError):  # it was never started
            self.watch.stop()
        for each in (self.driver, self.node, self.scheduler, self.server):
            each.close()
        for box in self.watch.look():  # after a test that failed
            with suppress(ProcessLookupError):
                os.kill(box.pid, 9)
        if self.real:
            open_cgroups(self._cgroups, owner=owner_of(NODE, self.node_root)).tear_down()

    def tracebacks(self) -> list[str]:
        logs = [each.log for each in (self.driver, self.node)]
        return [str(log) for log in logs if "Traceback" in log.read_text(errors="replace")]

    def cgroups_left(self) -> tuple[str, ...]:
        return (
            tuple(open_cgroups(self._cgroups, owner=owner_of(NODE, self.node_root)).pods())
            if self.real
            else ()
        )

    def recorded(self) -> dict[str, str]:
        """Return the claims in the checkpoint, with their CPUs."""
        if not self.record.exists():
            return {}
        body = json.loads(self.record.read_bytes())["body"]
        return {
            claim["uid"]: str(CpuSet.parse(",".join(assignment["cpus"] for assignment in claim["grants"])))
            for claim in body["claims"]
        }

    def files(self) -> list[str]:
        """Return the claims with CDI files, twice: as passed to containers, and as read from the files."""
        names = os.listdir(self.cdi) if self.cdi.exists() else []
        return sorted(_FILE.sub(r"\2", name) for name in names)

    def problems(self, held: set[str]) -> list[str]:
        """Return the problems if exactly these claims should be prepared."""
        try:
            reported = self.driver.describe()
            recorded = self.recorded()
        except (OSError, ValueError, KeyError) as error:
            return [f"the driver: {error}"]
        found = [f"the driver: {problem}" for problem in reported["problems"]]
        if "claims" not in reported:
            return [*found, "the driver is starting"]
        found += [f"the driver: {fault}" for fault in reported["faults"]]
        claims = {claim["uid"]: claim for claim in reported["claims"]}
        found += [f"claim {uid}: {claim['disputed']}" for uid, claim in claims.items() if claim["disputed"]]
        cpus = {uid: str(claim["cpus"]) for uid, claim in claims.items()}
        if cpus.keys() != held:
            found.append(f"held are {sorted(cpus)}, should be {sorted(held)}")
        if recorded != cpus:
            found.append(f"on record are {recorded}, held are {cpus}")
        if self.files() != sorted([*cpus, *cpus]):
            found.append(f"CDI files are of {self.files()}, held are {sorted(cpus)}")
        shared = self.every
        for each in cpus.values():
            shared -= CpuSet.parse(each)
        if reported["shared"] != str(shared):
            found.append(f"shared are {reported['shared']}, should be {shared}")
        for box in self.watch.look():
            if box.assigned and str(box.own) != ",".join(cpus.get(uid, "?") for uid in box.claims):
                found.append(f"{box}, the claim has {[cpus.get(uid) for uid in box.claims]}")
            if box.cpus != (box.own or shared):
                found.append(f"{box}, should be {box.own or shared}")
        return found


@contextmanager
def running_cluster(root: Path, directory: Path, *, real: bool) -> Iterator[DriverCluster]:
    cluster = DriverCluster(root, directory, real=real)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


async def until_none(find_problems: Callable[[], Awaitable[list[str]]], *, seconds: float = DEADLINE) -> None:
    """Wait until there are no problems."""
    await until(find_problems, lambda problems: not problems, seconds=seconds)


class PodLoad:
    """Pods by name, with their kind; at most `room` CPUs are claimed at a time.

    `strict`: no container starts while no driver pins; otherwise only containers with claims are blocked.
    """

    KINDS = (
        "plain",
        "plain",
        "claim",
        "claim",
        "claim",
        "together",
        "beside",
        "failing",
        "job",
        FAILING,
    )

    def __init__(
        self, client: Client, dice: Random, room: int, *, strict: bool = False, devices: int = 1
    ) -> None:
        """`devices`: number of devices that the CPUs are spread over; a claim fits into one of them."""
        self.client, self.dice, self.room, self.strict = client, dice, room, strict
        self._devices = devices
        self.alive: dict[str, tuple[str, int]] = {}
        self.made = self.removed = 0
        self.claims_made = self.turned_away = 0

    async def furnish(self) -> None:
        async def make(endpoint: Endpoint, tree: Tree, namespace: str = "") -> None:
            await insist(lambda: self.client.create(endpoint, tree, namespace), 409)

        await make(DEVICE_CLASSES, CLASS)
        for cpus in range(1, MOST + 1):
            await make(RESOURCE_CLAIM_TEMPLATES, template(cpus), NS)

    @property
    def claimed(self) -> int:
        return sum(cpus for _, cpus in self.alive.values())

    async def add(self, kind: str = "") -> None:
        """Add a pod if there are enough CPUs."""
        kind = kind or self.dice.choice(self.KINDS)
        cpus = self.dice.randint(1, MOST) if kind not in ("plain", FAILING) else 0
        if cpus and self.claimed >= self.room and self.dice.random() < 0.7:
            # Who comes gets the CPUs of who goes.
            await self.remove(self.dice.choice([each for each, (_, held) in self.alive.items() if held]))
        # As much as one device has in any case, however the claims are spread.
        cpus = min(cpus, (self.room - self.claimed + self._devices - 1) // self._devices)
        if cpus <= 0:
            cpus, kind = 0, kind if kind == FAILING else "plain"
        self.made += 1
        name = f"pod-{self.made}"
        tree = self._tree(name, kind, cpus)
        self.alive[name] = (kind, cpus)
        self.claims_made += bool(cpus)
        await insist(lambda: self.client.create(PODS, tree, NS), 409)

    def _tree(self, name: str, kind: str, cpus: int) -> Tree:
        claims = {"claims": [{"name": "cpus"}]} if cpus else {}
        main: Tree = {"name": "main", "image": "any", "command": STAY, "resources": claims}
        containers = [main]
        spec: Tree = {
            "schedulerName": "plimsoll",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,  # no controller publishes the certificate here
            "containers": containers,
        }
        if cpus:
            spec["resourceClaims"] = [{"name": "cpus", "resourceClaimTemplateName": f"cpus-{cpus}"}]
        match kind:
            case "together":
                containers.append({**main, "name": "second"})
                spec["initContainers"] = [{**main, "name": "first", "command": END}]
            case "beside":
                containers.append({"name": "beside", "image": "any", "command": STAY})
            case "failing":
                containers.append({**main, "name": "failing", "command": FAIL})
            case "lone failing":
                main["command"] = FAIL
            case "job":
                main["command"] = END
                spec["restartPolicy"] = "Never"
        required = REQUIRED if cpus or self.strict or self.dice.random() < 0.5 else {}
        return {"metadata": {"name": name, "annotations": required}, "spec": spec}

    async def remove(self, name: str = "", *, keep: str = "") -> None:
        """Remove a pod, at times by force."""
        names = [each for each in self.alive if each != keep]
        if not name and not names:
            return
        name = name or self.dice.choice(names)
        del self.alive[name]
        self.removed += 1
        grace = 0 if self.dice.random() < 0.3 else None
        await insist(lambda: self.client.delete(PODS, name, NS, grace=grace), 404, 409)

    async def look(self) -> tuple[set[str], list[str]]:
        """Return the UIDs of claims that should be prepared, and the remaining problems."""
        pods = {tree["metadata"]["name"]: tree for tree in await self._list(PODS)}
        claims = {tree["metadata"]["name"]: tree for tree in await self._list(RESOURCE_CLAIMS)}
        found = [f"pod {name} is still there" for name in pods if name not in self.alive]
        held: set[str] = set()
        for name, (kind, cpus) in list(self.alive.items()):
            if name not in pods:
                found.append(f"pod {name} is not there")
                continue
            if pods[name]["status"].get("reason", "").startswith("OutOf"):
                # Who was deleted by force is still there: the node knows, the scheduler does not.
                self.turned_away += 1
                await self.remove(name)
                found.append(f"pod {name} was turned away")
                continue
            if problem := _unsettled(kind, pods[name]):
                found.append(f"pod {name} ({kind}, {cpus} CPUs) {problem}")
            if cpus and kind != "job":
                named = pods[name]["status"].get("resourceClaimStatuses") or [{}]
                claim = claims.get(named[0].get("resourceClaimName", ""), {"metadata": {"uid": "none yet"}})
                held.add(claim["metadata"]["uid"])
        return held, found

    async def _list(self, endpoint: Endpoint) -> list[Tree]:
        listing = await insist(lambda: self.client.list(endpoint, NS))
        assert listing is not None
        return [codec.decode_tree(raw) for raw in listing.items]

    async def published_cpus(self) -> int:
        """Return the number of CPUs of all devices; which CPU stays shared may change."""
        listing = await insist(lambda: self.client.list(RESOURCE_SLICES))
        assert listing is not None
        devices = [each for raw in listing.items for each in codec.decode_tree(raw)["spec"]["devices"]]
        return sum(int(each["capacity"]["dra.cpu/cpu"]["value"]) for each in devices)


def _unsettled(kind: str, pod: Tree) -> str:
    phase, containers = pod["status"].get("phase"), pod["status"].get("containerStatuses") or []
    if kind == "job":
        return "" if phase == "Succeeded" else f"is {phase}: {_why(containers)}"
    steady = [each for each in containers if each["name"] in ("main", "second", "beside")]
    if kind == FAILING:
        restarted = any(each.get("restartCount", 0) for each in containers)
        return "" if restarted else f"has not failed yet: {_why(containers)}"
    if not steady or not all(each.get("ready") for each in steady):
        return f"is {phase}: {_why(containers) or pod['status']}"
    ended = [f"{each['name']}: {each.get('lastState')}" for each in steady if each.get("restartCount", 0)]
    return f"was started again: {'; '.join(ended)}" if ended else ""


def _why(containers: list[Tree]) -> str:
    return "; ".join(f"{each['name']}: {each.get('state')}" for each in containers)
