"""Recorded clusters are restored: everything that was running runs, and keeps running."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client.kubeconfig import find_config
from plimsoll.tools.cluster_state import Source
from plimsoll.tools.diff.diff import compare_clusters
from plimsoll.tools.dump import collect_objects, write_file
from plimsoll.up.settings import UpSettings
from plimsoll.up.up import Up
from tests.cases.cases import case_objects, case_path
from tests.directories import short_directory
from tests.dumps import make_cluster_state
from tests.unit.up.manifests.restored import restored_cluster, stored
from tests.waiting import DEADLINE, until

REAL = ["real/gpu-cluster.json.gz", "real/messy-cluster.json.gz"]
Tree = dict[str, Any]
Key = tuple[str, str, str]
#: Fields of a running pod that nothing may change.
POD_STATUS = (
    "phase",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)


def by_key(trees: Iterable[Tree]) -> dict[Key, Tree]:
    return {
        (tree["kind"], tree["metadata"].get("namespace", ""), tree["metadata"]["name"]): tree
        for tree in trees
    }


def facts(tree: Tree) -> Mapping[str, Any]:
    """Return what a restore must keep of an object, whatever components report about it later."""
    metadata, spec, status = tree["metadata"], tree.get("spec") or {}, tree.get("status") or {}
    found = {name: metadata.get(name) for name in ("uid", "ownerReferences", "deletionTimestamp")}
    if tree["kind"] == "Pod":
        found |= {name: status.get(name) for name in POD_STATUS}
        found |= {"node": spec.get("nodeName"), "claims": spec.get("resourceClaims")}
        annotations = metadata.get("annotations") or {}
        found["charges"] = {name: text for name, text in annotations.items() if "charge" in name}
    if tree["kind"] == "ResourceClaim":
        found |= {"allocation": status.get("allocation"), "reserved": status.get("reservedFor")}
    if tree["kind"] == "Node":
        ready = [each["status"] for each in status.get("conditions", ()) if each["type"] == "Ready"]
        found |= {"ready": ready, "unschedulable": spec.get("unschedulable"), "taints": spec.get("taints")}
    return found


def assert_restored(before: list[Tree], after: Mapping[Key, Tree]) -> None:
    recorded = by_key(before)
    assert not recorded.keys() - after.keys()
    changed = {
        key: (facts(tree), facts(after[key]))
        for key, tree in recorded.items()
        if facts(tree) != facts(after[key])
    }
    assert not changed
    new = {key for key in after.keys() - recorded.keys() if key[0] in ("Pod", "Job", "ReplicaSet", "Node")}
    assert not new
    kinds = {kind for kind, _, _ in recorded}
    state = make_cluster_state([tree for key, tree in after.items() if key[0] in kinds])
    assert not compare_clusters(make_cluster_state(before), state)


@pytest.mark.parametrize("name", [pytest.param(REAL[0], marks=pytest.mark.slow), REAL[1]])
async def test_controllers_leave_a_restored_cluster_as_it_was(name: str) -> None:
    """Ten minutes pass without evictions, garbage collection, replacements or released claims."""
    before = case_objects(name)
    quotas = {
        key: tree["status"]["used"] for key, tree in by_key(before).items() if key[0] == "ResourceQuota"
    }
    async with restored_cluster(before) as (cluster, result):
        assert (result.problems, result.left_out) == ([], {})
        assert_restored(before, stored(cluster.store))
        await cluster.advance(600)
        after = stored(cluster.store)
    assert_restored(before, after)
    assert {key: after[key]["status"]["used"] for key in quotas} == quotas


@pytest.fixture
def place() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory


def settings(directory: Path, *files: Path) -> UpSettings:
    return UpSettings(data=directory, port=0, files=tuple(map(str, files)), driver=False)


async def run_up(settings: UpSettings, look: Any) -> Up:
    up = Up(settings)

    async def ready(running: Up) -> None:
        try:
            await look(running)
        finally:
            running.stop()

    async with asyncio.timeout(DEADLINE):
        await up.run(ready)
    return up


def read_all(up: Up) -> dict[Key, Tree]:
    assert up.server is not None
    return stored(up.server.store)


@pytest.mark.parametrize("name", REAL)
async def test_up_restores_what_was_running(name: str, place: Path) -> None:
    """Nodes run, the scheduler has tried every pod, and `plimsoll diff` finds nothing."""
    before = case_objects(name)

    async def look(up: Up) -> None:
        assert up.scheduler is not None
        queue = up.scheduler.context.queue
        await until(lambda: queue.lengths()["active"] == 0, context="all pods have been tried")
        after = await until(lambda: read_all(up), all_started)
        assert_restored(before, after)

    up = await run_up(settings(place, case_path(name)), look)
    assert (up.loaded.new, up.problems, up.runs_node) == (len(before), [], False)


def all_started(found: Mapping[Key, Tree]) -> bool:
    """Return whether the agents have reported the containers of all running pods that are not kept."""
    kept = {
        tree["metadata"]["name"]
        for tree in found.values()
        if "plimsoll.dev/kept" in (tree["metadata"].get("annotations") or {})
    }
    return all(
        tree["status"].get("containerStatuses")
        for (kind, _, name), tree in found.items()
        if kind == "Pod" and tree["status"]["phase"] == "Running"
        if name not in kept and tree["spec"]["nodeName"] not in kept
    )


async def test_a_quota_counts_restored_pods_once(place: Path) -> None:
    async def look(up: Up) -> None:
        quota = ("ResourceQuota", "shop", "q")
        found = await until(lambda: read_all(up), lambda found: found[quota]["status"].get("used"))
        assert {("Pod", "shop", "a"), ("Pod", "shop", "b")} <= found.keys()
        assert found[quota]["status"]["used"] == {"pods": "2"}

    up = await run_up(settings(place, case_path("small/quota-dump.yaml")), look)
    assert up.problems == []


async def test_a_job_keeps_its_running_pod_and_claim(place: Path) -> None:
    """Up, dump, and up again from the dump; also in a cluster whose nodes run by themselves."""
    dump = place / "dump.json.gz"

    def is_running(found: Mapping[Key, Tree]) -> Any:
        running = [tree for (kind, _, _), tree in found.items() if kind == "Pod"]
        return len(running) == 1 and running[0]["status"]["phase"] == "Running" and running

    async def record(up: Up) -> None:
        await until(lambda: read_all(up), lambda found: is_running(found) and is_counted(found))
        source = Source(config=find_config(up.settings.kubeconfig, environ={}))
        trees, gaps = await asyncio.to_thread(collect_objects, source)
        assert gaps == []
        write_file(trees, dump, "json")

    def is_counted(found: Mapping[Key, Tree]) -> bool:
        return bool(found["Job", "default", "train"]["status"].get("ready") == 1)

    first = settings(place / "1", case_path("small/job-with-claim.yaml"))
    await run_up(replace(first, name="here", runtime="none", nodes=2, devices=("gpus",)), record)
    before = read_dump(dump)

    async def look(up: Up) -> None:
        assert up.scheduler is not None
        after = await until(lambda: read_all(up), lambda found: is_counted(found) and all_started(found))
        for key, tree in by_key(before).items():
            if key[0] in ("Pod", "Job", "ResourceClaim"):
                assert facts(after[key]) == facts(tree)
        (pod,) = is_running(after)
        (status,) = pod["status"]["containerStatuses"]
        assert (status["restartCount"], pod["spec"]["nodeName"]) == (0, "sim-1")
        assert after["Job", "default", "train"]["status"]["active"] == 1

    copy = settings(place / "2", dump)
    assert (await run_up(copy, look)).problems == []
    await run_up(replace(copy, files=()), look)  # it is the same after a restart
    await run_up(replace(settings(place / "3", dump), nodes=2, runtime="none"), look)


def read_dump(path: Path) -> list[Tree]:
    items: list[Tree] = json.loads(gzip.decompress(path.read_bytes()))["items"]
    return items
