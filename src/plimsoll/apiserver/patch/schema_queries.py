"""Schema queries of strategic merge patch and server-side apply.

A type of None means that nothing is known: maps are then granular, lists and scalars atomic.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from plimsoll.apiserver.registry.schema_types import SchemaType

#: Embedded objects that are not optional: upstream always serializes them, at least as `{}`, so
#: their presence is never owned. By the name of the outer type; required fields need no entry.
_EMBEDDED: dict[str, frozenset[str]] = {
    outer: frozenset(fields.split())
    for outer, fields in {
        "AllocationResult": "devices",
        "Container": "resources",
        "ContainerStatus": "lastState state",
        "CustomResourceDefinitionStatus": "acceptedNames",
        "DaemonSetSpec": "updateStrategy",
        "DeploymentSpec": "strategy",
        "Endpoint": "conditions",
        "EphemeralContainer": "resources",
        "Event": "source regarding deprecatedSource",
        "IngressServiceBackend": "port",
        "IngressStatus": "loadBalancer",
        "JobTemplateSpec": "metadata spec",
        "LimitedPriorityLevelConfiguration": "limitResponse",
        "NetworkPolicySpec": "podSelector",
        "NodeDaemonEndpoints": "kubeletEndpoint",
        "NodeStatus": "daemonEndpoints nodeInfo",
        "PersistentVolumeClaimSpec": "resources",
        "PersistentVolumeClaimTemplate": "metadata spec",
        "PodTemplate": "template",
        "PodTemplateSpec": "metadata spec",
        "ReplicaSetSpec": "template",
        "ResourceClaimSpec": "devices",
        "ResourceClaimTemplateSpec": "metadata spec",
        "SelfSubjectReviewStatus": "userInfo",
        "ServiceStatus": "loadBalancer",
        "StatefulSetSpec": "updateStrategy",
        "TokenReviewStatus": "user",
    }.items()
}
_NONE: frozenset[str] = frozenset()
#: The same at the root of every kind.
_ROOT = frozenset(("metadata", "spec", "status"))


class Absent:
    """Absence of a value, where null is a value."""


ABSENT = Absent()
_ZEROS: dict[str, Any] = {
    "object": {},
    "list": None,
    "map": None,
    "string": "",
    "integer": 0,
    "boolean": False,
}


def implicit_value(schema: SchemaType, name: str, *, root: bool = False) -> Any:
    """Return the value of an absent field: its zero if upstream always serializes it, else ABSENT."""
    field = schema.fields.get(name)
    if field is None:
        return ABSENT
    if field.required:
        return None if field.type.atomic else _ZEROS.get(field.type.kind, ABSENT)
    if (root and name in _ROOT) or name in _EMBEDDED.get(schema.short_name, _NONE):
        return {}
    return ABSENT


class SchemaMember(NamedTuple):
    """A field of an object type: its type, and its implicit values at the root and elsewhere."""

    type: SchemaType | None
    at_root: Any
    inside: Any


#: A field that the type does not have.
UNKNOWN = SchemaMember(None, ABSENT, ABSENT)


@lru_cache(maxsize=4096)
def schema_members(schema: SchemaType) -> dict[str, SchemaMember]:
    """Return the fields of an object type, computed once; must not be modified."""
    return {
        name: SchemaMember(field.type, implicit_value(schema, name, root=True), implicit_value(schema, name))
        for name, field in schema.fields.items()
    }


def child(schema: SchemaType | None, name: str) -> SchemaType | None:
    """Return the type of the value under a key of an object or map; None if unknown."""
    if schema is None:
        return None
    if schema.kind == "object":
        field = schema.fields.get(name)
        return None if field is None else field.type
    return schema.item if schema.kind == "map" else None


def merge_form(schema: SchemaType | None) -> str:
    """Return how a value of this type is owned: "map" by entries, "list" by items, "free", or "atomic" as a
    unit.
    """
    if schema is None:
        return "free"
    kind = schema.kind
    if kind in ("object", "map"):
        return "atomic" if schema.atomic else "map"
    if kind == "list":
        return "atomic" if schema.list_type == "atomic" else "list"
    return "atomic"


def key_default(schema: SchemaType, key: str) -> str | int | None:
    """Return the default of a key that an item of a keyed list omits, or None."""
    if key in schema.key_defaults:
        return schema.key_defaults[key]
    field = schema.item.fields.get(key) if schema.item is not None else None
    if field is None:
        return None
    if field.required or field.owner.endswith(".LocalObjectReference"):
        return 0 if field.type.kind == "integer" else ""
    return None
