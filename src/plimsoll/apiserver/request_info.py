"""RequestInfo: the resource, namespace, name, subresource and verb of a request, from its method and path.

Paths outside `/api/v1` and `/apis/GROUP/VERSION` (health, version, discovery, OpenAPI) are left to
`handlers/nonresource.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import SUBRESOURCES, find_resource
from plimsoll.apiserver.status import method_not_supported, path_not_found

_NAMED_VERBS = {"GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "HEAD": "list", "POST": "create", "DELETE": "deletecollection"}
#: Subresource whose requests are passed on, with the rest of the path.
PROXY = "proxy"
_OF_NAMESPACES = {"status", "finalize"}


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Target and verb of a resource request. `name` is empty for a collection."""

    resource: Resource
    version: str
    verb: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    proxy_path: str = ""  #: path at the target of a `proxy`

    @property
    def group(self) -> str:
        return self.resource.group

    @property
    def plural(self) -> str:
        return self.resource.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def split_path(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def parse_request_info(method: str, path: str, *, watches: bool = False) -> RequestInfo | None:
    """Return the RequestInfo of a request, or None if the path names no resource; ApiError 404 or 405."""
    parts = split_path(path)
    if parts[:1] == ["api"] and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if rest[0] == "watch" and len(rest) > 1:  # the deprecated form of ?watch=1
        rest, watches = rest[1:], True
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3 and rest[2] != PROXY:
        raise path_not_found()
    plural, name, subresource = (*rest, "", "")[:3]
    resource, verb = _find_target(
        method, group, version, plural, bool(namespace), bool(name), subresource, watches
    )
    proxy_path = path.partition(f"/{name}/{PROXY}")[2] if subresource == PROXY else ""
    return RequestInfo(resource, version, verb, namespace, name, subresource, proxy_path)


@lru_cache(maxsize=2048)
def _find_target(
    method: str,
    group: str,
    version: str,
    plural: str,
    namespace: bool,
    name: bool,
    subresource: str,
    watches: bool,
) -> tuple[Resource, str]:
    """Return the resource and verb of a request, by whether it has a namespace and a name; ApiError 404 or
    405, which is not kept.
    """
    resource = find_resource(group, version, plural)
    if resource is None or (namespace and not resource.namespaced):
        raise path_not_found()
    if subresource and subresource not in resource.subresources:
        raise path_not_found()
    if name and resource.namespaced and not namespace:
        raise path_not_found()
    return resource, _verb(method, resource, namespace, name, subresource, watches)


def _verb(
    method: str, resource: Resource, namespace: bool, name: bool, subresource: str, watches: bool
) -> str:
    if subresource:
        verb = "create" if method == "POST" else _NAMED_VERBS.get(method, "")
        if verb not in SUBRESOURCES[subresource].verbs:
            verb = ""
    elif name:
        verb = _NAMED_VERBS.get(method, "")
    else:
        verb = _COLLECTION_VERBS.get(method, "")
    if watches and verb in ("list", "get") and not subresource:
        verb = "watch"
    if resource.namespaced and not namespace and verb in ("create", "deletecollection"):
        verb = ""  # these need a namespace
    allowed = verb and (subresource or verb in resource.verbs)
    if not allowed:
        raise method_not_supported(verb or method.lower(), resource.group, resource.plural)
    return verb
