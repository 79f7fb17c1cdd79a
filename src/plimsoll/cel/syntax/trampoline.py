"""Recursion without Python's call stack.

A recursive procedure is written as a generator that yields the calls it wants to make and returns its value;
`run` keeps the pending generators on a list of its own. Expressions may nest as deep as CEL allows (250 rules
of each kind) no matter how deep the caller already is, and no RecursionError can arise from hostile text.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

# What a task yields is another task; what it is sent is that task's value, whose type only the caller knows.
Task: TypeAlias = Generator[Any, Any, T]


def run(task: Task[T]) -> T:
    """Run a task to its end and return its value."""
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
