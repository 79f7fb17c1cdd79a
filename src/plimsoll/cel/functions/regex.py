"""Regular expressions in the RE2 dialect: `matches`, `find`, `findAll`.

google-re2 matches in linear time. Syntax that it accepts and Go does not (`\\C`, nesting beyond 1000, group
names that are not ASCII) is rejected here. Texts are searched as UTF-8 bytes, so that the binding does not
have to convert offsets.

DIFF: a pattern that compiles to more than 8 MB (`\\pL{1000}`) is rejected; Go accepts it
(test_patterns_have_bounded_size).
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil
from typing import Any

import re2

from plimsoll.cel.comparison import Meter
from plimsoll.cel.overloads.costs import REGEX_FACTOR, STRING_FACTOR, Args, CallCost, CallEstimate, Nodes
from plimsoll.cel.overloads.fragments import WALK, CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
from plimsoll.cel.overloads.ranges import ONE, Range
from plimsoll.cel.values import Value, size_of
from plimsoll.errors import CelPatternError, CelRuntimeError

_MAX_NESTING = 1000
_GROUP_NAME = re.compile(r"\(\?P?<(\w+)>")


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:
    """Return the compiled pattern; raises CelPatternError."""
    _reject_extensions(pattern)
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise CelPatternError(f"error parsing regexp: {_message(error)}") from None


def _message(error: Exception) -> str:
    """Return the text of an error in Go's words, with the offending part in backquotes."""
    text = error.args[0] if error.args else str(error)
    text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    what, colon, part = text.partition(": ")
    return f"{_GO_WORDS.get(what, what)}: `{part}`" if colon else text


#: Go's words for errors of RE2, where they differ.
_GO_WORDS = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}


def _reject_extensions(pattern: str) -> None:
    """Reject syntax that RE2 accepts and Go does not: `\\C`, too many open groups, non-ASCII group names."""
    at, depth, in_class = 0, 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            escaped = pattern[at + 1 : at + 2]
            if escaped == "Q" and not in_class:
                end = pattern.find("\\E", at + 2)
                at = len(pattern) if end < 0 else end + 2
                continue
            if escaped == "C":
                raise CelPatternError("error parsing regexp: invalid escape sequence: `\\C`")
            at += 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            at += 2 if pattern[at + 1 : at + 2] == "^" else 1
            at += pattern[at : at + 1] == "]"  # a leading bracket is a literal
            continue
        elif char == "(":
            depth += 1
            name = _GROUP_NAME.match(pattern, at)
            if name is not None and not name[1].isascii():
                raise CelPatternError(f"error parsing regexp: invalid named capture: `{name[0]}`")
            if depth >= _MAX_NESTING:
                raise CelPatternError("error parsing regexp: expression nests too deeply")
        elif char == ")":
            depth -= 1
        at += 1


def matches(text: Value, pattern: Value) -> bool:
    """Return whether the pattern matches anywhere in the text."""
    if type(text) is not str or type(pattern) is not str:
        raise CelRuntimeError("no such overload")
    return compile_pattern(pattern).search(text.encode()) is not None


def find(text: str, pattern: str) -> str:
    """Return the first match, or an empty string."""
    match = compile_pattern(pattern).search(text.encode())
    return match.group().decode("utf-8", "replace") if match is not None else ""


def find_all(meter: Meter, text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return all matches from left to right, at most `limit` of them if that is not negative."""
    compiled = compile_pattern(pattern)
    data = text.encode()
    found: list[str] = []
    at, previous_end = 0, -1
    while at <= len(data) and (limit < 0 or len(found) < limit):
        match = compiled.search(data, at)
        if match is None:
            break
        meter.spend(1)
        start, end = match.span()
        accept = True
        if end == at:
            accept = start != previous_end  # no empty match directly after another match
            at += _width(data, at)
        else:
            at = end
        previous_end = end
        if accept:
            found.append(data[start:end].decode("utf-8", "replace"))
    return found


def _width(data: bytes, at: int) -> int:
    """Return the size in bytes of the character at an offset; 1 past the end."""
    if at >= len(data):
        return 1
    lead = data[at]
    return 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4


# -- costs


def _search_cost(run: Meter, args: Args, result: Value) -> int:
    return ceil((1.0 + size_of(args[0])) * STRING_FACTOR) * ceil(size_of(args[1]) * REGEX_FACTOR)


def _search(text: Range, pattern: Range) -> Range:
    return text.plus(ONE).scaled(STRING_FACTOR).times(pattern.scaled(REGEX_FACTOR))


def _match_estimate(args: Nodes) -> CallEstimate:
    return CallEstimate(_search(args[0].known_size, args[1].known_size))


def _find_estimate(args: Nodes) -> CallEstimate:
    text = args[0].some_size
    return CallEstimate(_search(text, args[1].some_size), Range(0, text.high))


# -- generated code


def _matches(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    text, pattern = codes
    if text.constant or text.kind not in ("dyn", "str") or not pattern.constant or pattern.kind != "str":
        raise Unsupported
    search = writer.constant(compile_pattern(pattern.value).search)
    bound = WALK * (len(pattern.value) + 1)
    return CodeFragment("bool", f"({search}({text.text}.encode()) is not None)", bound)


_FIND = CallCost(measure=_search_cost, estimator=_find_estimate)
_MATCH = CallCost(measure=_search_cost, estimator=_match_estimate)

FUNCTIONS: tuple[Function, ...] = (
    function(
        "matches",
        "matches (string, string) -> bool",
        overload("matches_string string.(string) -> bool", cost=_MATCH),
        dynamic=matches,
        handler=_matches,
    ),
    function("find", "string_find_string string.(string) -> string", call=find, cost=_FIND),
    function(
        "findAll",
        "string_find_all_string string.(string) -> list(string)",
        "string_find_all_string_int string.(string, int) -> list(string)",
        call=find_all,
        metered=True,
        cost=_FIND,
    ),
)

#: Names of the functions whose second argument is a pattern, which is compiled once if it is a constant.
PATTERN_FUNCTIONS = frozenset(one.name for one in FUNCTIONS)
