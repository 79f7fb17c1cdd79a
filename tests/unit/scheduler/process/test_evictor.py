"""Execution of a preemption on the embedded API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.client.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.errors import ApiError
from plimsoll.scheduler.preemption.plan import is_preempted
from plimsoll.scheduler.preemption.result import Preemption
from plimsoll.scheduler.process.evictor import (
    PreemptionEvictionResult,
    evict_victims,
    plan_disruption_condition,
)
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness
from tests.unit.apiserver.build import run as run_scenario

NOW = "2026-01-02T03:04:05Z"


class EvictionCluster:
    """API with a preemption to execute."""

    def __init__(self, harness: ApiHarness) -> None:
        self.client = harness.client
        self.notified: list[Pod] = []

    async def pod(self, name: str, *, node: str = "n", grace: int = 30, **status: Any) -> Pod:
        tree: dict[str, Any] = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "terminationGracePeriodSeconds": grace,
                "schedulerName": "plimsoll",
                **({"nodeName": node} if node else {}),
            },
        }
        made = await self.client.create(PODS, tree, "default")
        if status:
            made = await self.client.patch(PODS, name, {"status": status}, "default", subresource="status")
        return convert(made, Pod)

    async def read(self, name: str) -> Pod | None:
        try:
            return convert(await self.client.get(PODS, name, "default"), Pod)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def evict_victims(
        self, plan: Preemption, client: Client | None = None, **more: Any
    ) -> PreemptionEvictionResult:
        return await evict_victims(plan, client or self.client, self.notified.append, now=lambda: NOW, **more)


def run(scenario: Callable[[EvictionCluster], Awaitable[None]]) -> None:
    run_scenario(lambda harness: scenario(EvictionCluster(harness)))


@run_by(run)
async def test_a_victim_gets_a_condition_and_is_deleted(cluster: EvictionCluster) -> None:
    victim, new = await cluster.pod("victim"), await cluster.pod("new", node="")
    done = await cluster.evict_victims(Preemption("n", 0, (victim,), 0, new))
    assert done.complete
    assert [each.metadata.name for each in done.evicted] == ["victim"]
    left = await cluster.read("victim")
    assert left is not None
    assert left.metadata.deletion_timestamp is not None
    assert left.metadata.deletion_grace_period_seconds == 30
    assert is_preempted(left)
    condition = next(each for each in left.status.conditions if each.type == "DisruptionTarget")
    assert condition.status == "True"
    assert condition.reason == "PreemptionByScheduler"
    assert condition.message == "plimsoll: preempting to accommodate a higher priority pod"
    assert condition.last_transition_time == NOW
    assert cluster.notified == [victim]


@run_by(run)
async def test_a_victim_without_grace_is_gone_at_once(cluster: EvictionCluster) -> None:
    victim, new = await cluster.pod("victim", grace=0), await cluster.pod("new", node="")
    assert (await cluster.evict_victims(Preemption("n", 0, (victim,), 0, new))).complete
    assert await cluster.read("victim") is None


@run_by(run)
async def test_evicting_again_changes_nothing(cluster: EvictionCluster) -> None:
    plan = Preemption("n", 0, (await cluster.pod("victim"),), 0, await cluster.pod("new", node=""))
    await cluster.evict_victims(plan)
    before = await cluster.read("victim")
    again = await cluster.evict_victims(plan)
    assert again.complete
    after = await cluster.read("victim")
    assert before is not None
    assert after is not None
    assert after.metadata.deletion_timestamp == before.metadata.deletion_timestamp
    assert after.status.conditions == before.status.conditions


@run_by(run)
async def test_missing_and_terminating_pods_are_skipped(cluster: EvictionCluster) -> None:
    gone, leaving = await cluster.pod("gone", grace=0), await cluster.pod("leaving")
    new = await cluster.pod("new", node="")
    await cluster.client.delete(PODS, "gone", "default", grace=0)
    await cluster.client.delete(PODS, "leaving", "default")
    known = await cluster.read("leaving")
    assert known is not None
    done = await cluster.evict_victims(Preemption("n", 0, (gone, known), 0, new))
    assert done == PreemptionEvictionResult(())
    assert cluster.notified == []
    left = await cluster.read("leaving")
    assert left is not None
    assert not is_preempted(left)
    # Its deletion was not observed: it gets the condition, and nothing worse.
    await cluster.evict_victims(Preemption("n", 0, (leaving,), 0, new))


@run_by(run)
async def test_a_new_pod_of_the_same_name_is_not_hit(cluster: EvictionCluster) -> None:
    old, new = await cluster.pod("victim", grace=0), await cluster.pod("new", node="")
    await cluster.client.delete(PODS, "victim", "default", grace=0)
    fresh = await cluster.pod("victim")
    done = await cluster.evict_victims(Preemption("n", 0, (old,), 0, new))
    assert done == PreemptionEvictionResult(())
    left = await cluster.read("victim")
    assert left is not None
    assert left.metadata.uid == fresh.metadata.uid
    assert left.metadata.deletion_timestamp is None
    assert not any(each.type == "DisruptionTarget" for each in left.status.conditions)


@run_by(run)
async def test_lower_priority_nominations_are_withdrawn(cluster: EvictionCluster) -> None:
    lesser = await cluster.pod("lesser", node="", nominatedNodeName="n", phase="Pending")
    assert lesser.status.nominated_node_name == "n"
    victim, new = await cluster.pod("victim"), await cluster.pod("new", node="")
    done = await cluster.evict_victims(Preemption("n", 0, (victim,), 0, new, (lesser,)))
    assert done.warnings == ()
    left = await cluster.read("lesser")
    assert left is not None
    assert left.status.nominated_node_name == ""
    assert left.status.phase == "Pending"


class Failing(Client):
    """Client whose calls partly fail."""

    def __init__(self, real: Client, method: str, name: str, code: int) -> None:
        super().__init__(real.transport, namespace=real.namespace, user_agent="test")
        self._real, self._method, self._name, self._code = real, method, name, code

    async def call(self, method: str, path: str, **more: Any) -> Any:
        if method == self._method and f"/{self._name}" in path:
            raise ApiError(self._code, "InternalError", "refused")
        return await self._real.call(method, path, **more)


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
@run_by(run)
async def test_one_failure_does_not_stop_other_evictions(cluster: EvictionCluster, *, method: str) -> None:
    one, two, new = await cluster.pod("one"), await cluster.pod("two"), await cluster.pod("new", node="")
    plan = Preemption("n", 0, (one, two), 0, new)
    done = await cluster.evict_victims(plan, Failing(cluster.client, method, "one", 500))
    assert not done.complete
    assert len(done.errors) == 1
    assert [each.metadata.name for each in done.evicted] == ["two"]
    left = await cluster.read("one")
    assert left is not None
    assert left.metadata.deletion_timestamp is None
    assert (await cluster.evict_victims(plan)).complete
    assert (after := await cluster.read("one")) is not None
    assert after.metadata.deletion_timestamp is not None


@run_by(run)
async def test_a_status_that_others_keep_changing_is_tried_again_and_given_up(
    cluster: EvictionCluster,
) -> None:
    victim, new = await cluster.pod("victim"), await cluster.pod("new", node="")
    client = Failing(cluster.client, "PATCH", "victim", 409)
    done = await cluster.evict_victims(Preemption("n", 0, (victim,), 0, new), client)
    assert [error.code for error in done.errors] == [409]


@run_by(run)
async def test_a_failed_withdrawal_is_a_warning(cluster: EvictionCluster) -> None:
    lesser = await cluster.pod("lesser", node="", nominatedNodeName="n")
    victim, new = await cluster.pod("victim"), await cluster.pod("new", node="")
    plan = Preemption("n", 0, (victim,), 0, new, (lesser,))
    done = await cluster.evict_victims(plan, Failing(cluster.client, "PATCH", "lesser", 500))
    assert done.complete
    assert len(done.warnings) == 1


def test_the_time_of_a_condition_is_that_of_its_last_change() -> None:
    new = convert({"metadata": {"name": "new"}, "spec": {"schedulerName": "s"}}, Pod)

    def victim(**condition: Any) -> Pod:
        known = {"type": "DisruptionTarget", "lastTransitionTime": "2025-01-01T00:00:00Z", **condition}
        return convert({"metadata": {"generation": 3}, "status": {"conditions": [known]}}, Pod)

    plan = Preemption("n", 0, (), 0, new)
    other = plan_disruption_condition(victim(status="True", reason="EvictionByEvictionAPI"), plan, NOW)
    assert other is not None
    assert other["lastTransitionTime"] == "2025-01-01T00:00:00Z"
    assert other["observedGeneration"] == 3
    turned = plan_disruption_condition(victim(status="False", reason="PreemptionByScheduler"), plan, NOW)
    assert turned is not None
    assert turned["lastTransitionTime"] == NOW
    message = "s: preempting to accommodate a higher priority pod"
    same = victim(status="True", reason="PreemptionByScheduler", message=message)
    assert plan_disruption_condition(same, plan, NOW) is None
