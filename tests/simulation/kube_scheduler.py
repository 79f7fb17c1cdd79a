"""Stand-in for kube-scheduler: it binds pods without claims by the requests of pods in its cache."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.client.informer import Informer
from plimsoll.errors import ApiError
from tests.chaos.scheduler_faults.objects import is_finished, node_of
from tests.simulation.invariants import Amounts, milli, requests_of, total_of
from tests.simulation.loop import Process
from tests.simulation.processes import Supervised

if TYPE_CHECKING:
    from tests.simulation.case import Case

Tree = dict[str, Any]

NAME = "default-scheduler"
_PAUSE = 0.2


class KubeScheduler:
    """Loop that binds pods; what it has bound counts until its cache has the binding."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._pods: Informer[Tree] = Informer(client, PODS, json.loads)
        self._nodes: Informer[Tree] = Informer(client, NODES, json.loads)
        self._assumed: dict[str, tuple[str, Amounts]] = {}  # by UID

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for informer in (self._pods, self._nodes):
                group.create_task(informer.run())
                await informer.synced()
            while True:
                await self._schedule_all()
                await asyncio.sleep(_PAUSE)

    async def _schedule_all(self) -> None:
        cached = {pod["metadata"]["uid"] for pod in self._pods.items()}
        self._assumed = {uid: each for uid, each in self._assumed.items() if uid in cached}
        for pod in self._pods.items():
            uid = pod["metadata"]["uid"]
            if node_of(pod):
                self._assumed.pop(uid, None)
            elif pod["spec"].get("schedulerName") == NAME and uid not in self._assumed:
                await self._schedule(pod)

    async def _schedule(self, pod: Tree) -> None:
        if pod["metadata"].get("deletionTimestamp"):
            return
        node = next((each["metadata"]["name"] for each in self._nodes.items() if self._fits(pod, each)), None)
        if node is None:
            return
        meta = pod["metadata"]
        self._assumed[meta["uid"]] = (node, requests_of(pod))
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
            "target": {"kind": "Node", "name": node},
        }
        try:
            await self._client.post(PODS, meta["name"], "binding", binding, meta["namespace"])
        except ApiError:
            self._assumed.pop(meta["uid"], None)

    def _fits(self, pod: Tree, node: Tree) -> bool:
        name = node["metadata"]["name"]
        if node["spec"].get("unschedulable") or node["spec"].get("taints"):
            return False
        cached = {each["metadata"]["uid"]: each for each in self._pods.items()}
        there = [each for each in cached.values() if node_of(each) == name and not is_finished(each)]
        assumed = [
            amounts
            for uid, (where, amounts) in self._assumed.items()
            if where == name and not node_of(cached.get(uid, {"spec": {}}))
        ]
        total = total_of([*map(requests_of, there), *assumed, requests_of(pod)])
        limits = node["status"]["allocatable"]
        return all(amount <= milli(limits.get(name, "0")) for name, amount in total.items())


def kube_scheduler(case: Case) -> Supervised:
    async def run(client: Client, process: Process) -> None:
        await KubeScheduler(client).run()

    return Supervised(case, "kube-scheduler", run)
