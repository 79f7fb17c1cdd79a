"""Taints of nodes, and the effects that pods can tolerate."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Taint
from plimsoll.api.names import label_value
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problem,
    Problems,
    ProblemType,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import check_label_key

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def check_effect(effect: str, path: Path) -> Problems:
    if not effect:
        yield required(path)
    elif effect not in EFFECTS:
        yield not_supported(path, effect, EFFECTS)


def check_node_taints(taints: Sequence[Taint], path: Path) -> Problems:
    """The taints of a node, of which no two have the same key and effect."""
    seen: set[tuple[str, str]] = set()
    for place, taint in enumerate(taints):
        at = path.index(place)
        yield from check_label_key(taint.key, at.child("key"))
        complaints = label_value(taint.value)
        if complaints:
            yield invalid(at.child("value"), taint.value, ";".join(complaints))
        yield from check_effect(taint.effect, at.child("effect"))
        if (taint.key, taint.effect) in seen:
            detail = "taints must be unique by key and effect pair"
            shown = f"{taint.key}={taint.value}:{taint.effect}"
            yield Problem(str(at), ProblemType.DUPLICATE, detail, shown)
        seen.add((taint.key, taint.effect))
