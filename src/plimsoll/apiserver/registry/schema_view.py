"""Views of API objects made from their schema.

`view_of` returns a msgspec Struct with every field of a type. Attributes are the fields' names in snake case;
a field that is a pointer in Go is None if it is absent, any other field has its zero value. Parts that the
rest of Plimsoll reads too have their view in `plimsoll.api`.
"""

from __future__ import annotations

import keyword
import re
from functools import cache
from typing import Any, TypeAlias

import msgspec

from plimsoll.api import containers, core, meta
from plimsoll.api.meta import Int, Int32, IntOrString, Wire
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.registry.metadata_view import FullObjectMeta
from plimsoll.apiserver.registry.schema_files import read_type
from plimsoll.apiserver.registry.schema_types import SchemaField, SchemaType

#: An object of a type that `view_of` made; such types do not exist for a type checker.
View: TypeAlias = Any

_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SCALARS: dict[str, tuple[Any, Any]] = {
    "string": (str, ""),
    "bytes": (str, ""),
    "bool": (bool, False),
    "int32": (Int32, 0),
    "int64": (Int, 0),
    "int-or-string": (IntOrString, 0),
    "quantity": (Quantity, None),
    "time": (str, None),
    "micro-time": (str, None),
}
#: Types with a view in `plimsoll.api` that has all fields which validation depends on.
_SHARED: dict[str, type[Wire]] = {
    "meta.v1.Condition": meta.Condition,
    "meta.v1.LabelSelector": meta.LabelSelector,
    "meta.v1.ObjectMeta": FullObjectMeta,
    "core.v1.Affinity": core.Affinity,
    "core.v1.ConfigMapKeySelector": containers.KeySelector,
    "core.v1.ContainerResizePolicy": containers.ContainerResizePolicy,
    "core.v1.ContainerRestartRule": containers.ContainerRestartRule,
    "core.v1.EnvFromSource": containers.EnvFromSource,
    "core.v1.EnvVar": containers.EnvVar,
    "core.v1.Lifecycle": containers.Lifecycle,
    "core.v1.NamespaceCondition": meta.Condition,
    "core.v1.NativeResourceClaimStatus": core.NativeResourceClaimStatus,
    "core.v1.NodeAddress": core.NodeAddress,
    "core.v1.NodeAllocatableResourceClaimStatus": core.NodeAllocatableClaimStatus,
    "core.v1.NodeCondition": meta.Condition,
    "core.v1.NodeSelector": core.NodeSelector,
    "core.v1.ObjectFieldSelector": containers.ObjectFieldSelector,
    "core.v1.ObjectReference": meta.ObjectReference,
    "core.v1.PodCondition": meta.Condition,
    "core.v1.PodExtendedResourceClaimStatus": core.ExtendedResourceClaimStatus,
    "core.v1.PodReadinessGate": core.ReadinessGate,
    "core.v1.PodResourceClaim": core.PodResourceClaim,
    "core.v1.PodResourceClaimStatus": core.PodResourceClaimStatus,
    "core.v1.PodSchedulingGate": core.PodSchedulingGate,
    "core.v1.PodSchedulingGroup": core.PodSchedulingGroup,
    "core.v1.Probe": containers.Probe,
    "core.v1.ResourceFieldSelector": containers.ResourceFieldSelector,
    "core.v1.ResourceRequirements": core.ResourceRequirements,
    "core.v1.Taint": core.Taint,
    "core.v1.Toleration": core.Toleration,
    "core.v1.TopologySpreadConstraint": core.TopologySpreadConstraint,
}


@cache
def view_of(name: str) -> Any:
    """Return the view of a type by its name in the schema, such as `core.v1.Pod`."""
    if name in _SHARED:
        return _SHARED[name]
    package, _, short_name = name.rpartition(".")
    schema = read_type(package, short_name)
    assert schema is not None, f"no type {name}"  # the data files are part of the package
    fields = {attribute_name(field.name): field for field in schema.fields.values()}
    return msgspec.defstruct(
        short_name,
        [(attribute, *_annotation(field)) for attribute, field in fields.items()],
        bases=(Wire,),
        module=__name__,
        rename={attribute: field.name for attribute, field in fields.items()},
        frozen=True,
        kw_only=True,
    )


def attribute_name(name: str) -> str:
    """Return the attribute of a field: `host_ip` for `hostIP`."""
    attribute = _WORD_START.sub("_", name).lower()
    return f"{attribute}_" if keyword.iskeyword(attribute) else attribute


def _annotation(field: SchemaField) -> tuple[Any, Any]:
    """Return the type and default of a field."""
    kind, default = _type_of(field.type)
    return (kind | None, None) if field.pointer and kind is not Any else (kind, default)


def _type_of(schema: SchemaType) -> tuple[Any, Any]:
    if schema.kind == "object":
        view = view_of(schema.name)
        return view, view()
    if schema.item is not None:
        item, _ = _type_of(schema.item)
        return (tuple[item, ...], ()) if schema.kind == "list" else (dict[str, item], {})  # type: ignore[valid-type]
    return _SCALARS.get(schema.format, (Any, None))
