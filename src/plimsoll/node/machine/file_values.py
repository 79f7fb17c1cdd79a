"""Values of node settings and machine files: amounts by resource, labels, taints.

Errors are InputErrors that name the problem and the fix, DecodeErrors if they concern a field of the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta

from plimsoll.api.config import Config, convert_config
from plimsoll.api.core import ResourceList, Taint
from plimsoll.api.names import label_key, label_value
from plimsoll.api.quantity import Quantity
from plimsoll.errors import DecodeError, InputError
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_extended_resource
from plimsoll.node.machine.machine import HUGE_PAGES

_PLAIN = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)


def read_amounts(tree: Any) -> ResourceList:
    """Parse amounts by resource; raise DecodeError with the resource if one is invalid."""
    if not isinstance(tree, Mapping):
        raise InputError("must be amounts by resource, such as cpu: 8")
    return {str(name): _read_amount(str(name), value) for name, value in tree.items()}


def _read_amount(name: str, value: Any) -> Quantity:
    if name not in _PLAIN and not is_huge_page(name) and not is_extended_resource(name):
        raise DecodeError(
            f"unknown resource; valid resources: {', '.join(_PLAIN)}, "
            f"{HUGE_PAGES}SIZE, or a name with a domain such as example.com/gpu",
            name,
        )
    try:
        amount = Quantity.from_json(value)
    except InputError as error:
        raise DecodeError(str(error), name) from None
    if amount.sign() < 0:
        raise DecodeError(f"must not be negative, {amount} is", name)
    if name != CPU and amount != Quantity.of(amount.value()):
        raise DecodeError(f"must be a whole number, {amount} is not", name)
    if is_huge_page(name):
        _check_pages(name, amount)
    return amount


def _check_pages(name: str, amount: Quantity) -> None:
    try:
        size = Quantity.parse(name.removeprefix(HUGE_PAGES)).value()
    except InputError:
        size = 0
    if size <= 0:
        raise DecodeError(f"names no page size; write {HUGE_PAGES}2Mi or {HUGE_PAGES}1Gi", name)
    if amount.value() % size:
        raise DecodeError(f"must be whole pages, {amount} is not", name)


def read_labels(tree: Any) -> dict[str, str]:
    """Parse labels; raise InputError with the key if one is invalid."""
    if not isinstance(tree, Mapping):
        raise InputError("must be labels as key: value")
    found = {}
    for key, value in tree.items():
        if not isinstance(key, str) or label_key(key):
            raise InputError(f"{key!r} is not a valid label key: use a name such as example.com/rack")
        if not isinstance(value, str) or label_value(value):
            raise DecodeError(f"{value!r} is not a valid label value: use a short string", key)
        found[key] = value
    return found


def _read_taint_key(value: Any) -> str:
    if label_key(key := convert_config(value, str)):
        raise InputError(f"{key!r} is not a valid taint key: use a name such as dedicated")
    return str(key)


def _read_taint_value(value: Any) -> str:
    if label_value(text := convert_config(value, str)):
        raise InputError(f"{text!r} is not a valid taint value: use a short string")
    return str(text)


Effect: TypeAlias = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
EFFECTS: tuple[str, ...] = get_args(Effect)


class _TaintFile(Config, frozen=True, kw_only=True):
    key: Annotated[str, _read_taint_key, Meta(examples=["dedicated"])]
    effect: Effect
    value: Annotated[str, _read_taint_value] = ""


def read_taints(tree: Any) -> tuple[Taint, ...]:
    """Parse taints; raise DecodeError with the field if one is invalid."""
    found: dict[tuple[str, str], Taint] = {}
    for place, each in enumerate(convert_config(tree, Annotated[tuple[_TaintFile, ...], Meta(min_length=1)])):
        if (each.key, each.effect) in found:
            raise DecodeError(f"{each.key} with {each.effect} is given twice", f"[{place}].key")
        found[each.key, each.effect] = Taint(key=each.key, value=each.value, effect=each.effect)
    return tuple(found.values())


def parse_taint(text: str) -> Taint:
    """Parse `key=value:Effect` or `key:Effect`; raise InputError if it is malformed."""
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(\w+)", text)
    if not match or label_key(match[1]) or label_value(match[2] or "") or match[3] not in EFFECTS:
        raise InputError(
            f"{text!r} is not a taint: use key=value:EFFECT with EFFECT one of {', '.join(EFFECTS)}"
        )
    return Taint(key=match[1], value=match[2] or "", effect=match[3])


Amounts: TypeAlias = Annotated[dict[str, Quantity], read_amounts]
Labels: TypeAlias = Annotated[Mapping[str, str], read_labels]
Taints: TypeAlias = Annotated[tuple[Taint, ...], read_taints]
