"""Code generator: compiles common selectors to a Python function.

The source is optimistic. It reads attributes and capacities with plain dict lookups and compares them with
plain operators; any failure (a missing key, a value of another type) raises, and the function then returns
the interpreter's result. It is generated only if every result it produces is exact, and if the maximum cost
of the expression on a device with strings and lists of ordinary size (`fragments.MAX_PLAIN_SIZE`,
`MAX_PLAIN_LIST`) is within the cost limit.

No text of the expression reaches the source: variables get generated names, and every literal, including
keys, is an entry of a table of constants. `emitter.py` emits the expressions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plimsoll.cel.check import CheckedExpr
from plimsoll.cel.codegen.emitter import Emitter
from plimsoll.cel.device import CelDevice
from plimsoll.cel.overloads.fragments import Unsupported

Matcher: TypeAlias = Callable[[CelDevice], bool]

_MAX_TEXT = 20_000


def generate(checked: CheckedExpr, exact: Matcher, limit: int) -> Matcher | None:
    """Generate a function for the checked tree that falls back on `exact`; None if the shape is not
    supported.
    """
    emitter = Emitter()
    try:
        code = emitter.emit(checked.root, {}, 0)
        body = emitter.condition(code)
        if code.bound > limit or len(body) > _MAX_TEXT:
            return None
    except (Unsupported, RecursionError):
        return None
    attributes = "listed" if checked.device_environment.list_attributes else "plain"
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
