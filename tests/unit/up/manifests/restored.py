"""Controllers on a cluster in memory that was restored from recorded objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.storage import Store
from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects
from plimsoll.up.manifests import LoadResult, restore
from tests.unit.controllers.cluster import Cluster

Tree = dict[str, Any]
#: Later than anything that dumps record.
NOW = datetime(2027, 1, 1, tzinfo=UTC).timestamp()


def parsed(trees: Iterable[Tree]) -> list[ParsedObject]:
    """Return trees as objects of a file."""
    return [ParsedObject(tree, "dump", 1, 1, f", items[{number}]") for number, tree in enumerate(trees)]


@asynccontextmanager
async def restored_cluster(
    given: str | Iterable[Tree], own: Collection[str] = ()
) -> AsyncIterator[tuple[Cluster, LoadResult]]:
    """Run all controllers on the objects of a YAML text or of trees; they have settled."""
    found = list(parse_objects(given, "dump")) if isinstance(given, str) else parsed(given)
    cluster = Cluster()
    cluster.clock.advance(NOW - cluster.clock.now())
    try:
        result = restore(cluster.api.context, found, own)
        await cluster.start()
        await cluster.settle()
        yield cluster, result
    finally:
        await cluster.stop()
        await cluster.store.close()


def stored(store: Store) -> dict[tuple[str, str, str], Tree]:
    """Return all objects by kind, namespace and name."""
    trees = [decode_tree(item.raw) for key in store.counts() for item in store.list(key).items]
    return {
        (tree["kind"], tree["metadata"].get("namespace", ""), tree["metadata"]["name"]): tree
        for tree in trees
    }
