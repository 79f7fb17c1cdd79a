"""Waiting for a condition, in tasks (`until`) and in threads (`wait_until`)."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar, overload

T = TypeVar("T")

#: Seconds after which a condition counts as never true. A test waits only as long as it must, so that this
#: is reached by failures alone; a busy machine may need most of it.
DEADLINE = 120.0

_Context = Callable[[], object] | str
_Errors = tuple[type[Exception], ...]


@overload
async def until(
    read: Callable[[], Awaitable[T]],
    accept: Callable[[T], object] = ...,
    *,
    seconds: float = ...,
    context: _Context = ...,
    ignore: _Errors = ...,
) -> T: ...
@overload
async def until(
    read: Callable[[], T],
    accept: Callable[[T], object] = ...,
    *,
    seconds: float = ...,
    context: _Context = ...,
    ignore: _Errors = ...,
) -> T: ...
async def until(
    read: Callable[[], Any],
    accept: Callable[[Any], object] = bool,
    *,
    seconds: float = DEADLINE,
    context: _Context = "",
    ignore: _Errors = (),
) -> Any:
    """Read until the value is accepted and return it.

    `read` may be a coroutine function. Errors of the `ignore` types count as a value that is not accepted.
    After `seconds`, raise AssertionError with the last value and the context.
    """
    found: Any = None
    try:
        async with asyncio.timeout(seconds):
            for pause in _pauses():
                try:
                    found = read()
                    if inspect.isawaitable(found):
                        found = await found
                    if accept(found):
                        return found
                except ignore as error:
                    found = error
                await asyncio.sleep(pause)
    except TimeoutError as error:
        raise AssertionError(_describe(seconds, found, context)) from error


def wait_until(
    read: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    seconds: float = DEADLINE,
    context: _Context = "",
    ignore: _Errors = (),
) -> T:
    """Do as `until` does, and block."""
    deadline = time.monotonic() + seconds
    found: object = None
    for pause in _pauses():
        try:
            found = value = read()
            if accept(value):
                return value
        except ignore as error:
            found = error
        if time.monotonic() > deadline:
            break
        time.sleep(pause)
    raise AssertionError(_describe(seconds, found, context))


def _pauses() -> Iterator[float]:
    """Yield pauses between reads: short ones first, because most conditions are true soon."""
    pause = 0.0002
    while True:
        yield pause
        pause = min(pause * 1.5, 0.05)


def _describe(seconds: float, found: object, context: _Context) -> str:
    text = context if isinstance(context, str) else str(context())
    return f"not within {seconds:g} s; last value: {found!r}" + (f"; {text}" if text else "")
