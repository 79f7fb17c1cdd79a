"""`plimsoll gates`: the feature gates as a table or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll.api.gates import Gates


def table(gates: Gates) -> Iterator[tuple[str, str, str, str]]:
    """Yield a header and one row per gate: name, state, upstream default, description."""
    yield "GATE", "ON", "KUBERNETES", "SWITCHES"
    for gate, on in gates:
        default = _word(gate.upstream_default)
        since = "" if gate.upstream_default is None else f" ({gate.since})"
        yield gate.name, _word(on), default + since, gate.about


def as_json(gates: Gates) -> list[dict[str, Any]]:
    """Return the gates as JSON values."""
    return [
        {
            "gate": gate.name,
            "on": on,
            "upstreamDefault": gate.upstream_default,
            "upstreamRelease": None if gate.upstream_default is None else gate.since,
            "switches": gate.about,
        }
        for gate, on in gates
    ]


def _word(on: bool | None) -> str:
    return "-" if on is None else "on" if on else "off"
