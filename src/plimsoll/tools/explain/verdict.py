"""Reports of `explain`: verdict and nearest fix first, then the details."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import wrap_text
from plimsoll.tools.explain.text import pluralize
from plimsoll.tools.explain.tree import FEW, NodeGroup, Statement
from plimsoll.tools.facts import join_names
from plimsoll.tools.fixes import NO_FIXES, Fix, FixReport

#: Groups shown before the rest is only counted.
GROUPS = 8


class ExplainVerdict(Enum):
    """State of a pod or claim."""

    PENDING = "pending"
    GATED = "gated"
    FITS = "fits now"
    PLACED = "placed"
    ENDED = "ended"
    ALLOCATED = "allocated"
    UNUSED = "unused"

    @property
    def label(self) -> str:
        """Text form, in kubectl's terms; the value is the JSON form."""
        return {"placed": "scheduled", "ended": "terminated"}.get(self.value, self.value)


@dataclass(frozen=True, slots=True)
class ExplanationSection:
    """Heading with statements."""

    title: str
    branches: tuple[Statement, ...]

    def lines(self, paint: Paint) -> Iterator[str]:
        yield ""
        yield paint.bold(self.title)
        for branch in self.branches:
            yield from branch_lines(branch, "  ", paint)

    def as_json(self) -> dict[str, Any]:
        return {"title": self.title, "children": [branch.as_json() for branch in self.branches]}


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """Explanation of a pending or scheduled pod."""

    subject: str  #: namespace/name
    verdict: ExplainVerdict
    summary: str  #: one line, in the words of kube-scheduler
    node: str = ""
    found: FixReport = NO_FIXES
    groups: tuple[NodeGroup, ...] = ()
    sections: tuple[ExplanationSection, ...] = ()
    preemption: str = ""
    notes: tuple[str, ...] = ()
    unfolded: bool = False

    kind = "Pod"

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return self.found.fixes

    @property
    def fix(self) -> str:
        """The nearest fix in one line; "" if none was found or is needed."""
        return self.fixes[0].text if self.fixes else ""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from head_lines(f"{self.kind.lower()} {self.subject}", self.verdict, self.summary, paint)
        yield from fix_lines(self.found, paint)
        for note in self.notes:
            yield from fold(paint.yellow, note, "note: ", paint.width)
        yield from group_lines(self.groups, paint, wide or self.unfolded)
        if self.preemption:
            yield ""
            yield from fold(str, self.preemption, "preemption: ", paint.width)
        for section in self.sections:
            yield from section.lines(paint)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "subject": self.subject,
            "verdict": self.verdict.value,
            "summary": self.summary,
            "node": self.node or None,
            **self.found.as_json(),
            "groups": [group.as_json(10**9 if self.unfolded else FEW) for group in self.groups],
            "preemption": self.preemption or None,
            "notes": list(self.notes),
            "sections": [section.as_json() for section in self.sections],
        }


@dataclass(frozen=True, slots=True)
class ClaimExplanation(PodExplanation):
    """Explanation of a claim."""

    kind = "Claim"


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """One pod on one node, with the result of every rule."""

    subject: str
    node: str
    fits: bool
    rules: tuple[tuple[str, str, tuple[Statement, ...]], ...]  #: rule, reason ("" if it passes), details
    found: FixReport = NO_FIXES
    notes: tuple[str, ...] = ()

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        word = paint.green("fits") if self.fits else paint.red("does not fit")
        yield f"{paint.bold(f'pod {self.subject}')} {word} on node {self.node}"
        yield from fix_lines(self.found, paint)
        for note in self.notes:
            yield from fold(paint.yellow, note, "note: ", paint.width)
        yield ""
        width = max((len(rule) for rule, _, _ in self.rules), default=0)
        for rule, message, branches in self.rules:
            mark = paint.red("no ") if message else paint.green("yes")
            yield f"{mark}  {rule.ljust(width)}  {message}".rstrip()
            for branch in branches:
                yield from branch_lines(branch, "       ", paint)

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": "Pod",
            "subject": self.subject,
            "node": self.node,
            "fits": self.fits,
            **self.found.as_json(),
            "notes": list(self.notes),
            "rules": [
                {
                    "rule": rule,
                    "passes": not message,
                    "reason": message or None,
                    "children": [branch.as_json() for branch in branches],
                }
                for rule, message, branches in self.rules
            ],
        }


# -- lines


def head_lines(name: str, verdict: ExplainVerdict, summary: str, paint: Paint) -> Iterator[str]:
    good = verdict in (ExplainVerdict.PLACED, ExplainVerdict.ALLOCATED, ExplainVerdict.FITS)
    color = paint.green if good else paint.yellow if verdict is ExplainVerdict.UNUSED else paint.red
    yield f"{paint.bold(name)}: {color(verdict.label)}"
    yield from fold(str, summary, "", paint.width)


def fix_lines(found: FixReport, paint: Paint) -> Iterator[str]:
    for number, fix in enumerate(found.fixes):
        label = "nearest fix: " if not number else "         or: "
        yield from fold(paint.green if not number else str, fix.text, label, paint.width)
    if found.note:
        yield from fold(paint.yellow, found.note, "", paint.width)
    for hint in found.hints:
        yield from fold(str, hint.text, "hint: ", paint.width)


def group_lines(groups: tuple[NodeGroup, ...], paint: Paint, unfolded: bool) -> Iterator[str]:
    shown = groups if unfolded else groups[:GROUPS]
    for group in shown:
        yield ""
        names = list(group.nodes)
        text = ", ".join(names) if unfolded else join_names(names, FEW)
        yield from fold(paint.dim, text, f"{pluralize(group.count, 'node')}: {group.message}: ", paint.width)
        inner = "  "
        if group.count > 1 and group.branches:
            yield f"  nearest: {group.nearest}"
            inner = "    "
        for branch in group.branches:
            yield from branch_lines(branch, inner, paint)
    rest = groups[len(shown) :]
    if rest:
        yield ""
        nodes = sum(group.count for group in rest)
        yield paint.dim(
            f"{pluralize(nodes, 'node')} more in {pluralize(len(rest), 'group')}; --all shows them"
        )


def branch_lines(branch: Statement, indent: str, paint: Paint) -> Iterator[str]:
    yield from fold(str, branch.text, indent, paint.width)
    for child in branch.children:
        yield from branch_lines(child, indent + "  ", paint)


def fold(color: Callable[[str], str], text: str, label: str, width: int) -> Iterator[str]:
    """Yield a label and a text in as many lines as needed; only the text is colored."""
    indent = " " * (len(label) - len(label.lstrip()))
    lines = wrap_text(label.lstrip() + text, width, f"{indent}  ", first=indent) or [label.rstrip()]
    first, *rest = lines
    yield first[: len(label)] + color(first[len(label) :])
    for line in rest:
        yield f"{indent}  " + color(line[len(indent) + 2 :])
