"""What the scheduler thinks, as JSON for people: `/debug/queue` and `/debug/ledger`.

Owns the two pages; they are for looking into a running scheduler, not an interface.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.process.context import World

#: Pods shown one by one.
_MOST = 1000


def show_queue(world: World) -> dict[str, Any]:
    """How many pods are where, and the first of them by name."""
    queue = world.queue
    pods = []
    for pod in islice(queue, _MOST):
        where = queue.state_of(pod_key(pod))
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        pods.append({"pod": name, "priority": pod.spec.priority or 0, "where": where and where.value})
    return {
        "lengths": dict(queue.lengths()),
        "inFlight": queue.in_flight(),
        "waitingFor": {rule.value: count for rule, count in queue.unschedulable_by_rule().items()},
        "pods": pods,
    }


def show_ledger(world: World) -> dict[str, Any]:
    """The books of every node: line, charge, headroom, and how many pods."""
    snapshot = world.snapshot
    nodes = {}
    for row in snapshot.rows():
        ledger = snapshot.ledger(row)
        nodes[ledger.name] = {
            "allocatable": dict(ledger.allocatable),
            "requested": {name: used for name, used in ledger.requested.items() if used},
            "headroom": ledger.headroom(),
            "pods": len(ledger),
        }
    return {"nodes": nodes, "assumed": len(snapshot.assumed)}
