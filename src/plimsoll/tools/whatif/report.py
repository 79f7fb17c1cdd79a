"""What a what-if has to say, for people and for programs.

Owns `WhatifReport`. What matters comes first: who waits and why; then who went where, who had to go, what is
left. Pods alike are told about together, so that a thousand of them fit one screen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.tools.paint import Paint
from plimsoll.tools.whatif.outcome import (
    Difference,
    Evicted,
    Name,
    Outcome,
    Standing,
    State,
    full_name,
)
from plimsoll.tools.whatif.plan import Plan
from plimsoll.tools.whatif.totals import NodeChange, Totals


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a stock scheduler would have made of it."""

    name: str
    about: str
    state: State


@dataclass(slots=True, kw_only=True)
class WhatifReport:
    """Before, after, and what differs."""

    plan: Plan
    origin: str
    before: Totals
    after: Totals
    now: Mapping[Name, str]  #: pod -> its node in the picture, "" if it has none
    states: tuple[State, State]
    difference: Difference
    outcome: Outcome
    evicted: tuple[Evicted, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    passed_by: tuple[str, ...] = ()
    predictions: list[Prediction] = field(default_factory=list)

    @property
    def all_placed(self) -> bool:
        return not self.after.pending

    def concerned(self) -> list[Name]:
        """The pods to tell about: those that differ, those that wait, those that were placed just now."""
        names = {move.pod for move in self.difference.moves}
        names |= {each.pod for each in self.outcome.placed} | {each.pod for each in self.outcome.pending}
        names |= {each.pod for each in self.evicted}
        return sorted(names)

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield f"{len(self.outcome.placed)} placed, {self.after.pending} pending"
        for name in self.concerned():
            standing = self.states[1].get(name, Standing(gone=True))
            yield f"{full_name(name)}  {standing.node or standing.why or 'gone'}"

    def as_json(self) -> dict[str, Any]:
        before, after = self.states
        return {
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "pods": [
                {
                    "pod": full_name(name),
                    "now": self.now.get(name) or None,
                    "before": _standing(before.get(name)),
                    "after": _standing(after.get(name)),
                }
                for name in self.concerned()
            ],
            "evicted": [_evicted(each) for each in self.evicted],
            "nodes": [each.as_json() for each in self.nodes],
            "as": {
                each.name: {
                    "about": each.about,
                    "placed": sum(1 for standing in each.state.values() if standing.node),
                    "pending": sum(1 for standing in each.state.values() if not standing.node),
                    "pods": [
                        {"pod": full_name(name), **_standing(each.state.get(name))}
                        for name in self.concerned()
                    ],
                }
                for each in self.predictions
            },
            "passedBy": list(self.passed_by),
        }


def _standing(standing: Standing | None) -> dict[str, Any]:
    if standing is None or standing.gone:
        return {"exists": False, "node": None, "why": ""}
    return {"exists": True, "node": standing.node or None, "why": standing.why}


def _evicted(each: Evicted) -> dict[str, Any]:
    return {
        "pod": full_name(each.pod),
        "node": each.node,
        "because": each.because.value,
        "by": each.by,
        "comesBack": each.comes_back,
        "afterSeconds": each.after,
    }
