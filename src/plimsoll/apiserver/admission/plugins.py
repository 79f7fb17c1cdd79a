"""Admission plugins for single objects: priority, default tolerations, runtime class, namespace lifecycle.

Service accounts are in `service_account.py`, quotas in `quota.py`. The plugins are pure functions: they
receive the cluster state they need, leave their inputs unchanged, and return a refusal as text (HTTP 403).
They run before a write is prepared, on trees as clients send them; a malformed object is passed on, for
preparation to reject.

DIFF: new nodes are not tainted as not ready (test_new_nodes_are_not_tainted).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.equality import trees_equal_as
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.priority_classes import SYSTEM_CLASSES
from plimsoll.errors import QuantityError

TOLERATION_SECONDS = 300

#: Namespaces that cannot be deleted.
IMMORTAL_NAMESPACES = ("default", "kube-system", "kube-public")

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True, slots=True)
class AdmissionResult:
    """Admitted object, or the reason of its refusal."""

    tree: Tree
    refusal: str = ""


def _spec(tree: Any) -> Tree | None:
    """Return the spec of an object if it is a mapping."""
    spec = tree.get("spec") if isinstance(tree, dict) else None
    return spec if isinstance(spec, dict) else None


def _with_spec(tree: Tree, **fields: Any) -> Tree:
    return {**tree, "spec": {**tree["spec"], **fields}}


def admit_pod(
    pod: Tree, old: Tree | None, classes: Iterable[Tree], runtime_class: Tree | None
) -> AdmissionResult:
    """Run the plugins for a pod that has its service account, in the order of Kubernetes.

    `classes` are the priority classes of the cluster, `runtime_class` is the one that the pod names, if it
    exists.
    """
    classes = tuple(classes)
    admitted = admit_priority(pod, old, classes)
    if not admitted.refusal:
        admitted = admit_tolerations(admitted.tree)
        if old is None:
            admitted = admit_runtime_class(admitted.tree, runtime_class)
    return admitted


# -- namespaces


def check_namespace(name: str, namespace: Tree | None) -> tuple[int, str] | None:
    """Return the HTTP code and reason why nothing can be created in a namespace, or None."""
    if namespace is None:
        return 404, f'namespaces "{name}" not found'
    meta = namespace.get("metadata") or {}
    if meta.get("deletionTimestamp"):
        return 403, f"unable to create new content in namespace {name} because it is being terminated"
    return None


def check_namespace_deletion(name: str) -> str:
    return "this namespace may not be deleted" if name in IMMORTAL_NAMESPACES else ""


# -- priority


def admit_priority(pod: Tree, old: Tree | None, classes: Iterable[Tree]) -> AdmissionResult:
    """Set the priority of a pod from its priority class; `classes` are all classes of the cluster."""
    spec = _spec(pod)
    if spec is None:
        return AdmissionResult(pod)
    if old is not None:
        before = _spec(old) or {}
        kept = {
            name: before[name]
            for name in ("priority", "preemptionPolicy")
            if spec.get(name) is None and before.get(name) is not None
        }
        return AdmissionResult(_with_spec(pod, **kept) if kept else pod)
    name = spec.get("priorityClassName") or ""
    found = find_priority(name, classes)
    if found is None:
        return AdmissionResult(pod, f"no PriorityClass with name {name} was found")
    name, value, policy = found
    given, given_policy = spec.get("priority"), spec.get("preemptionPolicy")
    if given is not None and given != value:
        text = (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        return AdmissionResult(pod, text)
    if given_policy is not None and given_policy != policy:
        text = (
            f"the string value of PreemptionPolicy ({given_policy}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        return AdmissionResult(pod, text)
    fields: Tree = {"priority": value, "preemptionPolicy": policy}
    if name:
        fields["priorityClassName"] = name
    return AdmissionResult(_with_spec(pod, **fields))


def find_priority(name: Any, classes: Iterable[Tree]) -> tuple[str, int, str] | None:
    """Return name, value and preemption policy of a class, of the default one if `name` is empty."""
    return _find_class(name, classes) if name else _find_default(classes)


def _read_class(tree: Tree) -> tuple[str, int, str]:
    meta = tree.get("metadata") or {}
    return (
        meta.get("name", ""),
        tree.get("value") or 0,
        tree.get("preemptionPolicy") or "PreemptLowerPriority",
    )


def _find_class(name: Any, classes: Iterable[Tree]) -> tuple[str, int, str] | None:
    for tree in classes:
        found = _read_class(tree)
        if found[0] == name:
            return found
    if isinstance(name, str) and name in SYSTEM_CLASSES:
        return name, SYSTEM_CLASSES[name], "PreemptLowerPriority"
    return None


def _find_default(classes: Iterable[Tree]) -> tuple[str, int, str]:
    """Return the global default class; of several the one with the lowest value."""
    defaults = [_read_class(tree) for tree in classes if tree.get("globalDefault")]
    return min(defaults, key=lambda found: found[1], default=("", 0, "PreemptLowerPriority"))


def check_single_default(priority_class: Tree, old: Tree | None, classes: Iterable[Tree]) -> str:
    """Return the reason why a priority class cannot be the global default: another one is."""
    if not isinstance(priority_class, dict) or not priority_class.get("globalDefault"):
        return ""
    existing = [_read_class(tree) for tree in classes if tree.get("globalDefault")]
    if not existing:
        return ""
    name = min(existing, key=lambda found: found[1])[0]
    if old is not None and name == (priority_class.get("metadata") or {}).get("name"):
        return ""
    return f"PriorityClass {name} is already marked as default. Only one default can exist"


# -- tolerations


def admit_tolerations(pod: Tree, seconds: int = TOLERATION_SECONDS) -> AdmissionResult:
    """Add the default tolerations for not-ready and unreachable nodes, unless the pod has its own."""
    spec = _spec(pod)
    if spec is None:
        return AdmissionResult(pod)
    given = spec.get("tolerations") or []
    if not isinstance(given, list) or not all(isinstance(toleration, dict) for toleration in given):
        return AdmissionResult(pod)
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
        for key in _TAINTS
        if not any(
            toleration.get("key") in (key, "", None) and toleration.get("effect") in ("NoExecute", "", None)
            for toleration in given
        )
    ]
    return AdmissionResult(_with_spec(pod, tolerations=[*given, *added]) if added else pod)


# -- runtime classes


def admit_runtime_class(pod: Tree, runtime_class: Tree | None) -> AdmissionResult:
    """Add the overhead and scheduling constraints of its runtime class to a new pod; None is a class that
    does not exist.
    """
    spec = _spec(pod)
    if spec is None:
        return AdmissionResult(pod)
    name, given = spec.get("runtimeClassName"), spec.get("overhead")
    if name is None:
        if given:
            text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            return AdmissionResult(pod, text)
        return AdmissionResult(pod)
    if runtime_class is None:
        return AdmissionResult(pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = (runtime_class.get("overhead") or {}).get("podFixed")
    if "overhead" in runtime_class and runtime_class["overhead"] is not None:
        if given and not _same_amounts(overhead or {}, given):
            text = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            return AdmissionResult(pod, text)
        pod = _with_spec(pod, overhead=dict(overhead or {}))
    elif given:
        text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        return AdmissionResult(pod, text)
    return _admit_scheduling(pod, runtime_class.get("scheduling") or {})


def _same_amounts(one: Any, other: Any) -> bool:
    if not isinstance(other, dict):
        return False
    try:
        return trees_equal_as(dict[str, Quantity], _texts(one), _texts(other))
    except QuantityError:
        return False


def _texts(amounts: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(Quantity.from_json(amount)) for name, amount in amounts.items()}


def _admit_scheduling(pod: Tree, scheduling: Tree) -> AdmissionResult:
    if not scheduling:
        return AdmissionResult(pod)
    selector = pod["spec"].get("nodeSelector") or {}
    tolerations = pod["spec"].get("tolerations") or []
    if not isinstance(selector, dict) or not isinstance(tolerations, list):
        return AdmissionResult(pod)
    wanted = scheduling.get("nodeSelector") or {}
    for key, value in wanted.items():
        if key in selector and selector[key] != value:
            text = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            return AdmissionResult(pod, text)
    merged = list(tolerations)
    merged += [toleration for toleration in scheduling.get("tolerations") or () if toleration not in merged]
    fields: Tree = {}
    if wanted:
        fields["nodeSelector"] = {**selector, **wanted}
    if merged:
        fields["tolerations"] = merged
    return AdmissionResult(_with_spec(pod, **fields))
