"""Fields of an object that a release of Kubernetes does not have, or drops because a feature gate is off.

A field belongs to a gate if the server drops it without that gate, which is found by trying.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from plimsoll.api.gates import GATES, Gates

Tree = dict[str, Any]


def find_gated_fields(
    prepare: Callable[[Gates], Tree], gates: Gates, minor: int
) -> tuple[list[str], list[str]]:
    """Return problems about fields that Kubernetes 1.`minor` does not have, and warnings about those that it
    drops without these gates. `prepare` returns the object as stored with others.
    """
    every = Gates(frozenset(gate.name for gate in GATES))
    whole, kept = prepare(every), prepare(gates)
    lost = set(_missing(whole, kept, ""))
    available = Gates.of_release(minor, available=True)
    absent: list[str] = []
    dropped: list[str] = []
    for gate in reversed(GATES):  # a gate is listed after those it requires
        if not lost or gate.name in gates.on:
            continue
        mine = lost.intersection(_missing(whole, prepare(Gates(every.on - {gate.name})), ""))
        lost -= mine
        if gate.name in available.on:
            text = f"the field is dropped: feature gate {gate.name} is off in Kubernetes 1.{minor}"
            dropped += (f"{path}: {text}" for path in sorted(mine))
        else:
            text = f"Kubernetes 1.{minor} does not have it (feature gate {gate.name})"
            absent += (f'unknown field "{path}"; {text}' for path in sorted(mine))
    return absent, dropped


def _missing(whole: Any, part: Any, path: str) -> Iterator[str]:
    """Yield the paths of the outermost fields that only the whole object has."""
    if isinstance(whole, dict) and isinstance(part, dict):
        for name, value in whole.items():
            place = f"{path}.{name}" if path else name
            if name in part:
                yield from _missing(value, part[name], place)
            else:
                yield place
    elif isinstance(whole, list) and isinstance(part, list) and len(whole) == len(part):
        for index, (value, other) in enumerate(zip(whole, part, strict=True)):
            yield from _missing(value, other, f"{path}[{index}]")
    elif isinstance(whole, list) and isinstance(part, list):
        yield path
