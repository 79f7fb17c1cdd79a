"""Field errors and field paths (upstream's field.Error and field.Path), and validation shared by all lists,
sets and maps.

Paths and error types follow docs/spec/api.md, "Pipeline of a write":
`spec.devices[0].capacity[vendor.io/x].value`; invalid map keys are reported on the map; a list over its limit
is reported once and its items are not validated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

_SHORTEST_KEY = 16
_SHOWN = 120


class FieldErrorType(StrEnum):
    """Type of a field error: the reason of the cause in a Kubernetes Status."""

    REQUIRED = "FieldValueRequired"
    INVALID = "FieldValueInvalid"
    DUPLICATE = "FieldValueDuplicate"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    NOT_FOUND = "FieldValueNotFound"
    INTERNAL = "InternalError"


class FieldPath:
    """Path of a field: `FieldPath("spec").child("devices").index(0).key("vendor.io/x")`."""

    __slots__ = ("_parent", "_step")

    def __init__(self, step: str, parent: FieldPath | None = None) -> None:
        self._step = step
        self._parent = parent

    def child(self, *names: str) -> FieldPath:
        path = self
        for name in names:
            path = FieldPath(f".{name}", path)
        return path

    def index(self, index: int) -> FieldPath:
        return FieldPath(f"[{index}]", self)

    def key(self, key: str) -> FieldPath:
        return FieldPath(f"[{key}]", self)

    def __str__(self) -> str:
        steps = []
        path: FieldPath | None = self
        while path is not None:
            steps.append(path._step)
            path = path._parent
        return "".join(reversed(steps))

    def __repr__(self) -> str:
        return f"Path({str(self)!r})"


#: Path of the object itself, as the API server writes it.
OBJECT_ROOT = FieldPath("[]")


@dataclass(frozen=True, slots=True)
class FieldError:
    """One violation of a validation rule."""

    field: str
    type: FieldErrorType
    detail: str
    value: Any = None

    def __str__(self) -> str:
        shown = "" if self.value is None else f" ({_format_value(self.value)})"
        return f"{self.field}: {self.detail}{shown}"


FieldErrors: TypeAlias = Iterator[FieldError]

#: Result of a check without errors; faster than a generator that yields nothing.
NO_ERRORS: tuple[FieldError, ...] = ()
CheckItem: TypeAlias = Callable[[T, FieldPath], Iterable[FieldError]]


def required(path: FieldPath, detail: str = "must be given") -> FieldError:
    return FieldError(str(path), FieldErrorType.REQUIRED, detail)


def invalid(path: FieldPath, value: Any, detail: str) -> FieldError:
    return FieldError(str(path), FieldErrorType.INVALID, detail, _truncate_value(value))


def duplicate(path: FieldPath, value: Any) -> FieldError:
    return FieldError(
        str(path), FieldErrorType.DUPLICATE, "is given twice; each must be unique", _truncate_value(value)
    )


def not_supported(path: FieldPath, value: Any, allowed: Iterable[str]) -> FieldError:
    names = ", ".join(each or "''" for each in allowed)
    detail = f"must be one of: {names}"
    return FieldError(str(path), FieldErrorType.NOT_SUPPORTED, detail, _truncate_value(value))


def forbidden(path: FieldPath, detail: str) -> FieldError:
    return FieldError(str(path), FieldErrorType.FORBIDDEN, detail)


def too_long(path: FieldPath, limit: int) -> FieldError:
    return FieldError(str(path), FieldErrorType.TOO_LONG, f"must be at most {limit} bytes long")


def too_many(path: FieldPath, count: int, limit: int) -> FieldError:
    return FieldError(str(path), FieldErrorType.TOO_MANY, f"must have at most {limit} items", count)


def not_found(path: FieldPath, value: Any, detail: str) -> FieldError:
    return FieldError(str(path), FieldErrorType.NOT_FOUND, detail, _truncate_value(value))


def internal(path: FieldPath, detail: str) -> FieldError:
    return FieldError(str(path), FieldErrorType.INTERNAL, detail)


def validate_list(
    items: Sequence[T], limit: int | None, validate_item: CheckItem[T], path: FieldPath
) -> FieldErrors:
    """Validate each item; a list over its limit is reported once and its items are not validated."""
    if limit is not None and len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for index, item in enumerate(items):
        yield from validate_item(item, path.index(index))


def validate_set(
    items: Sequence[T],
    limit: int | None,
    validate_item: CheckItem[T],
    key: Callable[[T], Hashable],
    path: FieldPath,
) -> FieldErrors:
    """Validate a list whose items must have distinct keys."""
    yield from validate_list(items, limit, validate_item, path)
    if limit is not None and len(items) > limit:
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(items):
        found = key(item)
        if found in seen:
            yield duplicate(path.index(index), found)
        seen.add(found)


def validate_unique(names: Iterable[str], path: FieldPath, field: str = "") -> FieldErrors:
    """Reject duplicate names, reported at the later index or on a field of the item there."""
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            at = path.index(index)
            yield duplicate(at.child(field) if field else at, name)
        seen.add(name)


def validate_map(
    items: Mapping[str, T],
    limit: int | None,
    longest_key: int,
    validate_key: CheckItem[str],
    validate_item: CheckItem[T],
    path: FieldPath,
    is_valid: Callable[[T], bool] | None = None,
) -> FieldErrors:
    """Validate keys (reported on the map) and values (reported on `map[key]`, long keys shortened).

    No path is built for values that `is_valid` accepts.
    """
    if limit is not None and len(items) > limit:
        yield too_many(path, len(items), limit)
        return
    for key, item in items.items():
        yield from validate_key(key, path)
        if is_valid is None or not is_valid(item):
            yield from validate_item(item, path.key(shorten(key, longest_key)))


def shorten(text: str, longest: int) -> str:
    """Cut the middle out of a text so that at most `longest` bytes (at least 16) remain."""
    longest = max(longest, _SHORTEST_KEY)
    if len(text) <= longest and text.isascii():
        return text
    raw = text.encode(errors="replace")
    if len(raw) <= longest:
        return text
    left = longest - len("...")
    return (raw[: (left + 1) // 2] + b"..." + raw[len(raw) - left // 2 :]).decode(errors="replace")


def join_names(names: Iterable[str], most: int = 10) -> str:
    """List at most `most` names for a message, so that messages stay short for any object."""
    listed = sorted(names)
    text = ", ".join(shorten(name, 64) for name in listed[:most])
    return f"{text} and {len(listed) - most} more" if len(listed) > most else text


def _truncate_value(value: Any) -> Any:
    """Return the value as an error keeps it: scalars only, shortened to a readable length."""
    if value is None or isinstance(value, (bool, int)):
        return value
    return shorten(str(value), _SHOWN)


def _format_value(value: Any) -> str:
    return f"got {value!r}" if isinstance(value, str) else f"got {value}"
