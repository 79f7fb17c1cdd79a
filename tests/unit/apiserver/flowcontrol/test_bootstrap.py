"""Bootstrap objects of priority and fairness are created and maintained as by kube-apiserver."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.flowcontrol.bootstrap import ensure_bootstrap_objects
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
MERGE = "application/merge-patch+json"
Tree = dict[str, Any]


async def get(harness: ApiHarness, path: str) -> Tree:
    code, tree = await harness.request("GET", path)
    assert code == 200, tree
    return dict(tree)


async def patch(harness: ApiHarness, path: str, change: Tree) -> int:
    return (await harness.request("PATCH", path, change, content_type=MERGE))[0]


@run_by(run)
async def test_a_second_run_changes_nothing(harness: ApiHarness) -> None:
    await ensure_bootstrap_objects(harness.client)
    before = harness.store.revision
    await ensure_bootstrap_objects(harness.client)
    assert harness.store.revision == before
    assert len((await get(harness, SCHEMAS))["items"]) == 11
    assert len((await get(harness, LEVELS))["items"]) == 8


@run_by(run)
async def test_deleted_objects_are_created_again(harness: ApiHarness) -> None:
    await ensure_bootstrap_objects(harness.client)
    for path in (f"{SCHEMAS}/exempt", f"{LEVELS}/workload-low"):
        assert (await harness.request("DELETE", path))[0] == 200
    await ensure_bootstrap_objects(harness.client)
    assert (await get(harness, f"{SCHEMAS}/exempt"))["spec"]["matchingPrecedence"] == 1
    assert (await get(harness, f"{LEVELS}/workload-low"))["spec"]["limited"]["lendablePercent"] == 90


@run_by(run)
async def test_a_changed_suggested_spec_is_restored_unless_its_annotation_forbids_it(
    harness: ApiHarness,
) -> None:
    await ensure_bootstrap_objects(harness.client)
    path = f"{LEVELS}/global-default"
    change: Tree = {"spec": {"limited": {"nominalConcurrencyShares": 77}}}
    assert await patch(harness, path, change) == 200
    await ensure_bootstrap_objects(harness.client)
    assert (await get(harness, path))["spec"]["limited"]["nominalConcurrencyShares"] == 20
    change["metadata"] = {"annotations": {AUTO_UPDATE: "false"}}
    assert await patch(harness, path, change) == 200
    await ensure_bootstrap_objects(harness.client)
    assert (await get(harness, path))["spec"]["limited"]["nominalConcurrencyShares"] == 77


@run_by(run)
async def test_an_object_of_the_same_name_that_was_changed_is_left_alone(harness: ApiHarness) -> None:
    await ensure_bootstrap_objects(harness.client)
    path = f"{LEVELS}/system"
    change: Tree = {
        "metadata": {"annotations": {AUTO_UPDATE: None}},
        "spec": {"limited": {"nominalConcurrencyShares": 1}},
    }
    assert await patch(harness, path, change) == 200
    await ensure_bootstrap_objects(harness.client)
    tree = await get(harness, path)
    assert tree["spec"]["limited"]["nominalConcurrencyShares"] == 1
    assert tree["metadata"]["annotations"][AUTO_UPDATE] == "false"


@run_by(run)
async def test_the_mandatory_objects_cannot_be_changed_but_for_the_settings_of_exempt(
    harness: ApiHarness,
) -> None:
    await ensure_bootstrap_objects(harness.client)
    limited = {"spec": {"limited": {"nominalConcurrencyShares": 9}}}
    assert await patch(harness, f"{LEVELS}/catch-all", limited) == 422
    assert await patch(harness, f"{SCHEMAS}/exempt", {"spec": {"matchingPrecedence": 2}}) == 422
    exempt = {"spec": {"exempt": {"nominalConcurrencyShares": 9}}}
    assert await patch(harness, f"{LEVELS}/exempt", exempt) == 200
    await ensure_bootstrap_objects(harness.client)
    tree = await get(harness, f"{LEVELS}/exempt")
    assert tree["spec"]["exempt"] == {"nominalConcurrencyShares": 9, "lendablePercent": 0}


@run_by(run)
async def test_objects_that_a_server_of_another_version_made_are_removed(harness: ApiHarness) -> None:
    await ensure_bootstrap_objects(harness.client)
    spec = (await get(harness, f"{SCHEMAS}/probes"))["spec"]
    for name, value in (("old", "true"), ("own", "false"), ("other", "x"), ("plain", None)):
        metadata = {"name": name, "annotations": {AUTO_UPDATE: value} if value else {}}
        code, body = await harness.request("POST", SCHEMAS, {"metadata": metadata, "spec": spec})
        assert code == 201, body
    await ensure_bootstrap_objects(harness.client)
    names = {item["metadata"]["name"] for item in (await get(harness, SCHEMAS))["items"]}
    assert "old" not in names
    assert {"own", "other", "plain"} <= names
