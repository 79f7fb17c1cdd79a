"""Binding a pod to a node, as posted to `pods/binding` or `bindings`.

`bind_pod` takes the stored pod and the posted Binding and returns the pod as it would be stored. It is pure
and modifies neither tree. Three kinds of failure are distinguished because the API reports them differently:
an invalid Binding (`errors`), a pod that cannot be bound or is not the one that was meant (`conflict`), and a
body that is not a Binding (DecodeError).

DIFF: a Binding without a target, or to something other than a node, is reported as invalid; upstream reports
an internal error (test_a_binding_needs_a_node).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.registry.schema_view import View, view_of
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
from plimsoll.apiserver.validation.write_context import decode_view

_BINDING_VIEW = view_of("core.v1.Binding")

_TARGET = FieldPath("target")
_TOPOLOGY_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


@dataclass(frozen=True, slots=True)
class PodBindingResult:
    """The bound pod, or why it cannot be bound: errors of the Binding, or a conflict with the pod."""

    tree: Tree
    errors: tuple[FieldError, ...] = ()
    conflict: str = ""


def read_binding(tree: Any) -> View:
    """Decode a posted Binding; raises DecodeError if it is not one."""
    return decode_view(decode_canonical(tree, _BINDING_VIEW), _BINDING_VIEW)


def bind_pod(
    pod: Tree, binding: Any, now: datetime, node_labels: Mapping[str, str] | None = None
) -> PodBindingResult:
    """Bind a stored pod as a posted Binding states; raises DecodeError if it is not one."""
    return apply_binding(pod, read_binding(binding), now, node_labels)


def apply_binding(
    pod: Tree, posted: View, now: datetime, node_labels: Mapping[str, str] | None = None
) -> PodBindingResult:
    """Bind a stored pod as a decoded Binding states.

    `node_labels` are the labels of the target node, if known: zone and region are copied to the pod unless
    the Binding sets them.
    """
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


def _validate_target(binding: View) -> FieldErrors:
    if binding.target.kind not in ("", "Node"):
        yield not_supported(_TARGET.child("kind"), binding.target.kind, ("Node", "<empty>"))
    if not binding.target.name:
        yield required(_TARGET.child("name"))


def _find_conflict(pod: Tree, binding: View) -> str:
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


def _bind(pod: Tree, binding: View, labels: Mapping[str, str], now: str) -> Tree:
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
