"""Cost of following a large cluster: 5,000 nodes and 50,000 pods over HTTP.

    python -m bench.informer [PODS]

A server in another process sends pages and events made beforehand, so that what is measured is the client and
the informer alone. Each way of keeping objects runs in a fresh process. Prints, for each: the CPU and wall
seconds of the first listing, the memory it takes, what a listing costs in which nothing has changed, and how
many events a CPU second can take in.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import sys
import time
from multiprocessing.connection import Connection
from typing import Any

from aiohttp import web

from bench.decode import make_pod
from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.client import Client, ClientConfig
from plimsoll.client.cache import Keep
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.client.informer import EventHandler, Informer

EVENTS = 20_000
PAGE = 500


def make_node(n: int) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "ephemeral-storage": "500Gi"}
    images = [
        {"names": [f"registry.example/app-{i}@sha256:{i:064x}"], "sizeBytes": 10**8 + i} for i in range(30)
    ]
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return {
        "metadata": {
            "name": f"node-{n}",
            "uid": f"7d1f8a2e-0000-4000-8000-{n:012d}",
            "resourceVersion": str(1000 + n),
            "labels": {
                "kubernetes.io/hostname": f"node-{n}",
                "topology.kubernetes.io/zone": f"z{n % 3}",
                "node.kubernetes.io/instance-type": "m5.16xlarge",
            },
        },
        "spec": {"podCIDR": f"10.{n // 256}.{n % 256}.0/24"},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": kind, "status": "False", "reason": "Fine"} for kind in kinds],
            "images": images,
        },
    }


def pages(kind: str, trees: list[dict[str, Any]]) -> list[bytes]:
    found = []
    for start in range(0, max(1, len(trees)), PAGE):
        items = [
            {k: v for k, v in tree.items() if k not in ("kind", "apiVersion")}
            for tree in trees[start : start + PAGE]
        ]
        more = str(start + PAGE) if start + PAGE < len(trees) else ""
        metadata = {"resourceVersion": "1000000", "continue": more}
        body = {"kind": f"{kind}List", "apiVersion": "v1", "metadata": metadata, "items": items}
        found.append(json.dumps(body, separators=(",", ":")).encode())
    return found


def serve(pipe: Connection, nodes: int, pods: int) -> None:
    """Serve lists of both kinds, and one watch of pods that sends all events as fast as possible."""
    lists = {
        "/api/v1/nodes": pages("Node", [make_node(n) for n in range(nodes)]),
        "/api/v1/pods": pages("Pod", [make_pod(n) for n in range(pods)]),
    }
    frames = []
    for n in range(EVENTS):
        tree = make_pod(n % pods)
        tree["metadata"]["resourceVersion"] = str(1_000_001 + n)
        frames.append(
            json.dumps({"type": "MODIFIED", "object": tree}, separators=(",", ":")).encode() + b"\n"
        )
    stream = b"".join(frames)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            place = int(request.query.get("continue", "0")) // PAGE
            return web.Response(body=lists[request.path][place], content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        if request.path.endswith("pods") and request.query["resourceVersion"] == "1000000":
            for start in range(0, len(stream), 1 << 16):
                await response.write(stream[start : start + (1 << 16)])
        await asyncio.sleep(3600)
        return response

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        pipe.send(runner.addresses[0][1])
        await asyncio.get_running_loop().run_in_executor(None, pipe.poll, None)
        os._exit(0)

    asyncio.run(run())


class Count(EventHandler[Any]):
    def __init__(self) -> None:
        self.changed = 0
        self.done = asyncio.Event()

    def on_changed(self, old: Any, new: Any) -> None:
        self.changed += 1
        if self.changed == EVENTS:
            self.done.set()


def memory() -> int:
    """Return the resident bytes of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(port: int, keep: Keep, pipe: Connection) -> None:
    pipe.send(asyncio.run(_measure(port, keep)))


async def _measure(port: int, keep: Keep) -> dict[str, float]:
    async with Client.connect(ClientConfig(f"http://127.0.0.1:{port}")) as client:
        nodes = Informer(client, NODES, lambda raw: codec.decode(raw, Node), keep=keep, page=PAGE)
        pods = Informer(client, PODS, lambda raw: codec.decode(raw, Pod), keep=keep, page=PAGE)
        count = Count()
        pods.add_handler(count)
        gc.collect()
        before, cpu, wall = memory(), time.process_time(), time.perf_counter()
        await nodes.list_all()
        await pods.list_all()
        found = {"list_cpu": time.process_time() - cpu, "list_wall": time.perf_counter() - wall}
        start = time.perf_counter()
        gc.collect()
        found["gc"] = time.perf_counter() - start
        found["memory"] = memory() - before
        found["objects"] = len(nodes) + len(pods)
        cpu = time.process_time()
        await nodes.list_all()
        await pods.list_all()
        found["again_cpu"] = time.process_time() - cpu
        cpu = time.process_time()
        task = asyncio.create_task(pods.run())
        await count.done.wait()
        found["events"] = EVENTS / (time.process_time() - cpu)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found


def main(count: int) -> None:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    nodes = count // 10
    server = context.Process(target=serve, args=(theirs, nodes, count), daemon=True)
    server.start()
    port = ours.recv()
    print(f"{nodes:,} nodes and {count:,} pods, pages of {PAGE}; then {EVENTS:,} changed pods over the watch")
    head = ("kept", "listed: cpu", "wall", "memory", "per object", "full gc", "listed again", "events/cpu-s")
    print(" ".join(f"{name:>13}" for name in head))
    for keep in ("view", "raw", "both"):
        mine, its = context.Pipe()
        child = context.Process(target=measure, args=(port, keep, its))
        child.start()
        found = mine.recv()
        child.join()
        row = (
            keep,
            f"{found['list_cpu']:.2f} s",
            f"{found['list_wall']:.2f} s",
            f"{found['memory'] / 2**20:.0f} MiB",
            f"{found['memory'] / found['objects'] / 1024:.1f} KiB",
            f"{found['gc'] * 1000:.0f} ms",
            f"{found['again_cpu']:.2f} s",
            f"{found['events']:,.0f}",
        )
        print(" ".join(f"{cell:>13}" for cell in row))
    ours.send("done")
    server.join(5)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000)
