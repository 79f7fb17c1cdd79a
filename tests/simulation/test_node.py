"""Simulated nodes alone: claims are prepared and released under faults, and a seed gives the same history."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.simulation.node.hardware import Hardware, Hold, Inventory
from tests.simulation.node.violations import HardwareChecker, NodeState
from tests.waiting import DEADLINE

_SELF_TEST = (sys.executable, "-m", "tests.simulation.node.selftest", "--seed", "3")


def run_selftest() -> Any:
    """Run it in a process: the clocks of the simulation replace those of the process."""
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(
        _SELF_TEST, env=environment, capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert not done.stderr
    return json.loads(done.stdout)


def test_nodes_keep_their_invariants_and_repeat_their_histories() -> None:
    with ThreadPoolExecutor() as threads:
        first, second = threads.map(lambda _: run_selftest(), range(2))
    assert first["violations"] == {}
    assert first["digests"] == second["digests"]
    counts = first["counts"]
    kinds = (
        "prepare",
        "unprepare",
        "driver timeout",
        "kubelet crash",
        "driver crash",
        "power off",
        "checkpoint lost",
        "deletions",
        "force deletions",
        "driver hangs",
        "driver answer lost",
        "pods Running",
        "pods Succeeded",
        "pods Failed",
    )
    # What a seed does changes with the product.
    assert len([kind for kind in kinds if not counts.get(kind)]) <= 2


# -- the checker


def checker_with(tmp_path: Any, **device: Any) -> tuple[Hardware, NodeState, list[str], HardwareChecker]:
    hardware = Hardware("n", {"d": Inventory("d", "n", {"gpu": {"name": "gpu", **device}})})
    found: list[str] = []
    checker = HardwareChecker(found.append)
    return hardware, NodeState(hardware, tmp_path, {}), found, checker


def allocate(checker: HardwareChecker, uid: str, **more: Any) -> None:
    result = {"driver": "d", "pool": "n", "device": "gpu", **more}
    meta = {"uid": uid, "name": uid, "namespace": "default"}
    status = {"allocation": {"devices": {"results": [result]}}}
    checker.on_change("resourceclaims", None, {"metadata": meta, "status": status})


def test_a_device_of_two_claims_is_found(tmp_path: Any) -> None:
    hardware, state, found, checker = checker_with(tmp_path)
    allocate(checker, "a")
    allocate(checker, "b")
    assert hardware.set_up("a", Hold("d", "n", "gpu")) == ""
    checker.check(state)
    assert not found
    hardware.set_up("b", Hold("d", "n", "gpu"))
    checker.check(state)
    checker.check(state)
    assert found == ["node n: n/gpu is set up for 2 claims: a, b"]


def test_a_device_that_was_never_allocated_is_found(tmp_path: Any) -> None:
    hardware, state, found, checker = checker_with(tmp_path)
    hardware.set_up("a", Hold("d", "n", "gpu"))
    checker.check(state)
    checker.check_at_rest(state)
    assert found == [
        "node n: n/gpu is set up for claim a, which was never allocated it",
        "node n: devices are set up for claim a, which no pod uses",
        "node n: the kubelet's checkpoint lacks claim a",
        "node n: the checkpoint of driver d and the hardware differ in claim a",
    ]


def test_a_running_pod_without_its_devices_is_found(tmp_path: Any) -> None:
    hardware, state, found, checker = checker_with(tmp_path)
    allocate(checker, "a")
    checker.claims["default", "a"]["status"]["reservedFor"] = [{"uid": "p", "name": "p"}]
    spec = {"resourceClaims": [{"name": "c", "resourceClaimName": "a"}]}
    pod = {"metadata": {"uid": "p", "name": "p", "namespace": "default"}, "spec": spec, "status": {}}
    hardware.set_up("a", Hold("d", "n", "gpu"))
    state = state._replace(containers={"p": pod})
    checker.check(state)
    assert not found
    hardware.tear_down("d", "a")
    checker.check(state)
    assert found == ["node n: pod default/p runs, and claim default/a is not set up"]


@pytest.mark.parametrize("amount", ["4", "7"])
def test_a_shared_device_has_limited_capacity(tmp_path: Any, amount: str) -> None:
    capacity = {"slots": {"value": "10"}}
    hardware, state, found, checker = checker_with(tmp_path, allowMultipleAllocations=True, capacity=capacity)
    for uid in ("a", "b"):
        allocate(checker, uid, shareID=uid, consumedCapacity={"slots": amount})
    assert hardware.set_up("a", Hold("d", "n", "gpu", "a", (("slots", amount),))) == ""
    problem = hardware.set_up("b", Hold("d", "n", "gpu", "b", (("slots", amount),)))
    assert problem == ("" if amount == "4" else "gpu: not enough slots")
    checker.check(state)
    assert not found
