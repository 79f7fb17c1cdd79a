"""Decoding of parsed objects into typed views. Errors name the location of the object."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypeVar

from plimsoll.api import codec
from plimsoll.api.meta import Wire
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.validation.write import decode_with_defaults
from plimsoll.errors import DecodeError
from plimsoll.tools.cluster_state.manifests import ParsedObject

T = TypeVar("T", bound=Wire)


def decode_views(objects: Iterable[ParsedObject], view: type[T], now: datetime | None = None) -> list[T]:
    """Decode the objects of one kind; with `now`, apply API defaults first."""
    timestamp = None if now is None else format_datetime(now)
    views = []
    for found in objects:
        if found.kind != view.__name__:
            continue
        tree: Any = found.tree
        try:
            if timestamp is not None:
                tree = decode_with_defaults(found.kind, tree, view, timestamp)
            views.append(codec.convert(tree, view))
        except DecodeError as error:
            raise DecodeError(f"{found.where}: {error}") from None
    return views
