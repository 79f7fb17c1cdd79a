"""`WhatifReport`: text output of a what-if.

Empty sections are omitted. Many pods are summarized by workload and node; `wide` lists each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.tools.amounts import format_short, resource_order
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count, format_fitting_table, format_table, wrap_text
from plimsoll.tools.fixes import Fix
from plimsoll.tools.whatif.drains import DELETE_EMPTY_DIR, FORCE, IGNORE_DAEMON_SETS, NodeDrain
from plimsoll.tools.whatif.exhaustive import Proof, ProofVerdict
from plimsoll.tools.whatif.fragmentation import Fragmentation
from plimsoll.tools.whatif.outcome import (
    ABSENT,
    EvictedPod,
    EvictionReason,
    Name,
    PodPlacement,
    PodPlacements,
    full_name,
    stem_of,
)
from plimsoll.tools.whatif.result import Prediction, WhatifResult
from plimsoll.tools.whatif.verdict import AskedPods

#: Pods and nodes listed by name.
FEW = 12
NODES = 3
WIDE = "-o wide lists them"


class WhatifReport(WhatifResult):
    """State before, state after, and the differences, as text."""

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield from _lines(self, paint, wide=wide)


def _lines(report: WhatifResult, paint: Paint, *, wide: bool) -> Iterator[str]:
    yield _headline(report, paint)
    for each in report.more:
        least = "at least " if each.least else ""
        count = f"capacity for {least}{each.count} more" if each.count else "no capacity for another"
        if each.count or not each.pending:
            text = f"{count} like {full_name(each.pod)}"
            yield from _wrapped("", f"{text}; then {each.refusal}" if each.refusal else text, paint)
    changes = "; ".join(report.plan.describe())
    if changes:
        yield from _wrapped("" if changes.startswith("without ") else "with ", changes, paint)
    if report.passed_by:
        yield from _wrapped("ignored: ", ", ".join(report.passed_by), paint)
    pods, pending = _pods(report, paint, wide), _pending(report, paint, wide)
    for section in (
        *(_drain(each, paint, wide) for each in report.drains if each.flags or each.blocked or each.later),
        _refused(report, paint, wide),
        *((pods, pending) if report.verdict.about is AskedPods.PENDING else (pending, pods)),
        _evicted(report, paint, wide, preempted=False),
        _evicted(report, paint, wide, preempted=True),
        _side_effects(report, paint, wide),
        *(_prediction(report, each, paint, wide) for each in report.predictions),
        _proof(report.proof, paint, wide) if report.proof is not None else (),
        _free(report, paint, wide),
        _uncounted(report, paint, wide),
        _nodes(report, paint) if wide else (),
    ):
        lines = list(section)
        if lines:
            yield ""
            yield from lines


def _headline(report: WhatifResult, paint: Paint) -> str:
    verdict = report.verdict
    text = verdict.text()
    if verdict.about is AskedPods.PENDING and verdict.asked and not report.plan.changes_nothing:
        before = sum(bool(report.states[0].get(name, ABSENT).node) for name in verdict.asked)
        text += f"; {before} scheduled without the change"
    if verdict.pending or verdict.refused or verdict.blocked:
        text = paint.red(text)
    elif verdict.scheduled:
        text = paint.green(text)
    return paint.bold(text)


def _uncounted(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    lines = list(report.uncounted.lines(paint))
    if wide or not lines:
        yield from lines
    else:
        yield from _wrapped("", f"{lines[0]} -o wide shows how to count them.", paint)


def _wrapped(head: str, text: str, paint: Paint, indent: str = "  ") -> Iterator[str]:
    yield from wrap_text(head + text, paint.width, indent) or [head.rstrip()]


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


_FLAGS = {
    IGNORE_DAEMON_SETS: "DaemonSet pods, which stay on the node",
    DELETE_EMPTY_DIR: "data of emptyDir volumes is lost",
    FORCE: "pods without a controller, which are deleted and must be recreated manually",
}


def _drain(drain: NodeDrain, paint: Paint, wide: bool) -> Iterator[str]:
    """Yield what `kubectl drain` does: the pods on which it blocks, and the flags that it needs."""
    yield paint.bold(drain.command)
    for pod, why in drain.blocked.items():
        yield from _wrapped("  ", f"blocks on {full_name(pod)}: {why}", paint, "    ")
    if drain.later:
        text = f"evicted when replacements of others are ready: {_listed(drain.later, wide)}"
        yield from _wrapped("  ", text, paint, "    ")
    for flag, names in sorted(drain.flags.items()):
        yield from _wrapped("  ", f"{flag}: {_FLAGS[flag]}: {_listed(names, wide)}", paint, "    ")


def _refused(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    """Yield the objects that are not created, by reason; pods of a refused workload have no own reason."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for each in report.refused:
        if each.why:
            name = full_name(each.name)
            text = name if each.kind == "Pod" else f"{each.kind} {name}"
            by_reason.setdefault((each.owner, each.why), []).append(text)
    if by_reason:
        yield paint.bold("NOT CREATED")
    for (owner, why), names in by_reason.items():
        yield from _wrapped("  ", _cut(names, wide), paint, "    ")
        by = f" by the controller of {owner}" if owner else ""
        yield from _wrapped("    ", f"the API would refuse the creation{by}: {why}", paint, "    ")


def _pending(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    if report.verdict.pending:
        yield paint.bold("PENDING")
        yield from _by_reason(report, report.verdict.pending, paint, "  ", wide)
        rest = len(set(report.verdict.pending) - report.fixes.keys())
        if rest:
            text = f"no fix was searched for {format_count(rest, 'pod')}; plimsoll explain finds those"
            yield from _wrapped("  ", text, paint, "    ")


def _by_reason(
    report: WhatifResult, names: Iterable[Name], paint: Paint, indent: str, wide: bool
) -> Iterator[str]:
    """Yield pending pods with the same reason, and the reason; it names the claims of the first of them."""
    recorded = {each.pod: each.recorded for each in report.outcome.pending}
    for found in report.group_pending(names):
        yield from _wrapped(indent, _listed(found, wide), paint, f"{indent}  ")
        why = report.states[1][found[0]].why
        if why:
            yield from _wrapped(f"{indent}  ", why, paint, f"{indent}  ")
        if recorded.get(found[0]):
            yield from _wrapped(f"{indent}  ", f"its scheduler: {recorded[found[0]]}", paint, f"{indent}    ")
        nearest = report.nearest_fix(found[0])
        note = report.fixes[found[0]].note if found[0] in report.fixes else ""
        if nearest is None and note:
            yield from _wrapped(f"{indent}  ", note, paint, f"{indent}    ")
        if nearest is not None:
            head = f"{indent}  {'fix' if isinstance(nearest, Fix) else 'hint'}: "
            yield from _wrapped(head, nearest.text, paint, f"{indent}    ")


def _listed(names: Iterable[Name], wide: bool) -> str:
    called = [full_name(name) for name in names] if wide else [text for text, _ in _groups(names)]
    return _cut(called, wide)


def _cut(texts: Sequence[str], wide: bool) -> str:
    """List texts, only the first ones unless `wide`."""
    more = 0 if wide else len(texts) - NODES
    return ", ".join(texts if more <= 0 else texts[:NODES]) + (
        f" and {more} more; {WIDE}" if more > 0 else ""
    )


def _rest(count: int) -> Iterator[str]:
    if count:
        yield f"  and {count} more; {WIDE}"


def _side_effects(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    """Yield what happens to pods that were not asked about."""
    verdict = report.verdict
    same = len(verdict.still_pending)
    groups = (
        (verdict.preempted, "preempted", False),
        (verdict.newly_pending, "pending that would be scheduled without the change", True),
        (verdict.newly_scheduled, "scheduled that would be pending without the change", False),
        (verdict.still_pending if wide else (), "pending before and after", True),
    )
    if any(names for names, _, _ in groups):
        yield paint.bold("SIDE EFFECTS")
    for names, label, reasons in groups:
        if names and not reasons:
            text = f"{format_count(len(names), 'pod')} {label}: {_listed(names, wide)}"
            yield from _wrapped("  ", text, paint, "    ")
        elif names:
            yield f"  {format_count(len(names), 'pod')} {label}:"
            yield from _by_reason(report, names, paint, "    ", wide)
    if same and not wide and not report.plan.changes_nothing:
        are = "is" if same == 1 else "are"
        text = (
            f"{format_count(same, 'other pod')} {are} pending with and without the change; -o wide shows why"
        )
        yield from _wrapped("", text, paint)


def _pods(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    before, after = report.states
    names = report.concerned(wide=wide)
    if not names:
        return
    same = report.plan.changes_nothing
    evicted = {each.pod for each in report.evicted}
    devices = {each.pod: each.devices for each in report.outcome.placed}
    charges = {each.pod: _charges(each.charges) for each in report.outcome.placed}
    if wide or len(names) <= FEW:
        rows = [("POD", "NOW" if same else "BEFORE", "AFTER", "CHARGES", "DEVICES")]
        rows += [
            (
                full_name(name),
                (report.now.get(name) or "pending")
                if same
                else _short(before.get(name, ABSENT), evicted=name in report.now),  # the baseline preempts
                _short(after.get(name, ABSENT), evicted=name in evicted),
                charges.get(name) or "-",
                ", ".join(devices.get(name, ())) or "-",
            )
            for name in names
        ]
        yield from _table(_without_before(rows), paint, wide=wide)
        return
    table = [("PODS", "BEFORE", "AFTER")]
    table += [(each.label, each.before, each.after) for each in group_pods(report, wide=False)]
    yield from _table(_without_before(table), paint)
    yield f"-o wide lists each of the {len(names)} pods"


def _without_before(rows: Sequence[tuple[str, ...]]) -> Sequence[tuple[str, ...]]:
    """Return a table of pods that are all new without the column of their nodes before."""
    if any(row[1] != "-" for row in rows[1:]):
        return rows
    return [(row[0], "NODE" if number == 0 else row[2], *row[3:]) for number, row in enumerate(rows)]


def group_pods(report: WhatifResult, *, wide: bool = True) -> list[PodGroupRow]:
    """Summarize the pods to report by workload, those asked about first."""
    before, after = report.states
    evicted = {each.pod for each in report.evicted}
    asked = report.verdict.asked
    names = report.concerned(wide=wide)
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
        parts.append(", ".join(named) + (f" and {format_count(more, 'more node')}" if more > 0 else ""))
    if pending:
        parts.append(f"{pending} pending")
    if gone:
        parts.append(f"{gone} evicted")
    return "; ".join(parts) or "-"


def _table(
    rows: Sequence[Sequence[str]], paint: Paint, indent: str = "", *, wide: bool = False
) -> Iterator[str]:
    """Yield a table without empty columns; if it is too wide, each row as a list of its cells."""
    columns = list(zip(*rows, strict=True))
    kept = [index for index, column in enumerate(columns) if set(column[1:]) - {"-"} or index < 2]
    rows = [[row[index] for index in kept] for row in rows]
    lines = (
        (indent + line for line in format_table(rows))
        if wide
        else format_fitting_table(rows, paint.width, indent)
    )
    for number, line in enumerate(lines):
        is_header = number == 0 and line.lstrip().startswith(f"{rows[0][0]} ")
        yield paint.bold(line) if is_header else line


def _evicted(report: WhatifResult, paint: Paint, wide: bool, *, preempted: bool) -> Iterator[str]:
    evicted = [
        each
        for each in report.evictions(wide=wide)
        if (each.because is EvictionReason.PREEMPTED) is preempted
    ]
    if not evicted:
        return
    after = report.states[1]
    yield paint.bold("PREEMPTED" if preempted else "EVICTED")
    shown = evicted if wide else evicted[:FEW]
    for each in shown:
        yield from _wrapped("  ", _describe_eviction(each, after.get(each.pod, ABSENT)), paint, "    ")
    yield from _rest(len(evicted) - len(shown))


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
    return f"{what}, if it is recreated manually" if each.bare else what


# -- other schedulers


def _prediction(report: WhatifResult, prediction: Prediction, paint: Paint, wide: bool) -> Iterator[str]:
    yield from map(paint.bold, _wrapped("", f"AS {prediction.name.upper()}: {prediction.about}", paint))
    differing = report.differing(prediction)
    if differing:
        yield from _differing(report, prediction, differing, paint, wide)
    else:
        pending = sum(1 for placement in prediction.state.values() if not placement.node)
        yield f"  the same pods are scheduled ({pending} pending)"
    if prediction.overcommits:
        nodes = len({over.node for over in prediction.overcommits})
        named = [
            f"{o.node} {o.resource} by {format_short(o.resource, o.units)}" for o in prediction.overcommits
        ]
        text = f"{format_count(nodes, 'node')} past the line once claims are counted: {_cut(named, wide)}"
        yield from map(paint.red, _wrapped("  ", text, paint, "    "))
    shown = prediction.conflicts if wide else prediction.conflicts[:FEW]
    for each in shown:
        yield from map(paint.red, _wrapped("  ", each.text, paint, "    "))
    yield from _rest(len(prediction.conflicts) - len(shown))


def _differing(
    report: WhatifResult, prediction: Prediction, differing: Sequence[Name], paint: Paint, wide: bool
) -> Iterator[str]:
    states = report.states[1], prediction.state
    yield f"  {len(differing)} {'pod differs' if len(differing) == 1 else 'pods differ'}:"
    rows: list[tuple[str, ...]] = [("POD", "DEFAULT", prediction.name.upper())]
    shown = differing if wide else differing[:FEW]
    rows += [
        (full_name(name), *(_short(state.get(name, ABSENT), evicted=name in report.now) for state in states))
        for name in shown
    ]
    yield from _table(rows, paint, "  ", wide=wide)
    yield from _rest(len(differing) - len(shown))
    reasons = Counter(
        state[name].why for name in differing for state in states if name in state and state[name].why
    ).most_common()
    for why, count in reasons if wide else reasons[:NODES]:
        yield from _wrapped(f"  {count} x " if count > 1 else "  ", why, paint, "    ")
    if len(reasons) > NODES and not wide:
        yield f"  and {format_count(len(reasons) - NODES, 'more reason')}; {WIDE}"


# -- proofs


def _proof(proof: Proof, paint: Paint, wide: bool) -> Iterator[str]:
    yield paint.bold("EXHAUSTIVE SEARCH")
    pods, steps = format_count(proof.pods, "pod"), format_count(proof.steps, "step")
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
        shown = sorted(proof.placement.items())[: None if wide else 2 * FEW]
        rows += [(full_name(name), found.node, ", ".join(found.devices) or "-") for name, found in shown]
        yield from _table(rows, paint, "  ", wide=wide)
        yield from _rest(len(proof.placement) - len(shown))


# -- free resources


def _free(report: WhatifResult, paint: Paint, wide: bool) -> Iterator[str]:
    """Yield the free resources; only those that change unless `wide` or nothing was to change."""
    before, after = report.before, report.after
    old, new = report.fragments
    pieces = {piece.resource: piece for piece in new.pieces}
    rows = []
    for name in sorted({*before.free, *after.free}, key=resource_order):
        counts = before.free.get(name, 0), after.free.get(name, 0)
        piece = pieces.get(name)
        most = f"{format_short(name, piece.most)} ({piece.node})" if piece is not None and piece.most else "-"
        rows.append((counts, (name, *(format_short(name, units) for units in counts), most)))
    for driver in sorted({*old.free_devices, *new.free_devices}):
        counts = old.free_devices.get(driver, 0), new.free_devices.get(driver, 0)
        most = str(new.most_devices.get(driver, 0))
        rows.append((counts, (f"devices of {driver}", *map(str, counts), most)))
    whole = wide or report.plan.changes_nothing
    shown = [row for (one, other), row in rows if whole or one != other]
    head: tuple[str, ...] = ("FREE", "BEFORE", "AFTER", "MOST ON ONE NODE")
    if report.plan.changes_nothing:  # both are the result of scheduling the pending pods
        head, shown = (head[0], *head[2:]), [(row[0], *row[2:]) for row in shown]
    if shown:
        yield from _table([head, *shown], paint, wide=wide)
    remarks = list(_remarks(new, None if whole else old, paint))
    yield from remarks
    hidden = len(rows) - len(shown)
    if hidden:
        rest = format_count(hidden, "other resource") if shown or remarks else "free resources"
        yield f"{rest} {'does' if hidden == 1 and (shown or remarks) else 'do'} not change; {WIDE}"


def _remarks(new: Fragmentation, old: Fragmentation | None, paint: Paint) -> Iterator[str]:
    """Yield the largest claims and stranded resources, without those that are as in `old`."""
    known = old or Fragmentation()
    claims = [
        f"{piece.device_class} {piece.most} (on {format_count(piece.nodes, 'node')})"
        if piece.most
        else f"{piece.device_class} none"
        for piece in new.classes
        if piece not in known.classes
    ]
    if claims:
        yield from _wrapped("largest claim of exclusive devices that fits: ", ", ".join(claims), paint)
    if new.nodes_without_devices and new.without_devices != known.without_devices:
        amounts = " and ".join(
            f"{format_short(name, units)} {name}" for name, units in sorted(new.without_devices.items())
        )
        text = f"{amounts} on {format_count(new.nodes_without_devices, 'node')} without free devices"
        yield from _wrapped("stranded: ", text, paint)
    if new.nodes_without_room and new.without_room != known.without_room:
        text = f"{format_count(sum(new.without_room.values()), 'free device')} on"
        text += f" {format_count(new.nodes_without_room, 'node')} without capacity for another pod"
        yield from _wrapped("stranded: ", text, paint)


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
