"""Claim controller on an API in memory."""

from __future__ import annotations

from typing import Any

from plimsoll.api.codec import decode_tree, encode
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, UnreachableError
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.new_objects import claim, pod, template

ONLY = ["resourceclaim-controller"]


FROM_T = {"resourceClaimTemplateName": "t"}
TWO = {"a": FROM_T, "b": FROM_T}


async def recorded(cluster: Cluster, name: str = "p") -> dict[str, str]:
    tree = await cluster.client.get(PODS, name, "n")
    statuses = tree["status"].get("resourceClaimStatuses", [])
    return {status["name"]: status["resourceClaimName"] for status in statuses}


async def claims(cluster: Cluster) -> dict[str, dict[str, Any]]:
    return {tree["metadata"]["name"]: tree for tree in await cluster.trees(RESOURCE_CLAIMS)}


@run_by(run_scenario, only=ONLY)
async def test_a_pod_gets_its_claims(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    made = await cluster.client.create(PODS, pod("p", TWO), "n")
    await cluster.settle()
    names = await recorded(cluster)
    found = await claims(cluster)
    assert set(names) == {"a", "b"}
    assert set(names.values()) == set(found)
    metadata = found[names["a"]]["metadata"]
    assert metadata["generateName"] == "p-a-"
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "a"}
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": made["metadata"]["uid"],
            "controller": True,
        }
    ]
    fields = (await cluster.client.get(PODS, "p", "n"))["metadata"]["managedFields"]
    (applied,) = [entry for entry in fields if entry["manager"] == "ResourceClaimController"]
    assert (applied["operation"], applied["subresource"]) == ("Apply", "status")


@run_by(run_scenario, only=ONLY)
async def test_a_template_may_come_after_its_pod(cluster: Cluster) -> None:
    await cluster.client.create(PODS, pod("p", {"a": FROM_T}), "n")
    await cluster.settle(max_wait=0)
    missing = 'resourceclaimtemplate.resource.k8s.io "t" not found'
    text = f'PodResourceClaim a: resource claim template "t": {missing}'
    assert await cluster.events() == [("Warning", "FailedResourceClaimCreation", text)]
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.settle()
    assert len(await recorded(cluster)) == 1


@run_by(run_scenario, only=ONLY)
async def test_a_deleted_claim_is_recreated_and_the_others_stay(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.client.create(PODS, pod("p", TWO), "n")
    await cluster.settle()
    before = await recorded(cluster)
    await cluster.client.delete(RESOURCE_CLAIMS, before["a"], "n")
    await cluster.settle()
    after = await recorded(cluster)
    assert after["b"] == before["b"]
    assert after["a"] != before["a"]
    assert set(await claims(cluster)) == set(after.values())


@run_by(run_scenario, only=ONLY)
async def test_a_lost_response_does_not_create_a_second_claim(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.client.create(PODS, pod("p", {"a": FROM_T}), "n")
    send = cluster.transport.send

    async def lose(request: Any) -> Any:
        reply = await send(request)
        if request.method == "POST" and request.path.endswith("resourceclaims"):
            cluster.transport.send = send  # type: ignore[method-assign]
            raise UnreachableError("the answer got lost", sent=True)
        return reply

    cluster.transport.send = lose  # type: ignore[method-assign]
    await cluster.settle()
    assert len(await claims(cluster)) == 1
    assert set((await recorded(cluster)).values()) == set(await claims(cluster))


@run_by(run_scenario, only=ONLY)
async def test_wrong_claims_are_not_created_endlessly(cluster: Cluster) -> None:
    """The API server drops the owner reference of every claim."""
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.client.create(PODS, pod("p", {"a": FROM_T}), "n")
    send = cluster.transport.send

    async def strip(request: Any) -> Any:
        if request.method == "POST" and request.path.endswith("resourceclaims"):
            tree = decode_tree(request.body)
            del tree["metadata"]["ownerReferences"]
            request = request._replace(body=encode(tree))
        return await send(request)

    cluster.transport.send = strip  # type: ignore[method-assign]
    await cluster.settle(max_wait=0.05)
    assert len(await claims(cluster)) < 8


@run_by(run_scenario, only=ONLY)
async def test_a_rejected_claim_is_reported_on_the_pod_and_retried(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.catch_up()
    await cluster.client.create(PODS, pod("p", {"a": FROM_T}), "n")
    cluster.transport.refusals.append(ApiError(403, "Forbidden", "exceeded quota"))
    await cluster.settle()
    text = "PodResourceClaim a: create ResourceClaim : exceeded quota"
    assert await cluster.events() == [("Warning", "FailedResourceClaimCreation", text)]
    assert len(await recorded(cluster)) == 1


@run_by(run_scenario, only=ONLY)
async def test_a_finished_pod_releases_its_claims(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.client.create(RESOURCE_CLAIMS, claim("shared"), "n")
    entries = {"a": FROM_T, "s": {"resourceClaimName": "shared"}}
    await cluster.client.create(PODS, pod("p", entries), "n")
    await cluster.client.create(PODS, pod("q", {"s": {"resourceClaimName": "shared"}}), "n")
    await cluster.settle()
    own = (await recorded(cluster))["a"]
    await cluster.allocate(own, "p")
    await cluster.allocate("shared", "p", "q")
    await cluster.bind("p")
    await cluster.bind("q")
    await cluster.settle()
    assert set(await claims(cluster)) == {own, "shared"}
    await cluster.finish("p")
    await cluster.settle()
    (left,) = (await claims(cluster)).values()
    assert [consumer["name"] for consumer in left["status"]["reservedFor"]] == ["q"]
    assert "allocation" in left["status"]
    await cluster.finish("q", "Failed")
    await cluster.settle()
    (left,) = (await claims(cluster)).values()
    assert not left.get("status")
    assert "finalizers" not in left["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_a_missing_pod_is_read_live_before_its_reservation_is_removed(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIMS, claim(), "n")
    made = await cluster.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
    await cluster.allocate("c", "p")
    await cluster.settle()
    assert "reservedFor" in (await claims(cluster))["c"]["status"]
    await cluster.client.delete(PODS, "p", "n", grace=0)
    await cluster.settle()
    assert not (await claims(cluster))["c"].get("status")
    # The same name, another pod: a reservation for the one before is stale from the start.
    await cluster.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
    await cluster.allocate("c", "p")
    reserved = [{"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}]
    status = {"status": {"reservedFor": reserved}}
    await cluster.restart()
    await cluster.client.patch(RESOURCE_CLAIMS, "c", status, "n", subresource="status")
    await cluster.settle()
    assert not (await claims(cluster))["c"].get("status")


@run_by(run_scenario, only=ONLY)
async def test_a_deleted_claim_stays_while_it_is_in_use(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIMS, claim(), "n")
    await cluster.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
    await cluster.allocate("c", "p")
    await cluster.bind("p")
    await cluster.client.delete(RESOURCE_CLAIMS, "c", "n")
    await cluster.settle()
    assert set(await claims(cluster)) == {"c"}
    await cluster.finish("p")
    await cluster.settle()
    assert set(await claims(cluster)) == set()


@run_by(run_scenario, only=ONLY)
async def test_a_pod_placed_without_the_scheduler_is_reserved_for(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIMS, claim(), "n")
    await cluster.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
    await cluster.allocate("c")
    await cluster.settle()
    assert "reservedFor" not in (await claims(cluster))["c"]["status"]
    await cluster.bind("p")
    await cluster.settle()
    (consumer,) = (await claims(cluster))["c"]["status"]["reservedFor"]
    assert (consumer["resource"], consumer["name"]) == ("pods", "p")


@run_by(run_scenario, only=ONLY)
async def test_a_finalizer_without_an_allocation_is_removed_after_a_delay(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIMS, claim(), "n")
    finalizers = ["resource.kubernetes.io/delete-protection"]
    await cluster.client.patch(RESOURCE_CLAIMS, "c", {"metadata": {"finalizers": finalizers}}, "n")
    await cluster.advance(59)
    assert (await claims(cluster))["c"]["metadata"]["finalizers"] == finalizers
    await cluster.advance(2)
    assert "finalizers" not in (await claims(cluster))["c"]["metadata"]


@run_by(run_scenario, only=ONLY)
async def test_the_extended_resource_claim_is_deleted_with_its_pod(cluster: Cluster) -> None:
    shape = pod("p", {})
    shape["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
    made = await cluster.client.create(PODS, shape, "n")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
    tree = claim("p-extended-resources-x")
    tree["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
    tree["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
    await cluster.client.create(RESOURCE_CLAIMS, tree, "n")
    await cluster.allocate("p-extended-resources-x", "p")
    mappings = [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}]
    status = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "p-extended-resources-x",
            "requestMappings": mappings,
        }
    }
    await cluster.client.patch(PODS, "p", {"status": status}, "n", subresource="status")
    await cluster.bind("p")
    await cluster.settle()
    assert len(await claims(cluster)) == 1
    await cluster.finish("p")
    await cluster.settle()
    assert await claims(cluster) == {}
