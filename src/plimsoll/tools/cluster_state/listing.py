"""Lists of a running cluster: the version at which each kind is served, and what the user may list.

A kind that is not served or forbidden becomes a `Gap`; a user restricted to one namespace sees only that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from plimsoll.api import resource_versions as versions
from plimsoll.client.client import Client
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.served_versions import readable_versions
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import ApiError, InputError, UnreachableError
from plimsoll.tools.cluster_state.kinds import KINDS, StateKind
from plimsoll.tools.cluster_state.objects import Gap
from plimsoll.tools.cluster_state.progress import ProgressCallback

T = TypeVar("T")


async def list_kind(
    plural: str,
    endpoint: Endpoint | None,
    namespace: str,
    gaps: list[Gap],
    attempt: Callable[[Endpoint, str], Awaitable[None]],
    *,
    needed: bool = False,
) -> str | None:
    """Attempt to list a kind, in `namespace` if all namespaces are forbidden. Return the namespace that could
    be listed, "" for all; what could not is a gap. Raises InputError if the kind is required.
    """
    if endpoint is None:
        gaps.append(Gap(plural, "not served by this cluster", served=False))
        return None
    error = wide = await _find_error(attempt(endpoint, ""))
    if wide is not None and wide.code == 403 and endpoint.namespaced and namespace:
        error = await _find_error(attempt(endpoint, namespace))
        if error is None:
            why = f"only namespace {namespace} is included; in all namespaces: {wide}"
            gaps.append(Gap(plural, why, whole=False, brief=f"only namespace {namespace} can be listed"))
            return namespace
    if error is None:
        return ""
    if needed:
        fix = ""
        if error.code == 401:
            fix = "; check the credentials in the kubeconfig"
        elif error.code == 403 and endpoint.namespaced and not namespace:
            fix = "; use a user who can list them in all namespaces, or select a namespace with -n"
        elif error.code == 403:
            fix = "; use a user who can list them, or pass a dump with -f"
        raise InputError(f"{plural} cannot be read: {error}{fix}")
    brief = "forbidden for this user" if error.code in (401, 403) else ""
    gaps.append(Gap(plural, str(error), brief=brief, refused=True))
    return None


async def _find_error(attempt: Awaitable[None]) -> ApiError | None:
    try:
        await attempt
    except UnreachableError:
        raise
    except ApiError as error:
        return error
    return None


async def read_pages(
    client: Client,
    endpoint: Endpoint,
    namespace: str,
    decode: Callable[[bytes], T],
    tick: ProgressCallback,
    fields: str = "",
) -> list[T]:
    """List one kind page by page, in all namespaces if none is given."""
    found: list[T] = []
    revision = ""
    async with aclosing(client.pages(endpoint, namespace or None, fields=fields)) as pages:
        async for page in pages:
            if page.revision != revision:  # the list was restarted
                found, revision = [], page.revision
            with without_collection():
                found += map(decode, page.items)
            if page.more:
                tick(f"reading {endpoint.plural}", len(found), 0)
    return found


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
