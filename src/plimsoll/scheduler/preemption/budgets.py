"""PodDisruptionBudgets that protect victims.

A budget covers the pods of its namespace that its selector matches; an empty or invalid selector covers
nothing, and a pod without labels is covered by none. Pods in `status.disruptedPods` are already accounted
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import CompiledLabelSelector, compile_label_selector
from plimsoll.api.policy import PodDisruptionBudget


class DisruptionBudgets:
    """Budgets of a cluster, parsed once."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        self._covers: dict[str, list[tuple[int, PodDisruptionBudget, CompiledLabelSelector]]] = {}
        for number, budget in enumerate(budgets):
            selector = compile_label_selector(budget.spec.selector)
            if (
                isinstance(selector, CompiledLabelSelector)
                and not selector.everything
                and not selector.nothing
            ):
                covers = self._covers.setdefault(budget.metadata.namespace, [])
                covers.append((number, budget, selector))

    def split(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
        """Split pods, evicted in this order, into those that would violate a budget and the others."""
        if not self._covers:
            return [], list(pods)
        left: dict[int, int] = {}
        breaking: list[Pod] = []
        harmless: list[Pod] = []
        for pod in pods:
            broken = False
            labels = pod.metadata.labels
            for number, budget, selector in self._covers.get(pod.metadata.namespace, ()) if labels else ():
                if not selector.matches(labels) or pod.metadata.name in budget.status.disrupted_pods:
                    continue
                left[number] = left.get(number, budget.status.disruptions_allowed) - 1
                broken = broken or left[number] < 0
            (breaking if broken else harmless).append(pod)
        return breaking, harmless
