"""What would help, as values: steps that change something, and what they cost.

Owns `Step` and `Fix`. A step carries what it changes, so that `apply_fix` can try it on a copy of the
cluster state; a fix is `proven` if that was done for the node it names, on the scheduler's own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.tools.explain.text import Do, plain, say

#: What a change of each kind costs; the smallest is told first. Removing pods is counted for each of them.
COSTS: Mapping[Do, int] = {
    Do.REMOVE_GATES: 1,
    Do.NAME_SCHEDULER: 5,
    Do.CREATE_CLAIM: 5,
    Do.CREATE_TEMPLATE: 5,
    Do.CREATE_CLASS: 5,
    Do.MAKE_CLAIM: 5,
    Do.RENAME_OWNER: 8,
    Do.WAIT_DELETION: 8,
    Do.VOLUME: 8,
    Do.CORRECT: 8,
    Do.TOLERATE: 10,
    Do.UNCORDON: 10,
    Do.TOLERATE_DEVICE: 12,
    Do.RAISE_BUDGET: 15,
    Do.COMPLETE_POOL: 15,
    Do.STEP_CAPACITY: 18,
    Do.CHOOSE_LABEL: 20,
    Do.DROP_AFFINITY: 20,
    Do.FREE_CLAIM: 20,
    Do.REMOVE_CLAIM: 22,
    Do.RELAX_SELECTOR: 25,
    Do.RELAX_CLASS: 26,
    Do.RELAX_CONSTRAINT: 26,
    Do.MEET: 26,
    Do.REMOVE_PODS: 30,
    Do.GO_ELSEWHERE: 32,  # who names a node means it
    Do.SHRINK: 35,
    Do.SHRINK_POD: 35,
    Do.SHRINK_CAPACITY: 35,
    Do.RAISE_STEPS: 40,
    Do.HEAL_NODE: 45,
    Do.UPGRADE_NODE: 45,
    Do.RUN_DRIVER: 50,
    Do.NO_DRIVER: 50,
    Do.ADD_DEVICES: 60,
    Do.ADD_NODE: 50,
    Do.ADD_ANOTHER: 70,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One change."""

    kind: Do
    facts: Mapping[str, object] = field(default_factory=dict)
    subject: object = None  #: what changes: a taint, pods, a requirement; for `apply_fix`
    times: int = 1

    @property
    def cost(self) -> int:
        return COSTS[self.kind] * self.times

    @property
    def text(self) -> str:
        return say(self.kind, self.facts)


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes that together let a pod go to a node, or to some node."""

    steps: tuple[Step, ...]
    node: str = ""
    proven: bool = False  #: tried on the books with all rules: the pod fits then

    @property
    def cost(self) -> int:
        # What was not tried comes after what was, change for change.
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
                    "numbers": plain(step.facts),
                }
                for step in self.steps
            ],
        }
