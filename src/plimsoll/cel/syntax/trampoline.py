"""Trampoline: recursion without Python's call stack.

A recursive function is written as a generator that yields its recursive calls and returns its value; `run`
keeps the pending generators in a list. Expressions may nest as deep as CEL allows (250 rules of each kind),
independently of the depth of the caller, and hostile text cannot cause a RecursionError.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

# A task yields another task and receives its value, whose type only the caller knows.
Task: TypeAlias = Generator[Any, Any, T]


def run(task: Task[T]) -> T:
    """Run a task and return its value."""
    pending: list[Task[Any]] = [task]
    value: Any = None
    while pending:
        try:
            call = pending[-1].send(value)
        except StopIteration as stop:
            pending.pop()
            value = stop.value
        else:
            pending.append(call)
            value = None
    result: T = value
    return result
