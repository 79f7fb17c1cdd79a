"""`Fix` and `FixStep`: proposed changes and their cost.

A step carries what it changes, so that `apply_fix` can try it on a copy of the cluster state. A fix is
`proven` if that was done for its node with the scheduler's own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.tools.explain.text import FixKind, facts_as_json, render_statement

#: Cost of each kind of change; the cheapest is listed first. Removing pods counts for each pod.
COSTS: Mapping[FixKind, int] = {
    FixKind.REMOVE_GATES: 1,
    FixKind.NAME_SCHEDULER: 5,
    FixKind.CREATE_CLAIM: 5,
    FixKind.CREATE_TEMPLATE: 5,
    FixKind.USE_CLASS: 4,
    FixKind.CREATE_CLASS: 5,
    FixKind.MAKE_CLAIM: 5,
    FixKind.RENAME_OWNER: 8,
    FixKind.WAIT_DELETION: 8,
    FixKind.VOLUME: 8,
    FixKind.CORRECT: 8,
    FixKind.REMOVE_CLAIM: 9,  # nothing uses it
    FixKind.TOLERATE: 10,
    FixKind.UNCORDON: 10,
    FixKind.TOLERATE_DEVICE: 12,
    FixKind.RAISE_BUDGET: 15,
    FixKind.COMPLETE_POOL: 15,
    FixKind.STEP_CAPACITY: 18,
    FixKind.CHOOSE_LABEL: 20,
    FixKind.DROP_AFFINITY: 20,
    FixKind.FREE_CLAIM: 20,
    FixKind.RELAX_SELECTOR: 25,
    FixKind.RELAX_CLASS: 26,
    FixKind.RELAX_CONSTRAINT: 26,
    FixKind.RELAX_SPREAD: 28,
    FixKind.MEET: 26,
    FixKind.REMOVE_PODS: 30,
    FixKind.GO_ELSEWHERE: 32,  # the pod names a node on purpose
    FixKind.SHRINK: 35,
    FixKind.SHRINK_POD: 35,
    FixKind.SHRINK_CAPACITY: 35,
    FixKind.RAISE_STEPS: 40,
    FixKind.HEAL_NODE: 45,
    FixKind.UPGRADE_NODE: 45,
    FixKind.RUN_DRIVER: 50,
    FixKind.NO_DRIVER: 50,
    FixKind.NO_CLASS_DEVICES: 50,
    FixKind.ADD_DEVICES: 60,
    FixKind.ADD_NODE: 50,
    FixKind.ADD_ANOTHER: 70,
}


@dataclass(frozen=True, slots=True)
class FixStep:
    """One change."""

    kind: FixKind
    facts: Mapping[str, object] = field(default_factory=dict)
    subject: object = None  #: object of the change: a taint, pods, a requirement; for `apply_fix`
    times: int = 1

    @property
    def cost(self) -> int:
        return COSTS[self.kind] * self.times

    @property
    def text(self) -> str:
        return render_statement(self.kind, self.facts)


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes that together make a pod schedulable on a node, or on some node."""

    steps: tuple[FixStep, ...]
    node: str = ""
    proven: bool = False  #: simulated with all rules: the pod fits

    @property
    def cost(self) -> int:
        # Unproven fixes rank after proven ones of equal cost.
        return sum(step.cost for step in self.steps) + (0 if self.proven else 3)

    @property
    def text(self) -> str:
        return "; and ".join(step.text for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "node": self.node or None,
            "proven": self.proven,
            "steps": [
                {
                    "kind": step.kind.name.lower().replace("_", "-"),
                    "text": step.text,
                    "numbers": facts_as_json(step.facts),
                }
                for step in self.steps
            ],
        }
