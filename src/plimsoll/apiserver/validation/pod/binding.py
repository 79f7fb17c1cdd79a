"""Binding a pod to a node: what is posted to `pods/binding` or `bindings`, and what becomes of the pod.

`bind_pod` takes the stored pod and the posted Binding and gives back the pod as it would be stored. It is
pure and leaves both trees as they are. Three things can stand in the way, told apart because the API answers
them differently: a Binding that breaks a rule (`errors`), a pod that cannot be bound or is not the one that
was meant (`conflict`), and a Binding that is no such object (DecodeError).

DIFF: a Binding without a target, or to something else than a node, is answered as invalid; upstream answers
as if the server had failed (test_a_binding_needs_a_node).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plimsoll.apiserver.validation.core_views import Binding
from plimsoll.apiserver.validation.decode import decode_canonical
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldPath,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.conditions import set_condition
from plimsoll.apiserver.validation.timestamps import format_datetime
from plimsoll.apiserver.validation.write_context import decode_view

_TARGET = FieldPath("target")
_TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


@dataclass(frozen=True, slots=True)
class PodBindingResult:
    """The pod on its node; or why it is not: rules the Binding breaks, or what the pod says against it."""

    tree: Tree
    errors: tuple[FieldError, ...] = ()
    conflict: str = ""


def read_binding(tree: Any) -> Binding:
    """A posted Binding; raises DecodeError where it is none."""
    return decode_view(decode_canonical(tree, Binding), Binding)


def bind_pod(
    pod: Tree, binding: Any, now: datetime, node_labels: Mapping[str, str] | None = None
) -> PodBindingResult:
    """Bind a stored pod as a Binding says.

    `node_labels` are those of the target, where it is known: zone and region are handed on to the pod, unless
    the Binding itself names others.
    """
    posted = read_binding(binding)
    errors = tuple(_validate_target(posted))
    if errors:
        return PodBindingResult(pod, errors)
    conflict = _find_conflict(pod, posted)
    if conflict:
        return PodBindingResult(pod, (), conflict)
    labels = dict(posted.metadata.labels)
    for name in _TOPOLOGY_LABELS:
        if node_labels and name in node_labels:
            labels[name] = node_labels[name]
    return PodBindingResult(_bind(pod, posted, labels, format_datetime(now)))


def _validate_target(binding: Binding) -> FieldErrors:
    if binding.target.kind not in ("", "Node"):
        yield not_supported(_TARGET.child("kind"), binding.target.kind, ("Node", "<empty>"))
    if not binding.target.name:
        yield required(_TARGET.child("name"))


def _find_conflict(pod: Tree, binding: Binding) -> str:
    meta, spec = subtree(pod, "metadata"), subtree(pod, "spec")
    name, uid, version = (meta.get(field, "") for field in ("name", "uid", "resourceVersion"))
    wanted = binding.metadata
    if wanted.uid and wanted.uid != uid:
        return f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {uid}"
    if wanted.resource_version and wanted.resource_version != version:
        return (
            f"Precondition failed: ResourceVersion in precondition: {wanted.resource_version}, "
            f"ResourceVersion in object meta: {version}"
        )
    if meta.get("deletionTimestamp"):
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'pod {name} is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return f"pod {name} has non-empty .spec.schedulingGates"
    return ""


def _bind(pod: Tree, binding: Binding, labels: Mapping[str, str], now: str) -> Tree:
    meta, status = dict(subtree(pod, "metadata")), dict(subtree(pod, "status"))
    for name, added in (("annotations", binding.metadata.annotations), ("labels", labels)):
        if added:
            meta[name] = {**meta.get(name, {}), **added}
    status.pop("nominatedNodeName", None)
    status["conditions"] = set_condition(
        status.get("conditions", []), {"type": "PodScheduled", "status": "True"}, now
    )
    spec = {**subtree(pod, "spec"), "nodeName": binding.target.name}
    return {**pod, "metadata": meta, "spec": spec, "status": status}
