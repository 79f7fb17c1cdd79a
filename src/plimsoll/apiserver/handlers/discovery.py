"""Discovery: `/api`, `/apis` and the paths below them, and `/version`.

Served in the unaggregated form (one document per group and version) and in the aggregated one
(`apidiscovery.k8s.io`, two documents for everything). All documents are derived from the table of resources
and encoded once.
"""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cache
from typing import Any

from plimsoll.api import codec
from plimsoll.api.kinds import join_api_version
from plimsoll.apiserver.handlers import health
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES, SUBRESOURCES, group_versions
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.status import path_not_found

Tree = dict[str, Any]

#: Version of the Kubernetes API that is served.
MAJOR, MINOR, PATCH = "1", "36", "4"
_AGGREGATED = ("v2", "v2beta1")
_LISTED = "APIGroupDiscoveryList"


def build_version() -> Tree:
    """Return the body of `/version`: the Kubernetes version that clients may rely on."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.{PATCH}+plimsoll",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": sys.implementation.name,
        "platform": f"{sys.platform}/{platform.machine()}",
    }


@cache
def list_paths() -> tuple[str, ...]:
    """Return the paths that `/` lists."""
    found = ["/api", "/api/v1", "/apis"]
    for group, versions in group_versions().items():
        if group:
            found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in versions)]
    found += ["/metrics", "/openapi/v2", "/openapi/v3", "/version"]
    for endpoint in health.ENDPOINTS:
        found += [f"/{endpoint}", *(f"/{endpoint}/{name}" for name in health.check_names(endpoint))]
    return tuple(sorted(found))


def handle_discovery(request: ApiRequest, parts: list[str]) -> ApiResponse:
    """Handle a discovery path, given by its parts; ApiError 404 if there is none."""
    if len(parts) == 1:
        wanted = _aggregated_version(request.header("accept"))
        if wanted:
            return _respond_aggregated(request, parts[0], wanted)
    return ApiResponse(200, _document(*parts))


def _aggregated_version(header: str) -> str:
    """Return the version of aggregated discovery that an Accept header asks for first, or ""."""
    for clause in header.split(",")[:64]:
        media, *parameters = (part.strip() for part in clause.split(";"))
        named = dict(parameter.partition("=")[::2] for parameter in parameters)
        if media not in ("application/json", "*/*", "application/*"):
            continue
        if "as" not in named:
            return ""
        if (
            named.get("g") == "apidiscovery.k8s.io"
            and named["as"] == _LISTED
            and named.get("v") in _AGGREGATED
        ):
            return named["v"]
    return ""


def _respond_aggregated(request: ApiRequest, root: str, version: str) -> ApiResponse:
    body, tag = build_aggregated_document(root, version)
    headers = {"ETag": tag, "Vary": "Accept", "Cache-Control": "public"}
    media = f"application/json;g=apidiscovery.k8s.io;v={version};as={_LISTED}"
    if tag in (part.strip() for part in request.header("if-none-match").split(",")):
        return ApiResponse(304, b"", media, headers)
    return ApiResponse(200, body, media, headers)


# -- one document per group and version


@cache
def _document(root: str, *rest: str) -> bytes:
    groups = group_versions()
    if root == "api":
        if not rest:
            return codec.encode(_core_versions())
        if rest == ("v1",):
            return codec.encode(build_resource_list("", "v1"))
    elif not rest:
        return codec.encode(_group_list())
    elif rest[0] in groups and rest[0]:
        group, *more = rest
        if not more:
            return codec.encode({"kind": "APIGroup", "apiVersion": "v1", **_group(group)})
        if len(more) == 1 and more[0] in groups[group]:
            return codec.encode(build_resource_list(group, more[0]))
    raise path_not_found()


def _core_versions() -> Tree:
    return {"kind": "APIVersions", "versions": list(group_versions()[""]), "serverAddressByClientCIDRs": []}


def _group_list() -> Tree:
    groups = [_group(name) for name in group_versions() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(name: str) -> Tree:
    versions = [
        {"groupVersion": join_api_version(name, version), "version": version}
        for version in group_versions()[name]
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def build_resource_list(group: str, version: str) -> Tree:
    """Return the APIResourceList of a group and version."""
    resources: list[Tree] = []
    for row in _rows(group, version):
        entry: Tree = {
            "name": row.plural,
            "singularName": row.singular,
            "namespaced": row.namespaced,
            "kind": row.kind,
            "verbs": list(row.verbs),
        }
        if row.short_names:
            entry["shortNames"] = list(row.short_names)
        if row.categories:
            entry["categories"] = list(row.categories)
        resources.append(entry)
        resources += [_subresource(row, name) for name in row.subresources]
    api_version = join_api_version(group, version)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version,
        "resources": resources,
    }


def _rows(group: str, version: str) -> list[Resource]:
    rows = [row for row in RESOURCES if row.group == group and version in row.versions]
    return sorted(rows, key=lambda row: row.plural)


def _subresource(row: Resource, name: str) -> Tree:
    subresource = SUBRESOURCES[name]
    entry: Tree = {
        "name": f"{row.plural}/{name}",
        "singularName": "",
        "namespaced": row.namespaced,
        "kind": subresource.kind_for(row.kind),
        "verbs": list(subresource.verbs),
    }
    if subresource.group and subresource.group != row.group:
        entry |= {"group": subresource.group, "version": subresource.version}
    return entry


# -- everything at once


@cache
def build_aggregated_document(root: str, version: str) -> tuple[bytes, str]:
    """Return the aggregated document of `/api` or `/apis`, and its ETag."""
    groups = [name for name in group_versions() if bool(name) == (root == "apis")]
    tree = {
        "kind": _LISTED,
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [_discovery_of(name) for name in groups],
    }
    body = codec.encode(tree)
    return body, f'"{hashlib.sha256(body).hexdigest().upper()}"'


def _discovery_of(group: str) -> Tree:
    versions = [
        {
            "version": version,
            "resources": [_resource_discovery(row) for row in _rows(group, version)],
            "freshness": "Current",
        }
        for version in group_versions()[group]
    ]
    return {"metadata": {"name": group} if group else {}, "versions": versions}


def _resource_discovery(row: Resource) -> Tree:
    entry: Tree = {
        "resource": row.plural,
        "responseKind": {"group": "", "version": "", "kind": row.kind},
        "scope": "Namespaced" if row.namespaced else "Cluster",
        "singularResource": row.singular,
        "verbs": list(row.verbs),
    }
    if row.short_names:
        entry["shortNames"] = list(row.short_names)
    if row.categories:
        entry["categories"] = list(row.categories)
    if row.subresources:
        entry["subresources"] = [_subresource_discovery(row, name) for name in row.subresources]
    return entry


def _subresource_discovery(row: Resource, name: str) -> Tree:
    subresource = SUBRESOURCES[name]
    other = bool(subresource.group) and subresource.group != row.group
    kind = {
        "group": subresource.group if other else "",
        "version": subresource.version if other else "",
        "kind": subresource.kind_for(row.kind),
    }
    return {"subresource": name, "responseKind": kind, "verbs": list(subresource.verbs)}
