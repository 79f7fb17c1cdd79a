"""Checkpoint writes of the claim store."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims.checkpoint import claims_file
from plimsoll.node.claims.store import ClaimStore
from plimsoll.node.layout import Layout
from plimsoll.protocols.dra import ClaimRef
from tests.waiting import DEADLINE

CLAIM = ClaimInfo(ClaimRef("default", "claim", "uid"), pods=frozenset({"pod"}))


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_callers_are_released_when_the_writer_is_cancelled(tmp_path: Path, steps: int) -> None:
    """A stopping process cancels all tasks, also a writer that has not started yet."""

    async def stop() -> str:
        store = ClaimStore((), claims_file(Layout(tmp_path), lambda: 0.0))
        commit = asyncio.ensure_future(store.commit({"uid": CLAIM}))
        for _ in range(steps):
            await asyncio.sleep(0)
        assert store.writer is not None
        store.writer.cancel()
        async with asyncio.timeout(DEADLINE):
            return await commit

    assert asyncio.run(stop()) == "the agent stops"


async def test_a_cancelled_caller_ends_with_the_writer(tmp_path: Path) -> None:
    store = ClaimStore((), claims_file(Layout(tmp_path), lambda: 0.0))
    commit = asyncio.ensure_future(store.commit({"uid": CLAIM}))
    await asyncio.sleep(0)
    assert store.writer is not None
    for task in (store.writer, commit):
        task.cancel()
    await asyncio.wait({commit}, timeout=DEADLINE)
    assert commit.cancelled()
