"""Request bodies of writes: decoding into an object of the kind in the storage version.

Checks what precedes the rules of the kind: apiVersion and kind, unknown fields, types of values, and that the
object is the one that the path names.
"""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.handlers.conversion import convert_to_storage
from plimsoll.apiserver.patch import drop_nulls
from plimsoll.apiserver.registry.schema import check_fields, check_json, schema_for
from plimsoll.apiserver.registry.schema_match import matches_schema
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import MAX_OBJECT_BYTES, bad_request, invalid, request_entity_too_large
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.field_errors import invalid as invalid_value
from plimsoll.errors import ApiError

Tree = dict[str, Any]

#: Fields of metadata that are omitted when empty.
_NEVER_EMPTY = {"labels", "annotations", "finalizers", "ownerReferences", "managedFields"}
_MAX_WARNINGS = 32
#: Least bytes of a stored container: its name, its image and the defaults that every container gets.
CONTAINER_BYTES = 140
_NAMESPACE_MISMATCH = "the namespace of the provided object does not match the namespace sent on the request"


def decode_object(
    info: RequestInfo, body: Any, validation: str, *, text: bytes = b"", current: Any = None
) -> tuple[Tree, list[str]]:
    """Decode a body into an object in the storage version, and return it with warnings; ApiError 400.

    `text` is its JSON, if the client asks for duplicate fields to be reported. If the body is the result of a
    patch on `current`, it must have apiVersion and kind, unknown fields of `current` are not reported again,
    and an object that no longer fits its kind is an error of the patch (422).
    """
    kind = info.resource.kind
    if not isinstance(body, dict):
        raise bad_request(f"the body must be a {kind} object")
    if kind == "Pod":
        _check_containers(body.get("spec"))
    if current is not None and not (body.get("apiVersion") and body.get("kind")):
        raise bad_request("the patch result has no apiVersion and kind")
    version, named = body.get("apiVersion") or info.api_version, body.get("kind") or kind
    if named != kind:
        found = f"the object provided is unrecognized: it is a {named!r}"
        raise _decode_error(f"{found}, expected {kind!r} in {info.api_version}", current)
    if version != info.api_version:
        found = f"the API version in the data ({version}) does not match the expected API version"
        raise _decode_error(f"{found} ({info.api_version})", current)
    warnings = _check_fields(info, body, validation, text, current)
    if not info.resource.has_strategy:  # the others have their own rules
        body = drop_nulls(body, schema_for(info.group, info.version, kind))
    tree = convert_to_storage(body, info.resource, info.version)
    metadata = tree["metadata"] if tree["metadata"] is not None else {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    tree["metadata"] = metadata = {
        name: value for name, value in metadata.items() if value or name not in _NEVER_EMPTY
    }
    _check_identity(info, metadata)
    return tree, warnings


def _check_containers(spec: Any) -> None:
    """Refuse a pod that is too large to be stored before its containers are looked at (ApiError 413)."""
    containers = spec.get("containers") if isinstance(spec, dict) else None
    if isinstance(containers, list) and len(containers) * CONTAINER_BYTES > MAX_OBJECT_BYTES:
        raise request_entity_too_large(
            f"{len(containers)} containers take at least {len(containers) * CONTAINER_BYTES} bytes; "
            f"at most {MAX_OBJECT_BYTES} can be stored"
        )


def _check_fields(info: RequestInfo, body: Tree, validation: str, text: bytes, current: Any) -> list[str]:
    schema = schema_for(info.group, info.version, info.resource.kind)
    if schema is None:
        return []
    if current is not None and matches_schema(_changed_fields(body, current), schema):
        return []
    report = check_json(text, schema) if text else check_fields(body, schema)
    if report.type_errors:
        shown = "; ".join(
            f"{path}: {message}" if path else message for path, message in report.type_errors[:8]
        )
        raise _decode_error(_cannot_be_handled(info, shown), current)
    if not report.strict_errors:
        return []
    known = set(check_fields(current, schema).strict_errors) if current is not None else set()
    texts = [text for text in report.strict_errors if text not in known][:_MAX_WARNINGS]
    if texts and validation == "Strict":
        raise bad_request(_cannot_be_handled(info, f"strict decoding error: {', '.join(texts)}"))
    return texts if validation == "Warn" else []


def _changed_fields(body: Tree, current: Tree) -> Tree:
    """Return the top-level fields that a patch changed; the others were checked when they were stored."""
    return {name: value for name, value in body.items() if value is not current.get(name)}


def _check_identity(info: RequestInfo, metadata: Tree) -> None:
    """Check that the object is the one that the path names, and fill in what it leaves out."""
    for field in ("name", "namespace", "generateName", "resourceVersion", "uid"):
        value = metadata.get(field)
        if value is None:
            metadata.pop(field, None)
        elif not isinstance(value, str):
            raise bad_request(f"metadata.{field} must be a string")
    if info.resource.namespaced:
        if metadata.get("namespace") not in (None, "", info.namespace):
            raise bad_request(_NAMESPACE_MISMATCH)
        metadata["namespace"] = info.namespace
    else:
        metadata.pop("namespace", None)
    if not info.name:
        return
    name = metadata.get("name", "")
    if not name and info.verb == "update":
        raise bad_request(
            f"the name of the object ({info.name} based on URL) was undeterminable: name must be provided"
        )
    if name and name != info.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({info.name})")
    metadata["name"] = info.name


def _decode_error(why: str, current: Any) -> ApiError:
    """Create the error of a body, or of a patch."""
    if current is None:
        return bad_request(why)
    return invalid("", "", "", [invalid_value(FieldPath("patch"), None, why)])


def _cannot_be_handled(info: RequestInfo, why: str) -> str:
    kind = info.resource.kind
    return f'{kind} in version "{info.version}" cannot be handled as a {kind}: {why}'
