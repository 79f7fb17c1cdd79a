"""Defaults and validation of LimitRange."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.names import label_key
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules
from plimsoll.apiserver.validation.name_formats import is_extended_resource, validate_label_key
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.resources import validate_container_resource
from plimsoll.apiserver.validation.resource_names import is_huge_page_resource, validate_resource
from plimsoll.apiserver.validation.write_context import WriteContext

_LIMITS = FieldPath("spec").child("limits")
_TYPES = ("Pod", "Container", "PersistentVolumeClaim")
_ZERO, _ONE = Quantity.of(0), Quantity.of(1)
_NOT_FOR_PODS = "may not be specified when `type` is 'Pod'"
_NO_STORAGE = "either minimum or maximum storage value is required, but neither was provided"

#: Pairs of amounts of which the first must not exceed the second, the field to report, and the words.
_ORDER = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)


def _set_defaults(tree: Tree) -> None:
    """Default a container's default limit to the maximum, and its default request to the limit or the
    minimum.
    """
    for item in subtree(tree, "spec").get("limits", ()):
        if item.get("type") == "Container":
            limits = {**item.get("max", {}), **item.get("default", {})}
            requests = {**item.get("min", {}), **limits, **item.get("defaultRequest", {})}
            item.update({k: v for k, v in (("default", limits), ("defaultRequest", requests)) if v})


def _validate(write: WriteContext[Any]) -> FieldErrors:
    seen: set[str] = set()
    for index, item in enumerate(subtree(write.tree, "spec").get("limits", ())):
        path, kind = _LIMITS.index(index), item.get("type", "")
        if not kind:
            yield required(path.child("type"))
        else:
            yield from _validate_type(kind, path.child("type"))
        if kind in seen:
            yield duplicate(path.child("type"), kind)
        seen.add(kind)
        yield from _validate_item(item, kind, path)


def _validate_type(kind: str, path: FieldPath) -> FieldErrors:
    if label_key(kind):
        yield from validate_label_key(kind, path)
    elif "/" not in kind and kind not in _TYPES:
        yield invalid(path, kind, "must be a standard limit type or fully qualified")


def _validate_item(item: Tree, kind: str, path: FieldPath) -> FieldErrors:
    if kind == "Pod":
        for field in ("default", "defaultRequest"):
            if item.get(field):
                yield forbidden(path.child(field), _NOT_FOR_PODS)
    if kind == "PersistentVolumeClaim" and not any(
        "storage" in item.get(name, {}) for name in ("min", "max")
    ):
        yield required(path.child("limits"), _NO_STORAGE)
    amounts = {
        field: {name: Quantity.parse(text) for name, text in item.get(field, {}).items()}
        for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio")
        if kind != "Pod" or not field.startswith("default")
    }
    validate_name = validate_container_resource if kind in ("Pod", "Container") else validate_resource
    for field, named in amounts.items():
        for name in named:
            yield from validate_name(name, path.child(field).key(name))
    for name, amount in amounts.get("defaultRequest", {}).items():
        limit = amounts["default"].get(name)
        if (
            (is_extended_resource(name) or is_huge_page_resource(name))
            and limit is not None
            and limit != amount
        ):
            request = amount.canonical()
            detail = (
                f"default value {limit.canonical()} must equal to defaultRequest value {request} in {name}"
            )
            yield invalid(path.child("defaultRequest").key(name), request, detail)
    for lower, higher, field, text in _ORDER:
        for name, amount in amounts.get(lower, {}).items():
            bound = amounts.get(higher, {}).get(name)
            if bound is not None and amount > bound:
                why = text.format(amount.canonical(), bound.canonical())
                yield invalid(path.child(field).key(name), amounts[field][name].canonical(), why)
    for name, ratio in amounts["maxLimitRequestRatio"].items():
        at, shown = path.child("maxLimitRequestRatio").key(name), ratio.canonical()
        if ratio < _ONE:
            yield invalid(at, shown, f"ratio {shown} is less than 1")
        low, high = (amounts[field].get(name, _ZERO).milli() for field in ("min", "max"))
        if low and name in amounts["max"] and ratio.milli() * low > high * 1000:
            yield invalid(at, shown, f"ratio {shown} is greater than max/min = {format_ratio(high, low)}")


def format_ratio(amount: int, base: int) -> str:
    """Return the ratio of two positive amounts with six digits after the point."""
    millionths = (2 * amount * 10**6 + base) // (2 * base)
    return f"{millionths // 10**6}.{millionths % 10**6:06d}"


LIMIT_RANGE_RULES: Mapping[str, KindRules] = {
    "LimitRange": KindRules("core.v1", _set_defaults, validate=_validate)
}
