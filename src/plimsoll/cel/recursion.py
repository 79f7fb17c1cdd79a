"""Room for deep recursion, however deep the caller already is.

Expressions that the parser accepts need a few hundred Python frames at most, but a caller may have left
fewer. Each thread counts its frames from zero, so what does not fit is done again in a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_with_stack(call: Callable[[], T]) -> T:
    """Call a function that has no effects; RecursionError means that even a whole stack does not hold it."""
    try:
        return call()
    except RecursionError:
        return in_fresh_stack(call)


def in_fresh_stack(call: Callable[[], T]) -> T:
    """Call a function at the bottom of a new stack."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # handed to the caller, whatever it is
            errors.append(error)

    thread = threading.Thread(target=work, name="cel-deep")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
