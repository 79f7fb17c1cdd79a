"""Benchmark of what-if queries: pods per second, and the cost of rolling back.

    python -m bench.whatif [--nodes 1000] [--pods 2000]

For each workload: reading it, placing pods, undoing all of it, and the same from scratch (another snapshot
from the objects), which is what there would be without transactions.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

from bench.scheduler.workloads import NAMESPACE, Workload
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.kinds import BY_NAME
from plimsoll.tools.whatif import Whatif, WhatifPlan, run_whatif

SCENARIOS = ("no-dra", "plain", "consumable", "node-allocatable", "prioritized", "partitionable")


def objects_of(workload: Workload) -> ClusterObjects:
    trees = [*workload.classes(), workload.template(), *map(workload.node, range(workload.nodes))]
    trees += [slice for number in range(workload.nodes) for slice in workload.slices(number)]
    return ClusterObjects(codec.convert(tree, BY_NAME[tree["kind"]].view) for tree in trees)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measure(scenario: str, nodes: int, pods: int) -> None:
    workload = Workload(scenario, nodes)
    cluster_state = ClusterState(objects_of(workload))
    built, whatif = timed(lambda: _ready(cluster_state))
    wanted = [codec.convert(workload.pod(f"p-{number}"), Pod) for number in range(pods)]
    with whatif.branch() as branch:
        added, _ = timed(lambda: branch.add(*wanted))
        placing, outcome = timed(branch.schedule)
        start = time.process_time()
    undone = time.process_time() - start
    again, _ = timed(lambda: _ready(cluster_state))
    with whatif.branch() as branch:
        one, _ = timed(lambda: (branch.add(wanted[0]), branch.schedule()))
    report, _ = timed(
        lambda: run_whatif(cluster_state, WhatifPlan(add=(wanted[0],), replicas=100, namespace=NAMESPACE))
    )
    rate = len(outcome.placed) / (added + placing)
    print(
        f"{scenario:18} nodes {nodes:5}  placed {len(outcome.placed):5} of {pods:5}  {rate:7.0f} pods/s"
        f"  ({added:.2f} s added, {placing:.2f} s placed)  undone {undone:.2f} s  built {built:.2f} s"
        f"  one pod {one * 1000:.1f} ms = 1/{again / one:.0f} of building anew"
        f"  report of 100 {report:.2f} s"
    )


def _ready(cluster_state: ClusterState) -> Whatif:
    whatif = Whatif(cluster_state)
    assert whatif.cluster_state.snapshot.inventory is not None
    return whatif


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--nodes", type=int, default=1000)
    arguments.add_argument("--pods", type=int, default=2000)
    arguments.add_argument("--scenario", choices=SCENARIOS, action="append")
    given = arguments.parse_args()
    for scenario in given.scenario or SCENARIOS:
        measure(scenario, given.nodes, given.pods)


if __name__ == "__main__":
    main()
