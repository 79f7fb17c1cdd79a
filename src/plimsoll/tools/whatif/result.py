"""`WhatifResult`: result of a what-if, and its JSON form; `texts.py` renders it as text."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.tools.amounts import format_amount
from plimsoll.tools.fixes import Fix, FixReport, Hint
from plimsoll.tools.top.uncounted_notes import UncountedNote
from plimsoll.tools.whatif.drains import NodeDrain
from plimsoll.tools.whatif.exhaustive import Proof
from plimsoll.tools.whatif.fragmentation import Fragmentation
from plimsoll.tools.whatif.hardware_conflicts import HardwareConflict
from plimsoll.tools.whatif.outcome import (
    ABSENT,
    EvictedPod,
    Name,
    PodPlacement,
    PodPlacements,
    RefusedObject,
    WhatifOutcome,
    by_number,
    full_name,
    moved_pods,
)
from plimsoll.tools.whatif.plan import WhatifPlan
from plimsoll.tools.whatif.totals import ClusterTotals, NodeChange
from plimsoll.tools.whatif.verdict import AskedPods, WhatifVerdict


@dataclass(frozen=True, slots=True)
class Overcommit:
    """Resource of a node that is requested beyond the allocatable amount."""

    node: str
    resource: str
    units: int


@dataclass(frozen=True, slots=True)
class Prediction:
    """Result of a kube-scheduler release for the same plan."""

    name: str
    about: str
    state: PodPlacements
    overcommits: tuple[Overcommit, ...] = ()  #: by our ledgers
    conflicts: tuple[HardwareConflict, ...] = ()


@dataclass(frozen=True, slots=True)
class ExtraCapacity:
    """Number of further pods like an added one that would fit; `least` if there may be more."""

    pod: Name
    count: int
    least: bool = False
    pending: bool = False  #: added ones of this kind are pending
    refusal: str = ""  #: the quota that does not allow more


@dataclass(kw_only=True)
class WhatifResult:
    """State before, state after, and the differences."""

    plan: WhatifPlan
    origin: str
    before: ClusterTotals
    after: ClusterTotals
    now: Mapping[Name, str]  #: pod -> its node in the cluster state, "" if it has none
    states: tuple[PodPlacements, PodPlacements]
    outcome: WhatifOutcome
    verdict: WhatifVerdict
    fragments: tuple[Fragmentation, Fragmentation]
    #: Of pending pods; those beyond the limit of searches are missing.
    fixes: Mapping[Name, FixReport] = field(default_factory=dict)
    evicted: tuple[EvictedPod, ...] = ()
    evicted_anyway: frozenset[Name] = frozenset()  #: preempted by pending pods without the plan as well
    refused: tuple[RefusedObject, ...] = ()
    drains: tuple[NodeDrain, ...] = ()
    nodes: tuple[NodeChange, ...] = ()
    passed_by: tuple[str, ...] = ()
    more: tuple[ExtraCapacity, ...] = ()
    proof: Proof | None = None
    predictions: list[Prediction] = field(default_factory=list)
    uncounted: UncountedNote = field(default_factory=UncountedNote)  #: after the changes

    @property
    def all_placed(self) -> bool:
        """Return whether every pod that the plan asks about is scheduled."""
        return self.verdict.all_scheduled

    def concerned(self, *, wide: bool = True) -> list[Name]:
        """Return the pods to report: those asked about, then others that change or are newly scheduled.

        Unless `wide`, without those that are the same with and without the plan, and those that are pending
        or not created and had no node.
        """
        names = moved_pods(*self.states)
        names |= {each.pod for each in self.evictions(wide=wide)}
        asked = self.verdict.asked
        if wide:
            names |= {each.pod for each in self.outcome.placed} | {each.pod for each in self.outcome.pending}
        else:
            if self.plan.changes_nothing or self.verdict.about is not AskedPods.PENDING:
                names |= asked
            names -= {each.pod for each in self.outcome.pending if not self.now.get(each.pod)}
        names -= set(self.verdict.refused)
        return sorted(names, key=lambda name: (name not in asked, by_number(name)))

    def nearest_fix(self, name: Name) -> Fix | Hint | None:
        """Return the nearest fix of a pending pod, or a hint."""
        return self.fixes[name].nearest if name in self.fixes else None

    def group_pending(self, names: Iterable[Name]) -> list[list[Name]]:
        """Group pending pods by cause and fix."""
        keys = {each.pod: (each.key, each.recorded) for each in self.outcome.pending}
        found: dict[Hashable, list[Name]] = {}
        for name in names:
            fix, report = self.nearest_fix(name), self.fixes.get(name)
            text = fix.text if fix is not None else "" if report is None else report.note
            found.setdefault((keys.get(name), text), []).append(name)
        return list(found.values())

    def evictions(self, *, wide: bool = True) -> list[EvictedPod]:
        """Return the evicted pods; unless `wide`, without those that a plan with changes does not cause."""
        known = frozenset() if wide or self.plan.changes_nothing else self.evicted_anyway
        return [each for each in self.evicted if each.pod not in known]

    def as_json(self) -> dict[str, Any]:
        before, after = self.states
        devices = {each.pod: each.devices for each in self.outcome.placed}
        charges = {each.pod: each.charges for each in self.outcome.placed}
        return {
            "allPlaced": self.all_placed,
            "verdict": self.verdict.as_json(),
            "sideEffects": self.verdict.side_effects_as_json(),
            "changes": list(self.plan.describe()),
            "before": self.before.as_json(),
            "after": self.after.as_json(),
            "pods": [
                {
                    "pod": full_name(name),
                    "now": self.now.get(name) or None,
                    "before": _placement(before.get(name)),
                    "after": {
                        **_placement(after.get(name)),
                        "charges": {res: format_amount(res, n) for res, n in charges.get(name, {}).items()},
                        "devices": list(devices.get(name, ())),
                    },
                }
                for name in self.concerned()
            ],
            "refused": [
                {"kind": each.kind, "name": full_name(each.name), "by": each.owner, "why": each.why}
                for each in self.refused
            ],
            "recorded": {
                full_name(each.pod): each.recorded for each in self.outcome.pending if each.recorded
            },
            "fixes": [
                {"pods": list(map(full_name, names)), **self.fixes[names[0]].as_json()}
                for names in self.group_pending(self.verdict.pending)
                if names[0] in self.fixes
            ],
            "evicted": [_evicted(each) for each in self.evicted],
            "drains": [each.as_json() for each in self.drains],
            "nodes": [each.as_json() for each in self.nodes],
            "fragmentation": {
                "before": self.fragments[0].as_json(),
                "after": self.fragments[1].as_json(),
            },
            "more": [
                {
                    "like": full_name(each.pod),
                    "fit": each.count,
                    "orMore": each.least,
                    "quota": each.refusal or None,
                }
                for each in self.more
            ],
            "exhaustive": None if self.proof is None else _proof(self.proof),
            "as": {each.name: self._prediction(each) for each in self.predictions},
            "passedBy": list(self.passed_by),
            **({"notCounted": self.uncounted.as_json()} if self.uncounted else {}),
        }

    def _prediction(self, prediction: Prediction) -> dict[str, Any]:
        state, ours = prediction.state, self.states[1]
        names = sorted({*self.concerned(), *self.differing(prediction)}, key=by_number)
        return {
            "about": prediction.about,
            "placed": sum(1 for placement in state.values() if placement.node),
            "pending": sum(1 for placement in state.values() if not placement.node),
            "pastTheLine": [
                {"node": over.node, "resource": over.resource, "by": format_amount(over.resource, over.units)}
                for over in prediction.overcommits
            ],
            "mayBeInUse": [
                {"pod": full_name(each.pod), "node": each.node, "given": each.given, "held": each.held}
                for each in prediction.conflicts
            ],
            "differs": [full_name(name) for name in self.differing(prediction)],
            "pods": [
                {
                    "pod": full_name(name),
                    **_placement(state.get(name)),
                    "ours": ours.get(name, ABSENT).node or None,
                }
                for name in names
            ],
        }

    def differing(self, prediction: Prediction) -> list[Name]:
        """Return the pods that are scheduled by only one of the two schedulers."""
        ours = self.states[1]
        found = [
            name
            for name in {*ours, *prediction.state}
            if bool(ours.get(name, ABSENT).node) != bool(prediction.state.get(name, ABSENT).node)
        ]
        return sorted(found, key=by_number)


def _placement(placement: PodPlacement | None) -> dict[str, Any]:
    if placement is None or placement.gone:
        return {"exists": False, "node": None, "why": ""}
    return {"exists": True, "node": placement.node or None, "why": placement.why}


def _evicted(each: EvictedPod) -> dict[str, Any]:
    return {
        "pod": full_name(each.pod),
        "node": each.node,
        "because": each.because.value,
        "by": each.by,
        "comesBack": each.comes_back,
        "hasController": not each.bare,
        "afterSeconds": each.after,
    }


def _proof(proof: Proof) -> dict[str, Any]:
    return {
        "verdict": proof.verdict.value,
        "pods": proof.pods,
        "scheduler": proof.greedy,
        "most": proof.most,
        "settled": proof.settled,
        "steps": proof.steps,
        "why": proof.why,
        "placement": [
            {"pod": full_name(name), "node": found.node, "devices": list(found.devices)}
            for name, found in sorted(proof.placement.items())
        ],
    }
