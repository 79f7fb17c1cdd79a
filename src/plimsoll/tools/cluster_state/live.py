"""Reading a running cluster through its API: `read_live` once, `follow_live` continuously.

Read-only. A kind that is not served or forbidden becomes a `Gap` if it is optional. Each kind is read at the
most recent supported version (`api/resource_versions.py`). A user restricted to one namespace sees only that
namespace, which is recorded as a gap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api import resource_versions as versions
from plimsoll.api.resource import ResourceSlice
from plimsoll.client.client import Client
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.client.served_versions import readable_versions
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import ApiError, DecodeError, InputError, UnreachableError, first_error
from plimsoll.tools.cluster_state.cluster_state import ClusterState
from plimsoll.tools.cluster_state.files import require_name
from plimsoll.tools.cluster_state.ignored_fields import find_ignored_fields_in_json
from plimsoll.tools.cluster_state.kinds import KINDS, StateKind
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap, key_of
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.cluster_state.shared_parts import SharedParts


@dataclass(frozen=True, slots=True)
class _ListTarget:
    """Endpoint and namespace from which a kind is listed."""

    kind: StateKind
    endpoint: Endpoint
    namespace: str | None = None  #: None: all namespaces
    parts: SharedParts = field(default_factory=SharedParts, compare=False)

    def decode(self, raw: bytes) -> Any:
        """Decode an object in the v1 schema. Raise DecodeError if it cannot be converted."""
        if not self.kind.versioned or self.endpoint.version in versions.SAME:
            return require_name(self.parts.decode(raw, self.kind.view))
        tree = versions.to_v1(codec.decode_tree(raw))
        if isinstance(tree, versions.Unconvertible):
            raise DecodeError(tree.why)
        return require_name(self.parts.convert(tree, self.kind.view))

    def read(self, raw: bytes, objects: ClusterObjects) -> Any:
        """Decode an object; record in `objects` which of its fields are ignored."""
        thing = self.decode(raw)
        if self.kind.view is ResourceSlice:
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
        tick(f"reading {kind.endpoint.plural}", number, len(served))
        await _list_kind(
            kind, endpoint, namespace, objects.gaps, lambda place: _read(client, place, objects, tick)
        )
    return objects


async def _list_kind(
    kind: StateKind,
    endpoint: Endpoint | None,
    namespace: str,
    gaps: list[Gap],
    attempt: Callable[[_ListTarget], Awaitable[ApiError | None]],
) -> _ListTarget | None:
    """Attempt to list a kind, in `namespace` if all namespaces are forbidden. Return what could be listed;
    what could not is a gap. Raises InputError if the kind is required.
    """
    plural = kind.endpoint.plural
    if endpoint is None:
        gaps.append(Gap(plural, "not served by this cluster", served=False))
        return None
    place = _ListTarget(kind, endpoint)
    error = await attempt(place)
    if error is not None and error.code == 403 and kind.endpoint.namespaced and namespace:
        wide, place = error, _ListTarget(kind, endpoint, namespace)
        error = await attempt(place)
        if error is None:
            why = f"only namespace {namespace} is included; in all namespaces: {wide}"
            brief = f"only namespace {namespace} can be listed"
            gaps.append(Gap(plural, why, whole=False, brief=brief))
    if error is None:
        return place
    if kind.needed:
        raise InputError(f"{plural} cannot be read: {error}{_fix_for(error, kind, namespace)}")
    brief = "forbidden for this user" if error.code in (401, 403) else ""
    gaps.append(Gap(plural, str(error), brief=brief, refused=True))
    return None


def _fix_for(error: ApiError, kind: StateKind, namespace: str) -> str:
    if error.code == 401:
        return "; check the credentials in the kubeconfig"
    if error.code == 403 and kind.endpoint.namespaced and not namespace:
        return "; use a user who can list them in all namespaces, or select a namespace with -n"
    return "; use a user who can list them, or pass a dump with -f" if error.code == 403 else ""


async def _read(
    client: Client, place: _ListTarget, objects: ClusterObjects, tick: ProgressCallback
) -> ApiError | None:
    """List one kind page by page. Return the error that prevented it, if any."""
    kind = place.kind
    things: list[Any] = []
    undecodable: list[str] = []
    revision = ""
    try:
        async with aclosing(client.pages(place.endpoint, place.namespace)) as pages:
            async for page in pages:
                if page.revision != revision:  # the list was restarted
                    things, undecodable, revision = [], [], page.revision
                with without_collection():
                    for raw in page.items:
                        try:
                            things.append(place.read(raw, objects))
                        except DecodeError as error:
                            undecodable.append(str(error))
                if page.more:
                    tick(f"reading {kind.endpoint.plural}", len(things), 0)
    except UnreachableError:
        raise
    except ApiError as error:
        return error
    for thing in things:
        objects.set(thing)
    if undecodable:
        why = f"{len(undecodable)} cannot be decoded; the first: {undecodable[0]}"
        objects.gaps.append(Gap(kind.endpoint.plural, why, whole=False))
    return None


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
        place = await _list_kind(kind, endpoint, namespace, gaps, lambda place: _try(client, place))
        if place is not None:
            informer: Informer[Any] = _Follower(client, place, cluster_state, changed)
            informer.add_handler(_StateUpdater(cluster_state, changed))
            informers.append(informer)
    known = {gap.kind for gap in cluster_state.objects.gaps}
    cluster_state.objects.gaps += [gap for gap in gaps if gap.kind not in known]
    return informers


async def _try(client: Client, place: _ListTarget) -> ApiError | None:
    try:
        async with aclosing(client.pages(place.endpoint, place.namespace, limit=1)) as pages:
            await anext(pages)
    except UnreachableError:
        raise
    except ApiError as error:
        return error
    return None


class _Follower(Informer[Any]):
    """Informer that removes objects missing from its first complete list from the cluster state."""

    def __init__(
        self, client: Client, place: _ListTarget, cluster_state: ClusterState, changed: Callable[[], None]
    ) -> None:
        super().__init__(
            client,
            place.endpoint,
            lambda raw: place.read(raw, cluster_state.objects),
            namespace=place.namespace,
            optional=not place.kind.needed,
        )
        self._view = place.kind.view
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


# -- versions


async def find_served(client: Client) -> list[tuple[StateKind, Endpoint | None]]:
    """Return each kind with its endpoint at the best version the server offers, or None if it is not
    served.
    """
    offers: dict[tuple[str, str], tuple[str, ...]] = {}
    known = True
    try:
        for each in await discover(client):
            offers[each.endpoint.group, each.endpoint.plural] = each.versions
    except UnreachableError:
        raise
    except ApiError:
        known = False  # without discovery every kind is tried
    return [(kind, _preferred_endpoint(kind, offers, known)) for kind in KINDS]


def _preferred_endpoint(
    kind: StateKind, offers: dict[tuple[str, str], tuple[str, ...]], known: bool
) -> Endpoint | None:
    endpoint = kind.endpoint
    offered = offers.get((endpoint.group, endpoint.plural), ())
    if not offered:
        return None if known and not kind.needed else endpoint
    if endpoint.version in offered:
        return endpoint
    if not kind.versioned:
        # The client converts the versions that it can read.
        readable = not set(offered).isdisjoint(readable_versions(endpoint))
        return endpoint if readable else endpoint.at(offered[0])
    best = next((version for version in versions.VERSIONS if version in offered), "")
    return endpoint.at(best) if best else None
