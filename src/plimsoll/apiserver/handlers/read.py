"""Get and list handler: resourceVersion semantics, paging and selection.

Nothing is returned before it is durable. All pages of a list show the same revision, or the client gets 410
when that revision is no longer available. A long scan yields to other requests.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver.handlers.options import ListOptions
from plimsoll.apiserver.handlers.selectable_fields import ObjectSelection, SelectableFieldCache
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.selectors import parse_field_selector, parse_label_selector
from plimsoll.apiserver.status import bad_request, not_found, resource_expired, resource_version_too_large
from plimsoll.apiserver.storage import ObjectKey, Store, StoredObject
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.errors import ApiError, InputError

_SCAN_LIMIT = 1000  #: objects taken from the store at once


class ListResult(NamedTuple):
    """Page of a list: objects, revision, and the token of the next page."""

    items: list[StoredObject]
    revision: int
    token: str = ""
    remaining: int | None = None


def storage_key(info: RequestInfo, name: str | None = None) -> ObjectKey:
    return ObjectKey(info.resource.storage_key, info.namespace, info.name if name is None else name)


def get_stored(store: Store, info: RequestInfo) -> StoredObject:
    """Return the stored object that a request names; ApiError 404."""
    stored = store.get(storage_key(info))
    if stored is None:
        raise not_found(info.group, info.plural, info.name)
    return stored


def parse_selection(info: RequestInfo, options: ListOptions) -> ObjectSelection:
    """Return the selection of a list or watch; ApiError 400 for an invalid selector."""
    fields = parse_field_selector(options.field_selector, info.resource)
    if info.name:  # GET of one object with ?watch=1
        fields = parse_field_selector(f"metadata.name={info.name}", info.resource)
    return ObjectSelection(
        info.resource, info.namespace or None, parse_label_selector(options.label_selector), fields
    )


class ReadHandler:
    """Handler of get and list."""

    def __init__(self, store: Store, field_cache: SelectableFieldCache) -> None:
        self._store = store
        self._field_cache = field_cache

    async def get(self, info: RequestInfo, options: ListOptions) -> StoredObject:
        if options.resource_version and options.resource_version > self._store.revision:
            raise resource_version_too_large(options.resource_version, self._store.revision)
        stored = get_stored(self._store, info)
        await self._store.wait_durable(stored.revision)
        return stored

    async def list(self, info: RequestInfo, options: ListOptions, time_slice: TimeSlice) -> ListResult:
        """Return a page of objects; a long scan yields to other requests."""
        selection = parse_selection(info, options)
        after, at = self._start(options)
        name = selection.fields.exact("metadata.name")
        if at is None and name and selection.namespace is not None:
            listing = self._list_one(selection, name)
        else:
            listing = await self._scan(selection, after, at, options.limit, time_slice)
        time_slice.release()
        await self._store.wait_durable(listing.revision)
        return listing

    def _start(self, options: ListOptions) -> tuple[tuple[str, str] | None, int | None]:
        """Return the position after which a list starts, and the revision it must show (None: current)."""
        head = self._store.revision
        if options.continue_token:
            at, after = _decode_continue_token(options.continue_token)
            if at < self._store.floor:
                raise resource_expired(
                    "The provided continue parameter is too old to display a consistent list result."
                )
            return after, at
        if not options.resource_version:
            return None, None
        if options.resource_version > head:
            raise resource_version_too_large(options.resource_version, head)
        exact = options.resource_version_match == "Exact" or (
            options.limit and not options.resource_version_match
        )
        return None, (options.resource_version if exact else None)

    def _list_one(self, selection: ObjectSelection, name: str) -> ListResult:
        key = ObjectKey(selection.resource.storage_key, selection.namespace or "", name)
        stored = self._store.get(key)
        found = stored is not None and selection.includes(
            key, self._field_cache.of(selection.resource, stored)
        )
        return ListResult([stored] if stored is not None and found else [], self._store.revision)

    async def _scan(
        self,
        selection: ObjectSelection,
        after: tuple[str, str] | None,
        at: int | None,
        limit: int,
        time_slice: TimeSlice,
    ) -> ListResult:
        resource = selection.resource
        if selection.matches_all:
            page = self._store.list(
                resource.storage_key, selection.namespace, after=after, limit=limit or None, at=at
            )
            token = (
                _encode_continue_token(page.revision, page.items[-1].key)
                if page.remaining and page.items
                else ""
            )
            return ListResult(page.items, page.revision, token, page.remaining or None)
        found: list[StoredObject] = []
        while True:
            page = self._store.list(
                resource.storage_key, selection.namespace, after=after, limit=_SCAN_LIMIT, at=at
            )
            at = page.revision
            for stored in page.items:
                if selection.includes(stored.key, self._field_cache.of(resource, stored)):
                    if limit and len(found) == limit:
                        return ListResult(found, at, _encode_continue_token(at, found[-1].key))
                    found.append(stored)
                if time_slice.is_expired:
                    await time_slice.pause()
            if not page.remaining:
                return ListResult(found, at)
            after = (page.items[-1].key.namespace, page.items[-1].key.name)


def _encode_continue_token(revision: int, last: ObjectKey) -> str:
    text = codec.encode({"rv": revision, "ns": last.namespace, "name": last.name})
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def _decode_continue_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        padded = token + "=" * (-len(token) % 4)
        tree: Any = codec.decode_tree(base64.urlsafe_b64decode(padded.encode("ascii")))
        revision, namespace, name = tree["rv"], tree["ns"], tree["name"]
    except (InputError, ValueError, binascii.Error, KeyError, TypeError):
        raise _invalid_continue_token() from None
    if not isinstance(revision, int) or not isinstance(namespace, str) or not isinstance(name, str):
        raise _invalid_continue_token()
    return revision, (namespace, name)


def _invalid_continue_token() -> ApiError:
    return bad_request("continue key is not valid: pass the token of the previous page unchanged")
