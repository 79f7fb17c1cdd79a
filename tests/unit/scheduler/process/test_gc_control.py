"""Garbage-collector control: collections only when allowed, and restored settings."""

from __future__ import annotations

import gc
import warnings

import pytest

from plimsoll.scheduler.process.gc_control import GCControl


@pytest.fixture(autouse=True)
def unfreezes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Discard objects left by other tests in this process; return what is added when objects are unfrozen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    calls: list[str] = []
    monkeypatch.setattr(gc, "unfreeze", lambda: calls.append("unfreeze"))
    return calls


def test_automatic_collection_is_disabled(unfreezes: list[str]) -> None:
    pauses: list[tuple[int, float]] = []
    memory = GCControl(lambda generation, seconds: pauses.append((generation, seconds)))
    was_on, callbacks = gc.isenabled(), list(gc.callbacks)
    memory.on_idle()
    frozen = gc.get_freeze_count()
    young = [[object()]]
    memory.start()
    try:
        assert not gc.isenabled()
        assert gc.get_freeze_count() > frozen
        assert not any(each is young for each in gc.get_objects())
        assert pauses[0][0] == 2
        memory.on_idle()
        assert len(pauses) == 1, "there is nothing to collect yet"
        kept: list[list[int]] = [[] for _ in range(8_000)]
        memory.on_busy()
        assert len(pauses) == 1, "not so much that it cannot wait"
        memory.on_idle()
        assert [generation for generation, _ in pauses] == [2, 0]
        kept += [[] for _ in range(40_000)]
        memory.on_busy()
        assert [generation for generation, _ in pauses] == [2, 0, 0]
    finally:
        memory.stop()
    assert gc.isenabled() == was_on
    assert unfreezes == ["unfreeze"]
    assert gc.callbacks == callbacks


def test_a_full_collection_runs_when_idle(unfreezes: list[str]) -> None:
    now = [0.0]
    generations: list[int] = []
    memory = GCControl(lambda generation, seconds: generations.append(generation), clock=lambda: now[0])
    memory.start()
    try:
        now[0] += 7 * 3600
        memory.on_idle()
        memory.on_idle()
        assert generations == [2, 2]
        assert unfreezes == ["unfreeze"], "so that all objects are searched"
    finally:
        memory.stop()
