"""All single changes that may help a pending pod, on the JSON of the objects, without looking at why it is
refused; each with the harm that its kind has.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from plimsoll.tools.fixes import FixKind
from tests.unit.tools.fixes.json_edits import find, remove

Tree = dict[str, Any]
#: Changes the objects in place.
Change = Callable[[list[Tree]], object]


class Named(NamedTuple):
    """A change with its name and harm."""

    name: str
    harm: int
    change: Change


def changed(trees: list[Tree], *changes: Change) -> list[Tree]:
    trees = copy.deepcopy(trees)
    for change in changes:
        change(trees)
    return trees


def all_changes(trees: list[Tree]) -> list[Named]:
    """Return the changes of the pod `p`, its claims, and the nodes."""
    pod = find(trees, "Pod", "p", "default")
    return [*_pod_changes(trees, pod), *_claim_changes(trees, pod), *_other_changes(trees)]


def _on(kind: str, name: str, namespace: str, edit: Callable[[Tree], object]) -> Change:
    return lambda trees: edit(find(trees, kind, name, namespace))


def _pod_changes(trees: list[Tree], pod: Tree) -> Iterator[Named]:
    def on_spec(edit: Callable[[Tree], object]) -> Change:
        return _on("Pod", "p", "default", lambda pod: edit(pod["spec"]))

    spec, main = pod["spec"], pod["spec"]["containers"][0]
    # Gates go first, with any other change.
    yield Named("no gates", 1, on_spec(lambda spec: spec.pop("schedulingGates", None)))
    for taint in [
        each for node in trees for each in node["spec"].get("taints", ()) if node["kind"] == "Node"
    ]:
        if not taint["key"].startswith("node.kubernetes.io"):
            more = {**taint, "operator": "Equal"}
            change = on_spec(partial(_tolerate, toleration=more))
            yield Named(
                f"tolerate {taint['key']}", FixKind.TOLERATE.harm + (0 if _claims(pod) else 30), change
            )
    for field, kind in (
        ("nodeSelector", FixKind.DROP_LABEL),
        ("affinity", FixKind.DROP_AFFINITY),
        ("topologySpreadConstraints", FixKind.DROP_SPREAD),
    ):
        if field in spec:
            yield Named(f"no {field}", kind.harm, on_spec(partial(_drop, field=field)))
    if "ports" in main:
        drop = on_spec(lambda spec: spec["containers"][0].pop("ports"))
        yield Named("no ports", FixKind.DROP_PORT.harm, drop)
    for resource, amount in main["resources"].get("requests", {}).items():
        for lower in range(1, int(amount)):
            harm = FixKind.SHRINK.harm + 20 * (int(amount) - lower) // int(amount)
            change = on_spec(partial(_request, resource=resource, amount=lower))
            yield Named(f"{lower} {resource}", harm, change)


def _tolerate(spec: Tree, toleration: Tree) -> None:
    spec.setdefault("tolerations", []).append(toleration)


def _drop(spec: Tree, field: str) -> None:
    del spec[field]


def _request(spec: Tree, resource: str, amount: int) -> None:
    resources = spec["containers"][0]["resources"]
    for field in ("requests", "limits"):
        if resource in resources.get(field, {}):
            resources[field][resource] = str(amount)


def _claim_changes(trees: list[Tree], pod: Tree) -> Iterator[Named]:
    names = [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims", ())]
    for claim in [
        each for each in trees if each["kind"] == "ResourceClaim" and each["metadata"]["name"] in names
    ]:
        name = claim["metadata"]["name"]
        if claim.get("status"):
            continue

        def on_devices(edit: Callable[[Tree], object], name: str = name) -> Change:
            return _on("ResourceClaim", name, "default", lambda tree: edit(tree["spec"]["devices"]))

        if "constraints" in claim["spec"]["devices"]:
            drop = on_devices(lambda devices: devices.pop("constraints"))
            yield Named(f"{name}: no constraint", FixKind.DROP_CONSTRAINT.harm, drop)
        for at, request in enumerate(claim["spec"]["devices"]["requests"]):
            for place in ("exactly",) if "exactly" in request else (0, 1):
                body = request["exactly"] if place == "exactly" else request["firstAvailable"][place]
                for what, harm, fields in _bodies(body):

                    def edit(devices: Tree, at: int = at, place: Any = place, fields: Tree = fields) -> None:
                        request = devices["requests"][at]
                        old = request["exactly"] if place == "exactly" else request["firstAvailable"][place]
                        old |= fields

                    yield Named(f"{name}/{at}/{place}: {what}", harm, on_devices(edit))


def _bodies(body: Tree) -> Iterator[tuple[str, int, Tree]]:
    count = body.get("count", 1)
    for fewer in range(1, count):
        yield f"count {fewer}", FixKind.LOWER_COUNT.harm + 20 * (count - fewer) // count, {"count": fewer}
    if "selectors" in body:
        yield "no selector", FixKind.DROP_SELECTOR.harm, {"selectors": []}
    taints = [{"key": "sick", "operator": "Exists"}]
    yield "tolerate sick", FixKind.TOLERATE_DEVICE.harm, {"tolerations": taints}
    if "capacity" in body:
        yield "no capacity", FixKind.DROP_CAPACITY.harm, {"capacity": {}}


def _other_changes(trees: list[Tree]) -> Iterator[Named]:
    used = {*_claims(find(trees, "Pod", "p", "default"))}
    for tree in trees:
        name = tree["metadata"]["name"]
        if tree["kind"] == "Node":
            if tree["spec"].get("unschedulable"):
                on = _on("Node", name, "", lambda node: node["spec"].pop("unschedulable"))
                yield Named(f"uncordon {name}", FixKind.UNCORDON.harm, on)
            if "taints" in tree["spec"]:
                on = _on("Node", name, "", lambda node: node["spec"].pop("taints"))
                yield Named(f"no taints on {name}", FixKind.REPAIR_NODE.harm, on)
        elif tree["kind"] == "ResourceSlice" and tree["spec"]["pool"]["resourceSliceCount"] == 2:
            if "mig" not in name:
                on = _on(
                    "ResourceSlice", name, "", lambda each: each["spec"]["pool"].update(resourceSliceCount=1)
                )
                yield Named(f"complete {name}", FixKind.COMPLETE_POOL.harm, on)
        elif tree["kind"] == "Pod" and tree["spec"].get("nodeName") and not used.intersection(_claims(tree)):
            harm = removal_harm(trees, tree)
            if harm is not None:
                yield Named(f"without {name}", FixKind.REMOVE_PODS.harm + harm, _without(tree))
        elif tree["kind"] == "ResourceClaim" and "reservedFor" not in tree.get("status", {"reservedFor": 0}):
            users = {claim for pod in trees if pod["kind"] == "Pod" for claim in _claims(pod)}
            if name not in users:
                yield Named(f"without claim {name}", FixKind.REMOVE_CLAIM.harm, _without(tree))


def _claims(pod: Tree) -> list[str]:
    return [each["resourceClaimName"] for each in pod["spec"].get("resourceClaims", ())]


def _without(tree: Tree) -> Change:
    what = tree["kind"], tree["metadata"]["name"], tree["metadata"]["namespace"]
    return lambda trees: remove(trees, find(trees, *what))


def removal_harm(trees: list[Tree], pod: Tree) -> int | None:
    """Return the harm of removing a pod; None if that frees nothing, because it returns at once."""
    owners = pod["metadata"].get("ownerReferences", ())
    owner = owners[0]["kind"] if owners else ""
    if owner == "DaemonSet":
        return None
    harm = {"ReplicaSet": 5, "StatefulSet": 15, "Job": 30, "": 35}[owner]
    harm += {0: 0, 1000: 20}[pod["spec"].get("priority", 0)]
    held = [
        each for each in trees if each["kind"] == "ResourceClaim" and each["metadata"]["name"] in _claims(pod)
    ]
    return harm + 10 * sum(len(each["status"]["allocation"]["devices"]["results"]) for each in held)
