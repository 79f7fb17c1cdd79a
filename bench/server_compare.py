"""Benchmark of two versions of the API server against each other, in CPU time.

    python -m bench.server_compare --baseline DIRECTORY/src [--rounds 10] [--batch 200] [--watchers 100]
        [--no-token]

Starts `plimsoll server` twice, from this checkout and from the sources of another, and sends batches of the
same requests to both in turn, so that other load on the machine affects both alike. Prints the CPU time of
each server per request (median of the rounds) and the median of the ratios of the rounds. With `--no-token`
pods do not mount the token of their service account, so that both versions store the same.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from bench.server import Server, make_pod
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS

WIDTH = 64
LISTS = 12


class Side:
    """One of the two servers, with a client and its measurements: microseconds of CPU by operation."""

    def __init__(self, server: Server, client: Client, *, token: bool = True) -> None:
        self.server = server
        self.client = client
        self._token = token
        self.costs: dict[str, list[float]] = {}

    def cpu(self) -> int:
        """Return the CPU time of all threads so far in nanoseconds."""
        assert self.server.process is not None
        threads = Path(f"/proc/{self.server.process.pid}/task").glob("*/schedstat")
        return sum(int(path.read_text().split()[0]) for path in threads)

    async def measure(
        self, name: str, count: int, call: Callable[[int], Awaitable[object]], width: int = WIDTH
    ) -> None:
        numbers = iter(range(count))

        async def work() -> None:
            for number in numbers:
                await call(number)

        before = self.cpu()
        await asyncio.gather(*(work() for _ in range(width)))
        self.costs.setdefault(name, []).append((self.cpu() - before) / count / 1e3)

    def make_pod(self, name: str) -> dict[str, Any]:
        pod = make_pod(name)
        if not self._token:
            pod["spec"]["automountServiceAccountToken"] = False
        return pod

    async def run_requests(self, turn: int, count: int) -> None:
        client = self.client

        async def create(number: int) -> object:
            return await client.create(PODS, self.make_pod(f"p{turn}-{number}"))

        async def bind(number: int) -> object:
            name = f"p{turn}-{number}"
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
            return await client.post(PODS, name, "binding", binding, "default")

        async def patch(number: int) -> object:
            status = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
            return await client.patch(
                PODS, f"p{turn}-{number}", status, "default", subresource="status", type="strategic"
            )

        async def get(number: int) -> object:
            return await client.get_raw(PODS, f"p{turn}-{number}", "default")

        async def list_all(number: int) -> object:
            return await client.call("GET", "/api/v1/pods")

        async def delete(number: int) -> object:
            return await client.delete(PODS, f"p{turn}-{number}", "default")

        await self.measure("create a pod", count, create)
        await self.measure("bind it", count, bind)
        await self.measure("patch its status", count, patch)
        await self.measure("get it", count, get)
        await self.measure(f"list {count}", LISTS, list_all, width=2)
        await self.measure("delete it", count, delete)
        # There is no kubelet: without this the pods would stay, and the lists would grow with every round.
        await asyncio.gather(*(client.delete(PODS, f"p{turn}-{n}", "default", grace=0) for n in range(count)))

    async def run_watches(self, turn: int, watchers: int, events: int) -> None:
        since = (await self.client.list(PODS)).revision
        synced = [asyncio.Event() for _ in range(watchers)]

        async def follow(first: asyncio.Event) -> None:
            count = 0
            async for event in self.client.watch(PODS, since=since):
                first.set()
                count += event.type == "ADDED"
                if count == events + 1:
                    return

        tasks = [asyncio.create_task(follow(first)) for first in synced]
        await self.client.create(PODS, self.make_pod(f"f{turn}"))
        await asyncio.gather(*(first.wait() for first in synced))
        before = self.cpu()
        for number in range(events):
            await self.client.create(PODS, self.make_pod(f"f{turn}-{number}"))
        await asyncio.gather(*tasks)
        cost = (self.cpu() - before) / (watchers * events) / 1e3
        names = [f"f{turn}", *(f"f{turn}-{number}" for number in range(events))]
        await asyncio.gather(*(self.client.delete(PODS, name, "default", grace=0) for name in names))
        self.costs.setdefault(f"event to {watchers} watches", []).append(cost)


async def compare(directory: Path, baseline: Path, options: argparse.Namespace) -> None:
    environments: Mapping[str, Mapping[str, str]] = {
        "baseline": {**os.environ, "PYTHONPATH": str(baseline)},
        "current": os.environ,
    }
    sides: dict[str, Side] = {}
    async with AsyncExitStack() as stack:
        for name, environment in environments.items():
            server = Server(directory / name, environment)
            server.start()
            stack.callback(server.stop)
            client = await stack.enter_async_context(server.client())
            sides[name] = Side(server, client, token=not options.no_token)
        for turn in range(options.rounds + 1):
            # The first round warms up; then who comes first changes with every round.
            for side in list(sides.values())[:: 1 if turn % 2 else -1]:
                await side.run_requests(turn, options.batch)
                await side.run_watches(turn, options.watchers, 5)
            if turn == 0:
                for side in sides.values():
                    side.costs.clear()
    print(f"{'us of CPU each':<24} {'baseline':>9} {'current':>9}  ratio (median of rounds, middle half)")
    for operation, old in sides["baseline"].costs.items():
        new = sides["current"].costs[operation]
        ratios = sorted(b / a for a, b in zip(old, new, strict=True))
        low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
        print(
            f"{operation:<24} {statistics.median(old):>9.0f} {statistics.median(new):>9.0f}  "
            f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--baseline", type=Path, required=True, help="src directory of the other version")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=200)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--no-token", action="store_true", help="pods without the token of their account")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(compare(Path(directory), options.baseline, options))


if __name__ == "__main__":
    main()
