"""Reads: get and list, trees and raw objects, pages, selectors, revisions."""

from __future__ import annotations

import json

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES, NODES, PODS, Endpoint
from tests.cluster.calls import names, refused
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.manifests import config_map, pod


@run_by(Target.run_scenario, "target")
async def test_get_returns_the_created_object(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", key="välue"), namespace)
    assert made["metadata"]["uid"]
    assert made["metadata"]["creationTimestamp"]
    found = await client.get(CONFIG_MAPS, "a", namespace)
    assert found == made
    assert found["data"] == {"key": "välue"}
    assert found["kind"] == "ConfigMap"
    assert found["apiVersion"] == "v1"
    assert json.loads(await client.get_raw(CONFIG_MAPS, "a", namespace)) == found


@run_by(Target.run_scenario, "target")
async def test_a_missing_object_is_404_with_details(client: Client, namespace: str) -> None:
    error = await refused(client.get(CONFIG_MAPS, "nope", namespace))
    assert (error.code, error.reason) == (404, "NotFound")
    assert error.message == 'configmaps "nope" not found'
    assert error.details == {"name": "nope", "kind": "configmaps"}
    unknown = Endpoint("nope.example.com", "v1", "things", "Thing", True)
    error = await refused(client.list(unknown))
    assert (error.code, error.reason) == (404, "NotFound")


@run_by(Target.run_scenario, "target")
async def test_a_listing_is_complete_and_ordered_whatever_the_page(client: Client, namespace: str) -> None:
    wanted = [f"c{n:02}" for n in range(11)]
    for name in reversed(wanted):
        await client.create(CONFIG_MAPS, config_map(name), namespace)
    for limit in (0, 1, 3, 11, 500):
        listing = await client.list(CONFIG_MAPS, namespace, limit=limit)
        assert names(listing.items) == wanted
        assert int(listing.revision) > 0
        assert {json.loads(raw)["kind"] for raw in listing.items} == {"ConfigMap"}
    everywhere = await client.list(CONFIG_MAPS, limit=4)
    assert set(wanted) <= set(names(everywhere.items))


@run_by(Target.run_scenario, "target")
async def test_pages_show_one_revision(client: Client, namespace: str) -> None:
    """Objects written during a paged list do not appear in its later pages."""
    for name in ("a", "b", "c", "d"):
        await client.create(CONFIG_MAPS, config_map(name), namespace)
    seen: list[str] = []
    revisions = set()
    async for page in client.pages(CONFIG_MAPS, namespace, limit=2):
        seen += names(page.items)
        revisions.add(page.revision)
        if len(seen) == 2:
            await client.create(CONFIG_MAPS, config_map("bb"), namespace)
            await client.delete(CONFIG_MAPS, "d", namespace)
    assert seen == ["a", "b", "c", "d"]
    assert len(revisions) == 1
    assert names((await client.list(CONFIG_MAPS, namespace)).items) == ["a", "b", "bb", "c"]


@run_by(Target.run_scenario, "target")
async def test_the_first_page_has_the_remaining_item_count(client: Client, namespace: str) -> None:
    for n in range(5):
        await client.create(CONFIG_MAPS, config_map(f"c{n}"), namespace)
    path = CONFIG_MAPS.path(namespace)
    body = json.loads((await client.call("GET", path, query=[("limit", "2")])).body)
    assert body["metadata"]["remainingItemCount"] == 3
    assert body["metadata"]["continue"]
    error = await refused(client.call("GET", path, query=[("limit", "2"), ("continue", "garbage")]))
    assert error.code == 400
    error = await refused(client.call("GET", path, query=[("limit", "two")]))
    assert error.code == 400


@run_by(Target.run_scenario, "target")
async def test_label_selectors(client: Client, namespace: str) -> None:
    for name, labels in (
        ("a", {"app": "web", "tier": "front"}),
        ("b", {"app": "web"}),
        ("c", {"app": "db"}),
        ("d", None),
    ):
        await client.create(CONFIG_MAPS, config_map(name, labels=labels), namespace)
    for selector, wanted in (
        ("app=web", "ab"),
        ("app==web,tier=front", "a"),
        ("app!=web", "cd"),
        ("app", "abc"),
        ("!app", "d"),
        ("app in (web,db),!tier", "bc"),
        ("app notin (web)", "cd"),
        ("nothing=here", ""),
    ):
        listing = await client.list(CONFIG_MAPS, namespace, labels=selector, limit=1)
        assert names(listing.items) == list(wanted), selector
    error = await refused(client.list(CONFIG_MAPS, namespace, labels="a in b"))
    assert (error.code, error.reason) == (400, "BadRequest")


@run_by(Target.run_scenario, "target")
async def test_field_selectors(client: Client, namespace: str) -> None:
    for name in ("a", "b"):
        await client.create(PODS, pod(name), namespace)
    bound = pod("c")
    bound["spec"]["nodeName"] = "node-1"
    await client.create(PODS, bound, namespace)
    for selector, wanted in (
        ("metadata.name=a", "a"),
        ("metadata.name!=a", "bc"),
        ("spec.nodeName=node-1", "c"),
        ("spec.nodeName=", "ab"),
        ("status.phase=Pending,spec.nodeName!=node-1", "ab"),
        (f"metadata.namespace={namespace}", "abc"),
    ):
        listing = await client.list(PODS, namespace, fields=selector)
        assert names(listing.items) == list(wanted), selector
    error = await refused(client.list(PODS, namespace, fields="spec.unknown=1"))
    assert error.code == 400
    assert "field label not supported: spec.unknown" in error.message


@run_by(Target.run_scenario, "target")
async def test_resource_versions_of_reads(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    version = made["metadata"]["resourceVersion"]
    for wanted in ("", "0", version):
        found = await client.get(CONFIG_MAPS, "a", namespace, resource_version=wanted)
        assert found["metadata"]["name"] == "a"
        listing = await client.list(CONFIG_MAPS, namespace, resource_version=wanted)
        assert names(listing.items) == ["a"]
        assert int(listing.revision) >= int(version)
    for wanted in ("x", "-1"):
        error = await refused(client.list(CONFIG_MAPS, namespace, resource_version=wanted))
        assert error.code in (400, 422), wanted


@run_by(Target.run_scenario, "target")
async def test_cluster_scoped_kinds(client: Client, namespace: str) -> None:
    name = f"node-of-{namespace}"
    await client.create(NODES, {"metadata": {"name": name}})
    assert (await client.get(NODES, name))["metadata"].get("namespace", "") == ""
    assert name in names((await client.list(NODES)).items)
    assert namespace in names((await client.list(NAMESPACES)).items)
    await client.delete(NODES, name)
    assert (await refused(client.get(NODES, name))).code == 404


@run_by(Target.run_scenario, "target")
async def test_a_missing_namespace_lists_nothing_and_refuses_creation(client: Client, namespace: str) -> None:
    listing = await client.list(CONFIG_MAPS, f"not-{namespace}")
    assert listing.items == []
    error = await refused(client.create(CONFIG_MAPS, config_map("a"), f"not-{namespace}"))
    assert (error.code, error.reason) == (404, "NotFound")
    assert error.message == f'namespaces "not-{namespace}" not found'
