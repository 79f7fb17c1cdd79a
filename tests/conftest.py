"""Settings for the whole suite."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.coroutines import run_test
from tests.directories import short_directory
from tests.fork_server import share_fork_server
from tests.leaks import CheckedEventLoop
from tests.sizes import FULL, examples

if not FULL:
    # Every worker would parse all modules for constants, which takes longer than the properties themselves.
    providers._get_local_constants = Constants

# A slow or busy machine must not fail a property; CI runs the same examples every time.
for _profile, _fixed in (("default", False), ("ci", True)):
    settings.register_profile(
        _profile,
        deadline=None,
        derandomize=_fixed,
        max_examples=examples(100),
        suppress_health_check=[HealthCheck.too_slow],
    )
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the collected tests out of the garbage collection, which would visit them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        # Processes of the product that run within a test would undo that when they end.
        pytest.MonkeyPatch().setattr(gc, "unfreeze", lambda: None)
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.getoption("forked", 0):
        share_fork_server()


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    return run_test(pyfuncitem)


# Texts are laid out for a screen of one size, wherever the tests run. Not a fixture, which would cost more
# than most tests; those that change these variables restore them.
os.environ.update(COLUMNS="100", LINES="40")
for _name in ("NO_COLOR", "KUBECONFIG", "PLIMSOLL_DEBUG", "PLIMSOLL_MAX_INPUT"):
    os.environ.pop(_name, None)


@pytest.fixture
def root() -> Iterator[Path]:
    """Temporary directory with a path short enough for sockets."""
    with short_directory() as path:
        yield path


# Every loop is a checked one; policies are deprecated since Python 3.14.
for _module in (asyncio, asyncio.events):
    pytest.MonkeyPatch().setattr(_module, "new_event_loop", CheckedEventLoop)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Remove log handlers of the product: they write to a stream that is closed when the test ends.

    A test, or what is torn down after it, must not leave connections open.
    """
    left, CheckedEventLoop.left_open[:] = list(CheckedEventLoop.left_open), []
    assert left == []
    root = logging.getLogger()
    for handler in list(root.handlers):
        if type(handler.formatter).__module__.startswith("plimsoll."):
            root.removeHandler(handler)
