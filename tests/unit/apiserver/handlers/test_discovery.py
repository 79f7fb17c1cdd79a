"""Discovery documents, per group and version and aggregated."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.handlers import discovery
from plimsoll.apiserver.registry.resources import RESOURCES, group_versions
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.errors import ApiError

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
#: What client-go sends: the newest first, the old form last.
CLIENT_GO = ",".join([AGGREGATED.format("v2"), AGGREGATED.format("v2beta1"), "application/json"])


def ask(path: str, accept: str = "", **headers: str) -> ApiResponse:
    request = ApiRequest("GET", path, User("u"), headers={"accept": accept, **headers})
    return discovery.handle_discovery(request, [part for part in path.split("/") if part])


def tree(path: str, accept: str = "") -> Any:
    answer = ask(path, accept)
    assert answer.status == 200
    assert isinstance(answer.body, bytes)
    return json.loads(answer.body)


def test_the_version_is_one_that_clients_can_parse() -> None:
    document = discovery.build_version()
    assert (document["major"], document["minor"]) == ("1", "36")
    assert document["gitVersion"].startswith("v1.36.")


def test_groups_and_versions() -> None:
    assert tree("/api")["versions"] == ["v1"]
    groups = {group["name"]: group for group in tree("/apis")["groups"]}
    assert set(groups) == set(group_versions()) - {""}
    resource = groups["resource.k8s.io"]
    assert resource["preferredVersion"] == {"groupVersion": "resource.k8s.io/v1", "version": "v1"}
    assert [entry["version"] for entry in resource["versions"]] == ["v1", "v1beta2", "v1beta1", "v1alpha3"]
    assert tree("/apis/resource.k8s.io") == {"kind": "APIGroup", "apiVersion": "v1", **resource}


def test_resources_of_a_version() -> None:
    core = {entry["name"]: entry for entry in tree("/api/v1")["resources"]}
    assert core["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert core["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "kind": "Eviction",
        "verbs": ["create"],
        "group": "policy",
        "version": "v1",
    }
    assert "group" not in core["pods/binding"]
    assert core["pods/binding"]["kind"] == "Binding"
    listed = tree("/apis/resource.k8s.io/v1alpha3")
    assert listed["groupVersion"] == "resource.k8s.io/v1alpha3"
    assert [entry["name"] for entry in listed["resources"]] == [
        "devicetaintrules",
        "devicetaintrules/status",
        "resourcepoolstatusrequests",
        "resourcepoolstatusrequests/status",
    ]


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_both_forms_report_the_same(version: str) -> None:
    for root in ("api", "apis"):
        answer = ask(f"/{root}", AGGREGATED.format(version))
        assert answer.content_type == AGGREGATED.format(version)
        assert isinstance(answer.body, bytes)
        document = json.loads(answer.body)
        assert document["apiVersion"] == f"apidiscovery.k8s.io/{version}"
        for group in document["items"]:
            name = group["metadata"].get("name", "")
            for entry in group["versions"]:
                path = f"/apis/{name}/{entry['version']}" if name else "/api/v1"
                assert _flatten(entry["resources"]) == _plain(tree(path)["resources"])
    document = tree("/apis", AGGREGATED.format(version))
    assert [group["metadata"]["name"] for group in document["items"]] == [
        name for name in group_versions() if name
    ]


def _flatten(resources: list[Any]) -> dict[str, Any]:
    flat = {}
    for entry in resources:
        flat[entry["resource"]] = (entry["responseKind"]["kind"], entry["verbs"], entry.get("shortNames"))
        for part in entry.get("subresources", []):
            kind = part["responseKind"]
            flat[f"{entry['resource']}/{part['subresource']}"] = (kind["kind"], part["verbs"], kind["group"])
    return flat


def _plain(resources: list[Any]) -> dict[str, Any]:
    return {
        entry["name"]: (
            entry["kind"],
            entry["verbs"],
            entry.get("group", "") if "/" in entry["name"] else entry.get("shortNames"),
        )
        for entry in resources
    }


def test_the_form_is_reported() -> None:
    assert tree("/apis", CLIENT_GO)["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert tree("/apis", AGGREGATED.format("v2beta1") + ",application/json")["apiVersion"].endswith("v2beta1")
    for accept in ("", "*/*", "application/json", "application/json," + AGGREGATED.format("v2")):
        assert tree("/apis", accept)["kind"] == "APIGroupList"
    assert tree("/apis", AGGREGATED.format("v9") + ",application/json")["kind"] == "APIGroupList"
    assert tree("/apis/apps", CLIENT_GO)["kind"] == "APIGroup"


def test_aggregated_documents_have_entity_tags() -> None:
    first = ask("/apis", CLIENT_GO)
    again = ask("/apis", CLIENT_GO, **{"if-none-match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    assert ask("/apis", CLIENT_GO, **{"if-none-match": '"other"'}).status == 200
    assert first.headers["Vary"] == "Accept"
    assert ask("/api", CLIENT_GO).headers["ETag"] != first.headers["ETag"]


@pytest.mark.parametrize(
    "path", ["/api/v2", "/api/v1/pods", "/apis/nope", "/apis/apps/v2", "/apis/apps/v1/deployments"]
)
def test_unknown_paths_are_404(path: str) -> None:
    with pytest.raises(ApiError) as refused:
        ask(path)
    assert refused.value.code == 404


def test_discovered_paths_exist() -> None:
    listed = discovery.list_paths()
    assert {"/api", "/apis", "/openapi/v3", "/version"} <= set(listed)
    for path in listed:
        if path.startswith(("/api", "/apis")):
            assert ask(path).status == 200
    assert all(f"/apis/{row.group}/{row.versions[0]}" in listed for row in RESOURCES if row.group)
