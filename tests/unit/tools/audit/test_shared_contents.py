"""Audit of objects that share equal parts: the same findings as for objects that share nothing."""

from __future__ import annotations

import copy
import random
from typing import Any

from plimsoll.api import codec
from plimsoll.tools.audit import audit
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from tests.dumps import big_cluster, make_cluster_state


def _damage(trees: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Make some claims, slices and pods inconsistent."""
    trees = copy.deepcopy(trees)
    for tree in trees:
        if chance.random() > 0.2:
            continue
        allocation = tree.get("status", {}).get("allocation")
        if tree["kind"] == "ResourceClaim" and allocation:
            results = allocation["devices"]["results"]
            damage = chance.randrange(4)
            if damage == 0:
                results.append({**results[0], "device": "gpu-7"})
            elif damage == 1:
                results[0]["pool"] = "node-0001"
            elif damage == 2:
                results[0]["device"] = "gone"
            else:
                results[0]["consumedCapacity"] = {"cpu.example.com/cpu": chance.choice(["1", "1000m", "80"])}
        elif tree["kind"] == "ResourceSlice":
            device = chance.choice(tree["spec"]["devices"])
            device.setdefault("attributes", {})["numa"] = {"int": chance.randrange(2)}
            device["nodeAllocatableResourceMappings"] = {"cpu": {"capacityKey": "missing"}}
        elif tree["kind"] == "Pod":
            tree.get("status", {}).pop("nodeAllocatableResourceClaimStatuses", None)
    return trees


def _unshared(state: ClusterState) -> ClusterState:
    """Return the same objects, each decoded by itself."""
    objects = ClusterObjects(codec.decode(codec.encode(each), type(each)) for each in state.objects)
    objects.ignored_fields = dict(state.objects.ignored_fields)
    return ClusterState(objects, state.gates, state.profile, origin=state.origin)


def test_findings_do_not_depend_on_sharing() -> None:
    chance = random.Random(7)
    whole = big_cluster(6, pods_per_node=6, pending=3)
    seen: set[str] = set()
    for _ in range(6):
        state = make_cluster_state(_damage(whole, chance))
        shared = audit(state, now=0.0, live=True)
        alone = audit(_unshared(state), now=0.0, live=True)
        assert shared.findings == alone.findings
        seen |= {finding.id for finding in shared.findings}
    assert len(seen) >= 6
