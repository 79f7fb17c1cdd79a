"""Controllers that crash anywhere and restart reach the same state as without crashes."""

from __future__ import annotations

import asyncio
import re
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from tests.sizes import examples
from tests.unit.controllers.cluster import KINDS, Cluster, Crash, running_cluster
from tests.unit.controllers.new_objects import claim, pod, published, template

GENERATED = {"a": {"resourceClaimTemplateName": "t"}, "b": {"resourceClaimTemplateName": "t"}}
MINE = {"a": {"resourceClaimTemplateName": "t"}, "s": {"resourceClaimName": "shared"}}


async def prepare(cluster: Cluster) -> None:
    """Create objects for every controller."""
    client = cluster.client
    await client.create(NODES, {"metadata": {"name": "w"}})
    await client.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}}, "n")
    await client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await client.create(RESOURCE_CLAIMS, claim("shared"), "n")
    await client.create(RESOURCE_SLICES, published())
    root = await client.create(CONFIG_MAPS, {"metadata": {"name": "root"}}, "n")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
    for name in ("one", "two"):
        tree = {"metadata": {"name": name, "ownerReferences": [{**owner, "blockOwnerDeletion": True}]}}
        await client.create(CONFIG_MAPS, tree, "n")


#: What others do, step by step; the controllers come to rest after each, crashing on the way.
async def make_pods(cluster: Cluster) -> None:
    await cluster.client.create(PODS, pod("first", GENERATED, automountServiceAccountToken=False), "n")
    await cluster.client.create(PODS, pod("second", MINE, automountServiceAccountToken=False), "n")


async def place_pods(cluster: Cluster) -> None:
    for name in ("first", "second"):
        tree = await cluster.client.get(PODS, name, "n")
        for status in tree["status"]["resourceClaimStatuses"]:
            await cluster.allocate(status["resourceClaimName"], name, device=f"{name}-{status['name']}")
        await cluster.bind(name)
    await cluster.allocate("shared", "first", "second")


async def end_pods(cluster: Cluster) -> None:
    await cluster.finish("first")
    await cluster.client.delete(PODS, "second", "n", grace=0)


async def remove_pods(cluster: Cluster) -> None:
    for name in ("first", "second"):
        await cluster.client.delete(PODS, name, "n", grace=0)


async def taint_device(cluster: Cluster) -> None:
    tree = await cluster.client.get(RESOURCE_SLICES, "s")
    tree["spec"]["devices"][0]["taints"] = [{"key": "k", "effect": "NoExecute"}]
    await cluster.client.update(RESOURCE_SLICES, tree)


async def delete_tree(cluster: Cluster) -> None:
    await cluster.client.delete(CONFIG_MAPS, "root", "n", propagation="Foreground")


async def delete_namespace(cluster: Cluster) -> None:
    await cluster.client.delete(NAMESPACES, "n")


async def lose_node(cluster: Cluster) -> None:
    await cluster.client.delete(NODES, "w")


STORIES: dict[str, list[Any]] = {
    "pods end": [make_pods, place_pods, delete_tree, end_pods],
    "devices fail": [make_pods, place_pods, taint_device],
    "the namespace goes": [make_pods, place_pods, delete_namespace, remove_pods],
    "the node is lost": [make_pods, place_pods, lose_node],
}


async def run_steps(cluster: Cluster, scenario: str, dice: Random | None) -> dict[str, Any]:
    """Run a scenario, with random crashes if dice are given; return the final objects."""
    await prepare(cluster)
    for act in STORIES[scenario]:
        await act(cluster)
        await rest(cluster, dice)
    return await objects(cluster)


async def rest(cluster: Cluster, dice: Random | None) -> None:
    """Let some minutes pass, with crashes at every few writes in the beginning."""
    crashes = dice.randint(1, 4) if dice else 0
    until = cluster.clock.now() + 500
    while True:
        if crashes and dice:
            cluster.transport.fatal = (cluster.transport.writes + dice.randint(1, 6), dice.random() < 0.5)
        try:
            await cluster.settle(dice, max_wait=0)
            if cluster.clock.now() >= until:
                break
            await cluster.advance(until - cluster.clock.now())
        except Crash:
            crashes -= 1
            await cluster.restart()
        finally:
            cluster.transport.fatal = None


async def objects(cluster: Cluster) -> dict[str, Any]:
    """Return all objects but events, without values that differ between runs."""
    trees = [tree for endpoint in KINDS for tree in await cluster.trees(endpoint, None)]
    return {
        f"{tree['kind']} {tree['metadata'].get('namespace', '')}/{_plain(tree['metadata']['name'])}": _plain(
            tree
        )
        for tree in trees
    }


_VOLATILE = (
    "uid",
    "resourceVersion",
    "managedFields",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
)
_VOLATILE_TIMES = ("lastTransitionTime", "timeAdded", "observedGeneration")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _plain(item)
            for name, item in value.items()
            if name not in _VOLATILE and name not in _VOLATILE_TIMES
        }
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return re.sub(r"^((?:first|second)-[ab]-)[a-z0-9]{5}$", r"\1*", value)
    return value


def outcome(scenario: str, dice: Random | None) -> dict[str, Any]:
    async def run() -> dict[str, Any]:
        async with running_cluster() as cluster:
            return await run_steps(cluster, scenario, dice)

    return asyncio.run(run())


@cache
def _calm(scenario: str) -> dict[str, Any]:
    """Return the outcome without crashes."""
    return outcome(scenario, None)


def _compare(scenario: str, seed: int) -> None:
    assert outcome(scenario, Random(seed)) == _calm(scenario)


def test_crashes_leave_no_trace() -> None:
    """One run of each scenario; the long form tries many."""
    for seed, scenario in enumerate(sorted(STORIES)):
        _compare(scenario, seed)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(STORIES)), st.integers(0, 2**32))
def test_many_crashes_leave_no_trace(scenario: str, seed: int) -> None:
    _compare(scenario, seed)


def test_scenarios_end_as_expected() -> None:
    ends = {scenario: _calm(scenario) for scenario in STORIES}
    pods = {
        scenario: sorted(name for name in found if name.startswith("Pod "))
        for scenario, found in ends.items()
    }
    assert pods == {
        "pods end": ["Pod n/first"],
        "devices fail": ["Pod n/first", "Pod n/second"],
        "the namespace goes": [],
        "the node is lost": [],
    }
    claims = {
        scenario: sorted(n for n in found if n.startswith("ResourceClaim "))
        for scenario, found in ends.items()
    }
    assert claims["pods end"] == ["ResourceClaim n/shared"]
    assert ends["pods end"]["ResourceClaim n/shared"].get("status", {}) == {}
    assert "ConfigMap n/root" not in ends["pods end"]
    assert "Namespace /n" not in ends["the namespace goes"]
    assert claims["the node is lost"] == ["ResourceClaim n/shared"]
