"""Tests that are coroutine functions run, can fail, and get their fixtures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.coroutines import run_by, run_test


def run_with_number(
    directory: Path, scenario: Callable[[int], Coroutine[None, None, None]], *, number: int = 1
) -> None:
    assert directory.is_dir()
    asyncio.run(scenario(number))


@run_by(run_with_number, "tmp_path", number=2)
async def fail_by_harness(number: int, *, suffix: str) -> None:
    await asyncio.sleep(0)
    raise LookupError(f"{number}{suffix}")


def test_a_failure_in_a_harness_fails_the_test(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="2x"):
        fail_by_harness(tmp_path=tmp_path, suffix="x")


@pytest.mark.parametrize("suffix", ["x"])
@run_by(run_with_number, "tmp_path")
async def test_harnesses_and_parameters_reach_the_test(number: int, *, suffix: str, tmp_path: Path) -> None:
    assert (number, suffix, tmp_path.is_dir()) == (1, "x", True)


async def fail_with(suffix: str) -> None:
    await asyncio.sleep(0)
    raise LookupError(suffix)


def test_coroutine_functions_are_run_with_their_fixtures() -> None:
    item = SimpleNamespace(obj=fail_with, funcargs={"suffix": "x", "other": 1})
    with pytest.raises(LookupError, match="x"):
        run_test(cast(pytest.Function, item))


def test_plain_functions_are_left_to_pytest() -> None:
    item = SimpleNamespace(obj=lambda: pytest.fail("run"), funcargs={})
    assert run_test(cast(pytest.Function, item)) is None
