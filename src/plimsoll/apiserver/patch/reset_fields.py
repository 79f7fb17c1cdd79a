"""Reset fields: fields that a request cannot change and therefore cannot own.

A write to a kind leaves its status alone, a write to its status leaves the spec alone, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from plimsoll.apiserver.patch.field_set import LEAF, SELF, FieldSet, from_paths, without
from plimsoll.apiserver.registry.schema_types import SchemaType

#: Removes from a set the fields that a request cannot change.
Filter = Callable[[FieldSet], FieldSet]

#: Fields that status writes reset in addition to the spec.
_STATUS_RESETS: dict[str, tuple[str, ...]] = {
    "CustomResourceDefinition": ("metadata",),
    "Deployment": ("metadata.labels",),
    "DeviceTaintRule": ("metadata",),
    "FlowSchema": ("metadata",),
    "Pod": ("metadata.deletionTimestamp", "metadata.ownerReferences"),
    "PodGroup": ("metadata",),
    "PriorityLevelConfiguration": ("metadata",),
    "ResourceClaim": ("metadata",),
    "ResourcePoolStatusRequest": ("metadata",),
    "ServiceCIDR": ("metadata",),
    "ValidatingAdmissionPolicy": ("metadata",),
    "VolumeAttachment": ("metadata",),
}
#: Fields that other subresources reset.
_OTHER_RESETS: dict[tuple[str, str], tuple[str, ...]] = {
    ("Namespace", "finalize"): ("status",),
}
#: Subresources that can only change these fields; `*` is any path element.
_ONLY: dict[tuple[str, str], tuple[str, ...]] = {
    ("Pod", "ephemeralcontainers"): ("spec.ephemeralContainers",),
    ("Pod", "resize"): (
        "spec.containers.*.resources",
        "spec.containers.*.resizePolicy",
        "spec.initContainers.*.resources",
        "spec.initContainers.*.resizePolicy",
    ),
}


def reset_filter(schema: SchemaType | None, subresource: str) -> Filter | None:
    """Return the filter for writes to a kind or one of its subresources; None if nothing is reset."""
    if schema is None:
        return None
    return _reset_filter(schema.short_name, "status" in schema.fields, subresource)


@lru_cache(maxsize=1024)
def _reset_filter(kind: str, has_status: bool, subresource: str) -> Filter | None:
    if (kind, subresource) in _ONLY:
        return including(*_ONLY[kind, subresource])
    if subresource == "status":
        return excluding("spec", *_STATUS_RESETS.get(kind, ()))
    if (kind, subresource) in _OTHER_RESETS:
        return excluding(*_OTHER_RESETS[kind, subresource])
    return excluding("status") if has_status else None


def excluding(*paths: str) -> Filter:
    """Return a filter that removes these fields and everything below them."""
    excluded = from_paths([tuple("f:" + name for name in path.split(".")) for path in paths])

    def leave_out(fields: FieldSet) -> FieldSet:
        return without(fields, excluded)

    return leave_out


def including(*paths: str) -> Filter:
    """Return a filter that keeps only these fields, everything below them, and their parents."""
    patterns = [tuple(step if step == "*" else "f:" + step for step in path.split(".")) for path in paths]

    def keep(fields: FieldSet) -> FieldSet:
        return _keep(fields, patterns)

    return keep


def _keep(fields: FieldSet, patterns: list[tuple[str, ...]]) -> FieldSet:
    kept: FieldSet = {}
    for element, below in fields.items():
        rests = [pattern[1:] for pattern in patterns if pattern[0] in ("*", element)]
        if not rests or element == SELF:
            continue
        if () in rests:
            kept[element] = below
            continue
        deeper = _keep(below, rests)
        member = not below or SELF in below
        if deeper or member:
            kept[element] = {SELF: LEAF, **deeper} if deeper and member else deeper
    return kept
