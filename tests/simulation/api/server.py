"""API server: from a request to its reply."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.apiserver.handlers.options import first_values, parse_list_options, parse_write_options
from plimsoll.apiserver.status import (
    bad_request,
    method_not_supported,
    path_not_found,
    success_status,
    to_status,
    unsupported_media_type,
)
from plimsoll.client.transport import Reply, Request
from plimsoll.errors import ApiError
from tests.simulation.api.bodies import Target
from tests.simulation.api.deletions import Deleter
from tests.simulation.api.kinds import KINDS, discovery_document
from tests.simulation.api.patches import APPLY, PATCH_TYPES
from tests.simulation.api.reads import encode_list, list_objects, open_watch, read_object, select
from tests.simulation.api.selectors import parse_selection
from tests.simulation.api.store import Change, Store, StoreEvent, Tree
from tests.simulation.api.watches import Watch
from tests.simulation.api.writes import WriteOptions, Writer

_HEADERS = {"content-type": "application/json"}
_BY_ROOT = {(kind.root, kind.plural): kind for kind in KINDS}
_NAMESPACES = Target(_BY_ROOT["/api/v1", "namespaces"])
_CREATED = codec.encode(success_status(code=201))
_STOCK_GATES = Gates.parse("DRANodeAllocatableResources=false", Gates.default())
_decode = msgspec.json.Decoder().decode


class ApiServer:
    """API server in memory. Without `alpha_fields` it drops those of DRANodeAllocatableResources.

    `now` returns seconds since 1970; `new_uid` also gives generated names their suffix.
    """

    def __init__(
        self, *, now: Callable[[], float], new_uid: Callable[[], str], alpha_fields: bool = True
    ) -> None:
        #: Called after every write that changed an object.
        self.on_write: Callable[[Change], None] = lambda change: None
        self._gates = Gates.default() if alpha_fields else _STOCK_GATES
        self._now = now
        self._store = Store(self._publish)
        self._writer = Writer(self._store, now, new_uid, self._gates)
        self._deleter = Deleter(self._store, now)
        self._watches: dict[str, list[Watch]] = {}
        self._origin = ("", "")  #: user and request that is being handled
        for name in ("default", "kube-system", "kube-node-lease", "kube-public"):
            self._writer.create(_NAMESPACES, {"metadata": {"name": name}}, WriteOptions())

    def handle(self, request: Request, user: str) -> Reply:
        """Handle any request but a watch; errors are Status replies."""
        self._origin = (user, f"{request.method} {request.path}")
        try:
            target = parse_target(request.path)
            if target is None:
                return self._handle_other(request)
            status, body = self._dispatch(target, request, first_values(request.query))
        except ApiError as error:
            return _refuse(error)
        return Reply(status, _HEADERS, body)

    def open_watch(self, request: Request, user: str) -> Watch | Reply:
        """Start a watch; a refused one is a reply."""
        try:
            target = parse_target(request.path)
            if target is None or target.subresource:
                raise path_not_found()
            query = first_values(request.query)
            watch = open_watch(self._store, target.kind, target.namespace, target.name, query, self._forget)
        except ApiError as error:
            return _refuse(error)
        if not watch.ended:
            self._watches.setdefault(target.kind.resource.key, []).append(watch)
        return watch

    def compact(self, keep: int) -> None:
        """Forget the history but the last `keep` events."""
        self._store.compact(keep)

    def send_bookmarks(self) -> None:
        """Send the current revision to every watch that allows bookmarks."""
        for watches in self._watches.values():
            for watch in list(watches):
                if watch.bookmarks:
                    watch.send_bookmark(self._store.revision)

    def list_trees(self, plural: str) -> list[Tree]:
        """Return the stored trees of a kind, which must not be modified."""
        kind = next(kind for kind in KINDS if kind.plural == plural)
        return [stored.tree for stored in self._store.objects(kind)]

    def _publish(self, event: StoreEvent) -> None:
        for watch in tuple(self._watches.get(event.kind.resource.key, ())):
            watch.send_event(event)
        old = event.old.tree if event.old is not None else None
        new = event.new.tree if event.type != "DELETED" else None
        self.on_write(Change(event.revision, event.kind.plural, event.type, old, new, *self._origin))

    def _forget(self, watch: Watch) -> None:
        watches = self._watches.get(watch.kind.resource.key, [])
        if watch in watches:
            watches.remove(watch)

    # -- requests for objects

    def _dispatch(self, target: Target, request: Request, query: Mapping[str, str]) -> tuple[int, bytes]:
        method, kind = request.method, target.kind
        if method == "GET":
            if target.name:
                return 200, read_object(self._store, kind, target.namespace, target.name, query).raw
            return 200, list_objects(self._store, kind, target.namespace, query, int(self._now()))
        if target.subresource in ("binding", "eviction"):
            if method != "POST":
                raise method_not_supported(method.lower(), kind.group, kind.plural)
            return self._act(target, request, query)
        if method == "POST" and not target.name and (target.namespace or not kind.namespaced):
            return 201, self._writer.create(target, _read(request), _write_options(request, query))
        if method == "PUT" and target.name:
            raw, created = self._writer.update(target, _read(request), _write_options(request, query))
            return 201 if created else 200, raw
        if method == "PATCH" and target.name and target.subresource != "finalize":
            return self._patch(target, request, query)
        if method == "DELETE" and not target.subresource:
            return self._delete(target, request, query)
        raise method_not_supported(method.lower(), kind.group, kind.plural)

    def _patch(self, target: Target, request: Request, query: Mapping[str, str]) -> tuple[int, bytes]:
        type = PATCH_TYPES.get(request.headers.get("Content-Type", "").partition(";")[0])
        if type is None:
            raise unsupported_media_type(PATCH_TYPES)
        options = _write_options(request, query, applies=type == APPLY)
        raw, created = self._writer.patch(target, type, _read(request), options, request.body or b"")
        return 201 if created else 200, raw

    def _act(self, target: Target, request: Request, query: Mapping[str, str]) -> tuple[int, bytes]:
        body, options = _read(request), _write_options(request, query)
        if not isinstance(body, dict):
            raise bad_request("the body must be an object")
        if target.subresource == "binding":
            self._writer.bind(target, body, options)
        else:
            self._deleter.evict(target, body, dry_run=options.dry_run)
        return 201, _CREATED

    def _delete(self, target: Target, request: Request, query: Mapping[str, str]) -> tuple[int, bytes]:
        body = _read(request) if request.body else None
        if target.name:
            return 200, self._deleter.delete(target, query, body)
        kind, options = target.kind, parse_list_options(query)
        if (kind.namespaced and not target.namespace) or "deletecollection" not in kind.resource.verbs:
            raise method_not_supported("deletecollection", kind.group, kind.plural)
        selection = parse_selection(
            kind.resource, target.namespace, options.label_selector, options.field_selector
        )
        listed = select(self._store.objects(kind), selection)
        revision = str(self._store.revision)
        self._deleter.delete_all(kind, listed, query, body)
        return 200, encode_list(kind, {"resourceVersion": revision}, listed)

    # -- other paths

    def _handle_other(self, request: Request) -> Reply:
        if request.method != "GET":
            raise path_not_found()
        if request.path == "/metrics":
            return Reply(200, {"content-type": "text/plain"}, self._metrics())
        aggregated = "as=APIGroupDiscoveryList" in request.headers.get("Accept", "")
        document = discovery_document(request.path.rstrip("/"), aggregated=aggregated)
        if document is None:
            raise path_not_found()
        return Reply(200, _HEADERS, document)

    def _metrics(self) -> bytes:
        """Return the feature gates as metrics, as a probe reads them."""
        line = 'kubernetes_feature_enabled{{name="{}",stage=""}} {:d}\n'
        names = ("DRANodeAllocatableResources", "DRAConsumableCapacity")
        return "".join(line.format(name, self._gates.enabled(name)) for name in names).encode()


@lru_cache(maxsize=16384)
def parse_target(path: str) -> Target | None:
    """Return what a path names; None if it is outside the groups and versions, ApiError 404 if unknown."""
    parts = path.strip("/").split("/")
    size = 2 if parts[0] == "api" else 3
    if parts[0] not in ("api", "apis") or len(parts) <= size:
        return None
    root, rest = "/" + "/".join(parts[:size]), parts[size:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    kind = _BY_ROOT.get((root, rest[0]))
    name, subresource = (*rest[1:], "", "")[:2]
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        raise path_not_found()
    if (name and kind.namespaced and not namespace) or (subresource and subresource not in kind.subresources):
        raise path_not_found()
    return Target(kind, namespace, name, subresource)


def _read(request: Request) -> Any:
    raw = request.body or b""
    try:
        body = _decode(raw)
    except msgspec.DecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from None
    return _without_nulls(body) if request.method != "PATCH" and b"null" in raw else body


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


def _write_options(request: Request, query: Mapping[str, str], *, applies: bool = False) -> WriteOptions:
    if not query:
        return WriteOptions(manager=request.headers.get("User-Agent", "unknown"))
    agent = request.headers.get("User-Agent", "")
    options = parse_write_options(query, user_agent=agent, applies=applies)
    return WriteOptions(options.dry_run, options.field_manager, bool(options.force))


def _refuse(error: ApiError) -> Reply:
    headers = {"content-type": "application/json"}
    headers.update((name.lower(), value) for name, value in error.headers.items())
    return Reply(error.code, headers, codec.encode(to_status(error)))
