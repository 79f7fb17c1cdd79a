"""Application of mutations: JSON patches and apply configurations as CEL values, to an object."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from plimsoll.api.go_text import encode_go
from plimsoll.api.quantity import Number
from plimsoll.apiserver.admission.policies.attributes import KindName, Tree
from plimsoll.apiserver.patch import apply_json_patch
from plimsoll.apiserver.patch.merge import drop_nulls, merge
from plimsoll.apiserver.patch.path_elements import format_path
from plimsoll.apiserver.patch.schema_queries import merge_form
from plimsoll.apiserver.patch.typed_check import find_mismatches
from plimsoll.apiserver.registry.schema import check_fields, schema_for
from plimsoll.apiserver.registry.schema_types import SchemaType
from plimsoll.cel.admission_values import JsonPatchOperation, ObjectValue
from plimsoll.cel.functions.time import format_duration, format_timestamp
from plimsoll.cel.syntax.ast import Uint
from plimsoll.cel.values import Duration, Timestamp, from_key, type_name
from plimsoll.errors import ApiError, MutationError, PatchError, PatchTestError


def apply_operations(tree: Tree, operations: list[JsonPatchOperation], kind: KindName) -> Tree:
    """Apply a JSON patch; a failed test operation leaves the object unchanged. MutationError, ApiError."""
    patch: list[Tree] = []
    for operation in operations:
        fields = operation.fields
        if "value" in fields:
            _check_type_names(fields["value"])
        patch.append({name: to_json(value) for name, value in fields.items()})
    try:
        patched = apply_json_patch(tree, patch)
    except PatchTestError:
        return tree
    except PatchError as error:
        raise MutationError(f"JSON Patch: {error}") from None
    schema = schema_for(*kind)
    report = check_fields(patched, schema) if schema is not None else None
    if report:
        wrong_types = "; ".join(text for _, text in report.type_errors)
        text = wrong_types or f"strict decoding error: {', '.join(report.strict_errors)}"
        details = {"causes": [{"message": text}]}
        raise ApiError(500, "InternalError", f"Internal error occurred: {text}", details)
    return patched if isinstance(patched, dict) else tree


def apply_configuration(tree: Tree, configuration: ObjectValue, kind: KindName) -> Tree:
    """Merge an apply configuration into an object; MutationError."""
    _check_type_names(configuration)
    patch = {**to_json(configuration), "apiVersion": tree.get("apiVersion"), "kind": tree.get("kind")}
    schema = schema_for(*kind)
    problems = find_mismatches(patch, schema, _format_unstructured)
    if problems:
        listed = problems[0] if len(problems) == 1 else "errors:\n  " + "\n  ".join(problems)
        raise MutationError(f"error applying patch: failed to convert patch object to typed object: {listed}")
    atomics = list(_atomic_paths(patch, schema, ()))
    if atomics:
        listed = ", ".join(atomics)
        raise MutationError(
            "error applying patch: invalid ApplyConfiguration: "
            f"may not mutate atomic arrays, maps or structs: {listed}"
        )
    merged: Tree = drop_nulls(merge(tree, patch, schema), schema)
    return merged


def _format_unstructured(value: Any) -> str:
    """Format a value as upstream's error does, which shows the wrapper of the value."""
    return f"&value.valueUnstructured{{Value:{encode_go(value)}}}"


def to_json(value: Any) -> Any:
    """Return a CEL value as JSON; MutationError if it has no such form."""
    if isinstance(value, ObjectValue):
        return {name: to_json(inner) for name, inner in value.fields.items()}
    if isinstance(value, dict):
        return {_json_key(from_key(key)): to_json(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, Uint):
        return value.value
    if isinstance(value, float):
        return int(value) if value.is_integer() else Number(repr(value))
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    raise MutationError(
        "JSONPath valueExpression evaluated to a type that could not marshal to JSON: "
        f"no conversion of {type_name(value)}"
    )


def _json_key(key: Any) -> str:
    if not isinstance(key, str):
        raise MutationError(f"map key {key!r} is of type {type_name(key)}, not string")
    return key


def _check_type_names(value: Any) -> None:
    """Check that the types of nested objects name their place: `Object.spec` at `spec`."""
    problems = []
    pending: list[tuple[Any, str]] = [(value, value.type_name)] if isinstance(value, ObjectValue) else []
    while pending:
        item, expected = pending.pop()
        if isinstance(item, ObjectValue):
            if item.type_name != expected:
                problems.append(
                    f'unexpected type name "{item.type_name}", expected "{expected}", '
                    "which matches field name path from root Object type"
                )
            pending += [(inner, f"{expected}.{name}") for name, inner in item.fields.items()]
        elif isinstance(item, list):
            pending += [(inner, expected) for inner in item]
        elif isinstance(item, dict):
            pending += [(inner, expected) for inner in item.values()]
    if problems:
        raise MutationError("type mismatch: " + "\n".join(problems))


def _atomic_paths(value: Any, schema: SchemaType | None, path: tuple[str, ...]) -> list[str]:
    """Return the paths of atomic lists, maps and objects in a configuration."""
    if schema is None:
        return []
    found = []
    if isinstance(value, dict) and schema.kind in ("object", "map"):
        if merge_form(schema) == "atomic":
            found.append(format_path(path))
        for name, inner in value.items():
            field = schema.fields.get(name) if schema.kind == "object" else None
            if field is not None:  # entries of maps are not searched, as upstream
                found += _atomic_paths(inner, field.type, (*path, "f:" + name))
    if isinstance(value, list) and schema.kind == "list":
        if merge_form(schema) == "atomic":
            found.append(format_path(path))
        for index, item in enumerate(value):
            found += _atomic_paths(item, schema.item, (*path, f"i:{index}"))
    return found
