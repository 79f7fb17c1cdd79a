"""Cost of the query commands on a large cluster: reading it, its ledgers, and each answer.

    python -m bench.questions [--nodes 500] [--pods 10] [--mig] [--yaml] [--profile NAME]

A made-up cluster (`tests/dumps.py`, with `--mig` GPUs with all MIG profiles: `mig_nodes.py`) is written as
`kubectl get -o json` would, read, and asked everything once, each question with the ledgers ready and nothing
else remembered. Prints seconds of CPU, how many times the cost of rebuilding the ledgers that is (which is
what an answer without them would cost at least), and at the end the most memory the process has had.
`--profile explain` shows where the time of one question goes.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import gc
import pstats
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.dumps import big_cluster, write_dump

from bench.mig_nodes import GPU, MIG, mig_cluster
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.dashboard.service import DashboardService
from plimsoll.tools.defrag import DefragReport, DefragTarget, find_moves
from plimsoll.tools.explain import explain_pending, explain_pod
from plimsoll.tools.policies import compare_policies
from plimsoll.tools.report import Report
from plimsoll.tools.top.top import top
from plimsoll.tools.whatif import WhatifPlan, run_whatif

NEW_PODS, NEW_MIG_PODS = 1000, 200
NEW: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "new", "namespace": "work"},
    "spec": {
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]
    },
}


NEW_MIG: list[dict[str, Any]] = [
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "mig", "namespace": "work"},
        "spec": {
            "spec": {
                "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": MIG, "count": 1}}]}
            }
        },
    },
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "new", "namespace": "work"},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "mig"}],
        },
    },
]


def line_count(report: Report) -> int:
    """Return the number of lines of an output, which forces its rendering."""
    return len(list(report.lines(PLAIN)))


def questions() -> dict[str, Callable[[ClusterState], Any]]:
    def explain_one(cluster_state: ClusterState) -> int:
        return line_count(explain_pod(cluster_state, cluster_state.pod("waiting-0000", "work")))

    def add_pods(cluster_state: ClusterState) -> int:
        pod = codec.convert(NEW, Pod)
        plan = WhatifPlan(add=(pod,), replicas=NEW_PODS, namespace="work")
        return line_count(
            run_whatif(cluster_state, plan, lent=True)
        )  # as the dashboard does; otherwise the ledgers are rebuilt

    def view(what: str) -> Callable[[ClusterState], int]:
        return lambda cluster_state: line_count(top(cluster_state, what, limit=20))

    views = ("nodes", "pods", "claims", "devices", "pools", "namespaces")
    return {
        **{f"top {each}": view(each) for each in views},
        "explain one pod": explain_one,
        "explain all that wait": lambda cluster_state: line_count(explain_pending(cluster_state)),
        f"whatif, {NEW_PODS} pods more": add_pods,
        "audit": lambda cluster_state: line_count(audit(cluster_state, now=0.0, live=True)),
        "policies": lambda cluster_state: line_count(compare_policies(cluster_state, limit=10)),
        "dashboard /api/nodes": lambda cluster_state: asyncio.run(
            DashboardService(cluster_state, query_timeout=300.0).nodes()
        ),
    }


def mig_questions() -> dict[str, Callable[[ClusterState], Any]]:
    def add_pods(cluster_state: ClusterState) -> int:
        plan = WhatifPlan(add=(*NEW_MIG,), replicas=NEW_MIG_PODS, namespace="work")
        return line_count(run_whatif(cluster_state, plan, lent=True))

    def defrag(count: int) -> Callable[[ClusterState], int]:
        target = DefragTarget(device_class=GPU, count=count)
        return lambda cluster_state: line_count(DefragReport(target, find_moves(cluster_state, target)))

    def view(what: str) -> Callable[[ClusterState], int]:
        return lambda cluster_state: line_count(top(cluster_state, what, limit=20))

    return {
        **{f"top {each}": view(each) for each in ("nodes", "classes", "gpus", "devices", "pools")},
        f"whatif, {NEW_MIG_PODS} pods more": add_pods,
        "dashboard /api/overview": lambda cluster_state: asyncio.run(
            DashboardService(cluster_state, query_timeout=300.0).overview()
        ),
        "defrag, a GPU": defrag(1),
        "defrag, 8 GPUs of a node": defrag(8),
    }


def timed(work: Callable[[], Any], profile: bool = False) -> float:
    watch = cProfile.Profile()
    gc.collect()
    began = time.process_time()
    if profile:
        watch.runcall(work)
    else:
        work()
    seconds = time.process_time() - began
    if profile:
        pstats.Stats(watch).sort_stats("cumulative").print_stats(45)
    return seconds


def read(nodes: int, pods: int, form: str, mig: bool) -> tuple[ClusterState, float, int]:
    trees = mig_cluster(nodes) if mig else big_cluster(nodes, pods_per_node=pods, pending=60)
    with tempfile.TemporaryDirectory() as directory:
        path = write_dump(trees, Path(directory) / f"dump.{form}", form)
        gc.collect()
        began = time.process_time()
        cluster_state = read_cluster_state(Source((str(path),)))
        return cluster_state, time.process_time() - began, path.stat().st_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--pods", type=int, default=10, help="for each node")
    parser.add_argument("--mig", action="store_true", help="nodes of 8 H100 with all MIG profiles")
    parser.add_argument("--yaml", action="store_true", help="read YAML instead of JSON")
    parser.add_argument("--profile", default="", metavar="NAME", help="only this question, with its profile")
    given = parser.parse_args()
    cluster_state, reading, size = read(given.nodes, given.pods, "yaml" if given.yaml else "json", given.mig)
    gc.freeze()  # objects live until the end; no full collection is needed
    objects = cluster_state.objects
    counts = f"{given.nodes} nodes, {len(objects.all(Pod))} pods, {len(objects)} objects"
    print(f"{counts}, {size / 1e6:.0f} MB")
    ledgers = timed(lambda: cluster_state.snapshot)
    gc.collect()
    gc.freeze()
    rate = f"{size / reading / 1e6:.0f} MB/s"
    print(f"{'read':26} {reading:7.2f} s  {reading / ledgers:7.2f} times the ledgers, {rate}")
    print(f"{'ledgers':26} {ledgers:7.2f} s")
    for name, ask in (mig_questions() if given.mig else questions()).items():
        if given.profile and given.profile not in name:
            continue
        seconds = timed(lambda ask=ask: ask(cluster_state), bool(given.profile))  # type: ignore[misc]
        print(f"{name:26} {seconds:7.2f} s  {seconds / ledgers:7.2f} times the ledgers", flush=True)
    print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
