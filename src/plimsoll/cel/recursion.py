"""Stack space for deep recursion, independent of the depth of the caller."""

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
