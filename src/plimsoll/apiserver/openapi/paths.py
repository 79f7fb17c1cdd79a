"""OpenAPI operations of every resource.

Lists the methods of each path, their query parameters and the kinds they take and return, in terms of version
3; version 2 is derived from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from plimsoll.apiserver.openapi.schemas import tag_of, title_of
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES, SUBRESOURCES
from plimsoll.apiserver.registry.schema import SchemaType, schema_for

_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_DELETE = ("dryRun", "gracePeriodSeconds", "orphanDependents", "propagationPolicy")
_SELECT = (
    "continue",
    "fieldSelector",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
)
_LIST = ("allowWatchBookmarks", *_SELECT, "watch")
LOG_PARAMETERS = (
    "container",
    "follow",
    "limitBytes",
    "previous",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "timestamps",
)
CONNECT_PARAMETERS = {
    "attach": ("container", "stderr", "stdin", "stdout", "tty"),
    "exec": ("command", "container", "stderr", "stdin", "stdout", "tty"),
    "portforward": ("ports",),
}
PARAMETERS: dict[str, tuple[str, str]] = {
    "allowWatchBookmarks": ("boolean", "Send bookmarks while watching."),
    "command": ("string", "Command to execute, one parameter for each argument."),
    "container": ("string", "Container, if the pod has several."),
    "path": ("string", "Path at the target of the request."),
    "continue": ("string", "Continue a list from the response that returned this token."),
    "dryRun": ("string", "All: process the request as usual, but persist nothing."),
    "fieldManager": ("string", "Name of the manager that makes the change, for managed fields."),
    "fieldSelector": ("string", "Restrict the list to objects whose fields match."),
    "fieldValidation": ("string", "Handling of unknown and duplicate fields: Ignore, Warn or Strict."),
    "follow": ("boolean", "Continue to send the log until the container exits."),
    "force": ("boolean", "Take ownership of fields of other managers when applying."),
    "gracePeriodSeconds": ("integer", "Seconds before the object is deleted."),
    "labelSelector": ("string", "Restrict the list to objects whose labels match."),
    "limit": ("integer", "Maximum number of objects in one response."),
    "limitBytes": ("integer", "Maximum number of bytes of the log."),
    "orphanDependents": ("boolean", "Deprecated: use propagationPolicy."),
    "ports": ("integer", "Ports to forward, for WebSockets."),
    "pretty": ("string", "Format the response with line breaks."),
    "previous": ("boolean", "Log of the previous container that has terminated."),
    "propagationPolicy": ("string", "Garbage collection of dependents: Orphan, Background or Foreground."),
    "resourceVersion": ("string", "Resource version to list or watch from."),
    "resourceVersionMatch": ("string", "Interpretation of resourceVersion: NotOlderThan or Exact."),
    "sendInitialEvents": ("boolean", "Start a watch with the existing objects."),
    "sinceSeconds": ("integer", "Log lines of the last seconds."),
    "sinceTime": ("string", "Log lines since this time (RFC 3339)."),
    "stderr": ("boolean", "Send error output."),
    "stdin": ("boolean", "Receive input."),
    "stdout": ("boolean", "Send output."),
    "tailLines": ("integer", "Number of lines from the end of the log."),
    "timeoutSeconds": ("integer", "Seconds until the request ends."),
    "timestamps": ("boolean", "Add a timestamp to every line of the log."),
    "tty": ("boolean", "Allocate a terminal."),
    "watch": ("boolean", "Watch changes instead of listing objects."),
}
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


class Operation(NamedTuple):
    """One method of one path."""

    path: str
    method: str
    id: str
    action: str  #: x-kubernetes-action
    parameters: tuple[str, ...]
    kind: tuple[str, str, str]  #: group, version and kind of the operation
    body: SchemaType | None  #: type of the request body
    response: SchemaType | None  #: type of the response
    codes: tuple[int, ...]
    tag: str = ""


def operations(group: str, version: str) -> Iterator[Operation]:
    """Return every operation of a group and version, by path."""
    for row in sorted(RESOURCES, key=lambda row: row.plural):
        if row.group == group and version in row.versions:
            for operation in _operations_of(row, version):
                yield operation._replace(tag=tag_of(group, version))


def _operations_of(row: Resource, version: str) -> Iterator[Operation]:
    base = f"/apis/{row.group}/{version}" if row.group else f"/api/{version}"
    title = title_of(row.group, version)
    scope = "Namespaced" if row.namespaced else ""
    scope_path = "/namespaces/{namespace}" if row.namespaced else ""
    kind = (row.group, version, row.kind)
    own = schema_for(*kind)
    listed = schema_for(row.group, version, row.list_kind)
    options = schema_for("", "v1", "DeleteOptions")
    status = schema_for("", "v1", "Status")
    every = f"{base}/{row.plural}"
    collection = f"{base}{scope_path}/{row.plural}"
    named = f"{collection}/{{name}}"

    def make(path: str, method: str, id: str, action: str, *rest: Any) -> Operation:
        return Operation(path, method, f"{id}{row.kind}", action, rest[0], kind, *rest[1:])

    if row.namespaced and "list" in row.verbs:
        yield Operation(
            every,
            "get",
            f"list{title}{row.kind}ForAllNamespaces",
            "list",
            _LIST,
            kind,
            None,
            listed,
            (200,),
        )
    if "list" in row.verbs:
        yield make(collection, "get", f"list{title}{scope}", "list", _LIST, None, listed, (200,))
    if "create" in row.verbs:
        yield make(collection, "post", f"create{title}{scope}", "post", _WRITE, own, own, (200, 201, 202))
    if "deletecollection" in row.verbs:
        parameters = tuple(sorted({*_DELETE, *_SELECT}))
        id = f"delete{title}Collection{scope}"
        yield make(collection, "delete", id, "deletecollection", parameters, options, status, (200,))
    if "get" in row.verbs:
        yield make(named, "get", f"read{title}{scope}", "get", (), None, own, (200,))
    if "update" in row.verbs:
        yield make(named, "put", f"replace{title}{scope}", "put", _WRITE, own, own, (200, 201))
        yield make(named, "patch", f"patch{title}{scope}", "patch", (*_WRITE, "force"), None, own, (200, 201))
        yield make(named, "delete", f"delete{title}{scope}", "delete", _DELETE, options, status, (200, 202))
    for name in row.subresources:
        yield from _operations_of_part(row, version, name, named, f"{title}{scope}{row.kind}")


def _operations_of_part(
    row: Resource, version: str, name: str, named: str, title: str
) -> Iterator[Operation]:
    part = SUBRESOURCES[name]
    kind = (row.group, version, row.kind)
    if name == "log":
        id = f"read{title}Log"
        yield Operation(f"{named}/log", "get", id, "get", LOG_PARAMETERS, kind, None, None, (200,))
        return
    if part.is_proxy:
        scope = f"{'Namespaced' if row.namespaced else ''}{row.kind}"
        kind = ("", part.version, part.kind_for(row.kind))
        for method in ("delete", "get", "head", "patch", "post", "put"):
            id = f"connect{title.removesuffix(scope)}{method.capitalize()}{scope}Proxy"
            yield Operation(f"{named}/{name}", method, id, "connect", ("path",), kind, None, None, (200,))
        return
    if part.is_connect:
        prefix, _, rest = title.partition("Namespaced")
        for method in ("get", "post"):
            id = f"connect{prefix}{method.capitalize()}Namespaced{rest}{name.capitalize()}"
            connected = ("", part.version, part.kind)
            parameters = CONNECT_PARAMETERS[name]
            yield Operation(
                f"{named}/{name}", method, id, "connect", parameters, connected, None, None, (200,)
            )
        return
    if part.group is not None:
        kind = (part.group, part.version, part.kind)
    own = schema_for(*kind)
    suffix = {"ephemeralcontainers": "Ephemeralcontainers"}.get(name, name.capitalize())
    path = f"{named}/{name}"
    if "get" in part.verbs:
        yield Operation(path, "get", f"read{title}{suffix}", "get", (), kind, None, own, (200,))
    if "update" in part.verbs:
        yield Operation(path, "put", f"replace{title}{suffix}", "put", _WRITE, kind, own, own, (200, 201))
    if "patch" in part.verbs:
        parameters = (*_WRITE, "force")
        yield Operation(
            path, "patch", f"patch{title}{suffix}", "patch", parameters, kind, None, own, (200, 201)
        )
    if "create" in part.verbs:
        id = f"create{title}{suffix}"
        yield Operation(path, "post", id, "post", _WRITE, kind, own, own, (200, 201, 202))
