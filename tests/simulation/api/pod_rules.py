"""Rules of pods: defaults, what can change, bindings, and the claims in their statuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.apiserver.status import conflict, invalid
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldPath,
    duplicate,
    forbidden,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.field_errors import invalid as invalid_field
from plimsoll.apiserver.validation.pod.conditions import set_condition
from plimsoll.apiserver.validation.pod.images import default_pull_policy

Tree = dict[str, Any]

_SPEC, _STATUS = FieldPath("spec"), FieldPath("status")
_CLAIMS, _CHARGES = "resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses"
_SPEC_DEFAULTS: Tree = {
    "serviceAccountName": "default",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
}
_CONTAINERS = ("initContainers", "containers")
_TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
_COMPUTE = ("cpu", "memory")
#: Fields of a spec that an update may change under rules of their own.
_MUTABLE = ("activeDeadlineSeconds", "schedulingGates", "tolerations", "terminationGracePeriodSeconds")


# -- creation


def prepare_new(tree: Tree, now: str) -> None:
    """Set the defaults and the first status of a new pod, whose tree is not shared."""
    spec = tree["spec"]
    for name, value in _SPEC_DEFAULTS.items():
        spec.setdefault(name, value)
    spec["serviceAccount"] = spec["serviceAccountName"]
    spec.setdefault("securityContext", {})
    for group in _CONTAINERS:
        for container in spec.get(group) or ():
            _set_container_defaults(container)
    status: Tree = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        message = "Scheduling is blocked due to non-empty scheduling gates"
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": message}
        status["conditions"] = [{**gated, "lastTransitionTime": now}]
    tree["status"] = status


def _set_container_defaults(container: Tree) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    container.setdefault("imagePullPolicy", default_pull_policy(container.get("image", "")))
    resources = container.setdefault("resources", {})
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _qos_class(spec: Tree) -> str:
    containers = [each for group in _CONTAINERS for each in spec.get(group) or ()]
    amounts = [each.get("resources") or {} for each in containers]
    requests, limits = ([each.get(name) or {} for each in amounts] for name in ("requests", "limits"))
    if not any(name in each for each in requests for name in _COMPUTE):
        return "BestEffort"
    pairs = zip(requests, limits, strict=True)
    equal = all(
        name in limit and request[name] == limit[name] for request, limit in pairs for name in _COMPUTE
    )
    return "Guaranteed" if equal else "Burstable"


# -- updates


def find_spec_problems(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    if old is None:
        if not tree["spec"].get("containers"):
            yield required(_SPEC.child("containers"))
        if tree["spec"].get("nodeName") and tree["spec"].get("schedulingGates"):
            yield forbidden(_SPEC.child("nodeName"), "cannot be set before all gates are cleared")
        return
    spec, before = tree.get("spec") or {}, old["spec"]
    if spec is before or spec == before:
        return
    if any(len(spec.get(group) or ()) != len(before.get(group) or ()) for group in _CONTAINERS):
        yield forbidden(_SPEC.child("containers"), "pod updates may not add or remove containers")
        return
    known = [_toleration_key(each) for each in spec.get("tolerations") or ()]
    if any(_toleration_key(each) not in known for each in before.get("tolerations") or ()):
        yield forbidden(_SPEC.child("tolerations"), "existing tolerations can not be modified")
    gates = {gate["name"] for gate in before.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate["name"] not in gates:
            yield forbidden(_SPEC.child("schedulingGates").index(index).child("name"), "only deletion")
    deadline, limit = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if limit is not None and (deadline is None or deadline > limit):
        yield invalid_field(_SPEC.child("activeDeadlineSeconds"), deadline, "may only be reduced")
    masked, others = dict(spec), before
    for group in _CONTAINERS:
        if group in spec:
            pairs = zip(spec[group], before[group], strict=True)
            masked[group] = [{**now, "image": was.get("image")} for now, was in pairs]
    may_change = (*_MUTABLE[:3], "nodeSelector", "affinity") if gates else _MUTABLE[:3]
    drop = set(may_change)
    if {k: v for k, v in masked.items() if k not in drop} != {
        k: v for k, v in others.items() if k not in drop
    }:
        yield forbidden(_SPEC, "pod updates may not change fields other than the image of a container")


def _toleration_key(toleration: Tree) -> tuple[str, ...]:
    return tuple(toleration.get(name, "") for name in ("key", "operator", "value", "effect"))


# -- status


def prepare_status(tree: Tree, old: Tree) -> None:
    """Keep what a write of the status cannot change: owners, and the QoS class unless it is given."""
    meta, before = tree["metadata"], old["metadata"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"):
        meta.pop(name, None)
        if name in before:
            meta[name] = before[name]
    status = tree["status"] = dict(tree.get("status") or {})
    status.setdefault("qosClass", old["status"].get("qosClass"))
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address and (not addresses or addresses[0].get("ip") != address):
        status["podIPs"] = [{"ip": address}]
    elif addresses:
        status["podIP"] = addresses[0].get("ip")


def find_status_problems(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    assert old is not None
    status, before, spec = tree["status"], old["status"], tree["spec"]
    if status.get("qosClass") != before.get("qosClass"):
        yield invalid_field(_STATUS.child("qosClass"), status.get("qosClass"), "field is immutable")
    nominated = status.get("nominatedNodeName")
    if nominated and nominated != before.get("nominatedNodeName") and spec.get("nodeName"):
        yield forbidden(_STATUS.child("nominatedNodeName"), "may not be set on pods that are already bound")
    if before.get("containerStatuses") and spec.get("restartPolicy") != "Always":
        yield from _restart_problems(status, before, spec.get("restartPolicy"))
    if (claims := status.get(_CLAIMS)) and claims is not before.get(_CLAIMS):
        known = {claim["name"] for claim in spec.get("resourceClaims") or ()}
        yield from _claim_problems(claims, known)
    if (charges := status.get(_CHARGES)) and charges is not before.get(_CHARGES):
        yield from _charge_problems(charges, _claim_names(tree))


def _claim_problems(claims: list[Tree], known: set[str]) -> Iterator[FieldError]:
    path, seen = _STATUS.child(_CLAIMS), set()
    for index, each in enumerate(claims):
        name = each.get("name")
        if name not in known:
            yield invalid_field(path.index(index).child("name"), name, "must be one of spec.resourceClaims")
        if name in seen:
            yield duplicate(path.index(index), name)
        seen.add(name)


def _restart_problems(status: Tree, before: Tree, policy: str | None) -> Iterator[FieldError]:
    """Yield the terminated containers that run again although the pod does not restart them."""
    now = {each["name"]: each.get("state") or {} for each in status.get("containerStatuses") or ()}
    for index, known in enumerate(before["containerStatuses"]):
        terminated = (known.get("state") or {}).get("terminated")
        if terminated is None or "terminated" in now.get(known["name"], {"terminated": {}}):
            continue
        if policy == "Never" or not terminated.get("exitCode"):
            path = _STATUS.child("containerStatuses").index(index).child("state")
            yield forbidden(path, "may not be transitioned to non-terminated state")


def _claim_names(tree: Tree) -> set[str]:
    spec, status = tree["spec"], tree["status"]
    names = {each.get("resourceClaimName") for each in spec.get("resourceClaims") or ()}
    names |= {each.get("resourceClaimName") for each in status.get("resourceClaimStatuses") or ()}
    return names - {None}


def _charge_problems(charges: list[Tree], claims: set[str]) -> Iterator[FieldError]:
    for index, entry in enumerate(charges):
        at = _STATUS.child(_CHARGES).index(index)
        if entry.get("resourceClaimName") not in claims:
            yield invalid_field(at.child("resourceClaimName"), entry.get("resourceClaimName"), "unknown")
        newer = bool(entry.get("mapping") or entry.get("overhead"))
        if newer == bool(entry.get("resources")):
            yield forbidden(at.child("resources"), "must be given, or mapping or overhead")


# -- binding


def bind(tree: Tree, binding: Tree, node: Tree | None, now: str) -> Tree:
    """Return a pod that is bound as a Binding says; ApiError 409 or 422."""
    meta, spec = tree["metadata"], tree["spec"]
    target, wanted = binding.get("target") or {}, binding.get("metadata") or {}
    problems = []
    if target.get("kind") not in (None, "", "Node"):
        problems.append(not_supported(FieldPath("target").child("kind"), target["kind"], ("Node",)))
    if not target.get("name"):
        problems.append(required(FieldPath("target").child("name")))
    if problems:
        raise invalid("", "Binding", meta["name"], problems)
    if why := _binding_conflict(meta, spec, wanted):
        raise conflict("", "pods/binding", meta["name"], why)
    labels = dict(wanted.get("labels") or {})
    node_labels = (node or {"metadata": {}})["metadata"].get("labels") or {}
    labels |= {name: node_labels[name] for name in _TOPOLOGY_LABELS if name in node_labels}
    meta = dict(meta)
    for name, added in (("annotations", wanted.get("annotations")), ("labels", labels)):
        if added:
            meta[name] = {**meta.get(name, {}), **added}
    status = {name: value for name, value in tree["status"].items() if name != "nominatedNodeName"}
    scheduled = {"type": "PodScheduled", "status": "True"}
    status["conditions"] = set_condition(status.get("conditions", ()), scheduled, now)
    status = without_null_conditions(status)
    return {**tree, "metadata": meta, "spec": {**spec, "nodeName": target["name"]}, "status": status}


def without_null_conditions(status: Tree) -> Tree:
    """Return a status without null times in its conditions, which later writes would drop."""
    conditions = [{k: v for k, v in each.items() if v is not None} for each in status["conditions"]]
    return {**status, "conditions": conditions}


def _binding_conflict(meta: Tree, spec: Tree, wanted: Tree) -> str:
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) and wanted[name] != meta[name]:
            return (
                f"Precondition failed: {name} in precondition: {wanted[name]}, in object meta: {meta[name]}"
            )
    if "deletionTimestamp" in meta:
        return f"pod {meta['name']} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {meta["name"]} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {meta['name']} has non-empty .spec.schedulingGates"
    return ""
