"""Cost of the CPU driver on a node: memory, CPU time while idle, and time to prepare a claim.

    python -m bench.cpu_driver [--claims 256] [--idle 60] [--modules]

Runs `plimsoll driver cpu` as its own process on a machine description of 512 CPUs and 8 NUMA nodes, with an
API server and a node agent in this process. Prints its resident memory and the kinds of pages it consists of,
the CPU time of an idle minute, and how long it takes to prepare claims of two CPUs one after the other until
all CPUs are taken: wall time as the caller sees it, and CPU time of all threads of the driver, which a busy
machine does not change. Each figure is printed with its ratio to the goal. With `--modules` also lists the
Python modules by the memory that importing them takes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.directories import short_directory
from tests.unit.drivers.cpu.allocated_claims import allocated_claim
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs

from plimsoll.client.blocking import BlockingClient
from plimsoll.client.endpoints import RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1
from plimsoll.up.local_cluster import LocalCluster

#: Goals: megabytes of resident memory, milliseconds of a prepare (99th percentile), share of a CPU when idle.
RSS_MB, PREPARE_MS, IDLE_SHARE = 45.0, 20.0, 0.001
MACHINE = make_machine(sockets=2, numa=4, l3=4, cores=8, threads=2)
_TICK = os.sysconf("SC_CLK_TCK")
_DEADLINE = 120.0
#: Prints the growth of resident memory by module; run in a fresh interpreter.
_MODULES = """
import importlib, importlib.machinery as machinery, os, sys
file, own, stack = os.open("/proc/self/statm", os.O_RDONLY), {}, []
def rss(): return int(os.pread(file, 99, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
def count(loader):
    execute = loader.exec_module
    def counted(self, module):
        before = rss(); stack.append(0)
        try: execute(self, module)
        finally:
            grown = rss() - before; own[module.__name__] = grown - stack.pop()
            if stack: stack[-1] += grown
    loader.exec_module = counted
count(machinery.SourceFileLoader); count(machinery.ExtensionFileLoader)
before = rss(); importlib.import_module("plimsoll.drivers.cpu.process.run")
print(f"imports: {before} KiB before, {rss()} KiB after, {len(sys.modules)} modules")
packages = {}
for name, size in own.items():
    parts = name.split("."); key = ".".join(parts[:2]) if parts[0] == "plimsoll" else parts[0]
    packages[key] = packages.get(key, 0) + size
for name in sorted(packages, key=packages.get, reverse=True)[:25]: print(f"{packages[name]:8} KiB  {name}")
"""


@contextmanager
def running_driver(cluster: LocalCluster, host: Path) -> Iterator[int]:
    """Run the driver and yield its process ID once its devices are published."""
    root = cluster.node_root("node-0")
    command = [sys.executable, "-m", "plimsoll.cli.main", "driver", "cpu"]
    command += ["--kubeconfig", str(cluster.kubeconfig), "--hostname-override", "node-0"]
    command += ["--host-root", str(host), "--kubelet-root-dir", str(root), "--cdi-dir", str(root / "cdi")]
    command += ["--nri-socket", str(root / "nri" / "nri.sock"), "--bind-address", "127.0.0.1:0"]
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}  # as in deploy/
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment) as process:
        try:
            wait_published(cluster.client)
            yield process.pid
        finally:
            process.terminate()


def wait_published(client: BlockingClient) -> None:
    end = time.monotonic() + _DEADLINE
    while not client.list(RESOURCE_SLICES):
        if time.monotonic() > end:
            raise SystemExit("the driver has not published its devices")
        time.sleep(0.2)


def read_memory(pid: int) -> dict[str, float]:
    """Return megabytes: resident, anonymous, of files, and those that no other process shares."""
    found: dict[str, float] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if value.endswith("kB"):
            found[name] = int(value.split()[0]) / 1024
    private = found["Private_Clean"] + found["Private_Dirty"]
    return {
        "resident": found["Rss"],
        "anonymous": found["Anonymous"],
        "files": found["Rss"] - found["Anonymous"],
        "private": private,
    }


def read_cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def read_cpu_milliseconds(pid: int) -> float:
    """Return the CPU time of all threads, to the nanosecond."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1e6


def count_switches(pid: int) -> int:
    """Return the context switches of all threads, so far: how often the process woke up."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith(("voluntary", "nonvoluntary")):
                total += int(line.split()[1])
    return total


def create_claims(client: BlockingClient, count: int) -> list[dict[str, Any]]:
    """Create allocated claims of two CPUs, spread over the devices."""
    devices = [f"cpudevnuma{numa:03d}" for numa in MACHINE.numa]
    found = []
    for number in range(count):
        tree = allocated_claim(f"claim-{number}", devices[number % len(devices)], "node-0")
        status = tree.pop("status")
        result = status["allocation"]["devices"]["results"][0]
        result["shareID"] = str(uuid.uuid4())
        made = client.create(RESOURCE_CLAIMS, tree)
        found.append(client.update(RESOURCE_CLAIMS, {**made, "status": status}, subresource="status"))
    return found


async def call(
    root: Path, claims: Sequence[dict[str, Any]], what: str, pid: int
) -> list[tuple[float, float]]:
    """Prepare or unprepare claims one by one as a kubelet does; return milliseconds of time and CPU time."""
    method = rpc.find_method(dra_v1.DESCRIPTOR, "DRAPlugin", f"Node{what}Resources")
    channel = rpc.dial(root / "plugins" / "dra.cpu" / "dra.sock")
    times = []
    for claim in claims:
        meta = claim["metadata"]
        asked = dra_v1.Claim(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])
        request = getattr(dra_v1, f"Node{what}ResourcesRequest")(claims=[asked])
        cpu, start = read_cpu_milliseconds(pid), time.perf_counter()
        answer = await rpc.call(channel, method, request, timeout=_DEADLINE)
        times.append(((time.perf_counter() - start) * 1000, read_cpu_milliseconds(pid) - cpu))
        if error := answer.claims[meta["uid"]].error:
            raise SystemExit(f"{what} {meta['name']}: {error}")
    await rpc.close(channel)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def report_memory(pid: int, when: str) -> None:
    memory = read_memory(pid)
    parts = ", ".join(f"{name} {size:.1f}" for name, size in memory.items() if name != "resident")
    ratio = memory["resident"] / RSS_MB
    print(
        f"memory {when}: {memory['resident']:.1f} MB resident ({parts}), {ratio:.2f} of the goal", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--claims", type=int, default=256)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    parser.add_argument("--modules", action="store_true", help="list modules by memory")
    options = parser.parse_args()
    if options.modules:
        subprocess.run([sys.executable, "-c", _MODULES], check=True)
    with short_directory() as host, LocalCluster(nodes=1) as cluster:
        write_sysfs(MACHINE, host)
        claims = create_claims(cluster.client, options.claims)
        with running_driver(cluster, host) as pid:
            time.sleep(5.0)  # what follows the start
            report_memory(pid, "after the start")
            cpu, switches = read_cpu_seconds(pid), count_switches(pid)
            time.sleep(options.idle)
            used = read_cpu_seconds(pid) - cpu
            woken = (count_switches(pid) - switches) / options.idle
            share = used / options.idle
            print(
                f"idle {options.idle:g} s: {used:.2f} CPU seconds ({share:.2%} of a CPU), "
                f"{woken:.1f} context switches/s, {share / IDLE_SHARE:.1f} of the goal",
                flush=True,
            )
            for what in ("Prepare", "Unprepare"):
                found = asyncio.run(call(cluster.node_root("node-0"), claims, what, pid))
                print(f"{what.lower()} {len(claims)} claims on {len(MACHINE.all)} CPUs:", flush=True)
                for name, times in zip(("wall time", "CPU time"), zip(*found, strict=True), strict=True):
                    worst = percentile(times, 0.99)
                    print(
                        f"  {name}: median {percentile(times, 0.5):.1f} ms, p99 {worst:.1f} ms, "
                        f"{worst / PREPARE_MS:.2f} of the goal",
                        flush=True,
                    )
                report_memory(pid, f"after {what.lower()}")


if __name__ == "__main__":
    main()
