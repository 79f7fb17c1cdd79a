"""PodResources of a complete agent: monitoring agents see what the API and the driver report, while pods,
drivers and agents come and go. The e2e cases of KEP-3695, "Graduation Criteria", GA
(docs/spec/keps.md).
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import grpc.aio
import pytest

from plimsoll.api.gates import Gates
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import podresources_v1 as v1
from tests.coroutines import run_by
from tests.playbooks.invariants import quiet
from tests.playbooks.node_harness import NodeHarness
from tests.playbooks.scenarios import run_scenario
from tests.waiting import DEADLINE

_LIST, _GET = (rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", name) for name in ("List", "Get"))


async def list_pods(harness: NodeHarness) -> dict[str, Any]:
    """List all pods by name over the socket."""
    channel = rpc.dial(harness.layout.pod_resources)
    try:
        answer = await rpc.call(channel, _LIST, v1.ListPodResourcesRequest(), timeout=DEADLINE)
        assert len({(pod.namespace, pod.name) for pod in answer.pod_resources}) == len(answer.pod_resources)
        return {pod.name: pod for pod in answer.pod_resources}
    finally:
        await rpc.close(channel)


async def get_pod(harness: NodeHarness, name: str, namespace: str = "default") -> Any:
    """Get one pod over the socket, or the text of the error."""
    channel = rpc.dial(harness.layout.pod_resources)
    try:
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        return (await rpc.call(channel, _GET, request, timeout=DEADLINE)).pod_resources
    except grpc.aio.AioRpcError as error:
        return error.details() if error.code() is grpc.StatusCode.UNKNOWN else str(error)
    finally:
        await rpc.close(channel)


def not_found(name: str) -> str:
    return f"pod {name} in namespace default not found"


async def agree(harness: NodeHarness) -> dict[str, Any]:
    """Check that List, Get, the API and the driver agree; return what is listed."""
    await quiet(harness)
    listed = await list_pods(harness)
    for name, pod in listed.items():
        assert await get_pod(harness, name) == pod
    alive = [tree for tree in await harness.pods() if tree["status"]["phase"] in ("Pending", "Running")]
    assert set(listed) == {tree["metadata"]["name"] for tree in alive}
    for tree in alive:
        shown = {each.name: each for each in listed[tree["metadata"]["name"]].containers}
        assert list(shown) == [each["name"] for each in tree["spec"]["containers"]]
        names = {each["name"]: each["resourceClaimName"] for each in tree["spec"].get("resourceClaims", ())}
        for container in tree["spec"]["containers"]:
            used = [names[each["name"]] for each in container.get("resources", {}).get("claims", ())]
            found = shown[container["name"]].dynamic_resources
            assert [each.claim_name for each in found] == sorted(used, key=list(names.values()).index)
            for claim in found:
                uid = harness.claims[claim.claim_name]["metadata"]["uid"]
                (resource,) = claim.claim_resources
                assert claim.claim_namespace == "default"
                assert uid in harness.driver.held
                assert (resource.driver_name, resource.pool_name, resource.device_name) == (
                    harness.driver.name,
                    "pool",
                    f"dev-{claim.claim_name}",
                )
                assert [each.name for each in resource.cdi_devices] == [f"{harness.driver.name}/claim={uid}"]
                assert resource.share_id == (harness.driver.share_id or "")
    return listed


def container(name: str, *claims: str) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"claims": [{"name": claim} for claim in claims]}}


@run_by(run_scenario)
async def test_pods_come_and_go(harness: NodeHarness) -> None:
    harness.driver.share_id = "11111111-2222-3333-4444-555555555555"
    assert await agree(harness) == {}
    await harness.pod(
        "several", "a", "b", "c", containers=[container("one", "b", "a"), container("two", "c")]
    )
    await harness.pod("plain")
    await harness.pod("sharing", "a", containers=[container("one", "a"), container("without")])
    for name in ("several", "plain", "sharing"):
        await harness.runs(name)
    listed = await agree(harness)
    assert sorted(listed) == ["plain", "several", "sharing"]
    assert [len(each.dynamic_resources) for each in listed["several"].containers] == [2, 1]
    assert [len(each.dynamic_resources) for each in listed["sharing"].containers] == [1, 0]
    assert not listed["plain"].containers[0].dynamic_resources
    await harness.delete("several")
    await harness.gone("several")
    assert sorted(await agree(harness)) == ["plain", "sharing"]
    assert await get_pod(harness, "several") == not_found("several")


@run_by(run_scenario)
async def test_terminated_and_unknown_pods(harness: NodeHarness) -> None:
    await harness.pod("done", "a", restartPolicy="Never")
    await harness.pod("failed", restartPolicy="Never")
    await harness.pod("stays", "b")
    await harness.pod("large", cpu="100")
    for name in ("done", "failed", "stays"):
        await harness.runs(name)
    await harness.ended("large")
    await harness.crash("done", 0)
    await harness.crash("failed", 3)
    await harness.ended("done", "Succeeded")
    await harness.ended("failed")
    assert list(await agree(harness)) == ["stays"]
    for name in ("done", "failed", "large", "unknown", "no name\n", ""):
        assert await get_pod(harness, name) == not_found(name)
    assert await get_pod(harness, "stays", "kube-system") == ("pod stays in namespace kube-system not found")


@run_by(run_scenario)
async def test_drivers_and_agents_come_and_go(harness: NodeHarness) -> None:
    await harness.pod("p", "a")
    await harness.runs("p")
    before = await agree(harness)
    await harness.driver.die()
    assert await agree(harness) == before, "no driver is asked"
    await harness.stop_agent()
    assert not harness.layout.pod_resources.exists()
    await harness.start_agent()
    assert await agree(harness) == before, "from the record"
    await harness.kill_agent()
    await harness.start_agent()
    assert await agree(harness) == before
    await harness.pod("q", "b")
    await harness.sees("q", lambda tree: tree and tree["status"]["phase"] == "Pending")
    await harness.until(lambda: len(harness.agent.admission_handler.admitted_uids) == 2, "q is let in")
    listed = await list_pods(harness)
    assert sorted(listed) == ["p", "q"]
    assert not _devices(listed["q"]), "not prepared yet"
    await harness.driver.come()
    await harness.runs("q")
    await agree(harness)
    harness.cut()
    assert sorted(await list_pods(harness)) == ["p", "q"]
    harness.restore()


@run_by(run_scenario)
async def test_list_and_get_agree_while_pods_change(harness: NodeHarness) -> None:
    """Concurrent calls show the same state, and never a part of a pod."""
    end = asyncio.Event()
    rounds = [0, 0, 0]

    async def ask(number: int) -> None:
        while not end.is_set():
            listed = await list_pods(harness)
            for name, pod in listed.items():
                found = await get_pod(harness, name)
                assert found in (pod, not_found(name)) or _more(found, pod)
            rounds[number] += 1

    asking = [asyncio.create_task(ask(number)) for number in range(len(rounds))]
    for number in range(8):
        await harness.pod(f"p{number}", f"a{number}")
        if number >= 2:
            await harness.runs(f"p{number - 2}")
            await harness.delete(f"p{number - 2}", force=number % 2 == 0)
    await harness.until(
        lambda: min(rounds) > 2 or any(task.done() for task in asking), "all clients have asked"
    )
    end.set()
    await asyncio.gather(*asking)


def _devices(pod: Any) -> list[Any]:
    return [
        each for part in pod.containers for claim in part.dynamic_resources for each in claim.claim_resources
    ]


def _more(found: Any, listed: Any) -> bool:
    """Return whether a claim was prepared or released between the two calls."""
    same = [each.name for each in found.containers] == [each.name for each in listed.containers]
    return found.name == listed.name and same and not (_devices(found) and _devices(listed))


@pytest.mark.parametrize(
    ("gates", "gets", "claims"),
    [
        ({"KubeletPodResourcesGet": False}, False, True),
        ({"KubeletPodResourcesDynamicResources": False}, True, False),
        ({"KubeletPodResourcesGet": False, "KubeletPodResourcesDynamicResources": False}, False, False),
        ({"DynamicResourceAllocation": False}, True, False),
    ],
)
def test_gates(gates: dict[str, bool], gets: bool, claims: bool) -> None:
    async def scenario(harness: NodeHarness) -> None:
        await harness.pod("p", "a")
        await harness.runs("p")
        await quiet(harness)
        listed = await list_pods(harness)
        assert bool(listed["p"].containers[0].dynamic_resources) == claims
        found = await get_pod(harness, "p")
        assert found == (listed["p"] if gets else "PodResources API Get method disabled")

    run_scenario(scenario, gates=Gates.of(gates))
