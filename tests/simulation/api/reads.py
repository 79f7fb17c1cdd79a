"""Get, list and the start of watches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence

from plimsoll.api import codec
from plimsoll.apiserver.handlers.continue_token import CURRENT_STATE, ContinueToken, decode_continue_token
from plimsoll.apiserver.handlers.options import ListOptions, parse_list_options
from plimsoll.apiserver.status import (
    continue_expired,
    not_found,
    resource_expired,
    resource_version_too_large,
)
from plimsoll.errors import ApiError
from tests.simulation.api.kinds import Kind
from tests.simulation.api.selectors import Selection, parse_selection
from tests.simulation.api.store import Key, Store, StoredObject, Tree
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


def select(objects: Sequence[StoredObject], selection: Selection) -> Sequence[StoredObject]:
    """Return the objects of a selection, in their order."""
    if selection.namespace:  # one range of the keys
        ends = (selection.namespace, ""), (selection.namespace + "\0", "")
        start, end = (bisect_left(objects, each, key=lambda stored: stored.key) for each in ends)
        objects = objects[start:end]
    if not selection.has_conditions:
        return objects
    return [stored for stored in objects if selection.matches(stored.key[0], stored.tree)]


def list_objects(store: Store, kind: Kind, namespace: str, query: Mapping[str, str], now: int) -> bytes:
    """Return a page of a list as JSON; all pages show the same revision, or ApiError 410.

    `now` is the time in the token of the next page; tokens expire only with the history.
    """
    options = parse_list_options(query)
    selection = parse_selection(kind.resource, namespace, options.label_selector, options.field_selector)
    revision, after, started = _start(store, options, now)
    objects = store.objects_at(kind, revision)
    if after is not None:
        objects = objects[bisect_right(objects, after, key=lambda stored: stored.key) :]
    found = select(objects, selection)
    metadata: Tree = {"resourceVersion": str(revision)}
    if options.limit and len(found) > options.limit:
        rest, found = len(found) - options.limit, found[: options.limit]
        metadata["continue"] = ContinueToken(revision, *found[-1].key, started).encode()
        if not selection.has_conditions:
            metadata["remainingItemCount"] = rest
    return encode_list(kind, metadata, found)


def encode_list(kind: Kind, metadata: Tree, items: Sequence[StoredObject]) -> bytes:
    """Return a list as JSON; its items lack kind and apiVersion, as those of kube-apiserver."""
    start = len(kind.head)
    joined = b",".join([b"{" + stored.raw[start:] for stored in items])
    return kind.list_head + codec.encode(metadata) + b',"items":[' + joined + b"]}"


def _start(store: Store, options: ListOptions, now: int) -> tuple[int, Key | None, int]:
    """Return the revision that a list shows, the key it starts after, and the time of its first page."""
    if options.continue_token:
        token = decode_continue_token(options.continue_token)
        is_current = token.revision == CURRENT_STATE
        if not is_current and token.revision < store.floor:
            raise continue_expired(token._replace(revision=CURRENT_STATE).encode())
        revision = store.revision if is_current else token.revision
        return revision, (token.namespace, token.name), now if is_current else token.started
    _require_reached(store, options)
    wanted, match = options.resource_version, options.resource_version_match
    if wanted and (match == "Exact" or (options.limit and not match)):
        if wanted < store.floor:
            raise resource_expired(f"The provided resource version {wanted} is too old")
        return wanted, None, now
    return store.revision, None, now


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
        for stored in select(store.objects(kind), selection):
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
