"""The string extensions, version 2: positions count code points, cases are ASCII only.

Results that can outgrow their arguments (`replace`, `join`) are measured and paid for before they are built.
"""

from __future__ import annotations

from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions.format_text import format_string
from plimsoll.cel.functions.registry import INT, LIST, STRING, Function, Overload, function, list_of
from plimsoll.cel.values import Value
from plimsoll.errors import CelRuntimeError

LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_BLANKS = (
    "\t\n\v\f\r \u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    + ("\u2028\u2029\u202f\u205f\u3000")
)
_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _out_of_range(index: int) -> CelRuntimeError:
    return CelRuntimeError(f"index out of range: {index}")


def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset) if offset < len(text) else -1


def last_index_of(text: str, part: str) -> int:
    if not part:
        return len(text)
    if len(text.encode()) < len(part.encode()):
        return -1
    return last_index_of_from(text, part, len(text) - 1)


def last_index_of_from(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def replace(meter: Meter, text: str, old: str, new: str, limit: int = -1) -> str:
    count = len(text) + 1 if not old else text.count(old)
    if limit >= 0:
        count = min(count, limit)
    meter.spend((len(text) + max(0, count * (len(new) - len(old)))) >> 3)
    return text.replace(old, new, count)


def split(meter: Meter, text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        parts = list(text)
        meter.spend(len(parts))
        if 0 < limit < len(parts):
            parts[limit - 1 :] = ["".join(parts[limit - 1 :])]
        return parts
    parts = text.split(separator, limit - 1 if limit > 0 else -1)
    meter.spend(len(parts))
    return parts


def substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def substring_range(text: str, start: int, end: int) -> str:
    if start > end:
        raise CelRuntimeError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


def join(meter: Meter, items: list[Value], separator: str = "") -> str:
    total = len(separator) * max(0, len(items) - 1)
    for item in items:
        if type(item) is not str:
            raise CelRuntimeError("join: invalid input")
        total += len(item)
    meter.spend((total >> 3) + len(items))
    return separator.join(items)


def quote(text: str) -> str:
    return '"' + text.translate(_QUOTED) + '"'


FUNCTIONS: tuple[Function, ...] = (
    function("charAt", Overload("string_char_at_int", (STRING, INT), char_at)),
    function(
        "indexOf",
        Overload("string_index_of_string", (STRING, STRING), index_of),
        Overload("string_index_of_string_int", (STRING, STRING, INT), index_of, early=True),
    ),
    function(
        "lastIndexOf",
        Overload("string_last_index_of_string", (STRING, STRING), last_index_of),
        Overload("string_last_index_of_string_int", (STRING, STRING, INT), last_index_of_from, early=True),
    ),
    function("lowerAscii", Overload("string_lower_ascii", (STRING,), lambda text: text.translate(LOWER))),
    function("upperAscii", Overload("string_upper_ascii", (STRING,), lambda text: text.translate(UPPER))),
    function(
        "replace",
        Overload("string_replace_string_string", (STRING, STRING, STRING), replace, early=True, metered=True),
        Overload(
            "string_replace_string_string_int",
            (STRING, STRING, STRING, INT),
            replace,
            early=True,
            metered=True,
        ),
    ),
    function(
        "split",
        Overload("string_split_string", (STRING, STRING), split, metered=True),
        Overload("string_split_string_int", (STRING, STRING, INT), split, early=True, metered=True),
    ),
    function(
        "substring",
        Overload("string_substring_int", (STRING, INT), substring),
        Overload("string_substring_int_int", (STRING, INT, INT), substring_range, early=True),
    ),
    function("trim", Overload("string_trim", (STRING,), lambda text: text.strip(_BLANKS))),
    function("format", Overload("string_format", (STRING, LIST), format_string, early=True, metered=True)),
    function("strings.quote", Overload("strings_quote", (STRING,), quote)),
    function(
        "join",
        Overload("list_join", (list_of(STRING),), join, metered=True),
        Overload("list_join_string", (list_of(STRING), STRING), join, metered=True),
    ),
)
