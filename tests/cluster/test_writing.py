"""Writes: create, update, patch, errors and dry runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS, NODES, PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError, InputError
from tests.cluster.calls import names, refused
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.manifests import DRIVER, claim, config_map, pod


@run_by(Target.run_scenario, "target")
async def test_names_are_unique(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    error = await refused(client.create(CONFIG_MAPS, config_map("a"), namespace))
    assert (error.code, error.reason) == (409, "AlreadyExists")
    assert error.message == 'configmaps "a" already exists'


@run_by(Target.run_scenario, "target")
async def test_generate_name(client: Client, namespace: str) -> None:
    tree = {"metadata": {"generateName": "job-"}}
    made = [await client.create(CONFIG_MAPS, tree, namespace) for _ in range(3)]
    found = {each["metadata"]["name"] for each in made}
    assert len(found) == 3
    assert all(name.startswith("job-") and len(name) == len("job-") + 5 for name in found)
    assert made[0]["metadata"]["generateName"] == "job-"
    error = await refused(client.create(CONFIG_MAPS, {"metadata": {}}, namespace))
    assert (error.code, error.reason) == (422, "Invalid")


@run_by(Target.run_scenario, "target")
async def test_a_dry_run_changes_nothing(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a", x="1"), namespace, dry_run=True)
    assert made["metadata"]["uid"]
    assert (await refused(client.get(CONFIG_MAPS, "a", namespace))).code == 404
    real = await client.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    tried = await client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, namespace, dry_run=True)
    assert tried["data"] == {"x": "2"}
    await client.update(CONFIG_MAPS, {**real, "data": {"x": "3"}}, namespace, dry_run=True)
    await client.delete(CONFIG_MAPS, "a", namespace, dry_run=True)
    assert await client.get(CONFIG_MAPS, "a", namespace) == real
    error = await refused(client.create(CONFIG_MAPS, config_map("a"), namespace, dry_run=True))
    assert error.reason == "AlreadyExists"


@run_by(Target.run_scenario, "target")
async def test_a_stale_update_is_a_conflict(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    second = await client.update(CONFIG_MAPS, {**first, "data": {"x": "2"}}, namespace)
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    error = await refused(client.update(CONFIG_MAPS, {**first, "data": {"x": "3"}}, namespace))
    assert (error.code, error.reason) == (409, "Conflict")
    assert (await client.get(CONFIG_MAPS, "a", namespace))["data"] == {"x": "2"}
    patch = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"x": "4"}}
    assert (await refused(client.patch(CONFIG_MAPS, "a", patch, namespace))).code == 409


@run_by(Target.run_scenario, "target")
async def test_an_update_that_changes_nothing_makes_no_new_version(client: Client, namespace: str) -> None:
    first = await client.create(CONFIG_MAPS, config_map("a", x="1"), namespace)
    again = await client.update(CONFIG_MAPS, first, namespace)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    patched = await client.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace)
    assert patched["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@run_by(Target.run_scenario, "target")
async def test_an_update_needs_a_name_that_fits(client: Client, namespace: str) -> None:
    with pytest.raises(InputError, match=r"metadata\.name"):
        await client.update(CONFIG_MAPS, {"metadata": {}}, namespace)
    error = await refused(client.update(CONFIG_MAPS, config_map("nope"), namespace))
    assert error.code == 404
    await client.create(CONFIG_MAPS, config_map("a"), namespace)
    path = CONFIG_MAPS.path(namespace, "a")
    error = await refused(client.call("PUT", path, tree=config_map("b")))
    assert (error.code, error.reason) == (400, "BadRequest")


@run_by(Target.run_scenario, "target")
async def test_uids_and_names_cannot_be_changed(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    other = {**made, "metadata": {**made["metadata"], "uid": "another"}}
    error = await refused(client.update(CONFIG_MAPS, other, namespace))
    assert (error.code, error.reason) == (409, "Conflict")
    error = await refused(client.patch(CONFIG_MAPS, "a", {"metadata": {"name": "b"}}, namespace))
    assert error.code in (400, 422)


@run_by(Target.run_scenario, "target")
async def test_merge_and_json_patches(client: Client, namespace: str) -> None:
    await client.create(CONFIG_MAPS, config_map("a", x="1", y="2"), namespace)
    merged = await client.patch(CONFIG_MAPS, "a", {"data": {"x": None, "z": "3"}}, namespace)
    assert merged["data"] == {"y": "2", "z": "3"}
    steps: list[dict[str, Any]] = [
        {"op": "test", "path": "/data/y", "value": "2"},
        {"op": "replace", "path": "/data/y", "value": "4"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    patched = await client.patch(CONFIG_MAPS, "a", steps, namespace, type="json")
    assert patched["data"] == {"y": "4", "z": "3"}
    assert patched["metadata"]["labels"] == {"a": "b"}
    error = await refused(client.patch(CONFIG_MAPS, "a", steps, namespace, type="json"))
    assert error.code == 422
    error = await refused(client.patch(CONFIG_MAPS, "a", [{"op": "nope"}], namespace, type="json"))
    assert error.code in (400, 422)
    error = await refused(client.patch(CONFIG_MAPS, "nope", {}, namespace))
    assert error.code == 404


@run_by(Target.run_scenario, "target")
async def test_strategic_patches_merge_lists_by_key(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("p"), namespace)
    patch = {"spec": {"containers": [{"name": "main", "image": "example.org/main:2"}]}}
    patched = await client.patch(PODS, "p", patch, namespace, type="strategic")
    assert [c["image"] for c in patched["spec"]["containers"]] == ["example.org/main:2"]
    tolerations = {"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}
    patched = await client.patch(PODS, "p", tolerations, namespace, type="strategic")
    assert {"key": "k", "operator": "Exists"} in patched["spec"]["tolerations"]
    conditions = [{"type": "A", "status": "True"}, {"type": "B", "status": "False"}]
    for condition in conditions:
        await client.patch(
            PODS,
            "p",
            {"status": {"conditions": [condition]}},
            namespace,
            type="strategic",
            subresource="status",
        )
    found = await client.get(PODS, "p", namespace)
    assert {c["type"] for c in found["status"]["conditions"]} >= {"A", "B"}


@run_by(Target.run_scenario, "target")
async def test_server_side_apply(client: Client, namespace: str) -> None:
    mine = config_map("a", x="1", y="1")
    made = await client.patch(
        CONFIG_MAPS, "a", mine, namespace, type="apply", field_manager="first", force=False
    )
    assert made["data"] == {"x": "1", "y": "1"}
    other = config_map("a", y="2", z="2")
    error = await refused(
        client.patch(CONFIG_MAPS, "a", other, namespace, type="apply", field_manager="second")
    )
    assert (error.code, error.reason) == (409, "Conflict")
    assert [cause["field"] for cause in error.details["causes"]] == [".data.y"]
    forced = await client.patch(
        CONFIG_MAPS, "a", other, namespace, type="apply", field_manager="second", force=True
    )
    assert forced["data"] == {"x": "1", "y": "2", "z": "2"}
    fewer = await client.patch(
        CONFIG_MAPS, "a", config_map("a"), namespace, type="apply", field_manager="first"
    )
    assert fewer["data"] == {"y": "2", "z": "2"}
    managers = {entry["manager"]: entry["operation"] for entry in fewer["metadata"]["managedFields"]}
    assert managers["second"] == "Apply"


@run_by(Target.run_scenario, "target")
async def test_spec_and_status_are_written_separately(client: Client, namespace: str) -> None:
    """Writes to the object leave its status alone, writes to the status leave the rest alone."""
    made = await client.create(RESOURCE_CLAIMS, claim("c"), namespace)
    assert made.get("status", {}) == {}
    status = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}
    changed = {**made, "status": status}
    kept = await client.update(RESOURCE_CLAIMS, changed, namespace)
    assert kept.get("status", {}) == {}
    results = [{"request": "gpu", "driver": DRIVER, "pool": "pool", "device": "d"}]
    full = {**status, "allocation": {"devices": {"results": results}}}
    changed = {**kept, "status": full, "metadata": {**kept["metadata"], "labels": {"a": "b"}}}
    done = await client.update(RESOURCE_CLAIMS, changed, namespace, subresource="status")
    assert done["status"]["reservedFor"] == status["reservedFor"]
    assert "labels" not in done["metadata"]
    again = await client.patch(RESOURCE_CLAIMS, "c", {"metadata": {"labels": {"a": "b"}}}, namespace)
    assert again["status"] == done["status"]
    assert again["metadata"]["labels"] == {"a": "b"}


@run_by(Target.run_scenario, "target")
async def test_invalid_objects_are_refused_with_their_fields(client: Client, namespace: str) -> None:
    bad = claim("c")
    bad["spec"]["devices"]["requests"][0]["name"] = "Not a name"
    error = await refused(client.create(RESOURCE_CLAIMS, bad, namespace))
    assert (error.code, error.reason) == (422, "Invalid")
    assert [cause["field"] for cause in error.details["causes"]] == ["spec.devices.requests[0].name"]
    error = await refused(client.create(CONFIG_MAPS, config_map("Not_a_name"), namespace))
    assert [cause["field"] for cause in error.details["causes"]] == ["metadata.name"]
    error = await refused(client.call("POST", CONFIG_MAPS.path(namespace), body=b"{nope"))
    assert error.code == 400
    error = await refused(client.create(CONFIG_MAPS, pod("p"), namespace))
    assert error.code == 400
    elsewhere = config_map("a")
    elsewhere["metadata"]["namespace"] = "elsewhere"
    error = await refused(client.call("POST", CONFIG_MAPS.path(namespace), tree=elsewhere))
    assert error.code == 400


@run_by(Target.run_scenario, "target")
async def test_unknown_fields_are_refused_on_request(client: Client, namespace: str) -> None:
    odd = {**claim("c"), "odd": 1}
    error = await refused(client.create(RESOURCE_CLAIMS, odd, namespace, field_validation="Strict"))
    assert error.code == 400
    assert 'unknown field "odd"' in error.message
    await client.create(RESOURCE_CLAIMS, odd, namespace, field_validation="Ignore")


@run_by(Target.run_scenario, "target")
async def test_binding_puts_a_pod_on_its_node(client: Client, namespace: str) -> None:
    node = f"node-{namespace}"
    await client.create(NODES, {"metadata": {"name": node}})
    await client.create(PODS, pod("p"), namespace)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    answer = await client.post(PODS, "p", "binding", binding, namespace)
    assert answer["status"] == "Success"
    bound = await client.get(PODS, "p", namespace)
    assert bound["spec"]["nodeName"] == node
    assert {"type": "PodScheduled", "status": "True"} in [
        {"type": c["type"], "status": c["status"]} for c in bound["status"]["conditions"]
    ]
    error = await refused(client.post(PODS, "p", "binding", binding, namespace))
    assert (error.code, error.reason) == (409, "Conflict")
    await client.delete(NODES, node)


@run_by(Target.run_scenario, "target")
async def test_many_writes_at_once(client: Client, namespace: str) -> None:
    """Every increment counts: conflicts are seen, never lost."""
    await client.create(CONFIG_MAPS, config_map("n", value="0"), namespace)

    async def increment() -> None:
        while True:
            tree = await client.get(CONFIG_MAPS, "n", namespace)
            tree["data"]["value"] = str(int(tree["data"]["value"]) + 1)
            try:
                await client.update(CONFIG_MAPS, tree, namespace)
                return
            except ApiError as error:
                if error.code != 409:
                    raise

    await asyncio.gather(*(increment() for _ in range(8)))
    assert json.loads(await client.get_raw(CONFIG_MAPS, "n", namespace))["data"]["value"] == "8"
    await asyncio.gather(*(client.create(CONFIG_MAPS, config_map(f"m{n}"), namespace) for n in range(30)))
    assert len(names((await client.list(CONFIG_MAPS, namespace)).items)) == 31
