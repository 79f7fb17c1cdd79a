"""Whatever is sent to the API: no 5xx but 503 and 504, no hang, and a store in order."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.fuzz.world import World, alarm


def fire(seed: int, rounds: int, count: int) -> World:
    """Several rounds of random requests, with a look at the store after each."""

    async def run() -> World:
        world = World(seed)
        await world.begin()
        for _ in range(rounds):
            await world.strike(count)
            world.check()
            await world.check_unchanged()
        await world.store.close()
        return world

    with alarm(600):
        return asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
def test_random_requests(seed: int) -> None:
    world = fire(seed, 2, 400)
    assert world.answers[200] + world.answers[201] > 200, "the requests must not all be refused"
    assert {400, 404, 409, 422} <= world.answers.keys()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1000 + int(os.environ.get("PLIMSOLL_FUZZ_SEEDS", "12"))))
def test_many_random_requests(seed: int) -> None:
    fire(seed, 10, 1000)
