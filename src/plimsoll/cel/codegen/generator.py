"""The fast back end: a Python function generated from the checked tree for the shapes selectors usually have.

The source is optimistic. It reads attributes and capacities with plain dict lookups and compares them with
plain operators; whatever goes wrong (a missing key, a value of another type) raises, and the function then
returns what the exact back end says. It is generated only where a result it does produce is the exact one,
and where the most the expression can cost on a device with strings and lists of ordinary size
(`device.MAX_PLAIN_SIZE`, `MAX_PLAIN_LIST`) stays within the cost limit.

No text of the expression reaches the source: names of variables become local names of our own, and every
literal, keys included, is an entry of a table of constants. `emit.py` writes the expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plimsoll.cel.check import CheckedExpr
from plimsoll.cel.codegen.emitter import Emitter
from plimsoll.cel.codegen.fragments import Unsupported
from plimsoll.cel.device import CelDevice

Matcher: TypeAlias = Callable[[CelDevice], bool]

_MAX_TEXT = 20_000


def generate(checked: CheckedExpr, exact: Matcher, limit: int) -> Matcher | None:
    """A function for the checked tree that falls back on `exact`, or None if the shape is not covered."""
    emitter = Emitter()
    try:
        code = emitter.emit(checked.root, {}, 0)
        body = emitter.condition(code)
        if code.bound > limit or len(body) > _MAX_TEXT:
            return None
    except (Unsupported, RecursionError):
        return None
    attributes = "listed" if checked.environment.list_attributes else "plain"
    lines = [
        "def matches(d):",
        "    try:",
        f"        A = d.{attributes}",
        "        C = d.capacity",
        *(f"        {line}" for line in emitter.prelude),
        f"        return {body}",
        "    except Exception:",
        "        pass",
        "    return X(d)",
    ]
    names: dict[str, Any] = {**emitter.names(), "X": exact}
    try:
        exec(compile("\n".join(lines), "<selector>", "exec"), names)
    except (SyntaxError, RecursionError, MemoryError, OverflowError):
        return None
    function: Matcher = names["matches"]
    return function
