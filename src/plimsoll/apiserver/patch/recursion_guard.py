"""Conversion of stack exhaustion into PatchError: invalid input never raises another exception.

Trees may be nested as deeply as the JSON decoder permits; walking them may exhaust the stack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from plimsoll.errors import DecodeError, PatchError

P = ParamSpec("P")
R = TypeVar("R")


def guard_recursion(function: Callable[P, R]) -> Callable[P, R]:
    """Convert RecursionError into PatchError."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (RecursionError, DecodeError):
            raise PatchError("the object or the patch is nested too deeply", malformed=True) from None

    return call
