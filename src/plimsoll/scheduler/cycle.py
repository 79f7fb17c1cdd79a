"""START HERE: `schedule_one` is one pod's life from the queue to a node.

A pure function: a task, a snapshot and settings in; a `Placement` or an `Unplaced` out. The story: read the
rules that concern the pod; leave out every node that breaks one, all nodes at once; score what is left; ask
about devices and books together on the best node, then on the next, until one says yes. The snapshot is not
changed: whoever calls assumes the placement, at once, and only then takes the next pod.
"""

from __future__ import annotations

from plimsoll.scheduler.devices import DevicesFilter, NewId
from plimsoll.scheduler.filter_result import Sieve
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.node_selection import Promises, choose_node
from plimsoll.scheduler.pod_info import Task
from plimsoll.scheduler.profile import DeviceOrder, Settings
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement, Unplaced
from plimsoll.scheduler.scores import score_nodes
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.unschedulable_cache import Hopeless


def schedule_one(
    task: Task,
    snapshot: Snapshot,
    settings: Settings,
    new_id: NewId,
    promises: Promises | None = None,
) -> Placement | Unplaced:
    """Find the best node for a pod, and devices for its claims there; or say why there is none."""
    hopeless = snapshot.index(Hopeless)
    lasting = settings.device_order is DeviceOrder.JOINT  # else a device that is taken may make room
    known = hopeless.recall(task, snapshot) if lasting else None
    if known is not None:
        return known

    rules = read_rules(task, snapshot, settings, new_id)
    if isinstance(rules, NodeReason):
        return Unplaced(task, len(snapshot), ((rules, 0),))

    sieve = Sieve(task, snapshot)
    for rule in rules:
        sieve.apply(rule)
    if settings.asks_all(len(snapshot)) and (error := sieve.ask_all()):
        return Unplaced(task, len(snapshot), ((error, 1),))
    if sieve.left.any():
        scores = score_nodes(task, snapshot, settings, sieve.left)
        placement = choose_node(task, snapshot, settings, sieve, scores, promises)
        if placement is not None:
            return placement
    unplaced = sieve.sum_up()
    return unplaced if sieve.crowded or not lasting else hopeless.remember(task, snapshot, unplaced)


def read_rules(
    task: Task, snapshot: Snapshot, settings: Settings, new_id: NewId
) -> list[Filter] | NodeReason:
    """The rules that concern a pod, devices last; or why no node will do."""
    rules: list[Filter] = []
    for kind in FILTERS:
        rule = kind.read(task, snapshot)
        if isinstance(rule, NodeReason):
            return rule
        if rule is not None:
            rules.append(rule)
    if task.claims:
        rules.append(DevicesFilter(task, snapshot, new_id, settings))
    return rules
