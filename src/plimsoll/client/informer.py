"""Informer: a cache that lists and then watches a collection.

Guarantees: handlers receive every change in order and none twice, even if the connection breaks or a watch
expires (then the collection is listed again, and the changes since are reported, removals with the last known
state); a handler that fails or is slow is logged and does not affect other handlers; memory is bounded by the
objects in the collection.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from random import Random
from typing import Any, Generic, TypeVar

from plimsoll.client.cache import Cache, CacheChange, Keep, Key, Replacement
from plimsoll.client.client import IDLE_SECONDS, PAGE, Client
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.responses import WatchEvent
from plimsoll.client.retries import Backoff
from plimsoll.errors import ApiError, ConfigError, InputError

T = TypeVar("T")
_log = logging.getLogger("plimsoll.informer")

#: Pending changes of an async handler after which the informer waits for it.
_QUEUE = 1000
#: Time for one change after which a handler is logged as slow.
_SLOW_SECONDS = 1.0
SLOW_HANDLER_SECONDS = 30.0
#: Changes dispatched before other tasks of the loop run.
_BATCH = 200
#: Time after which the same error is logged again.
_REPEAT_SECONDS = 300.0
#: Interval at which an optional kind that is not served is tried again.
_OPTIONAL_SECONDS = 60.0


class EventHandler(Generic[T]):
    """Handler of changes; override what you need, as plain methods or as coroutines."""

    def on_added(self, new: T) -> Awaitable[None] | None:
        return None

    def on_changed(self, old: T, new: T) -> Awaitable[None] | None:
        return None

    def on_removed(self, old: T) -> Awaitable[None] | None:
        return None


class CallbackHandler(EventHandler[T]):
    """Event handler that calls one function with (None, new), (old, new) or (old, None)."""

    def __init__(self, callback: Callable[[T | None, T | None], None]) -> None:
        self._callback = callback

    def on_added(self, new: T) -> None:
        self._callback(None, new)

    def on_changed(self, old: T, new: T) -> None:
        self._callback(old, new)

    def on_removed(self, old: T) -> None:
        self._callback(old, None)


class Informer(Generic[T]):
    """Cached objects of one collection, kept up to date by `run`."""

    def __init__(
        self,
        client: Client,
        endpoint: Endpoint,
        decode: Callable[[bytes], T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        keep: Keep = "view",
        page: int = PAGE,
        optional: bool = False,
        streamed: bool = False,
        backoff: Backoff | None = None,
        idle: float = IDLE_SECONDS,
        rng: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.endpoint = endpoint
        #: Last error, until a request succeeds.
        self.error: InputError | None = None
        #: Number of failures (of handlers and of decoding), and of lists.
        self.faults = 0
        self.listings = 0
        self.client = client
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self._page = page
        self._optional = optional
        self._streamed = streamed
        self._backoff = backoff or Backoff(first=0.5, most=30.0)
        self._idle = idle
        self._rng = rng or Random()
        self._sleep = sleep
        self.cache: Cache[T] = Cache(decode, keep, self._fault)
        self._queues: list[_HandlerQueue[T]] = []
        self._stale = True
        self._synced: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._running = False
        #: Called with every error of a request.
        self.on_error: Callable[[InputError], None] = lambda error: None
        self._warn_again_at = 0.0
        self._refreshes: list[asyncio.Event] = []  # waiting for a listing that begins from now on
        self.interruptible: asyncio.Future[None] | None = None

    # -- reading

    def get(self, namespace: str, name: str) -> T | None:
        return self.cache.get((namespace, name))

    def raw(self, namespace: str, name: str) -> bytes | None:
        """Return the JSON of an object, if `keep` is set."""
        return self.cache.raw((namespace, name))

    def items(self) -> list[T]:
        return self.cache.items()

    def keys(self) -> list[Key]:
        return self.cache.keys()

    def __len__(self) -> int:
        return len(self.cache)

    @property
    def revision(self) -> str:
        """Revision up to which all changes are known."""
        return self.cache.revision

    def add_handler(self, handler: EventHandler[T]) -> None:
        """Add a handler; known objects are reported to it as added."""
        queue = _HandlerQueue(handler, self._fault)
        self._queues.append(queue)
        for key, entry in self.cache.entries():
            queue.dispatch(CacheChange(key, None, entry), self.cache)
        if self._running:
            queue.start()

    async def synced(self, timeout: float | None = None) -> None:
        """Wait until the first list is complete and handled; raises the error that prevents it."""
        if self._synced is None:
            self._synced = asyncio.Event()
        try:
            async with asyncio.timeout(timeout):
                await self._synced.wait()
        except TimeoutError:
            raise self.error or ApiError(
                0, "Timeout", f"{self.endpoint.resource} not listed in time"
            ) from None
        if self._failure is not None:
            raise self._failure

    async def refresh(self) -> None:
        """List the collection again; returns when everything written before the call is known and handled."""
        done = asyncio.Event()
        self._refreshes.append(done)
        if self.interruptible is not None:
            self.interruptible.cancel()
        await done.wait()

    # -- list and watch

    async def run(self) -> None:
        """List and watch until cancelled; only a wrong configuration at the start ends it."""
        if self._synced is None:
            self._synced = asyncio.Event()
        self._running = True
        for queue in self._queues:
            queue.start()
        try:
            await self._follow_forever()
        except BaseException as error:
            if not self._synced.is_set():
                self._failure = error
                self._synced.set()
            raise
        finally:
            self._running = False
            for queue in self._queues:
                await queue.stop()

    async def _follow_forever(self) -> None:
        assert self._synced is not None
        failures = 0
        while True:
            started = time.monotonic()
            revision = self.revision
            try:
                stale = self._stale or bool(self._refreshes)
                if stale and self._streamed:
                    await self._unless_refreshed(self._start_streamed(), lists=True)
                else:
                    if stale:
                        await self.list_all()
                        self._synced.set()
                    await self._unless_refreshed(self.watch())
                if self._refreshes:
                    continue
                quick = time.monotonic() - started < 1.0 and self.revision == revision
                failures = failures + 1 if quick else 0
            except ApiError as error:
                if self._optional and error.code == 404:
                    await self._clear()
                    await self._unless_refreshed(self._sleep(_OPTIONAL_SECONDS))
                    continue
                self._note(error)
                if is_expired(error):
                    self._stale = True
                failures = 1 if self.revision != revision else failures + 1
            except ConfigError as error:
                if not self._synced.is_set():
                    raise
                self._note(error)
                failures += 1
            if failures:
                await self._unless_refreshed(self._sleep(self._backoff.delay(failures, self._rng)))

    async def _unless_refreshed(self, waiting: Awaitable[None], *, lists: bool = False) -> None:
        """Run a coroutine until it ends or `refresh` requests a new list; `lists`: it starts with one."""
        task = self.interruptible = asyncio.ensure_future(waiting)
        if self._refreshes and not lists:
            task.cancel()
        try:
            await asyncio.wait((task,))
        finally:
            self.interruptible = None
            task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    @asynccontextmanager
    async def _replacing(self) -> AsyncGenerator[Replacement[T], None]:
        """Collect a new list, which is applied and handled at the end of the block."""
        refreshes, self._refreshes = self._refreshes, []
        replacement = self.cache.replace()
        try:
            yield replacement
            self.error = None
            await self._dispatch(replacement.commit())
            self._stale = False  # not before: a partial list cannot be resumed
        except BaseException:
            self._refreshes += refreshes
            raise
        for refresh in refreshes:
            refresh.set()

    async def list_all(self) -> None:
        """Replace the cached objects with those of a new list."""
        async with self._replacing() as replacement:
            pages = self.client.pages(
                self.endpoint, self._namespace, labels=self._labels, fields=self._fields, limit=self._page
            )
            async with aclosing(pages):
                async for page in pages:
                    replacement.add(page.items, page.revision)
            self.listings += 1

    async def _clear(self) -> None:
        """Remove all objects: the kind is not served."""
        assert self._synced is not None
        async with self._replacing():
            pass
        self._stale = True
        self._synced.set()

    async def watch(self) -> None:
        """Apply the events of one watch until it ends."""
        async with aclosing(self._events(self.revision)) as events:
            async for event in events:
                await self._dispatch(self.cache.apply(event))

    async def _start_streamed(self) -> None:
        """Start with a watch that sends the current objects first, and continue it."""
        assert self._synced is not None
        try:
            async with aclosing(self._events("", initial=True)) as events:
                async with self._replacing() as replacement:
                    async for event in events:
                        if event.type != "BOOKMARK":
                            replacement.apply(event)
                        elif b'"k8s.io/initial-events-end"' in event.raw:
                            replacement.revision = event.revision
                            break
                    else:
                        raise ApiError(0, "Closed", "the watch ended before the initial events were complete")
                    self.listings += 1
                self._synced.set()
                async for event in events:
                    await self._dispatch(self.cache.apply(event))
        except ApiError as error:
            if error.code not in (400, 422):
                raise
            self._streamed = False  # not supported by this server: list instead

    def _events(self, since: str, *, initial: bool = False) -> AsyncGenerator[WatchEvent, None]:
        return self.client.watch(
            self.endpoint,
            self._namespace,
            since=since,
            labels=self._labels,
            fields=self._fields,
            initial=initial,
            # A random time, so that watches started together do not all end together.
            seconds=self._rng.randint(300, 600),
            idle=self._idle,
            opened=self._recover,
        )

    async def _dispatch(self, changes: Iterable[CacheChange]) -> None:
        for count, change in enumerate(changes, 1):
            # Without a pause: a handler added meanwhile has already received the change as an addition.
            present = tuple(self._queues)
            for queue in present:
                queue.dispatch(change, self.cache)
            for queue in present:
                if queue.full:
                    await queue.wait_for_handler()
            if not count % _BATCH:
                await asyncio.sleep(0)

    def _recover(self) -> None:
        """Mark the server as responsive: the cache is up to date."""
        if not self._stale:
            self.error = None

    def _note(self, error: InputError) -> None:
        now = time.monotonic()
        if str(error) != str(self.error) or now >= self._warn_again_at:
            self._warn_again_at = now + _REPEAT_SECONDS
            _log.warning("%s: %s", self.endpoint.resource, error)
        self.error = error
        self.on_error(error)

    def _fault(self, problem: str) -> None:
        self.faults += 1
        _log.error("%s: %s", self.endpoint.resource, problem)


class _HandlerQueue(Generic[T]):
    """Handler and its pending changes (only a handler with coroutines falls behind)."""

    def __init__(self, handler: EventHandler[T], fault: Callable[[str], None]) -> None:
        self._handler = handler
        self._fault = fault
        methods = (handler.on_added, handler.on_changed, handler.on_removed)
        self._queue: asyncio.Queue[tuple[Key, Callable[..., Any], tuple[T, ...]]] | None = None
        if any(inspect.iscoroutinefunction(method) for method in methods):
            self._queue = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def dispatch(self, change: CacheChange, cache: Cache[T]) -> None:
        method: Callable[..., Any]
        arguments: tuple[T, ...]
        if change.new is None:
            assert change.old is not None
            method, arguments = self._handler.on_removed, (cache.view(change.old),)
        elif change.old is None:
            method, arguments = self._handler.on_added, (cache.view(change.new),)
        else:
            method = self._handler.on_changed
            arguments = (cache.view(change.old), cache.view(change.new))
        if self._queue is not None:
            self._queue.put_nowait((change.key, method, arguments))
            return
        started = time.monotonic()
        try:
            method(*arguments)
        except Exception as error:
            self._failed(change.key, error)
        if (took := time.monotonic() - started) > _SLOW_SECONDS:
            self._fault(f"{self._name()} blocked the informer for {took:.1f} s on {_text(change.key)}")

    @property
    def full(self) -> bool:
        return self._queue is not None and self._queue.qsize() >= _QUEUE

    async def wait_for_handler(self) -> None:
        """Wait until the handler has caught up by half."""
        started = reported = time.monotonic()
        while self._queue is not None and self._task is not None and self._queue.qsize() > _QUEUE // 2:
            await asyncio.sleep(0.01)
            if (now := time.monotonic()) - reported > SLOW_HANDLER_SECONDS:
                reported = now
                self._fault(f"{self._name()} is {_QUEUE} changes behind for {now - started:.0f} s")

    def start(self) -> None:
        if self._queue is not None and self._task is None:
            self._task = asyncio.create_task(self._work(self._queue))

    async def stop(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _work(self, queue: asyncio.Queue[tuple[Key, Callable[..., Any], tuple[T, ...]]]) -> None:
        while True:
            key, method, arguments = await queue.get()
            started = time.monotonic()
            try:
                result = method(*arguments)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                self._failed(key, error)
            if (took := time.monotonic() - started) > SLOW_HANDLER_SECONDS:
                self._fault(f"{self._name()} took {took:.1f} s for {_text(key)}")

    def _failed(self, key: Key, error: Exception) -> None:
        _log.debug("trace", exc_info=error)
        self._fault(f"{self._name()} failed on {_text(key)}: {type(error).__name__}: {error}")

    def _name(self) -> str:
        return type(self._handler).__name__


def _text(key: Key) -> str:
    return "/".join(filter(None, key))


def is_expired(error: ApiError) -> bool:
    """Return whether a watch cannot resume: its revision is too old or unknown to the server."""
    if error.code == 410 or error.reason in ("Expired", "Gone"):
        return True
    causes = error.details.get("causes")
    return isinstance(causes, list) and any(
        isinstance(cause, dict) and cause.get("reason") == "ResourceVersionTooLarge" for cause in causes
    )
