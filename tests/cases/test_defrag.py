"""`defrag` about the clusters of `../shared/cases`, and about node taints."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.colors import Paint
from plimsoll.tools.defrag import DefragReport, DefragResult, DefragTarget, find_moves
from tests.build import claim, device, device_class, exactly, node, pod, resource_slice
from tests.cases.cases import case_objects, case_path, case_state

GPU_CLUSTER, MESSY_CLUSTER = "real/gpu-cluster.json.gz", "real/messy-cluster.json.gz"


@cache
def cluster(name: str) -> Any:
    return case_state(name)


def gpu_node(name: str, *taints: str, devices: int = 1, driver: str = "gpu.x", **fields: Any) -> list[Any]:
    made = [device(f"g{number}") for number in range(devices)]
    return [node(name, taints=taints, **fields), resource_slice(made, name, driver=driver)]


def ask(things: list[Any], count: int = 1, *tolerations: str, driver: str = "gpu.x") -> DefragResult:
    selected = device_class("devices", select=f"device.driver == '{driver}'")
    target = DefragTarget(device_class="devices", count=count, tolerations=tolerations)
    return find_moves(ClusterState(ClusterObjects([selected, *things])), target)


@pytest.mark.parametrize(("count", "fits"), [(1, True), (2, True), (3, False)])
def test_nodes_that_are_tainted_as_gpu_nodes_are(count: int, fits: bool) -> None:
    found = find_moves(case_state("small/newcomer-3.json"), DefragTarget(device_class="gpu", count=count))
    assert found.fits is fits
    assert not found.moves
    assert found.tolerated == ("gpu=true:NoSchedule",)
    assert not found.left_out


@pytest.mark.parametrize(
    "taint",
    [
        "nvidia.com/gpu=present:NoSchedule",
        "nvidia.com/gpu:NoExecute",
        "sku=gpu:NoSchedule",
        "accelerator=nvidia:NoSchedule",
        "habana.ai/gaudi:NoSchedule",
    ],
)
def test_taints_that_name_the_hardware_are_tolerated(taint: str) -> None:
    driver = "gaudi.intel.com" if "gaudi" in taint else "gpu.nvidia.com"
    free = gpu_node("free", taint, devices=2, driver=driver)
    full = gpu_node("full", driver=driver)
    found = ask([*free, *full], 2, driver=driver)
    assert found.fits
    assert found.tolerated == (taint,)


@pytest.mark.parametrize("taint", ["maintenance=true:NoSchedule", "gpu.x/team=ml:NoExecute"])
def test_other_taints_leave_nodes_out(taint: str) -> None:
    things = [*gpu_node("a", taint, devices=2), *gpu_node("b", taint), *gpu_node("c"), node("d")]
    found = ask(things, 2)
    assert not found.fits
    assert found.left_out == {f"with taint {taint}": 2}
    key = taint.partition("=")[0]
    for toleration in (taint, key, f"{key}:{taint.rpartition(':')[2]}"):
        tolerant = ask(things, 2, toleration)
        assert tolerant.fits
        assert not tolerant.left_out
    assert not ask(things, 2, f"{key}=other").fits


def test_a_taint_of_all_nodes_with_the_devices_is_tolerated() -> None:
    taint = "team=ml:NoSchedule"
    things = [*gpu_node("a", taint), *gpu_node("b", taint), node("c")]
    assert ask(things).tolerated == (taint,)
    assert not ask([*things, *gpu_node("d")]).tolerated


def test_a_taint_that_another_pod_with_the_devices_tolerates_is_tolerated() -> None:
    taint = "team=ml:NoSchedule"
    things = [*gpu_node("a", taint, devices=2), *gpu_node("b")]
    held = {"request": "r", "driver": "gpu.x", "pool": "a", "device": "g0"}
    used = claim("c", exactly(device_class="devices"), results=[held], node="a", reserved=["p"])
    for tolerated, fits in (("Exists", True), ("", False)):
        tolerations = [{"key": "team", "operator": "Exists"}] if tolerated else [{"operator": "Exists"}]
        user = pod("p", node="a", claims=["c"], tolerations=tolerations)
        found = ask([*things, used, user], 1)
        assert found.fits
        assert bool(found.tolerated) is fits
        assert bool(found.left_out) is not fits


def test_nodes_that_take_no_pods_are_left_out() -> None:
    unreachable = "node.kubernetes.io/unreachable:NoExecute"
    things = [
        *gpu_node("a", unreachable),
        *gpu_node("b", unschedulable=True),
        *gpu_node("c", "gpu:NoSchedule"),
    ]
    found = ask(things)
    assert found.fits
    assert found.left_out == {"cordoned": 1, f"with taint {unreachable}": 1}
    text = "\n".join(DefragReport(DefragTarget(device_class="devices"), found).lines(Paint(width=80)))
    assert unreachable in text
    assert "1 node cordoned" in text


@pytest.mark.parametrize(
    ("device_class_name", "most"),
    [("h100", 4), ("h100-3g", 8), ("h100-1g", 28), ("a100", 7), ("a100-half", 14), ("l4", 2)],
)
def test_what_fits_without_moves_is_the_most_on_one_node(device_class_name: str, most: int) -> None:
    """The most on one node is that of README's FREE, as `top classes` shows it."""
    for count in (1, most):
        found = find_moves(cluster(MESSY_CLUSTER), DefragTarget(device_class=device_class_name, count=count))
        assert found.fits
        assert not found.moves
    more = find_moves(cluster(MESSY_CLUSTER), DefragTarget(device_class=device_class_name, count=most + 1))
    assert more.moves or not more.fits


def test_a_node_with_one_whole_gpu_less_than_all_needs_one_move() -> None:
    """Pods with one A100 each: one of them has to leave the node on which it is the only one."""
    found = find_moves(cluster(MESSY_CLUSTER), DefragTarget(device_class="a100", count=8))
    (move,) = found.moves
    pool = {
        each["pool"]
        for tree in case_objects(MESSY_CLUSTER)
        if tree["kind"] == "ResourceClaim"
        and any(user["name"] == move.pod[1] for user in tree.get("status", {}).get("reservedFor", ()))
        for each in tree["status"]["allocation"]["devices"]["results"]
    }
    assert pool == {move.source}
    ((_, target, devices),) = found.placements
    assert (target, len(devices)) == (move.source, 8)


@pytest.mark.parametrize(
    ("name", "devices"),
    [("prio", 2), ("ext6", 6), ("allnic", 4), ("mig1g", 1), ("aligned", 0), ("all", 0), ("c33", 0)],
)
def test_pods_of_the_gpu_cluster(name: str, devices: int) -> None:
    target = DefragTarget(add=(case_path(f"small/{name}.yaml"),))
    found = find_moves(cluster(GPU_CLUSTER), target)
    assert found.exact
    assert found.fits is bool(devices)
    assert not found.moves
    if devices:
        ((_, _, allocated),) = found.placements
        assert len(allocated) == devices
    elif name != "aligned":
        assert "exceeds the claim limit of 32" in found.why
    lines = list(DefragReport(target, found).lines(Paint(width=80)))
    assert "/".join(found.targets[0]) in lines[0]
    assert all(len(line) <= 80 or " " not in line.strip() for line in lines)


def test_pods_that_a_quota_does_not_allow() -> None:
    """The quota of ml has 22 of 22 devices of class h100, that of newcomer-5 no pod."""
    found = find_moves(cluster(MESSY_CLUSTER), DefragTarget(device_class="h100", namespace="ml"))
    assert "exceeded quota: ml-quota" in found.refusal
    pod_file = case_path("small/newcomer-5-pod.json")
    target = DefragTarget(add=(pod_file,))
    found = find_moves(case_state("small/newcomer-5.json"), target)
    assert (found.fits, found.targets) == (False, (("t", "new"),))
    assert "exceeded quota: q" in found.refusal
    assert "refuse" in next(DefragReport(target, found).lines(Paint()))


@pytest.mark.parametrize("text", ["", "=x", "a:NoWay", "a=b:PreferNoSchedule"])
def test_a_toleration_that_cannot_be_read(text: str) -> None:
    with pytest.raises(InputError, match="KEY"):
        ask(gpu_node("a"), 1, text)
