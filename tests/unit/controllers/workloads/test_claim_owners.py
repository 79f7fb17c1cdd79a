"""Controllers of the volume claims of a StatefulSet, by its retention policy."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectMeta
from plimsoll.client.endpoints import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, STATEFUL_SETS
from plimsoll.controllers.stateful_set.identity import plan_claim_owners
from plimsoll.controllers.workload_views import StatefulSetView
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.workloads.stateful_sets import CLAIM, ONLY, roll, stateful_set

Tree = dict[str, Any]

SET: Tree = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "w", "uid": "set"}
POD: Tree = {"apiVersion": "v1", "kind": "Pod", "name": "w-0", "uid": "pod"}
CONTROLS = {"controller": True, "blockOwnerDeletion": True}
OTHER: Tree = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "other"}
REMOVE_SET, REMOVE_POD = {"$patch": "delete", "uid": "set"}, {"$patch": "delete", "uid": "pod"}


def plan(
    references: list[Tree], deleted: str = "Delete", scaled: str = "Retain", *, condemned: bool = False
) -> list[Tree] | None:
    policy = {"whenDeleted": deleted, "whenScaled": scaled}
    owner = convert(
        {"metadata": {"name": "w", "uid": "set"}, "spec": {"persistentVolumeClaimRetentionPolicy": policy}},
        StatefulSetView,
    )
    pod = convert({"metadata": {"name": "w-0", "uid": "pod"}}, Pod)
    claim = convert({"name": "data-w-0", "uid": "c", "ownerReferences": references}, ObjectMeta)
    action = plan_claim_owners(owner, pod, claim, condemned=condemned)
    if action is None:
        return None
    found: list[Tree] = action.patch["metadata"]["ownerReferences"]
    return found


@pytest.mark.parametrize(
    ("references", "policy", "condemned", "expected"),
    [
        ([], ("Retain", "Retain"), False, None),
        ([], ("Delete", "Retain"), False, [{**SET, **CONTROLS}]),
        ([{**SET, **CONTROLS}], ("Delete", "Retain"), False, None),
        ([{**SET, **CONTROLS}], ("Retain", "Retain"), False, [REMOVE_SET]),
        ([{**SET, **CONTROLS}], ("Delete", "Delete"), True, [REMOVE_SET, {**POD, **CONTROLS}]),
        ([{**POD, **CONTROLS}], ("Delete", "Delete"), False, [REMOVE_POD, {**SET, **CONTROLS}]),
        ([], ("Retain", "Delete"), False, None),
        ([], ("Retain", "Delete"), True, [{**POD, **CONTROLS}]),
    ],
)
def test_the_policy_decides(
    references: list[Tree], policy: tuple[str, str], condemned: bool, expected: list[Tree] | None
) -> None:
    assert plan(references, *policy, condemned=condemned) == expected


def test_owners_that_control_nothing_are_kept() -> None:
    assert plan([OTHER]) == [{**SET, **CONTROLS}]
    assert plan([OTHER, {**SET, **CONTROLS}]) is None


@run_by(run_scenario, only=ONLY)
async def test_a_new_controller_comes_last(cluster: Cluster) -> None:
    await cluster.client.create(STATEFUL_SETS, stateful_set(replicas=1, volumeClaimTemplates=[CLAIM]), "n")
    await roll(cluster, 2)
    config_map = await cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "c"}}, "n")
    other = {**OTHER, "uid": config_map["metadata"]["uid"]}
    references = {"metadata": {"ownerReferences": [other]}}
    await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "data-w-0", references, "n")
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    change = {"spec": {"persistentVolumeClaimRetentionPolicy": policy}}
    await cluster.client.patch(STATEFUL_SETS, "w", change, "n")
    await roll(cluster, 2)
    claim = await cluster.get(PERSISTENT_VOLUME_CLAIMS, "data-w-0")
    assert claim is not None
    found = claim["metadata"]["ownerReferences"]
    assert [(each["kind"], each.get("controller")) for each in found] == [
        ("ConfigMap", None),
        ("StatefulSet", True),
    ]


def test_an_owner_that_does_not_control_becomes_the_controller() -> None:
    assert plan([{**SET, "controller": False}]) == [{**SET, **CONTROLS}]


def test_another_controller_is_left_alone() -> None:
    foreign = {**OTHER, "controller": True}
    assert plan([foreign]) is None
    assert plan([foreign, SET]) == [REMOVE_SET]
    assert plan([foreign], "Retain", "Retain") is None


def test_a_claim_of_an_earlier_set_or_pod_is_left_alone() -> None:
    for stale in ({**SET, "uid": "old"}, {**POD, "uid": "old"}):
        assert plan([{**stale, **CONTROLS}]) is None
        assert plan([stale], "Retain", "Retain") is None
