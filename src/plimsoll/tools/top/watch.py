"""`follow`: repeat a report whenever the cluster changes, at most once in `pace` seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plimsoll.client.client import Client
from plimsoll.common.tasks import cancel_tasks
from plimsoll.tools.cluster_state.cluster_state import ClusterState
from plimsoll.tools.cluster_state.live import follow_live

#: Minimum seconds between two reports.
PACE = 0.5


async def follow(
    client: Client,
    cluster_state: ClusterState,
    show: Callable[[], None],
    *,
    namespace: str = "",
    on_error: Callable[[str], None] = lambda why: None,
    pace: float = PACE,
) -> None:
    """Keep a cluster state up to date and call `show` after changes, until cancelled or a PlimsollError is
    raised.

    The first call comes after the initial lists.
    """
    changed = asyncio.Event()
    listed = asyncio.Event()

    def note() -> None:
        changed.set()

    async def refresh() -> None:
        while True:
            await changed.wait()
            if not listed.is_set():
                # Changes come in by the thousands while the cluster is listed: wait until they stop.
                changed.clear()
                try:
                    await asyncio.wait_for(changed.wait(), pace)
                    continue
                except TimeoutError:
                    listed.set()
            changed.clear()
            show()
            await asyncio.sleep(pace)

    refresher = asyncio.create_task(refresh())
    follower = asyncio.create_task(
        follow_live(client, cluster_state, note, namespace=namespace, on_error=on_error)
    )
    try:
        done, _ = await asyncio.wait({refresher, follower}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancel_tasks((refresher, follower))
