"""Validation of label selectors."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.label_selection import CompiledLabelSelector, compile_label_selector
from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import label_value
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, forbidden, invalid, required
from plimsoll.apiserver.validation.metadata import validate_labels
from plimsoll.apiserver.validation.name_formats import validate_format, validate_label_key

BAD_OPERATOR = "not a valid selector operator"
NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def validate_selector(
    selector: LabelSelector | None, path: FieldPath, *, allow_invalid_label_values: bool = False
) -> FieldErrors:
    """Validate a label selector; stored ones may keep values that no label can have."""
    if selector is None:
        return
    yield from validate_labels(selector.match_labels, path.child("matchLabels"))
    for index, requirement in enumerate(selector.match_expressions):
        at = path.child("matchExpressions").index(index)
        values = at.child("values")
        if requirement.operator in ("In", "NotIn"):
            if not requirement.values:
                yield required(values, NEEDS_VALUES)
        elif requirement.operator in ("Exists", "DoesNotExist"):
            if requirement.values:
                yield forbidden(values, NO_VALUES)
        else:
            yield invalid(at.child("operator"), requirement.operator, BAD_OPERATOR)
        yield from validate_label_key(requirement.key, at.child("key"))
        if not allow_invalid_label_values:
            for position, value in enumerate(requirement.values):
                yield from validate_format(value, values.index(position), label_value)


def is_valid(selector: LabelSelector | None) -> bool:
    return not any(True for _ in validate_selector(selector, FieldPath("")))


def selector_matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Report whether a selector matches these labels; an empty one matches all, an invalid one none."""
    compiled = compile_label_selector(selector)
    return isinstance(compiled, CompiledLabelSelector) and compiled.matches(labels)
