"""Tests that are coroutine functions: pytest runs them in an event loop, or in a harness (`run_by`)."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

Test = Callable[..., Coroutine[Any, Any, None]]


def run_test(item: pytest.Function) -> bool | None:
    """Run a test in a new event loop if it is a coroutine function."""
    if not inspect.iscoroutinefunction(item.obj):
        return None
    asyncio.run(item.obj(**{name: item.funcargs[name] for name in inspect.signature(item.obj).parameters}))
    return True


def run_by(
    run: Callable[..., object], *fixtures: str, **options: Any
) -> Callable[[Test], Callable[..., None]]:
    """Run a test as `run(*fixtures, test, **options)`, with the values of these fixtures.

    `run` passes the test its positional parameters; the keyword-only ones are fixtures or parametrized.
    """

    def decorate(test: Test) -> Callable[..., None]:
        keywords = [
            each
            for each in inspect.signature(test).parameters.values()
            if each.kind is inspect.Parameter.KEYWORD_ONLY
        ]

        @functools.wraps(test)
        def decorated(**values: Any) -> None:
            of_test = {each.name: values[each.name] for each in keywords}
            run(*(values[name] for name in fixtures), functools.partial(test, **of_test), **options)

        names = dict.fromkeys((*fixtures, *(each.name for each in keywords)))
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
        decorated.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return decorated

    return decorate
