"""PodGroup protection: plan and controller."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.scheduling import POD_GROUP_FINALIZER, PodGroup
from plimsoll.client.endpoints import POD_GROUPS, PODS
from plimsoll.controllers.actions import PatchAction
from plimsoll.controllers.pod_group_protection import plan_pod_group
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.makers import metadata, view

ONLY = ["podgroup-protection-controller"]


def group(deleted: bool = True, finalizers: Any = (POD_GROUP_FINALIZER, "example.com/other")) -> PodGroup:
    fields = {"deletionTimestamp": "2025-01-01T00:00:00Z"} if deleted else {}
    meta = {**metadata("g"), "finalizers": list(finalizers), **fields}
    return view({"metadata": meta, "spec": {"schedulingPolicy": {"basic": {}}}}, PodGroup)


def test_the_finalizer_of_an_unused_group_is_removed() -> None:
    (action,) = plan_pod_group(group(), False).actions
    assert isinstance(action, PatchAction)
    assert action.patch == {"metadata": {"finalizers": ["example.com/other"], "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("kept", "in_use"),
    [(group(), True), (group(deleted=False), False), (group(finalizers=["example.com/other"]), False)],
)
def test_other_groups_are_left_alone(kept: PodGroup, in_use: bool) -> None:
    assert not plan_pod_group(kept, in_use)


@run_by(run_scenario, only=ONLY)
async def test_a_deleted_group_stays_until_its_pods_have_finished(cluster: Cluster) -> None:
    tree = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": {"basic": {}}}}
    await cluster.client.create(POD_GROUPS, tree, "n")
    member = {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [{"name": "c", "image": "i"}],
            "nodeName": "w",
            "schedulingGroup": {"podGroupName": "g"},
        },
    }
    await cluster.client.create(PODS, member, "n")
    await cluster.settle()
    await cluster.client.delete(POD_GROUPS, "g", "n")
    await cluster.settle()
    assert await cluster.names(POD_GROUPS) == ["g"]
    await cluster.finish("p")
    await cluster.settle()
    assert await cluster.names(POD_GROUPS) == []
