"""Other writers: labels and annotations that change, claims and pods that are deleted or replaced."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from tests.chaos.scheduler_faults.small_cluster import NS
from tests.simulation.events import Event
from tests.simulation.faults import Dice
from tests.simulation.features.feature import Feature, Tree


class Meddlers(Feature):
    """Writers that neither know nor wait for the scheduler."""

    name = "meddlers"

    def create_objects(self) -> None:
        #: Share of the writes of others that a meddler follows with one of its own.
        self._share = self.case.dice("meddlers/share").choice((0.02, 0.1, 0.3))
        self._busy = False

    def events(self) -> Iterator[Event]:
        yield from self.repeat("replace", 0.6, self._replace_pod, "pod replaced")
        yield from self.repeat("claim", 0.6, self._delete_claim, "claim deleted")
        yield from self.repeat("touch", 3.0, self._touch_claim, "claim touched")

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        """Change an object soon after a scheduler wrote it, so that its next write conflicts."""
        call = self.case.history.request
        if call is None or new is None or self.is_calm or not call.process.startswith("scheduler"):
            return
        if plural not in ("pods", "resourceclaims") or new["metadata"].get("namespace") != NS:
            return
        name = new["metadata"]["name"]
        if self.case.dice(f"meddlers/{call.key}").random() < self._share:
            self.react(f"{plural}/{name}", 0.02, lambda dice: self._touch(plural, name, dice))

    def _touch(self, plural: str, name: str, dice: Dice) -> None:
        endpoint = PODS if plural == "pods" else RESOURCE_CLAIMS
        if dice.random() < 0.5:
            meta: Tree = {"labels": {"touched": f"t{int(dice.random() * 1000)}"}}
        else:
            meta = {"annotations": {"example.com/touched": f"{dice.random()}"}}
        self.admin.patch(endpoint, name, {"metadata": meta}, NS)

    def _touch_claim(self, dice: Dice) -> str:
        claims = self.case.api.list_trees("resourceclaims")
        if not claims:
            return ""
        name = dice.choice(claims)["metadata"]["name"]
        self._touch("resourceclaims", name, dice)
        return f"touch claim {name}"

    def _replace_pod(self, dice: Dice) -> str:
        """Delete a pending pod and create another one of the same name at once."""
        pending = [pod for pod in self.admin.pods() if not pod["spec"].get("nodeName")]
        if not pending:
            return ""
        pod = dice.choice(pending)
        meta = pod["metadata"]
        self.admin.delete(PODS, pod, 0)
        spec = {key: value for key, value in pod["spec"].items() if key != "priority"}
        tree = {"metadata": {"name": meta["name"], "labels": meta.get("labels", {})}, "spec": spec}
        return f"replace pod {meta['name']}: {self.admin.create(PODS, tree, NS).status}"

    def _delete_claim(self, dice: Dice) -> str:
        """Delete a claim that was generated for a pod; it is generated again once it is gone."""
        claims = [
            each
            for each in self.case.api.list_trees("resourceclaims")
            if each["metadata"].get("ownerReferences") and "deletionTimestamp" not in each["metadata"]
        ]
        if not claims:
            return ""
        claim = dice.choice(claims)
        return f"delete claim {claim['metadata']['name']}: {self.admin.delete(RESOURCE_CLAIMS, claim).status}"
