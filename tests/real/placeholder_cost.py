"""Cost of placeholder pods on a real control plane with default gates: API calls, latency and throughput.

    python -m tests.real.placeholder_cost [--pods N] [--nodes N]

Pods that each claim CPUs are created at full speed, with and without placeholders. Simulated kubelets admit
them, and their writes are counted too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack, aclosing, suppress

from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, PODS, RESOURCE_CLAIM_TEMPLATES
from plimsoll.errors import ApiError
from tests.directories import short_directory
from tests.real.placeholder_mixes import LANE, claim_spec, furnish, make_pod, publish
from tests.real.simulated_kubelets import SimulatedKubelets
from tests.real.stock_plane import run_stock_plane

NS = "cost"
_AMOUNTS = {"cpu": "64", "memory": "256Gi", "pods": "250", "ephemeral-storage": "100Gi"}
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_VERBS = ("POST", "PUT", "PATCH", "APPLY", "DELETE", "GET")
_KINDS = ("pods", "resourceclaims")
_WIDTH = 40


async def measure(mode: str, pods: int, nodes: int) -> str:
    """Create pods with claims, one by one and then together; describe what it took."""
    async with AsyncExitStack() as stack:
        directory = stack.enter_context(short_directory())
        plane = stack.enter_context(run_stock_plane(directory, placeholders=mode))
        client = await stack.enter_async_context(Client.connect(plane.server.config))
        await plane.prepare(client)
        await furnish(client)
        kubelets = SimulatedKubelets(client, delay=0.0)
        for number in range(nodes):
            await kubelets.add(f"n{number}", _AMOUNTS, {LANE: "0"})
            await publish(client, f"n{number}", "64", 0)
        await client.create(NAMESPACES, {"metadata": {"name": NS}})
        template = {"metadata": {"name": "one"}, "spec": {"spec": claim_spec("cpus", "1")}}
        await client.create(RESOURCE_CLAIM_TEMPLATES, template, NS)
        await stack.enter_async_context(kubelets.running())
        stack.enter_context(plane.running())
        bound: dict[str, float] = {}
        follow = asyncio.create_task(_follow(client, bound))
        stack.callback(follow.cancel)
        created: dict[str, float] = {}

        async def create(name: str) -> None:
            claims = {"c": {"resourceClaimTemplateName": "one"}}
            await client.create(PODS, make_pod(name, "0", "10m", claims=claims), NS)
            created[name] = time.perf_counter()

        async def await_bound() -> None:
            while created.keys() - bound.keys():
                await asyncio.sleep(0.005)

        for number in range(10):  # the first ones warm up
            await create(f"warm-{number}")
        await await_bound()
        singles = [f"single-{number}" for number in range(30)]
        for name in singles:
            await create(name)
            await await_bound()
        before, begin = await _count(client), time.perf_counter()
        names = iter([f"p-{number}" for number in range(pods)])

        async def some() -> None:
            for name in names:
                await create(name)

        await asyncio.gather(*(some() for _ in range(_WIDTH)))
        await await_bound()
        seconds = max(bound.values()) - begin
        await asyncio.sleep(2)  # for what kubelets still write
        calls = await _count(client) - before
        alone = sorted(bound[name] - created[name] for name in singles)
        delays = sorted(bound[name] - created[name] for name in created if name.startswith("p-"))
        listed = ", ".join(
            f"{name} {count / pods:.2f}" for name, count in sorted(calls.items()) if count >= pods / 20
        )
        return (
            f"{mode}: one by one p50 {alone[len(alone) // 2] * 1e3:.0f} ms; {pods} together "
            f"{pods / seconds:.0f} pods/s, p50 {delays[pods // 2] * 1e3:.0f} ms, "
            f"p99 {delays[pods * 99 // 100] * 1e3:.0f} ms; "
            f"calls per pod: {sum(calls.values()) / pods:.2f} ({listed})\n"
        )


async def _follow(client: Client, bound: dict[str, float]) -> None:
    """Record when each pod is bound."""
    while True:
        listing = await client.list(PODS, NS, fields="spec.nodeName!=")
        _note(listing.items, bound)
        watch = client.watch(PODS, NS, since=listing.revision, fields="spec.nodeName!=")
        with suppress(ApiError):  # it ends after a time
            async with aclosing(watch) as events:
                async for event in events:
                    if event.type != "BOOKMARK":
                        _note([event.raw], bound)


def _note(pods: Iterable[bytes], bound: dict[str, float]) -> None:
    for raw in pods:
        bound.setdefault(json.loads(raw)["metadata"]["name"], time.perf_counter())


async def _count(client: Client) -> Counter[str]:
    """Return the calls that the API server has answered, by verb and resource."""
    found: Counter[str] = Counter()
    for line in (await client.call("GET", "/metrics")).body.decode().splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(_LABEL.findall(line))
            if labels["verb"] in _VERBS and labels["resource"] in _KINDS:
                name = "/".join(filter(None, (labels["resource"], labels.get("subresource"))))
                found[f"{labels['verb']} {name}"] += int(float(line.rpartition(" ")[2]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--nodes", type=int, default=20)
    options = parser.parse_args()
    for mode in ("Off", "Auto"):
        sys.stdout.write(asyncio.run(measure(mode, options.pods, options.nodes)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
