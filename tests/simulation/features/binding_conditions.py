"""Devices that must be attached to the node before a pod is bound, and the controller that attaches them."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.chaos.scheduler_faults.objects import allocation_results, claim_names, is_allocated
from tests.chaos.scheduler_faults.small_cluster import NS, claim_spec, pod_tree
from tests.simulation.events import Event
from tests.simulation.faults import Dice
from tests.simulation.features.feature import Feature, Tree, is_bound_now

KIND = "attach"
DEVICES = 5
ATTACHED, FAILED = "example.com/attached", "example.com/failed"
#: Claims that pods share.
_SHARED = ("attach-shared-0", "attach-shared-1")


class BindingConditions(Feature):
    """Pods with claims for such devices."""

    name = "conditions"

    def create_objects(self) -> None:
        selector = {"cel": {"expression": f'device.driver == "{KIND}.example.com"'}}
        self.admin.create_all(DEVICE_CLASSES, {"metadata": {"name": KIND}, "spec": {"selectors": [selector]}})
        conditions = {
            "bindsToNode": True,
            "bindingConditions": [ATTACHED],
            "bindingFailureConditions": [FAILED],
        }
        devices = [{"name": f"attach-{number}", **conditions} for number in range(DEVICES)]
        pool = {"name": KIND, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": f"{KIND}.example.com", "pool": pool, "allNodes": True, "devices": devices}
        self.admin.create_all(RESOURCE_SLICES, {"metadata": {"name": KIND}, "spec": spec})
        template = {"metadata": {"name": KIND}, "spec": {"spec": claim_spec(KIND)}}
        self.admin.create_all(RESOURCE_CLAIM_TEMPLATES, template, NS)
        for name in _SHARED:
            tree = {"metadata": {"name": name}, "spec": claim_spec(KIND)}
            self.admin.create_all(RESOURCE_CLAIMS, tree, NS)

    def events(self) -> Iterator[Event]:
        yield from self.repeat("pod", 1.0, self._create_pod)

    def _create_pod(self, dice: Dice) -> str:
        name = f"a-{int(dice.random() * 12)}"
        claim = dice.choice(_SHARED) if dice.random() < 0.3 else ""
        tree = pod_tree(name, KIND, claim=claim, cpu="250m", urgent=dice.random() < 0.3)
        return f"create pod {name}: {self.admin.create(PODS, tree, NS).status}"

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        if new is None:
            return
        if plural == "resourceclaims" and _unknown_devices(new):
            name, uid = new["metadata"]["name"], new["metadata"]["uid"]
            self.react(f"attach/{name}", 4.0, lambda dice: self._attach(name, uid, dice))
        elif plural == "pods" and is_bound_now(old, new):
            self._check_bound_pod(new)

    def _attach(self, name: str, uid: str, dice: Dice) -> None:
        """Attach the devices of a claim, or fail, or never end."""
        claim = self.tree("resourceclaims", name, NS)
        if claim is None or claim["metadata"]["uid"] != uid or not (unknown := _unknown_devices(claim)):
            return
        luck = 1.0 if self.is_calm else dice.random()
        if luck < 0.15:
            return
        condition = {
            "type": FAILED if luck < 0.3 else ATTACHED,
            "status": "True",
            "reason": "Done",
            "message": "the cable is too short" if luck < 0.3 else "",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }
        known = (claim.get("status") or {}).get("devices") or []
        found = [{**_name_of(each), "conditions": [condition]} for each in unknown]
        body = {
            "metadata": {"uid": uid, "resourceVersion": claim["metadata"]["resourceVersion"]},
            "status": {"devices": [*known, *found]},
        }
        self.admin.patch(RESOURCE_CLAIMS, name, body, NS, sub="status")

    def help_to_rest(self) -> None:
        dice = self.case.dice("conditions/rest")
        for claim in list(self.case.api.list_trees("resourceclaims")):
            if _unknown_devices(claim):
                self._attach(claim["metadata"]["name"], claim["metadata"]["uid"], dice)

    def _check_bound_pod(self, pod: Tree) -> None:
        for name in claim_names(pod):
            claim = self.tree("resourceclaims", name or "", NS)
            for result in allocation_results(claim) if claim is not None else ():
                if result.get("bindingConditions"):
                    states = _states(claim or {}, result)
                    if states.get(FAILED) == "True" or states.get(ATTACHED) != "True":
                        what = f"device {result['device']} of claim {name} is not attached: {states}"
                        self.report(f"pod {pod['metadata']['name']} is bound, and {what}")

    def find_unrest(self) -> Iterator[str]:
        for claim in self.case.api.list_trees("resourceclaims"):
            if not is_allocated(claim) and (claim.get("status") or {}).get("devices"):
                yield f"claim {claim['metadata']['name']} is not allocated and has states of devices"


def _name_of(result: Tree) -> Tree:
    return {key: result[key] for key in ("driver", "pool", "device", "shareID") if key in result}


def _states(claim: Tree, result: Tree) -> dict[str, str]:
    for each in (claim.get("status") or {}).get("devices") or ():
        if _name_of(each) == _name_of(result):
            return {one["type"]: one["status"] for one in each.get("conditions") or ()}
    return {}


def _unknown_devices(claim: Tree) -> list[Tree]:
    """Return the allocated devices about which nothing is known yet."""
    return [
        each
        for each in allocation_results(claim)
        if each.get("bindingConditions") and not _states(claim, each)
    ]
