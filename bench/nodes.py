"""Cost of many simulated nodes in one process, API server included.

    python -m bench.nodes [NODES] [SECONDS]

Starts an API server with its controllers and so many nodes that run nothing, gives each node a few pods, and
prints: how long it takes until all are ready, until all pods run, the memory a node takes, and the share of a
CPU that heartbeats cost when nothing happens.
"""

from __future__ import annotations

import os
import sys
import time

from plimsoll.up.local_cluster import LocalCluster

PODS_PER_NODE = 2


def resident() -> float:
    """Return the resident memory in MB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def busy() -> float:
    """Return the CPU seconds of this process."""
    times = os.times()
    return times.user + times.system


def measure(nodes: int, seconds: float) -> None:
    with LocalCluster(nodes=1):  # everything is loaded
        pass
    memory, began = resident(), time.perf_counter()
    with LocalCluster(nodes=nodes) as cluster:
        print(f"{nodes} nodes ready after        {time.perf_counter() - began:8.2f} s")
        print(f"memory for each node            {(resident() - memory) / nodes * 1000:8.1f} kB")
        idle(seconds, "idle")
        began, before = time.perf_counter(), busy()
        names = [f"node-{number % nodes}" for number in range(nodes * PODS_PER_NODE)]
        for number, name in enumerate(names):
            container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
            tree = {"metadata": {"name": f"p{number}"}, "spec": {"nodeName": name, "containers": [container]}}
            cluster.client.create("pods", tree, "default")
        made = time.perf_counter() - began
        while cluster.client.list("pods", fields="status.phase!=Running"):
            time.sleep(0.05)
        took, cost = time.perf_counter() - began, busy() - before
        print(f"{len(names)} pods made after         {made:8.2f} s, running after {took:.2f} s")
        print(f"CPU for each pod                {cost / len(names) * 1000:8.2f} ms")
        idle(seconds, "with pods")
        failures = sum(cluster.agent(f"node-{number}").status_reporter.failures for number in range(nodes))
        print(f"heartbeats that failed          {failures:8d}")


def idle(seconds: float, what: str) -> None:
    before, began = busy(), time.perf_counter()
    time.sleep(seconds)
    share = (busy() - before) / (time.perf_counter() - began)
    print(f"{what}: share of a CPU{'':{16 - len(what)}}  {share:8.3f}, {resident():.0f} MB in all")


if __name__ == "__main__":
    numbers = [float(text) for text in sys.argv[1:]]
    measure(int(numbers[0]) if numbers else 1000, numbers[1] if len(numbers) > 1 else 20.0)
