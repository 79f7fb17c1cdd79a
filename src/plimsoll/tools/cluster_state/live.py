"""Reading a running cluster through its API: `read_live` once, `follow_live` continuously.

Read-only. A kind that is not served or forbidden becomes a `Gap` if it is optional. Each kind is read at the
most recent supported version (`api/resource_versions.py`). A user restricted to one namespace sees only that
namespace, which is recorded as a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.api import resource_versions as versions
from plimsoll.api.resource import ResourceSlice
from plimsoll.client.client import Client
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.errors import DecodeError, first_error
from plimsoll.tools.cluster_state.cluster_state import ClusterState
from plimsoll.tools.cluster_state.files import require_name
from plimsoll.tools.cluster_state.ignored_fields import find_ignored_fields_in_json
from plimsoll.tools.cluster_state.kinds import StateKind
from plimsoll.tools.cluster_state.listing import find_served, list_kind, read_pages
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap, key_of
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.cluster_state.shared_parts import SharedParts


@dataclass(frozen=True, slots=True)
class _ListedKind:
    """Kind and the endpoint from which it is listed."""

    kind: StateKind
    endpoint: Endpoint
    parts: SharedParts = field(default_factory=SharedParts, compare=False)

    def read(self, raw: bytes, objects: ClusterObjects) -> Any:
        """Decode an object in the v1 schema; record in `objects` which of its fields are ignored. Raise
        DecodeError if it cannot be converted.
        """
        view = self.kind.view
        if not self.kind.versioned or self.endpoint.version in versions.SAME:
            thing = require_name(self.parts.decode(raw, view))
        else:
            tree = versions.to_v1(codec.decode_tree(raw))
            if isinstance(tree, versions.Unconvertible):
                raise DecodeError(tree.why)
            thing = require_name(self.parts.convert(tree, view))
        if view is ResourceSlice:
            ignored = find_ignored_fields_in_json(self.kind, raw, self.endpoint.api_version)
            objects.set_ignored_fields(thing.metadata.name, ignored)
        return thing


async def read_live(
    client: Client, tick: ProgressCallback = no_progress, *, namespace: str = ""
) -> ClusterObjects:
    """Read all objects; if listing all namespaces is forbidden, read `namespace` only."""
    objects = ClusterObjects()
    served = await find_served(client)
    for number, (kind, endpoint) in enumerate(served):
        plural = kind.endpoint.plural
        tick(f"reading {plural}", number, len(served))
        read = partial(_read, client, kind, objects, tick)
        await list_kind(plural, endpoint, namespace, objects.gaps, read, needed=kind.needed)
    return objects


async def _read(
    client: Client,
    kind: StateKind,
    objects: ClusterObjects,
    tick: ProgressCallback,
    endpoint: Endpoint,
    namespace: str,
) -> None:
    listed = _ListedKind(kind, endpoint)

    def read(raw: bytes) -> Any:
        try:
            return listed.read(raw, objects)
        except DecodeError as error:
            return error

    found = await read_pages(client, endpoint, namespace, read, tick)
    undecodable = [each for each in found if isinstance(each, DecodeError)]
    for thing in found:
        if not isinstance(thing, DecodeError):
            objects.set(thing)
    if undecodable:
        why = f"{len(undecodable)} cannot be decoded; the first: {undecodable[0]}"
        objects.gaps.append(Gap(endpoint.plural, why, whole=False))


# -- watching


async def follow_live(
    client: Client,
    cluster_state: ClusterState,
    changed: Callable[[], None],
    *,
    namespace: str = "",
    on_error: Callable[[str], None] = lambda why: None,
) -> None:
    """Keep a cluster state up to date over `client` until cancelled or a PlimsollError is raised.

    Calls `changed` after each change and once after the initial lists. Broken connections are retried
    indefinitely; `on_error` receives the current error, and "" once it is resolved.
    """
    informers = await live_informers(client, cluster_state, changed, namespace=namespace)
    try:
        async with asyncio.TaskGroup() as group:
            for informer in informers:
                group.create_task(informer.run())
            group.create_task(_notify_when_listed(informers, changed))
            group.create_task(_report_errors(informers, on_error))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None


async def live_informers(
    client: Client, cluster_state: ClusterState, changed: Callable[[], None], *, namespace: str = ""
) -> list[Informer[Any]]:
    """Create the informers that keep a cluster state up to date, one per readable kind; the caller runs them.

    Unreadable kinds become gaps of the cluster state; InputError is raised if a required kind is unreadable.
    Objects missing from the first list are removed from the state.
    """
    informers: list[Informer[Any]] = []
    gaps: list[Gap] = []
    for kind, endpoint in await find_served(client):
        attempt, plural = partial(_list_one, client), kind.endpoint.plural
        where = await list_kind(plural, endpoint, namespace, gaps, attempt, needed=kind.needed)
        if endpoint is not None and where is not None:
            listed = _ListedKind(kind, endpoint)
            informer: Informer[Any] = _Follower(client, listed, where, cluster_state, changed)
            informer.add_handler(_StateUpdater(cluster_state, changed))
            informers.append(informer)
    known = {gap.kind for gap in cluster_state.objects.gaps}
    cluster_state.objects.gaps += [gap for gap in gaps if gap.kind not in known]
    return informers


async def _list_one(client: Client, endpoint: Endpoint, namespace: str) -> None:
    async with aclosing(client.pages(endpoint, namespace or None, limit=1)) as pages:
        await anext(pages)


class _Follower(Informer[Any]):
    """Informer that removes objects missing from its first complete list from the cluster state."""

    def __init__(
        self,
        client: Client,
        listed: _ListedKind,
        namespace: str,
        cluster_state: ClusterState,
        changed: Callable[[], None],
    ) -> None:
        super().__init__(
            client,
            listed.endpoint,
            lambda raw: listed.read(raw, cluster_state.objects),
            namespace=namespace or None,
            optional=not listed.kind.needed,
        )
        self._view = listed.kind.view
        self._cluster_state = cluster_state
        self._changed = changed

    async def run(self) -> None:
        cleaning = asyncio.create_task(self._clean())
        try:
            await super().run()
        finally:
            cleaning.cancel()

    async def _clean(self) -> None:
        with suppress(Exception):  # list errors are raised by `run`
            await self.synced()
            known = set(self.keys())
            gone = [
                thing for thing in self._cluster_state.objects.all(self._view) if key_of(thing) not in known
            ]
            for thing in gone:
                self._cluster_state.remove(thing)
            if gone:
                self._changed()


async def _notify_when_listed(informers: list[Informer[Any]], changed: Callable[[], None]) -> None:
    for informer in informers:
        await informer.synced()
    changed()


async def _report_errors(informers: list[Informer[Any]], on_error: Callable[[str], None]) -> None:
    reported = ""
    while True:
        await asyncio.sleep(1)
        errors = [f"{each.endpoint.plural}: {each.error}" for each in informers if each.error is not None]
        now = errors[0] if errors else ""
        if now != reported:
            reported = now
            on_error(now)


class _StateUpdater(EventHandler[Any]):
    def __init__(self, cluster_state: ClusterState, changed: Callable[[], None]) -> None:
        self._cluster_state = cluster_state
        self._changed = changed

    def on_added(self, new: Any) -> None:
        old = self._cluster_state.objects.find(type(new), *key_of(new))
        if old is not None and _is_same(old, new):
            return  # the cluster state was read with it
        self._cluster_state.set(new)
        self._changed()

    def on_changed(self, old: Any, new: Any) -> None:
        self._cluster_state.set(new)
        self._changed()

    def on_removed(self, old: Any) -> None:
        self._cluster_state.remove(old)
        self._changed()


def _is_same(old: Any, new: Any) -> bool:
    before, now = old.metadata, new.metadata
    return bool(now.resource_version) and (before.uid, before.resource_version) == (
        now.uid,
        now.resource_version,
    )
