"""Latency of the dashboard on a large cluster, and the lag of its event loop.

    python -m bench.dashboard [--nodes 5000] [--pods 10]

A made-up cluster (`tests/dumps.py`) is shown and asked over HTTP. Prints for each question how long the first
answer took, how long one of the same moment, and how long one after a pod has changed; and by how much the
event loop lay behind at worst, which is what everybody else feels. Says at the end how much faster a change
is than starting anew, and whether the ledger of all nodes came within 0.3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time
from typing import Any

import aiohttp
from tests.dumps import big_cluster, node_name

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.kinds import BY_NAME
from plimsoll.tools.dashboard import Dashboard
from plimsoll.tools.dashboard.changes import ObjectChange

TARGET = 0.3
NEW = "apiVersion: v1\nkind: Pod\nmetadata: {name: new}\nspec: {containers: [{name: c, image: x}]}\n"
PATHS = (
    "api/nodes",
    "api/overview",
    f"api/nodes/{node_name(0)}",
    "api/devices",
    "api/devices?q=gpu-3&state=free",
    "api/pools?limit=200",
    "api/claims",
    "api/pods?limit=100",
    "api/namespaces",
    "metrics",
    "api/pods?state=pending",
    "api/explain/pod/work/waiting-0000",
    "api/audit",
    "api/whatif",
)


class Lag:
    """Longest delay of the event loop."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def watch(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.005)
            self.worst = max(self.worst, time.perf_counter() - began - 0.005)

    def take(self) -> float:
        worst, self.worst = self.worst, 0.0
        return worst


def make_cluster_state(nodes: int, pods: int) -> ClusterState:
    objects = ClusterObjects()
    for tree in big_cluster(nodes, pods_per_node=pods, devices=8, pending=60):
        objects.set(codec.convert(tree, BY_NAME[tree["kind"]].view))
    return ClusterState(objects, origin="made up")


async def ask(session: aiohttp.ClientSession, url: str, path: str) -> tuple[float, int]:
    """Return the seconds of a request and the bytes of its response."""
    options: dict[str, Any] = {"method": "GET"}
    if path == "api/whatif":
        options = {"method": "POST", "json": {"add": NEW}}
    began = time.perf_counter()
    async with session.request(url=url + path, headers={"Accept-Encoding": "gzip"}, **options) as response:
        body = await response.read()
        if response.status != 200:
            raise SystemExit(f"{path}: {response.status} {body[:200].decode()}")
        size = int(response.headers.get("Content-Length") or len(body))
    return time.perf_counter() - began, size


async def measure(cluster_state: ClusterState) -> dict[str, tuple[float, float, float]]:
    dashboard = Dashboard(cluster_state, query_timeout=300.0)
    pod = next(each for each in cluster_state.objects.all(Pod) if each.spec.node_name)
    found: dict[str, tuple[float, float, float]] = {}
    await dashboard.start()
    lag = Lag()
    watching = asyncio.create_task(lag.watch())
    try:
        async with aiohttp.ClientSession(auto_decompress=False) as session:
            print(f"{'':36} {'first':>9} {'again':>9} {'changed':>9}   {'bytes':>8}  loop behind")
            for path in PATHS:
                lag.take()
                first, size = await ask(session, dashboard.url, path)
                again, _ = await ask(session, dashboard.url, path)
                dashboard.service.on_change(ObjectChange(pod, gone=True))
                await dashboard.service.catch_up()
                dashboard.service.on_change(ObjectChange(pod))
                await dashboard.service.catch_up()
                changed, _ = await ask(session, dashboard.url, path)
                found[path] = (first, again, changed)
                times = " ".join(f"{1000 * each:7.1f}ms" for each in found[path])
                print(f"{path:36} {times}   {size:8}  {1000 * lag.take():6.1f} ms", flush=True)
                if path == PATHS[0]:  # as the process does
                    gc.collect()
                    gc.freeze()
    finally:
        watching.cancel()
        await dashboard.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10, help="per node")
    given = parser.parse_args()
    cluster_state = make_cluster_state(given.nodes, given.pods)
    objects = cluster_state.objects
    print(f"{given.nodes} nodes, {len(objects.all(Pod))} pods, {len(objects)} objects")
    gc.set_threshold(50_000, 50, 100)
    found = asyncio.run(measure(cluster_state))
    first, again, changed = found["api/nodes"]
    verdict = "yes" if max(again, changed) < TARGET else "no"
    print(
        f"all nodes after a change: {first / changed:.0f} times faster than at first; below 0.3 s: {verdict}"
    )


if __name__ == "__main__":
    main()
