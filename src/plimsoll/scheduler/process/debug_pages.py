"""Debug pages `/debug/queue` and `/debug/ledger`, as JSON; for people, not a stable interface."""

from __future__ import annotations

from itertools import islice
from typing import Any

from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.process.context import SchedulerContext

#: Number of pods listed.
_MOST = 1000


def show_queue(context: SchedulerContext) -> dict[str, Any]:
    """Return queue lengths and the first pods."""
    queue = context.queue
    pods = []
    for pod in islice(queue, _MOST):
        where = queue.state_of(pod_key(pod))
        name = pod.metadata.full_name
        pods.append({"pod": name, "priority": pod.priority, "where": where and where.value})
    return {
        "lengths": dict(queue.lengths()),
        "inFlight": queue.in_flight(),
        "waitingFor": {rule.value: count for rule, count in queue.unschedulable_by_rule().items()},
        "pods": pods,
    }


def show_ledger(context: SchedulerContext) -> dict[str, Any]:
    """Return allocatable, requested and headroom of every node, and its number of pods."""
    snapshot = context.snapshot
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
