"""Admission, preemption, eviction and resize in a complete agent. KEP-5517, "Kubelet Admission Control",
and its test plan for the kubelet (docs/spec/keps.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plimsoll.api.core import Pod
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import ApiError
from plimsoll.ledger.fit import PodAdmitResult
from plimsoll.node.admission.admission_handler import AdmissionHandler
from plimsoll.node.eviction.manager import NodeStats, PodStats, SignalObservation
from tests.playbooks.invariants import quiet
from tests.playbooks.script import clear, settle
from tests.playbooks.world import NODE, World, running

REJECTED = "Pod was rejected: "
GI = 2**30


def tell(story: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    """A story, and its end: everything comes to rest, all pods go, nothing is left."""

    async def whole() -> None:
        async with running(**settings) as world, asyncio.timeout(40):
            await story(world)
            await settle(world)
            await clear(world)

    asyncio.run(whole())


def charge(claim: str, cpu: str, **more: Any) -> dict[str, Any]:
    """Return the charge that a scheduler writes into a pod's status."""
    entry = {"resourceClaimName": claim, "containers": ["c"], "resources": {"cpu": cpu}, **more}
    return {"nodeAllocatableResourceClaimStatuses": [entry]}


def charge_137(claim: str, cpu: str) -> dict[str, Any]:
    entry = {
        "resourceClaimName": claim,
        "containers": ["c"],
        "mapping": [{"name": "cpu", "quantity": cpu, "accountingPolicy": "AddPerClaim"}],
    }
    return {"nodeAllocatableResourceClaimStatuses": [entry]}


def drawn(claim: str, whole: str, cpu: str) -> dict[str, Any]:
    return charge(claim, whole, accountingPolicies={"cpu": "ConsumeFrom"}, drawn={"cpu": cpu})


async def refused(world: World, name: str) -> tuple[str, str]:
    status = (await world.ended(name))["status"]
    return status["reason"], status["message"]


def test_first_in_stays_in_and_the_second_is_told_why() -> None:
    async def story(world: World) -> None:
        await world.pod("p", cpu="3")
        await world.runs("p")
        await world.pod("q", cpu="2")
        text = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
        assert await refused(world, "q") == ("OutOfcpu", REJECTED + text)
        assert ("OutOfcpu", text) in await world.events("q")
        for how in (world.stop_agent, world.kill_agent):
            await how()
            await world.start_agent()
            await quiet(world)
            assert await refused(world, "q") == ("OutOfcpu", REJECTED + text)
            assert (await world.runs("p"))["status"]["containerStatuses"][0]["restartCount"] == 0

    tell(story)


def test_a_pod_that_came_first_to_the_api_but_not_to_the_node() -> None:
    """TerminationRequest of admission counts, not age: a restart changes nothing."""

    async def story(world: World) -> None:
        await world.stop_agent()
        await world.pod("older", cpu="3")
        await world.pod("younger", cpu="3")
        await world.start_agent()
        await world.runs("older")
        assert (await refused(world, "younger"))[0] == "OutOfcpu"
        await world.delete("older")
        await world.gone("older")
        await world.pod("next", cpu="3")
        await world.runs("next")
        await world.kill_agent()
        await world.pod("last", cpu="3")
        await world.start_agent()
        await world.runs("next")
        assert (await refused(world, "last"))[0] == "OutOfcpu"

    tell(story)


@pytest.mark.parametrize("force", [False, True])
def test_a_pod_that_goes_while_it_is_written_down(force: bool) -> None:
    async def story(world: World) -> None:
        admission_handler, flush, gate = (
            world.agent.admission_handler,
            world.agent.admission_handler.flush,
            asyncio.Event(),
        )

        async def slow() -> Any:
            await gate.wait()
            return await flush()

        setattr(admission_handler, "flush", slow)  # noqa: B010 - a method
        made = await world.pod("p", "a", cpu="3")
        uid = made["metadata"]["uid"]
        await world.until(lambda: uid in admission_handler, "p is let in")
        await world.delete("p", force=force)
        await world.until(
            lambda: all(pod.metadata.deletion_timestamp for pod in world.agent.pods()), "the agent knows"
        )
        gate.set()
        await world.gone("p")
        await quiet(world)
        assert uid not in admission_handler
        await world.pod("q", cpu="3")
        await world.runs("q")

    tell(story)


@pytest.mark.parametrize(("form", "how"), [(Form.V1_36, charge), (Form.V1_37, charge_137)])
def test_what_claims_charge_counts(form: Form, how: Callable[[str, str], dict[str, Any]]) -> None:
    async def story(world: World) -> None:
        await world.pod("p", "a", cpu="1", status=how("a", "2"))
        tree = await world.runs("p")
        assert world.agent.admission_handler.ledger.requested["cpu"] == 3000
        assert tree["status"]["nodeAllocatableResourceClaimStatuses"][0]["resourceClaimName"] == "a"
        await world.pod("q", "b", cpu="1", status=how("b", "500m"))
        text = "Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000"
        assert await refused(world, "q") == ("OutOfcpu", REJECTED + text)
        assert world.driver.count("prepare", "b") == 0, "nobody who was rejected has claims prepared"
        await world.kill_agent()
        await world.start_agent()
        await quiet(world)
        assert world.agent.admission_handler.ledger.requested["cpu"] == 3000
        await world.pod("r", cpu="1")
        await world.runs("r")

    tell(story, form=form)


def test_claims_charge_nothing_while_the_gate_is_off() -> None:
    async def story(world: World) -> None:
        await world.pod("p", "a", cpu="1", status=charge("a", "2"))
        await world.runs("p")
        await world.pod("q", cpu="3")
        await world.runs("q")

    tell(story, gates=Gates.of({"DRANodeAllocatableResources": False}))


def test_pools_are_not_overdrawn() -> None:
    async def story(world: World) -> None:
        await world.pod("p", "a", cpu="2", status=drawn("a", "3", "2"))
        await world.runs("p")
        assert world.agent.admission_handler.ledger.requested["cpu"] == 3000
        await world.pod("q", "a", cpu="1", status=drawn("a", "3", "1"))
        await world.runs("q")
        await world.pod("r", "a", cpu="1", status=drawn("a", "3", "1"))
        text = "Node didn't have enough resource: cpu in claim a, requested: 1000, used: 3000, capacity: 3000"
        assert await refused(world, "r") == ("OutOfcpu", REJECTED + text)
        await quiet(world)
        await world.delete("p")
        await world.gone("p")
        await quiet(world)
        assert world.agent.admission_handler.ledger.requested["cpu"] == 3000, (
            "the pool stays while it has a user"
        )
        await world.pod("s", "a", cpu="2", status=drawn("a", "3", "2"))
        await world.runs("s")
        assert world.driver.count("prepare", "a") == 1

    tell(story)


def test_a_critical_pod_has_room_made_for_it() -> None:
    async def story(world: World) -> None:
        await world.pod("small", "a", cpu="1")
        await world.pod("plain", "b", cpu="3")
        await world.runs("small")
        await world.runs("plain")
        await world.pod(
            "critical", cpu="2", namespace="kube-system", priorityClassName="system-node-critical"
        )
        await world.runs("critical", "kube-system")
        status = (await world.ended("plain"))["status"]
        assert (status["reason"], status["message"]) == (
            "Preempting",
            "Preempted in order to admit critical pod",
        )
        await quiet(world)
        assert list(world.driver.held.values()) == ["a"]
        await world.runs("small")
        await world.kill_agent()
        await world.start_agent()
        await quiet(world)
        await world.runs("critical", "kube-system")

    tell(story)


def test_a_critical_pod_waits_for_claims_to_be_released() -> None:
    async def story(world: World) -> None:
        await world.pod("plain", "b", cpu="3")
        await world.runs("plain")
        world.driver.gate.clear()
        await world.pod(
            "critical", cpu="2", namespace="kube-system", priorityClassName="system-node-critical"
        )
        await world.until(lambda: world.driver.count("unprepare", "b"), "a release")
        await asyncio.sleep(0.1)
        tree = await world.get("critical", "kube-system")
        assert tree is not None
        assert tree["status"]["phase"] == "Pending"
        world.driver.gate.set()
        await world.runs("critical", "kube-system")

    tell(story)


def test_eviction_under_memory_pressure() -> None:
    async def story(world: World) -> None:
        await world.kill_agent()
        used: dict[str, int] = {}
        free = 4 * GI

        def available() -> NodeStats:
            pods = {uid: PodStats(used={"memory": each}) for uid, each in used.items()}
            return NodeStats({"memory.available": SignalObservation(free, 8 * GI)}, pods)

        world.available = available
        await world.start_agent()
        await world.pod("thrifty", "a", cpu="1")
        await world.pod("greedy", "b", cpu="1")
        await world.runs("thrifty")
        await world.runs("greedy")
        used |= {await world.uid("thrifty"): GI, await world.uid("greedy"): 3 * GI}
        free = 50 * 2**20
        status = (await world.ended("greedy"))["status"]
        free = 4 * GI
        assert status["reason"] == "Evicted"
        assert status["message"] == (
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        )
        disruption = {c["type"]: c.get("reason") for c in status["conditions"]}["DisruptionTarget"]
        assert disruption == "TerminationByKubelet"
        await quiet(world)
        assert list(world.driver.held.values()) == ["a"]
        node = await world.admin.get(NODES, NODE)
        assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["MemoryPressure"] == "True"
        await world.pod("effortless")
        reason, message = await refused(world, "effortless")
        assert (reason, message) == ("Evicted", REJECTED + "The node had condition: [MemoryPressure]. ")
        await world.pod("burstable", cpu="1")
        await world.runs("burstable")
        await world.runs("thrifty")

    tell(story)


async def resize(world: World, name: str, cpu: str) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    await world.admin.patch(
        PODS, name, {"spec": {"containers": containers}}, "default", subresource="resize", type="strategic"
    )


def given_cpu(tree: dict[str, Any] | None) -> str:
    assert tree is not None
    return str(tree["status"]["containerStatuses"][0]["allocatedResources"]["cpu"])


def condition(tree: dict[str, Any] | None, type: str) -> dict[str, Any]:
    assert tree is not None
    return next((c for c in tree["status"]["conditions"] if c["type"] == type), {})


async def grow(world: World, charged: dict[str, Any]) -> None:
    """A pod that wants to grow to 3 CPUs, waits for room, and is charged one more for a claim meanwhile.

    The API server takes no resize of a pod that is charged already in the form of 1.36.
    """
    await world.make_claim("a")
    await world.pod("p", cpu="1", resourceClaims=[{"name": "a", "resourceClaimName": "a"}])
    await world.reserve("a", "p")
    await world.pod("q", cpu="2")
    await world.runs("p")
    await world.runs("q")
    await resize(world, "p", "3")
    tree = await world.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Deferred")
    assert condition(tree, "PodResizePending")["message"] == (
        "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    await world.admin.patch(PODS, "p", {"status": charged}, "default", subresource="status")
    await world.until(lambda: world.agent.admission_handler.ledger.requested["cpu"] == 4000, "the charge")
    await world.delete("q")


def test_a_pod_with_charges_grows_within_the_node_in_the_form_of_1_37() -> None:
    async def story(world: World) -> None:
        await grow(world, charge_137("a", "1"))
        tree = await world.sees("p", lambda t: given_cpu(t) == "3")
        assert tree is not None
        assert world.agent.admission_handler.ledger.requested["cpu"] == 4000
        await world.sees("p", lambda t: not condition(t, "PodResizePending"))
        assert tree["status"]["containerStatuses"][0]["restartCount"] == 0
        await world.kill_agent()
        await world.start_agent()
        await quiet(world)
        assert world.agent.admission_handler.ledger.requested["cpu"] == 4000, "what it was given stays"
        assert world.driver.count("prepare", "a") == 1
        await resize(world, "p", "2")  # a charged pod, by the API: claim and container are 3 of 4 then
        await world.sees("p", lambda t: given_cpu(t) == "2")
        await world.until(
            lambda: world.agent.admission_handler.ledger.requested["cpu"] == 3000, "the smaller charge"
        )
        await resize(world, "p", "4")  # with the claim that is more than the node has
        tree = await world.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Infeasible")
        assert "requested: 5000" in condition(tree, "PodResizePending")["message"]
        assert world.agent.admission_handler.ledger.requested["cpu"] == 3000

    tell(story, form=Form.V1_37)


def test_a_pod_with_charges_cannot_be_resized_in_the_form_of_1_36() -> None:
    async def story(world: World) -> None:
        text = "pods with node allocatable resource claims cannot be resized"
        await grow(world, charge("a", "1"))
        tree = await world.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Infeasible")
        assert condition(tree, "PodResizePending")["message"] == text
        assert given_cpu(tree) == "1"
        await world.gone("q")
        await quiet(world)
        assert world.agent.admission_handler.ledger.requested["cpu"] == 2000
        with pytest.raises(ApiError, match=text):
            await resize(world, "p", "2")

    tell(story, form=Form.V1_36)


def test_a_resize_waits_for_room() -> None:
    async def story(world: World) -> None:
        await world.pod("p", cpu="2")
        await world.pod("q", cpu="2")
        await world.runs("p")
        await world.runs("q")
        await resize(world, "p", "3")
        tree = await world.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Deferred")
        assert condition(tree, "PodResizePending")["message"] == (
            "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
        )
        await world.delete("q")
        await world.sees("p", lambda t: given_cpu(t) == "3")
        assert world.agent.admission_handler.ledger.requested["cpu"] == 3000

    tell(story)


def test_a_pod_that_cannot_be_judged_is_refused_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = AdmissionHandler.check

    def stumble(self: AdmissionHandler, pod: Pod) -> PodAdmitResult:
        if pod.metadata.name == "strange":
            raise ZeroDivisionError("never seen before")
        return judge(self, pod)

    async def story(world: World) -> None:
        monkeypatch.setattr(AdmissionHandler, "check", stumble)
        await world.pod("strange")
        reason, message = await refused(world, "strange")
        assert reason == "UnexpectedAdmissionError"
        assert message == REJECTED + "ZeroDivisionError: never seen before"
        await world.pod("plain")
        await world.runs("plain")

    tell(story)
