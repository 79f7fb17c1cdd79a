"""Get and list handler: resourceVersion semantics, paging and selection.

Nothing is returned before it is durable. All pages of a list show the same revision, or the client gets 410
when that revision is no longer available. A long scan yields to other requests.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from plimsoll.apiserver.handlers.continue_token import (
    CONTINUE_SECONDS,
    CURRENT_STATE,
    ContinueToken,
    decode_continue_token,
)
from plimsoll.apiserver.handlers.options import ListOptions
from plimsoll.apiserver.handlers.selectable_fields import ObjectSelection, SelectableFieldCache
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.selectors import parse_field_selector, parse_label_selector
from plimsoll.apiserver.status import continue_expired, not_found, resource_version_too_large
from plimsoll.apiserver.storage import ObjectKey, Store, StoredObject
from plimsoll.apiserver.time_slices import TimeSlice

_SCAN_LIMIT = 1000  #: objects taken from the store at once


class ListResult(NamedTuple):
    """Page of a list: objects, revision, and the token of the next page."""

    items: list[StoredObject]
    revision: int
    token: str = ""
    remaining: int | None = None


class _ListStart(NamedTuple):
    """Position after which a page starts, the revision it must show (None: current), and the time of the
    first page.
    """

    after: tuple[str, str] | None
    at: int | None
    started: int


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

    def __init__(self, store: Store, field_cache: SelectableFieldCache, now: Callable[[], datetime]) -> None:
        self._store = store
        self._field_cache = field_cache
        self._now = now

    async def get(self, info: RequestInfo, options: ListOptions) -> StoredObject:
        if options.resource_version and options.resource_version > self._store.revision:
            raise resource_version_too_large(options.resource_version, self._store.revision)
        stored = get_stored(self._store, info)
        await self._store.wait_durable(stored.revision)
        return stored

    async def list(self, info: RequestInfo, options: ListOptions, time_slice: TimeSlice) -> ListResult:
        """Return a page of objects; a long scan yields to other requests."""
        selection = parse_selection(info, options)
        start = self._start(options)
        name = selection.fields.exact("metadata.name")
        if start.at is None and name and selection.namespace is not None:
            listing = self._list_one(selection, name)
        else:
            listing = await self._scan(selection, start, options.limit, time_slice)
        time_slice.release()
        await self._store.wait_durable(listing.revision)
        return listing

    def _start(self, options: ListOptions) -> _ListStart:
        head, now = self._store.revision, int(self._now().timestamp())
        if options.continue_token:
            token = decode_continue_token(options.continue_token)
            after = token.namespace, token.name
            if token.revision == CURRENT_STATE:
                return _ListStart(after, None, now)
            if token.revision < self._store.floor or now - token.started >= CONTINUE_SECONDS:
                raise continue_expired(token._replace(revision=CURRENT_STATE).encode())
            return _ListStart(after, token.revision, token.started)
        if not options.resource_version:
            return _ListStart(None, None, now)
        if options.resource_version > head:
            raise resource_version_too_large(options.resource_version, head)
        exact = options.resource_version_match == "Exact" or (
            options.limit and not options.resource_version_match
        )
        return _ListStart(None, options.resource_version if exact else None, now)

    def _list_one(self, selection: ObjectSelection, name: str) -> ListResult:
        key = ObjectKey(selection.resource.storage_key, selection.namespace or "", name)
        stored = self._store.get(key)
        found = stored is not None and selection.includes(
            key, self._field_cache.of(selection.resource, stored)
        )
        return ListResult([stored] if stored is not None and found else [], self._store.revision)

    async def _scan(
        self, selection: ObjectSelection, start: _ListStart, limit: int, time_slice: TimeSlice
    ) -> ListResult:
        resource = selection.resource
        after, at, started = start
        if selection.matches_all:
            page = self._store.list(
                resource.storage_key, selection.namespace, after=after, limit=limit or None, at=at
            )
            more = page.remaining and page.items
            token = _token_after(page.items[-1], page.revision, started) if more else ""
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
                        return ListResult(found, at, _token_after(found[-1], at, started))
                    found.append(stored)
                if time_slice.is_expired:
                    await time_slice.pause()
            if not page.remaining:
                return ListResult(found, at)
            after = (page.items[-1].key.namespace, page.items[-1].key.name)


def _token_after(last: StoredObject, revision: int, started: int) -> str:
    return ContinueToken(revision, last.key.namespace, last.key.name, started).encode()
