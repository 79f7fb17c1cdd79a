"""Volumes that wait for their first consumer: local ones, and ones that a provisioner makes or fails to make.

The stand-in for the volume controller and the provisioner reacts some time after each write. As the real ones
do, it removes references to claims that are gone or bound elsewhere, and the selected node of a claim whose
volume cannot be made.
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES
from tests.chaos.scheduler_faults.small_cluster import NODE_COUNT, NS, pod_tree
from tests.simulation.events import Event
from tests.simulation.faults import Dice
from tests.simulation.features.feature import Feature, Tree, is_bound_now

LOCAL, FAST = "local", "fast"
#: Volumes per node, and names of claims, which are few: several pods use one claim.
_LOCAL_VOLUMES, _CLAIMS = 2, 6
_SELECTED = "volume.kubernetes.io/selected-node"
_COMPLETED = "pv.kubernetes.io/bind-completed"
_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_PROVISIONED = "pv.kubernetes.io/provisioned-by"
_HOST = "kubernetes.io/hostname"


class Volumes(Feature):
    """Pods with PersistentVolumeClaims."""

    name = "volumes"

    def create_objects(self) -> None:
        for name, provisioner in ((LOCAL, "kubernetes.io/no-provisioner"), (FAST, "test.example.com")):
            tree = {
                "metadata": {"name": name},
                "provisioner": provisioner,
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            self.admin.create_all(STORAGE_CLASSES, tree)
        for number in range(NODE_COUNT):
            for which in range(_LOCAL_VOLUMES):
                self._create_volume(f"local-{number}-{which}", f"node-{number}", LOCAL)
        #: Whether claims of pending pods are deleted, which the API allows.
        self._is_rude = self.case.dice("volumes/rude").random() < 0.5
        #: Claims that are not created by a new pod, so that it waits for them.
        self._recreated: set[str] = set()

    def events(self) -> Iterator[Event]:
        yield from self.repeat("pod", 1.2, self._create_pod)
        yield from self.repeat("delete", 0.8, self._delete_claim)

    # -- load

    def _create_pod(self, dice: Dice) -> str:
        claims = {f"data-{int(dice.random() * _CLAIMS)}" for _ in range(1 + (dice.random() < 0.3))}
        for name in sorted(claims):
            if dice.random() < 0.85:
                self._create_claim(name)
        kind = dice.choice(("none", "none", "plain", "cores"))
        name = f"v-{int(dice.random() * 20)}-{kind}"
        tree = pod_tree(name, kind, cpu=dice.choice(("250m", "500m")))
        tree["spec"]["volumes"] = [
            {"name": each, "persistentVolumeClaim": {"claimName": each}} for each in sorted(claims)
        ]
        return f"create pod {name} with {sorted(claims)}: {self.admin.create(PODS, tree, NS).status}"

    def _create_claim(self, name: str) -> None:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": LOCAL if int(name[-1]) % 2 else FAST,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self.admin.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": name}, "spec": spec}, NS)

    def _delete_claim(self, dice: Dice) -> str:
        """Delete a claim that no pod on a node uses, and perhaps a pending one."""
        used = {
            name
            for pod in self.admin.pods()
            if pod["spec"].get("nodeName") or not self._is_rude
            for name in claims_of(pod)
        }
        found = [
            each
            for each in self.case.api.list_trees("persistentvolumeclaims")
            if each["metadata"]["name"] not in used
        ]
        if not found:
            return ""
        claim = dice.choice(found)
        self._recreated.add(claim["metadata"]["name"])
        reply = self.admin.delete(PERSISTENT_VOLUME_CLAIMS, claim)
        return f"delete volume claim {claim['metadata']['name']}: {reply.status}"

    def help_to_rest(self) -> None:
        for name in sorted({name for pod in self.admin.pods() for name in claims_of(pod)}):
            self._create_claim(name)
        self._reconcile(self.case.dice("volumes/rest"))

    # -- stand-in for the volume controller and the provisioner

    def on_change(self, plural: str, old: Tree | None, new: Tree | None) -> None:
        if plural == "pods" and is_bound_now(old, new):
            assert new is not None
            self._check_bound_pod(new, new["spec"]["nodeName"])
        if plural not in ("persistentvolumes", "persistentvolumeclaims"):
            return
        if plural == "persistentvolumeclaims" and new is not None:
            self._check_claim(new)
        if plural == "persistentvolumes" and new is not None and old is not None:
            self._check_reference(old, new)
        self.react("reconcile", 3.0, self._reconcile)

    def _reconcile(self, dice: Dice) -> None:
        for claim in list(self.case.api.list_trees("persistentvolumeclaims")):
            selected = (claim["metadata"].get("annotations") or {}).get(_SELECTED)
            if claim["spec"].get("volumeName") or claim["spec"]["storageClassName"] != FAST or not selected:
                continue
            luck = 1.0 if self.is_calm else dice.random()
            if luck < 0.15:
                continue  # it takes long: perhaps longer than the scheduler waits
            if luck < 0.35:
                meta = {
                    "annotations": {_SELECTED: None},
                    "resourceVersion": claim["metadata"]["resourceVersion"],
                }
                self.admin.patch(PERSISTENT_VOLUME_CLAIMS, claim["metadata"]["name"], {"metadata": meta}, NS)
                continue
            self._create_volume(f"pvc-{claim['metadata']['uid']}", selected, FAST, claim)
        for volume in list(self.case.api.list_trees("persistentvolumes")):
            if (reference := volume["spec"].get("claimRef")) is not None:
                claims = self.case.api.list_trees("persistentvolumeclaims")
                uid = reference.get("uid", "")
                self._bind_volume(
                    volume, next((each for each in claims if each["metadata"]["uid"] == uid), None)
                )

    def _bind_volume(self, volume: Tree, claim: Tree | None) -> None:
        """Bind the claim that a volume refers to, or remove the reference."""
        name = volume["metadata"]["name"]
        if claim is None or claim["spec"].get("volumeName", name) != name:
            if volume["spec"]["storageClassName"] == FAST:
                self.admin.delete(PERSISTENT_VOLUMES, volume)
            else:
                self.admin.patch(PERSISTENT_VOLUMES, name, {"spec": {"claimRef": None}})
            return
        if claim["spec"].get("volumeName") == name:
            return
        bound = {"status": {"phase": "Bound"}}
        done = {"annotations": {_COMPLETED: "yes", _BY_CONTROLLER: "yes"}}
        body = {"metadata": done, "spec": {"volumeName": name}}
        who = claim["metadata"]["name"]
        self.admin.patch(PERSISTENT_VOLUMES, name, bound, sub="status")
        self.admin.patch(PERSISTENT_VOLUME_CLAIMS, who, body, NS)
        self.admin.patch(PERSISTENT_VOLUME_CLAIMS, who, bound, NS, sub="status")

    def _create_volume(self, name: str, node: str, group: str, claim: Tree | None = None) -> None:
        expression = {"key": _HOST, "operator": "In", "values": [node]}
        spec: Tree = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": group,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/mnt"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        }
        meta: Tree = {"name": name}
        if claim is not None:
            meta["annotations"] = {_PROVISIONED: "test.example.com"}
            spec["claimRef"] = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                **{key: claim["metadata"][key] for key in ("name", "namespace", "uid")},
            }
        self.admin.create(PERSISTENT_VOLUMES, {"metadata": meta, "spec": spec})
        self.admin.patch(PERSISTENT_VOLUMES, name, {"status": {"phase": "Available"}}, sub="status")

    # -- invariants

    def _check_claim(self, claim: Tree) -> None:
        name = claim["spec"].get("volumeName")
        if not name:
            return
        for other in self.case.api.list_trees("persistentvolumeclaims"):
            if (
                other["metadata"]["uid"] != claim["metadata"]["uid"]
                and other["spec"].get("volumeName") == name
            ):
                self.report(f"volume {name} is bound to {other['metadata']['name']} and another claim")

    def _check_reference(self, old: Tree, new: Tree) -> None:
        """A volume that a claim is bound to must not be made to refer to another one."""
        before, after = old["spec"].get("claimRef") or {}, new["spec"].get("claimRef") or {}
        if not after or before.get("uid") in (None, after.get("uid")):
            return
        name = new["metadata"]["name"]
        for claim in self.case.api.list_trees("persistentvolumeclaims"):
            if claim["metadata"]["uid"] == before["uid"] and claim["spec"].get("volumeName") == name:
                self.report(
                    f"volume {name} of claim {claim['metadata']['name']} was given to {after['name']}"
                )

    def _check_bound_pod(self, pod: Tree, node: str) -> None:
        for name in claims_of(pod):
            if name in self._recreated:
                continue  # it may have been deleted while the request to bind was on its way
            found = self._node_of_claim(name)
            if found != node:
                what = f"volume claim {name} is usable on {found or 'no node'}"
                self.report(f"pod {pod['metadata']['name']} is bound to {node}: {what}")

    def _node_of_claim(self, name: str) -> str:
        """Return the node of the volume of a bound claim, or ""."""
        claim = self.tree("persistentvolumeclaims", name, NS)
        volume = self.tree("persistentvolumes", (claim or {"spec": {}})["spec"].get("volumeName", ""))
        if volume is None:
            return ""
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        return str(term["matchExpressions"][0]["values"][0])

    def nodes_of(self, pod: Tree) -> frozenset[str] | None:
        """A pod whose claims are not bound yet is not judged: it depends on volumes."""
        names = claims_of(pod)
        if not names:
            return None
        found = {self._node_of_claim(name) for name in names}
        return frozenset(found) if len(found) == 1 else frozenset()


def claims_of(pod: Tree) -> list[str]:
    """Return the names of a pod's volume claims."""
    volumes = pod["spec"].get("volumes") or ()
    return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]
