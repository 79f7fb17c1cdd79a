"""Waiting for a condition, in tasks (`until`) and in threads (`wait_until`)."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

#: Factor for timeouts on machines that are slow by themselves, such as emulated ones.
PATIENCE = float(os.environ.get("PLIMSOLL_TEST_PATIENCE") or 1)

#: Seconds after which a condition counts as never true. A test waits only as long as it must, so that this
#: is reached by failures alone; a busy machine may need most of it.
DEADLINE = 120.0 * PATIENCE

#: Seconds between the first two reads.
_FIRST_PAUSE = 0.005

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
    pause: float = ...,
) -> T: ...
@overload
async def until(
    read: Callable[[], T],
    accept: Callable[[T], object] = ...,
    *,
    seconds: float = ...,
    context: _Context = ...,
    ignore: _Errors = ...,
    pause: float = ...,
) -> T: ...
async def until(
    read: Callable[[], Any],
    accept: Callable[[Any], object] = bool,
    *,
    seconds: float = DEADLINE,
    context: _Context = "",
    ignore: _Errors = (),
    pause: float = _FIRST_PAUSE,
) -> Any:
    """Read until the value is accepted and return it.

    `read` may be a coroutine function. Errors of the `ignore` types count as a value that is not accepted.
    `pause` is the time between the first two reads. After `seconds`, raise AssertionError with the
    last value and the context.
    """
    found: Any = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    value = read()
                    found = await value if inspect.isawaitable(value) else value
                    if accept(found):
                        return found
                except ignore as error:
                    found = error
                await asyncio.sleep(pause)
                pause = _longer(pause)
    except TimeoutError as error:
        raise AssertionError(_describe(seconds, found, context)) from error


def wait_until(
    read: Callable[[], T],
    accept: Callable[[T], object] = bool,
    *,
    seconds: float = DEADLINE,
    context: _Context = "",
    ignore: _Errors = (),
    pause: float = _FIRST_PAUSE,
) -> T:
    """Do as `until` does, and block."""
    deadline = time.monotonic() + seconds
    found: object = None
    while True:
        try:
            found = value = read()
            if accept(value):
                return value
        except ignore as error:
            found = error
        if time.monotonic() > deadline:
            raise AssertionError(_describe(seconds, found, context))
        time.sleep(pause)
        pause = _longer(pause)


def _longer(pause: float) -> float:
    """Return the next pause: short ones come first, because most conditions are true soon."""
    return max(pause, min(pause * 1.5, 0.05))


def _describe(seconds: float, found: object, context: _Context) -> str:
    text = context if isinstance(context, str) else str(context())
    return f"not within {seconds:g} s; last value: {found!r}" + (f"; {text}" if text else "")
