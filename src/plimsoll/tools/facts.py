"""Facts of statements, fixes and hints: named values, as text and in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from plimsoll.api.quantity import Quantity
from plimsoll.tools.amounts import format_distinct, format_exact, format_quantity, format_short


def facts_as_json(facts: Mapping[str, object]) -> dict[str, Any]:
    """Return facts as JSON values: integers and lists as they are, everything else as strings."""
    return {_camel(name): _plain(fact) for name, fact in facts.items()}


def join_names(names: Sequence[str], most: int = 5) -> str:
    """Join some names, with the number of the rest."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


@dataclass(frozen=True, slots=True)
class AmountFact:
    """Amount of a resource as a fact: short in the statement, exact in JSON output."""

    resource: str
    units: int
    text: str = ""  #: another text than `format_short`
    is_named: bool = False  #: followed by the name of the resource

    def __str__(self) -> str:
        return self._with_name(self.text or format_short(self.resource, self.units))

    @property
    def exact(self) -> str:
        return self._with_name(format_exact(self.resource, self.units))

    def _with_name(self, text: str) -> str:
        return f"{text} {self.resource}" if self.is_named else text


def compared_amounts(resource: str, **units: int) -> dict[str, AmountFact]:
    """Return facts of amounts that a statement compares, with different texts for different amounts."""
    texts = format_distinct(resource, *units.values())
    return {
        name: AmountFact(resource, amount, text)
        for (name, amount), text in zip(units.items(), texts, strict=True)
    }


def fact_text(fact: object) -> str:
    if isinstance(fact, Quantity):
        return format_quantity(fact)
    # Devices and pools are tuples, too, but with a text of their own.
    return join_names([str(each) for each in fact]) if _is_list(fact) else str(fact)


def _plain(fact: object) -> Any:
    if fact is None or isinstance(fact, (bool, int)):
        return fact
    if isinstance(fact, AmountFact):
        return fact.exact
    if isinstance(fact, Quantity):
        return format_quantity(fact)
    return [_plain(each) for each in fact] if _is_list(fact) else str(fact)


def _is_list(fact: object) -> TypeGuard[tuple[object, ...]]:
    return type(fact) is tuple


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)
