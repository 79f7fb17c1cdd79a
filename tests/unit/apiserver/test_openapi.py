"""OpenAPI documents in both versions and encodings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.apiserver import openapi
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.openapi.schemas import tag_of, title_of
from plimsoll.apiserver.protobuf import wire
from plimsoll.apiserver.registry.descriptions import read_descriptions
from plimsoll.apiserver.registry.resources import RESOURCES, group_versions
from plimsoll.apiserver.registry.schema_files import read_type
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.errors import ApiError

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
PATHS = [f"apis/{g}/{v}" if g else f"api/{v}" for g, versions in group_versions().items() for v in versions]


def ask(path: str, accept: str = "", query: str = "", **headers: str) -> ApiResponse:
    pairs = [tuple(part.split("=", 1)) for part in query.split("&") if part]
    request = ApiRequest("GET", path, User("u"), [(k, v) for k, v in pairs], {"accept": accept, **headers})
    return openapi.respond(request, [part for part in path.split("/") if part])


def tree(path: str) -> Any:
    answer = ask(path, "application/json")
    assert answer.status == 200
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def property_of(schemas: Any, name: str, field: str) -> Any:
    return schemas[name]["properties"][field]


# -- version 3


def test_the_index_leads_to_every_document() -> None:
    index = tree("/openapi/v3")["paths"]
    assert list(index) == PATHS
    for path, entry in index.items():
        address, query = entry["serverRelativeURL"].split("?")
        assert address == f"/openapi/v3/{path}"
        answer = ask(address, "application/json", query)
        assert answer.status == 200
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers["ETag"] == f'"{query.removeprefix("hash=")}"'


def test_outdated_document_urls_redirect() -> None:
    answer = ask("/openapi/v3/apis/apps/v1", "", "hash=OLD")
    assert answer.status == 301
    address, query = answer.headers["Location"].split("?")
    assert ask(address, "", query).status == 200


def test_entity_tags() -> None:
    for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"):
        tag = ask(path).headers["ETag"]
        again = ask(path, **{"if-none-match": tag})
        assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("path", PATHS)
def test_documents_hold_together(path: str) -> None:
    document = tree(f"/openapi/v3/{path}")
    schemas = document["components"]["schemas"]
    for reference in references(document):
        assert reference.removeprefix("#/components/schemas/") in schemas
    ids = [op["operationId"] for item in document["paths"].values() for op in operations_of(item)]
    assert len(ids) == len(set(ids))


def references(tree: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(tree, dict):
        if isinstance(tree.get("$ref"), str):
            found.add(tree["$ref"])
        for value in tree.values():
            found |= references(value)
    elif isinstance(tree, list):
        for value in tree:
            found |= references(value)
    return found


def operations_of(item: Any) -> list[Any]:
    return [value for method, value in item.items() if method != "parameters"]


@pytest.mark.parametrize("row", [row for row in RESOURCES if row.is_stored], ids=lambda row: row.key)
def test_kubectl_finds_kind_and_parameters_of_patches(row: Any) -> None:
    for version in row.versions:
        base = f"apis/{row.group}/{version}" if row.group else f"api/{version}"
        document = tree(f"/openapi/v3/{base}")
        kind = {"group": row.group, "version": version, "kind": row.kind}
        scope = "/namespaces/{namespace}" if row.namespaced else ""
        patch = document["paths"][f"/{base}{scope}/{row.plural}/{{name}}"]["patch"]
        assert patch["x-kubernetes-group-version-kind"] == kind
        query = {parameter["name"] for parameter in patch["parameters"] if parameter["in"] == "query"}
        assert query == {"dryRun", "fieldManager", "fieldValidation", "force"}
        assert "application/strategic-merge-patch+json" in patch["requestBody"]["content"]
        known = [
            name
            for name, schema in document["components"]["schemas"].items()
            if kind in schema.get("x-kubernetes-group-version-kind", [])
        ]
        assert len(known) == 1
        assert known[0].endswith(f".{row.kind}")


def test_lists_and_maps_have_merge_strategies() -> None:
    schemas = tree("/openapi/v3/api/v1")["components"]["schemas"]
    ports = property_of(schemas, "io.k8s.api.core.v1.Container", "ports")
    assert ports["x-kubernetes-list-type"] == "map"
    assert ports["x-kubernetes-list-map-keys"] == ["containerPort", "protocol"]
    assert ports["x-kubernetes-patch-merge-key"] == "containerPort"
    assert ports["x-kubernetes-patch-strategy"] == "merge"
    volumes = property_of(schemas, "io.k8s.api.core.v1.PodSpec", "volumes")
    assert volumes["x-kubernetes-patch-strategy"] == "merge,retainKeys"
    finalizers = property_of(schemas, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta", "finalizers")
    assert finalizers["x-kubernetes-list-type"] == "set"
    assert "x-kubernetes-patch-merge-key" not in finalizers
    selector = property_of(schemas, "io.k8s.api.core.v1.PodSpec", "nodeSelector")
    assert selector["x-kubernetes-map-type"] == "atomic"
    assert schemas["io.k8s.api.core.v1.ObjectReference"]["x-kubernetes-map-type"] == "atomic"
    claim = property_of(schemas, "io.k8s.api.core.v1.PersistentVolumeSpec", "claimRef")
    assert claim["x-kubernetes-map-type"] == "granular"
    protocol = property_of(schemas, "io.k8s.api.core.v1.ContainerPort", "protocol")
    assert protocol["default"] == "TCP"


def test_types_of_values() -> None:
    schemas = tree("/openapi/v3/api/v1")["components"]["schemas"]
    assert schemas["io.k8s.apimachinery.pkg.api.resource.Quantity"]["oneOf"] == [
        {"type": "string"},
        {"type": "number"},
    ]
    spec = schemas["io.k8s.api.core.v1.PodSpec"]
    assert spec["required"] == ["containers"]
    assert spec["properties"]["priority"] == {
        **spec["properties"]["priority"],
        "type": "integer",
        "format": "int32",
    }
    limits = property_of(schemas, "io.k8s.api.core.v1.ResourceRequirements", "limits")
    quantity = "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"
    assert limits["additionalProperties"] == {"$ref": quantity}
    assert (
        property_of(schemas, "io.k8s.api.core.v1.Secret", "data")["additionalProperties"]["format"] == "byte"
    )


def test_explain_has_descriptions() -> None:
    schemas = tree("/openapi/v3/apis/resource.k8s.io/v1")["components"]["schemas"]
    for kind in (
        "ResourceSlice",
        "ResourceClaim",
        "DeviceClass",
        "Device",
        "DeviceRequest",
        "ExactDeviceRequest",
    ):
        schema = schemas[f"io.k8s.api.resource.v1.{kind}"]
        assert schema["description"]
        silent = [name for name, field in schema["properties"].items() if "description" not in field]
        assert set(silent) <= {"apiVersion", "kind", "metadata"}
    older = tree("/openapi/v3/apis/resource.k8s.io/v1beta2")["components"]["schemas"]
    assert older["io.k8s.api.resource.v1beta2.Device"]["description"]


def test_every_description_belongs_to_a_field() -> None:
    for name in read_descriptions():
        group, version, kind, *field = name.split(".")
        place = f"{group}.{version}"
        if place == "resource.v1" and kind.startswith("DeviceTaint"):
            place = "resource.v1beta2"
        type = read_type(place, kind)
        assert type is not None, name
        assert not field or field[0] in type.fields, name


# -- version 2


def test_version_2_has_the_same_schemas() -> None:
    document = tree("/openapi/v2")
    definitions = document["definitions"]
    for reference in references(document):
        assert reference.removeprefix("#/definitions/") in definitions
    for path in PATHS:
        for name, schema in tree(f"/openapi/v3/{path}")["components"]["schemas"].items():
            old = definitions[name]
            assert set(old.get("properties", {})) == set(schema.get("properties", {})), name
            assert old.get("required") == schema.get("required")
    patch = document["paths"]["/api/v1/namespaces/{namespace}/pods/{name}"]["patch"]
    assert patch["parameters"][0]["in"] == "body"
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert document["swagger"] == "2.0"


def test_protobuf_is_negotiated() -> None:
    for accept in (PROTOBUF, PROTOBUF.replace("@", ".")):
        answer = ask("/openapi/v2", accept)
        assert answer.content_type == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
        assert isinstance(answer.body, bytes)
        document = read(answer.body)
        assert document[1] == [b"2.0"]
    assert ask("/openapi/v2", f"application/json,{PROTOBUF}").content_type == "application/json"
    assert ask("/openapi/v2").content_type == "application/json"


def read(data: bytes) -> dict[int, list[Any]]:
    fields: dict[int, list[Any]] = {}
    for number, value in wire.read_fields(data):
        fields.setdefault(number, []).append(value)
    return fields


def test_protobuf_equals_json() -> None:
    body = ask("/openapi/v2", PROTOBUF).body
    assert isinstance(body, bytes)
    document = read(body)
    json_document = tree("/openapi/v2")
    definitions = {}
    for entry in read(document[9][0])[1]:
        named = read(entry)
        definitions[named[1][0].decode()] = read(named[2][0])
    assert set(definitions) == set(json_document["definitions"])
    for name, schema in definitions.items():
        wanted = json_document["definitions"][name]
        properties = (
            {read(entry)[1][0].decode() for entry in read(schema[25][0])[1]} if 25 in schema else set()
        )
        assert properties == set(wanted.get("properties", {}))
        assert [text.decode() for text in schema.get(19, [])] == wanted.get("required", [])
        assert {read(entry)[1][0].decode() for entry in schema.get(31, [])} == {
            key for key in wanted if key.startswith("x-")
        }
    paths = {read(entry)[1][0].decode(): read(read(entry)[2][0]) for entry in read(document[8][0])[2]}
    assert set(paths) == set(json_document["paths"])
    patch = read(paths["/api/v1/nodes/{name}"][8][0])
    names = []
    for parameter in patch[8]:
        inner = read(read(parameter)[1][0])
        names.append(read(read(inner[2][0])[3][0])[4][0].decode() if 2 in inner else "body")
    assert names == ["body", "dryRun", "fieldManager", "fieldValidation", "force"]


# -- other documents


@pytest.mark.parametrize("path", ["/openapi", "/openapi/v1", "/openapi/v2/x", "/openapi/v3/apis/nope/v1"])
def test_unknown_documents_are_404(path: str) -> None:
    with pytest.raises(ApiError) as refused:
        ask(path)
    assert refused.value.code == 404


def test_unsupported_media_types_are_refused() -> None:
    for path in ("/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"):
        with pytest.raises(ApiError) as refused:
            ask(path, "text/html")
        assert refused.value.code == 406


def test_names_of_operations() -> None:
    assert title_of("", "v1") == "CoreV1"
    assert title_of("rbac.authorization.k8s.io", "v1") == "RbacAuthorizationV1"
    assert tag_of("rbac.authorization.k8s.io", "v1") == "rbacAuthorization_v1"
    paths = tree("/openapi/v3/api/v1")["paths"]
    ids = {op["operationId"] for item in paths.values() for op in operations_of(item)}
    assert {
        "readCoreV1NamespacedPod",
        "listCoreV1PodForAllNamespaces",
        "deleteCoreV1CollectionNamespacedPod",
        "createCoreV1NamespacedPodBinding",
        "replaceCoreV1NamespaceFinalize",
    } <= ids
