"""A cluster from files: what `kubectl get -o yaml|json` wrote, and what people write by hand.

Owns reading files into `Objects`. An object with a UID has been through an API server and is taken as it is;
one without is filled in with the API's defaults first. Kinds that nobody asks for are passed by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.cluster.dump import Found, read_objects
from plimsoll.errors import DecodeError
from plimsoll.tools.picture.kinds import BY_NAME
from plimsoll.tools.picture.objects import Objects
from plimsoll.validate.times import write_time
from plimsoll.validate.write import settle

#: How far long work is: what is done, how much of it, of how much (0: nobody knows).
Tick = Callable[[str, int, int], None]


def silent(what: str, done: int, whole: int) -> None:
    """Tells nobody."""


def read_files(paths: Iterable[str], tick: Tick = silent) -> Objects:
    """The objects of files, folders, archives, or of standard input (`-`)."""
    objects = Objects()
    moment = write_time(datetime.now(UTC))
    for number, found in enumerate(read_objects(paths)):
        thing = read_thing(found, moment)
        if thing is not None:
            objects.set(thing)
        if number % 500 == 0:
            tick("reading objects", number, 0)
    return objects


def read_thing(found: Found, moment: str) -> Any | None:
    """An object of a kind that is read, or None; DecodeError that says where it stands."""
    kind = BY_NAME.get(found.kind)
    if kind is None or not _is_of_group(found, kind.endpoint.group):
        return None
    tree: Any = found.tree
    metadata = tree.get("metadata")
    made_by_hand = not (isinstance(metadata, dict) and metadata.get("uid"))
    try:
        if made_by_hand:
            tree = settle(found.kind, tree, kind.view, moment)
            if kind.endpoint.namespaced and not tree["metadata"].get("namespace"):
                tree["metadata"]["namespace"] = "default"
        return codec.convert(tree, kind.view)
    except DecodeError as error:
        raise DecodeError(f"{found.where}: {found.kind} {found.name}: {error}") from None


def _is_of_group(found: Found, group: str) -> bool:
    version = found.tree.get("apiVersion", "")
    return isinstance(version, str) and version.rpartition("/")[0] == group
