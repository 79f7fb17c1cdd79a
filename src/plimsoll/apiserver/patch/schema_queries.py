"""What the patches ask of a type.

Owns the questions that strategic merge and server-side apply put to `kinds`. A type of None stands for
"nothing is known": maps are then granular, lists and scalars are whole values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

from plimsoll.apiserver.registry.schema_types import Type

#: Objects that stand inside others without being optional: upstream always writes them, if only as `{}`, so
#: nobody owns their bare presence. By the name of the outer type; fields that are required need no entry.
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
    """Nothing, where null is something."""


ABSENT = Absent()
_ZEROS: dict[str, Any] = {
    "object": {},
    "list": None,
    "map": None,
    "string": "",
    "integer": 0,
    "boolean": False,
}


def stand_in(shape: Type, name: str, *, root: bool = False) -> Any:
    """What a field counts as where it is left out: its zero if upstream always writes it, else ABSENT."""
    field = shape.fields.get(name)
    if field is None:
        return ABSENT
    if field.required:
        return None if field.type.atomic else _ZEROS.get(field.type.kind, ABSENT)
    if (root and name in _ROOT) or name in _EMBEDDED.get(shape.short_name, _NONE):
        return {}
    return ABSENT


class Member(NamedTuple):
    """A field of an object type: its type, and what it counts as where it is left out, by where it stands."""

    type: Type | None
    at_root: Any
    inside: Any


#: A field that the type does not have.
UNKNOWN = Member(None, ABSENT, ABSENT)


@lru_cache(maxsize=4096)
def members_of(shape: Type) -> dict[str, Member]:
    """The fields of an object type, worked out once; not to be changed."""
    return {
        name: Member(field.type, stand_in(shape, name, root=True), stand_in(shape, name))
        for name, field in shape.fields.items()
    }


def child(shape: Type | None, name: str) -> Type | None:
    """The type of what stands under a key of an object or map; None if nothing is known."""
    if shape is None:
        return None
    if shape.kind == "object":
        field = shape.fields.get(name)
        return None if field is None else field.type
    return shape.item if shape.kind == "map" else None


def form(shape: Type | None) -> str:
    """How a value of this type is owned: "map" by entries, "list" by items, "free" as it comes, "whole"."""
    if shape is None:
        return "free"
    kind = shape.kind
    if kind in ("object", "map"):
        return "whole" if shape.atomic else "map"
    if kind == "list":
        return "whole" if shape.list_type == "atomic" else "list"
    return "whole"


def key_default(shape: Type, key: str) -> str | int | None:
    """What stands for a key that an item of a keyed list leaves out; None if nothing does."""
    if key in shape.key_defaults:
        return shape.key_defaults[key]
    field = shape.item.fields.get(key) if shape.item is not None else None
    if field is None:
        return None
    if field.required or field.owner.endswith(".LocalObjectReference"):
        return 0 if field.type.kind == "integer" else ""
    return None
