"""Drivers that appear, disappear and restart at random, compared with a model."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest

from plimsoll.node.claim_info import DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from tests.coroutines import run_by
from tests.directories import short_directory
from tests.sizes import seeds
from tests.unit.node.plugins.peers import DRIVER, QUICK, Peer, claim, run
from tests.waiting import until


@dataclass
class Instance:
    """Plugin in the model: the creation time of its registration socket, and its services."""

    peer: Peer
    made: int = 0
    registers: bool = False
    serves: bool = False


def serving(instances: list[Instance]) -> Instance | None:
    """Return the plugin that is called: the newest that is registered and serves, else the newest
    registered.
    """
    known = sorted((one for one in instances if one.registers), key=lambda one: (one.serves, one.made))
    return known[-1] if known else None


@pytest.mark.parametrize("seed", seeds(4))
@run_by(run)
async def test_calls_reach_the_plugin_that_the_model_selects(*, seed: int) -> None:
    chance = random.Random(seed)
    with short_directory() as directory:
        layout = Layout(directory)
        instances = [Instance(Peer(layout, instance=name)) for name in ("one", "two", "three")]
        plugins = PluginManager(layout, times=QUICK)
        await plugins.start()
        try:
            for step in range(25):
                await act(chance, step, chance.choice(instances))
                if chance.random() < 0.15:
                    await plugins.stop()
                    plugins = PluginManager(layout, times=QUICK)
                    await plugins.start()
                await agreed(plugins, instances)
                # A plugin that has restarted looks the same until its new socket is noticed.
                current = plugins
                expected = expected_answer(serving(instances))
                await until(lambda: answer_of(current), lambda found: found == expected)  # noqa: B023
        finally:
            await plugins.stop()


def expected_answer(one: Instance | None) -> str:
    """Return the pool of the plugin that prepares a claim, or the kind of the fault."""
    if one is None:
        return "absent"
    return one.peer.pool if one.serves else "broken"


async def answer_of(plugins: PluginManager) -> str:
    response = (await plugins.prepare(DRIVER, [claim("a")]))["uid-a"]
    return response.kind if isinstance(response, DriverFault) else response[0].pool


async def agreed(plugins: PluginManager, instances: list[Instance]) -> None:
    """Wait until the plugin manager agrees with the model."""
    wanted = {one.peer.endpoint: one.serves for one in instances if one.registers}
    await until(
        lambda: {info.endpoint: info.connected for info in plugins.drivers()}, lambda found: found == wanted
    )


async def act(chance: random.Random, step: int, one: Instance) -> None:
    """Change one plugin at random."""
    match chance.choice(["register", "register", "leave", "serve", "serve", "fail", "restart"]):
        case "register" if not one.registers:
            await asyncio.sleep(0.02)  # the clock of files ticks that slowly
            await one.peer.register()
            one.registers, one.made = True, step
        case "leave":
            await one.peer.stop(one.peer.socket)
            one.registers = False
        case "serve" if not one.serves:
            await one.peer.serve()
            one.serves = True
        case "fail":
            await one.peer.stop(one.peer.dra)
            one.serves = False
        case "restart":
            await one.peer.stop()
            await asyncio.sleep(0.02)
            await one.peer.start()
            one.registers, one.serves, one.made = True, True, step
