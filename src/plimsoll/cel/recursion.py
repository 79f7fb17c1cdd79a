"""Stack space for deep recursion, independent of the depth of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def run_with_stack(call: Callable[[], T]) -> T:
    """Call a function without side effects; raises RecursionError if even a full stack is too small."""
    try:
        return call()
    except RecursionError:
        return run_on_new_stack(call)


def run_on_new_stack(call: Callable[[], T]) -> T:
    """Call a function at the bottom of a new stack."""
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:  # raised again in the caller's thread
            errors.append(error)

    thread = threading.Thread(target=work, name="cel-deep")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
