"""Get, list and the start of watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from plimsoll.api import codec
from plimsoll.apiserver.handlers.continue_token import CURRENT_STATE, ContinueToken, decode_continue_token
from plimsoll.apiserver.handlers.options import ListOptions, parse_list_options
from plimsoll.apiserver.status import continue_expired, not_found, resource_version_too_large
from plimsoll.errors import ApiError
from tests.simulation.api.kinds import Kind
from tests.simulation.api.selectors import Selection, parse_selection
from tests.simulation.api.store import Store, StoredObject, Tree
from tests.simulation.api.watches import Watch


def get_object(store: Store, kind: Kind, namespace: str, name: str) -> StoredObject:
    """Return a stored object; ApiError 404."""
    stored = store.get(kind, (namespace, name))
    if stored is None:
        raise not_found(kind.group, kind.plural, name)
    return stored


def read_object(
    store: Store, kind: Kind, namespace: str, name: str, query: Mapping[str, str]
) -> StoredObject:
    """Return a stored object that is not older than the client asks for; ApiError."""
    if query:
        _require_reached(store, parse_list_options(query))
    return get_object(store, kind, namespace, name)


def _require_reached(store: Store, options: ListOptions) -> None:
    if (options.resource_version or 0) > store.revision:
        raise resource_version_too_large(options.resource_version or 0, store.revision)


def select(store: Store, selection: Selection, kind: Kind) -> list[StoredObject]:
    """Return the current objects of a selection."""
    return [
        stored
        for stored in store.objects(kind)
        if selection.matches(stored.tree["metadata"].get("namespace", ""), stored.tree)
    ]


def list_objects(store: Store, kind: Kind, namespace: str, query: Mapping[str, str]) -> bytes:
    """Return a page of a list as JSON; all pages show the same revision, or ApiError 410."""
    options = parse_list_options(query)
    selection = parse_selection(kind.resource, namespace, options.label_selector, options.field_selector)
    revision, after = _start(store, options)
    found: list[StoredObject] = []
    metadata: Tree = {"resourceVersion": str(revision)}
    limit = options.limit
    counts_rest = selection.labels is None and not selection.fields
    rest = 0
    for stored in store.objects_at(kind, revision):
        meta = stored.tree["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if (after is not None and key <= after) or not selection.matches(key[0], stored.tree):
            continue
        if limit and len(found) == limit:
            rest += 1
            if not counts_rest:
                break
            continue
        found.append(stored)
    if rest:
        last = found[-1].tree["metadata"]
        token = ContinueToken(revision, last.get("namespace", ""), last["name"], 0)
        metadata["continue"] = token.encode()
        if counts_rest:
            metadata["remainingItemCount"] = rest
    return encode_list(kind, metadata, found)


def encode_list(kind: Kind, metadata: Tree, items: list[StoredObject]) -> bytes:
    """Return a list as JSON; its items lack kind and apiVersion, as those of kube-apiserver."""
    start = len(kind.head)
    joined = b",".join([b"{" + stored.raw[start:] for stored in items])
    return kind.list_head + codec.encode(metadata) + b',"items":[' + joined + b"]}"


def _start(store: Store, options: ListOptions) -> tuple[int, tuple[str, str] | None]:
    """Return the revision that a list shows and the key after which it starts."""
    if options.continue_token:
        token = decode_continue_token(options.continue_token)
        if token.revision != CURRENT_STATE and token.revision < store.floor:
            raise continue_expired(token._replace(revision=CURRENT_STATE).encode())
        revision = store.revision if token.revision == CURRENT_STATE else token.revision
        return revision, (token.namespace, token.name)
    _require_reached(store, options)
    wanted, match = options.resource_version, options.resource_version_match
    if wanted and (match == "Exact" or (options.limit and not match)):
        if wanted < store.floor:
            raise ApiError(410, "Expired", f"The provided resource version {wanted} is too old")
        return wanted, None
    return store.revision, None


def open_watch(
    store: Store,
    kind: Kind,
    namespace: str,
    name: str,
    query: Mapping[str, str],
    on_close: Callable[[Watch], None],
) -> Watch:
    """Return a new watch with its first frames; ApiError if it is refused."""
    options = parse_list_options({**query, "watch": "true"})
    fields = f"metadata.name={name}" if name else options.field_selector
    selection = parse_selection(kind.resource, namespace, options.label_selector, fields)
    _require_reached(store, options)
    watch = Watch(kind, selection, bookmarks=options.allow_bookmarks, on_close=on_close)
    version, initial = options.resource_version, options.send_initial_events
    if initial or (initial is None and not version):
        for stored in select(store, selection, kind):
            watch.send(b'{"type":"ADDED","object":%b}\n' % stored.raw)
        if initial:
            watch.send_bookmark(store.revision, ends_initial_events=True)
    elif version:
        try:
            for event in store.events_since(kind, version):
                watch.send_event(event)
        except ApiError as error:
            watch.end(error)
    return watch
