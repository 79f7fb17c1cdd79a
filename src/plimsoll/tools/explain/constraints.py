"""Statements about constraints that no choice of devices satisfies, with the values present."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.allocator.reasons.refusal import GroupShortage, RequestValues
from plimsoll.tools.explain.extended_resources import name_request
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.text import StatementKind, pluralize
from plimsoll.tools.explain.tree import Statement

#: Values of one request that are listed.
MAX_VALUES = 4


def describe_constraint(view: PodView, shortage: GroupShortage, row: int) -> Statement:
    """Return the statement about one constraint."""
    texts = {each.request: ", ".join(_values(each)) or "no value" for each in shortage.present}
    is_one = len(set(texts.values())) == 1
    facts: dict[str, object] = {
        "claim": shortage.claim,
        "index": shortage.index,
        "relation": "different values of" if shortage.distinct else "the same",
        "attribute": shortage.attribute,
        "wanted": shortage.wanted,
        "devices": _wanted_text(view, shortage),
        "node": view.name(row),
        "values": next(iter(texts.values()))
        if is_one
        else "; ".join(f"{name}: {text}" for name, text in texts.items()),
    }
    return Statement(StatementKind.CONSTRAINT_UNMET, facts)


def _wanted_text(view: PodView, shortage: GroupShortage) -> str:
    """Return how many devices of which requests are compared; those with alternatives one by one."""
    names = [name_request(view.pod, shortage.claim, each.request) for each in shortage.present]
    if not any("/" in name for name in shortage.requests):
        word = "request" if len(names) == 1 else "requests"
        return f"{pluralize(shortage.wanted, 'device')} of {word} {', '.join(names)}"
    return ", ".join(
        f"{pluralize(each.wanted, 'device')} of request {each.request}" for each in shortage.present
    )


def _values(present: RequestValues) -> Iterator[str]:
    """Yield values with the numbers of their devices."""
    shown, rest = present.values[:MAX_VALUES], present.values[MAX_VALUES:]
    for place, each in enumerate(shown):
        if each.total > each.free:
            yield f"{each.value} ({each.free} of {pluralize(each.total, 'device')} free)"
        else:
            yield f"{each.value} ({each.total if place else pluralize(each.total, 'device')})"
    if rest:
        yield f"{len(rest)} more values"
    if present.without:
        yield f"{pluralize(present.without, 'device')} without it"
