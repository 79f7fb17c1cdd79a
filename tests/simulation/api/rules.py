"""Rules of writes: metadata, status, generation and finalizers, and what single kinds add.

`prepare` completes a new tree in place; `find_problems` yields what is wrong with it. Both see one `Write`,
whose tree owns its first level and its metadata and may share the rest with the stored object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.apiserver.registry.status_shape import complete_status
from plimsoll.apiserver.validation.device_taint_rules import update_taint_time
from plimsoll.apiserver.validation.field_errors import FieldError, FieldPath, forbidden, invalid, required
from plimsoll.apiserver.validation.priority_classes import HIGHEST_USER_PRIORITY, SYSTEM_CLASSES
from tests.simulation.api import claim_rules, pod_rules
from tests.simulation.api.kinds import Kind

Tree = dict[str, Any]

_META, _SPEC = FieldPath("metadata"), FieldPath("spec")
_HEAD = frozenset(("apiVersion", "kind", "metadata", "status"))
_STANDARD_FINALIZERS = frozenset(("kubernetes", "orphan", "foregroundDeletion"))
_IMMUTABLE = "field is immutable"
#: Kinds whose generation counts the changes of everything but metadata and status.
_COUNTED = frozenset(
    (
        "Pod",
        "ResourceSlice",
        "DeviceClass",
        "DeviceTaintRule",
        "PodDisruptionBudget",
        "ReplicaSet",
        "StatefulSet",
        "ReplicationController",
    )
)
#: Kinds whose writes of the status also change metadata.
_STATUS_WRITES_METADATA = frozenset(
    (
        "Node",
        "Namespace",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "PodDisruptionBudget",
        "ReplicaSet",
        "StatefulSet",
        "ReplicationController",
        "Service",
    )
)
_INITIAL_STATUS: Mapping[str, Tree] = {
    "Namespace": {"phase": "Active"},
    "PersistentVolume": {"phase": "Pending"},
    "PersistentVolumeClaim": {"phase": "Pending"},
}


@dataclass(slots=True)
class Write:
    """Write of one object; without `old` it is new."""

    kind: Kind
    tree: Tree
    old: Tree | None
    subresource: str
    now: str


def prepare(write: Write) -> None:
    """Take from the request only what its path may change, and set what the server sets."""
    kind, tree, old = write.kind, write.tree, write.old
    if old is None:
        _prepare_new(write)
    elif write.subresource == "status":
        _prepare_status(kind, tree, old)
    elif write.subresource == "finalize":
        _keep(tree, old, "status")
    else:
        _prepare_update(write, old)
    if "status" not in tree or kind.name in _STATUS_WRITES_METADATA:
        tree["status"] = dict(tree.get("status") or {})
        complete_status(kind.name, tree)
        if not kind.has_status and not tree["status"]:
            del tree["status"]


def _prepare_new(write: Write) -> None:
    kind, tree = write.kind, write.tree
    if kind.name == "Pod":
        pod_rules.prepare_new(tree, write.now)
    elif kind.has_status and kind.name != "Node":
        tree["status"] = dict(_INITIAL_STATUS.get(kind.name, {}))
    if kind.name == "Namespace":
        spec = tree.setdefault("spec", {})
        spec["finalizers"] = list(dict.fromkeys([*(spec.get("finalizers") or ()), "kubernetes"]))
    if kind.name in _COUNTED or kind.name == "PriorityClass":
        tree["metadata"]["generation"] = 1
    else:
        tree["metadata"].pop("generation", None)


def _prepare_status(kind: Kind, tree: Tree, old: Tree) -> None:
    for name in [name for name in tree if name not in _HEAD]:
        del tree[name]
    _keep(tree, old, *(name for name in old if name not in _HEAD))
    if kind.name == "Pod":
        pod_rules.prepare_status(tree, old)
    elif kind.name not in _STATUS_WRITES_METADATA:
        owners = tree["metadata"].get("managedFields")  # those of an apply
        tree["metadata"] = {**old["metadata"], **({"managedFields": owners} if owners else {})}
    if kind.name == "ResourceClaim":
        claim_rules.prepare_status(tree, old)


def _prepare_update(write: Write, old: Tree) -> None:
    kind, tree = write.kind, write.tree
    if kind.has_status:
        _keep(tree, old, "status")
    if kind.name == "Namespace":
        tree["spec"] = {**(tree.get("spec") or {}), **_part(old, "spec", "finalizers")}
    if kind.name == "DeviceTaintRule":
        tree["spec"] = {**tree["spec"], "taint": dict(tree["spec"]["taint"])}
        update_taint_time(tree, old, write.now)
    if kind.name in _COUNTED and not _same_content(tree, old):
        tree["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _keep(tree: Tree, old: Tree, *names: str) -> None:
    for name in names:
        tree.pop(name, None)
        if name in old:
            tree[name] = old[name]


def _part(old: Tree, *path: str) -> Tree:
    *holders, name = path
    for holder in holders:
        old = old.get(holder) or {}
    return {name: old[name]} if name in old else {}


def _same_content(tree: Tree, old: Tree) -> bool:
    names = (tree.keys() | old.keys()) - _HEAD
    return all(tree.get(name) is old.get(name) or tree.get(name) == old.get(name) for name in names)


# -- validation


def find_problems(write: Write) -> Iterator[FieldError]:
    """Yield the violated rules; the codes and fields are kube-apiserver's."""
    yield from _metadata_problems(write)
    find = _BY_KIND.get((write.kind.name, write.subresource))
    if find is not None:
        yield from find(write.tree, write.old)


def _metadata_problems(write: Write) -> Iterator[FieldError]:
    if write.kind.plural == "events":
        return
    meta = write.tree["metadata"]
    old = write.old["metadata"] if write.old is not None else None
    if not meta.get("name"):
        yield required(_META.child("name"))
    finalizers = meta.get("finalizers") or ()
    for index, name in enumerate(finalizers):
        if "/" not in name and name not in _STANDARD_FINALIZERS and write.kind.name != "Lease":
            yield invalid(_META.child("finalizers").index(index), name, "must be domain/name")
    if old is None:
        return
    if "deletionTimestamp" in old and not set(finalizers) <= set(old.get("finalizers") or ()):
        yield forbidden(_META.child("finalizers"), "none can be added while the object is being deleted")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if meta.get(name) != old.get(name):
            yield invalid(_META.child(name), meta.get(name), _IMMUTABLE)


def _unchanged_spec(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    if old is not None and tree.get("spec") != old.get("spec"):
        yield invalid(_SPEC, None, _IMMUTABLE)


def _slice_problems(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    spec, before = tree["spec"], (old or tree)["spec"]
    for name in ("driver", "nodeName"):
        if spec.get(name) != before.get(name):
            yield invalid(_SPEC.child(name), spec.get(name), _IMMUTABLE)
    if spec["pool"]["name"] != before["pool"]["name"]:
        yield invalid(_SPEC.child("pool", "name"), spec["pool"]["name"], _IMMUTABLE)


def _priority_problems(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    if old is None:
        value = tree.get("value", 0)
        if value > HIGHEST_USER_PRIORITY and value != SYSTEM_CLASSES.get(tree["metadata"].get("name", "")):
            yield forbidden(FieldPath("value"), f"at most {HIGHEST_USER_PRIORITY}")
        return
    if tree.get("value") != old.get("value"):
        yield forbidden(FieldPath("value"), "may not be changed in an update.")
    if tree.get("preemptionPolicy") != old.get("preemptionPolicy"):
        yield invalid(FieldPath("preemptionPolicy"), None, _IMMUTABLE)


def _namespace_phase(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    wanted = "Terminating" if "deletionTimestamp" in tree["metadata"] else "Active"
    if (phase := tree["status"].get("phase")) != wanted:
        yield invalid(FieldPath("status").child("Phase"), phase, f"may only be {wanted}")


def _lease_numbers(tree: Tree, old: Tree | None) -> Iterator[FieldError]:
    spec = tree.get("spec") or {}
    if (duration := spec.get("leaseDurationSeconds")) is not None and duration <= 0:
        yield invalid(_SPEC.child("leaseDurationSeconds"), duration, "must be greater than 0")
    if (transitions := spec.get("leaseTransitions")) is not None and transitions < 0:
        yield invalid(_SPEC.child("leaseTransitions"), transitions, "must not be negative")


_Find = Callable[[Tree, Tree | None], Iterator[FieldError]]
_BY_KIND: Mapping[tuple[str, str], _Find] = {
    ("Pod", ""): pod_rules.find_spec_problems,
    ("Pod", "status"): pod_rules.find_status_problems,
    ("ResourceClaim", ""): claim_rules.find_spec_problems,
    ("ResourceClaim", "status"): claim_rules.find_status_problems,
    ("ResourceClaimTemplate", ""): _unchanged_spec,
    ("ResourceSlice", ""): _slice_problems,
    ("PriorityClass", ""): _priority_problems,
    ("Namespace", "status"): _namespace_phase,
    ("Lease", ""): _lease_numbers,
}
