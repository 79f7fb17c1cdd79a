"""Watch mode: output after the first list, then at a limited rate, until the cluster ends it."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.top import watch
from tests.waiting import until

#: Minimum seconds between two outputs.
PACE = 0.02


def run_watch(monkeypatch: pytest.MonkeyPatch, *bursts: int, fails: bool = False) -> int:
    """Return the number of outputs for these bursts of changes, each after the output of the one before."""
    shown: list[int] = []

    def are_shown(count: int) -> bool:
        return len(shown) >= count

    async def follow_live(client: Any, cluster_state: ClusterState, changed: Any, **_: Any) -> None:
        for number, burst in enumerate(bursts, 1):
            for _change in range(burst):
                changed()
            await until(partial(are_shown, number))
        await asyncio.sleep(3 * PACE)  # for an output too many
        raise InputError("pods cannot be read") if fails else asyncio.CancelledError

    monkeypatch.setattr(watch, "follow_live", follow_live)
    cluster_state = ClusterState(ClusterObjects())

    async def run() -> None:
        no_reader: Any = None
        await watch.follow(no_reader, cluster_state, lambda: shown.append(1), pace=PACE)

    with pytest.raises(InputError if fails else asyncio.CancelledError):
        asyncio.run(run())
    return len(shown)


def test_a_burst_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_watch(monkeypatch, 500) == 1


def test_a_change_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_watch(monkeypatch, 1, 1) == 2


def test_the_cause_of_the_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_watch(monkeypatch, 1, fails=True) == 1
