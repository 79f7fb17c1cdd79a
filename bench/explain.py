"""Time to explain a pending pod, first and again, compared with scheduling it.

    python -m bench.explain [--nodes 5000]

Nodes are half full, so that they are in many states; the pod asks for more devices than any node has left.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench.scheduler.workloads import NAMESPACE, Workload
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.cluster_state.kinds import BY_NAME
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import explain_pod, summarize_pending

SCENARIOS = ("plain", "consumable", "partitionable", "node-allocatable", "prioritized")


def make_cluster_state(workload: Workload) -> ClusterState:
    """Return a cluster that is half full."""
    trees = [*workload.classes(), workload.template(), *map(workload.node, range(workload.nodes))]
    trees += [slice for number in range(workload.nodes) for slice in workload.slices(number)]
    cluster_state = ClusterState(
        ClusterObjects(codec.convert(tree, BY_NAME[tree["kind"]].view) for tree in trees)
    )
    numbers = random.Random(7)
    for number in range(workload.capacity // 2):
        place_one(workload, cluster_state, f"p-{number}", numbers)
    return cluster_state


def place_one(workload: Workload, cluster_state: ClusterState, name: str, numbers: random.Random) -> None:
    claim = codec.convert(workload.claim(f"c-{name}"), ResourceClaim)
    pod = codec.convert(workload.pod(name, f"c-{name}"), Pod)
    cluster_state.set(claim)
    task = read_pod_info(pod, cluster_state.snapshot)
    assert not isinstance(task, NodeReason)
    cluster_state.snapshot.next_start_row = numbers.randrange(workload.nodes)
    outcome = schedule_one(task, cluster_state.snapshot, SchedulerProfile.default(), lambda: f"share-{name}")
    assert isinstance(outcome, Placement)
    cluster_state.snapshot.assume(outcome)


def waiting(workload: Workload, count: int) -> Iterator[tuple[ResourceClaim, Pod]]:
    """Yield pods that request more than any node has."""
    for number in range(count):
        tree = workload.claim(f"c-w-{number}")
        for request in tree["spec"]["devices"]["requests"]:
            for body in (request.get("exactly"), *request.get("firstAvailable", ())):
                if body is not None:
                    body["count"] = workload.devices + 1
        pod = workload.pod(f"w-{number}", f"c-w-{number}")
        yield codec.convert(tree, ResourceClaim), codec.convert(pod, Pod)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measure(scenario: str, nodes: int, pods: int) -> None:
    workload = Workload(scenario, nodes)
    cluster_state = make_cluster_state(workload)
    for claim, pod in waiting(workload, pods):
        cluster_state.set(claim)
        cluster_state.set(pod)
    subject = cluster_state.pod("w-0", NAMESPACE)
    first, explanation = timed(lambda: explain_pod(cluster_state, subject))
    again, _ = timed(lambda: explain_pod(cluster_state, subject))
    listed, lines = timed(lambda: summarize_pending(cluster_state))
    print(
        f"{scenario:18} nodes {nodes:5}  first {first:.2f} s  again {again:.2f} s"
        f"  lines {len([*explanation.lines(PLAIN)]):2}  {len(lines)} pending in {listed:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    given = parser.parse_args()
    for scenario in SCENARIOS:
        measure(scenario, given.nodes, given.pods)


if __name__ == "__main__":
    main()
