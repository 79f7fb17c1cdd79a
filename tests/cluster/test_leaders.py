"""Leader election with a real lease and short durations."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from plimsoll.client import Client
from plimsoll.client.endpoints import LEASES
from plimsoll.client.leader_election import Election, LeaseTiming
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.waiting import until

#: Lease that expires in a test, and one that a leader keeps on a busy machine until it releases it.
SHORT = LeaseTiming(lease=2.0, renew=1.0, retry=0.1)
LONG = LeaseTiming(lease=120.0, renew=100.0, retry=0.1)


@run_by(Target.run_scenario, "target")
async def test_one_leader_at_a_time(client: Client, namespace: str) -> None:
    leading: list[str] = []
    history: list[str] = []

    def candidate(name: str) -> asyncio.Task[None]:
        async def lead() -> None:
            assert leading == []
            leading.append(name)
            history.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                leading.remove(name)

        election = Election(client, namespace, "work", name, timing=LONG)
        return asyncio.create_task(election.run(lead))

    tasks = {name: candidate(name) for name in ("a", "b", "c")}
    for turn in range(3):
        await until(lambda: len(leading) == 1 and len(history) == turn + 1, context="a leader")  # noqa: B023
        lease = await client.get(LEASES, "work", namespace)
        leader = leading[0]
        assert lease["spec"]["holderIdentity"] == leader
        assert lease["spec"]["leaseDurationSeconds"] == 120
        assert lease["spec"]["leaseTransitions"] == turn
        task = tasks.pop(leader)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    lease = await client.get(LEASES, "work", namespace)
    assert lease["spec"]["holderIdentity"] == ""
    assert sorted(history) == ["a", "b", "c"]


@run_by(Target.run_scenario, "target")
async def test_a_lease_that_is_not_renewed_is_taken_over(client: Client, namespace: str) -> None:
    dead = Election(client, namespace, "work", "dead", timing=SHORT)
    assert await dead.attempt()
    alive = Election(client, namespace, "work", "alive", timing=SHORT)
    began = asyncio.get_running_loop().time()
    assert not await alive.attempt()
    done = asyncio.Event()

    async def lead() -> None:
        done.set()

    await alive.run(lead)
    assert done.is_set()
    assert asyncio.get_running_loop().time() - began > 1.5
    lease = await client.get(LEASES, "work", namespace)
    assert lease["spec"]["leaseTransitions"] == 1
