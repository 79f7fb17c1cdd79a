"""Deletion: preconditions, finalizers, grace periods, propagation."""

from __future__ import annotations

from plimsoll.client import Client
from plimsoll.client.endpoints import CONFIG_MAPS, NODES, PODS
from tests.cluster.calls import names, refused
from tests.cluster.target import Target
from tests.coroutines import run_by
from tests.manifests import config_map, pod


@run_by(Target.run_scenario, "target")
async def test_deleted_objects_are_not_found(client: Client, namespace: str) -> None:
    made = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    answer = await client.delete(CONFIG_MAPS, "a", namespace)
    assert answer["kind"] == "Status"
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await refused(client.get(CONFIG_MAPS, "a", namespace))).code == 404
    assert (await refused(client.delete(CONFIG_MAPS, "a", namespace))).code == 404
    again = await client.create(CONFIG_MAPS, config_map("a"), namespace)
    assert again["metadata"]["uid"] != made["metadata"]["uid"]


@run_by(Target.run_scenario, "target")
async def test_preconditions(client: Client, namespace: str) -> None:
    first = (await client.create(CONFIG_MAPS, config_map("a"), namespace))["metadata"]
    error = await refused(client.delete(CONFIG_MAPS, "a", namespace, uid="another"))
    assert (error.code, error.reason) == (409, "Conflict")
    later = (await client.patch(CONFIG_MAPS, "a", {"data": {"x": "1"}}, namespace))["metadata"]
    error = await refused(client.delete(CONFIG_MAPS, "a", namespace, revision=first["resourceVersion"]))
    assert (error.code, error.reason) == (409, "Conflict")
    await client.delete(CONFIG_MAPS, "a", namespace, uid=first["uid"], revision=later["resourceVersion"])
    assert (await refused(client.get(CONFIG_MAPS, "a", namespace))).code == 404


@run_by(Target.run_scenario, "target")
async def test_finalizers_keep_an_object_until_they_are_gone(client: Client, namespace: str) -> None:
    tree = config_map("a", x="1")
    tree["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
    await client.create(CONFIG_MAPS, tree, namespace)
    marked = await client.delete(CONFIG_MAPS, "a", namespace)
    assert marked["kind"] == "ConfigMap"
    stamp = marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await client.delete(CONFIG_MAPS, "a", namespace)
    assert again["metadata"]["deletionTimestamp"] == stamp
    grown = {"metadata": {"finalizers": ["example.com/one", "example.com/two", "example.com/three"]}}
    error = await refused(client.patch(CONFIG_MAPS, "a", grown, namespace))
    assert (error.code, error.reason) == (422, "Invalid")
    one = {"metadata": {"finalizers": ["example.com/two"]}}
    await client.patch(CONFIG_MAPS, "a", one, namespace)
    kept = await client.patch(CONFIG_MAPS, "a", {"data": {"x": "2"}}, namespace)
    assert kept["metadata"]["deletionTimestamp"] == stamp
    await client.patch(CONFIG_MAPS, "a", {"metadata": {"finalizers": None}}, namespace)
    assert (await refused(client.get(CONFIG_MAPS, "a", namespace))).code == 404


@run_by(Target.run_scenario, "target")
async def test_deletion_timestamps_cannot_be_written(client: Client, namespace: str) -> None:
    tree = config_map("a")
    tree["metadata"]["deletionTimestamp"] = "2020-01-01T00:00:00Z"
    made = await client.create(CONFIG_MAPS, tree, namespace)
    assert "deletionTimestamp" not in made["metadata"]
    patch = {"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}}
    error = await refused(client.patch(CONFIG_MAPS, "a", patch, namespace))
    assert (error.code, error.reason) == (422, "Invalid")


@run_by(Target.run_scenario, "target")
async def test_pods_end_gracefully_on_their_node(client: Client, namespace: str) -> None:
    await client.create(PODS, pod("unbound"), namespace)
    await client.delete(PODS, "unbound", namespace)
    assert (await refused(client.get(PODS, "unbound", namespace))).code == 404

    node = f"node-{namespace}"
    await client.create(NODES, {"metadata": {"name": node}})
    bound = pod("bound")
    bound["spec"]["nodeName"] = node
    await client.create(PODS, bound, namespace)
    marked = await client.delete(PODS, "bound", namespace)
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    sooner = await client.delete(PODS, "bound", namespace, grace=5)
    assert sooner["metadata"]["deletionGracePeriodSeconds"] == 5
    later = await client.delete(PODS, "bound", namespace, grace=20)
    assert later["metadata"]["deletionGracePeriodSeconds"] == 5
    await client.delete(PODS, "bound", namespace, grace=0)
    assert (await refused(client.get(PODS, "bound", namespace))).code == 404
    await client.delete(NODES, node)


@run_by(Target.run_scenario, "target")
async def test_propagation_is_kept_as_a_finalizer(client: Client, namespace: str) -> None:
    """Foreground deletion and orphaning are left to the garbage collector."""
    for policy, finalizer in (("Foreground", "foregroundDeletion"), ("Orphan", "orphan")):
        name = policy.lower()
        tree = config_map(name)
        tree["metadata"]["finalizers"] = ["example.com/hold"]
        await client.create(CONFIG_MAPS, tree, namespace)
        marked = await client.delete(CONFIG_MAPS, name, namespace, propagation=policy)  # type: ignore[arg-type]
        assert finalizer in marked["metadata"]["finalizers"]
        assert marked["metadata"]["deletionTimestamp"]
    error = await refused(
        client.delete(CONFIG_MAPS, "orphan", namespace, propagation="Sideways")  # type: ignore[arg-type]
    )
    assert error.code == 422


@run_by(Target.run_scenario, "target")
async def test_a_collection_is_deleted_by_selector(client: Client, namespace: str) -> None:
    for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {"x": "2"})):
        await client.create(CONFIG_MAPS, config_map(name, labels=labels), namespace)
    held = config_map("d", labels={"x": "1"})
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await client.create(CONFIG_MAPS, held, namespace)
    await client.delete_collection(CONFIG_MAPS, namespace, labels="x=1", dry_run=True)
    assert names((await client.list(CONFIG_MAPS, namespace)).items) == ["a", "b", "c", "d"]
    answer = await client.delete_collection(CONFIG_MAPS, namespace, labels="x=1")
    assert answer["kind"] in ("Status", "ConfigMapList")
    assert names((await client.list(CONFIG_MAPS, namespace)).items) == ["c", "d"]
    assert (await client.get(CONFIG_MAPS, "d", namespace))["metadata"]["deletionTimestamp"]
    await client.delete_collection(CONFIG_MAPS, namespace)
    assert names((await client.list(CONFIG_MAPS, namespace)).items) == ["d"]
