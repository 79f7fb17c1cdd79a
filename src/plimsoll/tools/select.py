"""Which devices does a selector match? The selector compiler asked from outside.

Owns asking one CEL expression about every device of some ResourceSlices. Other kinds are passed by.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.api.resource import ResourceSlice
from plimsoll.cel import Environment, compile_selector, flatten
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.columns import format_table
from plimsoll.tools.views import decode_views


@dataclass(frozen=True, slots=True)
class SelectorResult:
    """What a selector says of one device: it matches or not, or why it could not be asked."""

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
    """What a selector says of all devices."""

    answers: tuple[SelectorResult, ...]

    @property
    def matched(self) -> bool:
        return any(answer.matched for answer in self.answers)

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        """A row a device; `wide` with what asking cost."""
        if not self.answers:
            return
        rows = [("DEVICE", "ANSWER", "COST")]
        rows += [(answer.device, answer.text, f"{answer.cost:,}") for answer in self.answers]
        lines = format_table(rows if wide else [row[:2] for row in rows])
        yield next(lines)
        for line, answer in zip(lines, self.answers, strict=True):
            yield (paint.red if answer.error else paint.green if answer.matched else str)(line)

    def as_json(self) -> list[dict[str, Any]]:
        return [answer.as_json() for answer in self.answers]


def select_devices(
    expression: str, objects: Iterable[ParsedObject], gates: Gates | None = None
) -> Iterator[SelectorResult]:
    """Ask a selector about the devices of all slices among the objects; CelCompileError if it is bad."""
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
    """CelCompileError if an expression is no selector."""
    compile_selector(expression, _environment(gates))


def _environment(gates: Gates | None) -> Environment:
    gates = gates or Gates.all_on()
    return Environment(
        "stored", gates.enabled("DRAConsumableCapacity"), gates.enabled("DRAListTypeAttributes")
    )
