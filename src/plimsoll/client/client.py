"""Client of the Kubernetes API: get, list, watch, create, update, patch, delete.

Guarantees: reads return the server's own bytes (or plain trees of them), and writes take plain trees and
patches, never a typed view, so that no field is lost; a rejected call raises ApiError with the code and
reason of its Status; calls that can be repeated safely are retried with back-off.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing
from copy import copy
from random import Random
from types import TracebackType
from typing import Any, Literal, TypeVar

from plimsoll.api import codec
from plimsoll.client import responses as answers
from plimsoll.client import retries
from plimsoll.client.config import ClientConfig
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.http import HttpTransport
from plimsoll.client.request_bodies import build_query, delete_options, namespace_of, require_tree
from plimsoll.client.responses import ObjectList, ObjectListPage, WatchEvent
from plimsoll.client.served_versions import ServedVersions, decode_from, encode_for, require_decoded
from plimsoll.client.transport import Reply, Request, ResponseStream, Transport
from plimsoll.common.rate_limit import TokenBucket
from plimsoll.errors import ApiError, InputError

R = TypeVar("R")
PatchType = Literal["merge", "json", "strategic", "apply"]
Propagation = Literal["Background", "Foreground", "Orphan"]

_PATCH_TYPES: dict[str, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}
#: Objects per page of a list.
PAGE = 500
#: A watch without data for longer is considered dead. Bookmarks arrive about once a minute.
IDLE_SECONDS = 150.0
_RETRY_AFTER_MOST = 60.0


class Client:
    """Client of one API server as one user; `async with` closes its connections."""

    def __init__(
        self,
        transport: Transport,
        *,
        namespace: str = "default",
        user_agent: str = "",
        timeout: float = 30.0,
        idle_timeout: float = 0.0,
        attempts: int = 6,
        retry_timeout: float = 0.0,
        bucket: TokenBucket | None = None,
        backoff: retries.Backoff | None = None,
        rng: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.namespace = namespace
        self.transport = transport
        self._agent = user_agent or "plimsoll"
        self._timeout = timeout
        self._idle_timeout = idle_timeout
        self._attempts = max(1, attempts)
        self._retry_timeout = retry_timeout
        self._bucket = bucket
        self._backoff = backoff or retries.Backoff()
        self._rng = rng or Random()
        self._sleep = sleep
        self._guard: Callable[[], None] | None = None
        self._clock = clock
        self._versions = ServedVersions()

    @classmethod
    def connect(cls, config: ClientConfig) -> Client:
        """Create a client over HTTP; the first call opens the first connection."""
        return cls(
            HttpTransport(config),
            namespace=config.namespace,
            user_agent=config.user_agent,
            timeout=config.timeout,
            idle_timeout=config.idle_timeout,
            attempts=config.attempts,
            retry_timeout=config.retry_timeout,
            bucket=TokenBucket(config.qps, config.burst) if config.qps > 0 else None,
        )

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self.transport.close()

    def guarded(self, guard: Callable[[], None]) -> Client:
        """Return a client on the same connections that calls `guard` right before each write is sent.

        An exception of `guard` prevents the write; it is not retried unless it is an ApiError.
        """
        client = copy(self)
        client._guard = guard
        return client

    def unlimited(self) -> Client:
        """Return a client on the same connections without a limit of calls per second."""
        client = copy(self)
        client._bucket = None
        return client

    # -- reading

    async def get(
        self, endpoint: Endpoint, name: str, namespace: str = "", *, resource_version: str = ""
    ) -> dict[str, Any]:
        """Return one object as a plain tree."""
        raw = await self.get_raw(endpoint, name, namespace, resource_version=resource_version)
        return answers.read_tree(raw)

    async def get_raw(
        self, endpoint: Endpoint, name: str, namespace: str = "", *, resource_version: str = ""
    ) -> bytes:
        """Return one object as the bytes that the server sent."""
        query = build_query(resourceVersion=resource_version)
        return await self._send(endpoint, "GET", namespace or self.namespace, name, query=query)

    async def list(
        self,
        endpoint: Endpoint,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        resource_version: str = "",
    ) -> ObjectList:
        """List the objects of a namespace (None: of all namespaces), in pages of `limit` (0: one page)."""
        items: list[bytes] = []
        revision = ""
        pages = self.pages(
            endpoint, namespace, labels=labels, fields=fields, limit=limit, resource_version=resource_version
        )
        async with aclosing(pages):
            async for page in pages:
                if page.revision != revision:
                    # The revision changes only if the list was restarted; earlier pages are out of date.
                    items, revision = [], page.revision
                items += page.items
        return ObjectList(items, revision)

    async def pages(
        self,
        endpoint: Endpoint,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = PAGE,
        resource_version: str = "",
    ) -> AsyncGenerator[ObjectListPage, None]:
        """Yield a list page by page; if it expires it restarts in one page at a new revision."""
        more = ""
        while True:
            query = build_query(labelSelector=labels, fieldSelector=fields, limit=str(limit) if limit else "")
            query += build_query(**{"continue": more} if more else {"resourceVersion": resource_version})
            served = self._versions.find(endpoint)
            try:
                reply = await self.call("GET", served.path(namespace), query=query)
            except ApiError as error:
                if error.code == 410 and more:
                    more, limit = "", 0
                    continue
                if await self._versions.rediscover(endpoint, served, error, self._get_body) is None:
                    raise
                more = ""
                continue
            page = answers.read_page(reply.body, served)
            more = page.more
            if served != endpoint:
                converted = (decode_from(item, endpoint, served) for item in page.items)
                page = page._replace(items=[item for item in converted if item is not None])
            yield page
            if not more:
                return

    async def watch(
        self,
        endpoint: Endpoint,
        namespace: str | None = None,
        *,
        since: str = "",
        labels: str = "",
        fields: str = "",
        bookmarks: bool = True,
        initial: bool = False,
        seconds: int = 0,
        idle: float = IDLE_SECONDS,
        opened: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the events after `since` until the server ends the watch; an ERROR event raises ApiError.

        `initial` requests the current objects as ADDED events, followed by a bookmark (sendInitialEvents).
        `opened` is called when the server has accepted the watch, which may be long before the first event.
        """
        query = build_query(
            watch="true",
            resourceVersion=since,
            labelSelector=labels,
            fieldSelector=fields,
            allowWatchBookmarks="true" if bookmarks else "",
            sendInitialEvents="true" if initial else "",
            resourceVersionMatch="NotOlderThan" if initial else "",
            timeoutSeconds=str(seconds) if seconds else "",
        )
        served = self._versions.find(endpoint)
        async with AsyncExitStack() as stack:

            async def open_stream() -> ResponseStream:
                request = Request("GET", served.path(namespace), query, self._headers(), None, idle)
                async with AsyncExitStack() as opened:
                    stream = await opened.enter_async_context(self.transport.stream(request))
                    if stream.status >= 300:
                        body = b"".join([chunk async for chunk in stream.chunks])
                        raise answers.read_error(stream.status, stream.headers, body)
                    stack.push_async_exit(opened.pop_all())
                    return stream

            # Callers of a watch handle its failures anyway; only cheap retries are made here.
            try:
                stream = await self._with_retries(open_stream, False)
            except ApiError as error:
                other = await self._versions.rediscover(endpoint, served, error, self._get_body)
                if other is None:
                    raise
                served = other
                stream = await self._with_retries(open_stream, False)
            opened()
            async for line in answers.split_lines(stream.chunks):
                event = answers.read_frame(line)
                if served != endpoint:
                    raw = decode_from(event.raw, endpoint, served)
                    if raw is None:
                        continue
                    event = event._replace(raw=raw)
                yield event

    # -- writing

    async def create(
        self,
        endpoint: Endpoint,
        tree: Mapping[str, Any],
        namespace: str = "",
        *,
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> dict[str, Any]:
        within = namespace or namespace_of(require_tree(tree)) or self.namespace
        query = build_query(
            dryRun="All" if dry_run else "", fieldManager=field_manager, fieldValidation=field_validation
        )
        return answers.read_tree(await self._send(endpoint, "POST", within, query=query, tree=tree))

    async def post(
        self,
        endpoint: Endpoint,
        name: str,
        subresource: str,
        tree: Mapping[str, Any],
        namespace: str = "",
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Create a subresource of an object: a pod's binding or eviction, a service account's token."""
        query, within = build_query(dryRun="All" if dry_run else ""), namespace or self.namespace
        body = await self._send(
            endpoint, "POST", within, name, subresource, query=query, tree=require_tree(tree)
        )
        return answers.read_tree(body)

    async def update(
        self,
        endpoint: Endpoint,
        tree: Mapping[str, Any],
        namespace: str = "",
        *,
        subresource: str = "",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
    ) -> dict[str, Any]:
        """Replace an object by a complete tree, as it was read and then changed."""
        metadata = require_tree(tree).get("metadata")
        name = str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""
        if not name:
            raise InputError("metadata.name: an update must name its object")
        within = namespace or namespace_of(tree) or self.namespace
        query = build_query(
            dryRun="All" if dry_run else "", fieldManager=field_manager, fieldValidation=field_validation
        )
        body = await self._send(endpoint, "PUT", within, name, subresource, query=query, tree=tree)
        return answers.read_tree(body)

    async def patch(
        self,
        endpoint: Endpoint,
        name: str,
        patch: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        type: PatchType = "merge",
        dry_run: bool = False,
        field_manager: str = "",
        field_validation: str = "",
        force: bool = False,
    ) -> dict[str, Any]:
        """Patch an object; with `apply` (server-side apply), `force` takes over conflicting fields."""
        if type == "apply":
            field_manager = field_manager or self._agent.partition("/")[0]
        query = build_query(
            dryRun="All" if dry_run else "",
            fieldManager=field_manager,
            fieldValidation=field_validation,
            force="true" if force else "",
        )
        within, form = namespace or self.namespace, _PATCH_TYPES[type]
        body = await self._send(
            endpoint, "PATCH", within, name, subresource, query=query, tree=patch, content_type=form
        )
        return answers.read_tree(body)

    async def delete(
        self,
        endpoint: Endpoint,
        name: str,
        namespace: str = "",
        *,
        uid: str | None = None,
        revision: str | None = None,
        grace: int | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete one object; return the object, if it still exists, or a Status."""
        tree = delete_options(uid, revision, grace, propagation, dry_run)
        return answers.read_tree(
            await self._send(endpoint, "DELETE", namespace or self.namespace, name, tree=tree)
        )

    async def delete_collection(
        self,
        endpoint: Endpoint,
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        grace: int | None = None,
        propagation: Propagation | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Delete every object that the selectors match."""
        query = build_query(labelSelector=labels, fieldSelector=fields)
        tree = delete_options(None, None, grace, propagation, dry_run)
        return answers.read_tree(await self._send(endpoint, "DELETE", namespace, query=query, tree=tree))

    async def _send(
        self,
        endpoint: Endpoint,
        method: str,
        namespace: str | None,
        name: str = "",
        subresource: str = "",
        *,
        query: tuple[tuple[str, str], ...] = (),
        tree: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Send a request for a kind, in a version that the server has; return the object of the response."""
        served = self._versions.find(endpoint)
        while True:
            path, body = served.path(namespace, name, subresource), encode_for(tree, endpoint, served)
            try:
                reply = await self.call(method, path, query=query, tree=body, content_type=content_type)
            except ApiError as error:
                other = await self._versions.rediscover(endpoint, served, error, self._get_body)
                if other is None:
                    raise
                served = other
                continue
            return require_decoded(reply.body, endpoint, served) if served != endpoint else reply.body

    def served_endpoint(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint that is used for a kind, as far as it is known; for callers of `call`."""
        return self._versions.find(endpoint)

    def to_served(self, endpoint: Endpoint, tree: Any) -> Any:
        """Return a request body in the version of the served endpoint."""
        return encode_for(tree, endpoint, self._versions.find(endpoint))

    def from_served(self, endpoint: Endpoint, raw: bytes) -> bytes:
        """Return the object of a response in the version of the preferred endpoint."""
        return require_decoded(raw, endpoint, self._versions.find(endpoint))

    async def _get_body(self, path: str) -> bytes:
        return (await self.call("GET", path)).body

    # -- any call

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Iterable[tuple[str, str]] = (),
        tree: Any = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
        timeout: float | None = None,
        harmless: bool | None = None,
    ) -> Reply:
        """Send any request; error responses raise ApiError. `harmless` overrides whether it may be
        repeated.
        """
        query = tuple(query)
        headers = self._headers(accept)
        if tree is not None:
            body = codec.encode(tree)
        if body is not None:
            headers["Content-Type"] = content_type
        if harmless is None:
            harmless = retries.is_harmless(method, tree, dict(query), content_type)
        guard = None if method == "GET" else self._guard
        request = Request(
            method, path, query, headers, body, timeout or self._timeout, self._idle_timeout, guard
        )

        async def send() -> Reply:
            reply = await self.transport.send(request)
            if reply.status >= 300:
                raise answers.read_error(reply.status, reply.headers, reply.body)
            return reply

        return await self._with_retries(send, harmless)

    async def _with_retries(self, attempt_once: Callable[[], Awaitable[R]], harmless: bool) -> R:
        """Send a request, and retry it if that is safe and may help."""
        renewed = False
        attempt = 0
        started = self._clock()
        while True:
            attempt += 1
            if self._bucket is not None:
                await self._bucket.take()
            try:
                return await attempt_once()
            except ApiError as error:
                if error.code == 401 and not renewed and await self.transport.renew():
                    renewed = True
                    continue
                if attempt >= self._attempts or not retries.may_repeat(error, harmless=harmless):
                    raise
                asked = retries.retry_after(error.headers, None)
                wait = self._backoff.delay(attempt, self._rng)
                wait = wait if asked is None else max(wait, min(asked, _RETRY_AFTER_MOST))
                spent = self._clock() - started + wait
                if self._retry_timeout and (error.reason == "Timeout" or spent >= self._retry_timeout):
                    raise
                await self._sleep(wait)

    def _headers(self, accept: str = "application/json") -> dict[str, str]:
        return {"Accept": accept, "User-Agent": self._agent}
