"""Validation of device taints and tolerations (docs/spec/api.md, "ResourceSlice" and "ResourceClaim,
template, class").

The number of tolerations is not limited, as in Kubernetes 1.36.
"""

from __future__ import annotations

from plimsoll.api.names import label_value
from plimsoll.api.resource import DeviceTaint, DeviceToleration
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import validate_format, validate_label_key

_EFFECTS = ("NoExecute", "NoSchedule", "None")
_OPERATORS = ("Equal", "Exists")


def validate_taint(taint: DeviceTaint, path: FieldPath, old: DeviceTaint | None = None) -> FieldErrors:
    """Validate a taint; an effect that is already stored is not validated again."""
    yield from validate_label_key(taint.key, path.child("key"))
    if taint.value:
        yield from validate_format(taint.value, path.child("value"), label_value)
    if old is not None and old.effect == taint.effect:
        return
    if not taint.effect:
        yield required(path.child("effect"), f"must be one of {', '.join(_EFFECTS)}")
    elif taint.effect not in _EFFECTS:
        yield not_supported(path.child("effect"), taint.effect, _EFFECTS)


def validate_toleration(toleration: DeviceToleration, path: FieldPath) -> FieldErrors:
    if toleration.key:
        yield from validate_label_key(toleration.key, path.child("key"))
    if not toleration.operator:
        yield required(path.child("operator"), f"must be one of {', '.join(_OPERATORS)}")
    elif toleration.operator == "Equal":
        yield from validate_format(toleration.value, path.child("value"), label_value)
    elif toleration.operator == "Exists":
        if toleration.value:
            yield invalid(path.child("value"), toleration.value, "must be empty with operator Exists")
    else:
        yield not_supported(path.child("operator"), toleration.operator, _OPERATORS)
    if toleration.effect and toleration.effect not in _EFFECTS:
        yield not_supported(path.child("effect"), toleration.effect, _EFFECTS)
