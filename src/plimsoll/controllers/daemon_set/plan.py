"""Plan of a DaemonSet: pods to create and delete on nodes, rolling updates, and the status.

As in kube-controller-manager: with `maxSurge` 0 a rolling update deletes old pods while at most
`maxUnavailable` are missing; with a surge the new pod of a node is started before the old one is deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from plimsoll.api.core import Node, Pod
from plimsoll.controllers.actions import CreateAction, DeleteAction
from plimsoll.controllers.daemon_set.nodes import NodeMatcher, make_pod, node_of
from plimsoll.controllers.workload_views import DaemonSetStatusView, DaemonSetView
from plimsoll.controllers.workloads.pod_states import is_available, is_ready
from plimsoll.controllers.workloads.revisions import REVISION_LABEL
from plimsoll.controllers.workloads.templates import delete_pod, resolve_percent


@dataclass
class DaemonSetPlan:
    """Pods to create and to delete, the nodes of failed ones, and the status."""

    status: DaemonSetStatusView
    creates: list[CreateAction] = field(default_factory=list)
    deletes: list[DeleteAction] = field(default_factory=list)
    failed: dict[str, Pod] = field(default_factory=dict)


def plan_daemon_set(
    owner: DaemonSetView,
    nodes: Sequence[Node],
    pods: Iterable[Pod],
    hash: str,
    now: float,
    held: Collection[str] = (),
) -> DaemonSetPlan:
    """Plan for a DaemonSet; `hash` is its revision, `held` are nodes on which failed pods stay for now."""
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    matcher = NodeMatcher(owner)
    places = {node.metadata.name: matcher.should_run(node) for node in nodes}
    plan = DaemonSetPlan(_count(owner, by_node, places, hash, now))
    if owner.metadata.deletion_timestamp is not None:
        return plan
    surge, unavailable = resolve_steps(owner, plan.status.desired_number_scheduled)
    for name, (runs, stays) in places.items():
        _manage_node(owner, name, by_node.get(name, []), runs, stays, hash, surge, held, plan)
    doomed = {action.uid for action in plan.deletes}
    if owner.spec.update_strategy.type == "RollingUpdate":
        running = {
            name: [pod for pod in by_node.get(name, ()) if pod.metadata.uid not in doomed]
            for name, (runs, _) in places.items()
            if runs
        }
        if surge:
            _update_with_surge(owner, running, hash, surge, now, plan)
        else:
            _update_in_place(owner, running, hash, unavailable, now, plan)
    return plan


def resolve_steps(owner: DaemonSetView, nodes: int) -> tuple[int, int]:
    """Return the surplus and the missing pods that an update may have."""
    strategy = owner.spec.update_strategy.rolling_update
    if owner.spec.update_strategy.type != "RollingUpdate" or strategy is None:
        return 0, 1
    surge = resolve_percent(strategy.max_surge, nodes, round_up=True)
    unavailable = resolve_percent(strategy.max_unavailable, nodes, round_up=True)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _is_new(pod: Pod, hash: str) -> bool:
    return pod.metadata.labels.get(REVISION_LABEL) == hash


def _manage_node(
    owner: DaemonSetView,
    name: str,
    pods: Sequence[Pod],
    runs: bool,
    stays: bool,
    hash: str,
    surge: int,
    held: Collection[str],
    plan: DaemonSetPlan,
) -> None:
    """Create the pod of a node, or delete those that have failed, are too many or do not belong there."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    if not stays:
        plan.deletes += [delete_pod(pod.metadata) for pod in alive]
        return
    ended = [pod for pod in alive if pod.status.phase in ("Failed", "Succeeded")]
    for pod in ended:
        if pod.status.phase == "Failed":
            plan.failed[name] = pod
            if name in held:
                continue
        plan.deletes.append(delete_pod(pod.metadata))
    running = [pod for pod in alive if pod not in ended]
    if runs and not pods:
        plan.creates.append(make_pod(owner, name, hash))
    # One pod of each revision may stay during an update with a surge.
    groups = [[pod for pod in running if _is_new(pod, hash) == new] for new in (True, False)]
    for group in groups if surge else [running]:
        ordered = sorted(
            group,
            key=lambda pod: (not is_ready(pod), pod.metadata.creation_timestamp or "", pod.metadata.name),
        )
        plan.deletes += [delete_pod(pod.metadata) for pod in ordered[1:]]


def _update_in_place(
    owner: DaemonSetView,
    running: Mapping[str, Sequence[Pod]],
    hash: str,
    unavailable: int,
    now: float,
    plan: DaemonSetPlan,
) -> None:
    missing = 0
    idle: list[Pod] = []
    candidates: list[Pod] = []
    for pods in running.values():
        old = [pod for pod in pods if not _is_new(pod, hash) and pod.metadata.deletion_timestamp is None]
        if not any(is_available(pod, owner.spec.min_ready_seconds, now) for pod in pods if _alive(pod)):
            missing += 1
            idle += old
        else:
            candidates += old
    plan.deletes += [delete_pod(pod.metadata) for pod in idle]
    plan.deletes += [delete_pod(pod.metadata) for pod in candidates[: max(0, unavailable - missing)]]


def _update_with_surge(
    owner: DaemonSetView,
    running: Mapping[str, Sequence[Pod]],
    hash: str,
    surge: int,
    now: float,
    plan: DaemonSetPlan,
) -> None:
    started = 0
    urgent: list[str] = []
    candidates: list[str] = []
    for name, pods in running.items():
        new = [pod for pod in pods if _is_new(pod, hash) and _alive(pod)]
        old = [pod for pod in pods if not _is_new(pod, hash) and _alive(pod)]
        if not old:
            continue
        if new:
            if is_available(new[0], owner.spec.min_ready_seconds, now):
                plan.deletes += [delete_pod(pod.metadata) for pod in old]
            else:
                started += 1
        elif is_available(old[0], owner.spec.min_ready_seconds, now):
            candidates.append(name)
        else:
            urgent.append(name)
    names = [*urgent, *candidates[: max(0, surge - started)]]
    plan.creates += [make_pod(owner, name, hash) for name in names]


def _alive(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None


def _count(
    owner: DaemonSetView,
    by_node: Mapping[str, Sequence[Pod]],
    places: Mapping[str, tuple[bool, bool]],
    hash: str,
    now: float,
) -> DaemonSetStatusView:
    desired = current = misscheduled = ready = updated = available = 0
    for name, (runs, _) in places.items():
        pods = by_node.get(name, ())
        if not runs:
            misscheduled += bool(pods)
            continue
        desired += 1
        if not pods:
            continue
        current += 1
        oldest = min(pods, key=lambda pod: (not is_ready(pod), pod.metadata.creation_timestamp or ""))
        if is_ready(oldest):
            ready += 1
            available += is_available(oldest, owner.spec.min_ready_seconds, now)
        updated += any(_is_new(pod, hash) for pod in pods)
    return replace(
        owner.status,
        observed_generation=owner.metadata.generation,
        desired_number_scheduled=desired,
        current_number_scheduled=current,
        number_misscheduled=misscheduled,
        number_ready=ready,
        updated_number_scheduled=updated,
        number_available=available,
        number_unavailable=desired - available,
    )
