"""Label selectors: of pods in affinities and spread constraints, of volumes in claims."""

from __future__ import annotations

from plimsoll.api.meta import LabelSelector
from plimsoll.api.names import label_value
from plimsoll.apiserver.validation.field_errors import Path, Problems, forbidden, invalid, required
from plimsoll.apiserver.validation.metadata import check_labels
from plimsoll.apiserver.validation.name_formats import check_format, check_label_key

BAD_OPERATOR = "not a valid selector operator"
NEEDS_VALUES = "must be specified when `operator` is 'In' or 'NotIn'"
NO_VALUES = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"


def check_selector(selector: LabelSelector | None, path: Path, *, any_values: bool = False) -> Problems:
    """A selector; `any_values` is for one that is stored already, with values no label can have."""
    if selector is None:
        return
    yield from check_labels(selector.match_labels, path.child("matchLabels"))
    for place, requirement in enumerate(selector.match_expressions):
        at = path.child("matchExpressions").index(place)
        values = at.child("values")
        if requirement.operator in ("In", "NotIn"):
            if not requirement.values:
                yield required(values, NEEDS_VALUES)
        elif requirement.operator in ("Exists", "DoesNotExist"):
            if requirement.values:
                yield forbidden(values, NO_VALUES)
        else:
            yield invalid(at.child("operator"), requirement.operator, BAD_OPERATOR)
        yield from check_label_key(requirement.key, at.child("key"))
        if not any_values:
            for position, value in enumerate(requirement.values):
                yield from check_format(value, values.index(position), label_value)


def is_fine(selector: LabelSelector | None) -> bool:
    return not any(True for _ in check_selector(selector, Path("")))
