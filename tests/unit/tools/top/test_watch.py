"""Watch mode: output after the first list, then at a limited rate, until the cluster ends it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.top import watch


def run_watch(monkeypatch: pytest.MonkeyPatch, *pauses: float, fails: bool = False) -> int:
    """Return the number of outputs if a change comes after each of these pauses."""

    async def follow_live(client: Any, cluster_state: ClusterState, changed: Any, **_: Any) -> None:
        for pause in pauses:
            await asyncio.sleep(pause)
            changed()
        await asyncio.sleep(0.1)
        raise InputError("pods cannot be read") if fails else asyncio.CancelledError

    shown = []
    monkeypatch.setattr(watch, "follow_live", follow_live)
    cluster_state = ClusterState(ClusterObjects())

    async def run() -> None:
        no_reader: Any = None
        await watch.follow(no_reader, cluster_state, lambda: shown.append(1), pace=0.02)

    with pytest.raises(InputError if fails else asyncio.CancelledError):
        asyncio.run(run())
    return len(shown)


def test_a_burst_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_watch(monkeypatch, *[0.0] * 500) == 1


def test_a_change_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_watch(monkeypatch, 0.0, 0.08) == 2


def test_the_cause_of_the_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_watch(monkeypatch, 0.0, fails=True) == 1
