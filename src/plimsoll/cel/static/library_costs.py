"""Cost estimates of library functions, and the sizes of their results.

The estimators of the Kubernetes libraries (by function name), of the list and set extensions (by overload ID)
and of `includes`. Implements the rules of Kubernetes 1.36's CEL library and of cel-go v0.26's extensions;
`estimate.py` uses them before the rules of the standard library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from plimsoll.cel.static import types
from plimsoll.cel.static.paths import ValuePath
from plimsoll.cel.static.ranges import MAX, ONE, UNKNOWN, Range, fixed
from plimsoll.cel.static.types import CelType, TypeKind
from plimsoll.cel.syntax.ast import Const, Expr

STRING_FACTOR = 0.1
REGEX_FACTOR = 0.25
LIST_COST = 10
_MESSAGE_COST = 40
_MAX_INCLUDES = 48
_MAX_FORMAT = 64
_MAX_NAME_REGEX = 128
_IP_BYTES = Range(4, 16)


@dataclass(frozen=True, slots=True)
class AstNode:
    """An argument as estimators see it: `size` is None if it is unbounded so far."""

    expr: Expr
    type: CelType
    size: Range | None
    path: ValuePath

    @property
    def known_size(self) -> Range:
        return UNKNOWN if self.size is None else self.size

    @property
    def some_size(self) -> Range:
        """The same, but look again at the path, which may have changed since."""
        return self.size or self.path.declared_size() or UNKNOWN

    @property
    def item_size(self) -> Range:
        """The size of the items, for a list that is part of the device."""
        return self.path.declared_size("@items") or UNKNOWN


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """The cost of a call without its arguments, and the size of its result if known."""

    cost: Range
    size: Range | None = None


_Estimator: TypeAlias = "Callable[[str, AstNode | None, Sequence[AstNode]], CallEstimate | None]"


def call_cost(
    function: str, overload: str, target: AstNode | None, args: Sequence[AstNode]
) -> CallEstimate | None:
    """Return the estimate for a call, or None when the standard rules apply."""
    by_overload = _BY_OVERLOAD.get(overload)
    if by_overload is not None:
        found = by_overload(overload, target, args)
        if found is not None:
            return found
    by_function = _BY_FUNCTION.get(function)
    return None if by_function is None else by_function(overload, target, args)


# Extensions, by overload.


def _allocating(factor: float, size: Range) -> CallEstimate:
    """Return the cost of a call that makes a list of this size."""
    return CallEstimate(size.scaled(factor).plus(ONE).plus(fixed(LIST_COST)), size)


def _literal_int(node: AstNode, default: int) -> int:
    value = node.expr.value if isinstance(node.expr, Const) else None
    if type(value) is not int:
        return default
    return max(value, 0)


def _slice(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None or len(args) != 2:
        return None
    start = _literal_int(args[0], 0)
    end = _literal_int(args[1], target.some_size.high)
    return _allocating(1, fixed((end - start) & MAX))


def _range(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    return _allocating(1, fixed(_literal_int(args[0], MAX)))


def _reverse(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    return None if target is None else _allocating(1, target.some_size)


def _flatten(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    depth = _literal_int(args[0], MAX) if args else 1
    return None if target is None else _allocating(float(depth), target.some_size)


def _distinct(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    return None if target is None else _allocating(2.0, target.some_size.times(target.some_size))


def _sort(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    """Return the cost of sorting, which compares every pair of items or keys."""
    keys = args[0] if args else target
    if keys is None:
        return None
    texts = overload.startswith(("list_string_", "list_bytes_"))
    factor = 2.0 + STRING_FACTOR if texts else 2.0
    return _allocating(factor, keys.some_size.times(keys.some_size))


def _sets(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    rounds = 2 if overload == "list_sets_equivalent_list" else 1
    return CallEstimate(args[0].some_size.times(args[1].some_size).scaled(rounds).plus(ONE))


def _includes(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    return CallEstimate(Range(0, _MAX_INCLUDES))


_SORTED = ("int", "uint", "double", "bool", types.DURATION.name, types.TIMESTAMP.name, "string", "bytes")
_BY_OVERLOAD: dict[str, _Estimator] = {
    "dra_includes_dyn_dyn": _includes,
    "list_slice": _slice,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "lists_range": _range,
    "list_reverse": _reverse,
    "list_distinct": _distinct,
    **{f"list_{name}_sort": _sort for name in _SORTED},
    **{f"list_{name}_sortByAssociatedKeys": _sort for name in _SORTED},
    "list_sets_contains_list": _sets,
    "list_sets_intersects_list": _sets,
    "list_sets_equivalent_list": _sets,
}


# Kubernetes libraries, by function.


def _constant(cost: int) -> _Estimator:
    result = CallEstimate(fixed(cost))
    return lambda overload, target, args: result


def _selector(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if len(args) != 1:
        return None
    size = args[0].some_size
    requirements = size.scaled(0.5).scaled(float(LIST_COST + _MESSAGE_COST))
    return CallEstimate(fixed(LIST_COST).plus(size.scaled(STRING_FACTOR)).plus(requirements))


def _aggregate(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None:
        return None
    if not target.type.params:
        return CallEstimate(target.some_size.scaled(STRING_FACTOR))
    each = ONE
    if target.type.params[0].kind in (TypeKind.STRING, TypeKind.BYTES):
        each = each.plus(target.item_size.scaled(STRING_FACTOR))
    return CallEstimate(target.some_size.times(each))


def _url(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if len(args) != 1:
        return None
    return CallEstimate(args[0].some_size.scaled(STRING_FACTOR), args[0].some_size)


def _traverse(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None:
        return None
    return CallEstimate(target.some_size.scaled(STRING_FACTOR), target.some_size)


def _replace(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None or len(args) < 2:
        return None
    size, old, new = target.some_size, args[0].some_size, args[1].some_size
    # How often the text can be replaced, and how much of it can stay, for the longest and shortest result.
    if old.low == 0:
        most, kept_most = min(size.high + 1, MAX), size.high
    elif new.high <= old.low:
        most, kept_most = 0, size.high
    else:
        most, kept_most = _ceil_divide(size.high, old.low), 0
    if old.high == 0:
        least, kept_least = min(size.low + 1, MAX), size.low
    elif old.high <= new.low:
        least, kept_least = 0, size.low
    else:
        least, kept_least = _ceil_divide(size.low, old.high), 0
    result = Range(least, most).times(new).plus(Range(kept_least, kept_most))
    return CallEstimate(size.scaled(2 * STRING_FACTOR), result)


def _ceil_divide(value: int, by: int) -> int:
    quotient = math.ceil(float(value) / float(by))
    # A double of 2**64 does not fit in uint64; the processor's conversion leaves only the top bit.
    return 1 << 63 if quotient > MAX else quotient


def _split(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None:
        return None
    size = target.some_size
    parts = size.high
    if len(args) > 1 and isinstance(args[1].expr, Const) and type(args[1].expr.value) is int:
        parts = args[1].expr.value & MAX
    return CallEstimate(size.scaled(2 * STRING_FACTOR), Range(0, parts))


def _join(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None:
        return None
    count = target.some_size
    size = fixed(0)
    if target.type.params:
        size = count.times(target.item_size)
    if args:
        between = Range(max(count.low - 1, 0), max(count.high - 1, 0))
        size = size.plus(args[0].some_size.times(between))
    return CallEstimate(size.scaled(STRING_FACTOR), size)


def _find(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if target is None or not args:
        return None
    size = target.some_size
    text = size.plus(ONE).scaled(STRING_FACTOR)
    return CallEstimate(text.times(args[0].some_size.scaled(REGEX_FACTOR)), Range(0, size.high))


def _parse(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if overload == "cidr_ip":
        return CallEstimate(ONE)
    return CallEstimate(args[0].some_size.scaled(STRING_FACTOR)) if args else None


def _parse_twice(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    return CallEstimate(args[0].some_size.scaled(2 * STRING_FACTOR)) if args else None


def _contains_ip(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if not args:
        return None
    cost = _IP_BYTES.plus(_IP_BYTES).scaled(STRING_FACTOR)
    if overload.startswith("cidr_contains_cidr"):
        cost = cost.plus(_IP_BYTES.scaled(STRING_FACTOR)).plus(ONE)
    if overload.endswith("_string"):
        cost = cost.plus(args[0].some_size.scaled(STRING_FACTOR))
    return CallEstimate(cost)


def _validate(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    if not args:
        return None
    text = args[0].some_size.scaled(STRING_FACTOR)
    return CallEstimate(text.scaled(_MAX_NAME_REGEX * REGEX_FACTOR))


_CHEAP_EQUALITY = frozenset(
    {
        types.QUANTITY,
        types.SEMVER,
        types.IP,
        types.CIDR,
        types.AUTHORIZER,
        types.PATH_CHECK,
        types.GROUP_CHECK,
        types.RESOURCE_CHECK,
        types.DECISION,
    }
)


def _equals(overload: str, target: AstNode | None, args: Sequence[AstNode]) -> CallEstimate | None:
    left, right = args
    if left.type.name != right.type.name:
        return None
    if left.type in _CHEAP_EQUALITY:
        return CallEstimate(ONE)
    if left.type == types.FORMAT:
        return CallEstimate(Range(1, _MAX_FORMAT).scaled(STRING_FACTOR))
    if left.type == types.URL:
        longest = 1 if right.size is None else right.size.high
        return CallEstimate(Range(1, longest).scaled(STRING_FACTOR))
    return None


_BY_FUNCTION: dict[str, _Estimator] = {
    "check": _constant(350_000),
    "fieldSelector": _selector,
    "labelSelector": _selector,
    **dict.fromkeys(("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf"), _aggregate),
    "url": _url,
    **dict.fromkeys(("lowerAscii", "upperAscii", "substring", "trim"), _traverse),
    "replace": _replace,
    "split": _split,
    "join": _join,
    "find": _find,
    "findAll": _find,
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip"), _parse),
    **dict.fromkeys(("quantity", "isQuantity", "semver", "isSemver"), _parse),
    "ip.isCanonical": _parse_twice,
    "containsIP": _contains_ip,
    "containsCIDR": _contains_ip,
    "validate": _validate,
    "_==_": _equals,
}
_UNIT = _constant(1)
for _name in (
    # Authorizer builders and results.
    *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name"),
    *("allowed", "reason", "error", "errored"),
    # IP and CIDR.
    *("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast"),
    *("isLinkLocalUnicast", "isGlobalUnicast"),
    # Format, quantity, semver.
    *("format.named", "sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan"),
    *("compareTo", "add", "sub", "major", "minor", "patch"),
    # URL.
    *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
):
    _BY_FUNCTION[_name] = _UNIT
