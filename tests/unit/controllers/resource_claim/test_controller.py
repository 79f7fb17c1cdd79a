"""The claim controller at work on a real API in memory."""

from __future__ import annotations

from typing import Any

from plimsoll.api.codec import decode_tree, encode
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, UnreachableError
from tests.unit.controllers.cluster import Cluster, play

ONLY = ["resourceclaim-controller"]


def template(name: str = "t") -> dict[str, Any]:
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}
    return {"metadata": {"name": name}, "spec": {"spec": {"devices": devices}}}


def claim(name: str = "c") -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": template()["spec"]["spec"]}


def pod(name: str, entries: dict[str, dict[str, str]], **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": entry} for entry in entries]}}
    claims = [{"name": entry, **source} for entry, source in entries.items()]
    return {
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": claims, **spec},
    }


FROM_T = {"resourceClaimTemplateName": "t"}
TWO = {"a": FROM_T, "b": FROM_T}


async def recorded(world: Cluster, name: str = "p") -> dict[str, str]:
    tree = await world.client.get(PODS, name, "n")
    statuses = tree["status"].get("resourceClaimStatuses", [])
    return {status["name"]: status["resourceClaimName"] for status in statuses}


async def claims(world: Cluster) -> dict[str, dict[str, Any]]:
    return {tree["metadata"]["name"]: tree for tree in await world.trees(RESOURCE_CLAIMS)}


def test_a_pod_gets_its_claims() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        made = await world.client.create(PODS, pod("p", TWO), "n")
        await world.settle()
        names = await recorded(world)
        found = await claims(world)
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
        fields = (await world.client.get(PODS, "p", "n"))["metadata"]["managedFields"]
        (applied,) = [entry for entry in fields if entry["manager"] == "ResourceClaimController"]
        assert (applied["operation"], applied["subresource"]) == ("Apply", "status")

    play(story, only=ONLY)


def test_a_template_may_come_after_its_pod() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(PODS, pod("p", {"a": FROM_T}), "n")
        await world.settle(max_wait=0)
        missing = 'resourceclaimtemplate.resource.k8s.io "t" not found'
        text = f'PodResourceClaim a: resource claim template "t": {missing}'
        assert await world.events() == [("Warning", "FailedResourceClaimCreation", text)]
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        await world.settle()
        assert len(await recorded(world)) == 1

    play(story, only=ONLY)


def test_a_claim_that_was_deleted_comes_back_and_the_others_stay() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        await world.client.create(PODS, pod("p", TWO), "n")
        await world.settle()
        before = await recorded(world)
        await world.client.delete(RESOURCE_CLAIMS, before["a"], "n")
        await world.settle()
        after = await recorded(world)
        assert after["b"] == before["b"]
        assert after["a"] != before["a"]
        assert set(await claims(world)) == set(after.values())

    play(story, only=ONLY)


def test_an_answer_that_got_lost_does_not_make_a_second_claim() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        await world.client.create(PODS, pod("p", {"a": FROM_T}), "n")
        send = world.transport.send

        async def lose(request: Any) -> Any:
            reply = await send(request)
            if request.method == "POST" and request.path.endswith("resourceclaims"):
                world.transport.send = send  # type: ignore[method-assign]
                raise UnreachableError("the answer got lost", sent=True)
            return reply

        world.transport.send = lose  # type: ignore[method-assign]
        await world.settle()
        assert len(await claims(world)) == 1
        assert set((await recorded(world)).values()) == set(await claims(world))

    play(story, only=ONLY)


def test_claims_that_come_out_wrong_are_not_made_without_end() -> None:
    """Somebody on the way to the store takes the owner off every claim."""

    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        await world.client.create(PODS, pod("p", {"a": FROM_T}), "n")
        send = world.transport.send

        async def strip(request: Any) -> Any:
            if request.method == "POST" and request.path.endswith("resourceclaims"):
                tree = decode_tree(request.body)
                del tree["metadata"]["ownerReferences"]
                request = request._replace(body=encode(tree))
            return await send(request)

        world.transport.send = strip  # type: ignore[method-assign]
        await world.settle(max_wait=0.05)
        assert len(await claims(world)) < 8

    play(story, only=ONLY)


def test_a_refused_claim_is_told_to_the_pod_and_tried_again() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        await world.catch_up()
        await world.client.create(PODS, pod("p", {"a": FROM_T}), "n")
        world.transport.refusals.append(ApiError(403, "Forbidden", "exceeded quota"))
        await world.settle()
        text = "PodResourceClaim a: create ResourceClaim : exceeded quota"
        assert await world.events() == [("Warning", "FailedResourceClaimCreation", text)]
        assert len(await recorded(world)) == 1

    play(story, only=ONLY)


def test_a_finished_pod_gives_its_claims_back() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
        await world.client.create(RESOURCE_CLAIMS, claim("shared"), "n")
        entries = {"a": FROM_T, "s": {"resourceClaimName": "shared"}}
        await world.client.create(PODS, pod("p", entries), "n")
        await world.client.create(PODS, pod("q", {"s": {"resourceClaimName": "shared"}}), "n")
        await world.settle()
        own = (await recorded(world))["a"]
        await world.allocate(own, "p")
        await world.allocate("shared", "p", "q")
        await world.bind("p")
        await world.bind("q")
        await world.settle()
        assert set(await claims(world)) == {own, "shared"}
        await world.finish("p")
        await world.settle()
        (left,) = (await claims(world)).values()
        assert [consumer["name"] for consumer in left["status"]["reservedFor"]] == ["q"]
        assert "allocation" in left["status"]
        await world.finish("q", "Failed")
        await world.settle()
        (left,) = (await claims(world)).values()
        assert not left.get("status")
        assert "finalizers" not in left["metadata"]

    play(story, only=ONLY)


def test_a_pod_that_is_gone_is_asked_for_before_its_reservation_goes() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIMS, claim(), "n")
        made = await world.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
        await world.allocate("c", "p")
        await world.settle()
        assert "reservedFor" in (await claims(world))["c"]["status"]
        await world.client.delete(PODS, "p", "n", grace=0)
        await world.settle()
        assert not (await claims(world))["c"].get("status")
        # The same name, another pod: a reservation for the one before is stale from the start.
        await world.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
        await world.allocate("c", "p")
        reserved = [{"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}]
        status = {"status": {"reservedFor": reserved}}
        await world.restart()
        await world.client.patch(RESOURCE_CLAIMS, "c", status, "n", subresource="status")
        await world.settle()
        assert not (await claims(world))["c"].get("status")

    play(story, only=ONLY)


def test_a_deleted_claim_stays_while_it_is_in_use() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIMS, claim(), "n")
        await world.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
        await world.allocate("c", "p")
        await world.bind("p")
        await world.client.delete(RESOURCE_CLAIMS, "c", "n")
        await world.settle()
        assert set(await claims(world)) == {"c"}
        await world.finish("p")
        await world.settle()
        assert set(await claims(world)) == set()

    play(story, only=ONLY)


def test_a_pod_placed_without_the_scheduler_is_reserved_for() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIMS, claim(), "n")
        await world.client.create(PODS, pod("p", {"s": {"resourceClaimName": "c"}}), "n")
        await world.allocate("c")
        await world.settle()
        assert "reservedFor" not in (await claims(world))["c"]["status"]
        await world.bind("p")
        await world.settle()
        (consumer,) = (await claims(world))["c"]["status"]["reservedFor"]
        assert (consumer["resource"], consumer["name"]) == ("pods", "p")

    play(story, only=ONLY)


def test_a_finalizer_without_an_allocation_goes_after_a_while() -> None:
    async def story(world: Cluster) -> None:
        await world.client.create(RESOURCE_CLAIMS, claim(), "n")
        finalizers = ["resource.kubernetes.io/delete-protection"]
        await world.client.patch(RESOURCE_CLAIMS, "c", {"metadata": {"finalizers": finalizers}}, "n")
        await world.advance(59)
        assert (await claims(world))["c"]["metadata"]["finalizers"] == finalizers
        await world.advance(2)
        assert "finalizers" not in (await claims(world))["c"]["metadata"]

    play(story, only=ONLY)


def test_the_claim_for_extended_resources_goes_with_its_pod() -> None:
    async def story(world: Cluster) -> None:
        shape = pod("p", {})
        shape["spec"]["containers"][0]["resources"] = {"limits": {"example.com/gpu": "1"}}
        made = await world.client.create(PODS, shape, "n")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"]}
        tree = claim("p-extended-resources-x")
        tree["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        tree["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        await world.client.create(RESOURCE_CLAIMS, tree, "n")
        await world.allocate("p-extended-resources-x", "p")
        mappings = [{"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}]
        status = {
            "extendedResourceClaimStatus": {
                "resourceClaimName": "p-extended-resources-x",
                "requestMappings": mappings,
            }
        }
        await world.client.patch(PODS, "p", {"status": status}, "n", subresource="status")
        await world.bind("p")
        await world.settle()
        assert len(await claims(world)) == 1
        await world.finish("p")
        await world.settle()
        assert await claims(world) == {}

    play(story, only=ONLY)
