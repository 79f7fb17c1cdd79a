"""Label selector matching: affinity, topology spread, disruption budgets, lists and watches.

A selector is compiled once to a hashable value; all of its requirements must match, an absent selector
matches nothing and an empty one everything. An invalid selector is a `SelectorProblem`, a value, because a
cluster may have stored it before validation became stricter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from plimsoll.api.meta import LabelSelector, LabelSelectorRequirement
from plimsoll.api.names import label_key, label_value
from plimsoll.api.quantity import INT64_MAX, INT64_MIN

IN, NOT_IN, EXISTS, ABSENT = "In", "NotIn", "Exists", "DoesNotExist"
GREATER, LESS = "Gt", "Lt"
_INT64 = range(INT64_MIN, INT64_MAX + 1)


@dataclass(frozen=True, slots=True)
class SelectorProblem:
    """A selector that cannot be evaluated: the requirement and the error."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class LabelRequirement(Protocol):
    """A requirement on one label, of a label selector or of a node selector."""

    @property
    def key(self) -> str: ...
    @property
    def operator(self) -> str: ...
    @property
    def values(self) -> tuple[str, ...]: ...


def label_matches(requirement: LabelRequirement, labels: Mapping[str, str]) -> bool:
    """Return whether labels satisfy a valid requirement."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    number = None if value is None else parse_int64(value)
    bound = parse_int64(requirement.values[0])
    if number is None or bound is None:
        return False
    return number > bound if requirement.operator == GREATER else number < bound


def parse_int64(text: str) -> int | None:
    """Parse a decimal integer of 64 bits; None if the text is something else."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if number in _INT64 else None


@dataclass(frozen=True, slots=True, order=True)
class CompiledLabelRequirement:
    """One requirement on one label; `values` are sorted and unique."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    holds = label_matches


@dataclass(frozen=True)
class CompiledLabelSelector:
    """A compiled label selector; equal for equal requirements in any order."""

    requirements: tuple[CompiledLabelRequirement, ...] = ()
    nothing: bool = False  #: matches no labels at all

    @property
    def everything(self) -> bool:
        """True if it has no requirements and matches all labels."""
        return not self.requirements and not self.nothing

    @cached_property
    def anchor(self) -> tuple[str, str] | None:
        """A label that all matching objects must have; None if there is no single one."""
        for requirement in self.requirements:
            if requirement.operator == IN and len(requirement.values) == 1:
                return requirement.key, requirement.values[0]
        return None

    @cached_property
    def _hash(self) -> int:
        return hash((self.requirements, self.nothing))

    def __hash__(self) -> int:
        return self._hash

    def matches(self, labels: Mapping[str, str]) -> bool:
        return not self.nothing and all(requirement.holds(labels) for requirement in self.requirements)

    def narrowed(self, more: Iterable[CompiledLabelRequirement]) -> CompiledLabelSelector:
        """Return this selector with further requirements; one that matches nothing is unchanged."""
        if self.nothing:
            return self
        return CompiledLabelSelector(tuple(sorted({*self.requirements, *more})))


MATCH_NOTHING = CompiledLabelSelector(nothing=True)
MATCH_EVERYTHING = CompiledLabelSelector()


def compile_label_selector(selector: LabelSelector | None) -> CompiledLabelSelector | SelectorProblem:
    """Compile a selector, or return the error that prevents its evaluation."""
    if selector is None:
        return MATCH_NOTHING
    found: set[CompiledLabelRequirement] = set()
    for key, value in selector.match_labels.items():
        message = _label_problem(key, (value,))
        if message:
            return SelectorProblem("matchLabels", message)
        found.add(CompiledLabelRequirement(key, IN, (value,)))
    for number, requirement in enumerate(selector.match_expressions):
        message = _requirement_problem(requirement)
        if message:
            return SelectorProblem(f"matchExpressions[{number}]", message)
        values = tuple(sorted(set(requirement.values)))
        found.add(CompiledLabelRequirement(requirement.key, requirement.operator, values))
    return CompiledLabelSelector(tuple(sorted(found))) if found else MATCH_EVERYTHING


def _requirement_problem(requirement: LabelSelectorRequirement) -> str:
    operator, count = requirement.operator, len(requirement.values)
    if operator in (IN, NOT_IN):
        if not count:
            return f"operator {operator} needs at least one value"
    elif operator in (EXISTS, ABSENT):
        if count:
            return f"operator {operator} takes no values"
    else:
        return f"{operator!r} is not a valid label selector operator"
    return _label_problem(requirement.key, requirement.values)


def _label_problem(key: str, values: Iterable[str]) -> str:
    if label_key(key):
        return f"{key!r} is not a valid label name"
    for value in values:
        if label_value(value):
            return f"{value!r} is not a valid label value"
    return ""
