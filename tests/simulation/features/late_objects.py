"""Pods that come before what they need: gates, claims, templates and classes; and several claims per pod."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from tests.chaos.scheduler_faults.small_cluster import NAMED, NS, claim_spec, pod_tree
from tests.simulation.events import Event
from tests.simulation.faults import Dice
from tests.simulation.features.feature import Feature, Tree

#: Claims that are deleted and created again, and what they ask for.
_CLAIMS = {"late-0": "plain", "late-1": "share", "late-2": "fabric", **NAMED}
_TEMPLATE, _CLASS, _ADMIN = "late-template", "late-class", "admin-template"
_GATE = "example.com/gate"


class LateObjects(Feature):
    """Pods with gates, late claims, late templates, late classes, administrators' access and many claims."""

    name = "late"

    def create_objects(self) -> None:
        labels = {"resource.kubernetes.io/admin-access": "true"}
        self.admin.patch(NAMESPACES, NS, {"metadata": {"labels": labels}})
        spec = {"devices": {"requests": [{"name": "r", "exactly": {**_PLAIN, "adminAccess": True}}]}}
        template = {"metadata": {"name": _ADMIN}, "spec": {"spec": spec}}
        self.admin.create_all(RESOURCE_CLAIM_TEMPLATES, template, NS)

    def events(self) -> Iterator[Event]:
        yield from self.repeat("pod", 1.5, self._create_pod)
        yield from self.repeat("ungate", 1.0, self._remove_gate)
        yield from self.repeat("create", 0.5, self._create_late)
        yield from self.repeat("delete", 0.6, self._delete_late)

    # -- load

    def _create_pod(self, dice: Dice) -> str:
        name = f"l-{int(dice.random() * 20)}"
        tree = pod_tree(name, "none", cpu="250m", urgent=dice.random() < 0.3)
        entries: list[Tree] = []
        if dice.random() < 0.6:
            chosen = {dice.choice(tuple(_CLAIMS)) for _ in range(1 + int(dice.random() * 3))}
            entries += [{"name": each, "resourceClaimName": each} for each in sorted(chosen)]
        if dice.random() < 0.5:
            template = dice.choice((_TEMPLATE, "plain", "share", _ADMIN))
            entries.append({"name": "own", "resourceClaimTemplateName": template})
        if entries:
            tree["spec"]["resourceClaims"] = entries
            claims = [{"name": each["name"]} for each in entries]
            tree["spec"]["containers"][0]["resources"]["claims"] = claims
        if dice.random() < 0.3:
            tree["spec"]["schedulingGates"] = [{"name": _GATE}]
        return f"create pod {name} with {len(entries)} claims: {self.admin.create(PODS, tree, NS).status}"

    def _remove_gate(self, dice: Dice) -> str:
        gated = [pod for pod in self.admin.pods() if pod["spec"].get("schedulingGates")]
        if not gated:
            return ""
        name = dice.choice(gated)["metadata"]["name"]
        reply = self.admin.patch(PODS, name, {"spec": {"schedulingGates": None}}, NS)
        return f"remove the gate of pod {name}: {reply.status}"

    def _create_late(self, dice: Dice) -> str:
        what = dice.choice((_TEMPLATE, _CLASS, *_CLAIMS))
        return f"create {what}: {self._create(what)}"

    def _create(self, what: str) -> int:
        if what == _TEMPLATE:
            spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": _CLASS}}]}}
            template = {"metadata": {"name": what}, "spec": {"spec": spec}}
            return self.admin.create(RESOURCE_CLAIM_TEMPLATES, template, NS).status
        if what == _CLASS:
            selector = {"cel": {"expression": 'device.driver == "plain.example.com"'}}
            tree = {"metadata": {"name": what}, "spec": {"selectors": [selector]}}
            return self.admin.create(DEVICE_CLASSES, tree).status
        claim = {"metadata": {"name": what}, "spec": claim_spec(_CLAIMS[what])}
        return self.admin.create(RESOURCE_CLAIMS, claim, NS).status

    def _delete_late(self, dice: Dice) -> str:
        what = dice.choice((_TEMPLATE, _CLASS, *_CLAIMS, *_CLAIMS))
        if what == _TEMPLATE:
            tree, endpoint = self.tree("resourceclaimtemplates", what, NS), RESOURCE_CLAIM_TEMPLATES
        elif what == _CLASS:
            tree, endpoint = self.tree("deviceclasses", what), DEVICE_CLASSES
        else:
            tree, endpoint = self.tree("resourceclaims", what, NS), RESOURCE_CLAIMS
        return f"delete {what}: {self.admin.delete(endpoint, tree).status}" if tree is not None else ""

    def help_to_rest(self) -> None:
        for what in (_TEMPLATE, _CLASS, *_CLAIMS):
            self._create(what)
        for pod in self.admin.pods():
            if pod["spec"].get("schedulingGates"):
                patch = {"spec": {"schedulingGates": None}}
                self.admin.patch(PODS, pod["metadata"]["name"], patch, NS)

    def nodes_of(self, pod: Tree) -> frozenset[str] | None:
        """Gated pods are not judged, nor those whose claims name devices of the late class."""
        return frozenset() if pod["spec"].get("schedulingGates") else None


_PLAIN: Tree = {"deviceClassName": "plain"}
