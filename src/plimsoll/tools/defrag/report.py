"""`DefragReport`: the pods to move as text, with the commands that move them, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count, format_fitting_table, format_table, wrap_text
from plimsoll.tools.defrag.search import DefragResult, MoveOrder
from plimsoll.tools.defrag.target import DefragTarget
from plimsoll.tools.whatif.outcome import full_name


@dataclass(frozen=True, slots=True)
class DefragReport:
    """Result for one target."""

    target: DefragTarget
    result: DefragResult

    @property
    def fits(self) -> bool:
        return self.result.fits

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        result = self.result
        painted = paint.green if result.fits else paint.red
        for line in wrap_text(self._headline(), paint.width):
            yield paint.bold(painted(line))
        if not result.fits:
            yield from wrap_text(result.refusal or result.why, paint.width, first="  ")
        for head, texts in (
            ("tolerated node taints: ", result.tolerated),
            ("left out: ", [f"{format_count(n, 'node')} {why}" for why, n in result.left_out.items()]),
        ):
            if texts:
                yield from wrap_text(head + ", ".join(texts), paint.width, "  ")
        if not result.fits:
            return
        if result.moves:
            yield ""
            rows = [("MOVE", "FROM", "TO")]
            rows += [(full_name(each.pod), each.source, each.node) for each in result.moves]
            yield from format_fitting_table(rows, paint.width)
        yield ""
        rows = [("THEN", "NODE", "DEVICES")]
        rows += [
            (full_name(name), node, ", ".join(devices) or "-") for name, node, devices in result.placements
        ]
        yield from format_table(rows) if wide else format_fitting_table(rows, paint.width)
        if result.moves:
            yield ""
            yield paint.bold("COMMANDS") + "  not run; as scheduled in memory"
            yield from (f"  {line}" for line in self.commands())
            if any(each.bare for each in result.moves):
                yield "Pods without a controller are deleted, and must be recreated manually."

    def _headline(self) -> str:
        result, what = self.result, self.target.describe(self.result.targets)
        does, fits = ("do", "fit") if what.endswith("pods") else ("does", "fits")
        if result.refusal:
            return f"{what} would not be created: the API would refuse it"
        if not result.fits:
            if not result.movable:
                return f"{what} {does} not fit, and no pod can be moved"
            largest = min(result.largest, result.movable)
            moves = f"{format_count(largest, 'move')} of {format_count(result.movable, 'movable pod')}"
            if result.exact:
                return f"{what} {does} not fit, with up to {moves}"
            tried = format_count(result.tried, "set")
            return f"{what}: no solution found after {tried} of pods; up to {moves} were all tried"
        if not result.moves:
            return f"{what} {fits} without moving any pod"
        moves = format_count(len(result.moves), "move")
        if result.order is MoveOrder.DIRECTED:
            moves += ", each to the node listed"
        if result.exact:
            return f"{what} {fits} after {moves}; fewer are not enough"
        return (
            f"{what} {fits} after {moves}; fewer may be enough (all sets up to {result.largest} were tried)"
        )

    def commands(self) -> list[str]:
        """Return the commands that move the pods and create the target."""
        moves, order = self.result.moves, self.result.order
        deletes = [
            shlex.join(("kubectl", "delete", "pod", each.pod[1], "--namespace", each.pod[0]))
            for each in moves
        ]
        if order is MoveOrder.TARGET_FIRST:
            # The moved pods may return to the same nodes once the target has its place.
            return ["# create the pods that must fit first, with a higher priority", *deletes]
        create = "# create the pods that must fit"
        if self.target.pod or self.target.group:
            create = "# the pending pods are scheduled now"
        if order is MoveOrder.DIRECTED:
            note = "# the scheduler may choose other nodes: cordon those while a pod is recreated"
            return [note, *deletes, create]
        nodes = sorted({each.source for each in moves})
        lines = [shlex.join(("kubectl", "cordon", node)) for node in nodes] + deletes
        lines.append("# wait until the moved pods are running")
        lines += [shlex.join(("kubectl", "uncordon", node)) for node in nodes]
        return [*lines, create]

    def as_json(self) -> dict[str, Any]:
        result = self.result
        return {
            "target": self.target.describe(result.targets),
            "fits": result.fits,
            "fewest": result.exact,
            "moves": [
                {
                    "pod": full_name(each.pod),
                    "from": each.source,
                    "to": each.node,
                    "hasController": not each.bare,
                }
                for each in result.moves
            ],
            "placements": [
                {"pod": full_name(name), "node": node, "devices": list(devices)}
                for name, node, devices in result.placements
            ],
            "commands": self.commands() if result.moves else [],
            "order": result.order.value,
            "why": result.refusal or result.why or None,
            "toleratedTaints": list(result.tolerated),
            "nodesLeftOut": dict(result.left_out),
            "setsTried": result.tried,
            "completeUpTo": result.largest,
            "movablePods": result.movable,
        }
