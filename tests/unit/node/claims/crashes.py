"""Simulated crashes of an agent at a chosen step."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Crash(Exception):
    """Simulated end of the agent."""


class Steps:
    """Counter of the agent's steps (calls to drivers and file operations) that ends it at step number
    `last`.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        self.count = 0

    def step(self, _: str = "") -> None:
        self.count += 1
        if self.count == self.last:
            raise Crash


class Disk:
    """File operations of checkpoints, each of which may be the last. An interrupted write leaves half a
    file.
    """

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._begun = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def write(self, file: int, data: memoryview) -> int:
        self._begun = not self._begun
        if not self._begun:
            return os.write(file, data)
        self._steps.step()
        return os.write(file, data[: len(data) // 2])

    def fsync(self, file: int) -> None:
        """Do nothing: a simulated crash does not lose unsynced data."""

    def replace(self, source: Path, target: Path) -> None:
        self._steps.step()
        os.replace(source, target)
        self._steps.step()


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    """Replace asyncio.to_thread by steps that can be counted."""
    await asyncio.sleep(0)
    result = function(*arguments)
    await asyncio.sleep(0)
    return result
