"""`Source` and `read_cluster_state`: input of a command, from files or a cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from plimsoll.api.gates import Gates
from plimsoll.client import Client, ClientConfig
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.tools.cluster_state.cluster_state import ClusterState
from plimsoll.tools.cluster_state.files import read_files
from plimsoll.tools.cluster_state.live import read_live
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress


@dataclass(frozen=True, slots=True)
class Source:
    """Files if any are given, else a cluster."""

    files: tuple[str, ...] = ()
    config: ClientConfig | None = None
    namespace: str = ""  #: namespace to read if listing all namespaces is forbidden

    @property
    def origin(self) -> str:
        """Description of the source for messages."""
        if self.files or self.config is None:
            return ", ".join("standard input" if name == "-" else name for name in self.files)
        return self.config.server


def read_cluster_state(
    source: Source,
    gates: Gates | None = None,
    profile: AccountingProfile | None = None,
    tick: ProgressCallback = no_progress,
    *,
    assume_mapping: bool = False,
) -> ClusterState:
    """Read the cluster state of a source once. With `assume_mapping`, devices that are node resources without
    a mapping get one.
    """
    if source.files or source.config is None:
        objects = read_files(source.files, tick)
    else:
        objects = asyncio.run(_read(source.config, source.namespace, tick))
    return ClusterState(objects, gates, profile, origin=source.origin, assume_mapping=assume_mapping)


async def _read(config: ClientConfig, namespace: str, tick: ProgressCallback) -> ClusterObjects:
    async with Client.connect(config) as client:
        return await read_live(client, tick, namespace=namespace)
