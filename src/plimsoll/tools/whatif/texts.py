"""Text output of a what-if.

Empty sections are omitted. Many pods are summarized by workload and node; `wide` lists each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from plimsoll.tools.amounts import format_short, resource_order
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count, format_table
from plimsoll.tools.whatif.exhaustive import Proof, ProofVerdict
from plimsoll.tools.whatif.fragmentation import Fragmentation
from plimsoll.tools.whatif.outcome import EvictedPod, Name, PodPlacement, PodPlacements, full_name, stem_of
from plimsoll.tools.whatif.result import ABSENT, Prediction, WhatifResult

#: Pods and nodes listed by name.
FEW = 12
NODES = 3


def format_report(report: WhatifResult, paint: Paint, *, wide: bool = False) -> Iterator[str]:
    """Yield all lines."""
    yield _headline(report, paint)
    changes = "; ".join(report.plan.describe())
    if changes:
        yield from _wrapped("" if changes.startswith("without ") else "with ", changes, paint)
    if report.passed_by:
        yield from _wrapped("ignored: ", ", ".join(report.passed_by), paint)
    for section in (
        _pending(report, paint),
        _pods(report, paint, wide),
        _side_effects(report, paint),
        report.uncounted.lines(paint),
        _evicted(report, paint, wide),
        *(_prediction(report, each, paint, wide) for each in report.predictions),
        _proof(report.proof, paint, wide) if report.proof is not None else (),
        _free(report, paint, wide),
        _nodes(report, paint) if wide else (),
    ):
        lines = list(section)
        if lines:
            yield ""
            yield from lines


def _headline(report: WhatifResult, paint: Paint) -> str:
    verdict = report.verdict
    text = verdict.text()
    if verdict.pending:
        text = paint.red(text)
    elif verdict.scheduled:
        text = paint.green(text)
    return paint.bold(text)


def _wrapped(head: str, text: str, paint: Paint, indent: str = "  ") -> Iterator[str]:
    width = max(40, paint.width)
    yield from wrap(head + text, width, subsequent_indent=indent, break_on_hyphens=False) or [head.rstrip()]


# -- pods


def _groups(names: Iterable[Name]) -> list[tuple[str, list[Name]]]:
    """Group pods by workload: a label for the group and its pods."""
    groups: dict[Name, list[Name]] = {}
    for name in names:
        groups.setdefault(stem_of(name), []).append(name)
    return [
        (full_name(group[0]) if len(group) == 1 else f"{full_name(stem)}-* ({len(group)})", group)
        for stem, group in groups.items()
    ]


@dataclass(frozen=True, slots=True)
class PodGroupRow:
    """Pods of a workload: where they are before and after."""

    label: str
    pods: tuple[Name, ...]
    before: str
    after: str
    asked: bool  #: the plan asks about them

    def as_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "pods": [full_name(name) for name in self.pods],
            "before": self.before,
            "after": self.after,
            "asked": self.asked,
        }


def _pending(report: WhatifResult, paint: Paint) -> Iterator[str]:
    if report.verdict.pending:
        yield paint.bold("PENDING")
        yield from _by_reason(report, report.verdict.pending, paint, "  ")


def _by_reason(report: WhatifResult, names: Iterable[Name], paint: Paint, indent: str) -> Iterator[str]:
    """Yield pending pods with the same reason, and the reason."""
    by_reason: dict[str, list[Name]] = {}
    for name in names:
        by_reason.setdefault(report.states[1][name].why, []).append(name)
    for why, found in by_reason.items():
        yield from _wrapped(indent, _listed(found), paint, f"{indent}  ")
        if why:
            yield from _wrapped(f"{indent}  ", why, paint, f"{indent}  ")


def _listed(names: Iterable[Name]) -> str:
    called = [text for text, _ in _groups(names)]
    return ", ".join(called[:NODES]) + (f" and {len(called) - NODES} more" if len(called) > NODES else "")


def _side_effects(report: WhatifResult, paint: Paint) -> Iterator[str]:
    """Yield what happens to pods that were not asked about."""
    verdict = report.verdict
    groups = (
        (verdict.preempted, "preempted", False),
        (verdict.newly_pending, "pending that would be scheduled without the change", True),
        (verdict.newly_scheduled, "scheduled that would be pending without the change", False),
        (verdict.still_pending, "pending before and after", True),
    )
    if not any(names for names, _, _ in groups):
        return
    yield paint.bold("SIDE EFFECTS")
    for names, label, reasons in groups:
        if names and not reasons:
            yield from _wrapped(
                "  ", f"{format_count(len(names), 'pod')} {label}: {_listed(names)}", paint, "    "
            )
        elif names:
            yield f"  {format_count(len(names), 'pod')} {label}:"
            yield from _by_reason(report, names, paint, "    ")


def _pods(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    before, after = report.states
    names = report.concerned()
    if not names:
        return
    evicted = {each.pod for each in report.evicted}
    devices = {each.pod: each.devices for each in report.outcome.placed}
    charges = {each.pod: _charges(each.charges) for each in report.outcome.placed}
    if wide or len(names) <= FEW:
        rows = [("POD", "BEFORE", "AFTER", "CHARGES", "DEVICES")]
        rows += [
            (
                full_name(name),
                _short(before.get(name, ABSENT), evicted=name in report.now),  # the baseline only preempts
                _short(after.get(name, ABSENT), evicted=name in evicted),
                charges.get(name) or "-",
                ", ".join(devices.get(name, ())) or "-",
            )
            for name in names
        ]
        yield from _table(rows, paint, wide=wide)
        return
    table = [("PODS", "BEFORE", "AFTER")]
    table += [(each.label, each.before, each.after) for each in group_pods(report)]
    yield from _table(table, paint)


def group_pods(report: WhatifResult) -> list[PodGroupRow]:
    """Summarize the pods to report by workload, those asked about first."""
    before, after = report.states
    evicted = {each.pod for each in report.evicted}
    asked = report.verdict.asked
    names = report.concerned()
    found = []
    for is_asked in (True, False):
        for text, group in _groups(name for name in names if (name in asked) is is_asked):
            old = _summary({name: before.get(name, ABSENT) for name in group}, report.now)
            new = _summary({name: after.get(name, ABSENT) for name in group}, evicted)
            found.append(PodGroupRow(text, tuple(group), old, new, is_asked))
    return found


def _charges(units: Mapping[str, int]) -> str:
    """Format what a pod is charged, requests and claims together."""
    return ", ".join(
        f"{name} {format_short(name, units[name])}" for name in sorted(units, key=resource_order)
    )


def _short(placement: PodPlacement, *, evicted: bool) -> str:
    """Return the node of a pod, or its state; "-" if it does not exist and was not evicted either."""
    if placement.gone:
        return "evicted" if evicted else "-"
    return placement.node or "pending"


def _summary(placements: PodPlacements, evicted: Container[Name]) -> str:
    """Summarize the placements of many pods; those of `evicted` that do not exist were evicted."""
    placed = Counter(each.node for each in placements.values() if each.node)
    pending = sum(1 for each in placements.values() if not each.node and not each.gone)
    gone = sum(1 for name, each in placements.items() if each.gone and name in evicted)
    parts = []
    if placed:
        named = [f"{node} x{count}" if count > 1 else node for node, count in placed.most_common(2)]
        more = len(placed) - len(named)
        parts.append(", ".join(named) + (f" and {more} more nodes" if more > 0 else ""))
    if pending:
        parts.append(f"{pending} pending")
    if gone:
        parts.append(f"{gone} evicted")
    return "; ".join(parts) or "-"


def _table(
    rows: Sequence[Sequence[str]], paint: Paint, indent: str = "", *, wide: bool = False
) -> Iterator[str]:
    """Yield a table without empty columns; lines that are too long are truncated unless `wide`."""
    columns = list(zip(*rows, strict=True))
    kept = [index for index, column in enumerate(columns) if set(column[1:]) - {"-"} or index < 3]
    width = max(40, paint.width) - len(indent)
    for number, whole in enumerate(format_table([[row[index] for index in kept] for row in rows])):
        line = whole if wide or len(whole) <= width else f"{whole[: width - 3]}..."
        yield indent + (paint.bold(line) if number == 0 else line)


def _evicted(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    if not report.evicted:
        return
    after = report.states[1]
    yield paint.bold("EVICTED")
    shown = report.evicted if wide else report.evicted[:FEW]
    for each in shown:
        yield from _wrapped("  ", _describe_eviction(each, after.get(each.pod, ABSENT)), paint, "    ")
    if len(report.evicted) > len(shown):
        yield f"  and {len(report.evicted) - len(shown)} more; -o wide lists them"


def _describe_eviction(each: EvictedPod, then: PodPlacement) -> str:
    by = f" ({each.by})" if each.by and each.by != each.node else ""
    what = f"{full_name(each.pod)} evicted from {each.node}: {each.because.value}{by}"
    if each.after:
        what += f", after {each.after} s"
    if not each.comes_back:
        return f"{what}; deleted, it has no controller"
    if then.gone:
        return f"{what}; deleted"
    what += f"; then {'on ' + then.node if then.node else 'pending'}"
    return f"{what} (no controller: a drain deletes it, it must be recreated manually)" if each.bare else what


# -- other schedulers


def _prediction(report: WhatifResult, prediction: Prediction, paint: Paint, wide: bool) -> Iterator[str]:
    yield paint.bold(f"AS {prediction.name.upper()}") + f"  {prediction.about}"
    differing = report.differing(prediction)
    if differing:
        yield from _differing(report, prediction, differing, paint, wide)
    else:
        pending = sum(1 for placement in prediction.state.values() if not placement.node)
        yield f"  the same pods are scheduled ({pending} pending)"
    if prediction.overcommits:
        nodes = len({over.node for over in prediction.overcommits})
        named = [
            f"{o.node} {o.resource} by {format_short(o.resource, o.units)}"
            for o in prediction.overcommits[:NODES]
        ]
        more = len(prediction.overcommits) - len(named)
        text = f"{_nodes_text(nodes)} past the line once claims are counted: {', '.join(named)}"
        yield from _wrapped("  ", paint.red(text + (f" and {more} more" if more else "")), paint, "    ")


def _differing(
    report: WhatifResult, prediction: Prediction, differing: Sequence[Name], paint: Paint, wide: bool
) -> Iterator[str]:
    states = report.states[1], prediction.state
    yield f"  {len(differing)} {'pod differs' if len(differing) == 1 else 'pods differ'}:"
    rows: list[tuple[str, ...]] = [("POD", "PLIMSOLL", prediction.name.upper())]
    shown = differing if wide else differing[:FEW]
    rows += [
        (full_name(name), *(_short(state.get(name, ABSENT), evicted=name in report.now) for state in states))
        for name in shown
    ]
    yield from _table(rows, paint, "  ", wide=wide)
    if len(differing) > len(shown):
        yield f"  and {len(differing) - len(shown)} more; -o wide lists them"
    reasons = Counter(
        state[name].why for name in differing for state in states if name in state and state[name].why
    )
    for why, count in reasons.most_common(NODES):
        yield from _wrapped(f"  {count} x " if count > 1 else "  ", why, paint, "    ")


# -- proofs


def _proof(proof: Proof, paint: Paint, wide: bool) -> Iterator[str]:
    yield paint.bold("EXHAUSTIVE SEARCH")
    pods = f"{proof.pods} pod{'s' if proof.pods != 1 else ''}"
    steps = f"{proof.steps} step{'s' if proof.steps != 1 else ''}"
    if proof.verdict is ProofVerdict.ALL:
        better = f"; the scheduler places {proof.greedy} one by one" if proof.placement else ""
        yield from _wrapped(
            "  ", f"all {pods} can be scheduled (proof: this placement, {steps}){better}", paint
        )
    elif proof.verdict is ProofVerdict.IMPOSSIBLE:
        yield from _wrapped("  ", f"impossible: no placement of all {pods} exists (search completed)", paint)
        if proof.why:
            yield from _wrapped("  ", proof.why, paint)
        known = "at most" if proof.settled else "at least"
        yield f"  {known} {proof.most} can be scheduled; the scheduler places {proof.greedy} one by one"
    else:
        why = (
            proof.why
            or f"undecided after {steps}: neither a placement of all pods nor a proof that none exists"
        )
        yield from _wrapped("  ", why, paint)
    if proof.placement:
        rows = [("POD", "NODE", "DEVICES")]
        shown = sorted(proof.placement.items())
        rows += [
            (full_name(name), found.node, ", ".join(found.devices) or "-")
            for name, found in (shown if wide else shown[: 2 * FEW])
        ]
        yield from _table(rows, paint, "  ", wide=wide)


# -- free resources


def _free(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    before, after = report.before, report.after
    old, new = report.fragments
    pieces = {piece.resource: piece for piece in new.pieces}
    rows = [("FREE", "BEFORE", "AFTER", "MOST ON ONE NODE")]
    for name in sorted({*before.free, *after.free}, key=resource_order):
        one, other = before.free.get(name, 0), after.free.get(name, 0)
        if not wide and name not in ("cpu", "memory") and one == other:
            continue
        piece = pieces.get(name)
        most = f"{format_short(name, piece.most)} ({piece.node})" if piece is not None and piece.most else "-"
        rows.append((name, format_short(name, one), format_short(name, other), most))
    for driver in sorted({*old.free_devices, *new.free_devices}):
        most = str(new.most_devices.get(driver, 0))
        counts = str(old.free_devices.get(driver, 0)), str(new.free_devices.get(driver, 0))
        rows.append((f"devices of {driver}", *counts, most))
    if len(rows) > 1:
        yield from _table(rows, paint, wide=wide)
    yield from _remarks(report, new, paint)


def _remarks(report: WhatifResult, new: Fragmentation, paint: Paint) -> Iterator[str]:
    for each in report.more:
        least = "at least " if each.least else ""
        yield from _wrapped("", f"capacity for {least}{each.count} more like {full_name(each.pod)}", paint)
    claims = [
        f"{piece.device_class} {piece.most} (on {piece.nodes} node{'s' if piece.nodes != 1 else ''})"
        if piece.most
        else f"{piece.device_class} {'none' if piece.most == 0 else 'unknown (too many different nodes)'}"
        for piece in new.classes
    ]
    if claims:
        yield from _wrapped("largest claim of exclusive devices that fits: ", ", ".join(claims), paint)
    if new.nodes_without_devices:
        amounts = " and ".join(
            f"{format_short(name, units)} {name}" for name, units in sorted(new.without_devices.items())
        )
        text = f"{amounts} on {_nodes_text(new.nodes_without_devices)} whose devices are all allocated"
        yield from _wrapped("stranded: ", text, paint)
    if new.nodes_without_room:
        count = sum(new.without_room.values())
        text = f"{count} free device{'s' if count != 1 else ''} on {_nodes_text(new.nodes_without_room)}"
        yield from _wrapped("stranded: ", f"{text} without capacity for another pod", paint)


def _nodes_text(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _nodes(report: WhatifResult, paint: Paint) -> Iterator[str]:
    """Yield the nodes whose free resources changed."""
    rows: list[tuple[str, ...]] = [("NODE", "CPU FREE BEFORE", "AFTER", "MEMORY FREE BEFORE", "AFTER")]
    for each in report.nodes[: 4 * FEW]:
        cells = [
            "-" if free is None else format_short(name, free.get(name, 0))
            for name in ("cpu", "memory")
            for free in (each.before, each.after)
        ]
        rows.append((each.node, *cells))
    if len(rows) > 1:
        yield from _table(rows, paint, wide=True)
    if len(report.nodes) > 4 * FEW:
        yield f"and {len(report.nodes) - 4 * FEW} more nodes; -o json lists them"
