"""Admission, preemption, eviction and resize in a complete agent. KEP-5517, "Kubelet Admission Control",
and its test plan for the kubelet (docs/spec/keps.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from tests.coroutines import run_by
from tests.playbooks.invariants import quiet
from tests.playbooks.node_harness import NODE, NodeHarness
from tests.playbooks.scenarios import run_scenario
from tests.waiting import until

REJECTED = "Pod was rejected: "
GI = 2**30


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


async def refused(harness: NodeHarness, name: str) -> tuple[str, str]:
    status = (await harness.ended(name))["status"]
    return status["reason"], status["message"]


@run_by(run_scenario)
async def test_the_second_pod_is_rejected_with_a_reason(harness: NodeHarness) -> None:
    await harness.pod("p", cpu="3")
    await harness.runs("p")
    await harness.pod("q", cpu="2")
    text = "Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
    assert await refused(harness, "q") == ("OutOfcpu", REJECTED + text)
    await until(lambda: harness.events("q"), lambda events: ("OutOfcpu", text) in events)
    for how in (harness.stop_agent, harness.kill_agent):
        await how()
        await harness.start_agent()
        await quiet(harness)
        assert await refused(harness, "q") == ("OutOfcpu", REJECTED + text)
        assert (await harness.runs("p"))["status"]["containerStatuses"][0]["restartCount"] == 0


@run_by(run_scenario)
async def test_admission_follows_the_order_of_arrival_at_the_node(harness: NodeHarness) -> None:
    """The order of admission counts, not the age: a restart changes nothing."""
    await harness.stop_agent()
    await harness.pod("older", cpu="3")
    await harness.pod("younger", cpu="3")
    await harness.start_agent()
    await harness.runs("older")
    assert (await refused(harness, "younger"))[0] == "OutOfcpu"
    await harness.delete("older")
    await harness.gone("older")
    await harness.pod("next", cpu="3")
    await harness.runs("next")
    await harness.kill_agent()
    await harness.pod("last", cpu="3")
    await harness.start_agent()
    await harness.runs("next")
    assert (await refused(harness, "last"))[0] == "OutOfcpu"


@run_by(run_scenario)
async def test_a_pod_waits_for_one_that_has_failed(harness: NodeHarness) -> None:
    """A controller sets the phase of a running pod; the scheduler binds the next one at once."""
    await harness.pod("failed", cpu="3")
    await harness.runs("failed")
    status = {"status": {"phase": "Failed", "reason": "NodeLost"}}
    await harness.admin.patch(PODS, "failed", status, "default", subresource="status")
    await harness.pod("next", cpu="3")
    await harness.runs("next")
    assert (await harness.ended("failed"))["status"]["reason"] == "NodeLost"


@pytest.mark.parametrize("force", [False, True])
@run_by(run_scenario)
async def test_a_pod_deleted_while_it_is_recorded(harness: NodeHarness, *, force: bool) -> None:
    admission_handler, flush, gate = (
        harness.agent.admission_handler,
        harness.agent.admission_handler.flush,
        asyncio.Event(),
    )

    async def slow() -> Any:
        await gate.wait()
        return await flush()

    setattr(admission_handler, "flush", slow)  # noqa: B010 - a method
    made = await harness.pod("p", "a", cpu="3")
    uid = made["metadata"]["uid"]
    await harness.until(lambda: uid in admission_handler, "p is let in")
    await harness.delete("p", force=force)
    await harness.until(
        lambda: all(pod.metadata.deletion_timestamp for pod in harness.agent.pods()), "the agent knows"
    )
    gate.set()
    await harness.gone("p")
    await quiet(harness)
    await harness.until(lambda: uid not in admission_handler)
    await harness.pod("q", cpu="3")
    await harness.runs("q")


@pytest.mark.parametrize(("form", "how"), [(Form.V1_36, charge), (Form.V1_37, charge_137)])
def test_claim_charges_count_in_admission(form: Form, how: Callable[[str, str], dict[str, Any]]) -> None:
    async def scenario(harness: NodeHarness) -> None:
        await harness.pod("p", "a", cpu="1", status=how("a", "2"))
        tree = await harness.runs("p")
        assert harness.agent.admission_handler.ledger.requested["cpu"] == 3000
        assert tree["status"]["nodeAllocatableResourceClaimStatuses"][0]["resourceClaimName"] == "a"
        await harness.pod("q", "b", cpu="1", status=how("b", "500m"))
        text = "Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000"
        assert await refused(harness, "q") == ("OutOfcpu", REJECTED + text)
        assert harness.driver.count("prepare", "b") == 0, "no rejected pod has prepared claims"
        await harness.kill_agent()
        await harness.start_agent()
        await quiet(harness)
        assert harness.agent.admission_handler.ledger.requested["cpu"] == 3000
        await harness.pod("r", cpu="1")
        await harness.runs("r")

    run_scenario(scenario, form=form)


def test_claims_charge_nothing_while_the_gate_is_off() -> None:
    async def scenario(harness: NodeHarness) -> None:
        await harness.pod("p", "a", cpu="1", status=charge("a", "2"))
        await harness.runs("p")
        await harness.pod("q", cpu="3")
        await harness.runs("q")

    run_scenario(scenario, gates=Gates.of({"DRANodeAllocatableResources": False}))


@run_by(run_scenario)
async def test_claim_pools_are_not_overcommitted(harness: NodeHarness) -> None:
    await harness.pod("p", "a", cpu="2", status=drawn("a", "3", "2"))
    await harness.runs("p")
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 3000
    await harness.pod("q", "a", cpu="1", status=drawn("a", "3", "1"))
    await harness.runs("q")
    await harness.pod("r", "a", cpu="1", status=drawn("a", "3", "1"))
    text = "Node didn't have enough resource: cpu in claim a, requested: 1000, used: 3000, capacity: 3000"
    assert await refused(harness, "r") == ("OutOfcpu", REJECTED + text)
    await quiet(harness)
    await harness.delete("p")
    await harness.gone("p")
    await quiet(harness)
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 3000, (
        "the pool stays while it has a user"
    )
    await harness.pod("s", "a", cpu="2", status=drawn("a", "3", "2"))
    await harness.runs("s")
    assert harness.driver.count("prepare", "a") == 1


@run_by(run_scenario)
async def test_a_critical_pod_preempts(harness: NodeHarness) -> None:
    await harness.pod("small", "a", cpu="1")
    await harness.pod("plain", "b", cpu="3")
    await harness.runs("small")
    await harness.runs("plain")
    await harness.pod("critical", cpu="2", namespace="kube-system", priorityClassName="system-node-critical")
    await harness.runs("critical", "kube-system")
    status = (await harness.ended("plain"))["status"]
    assert (status["reason"], status["message"]) == (
        "Preempting",
        "Preempted in order to admit critical pod",
    )
    await quiet(harness)
    assert list(harness.driver.held.values()) == ["a"]
    await harness.runs("small")
    await harness.kill_agent()
    await harness.start_agent()
    await quiet(harness)
    await harness.runs("critical", "kube-system")


@run_by(run_scenario)
async def test_a_critical_pod_waits_for_claims_to_be_released(harness: NodeHarness) -> None:
    await harness.pod("plain", "b", cpu="3")
    await harness.runs("plain")
    harness.driver.gate.clear()
    await harness.pod("critical", cpu="2", namespace="kube-system", priorityClassName="system-node-critical")
    await harness.until(lambda: harness.driver.count("unprepare", "b"), "a release")
    await asyncio.sleep(0.1)
    tree = await harness.get("critical", "kube-system")
    assert tree is not None
    assert tree["status"]["phase"] == "Pending"
    harness.driver.gate.set()
    await harness.runs("critical", "kube-system")


@run_by(run_scenario)
async def test_eviction_under_memory_pressure(harness: NodeHarness) -> None:
    await harness.kill_agent()
    used: dict[str, int] = {}
    free = 4 * GI

    def available() -> NodeStats:
        manager = harness.agent.components.eviction_manager
        # The memory is free again as soon as a pod is evicted, so that no other one follows.
        left = 4 * GI if manager is not None and manager.evictions else free
        pods = {uid: PodStats(used={"memory": each}) for uid, each in used.items()}
        return NodeStats({"memory.available": SignalObservation(left, 8 * GI)}, pods)

    harness.available = available
    await harness.start_agent()
    await harness.pod("thrifty", "a", cpu="1")
    await harness.pod("greedy", "b", cpu="1")
    await harness.runs("thrifty")
    await harness.runs("greedy")
    used |= {await harness.uid("thrifty"): GI, await harness.uid("greedy"): 3 * GI}
    free = 50 * 2**20
    status = (await harness.ended("greedy"))["status"]
    free = 4 * GI
    assert status["reason"] == "Evicted"
    assert status["message"] == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    evicted = ("Evicted", status["message"])
    await until(lambda: harness.events("greedy"), lambda events: evicted in events)
    disruption = {c["type"]: c.get("reason") for c in status["conditions"]}["DisruptionTarget"]
    assert disruption == "TerminationByKubelet"
    met = ("EvictionThresholdMet", "Attempting to reclaim memory")
    await until(lambda: harness.events(NODE), lambda events: met in events)
    await quiet(harness)
    assert list(harness.driver.held.values()) == ["a"]
    node = await harness.admin.get(NODES, NODE)
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["MemoryPressure"] == "True"
    await harness.pod("effortless")
    reason, message = await refused(harness, "effortless")
    assert (reason, message) == ("Evicted", REJECTED + "The node had condition: [MemoryPressure]. ")
    await harness.pod("burstable", cpu="1")
    await harness.runs("burstable")
    await harness.runs("thrifty")


async def resize(harness: NodeHarness, name: str, cpu: str) -> None:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    await harness.admin.patch(
        PODS, name, {"spec": {"containers": containers}}, "default", subresource="resize", type="strategic"
    )


def given_cpu(tree: dict[str, Any] | None) -> str:
    assert tree is not None
    return str(tree["status"]["containerStatuses"][0]["allocatedResources"]["cpu"])


def condition(tree: dict[str, Any] | None, type: str) -> dict[str, Any]:
    assert tree is not None
    return next((c for c in tree["status"]["conditions"] if c["type"] == type), {})


async def grow(harness: NodeHarness, charged: dict[str, Any]) -> None:
    """A pod that wants to grow to 3 CPUs, waits for room, and is charged one more for a claim meanwhile.

    The API server takes no resize of a pod that is charged already in the form of 1.36.
    """
    await harness.make_claim("a")
    await harness.pod("p", cpu="1", resourceClaims=[{"name": "a", "resourceClaimName": "a"}])
    await harness.reserve("a", "p")
    await harness.pod("q", cpu="2")
    await harness.runs("p")
    await harness.runs("q")
    await resize(harness, "p", "3")
    tree = await harness.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Deferred")
    assert condition(tree, "PodResizePending")["message"] == (
        "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    await harness.admin.patch(PODS, "p", {"status": charged}, "default", subresource="status")
    await harness.until(lambda: harness.agent.admission_handler.ledger.requested["cpu"] == 4000, "the charge")
    await harness.delete("q")


@run_by(run_scenario, form=Form.V1_37)
async def test_a_pod_with_charges_grows_within_the_node_in_the_form_of_1_37(harness: NodeHarness) -> None:
    await grow(harness, charge_137("a", "1"))
    tree = await harness.sees("p", lambda t: given_cpu(t) == "3")
    assert tree is not None
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 4000
    await harness.sees("p", lambda t: not condition(t, "PodResizePending"))
    assert tree["status"]["containerStatuses"][0]["restartCount"] == 0
    await harness.kill_agent()
    await harness.start_agent()
    await quiet(harness)
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 4000, "what it was given stays"
    assert harness.driver.count("prepare", "a") == 1
    await resize(harness, "p", "2")  # a charged pod, by the API: claim and container are 3 of 4 then
    await harness.sees("p", lambda t: given_cpu(t) == "2")
    await harness.until(
        lambda: harness.agent.admission_handler.ledger.requested["cpu"] == 3000, "the smaller charge"
    )
    await resize(harness, "p", "4")  # with the claim that is more than the node has
    tree = await harness.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Infeasible")
    assert "requested: 5000" in condition(tree, "PodResizePending")["message"]
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 3000


@run_by(run_scenario, form=Form.V1_36)
async def test_a_pod_with_charges_cannot_be_resized_in_the_form_of_1_36(harness: NodeHarness) -> None:
    text = "pods with node allocatable resource claims cannot be resized"
    await grow(harness, charge("a", "1"))
    tree = await harness.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Infeasible")
    assert condition(tree, "PodResizePending")["message"] == text
    assert given_cpu(tree) == "1"
    await harness.gone("q")
    await quiet(harness)
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 2000
    with pytest.raises(ApiError, match=text):
        await resize(harness, "p", "2")


@run_by(run_scenario)
async def test_a_resize_waits_for_resources(harness: NodeHarness) -> None:
    await harness.pod("p", cpu="2")
    await harness.pod("q", cpu="2")
    await harness.runs("p")
    await harness.runs("q")
    await resize(harness, "p", "3")
    tree = await harness.sees("p", lambda t: condition(t, "PodResizePending")["reason"] == "Deferred")
    assert condition(tree, "PodResizePending")["message"] == (
        "Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"
    )
    await harness.delete("q")
    await harness.sees("p", lambda t: given_cpu(t) == "3")
    assert harness.agent.admission_handler.ledger.requested["cpu"] == 3000


@run_by(run_scenario)
async def test_a_pod_that_fails_admission_with_an_error_does_not_affect_others(
    harness: NodeHarness, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = AdmissionHandler.check

    def stumble(self: AdmissionHandler, pod: Pod) -> PodAdmitResult:
        if pod.metadata.name == "strange":
            raise ZeroDivisionError("never seen before")
        return judge(self, pod)

    monkeypatch.setattr(AdmissionHandler, "check", stumble)
    await harness.pod("strange")
    reason, message = await refused(harness, "strange")
    assert reason == "UnexpectedAdmissionError"
    assert message == REJECTED + "ZeroDivisionError: never seen before"
    await harness.pod("plain")
    await harness.runs("plain")
