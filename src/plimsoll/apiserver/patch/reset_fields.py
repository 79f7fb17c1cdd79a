"""Which fields a request cannot change, whatever it says.

Owns the table of reset fields: a write to a kind leaves its status alone, a write to its status leaves the
spec alone, and so on. Nobody comes to own such a field by sending it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from plimsoll.apiserver.patch.field_set import LEAF, SELF, FieldSet, from_paths, without
from plimsoll.apiserver.registry.schema_types import SchemaType

#: Leaves out of a set what a request cannot change.
Filter = Callable[[FieldSet], FieldSet]

#: What writes to the status reset besides the spec.
_STATUS_RESETS: dict[str, tuple[str, ...]] = {
    "CertificateSigningRequest": ("status.certificate",),
    "CustomResourceDefinition": ("metadata",),
    "Deployment": ("metadata.labels",),
    "DeviceTaintRule": ("metadata",),
    "FlowSchema": ("metadata",),
    "Pod": ("metadata.deletionTimestamp", "metadata.ownerReferences"),
    "PriorityLevelConfiguration": ("metadata",),
    "ResourceClaim": ("metadata",),
    "ResourcePoolStatusRequest": ("metadata",),
    "ServiceCIDR": ("metadata",),
    "ValidatingAdmissionPolicy": ("metadata",),
    "VolumeAttachment": ("metadata",),
}
#: What other subresources reset.
_OTHER_RESETS: dict[tuple[str, str], tuple[str, ...]] = {
    ("CertificateSigningRequest", "approval"): ("spec", "status.certificate"),
    ("Namespace", "finalize"): ("status",),
}
#: Subresources that let nothing be changed but this; `*` is any step.
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
    """The filter for writes to a kind or one of its subresources; None if nothing is reset."""
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
    """A filter that leaves out these fields and all below them."""
    excluded = from_paths([tuple("f:" + name for name in path.split(".")) for path in paths])

    def leave_out(fields: FieldSet) -> FieldSet:
        return without(fields, excluded)

    return leave_out


def including(*paths: str) -> Filter:
    """A filter that leaves only these fields, all below them, and the steps down to them."""
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
