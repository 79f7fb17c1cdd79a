"""Pods from templates, hashes and comparison of templates, numbers in percent, and status patches."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from plimsoll.api import codec
from plimsoll.api.meta import IntOrString, ObjectMeta, Wire
from plimsoll.client.endpoints import PODS, Endpoint
from plimsoll.controllers.actions import CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.workloads.ownership import controller_reference

#: Characters of names that never form words, as in kube-controller-manager.
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LENGTH = 10


def create_pod(
    owner: ObjectMeta,
    endpoint: Endpoint,
    template: Mapping[str, Any],
    *,
    name: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    finalizers: Iterable[str] = (),
    spec: Mapping[str, Any] | None = None,
) -> CreateAction:
    """Build the creation of a pod from a template; without a name the server chooses one."""
    source = template.get("metadata") or {}
    metadata: dict[str, Any] = {"ownerReferences": [controller_reference(owner, endpoint)]}
    metadata |= {"name": name} if name else {"generateName": f"{owner.name}-"}
    for field, more in (("labels", labels), ("annotations", annotations)):
        merged = {**(source.get(field) or {}), **(more or {})}
        if merged:
            metadata[field] = merged
    if kept := list(dict.fromkeys((*(source.get("finalizers") or ()), *finalizers))):
        metadata["finalizers"] = kept
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**(template.get("spec") or {}), **(spec or {})},
    }
    return CreateAction(PODS, tree, owner.namespace)


def delete_pod(metadata: ObjectMeta) -> DeleteAction:
    return DeleteAction(PODS, metadata.name, metadata.namespace, uid=metadata.uid)


def hash_tree(tree: Any, collisions: int | None = None) -> str:
    """Return a short hash of a JSON value that is a valid label and end of a name.

    DIFF: upstream hashes a dump of its Go structs. ReplicaSets and revisions are found by comparing
    templates, never by their hash (test_equal_templates_are_found_although_empty_fields_differ).
    """
    encoded = msgspec.json.encode(tree, order="sorted") + (f"#{collisions}".encode() if collisions else b"")
    number = int.from_bytes(hashlib.sha256(encoded).digest()[:8])
    characters = []
    for _ in range(_HASH_LENGTH):
        number, place = divmod(number, len(_SAFE))
        characters.append(_SAFE[place])
    return "".join(characters)


def without_label(template: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return a template without one label, in a form that can be compared: empty values are absent."""
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key != label}
    pruned = prune({**template, "metadata": metadata})
    return pruned if isinstance(pruned, dict) else {}


def prune(value: Any) -> Any:
    """Remove nulls and empty lists and objects: Kubernetes compares them as equal to absent ones."""
    if isinstance(value, Mapping):
        found = {key: prune(item) for key, item in value.items()}
        return {key: item for key, item in found.items() if item is not None and item != {} and item != []}
    if isinstance(value, list | tuple):
        return [prune(item) for item in value]
    return value


def resolve_percent(value: IntOrString | None, total: int, *, round_up: bool) -> int:
    """Return a number, or a percentage of a total; malformed values count as 0."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    text = value.removesuffix("%")
    if text == value or not (text.isascii() and text.isdigit()):
        return 0
    product = int(text) * total
    return -(-product // 100) if round_up else product // 100


def patch_status(endpoint: Endpoint, metadata: ObjectMeta, old: Wire, new: Wire) -> PatchAction | None:
    """Build the patch from one status to another, for the object as it was read; None if they are equal."""
    before, after = codec.to_tree(old), codec.to_tree(new)
    change: dict[str, Any] = {}
    for field in {**before, **after}:
        if before.get(field) != after.get(field):
            # Counters are 0, not absent, as other controllers write them.
            absent = 0 if isinstance(before.get(field), int) else None
            change[field] = after.get(field, absent)
    if not change:
        return None
    patch = {
        "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
        "status": change,
    }
    return PatchAction(endpoint, metadata.name, patch, metadata.namespace, subresource="status")
