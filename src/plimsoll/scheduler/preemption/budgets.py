"""Which pods may not go because a PodDisruptionBudget says so.

Owns `Budgets`. A budget covers the pods of its namespace that its selector matches; one that selects
everything, or cannot be read, covers nothing, and a pod without labels is covered by none. Pods that are
listed as on their way out have been paid for already.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod
from plimsoll.api.label_selection import CompiledLabelSelector, compile_label_selector
from plimsoll.api.policy import PodDisruptionBudget


class Budgets:
    """The budgets of a cluster, read once."""

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
        """Those whose going would break a budget, if they went in this order, and the others."""
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
