"""Label selector matching for typed objects: affinity, topology spread, disruption budgets.

A selector is compiled once to a hashable value; all of its requirements must match, an absent selector
matches nothing and an empty one everything. An invalid selector is a `SelectorProblem`, a value, because a
cluster may have stored it before validation became stricter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from plimsoll.api.meta import LabelSelector, LabelSelectorRequirement
from plimsoll.api.names import label_key, label_value
from plimsoll.api.node_selection import SelectorProblem

IN, NOT_IN, EXISTS, ABSENT = "In", "NotIn", "Exists", "DoesNotExist"


@dataclass(frozen=True, slots=True, order=True)
class CompiledLabelRequirement:
    """One requirement on one label; `values` are sorted and unique."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


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
