"""Garbage-collector control: collections only when allowed, and restored settings."""

from __future__ import annotations

import gc
import warnings

import pytest

from plimsoll.scheduler.process.gc_control import GCControl


@pytest.fixture(autouse=True)
def nothing_of_others() -> None:
    """Discard objects frozen or left by other tests in this process."""
    gc.unfreeze()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def test_automatic_collection_is_disabled() -> None:
    pauses: list[tuple[int, float]] = []
    memory = GCControl(lambda generation, seconds: pauses.append((generation, seconds)))
    was_on, callbacks = gc.isenabled(), list(gc.callbacks)
    memory.on_idle()
    memory.start()
    try:
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
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
    assert gc.get_freeze_count() == 0
    assert gc.callbacks == callbacks


def test_a_full_collection_runs_when_idle() -> None:
    now = [0.0]
    generations: list[int] = []
    memory = GCControl(lambda generation, seconds: generations.append(generation), clock=lambda: now[0])
    memory.start()
    try:
        now[0] += 7 * 3600
        memory.on_idle()
        memory.on_idle()
        assert generations == [2, 2]
    finally:
        memory.stop()
