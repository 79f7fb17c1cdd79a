"""Validation of CEL expressions: selectors of requests and classes (docs/spec/api.md, "ResourceClaim,
template, class"), and derived attributes of requests (KEP-6080).

Enforces the limits on length and estimated cost. The language itself is in `plimsoll.cel`; no other module of
validation but that of admission policies uses it, and neither is imported before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from plimsoll.api.gates import Gates
from plimsoll.api.names import byte_length
from plimsoll.api.resource import DeviceSelector
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    required,
    too_long,
    validate_list,
)
from plimsoll.errors import CelCompileError

if TYPE_CHECKING:
    from plimsoll.cel.static.environment import Environment

SELECTORS_MAX = 32
EXPRESSION_MAX = 10 * 1024
COST_MAX = 1_000_000


def validate_selectors(
    selectors: Sequence[DeviceSelector], path: FieldPath, gates: Gates, *, stored: bool = False
) -> FieldErrors:
    """Validate a list of selectors; `stored` ones are held to the rules they were created under."""

    def validate_selector(selector: DeviceSelector, at: FieldPath) -> FieldErrors:
        if selector.cel is None:
            yield required(at.child("cel"), "must be a CEL expression about a device")
        else:
            yield from validate_expression(
                selector.cel.expression, at.child("cel", "expression"), gates, stored=stored
            )

    return validate_list(selectors, SELECTORS_MAX, validate_selector, path)


def validate_expression(source: str, path: FieldPath, gates: Gates, *, stored: bool) -> FieldErrors:
    """Validate one expression: it must compile, return a bool, and stay within the cost limit."""
    if byte_length(source) > EXPRESSION_MAX:
        yield too_long(path, EXPRESSION_MAX)
        return
    error, cost = _compile(source, _environment(gates, stored))
    if error:
        yield invalid(path, source, error)
    elif cost > COST_MAX:
        yield forbidden(path, f"too complex: may cost {cost}, at most {COST_MAX} is allowed")


def validate_derived_expression(source: str, path: FieldPath, gates: Gates) -> FieldErrors:
    """Validate the expression of a derived attribute: it must compile, return the value of an attribute, and
    stay within the cost limit.
    """
    if byte_length(source) > EXPRESSION_MAX:
        yield too_long(path, EXPRESSION_MAX)
        return
    error, cost = _compile(source, _environment(gates, stored=False), derived=True)
    if error:
        yield invalid(path, source, error)
    elif cost > COST_MAX:
        yield forbidden(path, f"too complex: may cost {cost}, at most {COST_MAX} is allowed")


def estimate_derived_cost(sources: Iterable[str], gates: Gates) -> int:
    """Return the sum of the estimated costs of derived attributes."""
    environment = _environment(gates, stored=False)
    return sum(_compile(source, environment, derived=True)[1] for source in sources)


def _environment(gates: Gates, stored: bool) -> Environment:
    from plimsoll.cel.static.environment import Environment  # noqa: PLC0415 - only expressions need CEL

    return Environment(
        kind="stored" if stored else "new",
        consumable_capacity=gates.enabled("DRAConsumableCapacity"),
        list_attributes=gates.enabled("DRAListTypeAttributes"),
    )


@lru_cache(maxsize=1024)
def _compile(source: str, environment: Environment, derived: bool = False) -> tuple[str, int]:
    """Return the compile error of an expression (or "") and its estimated cost; cached."""
    from plimsoll.cel.check import check  # noqa: PLC0415 - only expressions need CEL

    try:
        return "", check(source, environment, derived).estimated_cost
    except CelCompileError as error:
        return str(error), 0
