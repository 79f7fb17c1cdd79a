"""Latency of one client while another floods the server, with and without priority and fairness.

    python -m bench.flood [--seconds 8] [--connections 200]

Starts `plimsoll server` as a process of its own. Another process keeps one request on each of many
connections (creates, or lists of 500 pods); meanwhile a client of another user gets a pod and creates pods,
one request at a time. The table shows the p50, p99 and longest latency of its requests: without the flood;
while the flood's user is in the same priority level (global-default); while the flood is exempt, which is
what would happen without priority and fairness. The last columns are the answers to the flood per second, and
how many of them were 429.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import aiohttp

from bench.server import Server, make_pod
from plimsoll.client.kubeconfig import find_config

PODS = "/api/v1/namespaces/default/pods"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
LISTED = 500


def open_session(url: str, token: str, user: str, connections: int) -> aiohttp.ClientSession:
    """Return a session of a user, or of the administrator if the name is empty."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    if user:
        headers["Impersonate-User"] = user
    connector = aiohttp.TCPConnector(ssl=False, limit=connections)
    return aiohttp.ClientSession(url, headers=headers, connector=connector)


async def flood(url: str, token: str, user: str, kind: str, connections: int, seconds: float) -> Counter[int]:
    """Send requests on all connections until the time is over; count the answers by code."""
    codes: Counter[int] = Counter()
    end = time.monotonic() + seconds

    async def work(session: aiohttp.ClientSession, worker: int) -> None:
        number = 0
        while time.monotonic() < end:
            number += 1
            if kind == "lists":
                request = session.get(f"{PODS}?limit={LISTED}")
            else:
                name = f"{user or 'exempt'}-{worker}-{number}"
                request = session.post(PODS, data=json.dumps(make_pod(name)))
            try:
                async with request as response:
                    await response.read()
                    codes[response.status] += 1
            except aiohttp.ClientError:  # a new connection beyond the limits of unauthenticated ones
                codes[0] += 1

    async with open_session(url, token, user, connections) as session:
        await asyncio.gather(*(work(session, worker) for worker in range(connections)))
    return codes


def run_flood(results: Connection, *settings: Any) -> None:
    results.send(asyncio.run(flood(*settings)))


async def measure(url: str, token: str, seconds: float, label: str) -> list[float]:
    """Return the latencies of single requests of the other user."""
    delays = []
    end = time.monotonic() + seconds
    async with open_session(url, token, "bob", 1) as session:
        number = 0
        while time.monotonic() < end:
            number += 1
            begin = time.perf_counter()
            request = (
                session.get(f"{PODS}/listed-0")
                if number % 2
                else session.post(PODS, data=json.dumps(make_pod(f"bob-{label}-{number}")))
            )
            async with request as response:
                assert response.status in (200, 201), await response.text()
            delays.append(time.perf_counter() - begin)
            await asyncio.sleep(0.01)
    return delays


async def prepare(url: str, token: str) -> None:
    async with open_session(url, token, "", 1) as session:
        for user in ("bob", "eve"):
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
            tree = {"metadata": {"name": user}, "roleRef": role, "subjects": [subject]}
            async with session.post(BINDINGS, data=json.dumps(tree)) as response:
                assert response.status == 201, await response.text()
        for number in range(LISTED):
            async with session.post(PODS, data=json.dumps(make_pod(f"listed-{number}"))) as response:
                assert response.status == 201, await response.text()


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--connections", type=int, default=200)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        server = Server(Path(directory))
        server.start()
        try:
            config = find_config(server.kubeconfig, environ={})
            assert config.token is not None
            assert config.token.data is not None
            url, token = config.server, config.token.data.decode().strip()
            asyncio.run(prepare(url, token))
            print(f"{'flood':<32}{'p50 ms':>9}{'p99 ms':>9}{'max ms':>9}{'flood/s':>10}{'429':>8}")
            for kind, user in (
                ("", ""),
                ("creates", "eve"),
                ("creates", ""),
                ("lists", "eve"),
                ("lists", ""),
            ):
                report(url, token, kind, user, options.connections, options.seconds)
        finally:
            server.stop()


def report(url: str, token: str, kind: str, user: str, connections: int, seconds: float) -> None:
    """Measure one row of the table and print it."""
    codes: Counter[int] = Counter()
    if kind:
        ours, theirs = multiprocessing.Pipe()
        settings = (theirs, url, token, user, kind, connections, seconds + 2)
        process = multiprocessing.get_context("spawn").Process(target=run_flood, args=settings)
        process.start()
        time.sleep(2)  # until all connections are open
    label = f"{kind or 'none'}-{user or 'exempt'}"
    delays = sorted(asyncio.run(measure(url, token, seconds, label)))
    if kind:
        codes = ours.recv()
        process.join()
    name = f"{kind}, {'same level' if user else 'exempt'}" if kind else "none"
    middle, late, longest = (delays[int(len(delays) * part)] * 1e3 for part in (0.5, 0.99, 0.9999))
    rate = codes.total() / (seconds + 2)
    print(f"{name:<32}{middle:>9.1f}{late:>9.1f}{longest:>9.1f}{rate:>10.0f}{codes[429]:>8}", flush=True)


if __name__ == "__main__":
    main()
