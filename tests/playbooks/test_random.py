"""Random steps; from time to time all faults end and the invariants must hold."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from tests.playbooks.invariants import find_violations
from tests.playbooks.node_harness import NodeHarness, running
from tests.playbooks.scenarios import PROCESSES
from tests.playbooks.script import clear, perform, settle
from tests.sizes import seeds
from tests.waiting import DEADLINE

CLAIMS = "abcd"


class ActionGenerator:
    """Generator of random steps."""

    def __init__(self, harness: NodeHarness, dice: Random) -> None:
        self.harness = harness
        self.dice = dice
        self.pods: set[str] = set()
        self.performed: list[str] = []
        self._names = iter(range(10_000))

    def choices(self) -> list[str]:
        """Return the possible next steps."""
        harness, dice = self.harness, self.dice
        found = ["pod"] * (4 if len(self.pods) < 6 else 0)
        found += [f"claim {dice.choice(CLAIMS)} is made anew"]
        if self.pods:
            name = dice.choice(sorted(self.pods))
            found += [f"pod {name} is deleted"] * 2 + [f"pod {name} is forced off"]
            if harness.up or harness.machine is not None:
                found += [f"{name} crashes"] * 2 + [f"{name} exits"]
        if harness.up:
            found += ["agent stops", "agent is killed", "agent is killed"]
        else:
            found += ["agent begins"] * 4
        if harness.driver.up:
            claim = dice.choice(CLAIMS)
            found += ["driver dies", "driver goes", f"driver refuses {claim}"]
            found += [f"driver breaks off {dice.choice(('at', 'after'))} {claim}"]
            found += ["driver falls silent"] if harness.driver.gate.is_set() else ["driver speaks"] * 4
        elif harness.driver.dead:
            found += ["driver comes"] * 4
        if harness.driver.refuses or harness.driver.crashes:
            found += ["driver works"] * 3
        found += ["api comes"] * 4 if harness.away else ["api goes"]
        if harness.machine is not None:
            found += ["starts wait"] if harness.machine.gate.is_set() else ["starts go on"] * 4
        if harness.hold:
            found += ["calls go on"] * 4
        else:
            found += [f"calls stop {dice.choice(('before the call', 'after the answer'))}"]
        return found

    async def step(self) -> None:
        line = self.dice.choice(self.choices())
        if line == "pod":
            line = self._pod()
        elif line.startswith("pod ") or line.endswith((" crashes", " exits")):
            name = line.removeprefix("pod ").split(maxsplit=1)[0]
            if await self.harness.get(name) is None:
                self.pods.discard(name)
                return
            if line.endswith(("deleted", "off")):
                self.pods.discard(name)
        elif line.startswith("claim ") and not await self._is_unused(line.split()[1]):
            return
        self.performed.append(line)
        if line == "driver goes" and not self.harness.driver.gate.is_set():
            await perform(self.harness, "driver speaks")  # it would wait for its answers
        await perform(self.harness, line)
        assert not self.harness.wrongs, self.harness.wrongs
        await asyncio.sleep(self.dice.choice((0, 0, 0, 0.005, 0.02, 0.1)))

    async def _is_unused(self, claim: str) -> bool:
        """Return whether a claim exists and no pod of the API references it; the node may still hold it."""
        used = {
            each["resourceClaimName"]
            for tree in await self.harness.pods()
            for each in tree["spec"].get("resourceClaims", ())
        }
        return claim in self.harness.claims and claim not in used

    def _pod(self) -> str:
        name = f"p{next(self._names)}"
        self.pods.add(name)
        claims = ",".join(sorted(self.dice.sample(CLAIMS, self.dice.choice((0, 1, 1, 2)))))
        return (
            f"pod {name}{f' with {claims}' if claims else ''} cpu {self.dice.choice(('100m', '1', '2'))}"
            f"{self.dice.choice(('', '', ' never'))}"
        )


def converse(seed: int, rounds: int, steps: int, **settings: Any) -> None:
    """Run rounds of random steps; after each, end all faults and wait until the invariants hold."""

    async def scenario() -> None:
        async with running(**settings) as harness:
            player = ActionGenerator(harness, Random(seed))
            try:
                for _ in range(rounds):
                    for _ in range(steps):
                        async with asyncio.timeout(DEADLINE):
                            await player.step()
                    player.performed.append("-- rest")
                    await settle(harness, tidy=True)
                    await _nothing_moves(harness)
                await clear(harness)
            except (AssertionError, TimeoutError) as error:
                lines = "\n".join(player.performed[-steps - 2 :])
                raise AssertionError(f"seed {seed}, after:\n{lines}\n{error}") from error

    asyncio.run(scenario())


async def _nothing_moves(harness: NodeHarness) -> None:
    """Check that an idle node calls no driver and starts no container."""
    uids = [tree["metadata"]["uid"] for tree in await harness.pods()]
    before = len(harness.driver.calls), [harness.starts(uid) for uid in uids]
    await asyncio.sleep(0.1)
    assert not await find_violations(harness)
    after = len(harness.driver.calls), [harness.starts(uid) for uid in uids]
    assert after == before, (before, after, harness.driver.calls[before[0] :])


@pytest.mark.parametrize("seed", seeds(4))
def test_random_events(seed: int) -> None:
    converse(seed, rounds=3, steps=12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_random_events_for_long(seed: int) -> None:
    converse(seed, rounds=10, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 206))
def test_random_events_with_processes_for_long(seed: int) -> None:
    converse(seed, rounds=5, steps=20, **PROCESSES)
