"""Validation of node taints and taint effects."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import Taint
from plimsoll.api.names import label_value
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldErrorType,
    FieldPath,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import validate_label_key

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_effect(effect: str, path: FieldPath) -> FieldErrors:
    if not effect:
        yield required(path)
    elif effect not in EFFECTS:
        yield not_supported(path, effect, EFFECTS)


def validate_node_taints(taints: Sequence[Taint], path: FieldPath) -> FieldErrors:
    """Validate the taints of a node, which must be unique by key and effect."""
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        at = path.index(index)
        yield from validate_label_key(taint.key, at.child("key"))
        messages = label_value(taint.value)
        if messages:
            yield invalid(at.child("value"), taint.value, ";".join(messages))
        yield from validate_effect(taint.effect, at.child("effect"))
        if (taint.key, taint.effect) in seen:
            detail = "taints must be unique by key and effect pair"
            shown = f"{taint.key}={taint.value}:{taint.effect}"
            yield FieldError(str(at), FieldErrorType.DUPLICATE, detail, shown)
        seen.add((taint.key, taint.effect))
