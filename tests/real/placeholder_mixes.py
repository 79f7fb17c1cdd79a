"""Random mixes on a real control plane with default gates: no node is ever past its allocatable amount.

    python -m tests.real.placeholder_mixes --seed N --mixes M [--annotations-only] [--lanes L] [--real-node]

kube-scheduler places ordinary pods and our scheduler pods with claims, on the same nodes. A mix creates pods
of different priorities, deletes and evicts them, lets them end, drains nodes, deletes placeholders, and kills
the schedulers and the API server; then everything comes to rest. `placeholder_checker` replays all events.
Mixes run one after the other in each lane, which has nodes of its own. With --real-node one node of the first
lane has a real kubelet; the others are simulated (`simulated_kubelets`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from plimsoll.errors import ApiError
from tests.directories import short_directory
from tests.real.kubelet import IMAGE, RealNode
from tests.real.object_history import ObjectHistory
from tests.real.placeholder_checker import (
    MAPPINGS,
    PLACEHOLDERS,
    NodeStates,
    amount_of,
    is_placeholder,
)
from tests.real.simulated_kubelets import ENDS, SimulatedKubelets
from tests.real.stock_plane import StockPlane, run_stock_plane
from tests.waiting import until

Tree = dict[str, Any]
LANE, REAL = "lane", "real"
_CPUS, _CARDS = "cpus.example.com", "cards.example.com"
_CORES = "cores"
#: Device classes: driver, mappings and policy.
_CLASSES: dict[str, tuple[str, Tree, str]] = {
    "cpus": (_CPUS, {"cpu": {"capacityKey": _CORES}}, ""),
    "pool": (_CPUS, {"cpu": {"capacityKey": _CORES}}, "ConsumeFrom"),
    "max": (_CPUS, {"cpu": {"capacityKey": _CORES}}, "Max"),
    "card": (
        _CARDS,
        {"cpu": {"allocationMultiplier": "500m"}, "memory": {"allocationMultiplier": "256Mi"}},
        "",
    ),
}
_PRIORITIES = {"low": 0, "middle": 100, "high": 1000}
_AMOUNTS = {"cpu": "3", "memory": "2Gi", "pods": "16", "ephemeral-storage": "10Gi"}
#: Seconds in which a mix must come to rest.
_REST = 90.0
_SETTLED = 0.5
_COMMAND = "trap 'exit 0' TERM; sleep {seconds} & wait $!; exit {code}"


def mappings() -> dict[str, Tree]:
    """Return what the checker reads from the classes' annotations."""
    return {name: {"driver": driver, **_annotation(name)} for name, (driver, *_) in _CLASSES.items()}


def _annotation(name: str) -> Tree:
    _, rules, policy = _CLASSES[name]
    tree: Tree = {"nodeAllocatableResourceMappings": rules}
    if policy:
        tree["nodeAllocatableResourceAccountingPolicies"] = dict.fromkeys(rules, policy)
    return tree


async def furnish(client: Client) -> None:
    """Create the classes of a cluster."""
    for name, (driver, *_) in _CLASSES.items():
        metadata = {"name": name, "annotations": {MAPPINGS: json.dumps(_annotation(name))}}
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        await client.create(DEVICE_CLASSES, {"metadata": metadata, "spec": {"selectors": [selector]}})
    for name, value in _PRIORITIES.items():
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


async def publish(client: Client, node: str, cores: str, cards: int) -> dict[tuple[str, str, str], Any]:
    """Publish the devices of a node: a socket whose CPUs can be shared out, and cards."""
    socket = {"name": "socket0", "allowMultipleAllocations": True, "capacity": {_CORES: {"value": cores}}}
    devices: dict[str, list[Tree]] = {
        _CPUS: [socket],
        _CARDS: [{"name": f"card{number}"} for number in range(cards)],
    }
    capacities: dict[tuple[str, str, str], Any] = {}
    for driver, each in devices.items():
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": each}
        await client.create(RESOURCE_SLICES, {"metadata": {"name": f"{node}-{driver}"}, "spec": spec})
        for device in each:
            amounts = {name: amount_of(one["value"]) for name, one in device.get("capacity", {}).items()}
            capacities[driver, node, device["name"]] = amounts
    return capacities


def claim_spec(kind: str, cores: str = "") -> Tree:
    exactly: Tree = {"deviceClassName": kind}
    if cores:
        exactly["capacity"] = {"requests": {_CORES: cores}}
    return {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}


def make_pod(
    name: str,
    lane: str,
    cpu: str,
    memory: str = "64Mi",
    *,
    claims: dict[str, Tree] | None = None,
    **spec: Any,
) -> Tree:
    """Return a pod for kube-scheduler, or with claims for our scheduler; it may end by itself."""
    ends = spec.pop("ends", None)
    seconds, code = ends or (100000, 0)
    container: Tree = {
        "name": "main",
        "image": IMAGE,
        "command": ["/bin/sh", "-c", _COMMAND.format(seconds=seconds, code=code)],
        "resources": {"requests": {"cpu": cpu, "memory": memory}},
    }
    tree: Tree = {
        "containers": [container],
        "nodeSelector": {LANE: lane},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": False,
        **spec,
    }
    if claims:
        container["resources"]["claims"] = [{"name": each} for each in claims]
        tree["resourceClaims"] = [{"name": each, **source} for each, source in claims.items()]
        tree["schedulerName"] = "plimsoll"
    annotations = {ENDS: json.dumps(ends)} if ends else {}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": tree}


@dataclass
class MixesCluster:
    """Running cluster of lanes, and what the checker knows about it."""

    plane: StockPlane
    client: Client
    states: NodeStates
    history: ObjectHistory
    lanes: dict[str, list[str]]
    placeholders: bool
    changed: dict[str, float] = field(default_factory=dict)  #: time of the last event of a lane's pods
    counts: Counter[str] = field(default_factory=Counter)
    restarting: asyncio.Lock = field(default_factory=asyncio.Lock)
    checking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def catch_up(self) -> None:
        """Replay all events until now."""
        async with self.checking:
            for _, deleted, tree in await self.history.take():
                self.states.apply(deleted, tree)

    async def do(self, call: Callable[..., Awaitable[Any]], *words: Any, **options: Any) -> Any:
        """Call the API until it answers; None if it refuses."""
        for _ in range(200):
            try:
                return await call(*words, **options)
            except ApiError as error:
                if error.code in (400, 404, 409, 422):
                    return None
                if error.code == 403 and "being terminated" in str(error):
                    return None
            await asyncio.sleep(0.1)
        raise AssertionError("the API server does not answer")


class Mix:
    """One mix in a lane."""

    def __init__(self, cluster: MixesCluster, lane: str, seed: str) -> None:
        self.cluster, self.lane = cluster, lane
        self.client = cluster.client
        self.random = random.Random(seed)
        self.namespace = f"mix-{seed}"
        self.names: list[str] = []
        self.shared: Counter[str] = Counter()
        self.count = 0

    async def play(self) -> list[str]:
        """Run the mix; return the faults that are left when it has come to rest."""
        do, client = self.cluster.do, self.client
        await do(client.create, NAMESPACES, {"metadata": {"name": self.namespace}})
        for name, spec in self._templates().items():
            tree = {"metadata": {"name": name}, "spec": {"spec": spec}}
            await do(client.create, RESOURCE_CLAIM_TEMPLATES, tree, self.namespace)
        choices = {
            self.create_pod: 13,
            self.create_charged_pod: 13,
            self.delete_pod: 5,
            self.delete_by_force: 2,
            self.delete_placeholder: 1,
            self.drain: 1,
            self.restart: 1,
        }
        for _ in range(self.random.randint(22, 34)):
            (step,) = self.random.choices(list(choices), list(choices.values()))
            await step()
            await asyncio.sleep(self.random.choice((0, 0, 0.02, 0.1, 0.25)))
        faults = await self.rest()
        await self.clear()
        return faults

    def _templates(self) -> dict[str, Tree]:
        cores = {"half": "500m", "one": "1", "more": "1500m"}
        found = {
            f"{kind}-{name}": claim_spec(kind, text)
            for kind in ("cpus", "max")
            for name, text in cores.items()
        }
        return {**found, "pool-one": claim_spec("pool", "1"), "card": claim_spec("card")}

    # -- steps

    def _next(self, prefix: str) -> str:
        self.count += 1
        self.names.append(f"{prefix}{self.count}")
        return self.names[-1]

    def _options(self) -> Tree:
        options: Tree = {"priorityClassName": self.random.choice(list(_PRIORITIES))}
        if self.random.random() < 0.25:
            options["ends"] = (round(self.random.uniform(0.2, 2.0), 1), self.random.choice((0, 1)))
        return options

    async def _create(self, tree: Tree) -> None:
        self.cluster.counts["pods"] += 1
        await self.cluster.do(self.client.create, PODS, tree, self.namespace)

    async def create_pod(self) -> None:
        cpu = self.random.choice(("250m", "500m", "500m", "1", "1500m", "2"))
        memory = self.random.choice(("64Mi", "128Mi", "512Mi"))
        await self._create(make_pod(self._next("o"), self.lane, cpu, memory, **self._options()))

    async def create_charged_pod(self) -> None:
        kind = self.random.choice(("cpus", "cpus", "cpus", "card", "both", "max", "pool", "shared", "shared"))
        size = self.random.choice(("half", "one", "more"))
        cpu = self.random.choice(("50m", "100m", "250m"))
        cpus, card = {"resourceClaimTemplateName": f"cpus-{size}"}, {"resourceClaimTemplateName": "card"}
        claims: dict[str, Tree] = {
            "cpus": {"cpus": cpus},
            "card": {"card": card},
            "both": {"cpus": cpus, "card": card},
            "max": {"max": {"resourceClaimTemplateName": f"max-{size}"}},
            "pool": {"pool": {"resourceClaimTemplateName": "pool-one"}},
        }.get(kind, {})
        if kind == "max":
            cpu = self.random.choice(("250m", "500m", "1500m"))
        if kind == "shared":
            name = self.random.choice(("shared-a", "shared-b"))
            if not self.shared[name]:
                tree = {
                    "metadata": {"name": name},
                    "spec": claim_spec("pool", self.random.choice(("1", "1500m"))),
                }
                await self.cluster.do(self.client.create, RESOURCE_CLAIMS, tree, self.namespace)
            self.shared[name] += 1
            if self.shared[name] > 4:
                return  # what they draw would be more than there is
            claims = {"pool": {"resourceClaimName": name}}
            if self.random.random() < 0.3:
                claims["card"] = card
        self.cluster.counts["pods with claims"] += 1
        await self._create(make_pod(self._next("d"), self.lane, cpu, claims=claims, **self._options()))

    async def _delete(self, grace: int | None) -> None:
        if self.names:
            name = self.names.pop(self.random.randrange(len(self.names)))
            await self.cluster.do(self.client.delete, PODS, name, self.namespace, grace=grace)

    async def delete_pod(self) -> None:
        self.cluster.counts["deletions"] += 1
        await self._delete(None)

    async def delete_by_force(self) -> None:
        self.cluster.counts["forced deletions"] += 1
        await self._delete(0)

    async def _pods_on(self, nodes: list[str]) -> list[Tree]:
        found: list[Tree] = []
        for node in nodes:
            listing = await self.cluster.do(self.client.list, PODS, fields=f"spec.nodeName={node}")
            found += map(json.loads, listing.items)
        return found

    async def delete_placeholder(self) -> None:
        pods = [pod for pod in await self._pods_on(self.cluster.lanes[self.lane]) if is_placeholder(pod)]
        if pods:
            self.cluster.counts["deleted placeholders"] += 1
            meta = self.random.choice(pods)["metadata"]
            self.cluster.states.removed_by_hand.add(meta["uid"])
            await self.cluster.do(self.client.delete, PODS, meta["name"], PLACEHOLDERS)

    async def drain(self) -> None:
        """Do as `kubectl drain --force`, and uncordon."""
        self.cluster.counts["drains"] += 1
        node = self.random.choice(self.cluster.lanes[self.lane])
        await self.cluster.do(self.client.patch, NODES, node, {"spec": {"unschedulable": True}})
        for pod in await self._pods_on([node]):
            meta = pod["metadata"]
            if is_placeholder(pod):
                self.cluster.states.removed_by_hand.add(meta["uid"])
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            }
            await self.cluster.do(self.client.post, PODS, meta["name"], "eviction", body, meta["namespace"])
        await asyncio.sleep(self.random.uniform(0.1, 0.6))
        await self.cluster.do(self.client.patch, NODES, node, {"spec": {"unschedulable": None}})

    async def restart(self) -> None:
        plane = self.cluster.plane
        what = self.random.choice(("scheduler", "scheduler", "kube-scheduler", "kube-apiserver"))
        if self.cluster.restarting.locked():
            return  # another lane does
        self.cluster.counts[f"restarts of {what}"] += 1
        async with self.cluster.restarting:
            if what == "kube-apiserver":
                await plane.restart_server()
            else:
                await plane.restart(plane.scheduler if what == "scheduler" else plane.kube_scheduler)

    # -- the end

    async def rest(self) -> list[str]:
        """Wait until nothing is wrong any more, and return what still is."""
        deadline = time.monotonic() + _REST
        while True:
            faults = ["it does not come to rest"]
            if time.monotonic() - self.cluster.changed.get(self.lane, 0.0) > _SETTLED:
                await self.cluster.catch_up()
                faults = self.cluster.states.find_faults(self.lane, placeholders=self.cluster.placeholders)
            if not faults or time.monotonic() > deadline:
                return faults
            await asyncio.sleep(0.2)

    async def clear(self) -> None:
        do, client = self.cluster.do, self.client
        await do(client.delete_collection, PODS, self.namespace, grace=0)
        await do(client.delete_collection, RESOURCE_CLAIMS, self.namespace)

        async def is_empty() -> bool:
            for endpoint in (PODS, RESOURCE_CLAIMS):
                listing = await do(client.list, endpoint, self.namespace)
                for raw in listing.items:  # what controllers have created since
                    name = json.loads(raw)["metadata"]["name"]
                    await do(client.delete, endpoint, name, self.namespace, grace=0)
                if listing.items:
                    return False
            return not await self._pods_on(self.cluster.lanes[self.lane])

        await until(is_empty, seconds=_REST, pause=0.1, context=f"{self.namespace} is not empty")
        await do(client.delete, NAMESPACES, self.namespace)
        await self.cluster.catch_up()


@asynccontextmanager
async def run_cluster(
    directory: Path, *, placeholders: bool, lanes: int, real_node: bool
) -> AsyncIterator[MixesCluster]:
    """Run a control plane and the nodes of all lanes."""
    async with AsyncExitStack() as stack:
        plane = stack.enter_context(
            run_stock_plane(directory, placeholders="Auto" if placeholders else "Off")
        )
        client = await stack.enter_async_context(Client.connect(plane.server.config))
        await plane.prepare(client)
        await furnish(client)
        names = {str(lane): [f"n{lane}-{number}" for number in range(3)] for lane in range(lanes)}
        kubelets = SimulatedKubelets(client)
        capacities: dict[tuple[str, str, str], Any] = {}
        for lane, nodes in names.items():
            for node in nodes:
                await kubelets.add(node, _AMOUNTS, {LANE: lane})
                capacities |= await publish(client, node, "3", 2)
        if real_node:
            await start_real_node(stack, plane, client)
            capacities |= await publish(client, REAL, "2", 1)
            names["0"].append(REAL)
        states = NodeStates(mappings(), capacities, set())
        lane_of = {node: lane for lane, nodes in names.items() for node in nodes}
        changed: dict[str, float] = {}
        counts: Counter[str] = Counter()
        noted: set[tuple[str, str]] = set()

        def count(tree: Tree, what: str) -> None:
            if (at := (tree["metadata"]["uid"], what)) not in noted:
                noted.add(at)
                counts[what] += 1

        def note(deleted: bool, tree: Tree) -> None:
            if tree["kind"] == "Pod":
                what = "placeholders" if is_placeholder(tree) else "pods"
                if what == "placeholders":
                    count(tree, what)
                if tree["status"].get("reason", "").startswith("OutOf"):
                    count(tree, f"{what} rejected by kubelets")
                for each in tree["status"].get("conditions", ()):
                    if each.get("reason") == "PreemptionByScheduler":
                        count(tree, f"preempted {what} by {each['message'].partition(':')[0]}")
                node = tree["spec"].get("nodeName", "")
                lane = tree["spec"].get("nodeSelector", {}).get(LANE) or lane_of.get(node, "")
                changed[lane] = time.monotonic()

        history = ObjectHistory(client, note)
        await stack.enter_async_context(history.recording())
        await stack.enter_async_context(kubelets.running())
        stack.enter_context(plane.running())
        yield MixesCluster(plane, client, states, history, names, placeholders, changed, counts)


async def start_real_node(stack: AsyncExitStack, plane: StockPlane, client: Client) -> Tree:
    """Start a real kubelet without the feature gate as a node of the first lane, and return its node."""
    directory = stack.enter_context(short_directory())
    node = RealNode(directory, REAL, gates={"DRANodeAllocatableResources": False})
    stack.callback(node.stop)
    if reason := await asyncio.to_thread(node.start, plane.kubeconfig):
        raise AssertionError(reason)

    async def is_ready() -> bool:
        tree = await client.get(NODES, REAL)
        patch = {"metadata": {"labels": {LANE: "0"}}, "spec": {"taints": None}}
        await client.patch(NODES, REAL, patch)
        return any(
            each["type"] == "Ready" and each["status"] == "True" for each in tree["status"]["conditions"]
        )

    await until(is_ready, ignore=(ApiError, KeyError), context=lambda: node.kubelet.text()[-2000:])
    return await client.get(NODES, REAL)


async def run_mixes(
    directory: Path,
    seed: int,
    mixes: int,
    *,
    placeholders: bool = True,
    lanes: int = 3,
    real_node: bool = False,
) -> tuple[MixesCluster, list[str]]:
    """Run mixes and return the cluster as it was then, and all faults."""
    faults: list[str] = []
    numbers = iter(range(mixes))
    begin = time.monotonic()
    async with run_cluster(
        directory, placeholders=placeholders, lanes=min(lanes, mixes), real_node=real_node
    ) as cluster:

        async def work(lane: str) -> None:
            for number in numbers:
                start, past = time.monotonic(), len(cluster.states.excesses)
                mix = Mix(cluster, lane, f"{seed}-{number}")
                found = await mix.play()
                faults.extend(f"mix {seed}-{number}: {fault}" for fault in found)
                cluster.counts["mixes"] += 1
                nodes = cluster.lanes[lane]
                excesses = [each for each in cluster.states.excesses[past:] if each.node in nodes]
                cluster.counts["mixes with a node past its allocatable"] += bool(excesses)
                took = time.monotonic() - start
                report(f"mix {seed}-{number}: {took:.1f} s, {len(found)} faults", *found, *excesses)

        await asyncio.gather(*(work(lane) for lane in cluster.lanes))
        await cluster.catch_up()
    states = cluster.states
    excused = sum(each.excused for each in states.excesses)
    report(
        f"{mixes} mixes in {time.monotonic() - begin:.0f} s: {dict(cluster.counts)}",
        f"{states.states} states of nodes, {cluster.history.gaps} gaps in watches",
        f"{len(states.excesses) - excused} times past an allocatable amount, and {excused} times excused",
        f"{len(faults)} faults",
    )
    return cluster, faults


def report(line: str, *details: object) -> None:
    sys.stdout.write("\n  ".join((line, *map(str, details))) + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mixes", type=int, default=10)
    parser.add_argument("--lanes", type=int, default=3, help="mixes at the same time")
    parser.add_argument("--annotations-only", action="store_true", help="placeholders: {mode: Off}")
    parser.add_argument(
        "--real-node", action="store_true", help="with a kubelet and containerd in the first lane"
    )
    parser.add_argument("--keep-logs", type=Path, help="directory for the logs of all programs")
    options = parser.parse_args()
    with short_directory() as directory:
        try:
            _, faults = asyncio.run(
                run_mixes(
                    directory,
                    options.seed,
                    options.mixes,
                    placeholders=not options.annotations_only,
                    lanes=options.lanes,
                    real_node=options.real_node,
                )
            )
        finally:
            if options.keep_logs:
                options.keep_logs.mkdir(parents=True, exist_ok=True)
                for log in directory.glob("*.log"):
                    (options.keep_logs / log.name).write_bytes(log.read_bytes())
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
