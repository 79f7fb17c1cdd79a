"""`plimsoll select`: evaluate a CEL device selector on the devices of ResourceSlices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.api.resource import ResourceSlice
from plimsoll.cel import Environment, compile_selector, flatten
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.columns import format_count, format_table
from plimsoll.tools.top.table import Cell, Table
from plimsoll.tools.views import decode_views

#: Number of devices that are listed one by one on a terminal.
_LISTED = 20


@dataclass(frozen=True, slots=True)
class SelectorResult:
    """Result for one device: match, no match, or the evaluation error."""

    device: str
    matched: bool
    error: str = ""
    cost: int = 0

    @property
    def text(self) -> str:
        if self.error:
            return f"error: {self.error}"
        return "matches" if self.matched else "no match"

    def as_json(self) -> dict[str, Any]:
        return {
            "device": self.device,
            "matches": self.matched,
            "error": self.error or None,
            "cost": self.cost,
        }


@dataclass(frozen=True, slots=True)
class SelectionReport:
    """Results for all devices."""

    answers: tuple[SelectorResult, ...]

    @property
    def matched(self) -> bool:
        return any(answer.matched for answer in self.answers)

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        """Yield the devices that match and each error once; `wide` lists all devices, with costs.

        On a terminal, many devices are counted by pool.
        """
        if wide and self.answers:
            rows = [(each.device, each.text, f"{each.cost:,}") for each in self.answers]
            lines = format_table([("DEVICE", "ANSWER", "COST"), *rows])
            yield next(lines)
            for line, answer in zip(lines, self.answers, strict=True):
                yield (paint.red if answer.error else paint.green if answer.matched else str)(line)
            return
        if not self.answers:
            return
        matching = [each.device for each in self.answers if each.matched]
        by_pool = paint.is_terminal and len(matching) > _LISTED
        if by_pool:
            yield from _pool_table(matching).lines(paint)
        else:
            yield from map(paint.green, matching)
        errors: dict[str, list[str]] = {}
        for each in self.answers:
            if each.error:
                errors.setdefault(each.error, []).append(each.device)
        for error, devices in errors.items():
            yield paint.red(
                f"error on {format_count(len(devices), 'device')}, for example {devices[0]}: {error}"
            )
        rest = " -o wide lists the others." if by_pool or len(matching) < len(self.answers) else ""
        yield f"{len(matching):,} of {format_count(len(self.answers), 'device')} matched.{rest}"

    def as_json(self) -> list[dict[str, Any]]:
        return [answer.as_json() for answer in self.answers]


def _pool_table(matching: Sequence[str]) -> Table:
    """Build the table of pools with matching devices."""
    pools: dict[str, list[str]] = {}
    for name in matching:
        pool, _, device = name.rpartition("/")
        pools.setdefault(pool, []).append(device)
    table = Table(("POOL", ">MATCHED", "DEVICES"))
    for pool, devices in pools.items():
        table.add(pool, Cell(f"{len(devices):,}", "green"), devices)
    return table


def select_devices(
    expression: str, objects: Iterable[ParsedObject], gates: Gates | None = None
) -> Iterator[SelectorResult]:
    """Evaluate a selector on all devices among the objects. Raise CelCompileError if it does not compile."""
    selector = compile_selector(expression, _environment(gates))
    for spec in (piece.spec for piece in decode_views(objects, ResourceSlice)):
        for device in spec.devices or ():
            outcome = selector.evaluate_exact(flatten(device, spec.driver))
            yield SelectorResult(
                f"{spec.driver}/{spec.pool.name}/{device.name}",
                outcome.result is True,
                "" if outcome.error is None else str(outcome.error),
                outcome.cost,
            )


def check_expression(expression: str, gates: Gates | None = None) -> None:
    """Raise CelCompileError if an expression is not a valid selector."""
    compile_selector(expression, _environment(gates))


def _environment(gates: Gates | None) -> Environment:
    gates = gates or Gates.default()
    return Environment(
        "stored", gates.enabled("DRAConsumableCapacity"), gates.enabled("DRAListTypeAttributes")
    )
