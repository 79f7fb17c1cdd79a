"""EndpointSlices: plan and controller."""

from __future__ import annotations

from typing import Any

from plimsoll.client.endpoints import ENDPOINT_SLICES, PODS, SERVICES
from plimsoll.controllers.actions import CreateAction
from plimsoll.controllers.endpoint_slice import plan_slices
from plimsoll.controllers.object_views import EndpointSliceView, ServiceView
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, Tree, run_scenario
from tests.unit.controllers.makers import metadata, view
from tests.unit.controllers.workloads.makers import LABELS, owned_pod, run_pods, template

ONLY = ["endpointslice-controller"]
DELETED = "2026-01-01T00:00:00Z"


def service(**spec: Any) -> ServiceView:
    fields = {"selector": LABELS, "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}
    return view({"metadata": metadata("s"), "spec": fields}, ServiceView)


def pod(name: str, ip: str = "10.0.0.1", **fields: Any) -> Any:
    return owned_pod(name, status={"podIP": ip}, **fields)


def trees(plan: Any) -> list[Tree]:
    return [dict(action.tree) for action in plan.actions if isinstance(action, CreateAction)]


def test_endpoints_have_the_state_of_their_pods() -> None:
    pods = [
        pod("a"),
        pod("b", ready=False),
        pod("c", deletionTimestamp=DELETED),
        pod("d", ip=""),
        pod("e", phase="Succeeded"),
    ]
    (tree,) = trees(plan_slices(service(), pods, [], {"n1": "z"}))
    states = {each["targetRef"]["name"]: each["conditions"] for each in tree["endpoints"]}
    assert states == {
        "a": {"ready": True, "serving": True, "terminating": False},
        "b": {"ready": False, "serving": False, "terminating": False},
        "c": {"ready": False, "serving": True, "terminating": True},
    }
    assert {each["zone"] for each in tree["endpoints"]} == {"z"}
    assert tree["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert tree["metadata"]["labels"]["kubernetes.io/service-name"] == "s"


def test_addresses_that_are_not_ready_can_be_published() -> None:
    (tree,) = trees(plan_slices(service(publishNotReadyAddresses=True), [pod("a", ready=False)], [], {}))
    assert tree["endpoints"][0]["conditions"]["ready"]


def test_pods_with_other_named_ports_are_in_other_slices() -> None:
    def named(name: str, number: int) -> Any:
        ports = [{"name": "web", "containerPort": number, "protocol": "TCP"}]
        return pod(name, spec={"containers": [{"name": "c", "image": "i", "ports": ports}], "nodeName": "n1"})

    wanted = service(ports=[{"port": 80, "targetPort": "web"}])
    found = trees(plan_slices(wanted, [named("a", 1), named("b", 2), named("c", 1)], [], {}))
    by_port = {tree["ports"][0]["port"]: len(tree["endpoints"]) for tree in found}
    assert by_port == {1: 2, 2: 1}


def test_slices_have_at_most_a_hundred_endpoints() -> None:
    found = trees(plan_slices(service(), [pod(f"p{number}") for number in range(250)], [], {}))
    assert sorted(len(tree["endpoints"]) for tree in found) == [50, 100, 100]


def test_a_service_without_pods_has_one_empty_slice_and_a_plan_ends() -> None:
    (tree,) = trees(plan_slices(service(clusterIP="None"), [], [], {}))
    assert tree["endpoints"] == []
    assert "service.kubernetes.io/headless" in tree["metadata"]["labels"]
    stored = view({**tree, "metadata": {**metadata("x"), **tree["metadata"]}}, EndpointSliceView)
    assert not plan_slices(service(clusterIP="None"), [], [stored], {})


@run_by(run_scenario, only=ONLY)
async def test_slices_follow_the_pods(cluster: Cluster) -> None:
    spec = {"selector": LABELS, "ports": [{"port": 80}]}
    await cluster.client.create(SERVICES, {"metadata": {"name": "s"}, "spec": spec}, "n")
    for name in ("a", "b"):
        tree = {"metadata": {"name": name, "labels": LABELS}, "spec": template()["spec"]}
        await cluster.client.create(PODS, tree, "n")
        await cluster.client.patch(PODS, name, {"status": {"podIP": "10.0.0.1"}}, "n", subresource="status")
    await run_pods(cluster, "a")
    await cluster.settle()

    async def ready() -> list[bool]:
        return [
            each["conditions"]["ready"]
            for tree in await cluster.trees(ENDPOINT_SLICES)
            for each in tree.get("endpoints") or ()
        ]

    assert await ready() == [True, False]
    await run_pods(cluster, "b")
    await cluster.settle()
    assert await ready() == [True, True]
    await cluster.client.delete(PODS, "a", "n", grace=0)
    await cluster.settle()
    assert await ready() == [True]
    (name,) = await cluster.names(ENDPOINT_SLICES)
    await cluster.client.delete(ENDPOINT_SLICES, name, "n")
    await cluster.settle()
    assert await cluster.names(ENDPOINT_SLICES) == [name]
