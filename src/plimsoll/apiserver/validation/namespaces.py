"""Strategies of Namespace, including its finalize subresource."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from plimsoll.api.names import dns_label, label_key
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid
from plimsoll.apiserver.validation.metadata import (
    STANDARD_FINALIZERS,
    validate_metadata,
    validate_metadata_update,
)
from plimsoll.apiserver.validation.name_formats import validate_format
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

_VIEW = view_of("core.v1.Namespace")

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"

_FINALIZERS = FieldPath("spec").child("finalizers")
_LABELS = FieldPath("metadata").child("labels")
_LEVELS = ("privileged", "baseline", "restricted")
_POLICY_VERSION = re.compile(r"latest|v1\.(?:0|[1-9][0-9]*)")


def set_namespace_defaults(tree: Tree, now: str) -> None:
    """Set the name label."""
    meta = tree["metadata"]
    if meta.get("name"):
        meta.setdefault("labels", {})[NAME_LABEL] = meta["name"]


def _prepare_create(write: WriteContext[View]) -> None:
    write.tree["status"] = {"phase": "Active"}
    finalizers = write.tree.setdefault("spec", {}).setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)


def _validate_create(write: WriteContext[View]) -> FieldErrors:
    yield from validate_metadata(write.metadata, namespaced=False, names=dns_label)
    for finalizer in write.new.spec.finalizers:
        yield from _validate_finalizer(finalizer, _FINALIZERS)
    if write.is_create or write.metadata.labels != write.old_metadata.labels:
        yield from _validate_pod_security(write.metadata.labels)


def _validate_pod_security(labels: Mapping[str, str]) -> FieldErrors:
    """Validate the labels of the PodSecurity admission plugin."""
    for mode in ("enforce", "audit", "warn"):
        level, version = f"pod-security.kubernetes.io/{mode}", f"pod-security.kubernetes.io/{mode}-version"
        if labels.get(level, _LEVELS[0]) not in _LEVELS:
            yield invalid(_LABELS.key(level), labels[level], f"must be one of {', '.join(_LEVELS)}")
        if not _POLICY_VERSION.fullmatch(labels.get(version, "latest")):
            yield invalid(_LABELS.key(version), labels[version], "must be latest or v1.x")


def _prepare_update(write: WriteContext[View]) -> None:
    """Reset the finalizers, which only the finalize subresource can change."""
    write.restore_fields("status")
    spec, before = write.tree.setdefault("spec", {}), subtree(write.old_tree, "spec")
    spec.pop("finalizers", None)
    if "finalizers" in before:
        spec["finalizers"] = copy_tree(before["finalizers"])


def _validate_update(write: WriteContext[View]) -> FieldErrors:
    yield from _validate_create(write)
    yield from validate_metadata_update(write.metadata, write.old_metadata)


def _prepare_status(write: WriteContext[View]) -> None:
    write.restore_fields("spec")


def _validate_status(write: WriteContext[View]) -> FieldErrors:
    meta = write.metadata
    yield from validate_metadata_update(meta, write.old_metadata)
    phase, path = write.new.status.phase, FieldPath("status").child("Phase")
    if meta.deletion_timestamp is None:
        if phase != "Active":
            yield invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif phase != "Terminating":
        yield invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def _prepare_finalize(write: WriteContext[View]) -> None:
    write.restore_fields("status")


def _validate_finalize(write: WriteContext[View]) -> FieldErrors:
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from _validate_each(write.new.spec.finalizers)


def _validate_each(finalizers: Sequence[str]) -> FieldErrors:
    for index, finalizer in enumerate(finalizers):
        yield from _validate_finalizer(finalizer, _FINALIZERS.index(index))


def _validate_finalizer(finalizer: str, path: FieldPath) -> FieldErrors:
    yield from validate_format(finalizer, path, label_key)
    if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        yield invalid(path, finalizer, detail)


NAMESPACE_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "Namespace", ""): WriteStrategy(_VIEW, _prepare_create, _validate_create),
    ("update", "Namespace", ""): WriteStrategy(_VIEW, _prepare_update, _validate_update),
    ("update", "Namespace", "status"): WriteStrategy(_VIEW, _prepare_status, _validate_status),
    ("update", "Namespace", "finalize"): WriteStrategy(_VIEW, _prepare_finalize, _validate_finalize),
}
