"""Preemption: pods that may take the place of others, and disruption budgets."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.client.endpoints import POD_DISRUPTION_BUDGETS, PODS, PRIORITY_CLASSES
from tests.chaos.scheduler_faults.small_cluster import NS, pod_tree
from tests.simulation.events import Event
from tests.simulation.faults import Dice
from tests.simulation.features.feature import Feature, Tree

_CLASSES = {"mighty": 10_000, "mightier": 20_000}


class Preemption(Feature):
    """Pods whose priority class preempts."""

    name = "preemption"

    def create_objects(self) -> None:
        for name, value in _CLASSES.items():
            self.admin.create_all(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"kind": "plain"}}}
        budget = {"metadata": {"name": "budget"}, "spec": spec}
        self.admin.create_all(POD_DISRUPTION_BUDGETS, budget, NS)

    def events(self) -> Iterator[Event]:
        yield from self.repeat("pod", 0.8, self._create_pod)
        yield from self.repeat("budget", 0.3, self._change_budget)

    def _create_pod(self, dice: Dice) -> str:
        kind = dice.choice(("none", "plain", "fabric", "cores", "extended"))
        name = f"m-{int(dice.random() * 8)}-{kind}"
        tree = pod_tree(name, kind, cpu=dice.choice(("1", "3")))
        tree["spec"]["priorityClassName"] = dice.choice(tuple(_CLASSES))
        return f"create pod {name}: {self.admin.create(PODS, tree, NS).status}"

    def _change_budget(self, dice: Dice) -> str:
        allowed = dice.choice((0, 1, 3))
        status = {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
        }
        reply = self.admin.patch(POD_DISRUPTION_BUDGETS, "budget", {"status": status}, NS, sub="status")
        return f"budget allows {allowed} disruptions: {reply.status}"

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        if plural != "pods" or old is None:
            return
        call = self.case.history.request
        is_deleted = new is None or "deletionTimestamp" in new["metadata"]
        if call is None or not call.process.startswith("scheduler") or not is_deleted:
            return
        if "deletionTimestamp" in old["metadata"] or old["metadata"]["namespace"] != NS:
            return
        if old["spec"].get("priority", 0) >= max(_CLASSES.values()):
            self.report(f"pod {old['metadata']['name']} of the highest priority was preempted")

    def nodes_of(self, pod: Tree) -> frozenset[str] | None:
        """A node is not judged while a pod of at least this priority is nominated to it."""
        mine = pod["spec"].get("priority", 0)
        taken = {
            (other.get("status") or {}).get("nominatedNodeName")
            for other in self.admin.pods()
            if not other["spec"].get("nodeName")
            and other["metadata"]["uid"] != pod["metadata"]["uid"]
            and other["spec"].get("priority", 0) >= mine
        }
        nodes = [node["metadata"]["name"] for node in self.case.api.list_trees("nodes")]
        return frozenset(name for name in nodes if name not in taken)
