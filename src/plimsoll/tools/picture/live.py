"""A cluster as it runs, over its API.

Owns `read_live` (everything once) and `follow_live` (and every change from then on). Both only read. What the
cluster does not serve, or what we may not see, is a `Gap` where the picture can do without it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.cluster.client.client import Client
from plimsoll.cluster.client.endpoints import Endpoint
from plimsoll.cluster.controllers.discovery import discover
from plimsoll.cluster.informer import Handler, Informer
from plimsoll.errors import ApiError, DecodeError, InputError, UnreachableError
from plimsoll.tools.picture.files import Tick, silent
from plimsoll.tools.picture.kinds import KINDS, Pictured
from plimsoll.tools.picture.objects import Gap, Objects
from plimsoll.tools.picture.picture import Picture


async def read_live(client: Client, tick: Tick = silent) -> Objects:
    """Everything that is there now."""
    objects = Objects()
    served = await _served(client)
    for number, (kind, endpoint) in enumerate(served):
        tick(f"reading {kind.endpoint.plural}", number, len(served))
        if endpoint is None:
            objects.gaps.append(Gap(kind.endpoint.plural, "not served by this cluster"))
            continue
        try:
            listing = await client.list(endpoint)
        except UnreachableError:
            raise
        except ApiError as error:
            _note(objects, kind, error)
            continue
        for raw in listing.items:
            try:
                objects.set(codec.decode(raw, kind.view))
            except DecodeError as error:
                objects.gaps.append(Gap(kind.endpoint.plural, f"one cannot be read: {error}"))
    return objects


async def follow_live(client: Client, picture: Picture, changed: Callable[[], None]) -> None:
    """Keep a picture that was read with `client` up to date; ends only by cancellation.

    `changed` is called after each change, and once when everything has been listed.
    """
    async with asyncio.TaskGroup() as group:
        for informer in await live_informers(client, picture, changed):
            group.create_task(informer.run())


async def live_informers(
    client: Client, picture: Picture, changed: Callable[[], None]
) -> list[Informer[Any]]:
    """What keeps a picture up to date, one for each kind that can be read; somebody has to run them.

    Kinds that cannot be read become gaps of the picture, or InputError if nothing can be said without them.
    """
    informers: list[Informer[Any]] = []
    gaps = Objects()
    for kind, endpoint in await _served(client):
        if endpoint is None:
            gaps.gaps.append(Gap(kind.endpoint.plural, "not served by this cluster"))
            continue
        try:
            async with aclosing(client.pages(endpoint, limit=1)) as pages:
                await anext(pages)
        except UnreachableError:
            raise
        except ApiError as error:
            _note(gaps, kind, error)
            continue
        informer: Informer[Any] = Informer(
            client, endpoint, partial(_decode, view=kind.view), optional=not kind.needed
        )
        informer.add_handler(_Ear(picture, changed))
        informers.append(informer)
    known = {gap.kind for gap in picture.objects.gaps}
    picture.objects.gaps += [gap for gap in gaps.gaps if gap.kind not in known]
    return informers


def _decode(raw: bytes, view: type[Any]) -> Any:
    return codec.decode(raw, view)


class _Ear(Handler[Any]):
    def __init__(self, picture: Picture, changed: Callable[[], None]) -> None:
        self._picture = picture
        self._changed = changed

    def on_added(self, new: Any) -> None:
        self._picture.set(new)
        self._changed()

    def on_changed(self, old: Any, new: Any) -> None:
        self._picture.set(new)
        self._changed()

    def on_removed(self, old: Any) -> None:
        self._picture.remove(old)
        self._changed()


def _note(objects: Objects, kind: Pictured, error: ApiError) -> None:
    plural = kind.endpoint.plural
    if kind.needed:
        fix = "ask with a user who may list them in all namespaces" if error.code in (401, 403) else ""
        raise InputError(f"{plural} cannot be read: {error}" + (f"; {fix}" if fix else "")) from None
    objects.gaps.append(Gap(plural, str(error)))


async def _served(client: Client) -> list[tuple[Pictured, Endpoint | None]]:
    """What to read, each kind at a version that the server has; None where it has none."""
    versions: dict[tuple[str, str], tuple[str, ...]] = {}
    known = True
    try:
        for each in await discover(client):
            versions[each.endpoint.group, each.endpoint.plural] = each.versions
    except UnreachableError:
        raise
    except ApiError:
        known = False
    found: list[tuple[Pictured, Endpoint | None]] = []
    for kind in KINDS:
        endpoint = kind.endpoint
        offered = versions.get((endpoint.group, endpoint.plural), ())
        if not offered:
            found.append((kind, None if known and not kind.needed else endpoint))
        else:
            found.append((kind, endpoint if endpoint.version in offered else endpoint.at(offered[0])))
    return found
