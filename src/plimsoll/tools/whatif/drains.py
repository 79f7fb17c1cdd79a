"""Drain of a node as `kubectl drain` does it: the flags that it needs, and the pods that it cannot evict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.label_selection import SelectorProblem, compile_label_selector
from plimsoll.api.meta import Condition
from plimsoll.api.policy import PodDisruptionBudget, PodDisruptionBudgetStatus
from plimsoll.apiserver.validation.pod.eviction import evaluate_eviction
from plimsoll.controllers.workloads.pod_states import is_ready
from plimsoll.controllers.workloads.templates import resolve_percent
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import Key
from plimsoll.tools.whatif.lifecycle import controller_of, stays_on_node
from plimsoll.tools.whatif.outcome import Name, full_name

_NOW = datetime(2000, 1, 1, tzinfo=UTC)
IGNORE_DAEMON_SETS, DELETE_EMPTY_DIR, FORCE = "--ignore-daemonsets", "--delete-emptydir-data", "--force"


@dataclass(slots=True)
class NodeDrain:
    """Result of a drain."""

    node: str
    #: Flags without which kubectl evicts nothing, with the pods because of which.
    flags: dict[str, list[Name]] = field(default_factory=dict)
    #: Pods that cannot be evicted, and the answer of the API.
    blocked: dict[Name, str] = field(default_factory=dict)
    #: Pods that can only be evicted when replacements of others are ready.
    later: tuple[Name, ...] = ()

    @property
    def command(self) -> str:
        return " ".join(("kubectl drain", self.node, *sorted(self.flags)))

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "command": self.command,
            "flags": {flag: list(map(full_name, pods)) for flag, pods in self.flags.items()},
            "blocked": [{"pod": full_name(pod), "why": why} for pod, why in self.blocked.items()],
            "oneByOne": list(map(full_name, self.later)),
        }


def required_flags(pods: Iterable[Pod]) -> dict[str, list[Name]]:
    """Return the flags that kubectl needs to drain these pods; those that have ended need none."""
    found: dict[str, list[Name]] = {}
    for pod in pods:
        owner = controller_of(pod)
        if pod.has_terminated:
            continue
        if stays_on_node(pod):
            flags = [IGNORE_DAEMON_SETS] if owner is not None and owner.kind == "DaemonSet" else []
        else:
            has_local = any(volume.get("emptyDir") is not None for volume in pod.spec.volumes)
            flags = [DELETE_EMPTY_DIR] * has_local + [FORCE] * (owner is None)
        for flag in flags:
            found.setdefault(flag, []).append(pod.metadata.key)
    return found


def read_budgets(state: ClusterState) -> list[PodDisruptionBudget]:
    """Return all disruption budgets; those without a status as the disruption controller would set it.

    A workload is taken to have as many pods as it should.
    """
    found = []
    for budget in state.objects.all(PodDisruptionBudget):
        if budget.status == PodDisruptionBudgetStatus():
            spec = budget.spec
            pods = [pod for pod in state.pods if budgets_of(pod, [budget]) and not pod.has_terminated]
            desired = resolve_percent(spec.min_available, len(pods), round_up=True)
            if spec.max_unavailable is not None:
                desired = max(0, len(pods) - resolve_percent(spec.max_unavailable, len(pods), round_up=True))
            healthy = sum(is_ready(_reported(pod)) for pod in pods)
            allowed = max(0, healthy - desired)
            status = replace(
                budget.status,
                disruptions_allowed=allowed,
                current_healthy=healthy,
                desired_healthy=desired,
                expected_pods=len(pods),
            )
            budget = replace(budget, status=status)
        found.append(budget)
    return found


def _reported(pod: Pod) -> Pod:
    """Return a running pod with a condition Ready, which every kubelet reports."""
    conditions = pod.status.conditions
    if pod.status.phase != "Running" or any(each.type == "Ready" for each in conditions):
        return pod
    ready = Condition(type="Ready", status="True")
    return replace(pod, status=replace(pod.status, conditions=(*conditions, ready)))


def budgets_of(pod: Pod, budgets: Iterable[PodDisruptionBudget]) -> list[PodDisruptionBudget]:
    """Return the disruption budgets that select a pod."""
    found = []
    for budget in budgets:
        selector = compile_label_selector(budget.spec.selector)
        if budget.metadata.namespace == pod.metadata.namespace and not isinstance(selector, SelectorProblem):
            found += [budget] if selector.matches(pod.metadata.labels) else []
    return found


def find_eviction_refusal(
    pod: Pod, budgets: Sequence[PodDisruptionBudget], unavailable: dict[Key, int]
) -> str:
    """Return why the eviction API refuses to evict a pod; `unavailable` is the number of pods by budget that
    were evicted and have no replacement yet.
    """
    trees = []
    for budget in budgets:
        gone, status = unavailable.get(budget.metadata.key, 0), budget.status
        allowed, healthy = max(0, status.disruptions_allowed - gone), max(0, status.current_healthy - gone)
        status = replace(status, disruptions_allowed=allowed, current_healthy=healthy)
        trees.append(codec.to_tree(replace(budget, status=status)))
    refusal = evaluate_eviction(codec.to_tree(_reported(pod)), {}, trees, _NOW).refusal
    return "" if refusal is None else refusal.cause or refusal.message
