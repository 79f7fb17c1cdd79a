"""Load of the chaos test: pods are created and deleted, always more than there are devices and resources
for.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from plimsoll.client import Client
from plimsoll.client.endpoints import PODS
from tests.chaos.scheduler_faults.objects import Tree, node_of
from tests.chaos.scheduler_faults.small_cluster import EVERYWHERE, LOCAL, NAMED, NODE_COUNT, NS, pod_tree
from tests.chaos.scheduler_load import insist

#: What pods want, and how often.
KINDS = {
    "none": 14,
    "plain": 14,
    "fabric": 14,
    "share": 10,
    "cores": 12,
    "part": 8,
    "either": 8,
    "both": 8,
    "named": 12,
    "extended": 12,
}


@dataclass
class Load:
    """Creator and deleter of pods that also acts as the kubelet for deleted ones."""

    client: Client
    dice: Random
    #: About how many pods there are at a time: more than devices and room.
    pods: int = 45
    counts: Counter[str] = field(default_factory=Counter)
    #: Names of pods that were seen on a node.
    bound: set[str] = field(default_factory=set)

    async def run(self) -> None:
        while True:
            trees = await self.list_pods()
            for _ in range(self.dice.randint(2, 5)):
                if len(trees) < self.dice.randint(self.pods - 10, self.pods + 10):
                    await self.create()
                else:  # mostly pods with a node: what they held is contended for at once
                    bound = [tree for tree in trees if node_of(tree)] or trees
                    await self._remove(self.dice.choice(bound if self.dice.random() < 0.75 else trees))
            for tree in trees:
                if tree["metadata"].get("deletionTimestamp"):
                    await self.delete(tree, grace=0)
            await asyncio.sleep(self.dice.random() * 0.1)

    async def list_pods(self) -> list[Tree]:
        listing = await insist(lambda: self.client.list(PODS, NS))
        assert listing is not None
        trees: list[Tree] = [json.loads(raw) for raw in listing.items]
        self.bound |= {tree["metadata"]["uid"] for tree in trees if node_of(tree)}
        return trees

    async def create(self) -> None:
        kind = self.dice.choices(list(KINDS), list(KINDS.values()))[0]
        self.counts["created"] += 1
        # Few names, so that a new pod often has the name of one that is being forgotten.
        name = f"p-{self.counts['created'] % (2 * self.pods)}-{kind}"
        claim = self.dice.choice(list(NAMED)) if kind == "named" else ""
        cpu, widget = self.dice.choice(("250m", "500m", "1", "2")), self.dice.random() < 0.15
        urgent = self.dice.random() < 0.4
        tree = pod_tree(name, kind, claim=claim, cpu=cpu, widget=widget, urgent=urgent)
        await insist(lambda: self.client.create(PODS, tree, NS), 409)

    async def _remove(self, tree: Tree) -> None:
        """Delete a pod at once or gracefully, or let it finish."""
        how = self.dice.random()
        if how < 0.2 and node_of(tree):
            self.counts["finished"] += 1
            patch = {"metadata": {"uid": tree["metadata"]["uid"]}, "status": {"phase": "Succeeded"}}
            name = tree["metadata"]["name"]
            await insist(
                lambda: self.client.patch(PODS, name, patch, NS, subresource="status"), 404, 409, 422
            )
        elif how < 0.5:
            await self.delete(tree, grace=30)
        else:
            await self.delete(tree, grace=0)

    async def delete(self, tree: Tree, grace: int) -> None:
        name, uid = tree["metadata"]["name"], tree["metadata"]["uid"]
        self.counts["deleted"] += 1
        await insist(lambda: self.client.delete(PODS, name, NS, uid=uid, grace=grace), 404, 409)

    async def delete_all(self) -> None:
        for tree in await self.list_pods():
            await self.delete(tree, grace=0)

    async def fill(self) -> list[str]:
        """Create one pod for each device; if nothing was leaked, all of them are scheduled."""
        names = []
        for kind, count in (
            ("plain", NODE_COUNT * LOCAL),
            ("fabric", EVERYWHERE),
            ("cores", NODE_COUNT * LOCAL),
        ):
            names += [(f"fill-{kind}-{number}", kind) for number in range(count)]
        names += [(f"fill-share-{number}", "share") for number in range(2 * NODE_COUNT)]
        for name, kind in names:
            tree = pod_tree(name, kind, cpu="100m")
            await insist(lambda tree=tree: self.client.create(PODS, tree, NS), 409)  # type: ignore[misc]
        return [name for name, _ in names]
