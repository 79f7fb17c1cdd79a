"""String tests and the string extensions, version 2: positions count code points, case mapping is ASCII only.

Results that can be larger than their arguments (`replace`, `join`) are charged before they are built.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.cel.comparison import Meter
from plimsoll.cel.functions.format_text import format_string
from plimsoll.cel.functions.string_costs import AFFIX, CONTAINS, FORMAT, JOIN, QUOTE, REPLACE, SPLIT
from plimsoll.cel.overloads.costs import COPY, TRAVERSAL
from plimsoll.cel.overloads.fragments import WALK, CodeFragment, SourceWriter, Unsupported
from plimsoll.cel.overloads.overload import Function, function, overload
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


def _test(check: Callable[[str, str], bool]) -> Callable[[Value, Value], bool]:
    def test(text: Value, part: Value) -> bool:
        if type(text) is not str or type(part) is not str:
            raise CelRuntimeError("no such overload")
        return check(text, part)

    return test


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


# -- generated code


def _string_test(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    text, part = codes
    if text.constant or text.kind not in ("dyn", "str") or part.kind != "str":
        raise Unsupported
    if function == "contains":
        source = f"({text.text}.find({writer.read(part)}) >= 0)"
        bound = WALK * (len(part.value) + 1 if part.constant else WALK)
        return CodeFragment("bool", source, bound)
    return CodeFragment("bool", f"{text.text}.{function.lower()}({writer.read(part)})", WALK)


def _ascii(writer: SourceWriter, function: str, codes: list[CodeFragment]) -> CodeFragment:
    if codes[0].constant or codes[0].kind not in ("dyn", "str"):
        raise Unsupported
    table = writer.constant(LOWER if function == "lowerAscii" else UPPER)
    return CodeFragment("str", f"{codes[0].text}.translate({table})", WALK)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "contains",
        "contains_string string.(string) -> bool",
        dynamic=_test(lambda text, part: part in text),
        cost=CONTAINS,
        handler=_string_test,
    ),
    function(
        "startsWith",
        "starts_with_string string.(string) -> bool",
        dynamic=_test(str.startswith),
        cost=AFFIX,
        handler=_string_test,
    ),
    function(
        "endsWith",
        "ends_with_string string.(string) -> bool",
        dynamic=_test(str.endswith),
        cost=AFFIX,
        handler=_string_test,
    ),
    function("charAt", "string_char_at_int string.(int) -> string", call=char_at),
    function(
        "indexOf",
        "string_index_of_string string.(string) -> int",
        "string_index_of_string_int string.(string, int) -> int",
        call=index_of,
        cost=TRAVERSAL,
    ),
    function(
        "lastIndexOf",
        overload("string_last_index_of_string string.(string) -> int", last_index_of),
        overload("string_last_index_of_string_int string.(string, int) -> int", last_index_of_from),
        cost=TRAVERSAL,
    ),
    function(
        "lowerAscii",
        "string_lower_ascii string.() -> string",
        call=lambda text: text.translate(LOWER),
        cost=COPY,
        handler=_ascii,
    ),
    function(
        "upperAscii",
        "string_upper_ascii string.() -> string",
        call=lambda text: text.translate(UPPER),
        cost=COPY,
        handler=_ascii,
    ),
    function(
        "replace",
        "string_replace_string_string string.(string, string) -> string",
        "string_replace_string_string_int string.(string, string, int) -> string",
        call=replace,
        metered=True,
        cost=REPLACE,
    ),
    function(
        "split",
        "string_split_string string.(string) -> list(string)",
        "string_split_string_int string.(string, int) -> list(string)",
        call=split,
        metered=True,
        cost=SPLIT,
    ),
    function(
        "substring",
        overload("string_substring_int string.(int) -> string", substring),
        overload("string_substring_int_int string.(int, int) -> string", substring_range),
        cost=COPY,
    ),
    function("trim", "string_trim string.() -> string", call=lambda text: text.strip(_BLANKS), cost=COPY),
    function(
        "format",
        "string_format string.(list(dyn)) -> string",
        call=format_string,
        metered=True,
        early=True,
        cost=FORMAT,
    ),
    function("strings.quote", "strings_quote (string) -> string", call=quote, cost=QUOTE),
    function(
        "join",
        "list_join list(string).() -> string",
        "list_join_string list(string).(string) -> string",
        call=join,
        metered=True,
        cost=JOIN,
    ),
)
