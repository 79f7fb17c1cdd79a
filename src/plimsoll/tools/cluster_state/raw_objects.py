"""Reading of complete, undecoded objects from files or a cluster.

For the tools that work on single objects (`check`, `select`, `allocate`, `convert`, `cgroups`). From a
cluster, only the requested kinds are listed, each at the best version it serves. Objects of older
resource.k8s.io versions are converted to v1 (`api/resource_versions.py`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from plimsoll.api import codec
from plimsoll.api import resource_versions as versions
from plimsoll.client import Client
from plimsoll.client.endpoints import Endpoint
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.kinds import BY_NAME
from plimsoll.tools.cluster_state.listing import find_served, list_kind, read_pages
from plimsoll.tools.cluster_state.manifests import ParsedObject, read_objects
from plimsoll.tools.cluster_state.objects import Gap
from plimsoll.tools.cluster_state.progress import TICK_EVERY, ProgressCallback, no_progress
from plimsoll.tools.cluster_state.source import Source


@dataclass(frozen=True, slots=True)
class ObjectQuery:
    """Kinds to read from a cluster."""

    plurals: tuple[str, ...]  #: plural names, such as `resourceslices`
    needed: Collection[str] = ()  #: required kinds
    narrow: bool = False  #: read only the source's namespace, if it has one
    fields: Mapping[str, str] = field(default_factory=dict)  #: plural -> field selector
    more: tuple[Endpoint, ...] = ()  #: kinds that are not part of a cluster state
    as_written: bool = False  #: leave objects of files in the version they have, also without a kind


@dataclass(slots=True)
class RawObjects:
    """Objects that were read, and gaps."""

    found: list[ParsedObject] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def read_raw_objects(source: Source, query: ObjectQuery, tick: ProgressCallback = no_progress) -> RawObjects:
    """Read the objects of a source: all objects of files, the requested kinds of a cluster.

    Raises InputError if a required kind, or every kind, cannot be read.
    """
    if source.files or source.config is None:
        given: list[ParsedObject] = []
        with without_collection():
            for found in read_objects(source.files, needs_kind=not query.as_written):
                given.append(found)
                if len(given) % TICK_EVERY == 0:
                    tick("reading objects", len(given), 0)
        if query.narrow and source.namespace:
            given = [each for each in given if each.namespace in ("", source.namespace)]
        return RawObjects(given) if query.as_written else _as_v1(given)

    async def read() -> RawObjects:
        assert source.config is not None
        async with Client.connect(source.config) as client:
            return await list_raw_objects(client, source.origin, query, source.namespace, tick)

    return asyncio.run(read())


def _as_v1(given: Iterable[ParsedObject]) -> RawObjects:
    made = RawObjects()
    lost: Counter[tuple[str, str]] = Counter()
    for found in given:
        tree = versions.to_v1(found.tree)
        if isinstance(tree, versions.Unconvertible):
            kind = BY_NAME.get(found.kind)
            lost[kind.endpoint.plural if kind else found.kind, tree.why] += 1
        else:
            made.found.append(found if tree is found.tree else replace(found, tree=tree))
    for (plural, why), number in lost.items():
        made.gaps.append(Gap(plural, f"{number} skipped: {why}", whole=False))
    return made


# -- a cluster


async def list_raw_objects(
    client: Client, origin: str, query: ObjectQuery, namespace: str = "", tick: ProgressCallback = no_progress
) -> RawObjects:
    """List the requested kinds in order; kinds that are not served or forbidden become gaps."""
    served = {kind.endpoint.plural: endpoint for kind, endpoint in await find_served(client)}
    served |= {endpoint.plural: endpoint for endpoint in query.more}
    plurals = (*query.plurals, *(endpoint.plural for endpoint in query.more))
    given: list[ParsedObject] = []
    gaps: list[Gap] = []

    async def read(endpoint: Endpoint, place: str) -> None:
        where = namespace if query.narrow and endpoint.namespaced else place
        fields = query.fields.get(endpoint.plural, "")
        trees = await read_pages(client, endpoint, where, codec.decode_tree, tick, fields)
        given.extend(ParsedObject(tree, f"{origin}, {endpoint.plural}") for tree in trees)

    for number, plural in enumerate(plurals):
        tick(f"reading {plural}", number, len(plurals))
        needed = plural in query.needed or len(plurals) == 1
        try:
            await list_kind(plural, served[plural], namespace, gaps, read, needed=needed)
        except InputError as error:
            raise InputError(f"{origin}: {error}") from None
    missed = [gap for gap in gaps if gap.whole and (gap.kind in query.needed or len(gaps) == len(plurals))]
    if missed:
        raise InputError(f"{origin}: {missed[-1].kind} cannot be read: {missed[-1].why}")
    made = _as_v1(given)
    made.gaps = gaps + made.gaps
    return made
