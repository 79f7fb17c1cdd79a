"""What the patches ask of a schema.

Owns the two protocols that `kinds/schema.py` satisfies, and the few questions both strategic merge and
server-side apply put to a type. A type of None stands for "nothing is known": maps are then granular, lists
and scalars are whole values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Field(Protocol):
    """One field of an object type."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> Shape: ...
    @property
    def required(self) -> bool: ...


class Shape(Protocol):
    """A type: its kind, its fields or items, and how lists and maps merge."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, Any]: ...
    @property
    def item(self) -> Any: ...
    @property
    def list_type(self) -> str: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    @property
    def key_defaults(self) -> Mapping[str, Any]: ...
    @property
    def atomic(self) -> bool: ...
    @property
    def merge_key(self) -> str: ...
    @property
    def strategies(self) -> frozenset[str]: ...


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


def is_embedded(shape: Shape, name: str, *, root: bool = False) -> bool:
    """Whether a field that holds an object, a list or a map counts as present even where it is left out."""
    if root and name in _ROOT:
        return True
    field = shape.fields.get(name)
    if field is None:
        return False
    if field.required:
        return field.type.kind in ("object", "list", "map")
    return name in _EMBEDDED.get(shape.name.rpartition(".")[2], _NONE)


def child(shape: Shape | None, name: str) -> Any:
    """The type of what stands under a key of an object or map; None if nothing is known."""
    if shape is None:
        return None
    if shape.kind == "object":
        field = shape.fields.get(name)
        return None if field is None else field.type
    return shape.item if shape.kind == "map" else None


def form(shape: Shape | None) -> str:
    """How a value of this type is owned: "map" by entries, "list" by items, "free" as it comes, "whole"."""
    if shape is None:
        return "free"
    kind = shape.kind
    if kind in ("object", "map"):
        return "whole" if shape.atomic else "map"
    if kind == "list":
        return "whole" if shape.list_type == "atomic" else "list"
    return "whole"
