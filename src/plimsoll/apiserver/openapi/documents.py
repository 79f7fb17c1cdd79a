"""OpenAPI documents, built on first request and then cached.

Has their frame, their ETags and the URLs in the index of version 3, which contain a digest so that clients
can cache them.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver.openapi.gnostic import encode_v2
from plimsoll.apiserver.openapi.paths import PARAMETERS, PATCH_TYPES, Operation, operations
from plimsoll.apiserver.openapi.schemas import Definitions, kind_of
from plimsoll.apiserver.registry.resources import group_versions
from plimsoll.apiserver.registry.schema import SchemaType, schema_for

Tree = dict[str, Any]

_MEDIAS = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
_CODES = {200: "OK", 201: "Created", 202: "Accepted", 401: "Unauthorized"}
_TITLE = "Kubernetes"
_PATH_PARAMETERS = {
    "name": "the object's name",
    "namespace": "the object's namespace",
}


class Document(NamedTuple):
    """An encoded document."""

    body: bytes
    digest: str

    @property
    def tag(self) -> str:
        return f'"{self.digest}"'


def _keep(body: bytes) -> Document:
    return Document(body, hashlib.sha256(body).hexdigest().upper())


def _documents() -> dict[str, tuple[str, str]]:
    """Return every group and version by its path."""
    return {
        (f"apis/{group}/{version}" if group else f"api/{version}"): (group, version)
        for group, versions in group_versions().items()
        for version in versions
    }


# -- version 3


@cache
def v3_index() -> Document:
    """Return the index of the version 3 documents."""
    return _keep(
        codec.encode({"paths": {path: {"serverRelativeURL": v3_address(path)} for path in _documents()}})
    )


def v3_address(path: str) -> str:
    """Return the URL of a version 3 document, including its digest."""
    document = v3(path)
    return f"/openapi/v3/{path}?hash={document.digest if document else ''}"


def v3(path: str) -> Document | None:
    """Return the document of a path such as `apis/apps/v1`; None if there is none."""
    group_version = _documents().get(path)
    return _v3(*group_version) if group_version else None


@cache
def _v3(group: str, version: str) -> Document:
    definitions = Definitions(3)
    paths: Tree = {}
    for operation in operations(group, version):
        _add(paths, operation, _operation_v3(operation, definitions), version=3)
    tree = {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": "1.36"},
        "paths": paths,
        "components": {
            "schemas": definitions.result(),
            "securitySchemes": {"BearerToken": _SECURITY},
        },
    }
    return _keep(codec.encode(tree))


_SECURITY = {"type": "apiKey", "name": "authorization", "in": "header", "description": "a bearer token"}


def _operation_v3(operation: Operation, definitions: Definitions) -> Tree:
    tree = _operation(operation, version=3)
    body = _refer(operation.body, operation, definitions)
    response = _refer(operation.response, operation, definitions)
    if operation.method == "patch":
        patch = {"schema": {"$ref": definitions.add_patch()}}
        tree["requestBody"] = {"required": True, "content": dict.fromkeys(PATCH_TYPES, patch)}
    elif body:
        tree["requestBody"] = {"content": {"*/*": {"schema": {"$ref": body}}}}
        if operation.method != "delete":
            tree["requestBody"]["required"] = True
    content = {"content": {media: {"schema": {"$ref": response}} for media in _MEDIAS}} if response else {}
    tree["responses"] = _responses(operation, content)
    return tree


# -- version 2


@cache
def _v2_tree() -> Tree:
    definitions = Definitions(2)
    paths: Tree = {}
    for group, version in _documents().values():
        for operation in operations(group, version):
            _add(paths, operation, _operation_v2(operation, definitions), version=2)
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": "v1.36"},
        "paths": paths,
        "definitions": definitions.result(),
        "securityDefinitions": {"BearerToken": _SECURITY},
        "security": [{"BearerToken": []}],
    }


@cache
def v2() -> Document:
    """Return the version 2 document."""
    return _keep(codec.encode(_v2_tree()))


@cache
def v2_protobuf() -> Document:
    """Return the version 2 document in the protobuf form that older clients request."""
    return _keep(encode_v2(_v2_tree()))


def _operation_v2(operation: Operation, definitions: Definitions) -> Tree:
    tree = _operation(operation, version=2)
    body = _refer(operation.body, operation, definitions)
    response = _refer(operation.response, operation, definitions)
    if operation.method == "patch":
        body = definitions.add_patch()
    if body:
        entry: Tree = {"name": "body", "in": "body", "schema": {"$ref": body}}
        if operation.method != "delete":
            entry["required"] = True
        tree["parameters"] = [entry, *tree.get("parameters", [])]
    tree["consumes"] = list(PATCH_TYPES) if operation.method == "patch" else ["*/*"]
    tree["produces"] = list(_MEDIAS)
    tree["schemes"] = ["https"]
    tree["responses"] = _responses(operation, {"schema": {"$ref": response}} if response else {})
    return tree


# -- both


def _operation(operation: Operation, *, version: int) -> Tree:
    tree: Tree = {
        "tags": [operation.tag],
        "operationId": operation.id,
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": kind_of(*operation.kind),
    }
    if operation.parameters:
        tree["parameters"] = [_parameter(name, version) for name in operation.parameters]
    return tree


def _refer(type: SchemaType | None, operation: Operation, definitions: Definitions) -> str:
    """Return the reference to the body or response type of an operation, defining it with its kinds."""
    if type is None:
        return ""
    group, version, kind = operation.kind
    for name in (kind, f"{kind}List"):
        if schema_for(group, version, name) is type:
            return definitions.add_kind(type, group, version, name)
    return definitions.add_kind(type, "", "v1", type.short_name)  # Status and DeleteOptions


def _responses(operation: Operation, content: Tree) -> Tree:
    responses: Tree = {str(code): {"description": _CODES[code], **content} for code in operation.codes}
    responses["401"] = {"description": _CODES[401]}
    return responses


def _add(paths: Tree, operation: Operation, tree: Tree, *, version: int) -> None:
    item = paths.get(operation.path)
    if item is None:
        item = paths[operation.path] = {}
        names = [name for name in _PATH_PARAMETERS if f"{{{name}}}" in operation.path]
        item["parameters"] = [_path_parameter(name, version) for name in names]
        item["parameters"].append(_parameter("pretty", version))
    item[operation.method] = tree


def _typed(type: str, version: int) -> Tree:
    plain = {"type": type, "uniqueItems": True}
    return plain if version == 2 else {"schema": plain}


def _parameter(name: str, version: int) -> Tree:
    type, description = PARAMETERS[name]
    return {"name": name, "in": "query", "description": description, **_typed(type, version)}


def _path_parameter(name: str, version: int) -> Tree:
    description = _PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "description": description,
        "required": True,
        **_typed("string", version),
    }
