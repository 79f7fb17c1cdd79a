"""`plimsoll gates`: the feature gates as a table or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.api.gates import Gates


def table(gates: Gates) -> Iterator[tuple[str, str, str, str]]:
    """Yield a header and one row per gate: name, state, upstream default, description."""
    yield "GATE", "ON", "KUBERNETES 1.36", "SWITCHES"
    for gate, on in gates:
        yield gate.name, _word(on), _word(gate.upstream_default), gate.about


def as_json(gates: Gates) -> list[dict[str, Any]]:
    """Return the gates as JSON values."""
    return [
        {"gate": gate.name, "on": on, "upstreamDefault": gate.upstream_default, "switches": gate.about}
        for gate, on in gates
    ]


def _word(on: bool | None) -> str:
    return "-" if on is None else "on" if on else "off"
