"""Pod groups: gangs and pods with a basic policy, some with claims that the whole group shares.

No pod of a gang may be bound before minCount of its pods have their claims and charges written. A binding can
still fail after that, so at rest a gang may be bound in part; the invariant is checked when a pod is bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from plimsoll.client.endpoints import POD_GROUPS, PODS
from tests.chaos.scheduler_faults.objects import (
    claim_names,
    consumers,
    is_allocated,
    name_of,
)
from tests.chaos.scheduler_faults.small_cluster import NS, pod_tree
from tests.simulation.events import Event
from tests.simulation.faults import Dice
from tests.simulation.features.feature import Feature, Tree, is_bound_now

#: Names of groups are few, and those that are deleted come again.
_GROUPS = 4
#: Templates of claims that pods have on their own, and that a group shares.
_OWN, _SHARED = ("plain", "cores", "share"), ("fabric", "share", "plain")


class Gangs(Feature):
    """Pods of pod groups."""

    name = "gangs"

    def create_objects(self) -> None:
        #: Pods of each group, by its name, that have been ready to be bound: their UIDs.
        self._ready: dict[str, set[str]] = defaultdict(set)

    def events(self) -> Iterator[Event]:
        yield from self.repeat("group", 0.5, self._create_gang)
        yield from self.repeat("member", 0.4, self._create_member)
        yield from self.repeat("delete", 0.15, self._delete_gang)

    # -- load

    def _create_gang(self, dice: Dice) -> str:
        """Create a group and most of its pods, in any order."""
        name = f"gang-{int(dice.random() * _GROUPS)}"
        size = 2 + int(dice.random() * 3)
        is_gang, before = dice.random() < 0.85, dice.random() < 0.7
        minimum = max(1, size - int(dice.random() * 2))
        spec: Tree = {"schedulingPolicy": {"gang": {"minCount": minimum}} if is_gang else {"basic": {}}}
        shared = dice.choice(_SHARED) if dice.random() < 0.5 else ""
        if shared:
            spec["resourceClaims"] = [{"name": "together", "resourceClaimTemplateName": shared}]
        if dice.random() < 0.3:
            spec["disruptionMode"] = "PodGroup"
        group = {"metadata": {"name": name}, "spec": spec}
        if before:
            self.admin.create(POD_GROUPS, group, NS)
        own = dice.choice(_OWN)
        done = [self._create_pod(name, number, own, shared, dice) for number in range(size)]
        if not before:
            self.admin.create(POD_GROUPS, group, NS)
        return f"create gang {name} of {size}, at least {minimum}, shares {shared or 'nothing'}: {done}"

    def _create_member(self, dice: Dice) -> str:
        groups = self.case.api.list_trees("podgroups")
        if not groups:
            return ""
        group = dice.choice(groups)
        name, number = group["metadata"]["name"], int(dice.random() * 6)
        entries = group["spec"].get("resourceClaims") or [{}]
        shared = entries[0].get("resourceClaimTemplateName", "")
        return f"create pod {number} of {name}: {self._create_pod(name, number, 'plain', shared, dice)}"

    def _create_pod(self, group: str, number: int, own: str, shared: str, dice: Dice) -> int:
        kind = own if dice.random() < 0.5 else "none"
        tree = pod_tree(f"{group}-{number}", kind, cpu="250m", urgent=dice.random() < 0.2)
        tree["spec"]["schedulingGroup"] = {"podGroupName": group}
        if shared:
            entries = tree["spec"].setdefault("resourceClaims", [])
            entries.append({"name": "together", "resourceClaimTemplateName": shared})
            resources = tree["spec"]["containers"][0]["resources"]
            resources.setdefault("claims", []).append({"name": "together"})
        return self.admin.create(PODS, tree, NS).status

    def _delete_gang(self, dice: Dice) -> str:
        groups = self.case.api.list_trees("podgroups")
        if not groups:
            return ""
        group = dice.choice(groups)
        name = group["metadata"]["name"]
        if dice.random() < 0.8:
            for pod in self._pods_of(name):
                self.admin.delete(PODS, pod)
        return f"delete gang {name}: {self.admin.delete(POD_GROUPS, group).status}"

    def _pods_of(self, group: str) -> list[Tree]:
        return [pod for pod in self.admin.pods() if _group_of(pod) == group]

    # -- stand-in for the controller that protects groups

    def _unprotect(self, dice: Dice) -> None:
        for group in list(self.case.api.list_trees("podgroups")):
            meta = group["metadata"]
            if meta.get("deletionTimestamp") and not self._pods_of(meta["name"]):
                self.admin.patch(POD_GROUPS, meta["name"], {"metadata": {"finalizers": None}}, NS)

    def help_to_rest(self) -> None:
        for group in list(self.case.api.list_trees("podgroups")):
            if "deletionTimestamp" in group["metadata"]:
                for pod in self._pods_of(group["metadata"]["name"]):
                    self.admin.delete(PODS, pod)
        self._unprotect(self.case.dice("gangs/rest"))
        known = {group["metadata"]["name"] for group in self.case.api.list_trees("podgroups")}
        for name in sorted({_group_of(pod) for pod in self.admin.pods()} - known - {""}):
            self.admin.create(POD_GROUPS, {"metadata": {"name": name}, "spec": _BASIC}, NS)

    # -- invariant

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        tree = new or old
        assert tree is not None
        if plural == "podgroups":
            if new is None:
                self.case.checker.groups.pop(tree["metadata"]["uid"], None)
                self._ready.pop(tree["metadata"]["name"], None)
            else:
                self.case.checker.groups[tree["metadata"]["uid"]] = tree["metadata"]["name"]
                self.react("unprotect", 1.0, self._unprotect)
        elif plural == "pods" and (group := _group_of(tree)):
            if new is None:
                # It may have been taken into account before it was deleted.
                self._ready[group].add(tree["metadata"]["uid"])
                self.react("unprotect", 1.0, self._unprotect)
                return
            if self._is_ready(new):
                self._ready[group].add(new["metadata"]["uid"])
            if is_bound_now(old, new):
                self._check_gang(new, group)
        elif plural == "resourceclaims" and new is not None:
            for pod in self.admin.pods():
                if (group := _group_of(pod)) and self._is_ready(pod):
                    self._ready[group].add(pod["metadata"]["uid"])

    def _is_ready(self, pod: Tree) -> bool:
        """Return whether everything but the binding of a pod is written."""
        if pod["spec"].get("nodeName"):
            return True
        checker = self.case.checker
        for name in claim_names(pod):
            claim = checker.claims.get((NS, name or ""))
            if claim is None or not is_allocated(claim) or not checker.is_reserved(claim, pod):
                return False
        return True

    def _check_gang(self, pod: Tree, name: str) -> None:
        group = self.tree("podgroups", name, NS)
        gang = (group or {"spec": {"schedulingPolicy": {}}})["spec"]["schedulingPolicy"].get("gang")
        if gang is not None and len(self._ready[name]) < gang["minCount"]:
            what = f"{len(self._ready[name])} pods of its gang, not {gang['minCount']}, are ready"
            self.report(f"pod {name_of(pod)} is bound although {what}")

    def find_unrest(self) -> Iterator[str]:
        for claim in self.case.api.list_trees("resourceclaims"):
            for consumer in consumers(claim):
                if consumer["resource"] != "podgroups":
                    continue
                if consumer["uid"] not in self.case.checker.groups:
                    yield f"claim {name_of(claim)} is reserved for group {consumer['name']}, which is gone"

    def nodes_of(self, pod: Tree) -> frozenset[str] | None:
        """Pods of groups are not judged: they depend on each other."""
        return frozenset() if _group_of(pod) else None


_BASIC: Tree = {"schedulingPolicy": {"basic": {}}}


def _group_of(pod: Tree) -> str:
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")
