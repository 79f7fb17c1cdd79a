"""Benchmark of the API server over HTTPS, with every write on disk before it is acknowledged.

    python -m bench.server [--objects 100000] [--watchers 1000] [--directory DIRECTORY]

Starts `plimsoll server` as a process of its own and prints: writes (create, bind, patch a status) and reads
for 1, 32 and 128 requests in flight; what a write and a list cost with more and more objects stored; the
fan-out of events to many watchers; how long a restart with many objects takes. The client takes CPU too, so
the server's own CPU per request stands beside the rates: that is what a faster client would see.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.api.codec import decode
from plimsoll.api.meta import Object
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.kubeconfig import find_config

PADDING = "x" * 1500
TICKS = os.sysconf("SC_CLK_TCK")


def make_pod(name: str) -> dict[str, Any]:
    """Return a pod of about 2.3 kB once stored."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"a": PADDING},
            "labels": {"a": "b"},
        },
        "spec": {
            "containers": [
                {"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
            ]
        },
    }


class Server:
    """Server process."""

    def __init__(self, directory: Path, environment: Mapping[str, str] = os.environ) -> None:
        self._directory = directory
        self._environment = environment
        self.kubeconfig = directory / "kubeconfig"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start the server; return the seconds until it responds."""
        self._directory.mkdir(parents=True, exist_ok=True)
        self.kubeconfig.unlink(missing_ok=True)
        begin = time.perf_counter()
        command = [
            sys.executable,
            "-m",
            "plimsoll.cli.main",
            "server",
            "--data",
            str(self._directory / "data"),
        ]
        command += ["--listen", "127.0.0.1:0", "--kubeconfig-out", str(self.kubeconfig)]
        command.append("--no-controllers")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=self._environment)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        return time.perf_counter() - begin

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()

    def cpu(self) -> float:
        """Return the CPU seconds so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory(self) -> int:
        """Return the resident memory in MiB."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20

    def client(self) -> Client:
        return Client.connect(find_config(self.kubeconfig, environ={}))


async def measure(
    server: Server, name: str, count: int, width: int, call: Callable[[int], Awaitable[object]]
) -> None:
    """Make a number of concurrent calls; print rate, latencies and the server's CPU time per call."""
    delays: list[float] = []
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            start = time.perf_counter()
            await call(number)
            delays.append(time.perf_counter() - start)

    used, begin = server.cpu(), time.perf_counter()
    await asyncio.gather(*(work() for _ in range(width)))
    taken, used = time.perf_counter() - begin, server.cpu() - used
    delays.sort()
    middle, late = delays[count // 2] * 1e3, delays[count * 99 // 100] * 1e3
    print(
        f"  {name:<22} {width:>4} in flight {count / taken:>8.0f}/s  p50 {middle:>7.2f} ms  "
        f"p99 {late:>7.2f} ms  server {used / count * 1e6:>6.0f} us CPU each"
    )


async def bench_requests(server: Server) -> None:
    print("requests")
    async with server.client() as client:
        for width, count in ((1, 300), (32, 3000), (128, 3000)):

            async def create(number: int, width: int = width) -> object:
                return await client.create(PODS, make_pod(f"w{width}-{number}"))

            async def bind(number: int, width: int = width) -> object:
                name = f"w{width}-{number}"
                binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
                return await client.post(PODS, name, "binding", binding, "default")

            async def patch(number: int, width: int = width) -> object:
                status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
                return await client.patch(
                    PODS, f"w{width}-{number}", status, "default", subresource="status", type="strategic"
                )

            async def get(number: int, width: int = width) -> object:
                return await client.get_raw(PODS, f"w{width}-{number}", "default")

            await measure(server, "create a pod", count, width, create)
            await measure(server, "bind it", count, width, bind)
            await measure(server, "patch its status", count, width, patch)
            await measure(server, "get it", count, width, get)


async def bench_watches(server: Server, watchers: int, events: int) -> None:
    print(f"fan-out to {watchers} watchers")
    async with server.client() as client:
        since = (await client.list(PODS)).revision
        seen, done = [0], asyncio.Event()
        arrivals: list[float] = []
        started: dict[str, float] = {}

        async def follow(first: bool) -> None:
            count = 0
            async for event in client.watch(PODS, since=since):
                if event.type != "ADDED":
                    continue
                count += 1
                seen[0] += 1
                if first:
                    arrivals.append(time.perf_counter() - started[decode(event.raw, Object).metadata.name])
                if seen[0] >= watchers * events:
                    done.set()
                if count == events:
                    return

        tasks = [asyncio.create_task(follow(number == 0)) for number in range(watchers)]
        await asyncio.sleep(3)
        used, begin = server.cpu(), time.perf_counter()
        for number in range(events):
            started[f"f{number}"] = time.perf_counter()
            await client.create(PODS, make_pod(f"f{number}"))
        await done.wait()
        taken, used = time.perf_counter() - begin, server.cpu() - used
        await asyncio.gather(*tasks)
        arrivals.sort()
        total = watchers * events
        print(
            f"  {events} events: {total / taken:.0f} deliveries/s, "
            f"server {used / total * 1e6:.1f} us CPU each ({total / used:.0f} per CPU-second); "
            f"to the first watcher p50 {arrivals[events // 2] * 1e3:.0f} ms"
        )


def fill(path: Path, first: int, last: int) -> None:
    """Write objects directly into the store."""

    async def write() -> None:
        store = Store.open(path, durability="normal")
        for number in range(first, last):
            tree = make_pod(f"s{number}")
            store.create(ObjectKey("pods", "default", f"s{number}"), tree)
            if number % 2000 == 0:
                await store.wait_durable(store.revision)
        await store.close()

    asyncio.run(write())


async def bench_size(server: Server, stored: int) -> None:
    async with server.client() as client:

        async def create(number: int) -> object:
            return await client.create(PODS, make_pod(f"z{stored}-{number}"))

        await measure(server, f"create, {stored} stored", 1000, 32, create)
        begin, used = time.perf_counter(), server.cpu()
        listing = await client.call("GET", "/api/v1/pods")
        taken, used = time.perf_counter() - begin, server.cpu() - used
        size = len(listing.body) / 1e6
        print(f"  list of {stored} in one page: {taken:.2f} s, {size:.0f} MB, server {used:.2f} s CPU")
        begin = time.perf_counter()
        await client.list(PODS, fields="spec.nodeName=nowhere")
        first = time.perf_counter() - begin
        begin = time.perf_counter()
        await client.list(PODS, fields="spec.nodeName=nowhere")
        again = time.perf_counter() - begin
        print(f"  list by node: {first * 1e3:.0f} ms the first time, {again * 1e3:.0f} ms then")
    print(f"  memory {server.memory()} MiB")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=int, default=100_000)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--directory", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.directory) as directory:
        server = Server(Path(directory) / "empty")
        print(f"start of an empty server: {server.start():.2f} s until it answers")
        asyncio.run(bench_requests(server))
        asyncio.run(bench_watches(server, options.watchers, 20))
        server.stop()
        print("the same with more objects stored")
        full = Path(directory) / "full"
        (full / "data").mkdir(parents=True)
        server, stored = Server(full), 0
        for size in (options.objects // 100, options.objects // 10, options.objects):
            fill(full / "data" / "store.db", stored, size)
            stored = size
            print(f"restart with {stored} objects: {server.start():.2f} s until it answers")
            asyncio.run(bench_size(server, stored))
            server.stop()


if __name__ == "__main__":
    main()
