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
from plimsoll.cluster.dump import Found
from plimsoll.tools.views import views_of


@dataclass(frozen=True, slots=True)
class Answer:
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


def select_devices(expression: str, objects: Iterable[Found], gates: Gates | None = None) -> Iterator[Answer]:
    """Ask a selector about the devices of all slices among the objects; CelCompileError if it is bad."""
    gates = gates or Gates.all_on()
    environment = Environment(
        "stored", gates.enabled("DRAConsumableCapacity"), gates.enabled("DRAListTypeAttributes")
    )
    selector = compile_selector(expression, environment)
    for spec in (piece.spec for piece in views_of(objects, ResourceSlice)):
        for device in spec.devices or ():
            outcome = selector.evaluate_exact(flatten(device, spec.driver))
            yield Answer(
                f"{spec.driver}/{spec.pool.name}/{device.name}",
                outcome.result is True,
                "" if outcome.error is None else str(outcome.error),
                outcome.cost,
            )
