"""`jsonpatch.escapeKey`: a key as a step of a JSON pointer."""

from __future__ import annotations

from plimsoll.cel.overloads.costs import PARSING
from plimsoll.cel.overloads.overload import Function, function

_ESCAPES = str.maketrans({"/": "~1", "~": "~0"})


def escape_key(key: str) -> str:
    return key.translate(_ESCAPES)


FUNCTIONS: tuple[Function, ...] = (
    function(
        "jsonpatch.escapeKey",
        "string_jsonpatch_escapeKey_string (string) -> string",
        call=escape_key,
        cost=PARSING,
    ),
)
