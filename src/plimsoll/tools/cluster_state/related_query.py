"""`read_related`: events about some objects of a running cluster, and one workload."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing, suppress

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import EVENTS, Endpoint
from plimsoll.errors import ApiError
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.cluster_state.related import WORKLOADS
from plimsoll.tools.cluster_state.source import Source

#: Objects whose events are read, and events of each.
MAX_SUBJECTS, MAX_EVENTS = 8, 500


def read_related(
    source: Source, objects: ClusterObjects, namespace: str, names: Iterable[str], workload: str = ""
) -> None:
    """Add the events about objects of these names, and the workload of a kind with the first name.

    Files were read as a whole before. What may not be listed is left out.
    """
    if source.config is None or source.files:
        return

    async def read() -> None:
        assert source.config is not None
        async with Client.connect(source.config) as client:
            await add_related(client, objects, namespace, names, workload)

    asyncio.run(read())


async def add_related(
    client: Client, objects: ClusterObjects, namespace: str, names: Iterable[str], workload: str = ""
) -> None:
    """Read as `read_related` does, with one client."""
    subjects = list(names)[:MAX_SUBJECTS]
    queries: list[tuple[Endpoint, str]] = [(EVENTS, f"involvedObject.name={name}") for name in subjects]
    if workload:
        queries.append((WORKLOADS[workload], f"metadata.name={subjects[0]}"))
    for endpoint, fields in queries:
        head = {"apiVersion": endpoint.api_version, "kind": endpoint.kind}
        with suppress(ApiError):
            async with aclosing(client.pages(endpoint, namespace, fields=fields, limit=MAX_EVENTS)) as pages:
                for raw in (await anext(pages)).items:
                    objects.related.add({**codec.decode_tree(raw), **head})
