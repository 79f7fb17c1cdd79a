"""OpenAPI schemas.

Defines the names of the definitions and the two dialects: version 2 refers with a bare `$ref`, version 3
wraps it in `allOf` so that it can have a description.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.registry.schema import SchemaField, SchemaType
from plimsoll.apiserver.registry.schema_files import read_type

Tree = dict[str, Any]

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_PREFIXES = {
    "meta.v1": _META,
    "apiextensions.v1": "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
    "apiregistration.v1": "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
}
#: Scalars with their own definition: its name, and its schema in each version.
_DATE_TIME: Tree = {"type": "string", "format": "date-time"}
_OBJECT: Tree = {"type": "object"}
_VALUES: dict[str, tuple[str, Tree, Tree]] = {
    "quantity": (
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        {"type": "string"},
        {"oneOf": [{"type": "string"}, {"type": "number"}]},
    ),
    "int-or-string": (
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        {"type": "string", "format": "int-or-string"},
        {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
    ),
    "time": (f"{_META}.Time", _DATE_TIME, _DATE_TIME),
    "micro-time": (f"{_META}.MicroTime", _DATE_TIME, _DATE_TIME),
    "raw": ("io.k8s.apimachinery.pkg.runtime.RawExtension", _OBJECT, _OBJECT),
    "fields": (f"{_META}.FieldsV1", _OBJECT, _OBJECT),
    "any": (f"{_PREFIXES['apiextensions.v1']}.JSON", {}, {}),
}
_PLAIN: dict[str, Tree] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "double": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
}
_VALUE_TEXTS = {
    "quantity": "Quantity: a number with an optional suffix, such as 500m, 2 or 1.5Gi.",
    "int-or-string": "A number or a string.",
    "time": "Timestamp with seconds: 2025-06-01T12:00:00Z.",
    "micro-time": "Timestamp with microseconds: 2025-06-01T12:00:00.000000Z.",
    "raw": "Any JSON object.",
    "fields": "Field set in FieldsV1 form.",
    "any": "Any JSON value.",
}
PATCH = f"{_META}.Patch"


def definition_name(type: SchemaType) -> str:
    """Return `io.k8s.api.core.v1.Pod` for the type `core.v1.Pod`."""
    package, _, name = type.name.rpartition(".")
    return f"{_PREFIXES.get(package, f'io.k8s.api.{package}')}.{name}"


class Definitions:
    """The definitions that a document needs, collected by following the types it references."""

    def __init__(self, version: int) -> None:
        self._version = version
        self._root = "#/definitions/" if version == 2 else "#/components/schemas/"
        self._found: dict[str, Tree] = {}
        self._kinds: dict[str, list[Tree]] = {}

    def result(self) -> dict[str, Tree]:
        for name, kinds in self._kinds.items():
            self._found[name]["x-kubernetes-group-version-kind"] = kinds
        return dict(sorted(self._found.items()))

    def add_kind(self, type: SchemaType, group: str, version: str, kind: str) -> str:
        """Define a type with an apiVersion and kind; returns the reference to it."""
        reference = self.refer(type)
        kinds = self._kinds.setdefault(definition_name(type), [])
        entry = {"group": group, "kind": kind, "version": version}
        if entry not in kinds:
            kinds.append(entry)
        return reference

    def add_patch(self) -> str:
        """Define the Patch type: any object."""
        self._found[PATCH] = {"type": "object", "description": "A patch of one of the supported types."}
        return self._root + PATCH

    def refer(self, type: SchemaType) -> str:
        """Return the reference to an object type, which is defined with everything it contains."""
        name = definition_name(type)
        if name not in self._found:
            schema: Tree = {"type": "object"}
            self._found[name] = schema  # before its fields, which may be recursive
            # The type itself, without what a field may add to it.
            self._fill(schema, read_type(*type.name.rsplit(".", 1)) or type)
        return self._root + name

    def _fill(self, schema: Tree, type: SchemaType) -> None:
        if type.description:
            schema["description"] = type.description
        properties = {name: self._property(field) for name, field in sorted(type.fields.items())}
        if properties:
            schema["properties"] = properties
        required = [field.name for field in type.fields.values() if field.required]
        if required:
            schema["required"] = sorted(required)
        if type.atomic:
            schema["x-kubernetes-map-type"] = "atomic"

    def _property(self, field: SchemaField) -> Tree:
        schema = self._schema(field.type)
        if self._version == 3 and "$ref" in schema:
            schema = {"allOf": [schema]}
        if field.description:
            schema["description"] = field.description
        if field.default and self._version == 3:
            schema["default"] = int(field.default) if field.type.kind == "integer" else field.default
        return schema | _extensions(field.type)

    def _schema(self, type: SchemaType) -> Tree:
        if type.kind == "list" and type.item is not None:
            return {"type": "array", "items": self._schema(type.item)}
        if type.kind == "map" and type.item is not None:
            return {"type": "object", "additionalProperties": self._schema(type.item)}
        if type.format in _PLAIN:
            return dict(_PLAIN[type.format])
        if type.kind != "object":
            return {"$ref": self._refer_value(type.format)}
        reference = self.refer(type)
        return {"$ref": reference} if self._version == 2 else {"allOf": [{"$ref": reference}]}

    def _refer_value(self, format: str) -> str:
        name, old, new = _VALUES[format]
        described = {"description": _VALUE_TEXTS[format]}
        self._found.setdefault(name, {**(old if self._version == 2 else new), **described})
        return self._root + name


def _extensions(type: SchemaType) -> Tree:
    """Return the x-kubernetes extensions for lists, maps and patches."""
    extensions: Tree = {}
    if "list" in type.stated:
        extensions["x-kubernetes-list-type"] = type.list_type
        if type.keys:
            extensions["x-kubernetes-list-map-keys"] = list(type.keys)
    elif "map" in type.stated and type.kind == "map":
        extensions["x-kubernetes-map-type"] = "atomic"
    elif "granular" in type.stated:
        extensions["x-kubernetes-map-type"] = "granular"
    if type.merge_key:
        extensions["x-kubernetes-patch-merge-key"] = type.merge_key
    if type.strategies:
        extensions["x-kubernetes-patch-strategy"] = ",".join(sorted(type.strategies))
    return extensions


def kind_of(group: str, version: str, kind: str) -> Tree:
    """Return the x-kubernetes-group-version-kind of an operation."""
    return {"group": group, "kind": kind, "version": version}


def title_of(group: str, version: str) -> str:
    """Return the middle of an operation ID: `CoreV1`, `RbacAuthorizationV1`."""
    return "".join(word[:1].upper() + word[1:] for word in (*_words(group), version))


def tag_of(group: str, version: str) -> str:
    """Return the tag of a group and version: `core_v1`, `rbacAuthorization_v1`."""
    first, *more = _words(group)
    return "".join((first, *(word.capitalize() for word in more))) + f"_{version}"


def _words(group: str) -> list[str]:
    return (group or "core").removesuffix(".k8s.io").split(".")
