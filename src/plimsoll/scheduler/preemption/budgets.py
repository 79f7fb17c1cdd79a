"""PodDisruptionBudgets and the victims that would violate them.

As in kube-scheduler, an empty or invalid selector covers no pods, a pod without labels is not covered, and
pods in `status.disruptedPods` are already accounted for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import CompiledLabelSelector, compile_label_selector
from plimsoll.api.policy import PodDisruptionBudget


class DisruptionBudgets:
    """PodDisruptionBudgets of a cluster, with compiled selectors."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._covers: dict[str, list[tuple[int, PodDisruptionBudget, CompiledLabelSelector]]] = {}
        for number, budget in enumerate(budgets):
            selector = compile_label_selector(budget.spec.selector)
            if isinstance(selector, CompiledLabelSelector) and not (selector.everything or selector.nothing):
                covers = self._covers.setdefault(budget.metadata.namespace, [])
                covers.append((number, budget, selector))

    def split_violating(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Split pods, evicted in this order, into those that would violate a budget and the others."""
        if not self._covers:
            return [], list(pods)
        left: dict[int, int] = {}
        violating: list[Pod] = []
        others: list[Pod] = []
        for pod in pods:
            violates = False
            labels = pod.metadata.labels
            for number, budget, selector in self._covers.get(pod.metadata.namespace, ()) if labels else ():
                if not selector.matches(labels) or pod.metadata.name in budget.status.disrupted_pods:
                    continue
                left[number] = left.get(number, budget.status.disruptions_allowed) - 1
                violates = violates or left[number] < 0
            (violating if violates else others).append(pod)
        return violating, others
