"""`Fix`, its steps, and `Hint`: proposed changes for a pending pod, as values.

A step carries its change as edits, so that a fix is proven by applying it to the objects in memory and
running the scheduling cycle. A hint has no edits: it is a guess, and is named one.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from plimsoll.tools.facts import fact_text, facts_as_json
from plimsoll.tools.fixes.edits import Edit


class FixKind(Enum):
    """Kind of a step: its harm, compared with other kinds, and its text as a format string."""

    REMOVE_GATES = 1, "remove the scheduling gates {gates}, or wait for the controller that set them"
    USE_CLASS = 4, "use DeviceClass {near}: DeviceClass {device_class} does not exist"
    USE_CLAIM = 5, "use ResourceClaim {near}: ResourceClaim {claim} does not exist"
    USE_RESOURCE = 6, "request {near} instead of {resource}, which no node and no DeviceClass provides"
    REMOVE_CLAIM = 9, "delete claim {claim}, which no pod uses and which holds {devices}"
    TOLERATE = 10, "tolerate taint {taint}"
    UNCORDON = 10, "kubectl uncordon {node}"
    TOLERATE_DEVICE = 12, "request {request}: tolerate device taint {taint} ({device})"
    COMPLETE_POOL = 14, "pool {pool} is incomplete ({why}): wait for its driver, or restart it"
    RAISE_BUDGET = 15, "raise the pod-level {what} for {resource} from {capacity} to {wanted}"
    RELEASE_CLAIM = 16, "claim {claim} is allocated elsewhere ({devices}): delete it and create it again"
    STEP_CAPACITY = 18, "request {request}: request {had} of {name} instead of {wanted}"
    OWN_CLAIM = 20, "use a separate claim with the spec of {claim}, which other pods use"
    DROP_LABEL = 20, "remove {wanted} from the node selector: node {node} has {had}"
    DROP_REQUIREMENT = 21, "remove {wanted} from the required node affinity: node {node} has {had}"
    CHANGE_SELECTOR = 24, "request {request}: select {attribute} {had} instead of {wanted}"
    LOWER_COUNT = 25, "request {request}: request {had} instead of {wanted}"
    RELAX_SPREAD = 25, "raise maxSkew of the spread over {key} from {skew} to {needed}"
    DROP_SELECTOR = 26, "request {request}: remove selector {expression}"
    DROP_CONSTRAINT = 26, "requests {requests}: remove the constraint on {attribute}"
    DROP_AFFINITY = 28, "remove the required node affinity"
    DROP_POD_AFFINITY = 28, "remove the {what} to pods with {selector} in the same {key}"
    CHANGE_RESOURCE = 40, "request {near} instead of {resource}"
    CHANGE_CLASS = 40, "request {request}: use DeviceClass {near} instead of {device_class}"
    LOWER_CAPACITY = 30, "request {request}: request at most {had} of {name} instead of {wanted}"
    DROP_SPREAD = 30, "set whenUnsatisfiable of the spread over {key} to ScheduleAnyway"
    DROP_PORT = 30, "do not request host port {port}"
    REMOVE_PODS = 20, "remove {pods}{short}"
    GO_ELSEWHERE = 32, "allow the pod on {node}: it requires {wanted}"
    SHRINK = 34, "request at most {had} {resource} instead of {wanted}"
    DROP_CAPACITY = 36, "request {request}: do not request {name}"
    CHANGE_CLASS_SELECTOR = 58, "DeviceClass {device_class}: select {attribute} {had} instead of {wanted}"
    RESTART_DRIVER = 40, "restart driver {driver} on node {node}, which had its devices before"
    REPAIR_NODE = 45, "repair node {node}: it has taint {taint}"
    ADD_DEVICES = 80, "add {count} like {device} to node {node}"
    ADD_NODE = 90, "add a node like {node}"
    ADD_SIZED_NODE = 95, "add a node with {amounts}"

    @property
    def harm(self) -> int:
        return self.value[0]

    @property
    def template(self) -> str:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class FixStep:
    """One change, its numbers, and what it harms beyond others of its kind."""

    kind: FixKind
    facts: Mapping[str, object]
    edits: tuple[Edit, ...] = field(repr=False, compare=False)
    more_harm: int = 0
    node: str = ""  #: the only node that it concerns

    @property
    def cost(self) -> int:
        return self.kind.harm + self.more_harm

    @property
    def targets(self) -> frozenset[Hashable]:
        """The things that it changes: a fix changes a thing once, and removes pods once."""
        removes = {self.kind} if self.kind is FixKind.REMOVE_PODS else set()
        return frozenset(edit.target for edit in self.edits) | removes

    @property
    def text(self) -> str:
        return self.kind.template.format_map({name: fact_text(fact) for name, fact in self.facts.items()})

    def as_json(self) -> dict[str, Any]:
        edits = [edit.as_json() for edit in self.edits]
        return {**_as_json(self.kind.name, self.text, self.facts), "edits": edits}


@dataclass(frozen=True, slots=True)
class Fix:
    """Changes with which a pod fits, each of them necessary; the nodes are those on which it fits then."""

    steps: tuple[FixStep, ...]
    nodes: tuple[str, ...] = ()

    @property
    def node(self) -> str:
        return self.nodes[0] if self.nodes else ""

    @property
    def cost(self) -> int:
        return sum(step.cost for step in self.steps)

    @property
    def text(self) -> str:
        return "; and ".join(step.text for step in self.steps) + self._scope()

    def _scope(self) -> str:
        if not self.nodes or any(step.node for step in self.steps):
            return ""
        if len(self.nodes) > 1:
            return f" (any of {len(self.nodes)} nodes)"
        word = rf"(?<![\w.-]){re.escape(self.node)}(?![\w.-])"
        is_named = any(re.search(word, step.text) for step in self.steps)
        return "" if is_named else f" (on {self.node})"

    def as_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "node": self.node or None,
            "nodes": len(self.nodes),
            "proven": True,
            "steps": [step.as_json() for step in self.steps],
        }


class HintKind(Enum):
    """Kind of a hint; the value is its text as a format string."""

    NAME_SCHEDULER = "set spec.schedulerName to a running scheduler (used by other pods: {names})"
    CREATE_CLAIM = "create ResourceClaim {claim} in namespace {namespace}{near}"
    CREATE_TEMPLATE = "create ResourceClaimTemplate {template} in namespace {namespace}{near}"
    MAKE_CLAIM = "template {template} exists, but no claim was created from it: check that the resource claim controller (kube-controller-manager) is running"  # noqa: E501
    WAIT_DELETION = "wait until claim {claim} is deleted, then recreate it; it is held by {why}"
    RENAME_OWNER = "claim {claim} belongs to {owner}: delete it, and the controller creates one for this pod"
    CREATE_CLASS = "create DeviceClass {device_class}{near}, or install the driver that brings it"
    NO_RESOURCE = "no node has {resource}, and no DeviceClass has that extendedResourceName: install the device plugin or the DeviceClass"  # noqa: E501
    INSTALL_DRIVER = (
        "no device of the cluster matches class {device_class}: install its driver, or use another class"
    )
    NO_DRIVER = "no ResourceSlice publishes devices for request {request}: check that the driver is running"
    CHECK_DRIVER = "check driver {driver} on node {node}, which had devices there before"
    WAIT_CLAIM = "claim {claim} can be used by one pod at a time: wait for {pods}"
    RAISE_STEPS = "increase the scheduler's searchSteps above {steps}, or simplify the claim"
    UPGRADE_NODE = "node {node}: run a kubelet that declares {wanted}"
    CORRECT = "correct the claim or its class: {text}"
    MEET = "run a pod with {selector} in the same {key} first"
    VOLUME = "{text}"


@dataclass(frozen=True, slots=True)
class Hint:
    """A guess: a change that was not tried, because its content or its effect is unknown."""

    kind: HintKind
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def text(self) -> str:
        template: str = self.kind.value
        return template.format_map({name: fact_text(fact) for name, fact in self.facts.items()})

    def as_json(self) -> dict[str, Any]:
        return _as_json(self.kind.name, self.text, self.facts)


@dataclass(frozen=True, slots=True)
class FixReport:
    """Fixes, least harm first; hints; and how far the search went if it found none."""

    fixes: tuple[Fix, ...] = ()
    hints: tuple[Hint, ...] = ()
    note: str = ""

    @property
    def nearest(self) -> Fix | Hint | None:
        """The nearest fix, or else the first hint."""
        return self.fixes[0] if self.fixes else next(iter(self.hints), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "fix": self.fixes[0].text if self.fixes else None,
            "fixes": [fix.as_json() for fix in self.fixes],
            "noFix": self.note or None,
            "hints": [hint.as_json() for hint in self.hints],
        }


NO_FIXES = FixReport()


def _as_json(kind: str, text: str, facts: Mapping[str, object]) -> dict[str, Any]:
    """Return a step or hint as JSON."""
    return {"kind": kind.lower().replace("_", "-"), "text": text, "numbers": facts_as_json(facts)}
