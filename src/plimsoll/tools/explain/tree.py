"""`Statement` and `NodeGroup`: the tree of an explanation as values; `text.py` renders it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.tools.explain.text import StatementKind, render_statement
from plimsoll.tools.facts import facts_as_json

#: Names of a group shown by default.
FEW = 5


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: kind, facts and child statements."""

    kind: StatementKind
    facts: Mapping[str, object] = field(default_factory=dict)
    children: tuple[Statement, ...] = ()

    @property
    def text(self) -> str:
        return render_statement(self.kind, self.facts)

    def as_json(self) -> dict[str, Any]:
        return {
            "rule": self.kind.name.lower().replace("_", "-"),
            "reason": self.text,
            "numbers": facts_as_json(self.facts),
            "children": [child.as_json() for child in self.children],
        }


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that refuse a pod for the same reason; details are those of the nearest node."""

    rule: Rule
    reasons: tuple[NodeReason, ...]  #: for the nearest node
    message: str  #: message as in events
    nodes: tuple[str, ...]  #: nearest first
    branches: tuple[Statement, ...] = ()
    resolvable: bool = False  #: True if evicting pods could help

    @property
    def count(self) -> int:
        return len(self.nodes)

    @property
    def nearest(self) -> str:
        return self.nodes[0]

    def as_json(self, names: int = FEW) -> dict[str, Any]:
        first = self.branches[0] if self.branches else None
        return {
            "count": self.count,
            "nodes": list(self.nodes[:names]),
            "nearest": self.nearest,
            "rule": self.rule.value,
            "reason": self.message,
            "numbers": facts_as_json(first.facts) if first is not None else {},
            "children": [branch.as_json() for branch in self.branches],
        }
