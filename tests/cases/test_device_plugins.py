"""GPUs that a device plugin and a DRA driver both advertise: every answer says that one may be in use."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from plimsoll.tools.audit import audit
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.top.classes import free_by_class
from plimsoll.tools.top.top import top
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.cases.cases import case_objects
from tests.dumps import make_cluster_state

RESOURCE = "nvidia.com/gpu"


def dual(*, defaults: bool) -> Any:
    """Return the cluster; without what the API defaults in claims unless `defaults`."""
    trees = copy.deepcopy(case_objects("small/dual.yaml"))
    for tree in trees:
        if tree["kind"] == "ResourceClaim" and not defaults:
            for request in tree["spec"]["devices"]["requests"]:
                del request["exactly"]["allocationMode"], request["exactly"]["count"]
    return make_cluster_state(trees)


@pytest.fixture(params=[True, False], ids=["as written", "without defaults"])
def state(request: pytest.FixtureRequest) -> Any:
    return dual(defaults=request.param)


def answer(report: Any) -> Any:
    return json.loads(json.dumps(report.as_json()))


def test_explain_names_the_resource_of_the_plugin(state: Any) -> None:
    report = explain_pod(state, state.pod("next", "d"))
    lines = [line for line in report.lines(PLAIN) if "free" in line or RESOURCE in line]
    assert "pending" in next(iter(report.lines(PLAIN)))
    assert any(RESOURCE in line for line in lines)
    assert any(line.endswith(" 0 free") for line in lines)


@pytest.mark.parametrize("exhaustive", [False, True])
def test_whatif_schedules_the_pod_once_the_other_is_gone(state: Any, exhaustive: bool) -> None:
    before = answer(run_whatif(state, WhatifPlan(exhaustive=exhaustive)))
    assert before["verdict"]["pending"] == ["d/next"]
    assert before["after"]["free"][RESOURCE] == "0"
    after = answer(run_whatif(state, WhatifPlan(remove=("Pod/d/by-plugin",), exhaustive=exhaustive)))
    assert {each["pod"]: each["after"].get("node") for each in after["pods"]}["d/next"] == "n1"


def test_audit_finds_an_error(state: Any) -> None:
    found = [each for each in audit(state).findings if each.id == "PLM035"]
    assert [(each.severity.value, each.subject) for each in found] == [("error", "Node/n1")]


def test_top_counts_no_free_device(state: Any) -> None:
    (row,) = answer(top(state, "classes"))["classes"]
    assert (row["devices"], row["held"], row["free"]) == (2, 1, 0)
    assert free_by_class(state) == {}
    devices = {each["device"]: each for each in answer(top(state, "devices"))["devices"]}
    assert devices["gpu-0"]["state"] == "taken"
    assert devices["gpu-1"]["state"] == "blocked"
    assert RESOURCE in devices["gpu-1"]["why"]
    (pool,) = answer(top(state, "pools"))["pools"]
    assert (pool["devices"]["free"], pool["devices"]["unavailable"]) == (0, 1)
    assert [each["fits"] for each in answer(top(state, "gpus"))["gpus"]] == [[], []]


def test_the_dashboard_counts_no_free_device(state: Any) -> None:
    (by_node,) = DeviceCache().counts(state).values()
    assert dict(by_node["n1"]) == {"all": 2, "free": 0, "partly": 0, "taken": 1, "unavailable": 1}
