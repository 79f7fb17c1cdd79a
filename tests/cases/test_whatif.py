"""`whatif --add` about the clusters of `../shared/cases`; numbers are counted here from the objects."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from plimsoll.tools.colors import Paint
from plimsoll.tools.fixes import Fix, apply_fix
from plimsoll.tools.whatif import Whatif, WhatifPlan, WhatifReport, run_whatif
from tests.cases.cases import case_objects, case_path, case_state
from tests.dumps import make_cluster_state

GPU_CLUSTER = "real/gpu-cluster.json.gz"
PENDING_PODS = 69


@cache
def cluster(name: str) -> Any:
    return case_state(name)


@cache
def ask(name: str, state: str = GPU_CLUSTER) -> WhatifReport:
    return run_whatif(cluster(state), WhatifPlan(add=(case_path(name),)))


def free_by_node(driver: str, wanted: Any) -> dict[str, list[dict[str, Any]]]:
    """Return the attributes of the devices of a driver that no claim holds, by node."""
    held = {
        (each["driver"], each["pool"], each["device"])
        for tree in case_objects(GPU_CLUSTER)
        if tree["kind"] == "ResourceClaim"
        for each in tree.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    }
    found: dict[str, list[dict[str, Any]]] = {}
    for tree in case_objects(GPU_CLUSTER):
        spec = tree.get("spec", {})
        if tree["kind"] != "ResourceSlice" or spec["driver"] != driver:
            continue
        for device in spec.get("devices", ()):
            own = {name: next(iter(value.values())) for name, value in device.get("attributes", {}).items()}
            if wanted(own) and (driver, spec["pool"]["name"], device["name"]) not in held:
                found.setdefault(spec["nodeName"], []).append(own)
    return found


def whole_gpus() -> dict[str, list[dict[str, Any]]]:
    """Return the GPUs of which neither the whole nor a partition is allocated."""
    return free_by_node("gpu.nvidia.com", lambda own: own.get("type") == "gpu")


def nics() -> dict[str, list[dict[str, Any]]]:
    return free_by_node("dra.net", lambda own: own.get("rdma", own.get("dra.net/rdma")) is True)


def test_six_gpus_of_a_node() -> None:
    nodes = sum(len(gpus) // 6 for gpus in whole_gpus().values())
    report = ask("small/ext6.yaml")
    assert report.all_placed
    assert 1 + report.more[0].count == nodes == 5


def test_all_nics_of_a_node() -> None:
    report = ask("small/allnic.yaml")
    assert 1 + report.more[0].count == len(nics()) == 9


def test_one_gpu_and_nic_on_the_same_root(tmp_path: Any) -> None:
    """Two of each do not fit: every root has one GPU and one NIC."""
    root = "resource.kubernetes.io/pcieRoot"
    pairs = most = 0
    for node, gpus in whole_gpus().items():
        roots = Counter(each[root] for each in gpus), Counter(each[root] for each in nics().get(node, ()))
        pairs += (roots[0] & roots[1]).total()
        most = max([most, *(roots[0] & roots[1]).values()])
    assert (pairs, most) == (38, 1)
    assert ask("small/aligned.yaml").verdict.pending == (("ml", "al2"),)
    one = tmp_path / "one.yaml"
    one.write_text(case_path("small/aligned.yaml").read_text().replace("count: 2", "count: 1"))
    report = run_whatif(cluster(GPU_CLUSTER), WhatifPlan(add=(one,)))
    assert 1 + report.more[0].count == pairs


@pytest.mark.parametrize(("name", "fits"), [("small/prio.yaml", 25), ("small/mig1g.yaml", 175)])
def test_partitions(name: str, fits: int) -> None:
    assert 1 + ask(name).more[0].count == fits


@pytest.mark.parametrize(("name", "count"), [("small/all.yaml", 2048), ("small/c33.yaml", 33)])
def test_claims_of_more_than_32_devices(name: str, count: int) -> None:
    report = ask(name)
    assert len(report.verdict.pending) == 1
    assert f"{count} exceeds the claim limit of 32" in report.states[1][report.verdict.pending[0]].why


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("case", ["mig1g", "aligned", "prio", "ext6", "all", "allnic", "c33"])
def test_the_verdict_comes_first_and_is_complete(case: str, width: int) -> None:
    report = ask(f"small/{case}.yaml")
    lines = list(report.lines(Paint(width=width)))
    assert lines[0] == report.verdict.text()
    text = "\n".join(lines)
    assert "..." not in text
    assert all(len(line) <= width or " " not in line.strip() for line in lines)
    assert len(lines) < 30
    (pod,) = report.verdict.asked
    placement = report.states[1][pod]
    shown = "\n".join(lines[: text[: text.index("\nFREE")].count("\n") if "\nFREE" in text else None])
    assert "/".join(pod) in shown
    if placement.node:
        assert placement.node in shown
        (placed,) = [each for each in report.outcome.placed if each.pod == pod]
        assert all(device in shown for device in placed.devices)
    else:
        assert placement.why in " ".join(shown.split())
    # Pods that are pending anyway are counted, not listed.
    assert f"{PENDING_PODS} other pods" in shown
    wide = "\n".join(report.lines(Paint(width=width), wide=True))
    assert all("/".join(name) in wide for name in report.verdict.still_pending)


def test_the_reason_of_a_pod_names_its_own_claim() -> None:
    report = ask("small/eq-add.yaml", "small/min-eq.yaml")
    reasons = {each["pod"]: each["after"]["why"] for each in report.as_json()["pods"]}
    assert reasons.keys() == {"d/p-0", "d/p-1"}
    for name, why in reasons.items():
        assert f"{name}-g" in why
    assert sum("running" in line for line in report.lines(Paint())) == 1, "one reason is printed once"


def test_a_quota_that_allows_no_pod() -> None:
    report = ask("small/newcomer-5-pod.json", "small/newcomer-5.json")
    assert not report.all_placed
    assert report.verdict.refused == (("t", "new"),)
    text = "\n".join(report.lines(Paint()))
    assert "the API would refuse the creation: exceeded quota: q" in text
    assert json.dumps(report.as_json()["refused"])


def test_quotas_of_the_messy_cluster(tmp_path: Any) -> None:
    """The quota of shop has 52 of 52 pods; that of ml 22 of 22 devices of class h100."""
    messy = "real/messy-cluster.json.gz"
    shop = tmp_path / "shop.yaml"
    shop.write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: new, namespace: shop}, "
        'spec: {containers: [{name: c, resources: {requests: {cpu: "1m"}}}]}}'
    )
    report = run_whatif(cluster(messy), WhatifPlan(add=(shop,)))
    assert report.verdict.refused == (("shop", "new"),)
    removed = run_whatif(cluster(messy), WhatifPlan(add=(shop,), remove=("Deployment/shop/web",)))
    assert removed.all_placed
    webs = [
        tree
        for tree in case_objects(messy)
        if tree["kind"] == "Pod" and tree["metadata"]["name"].startswith("web-")
    ]
    assert removed.more[0].count == len(webs) - 1
    assert "exceeded quota: shop-quota" in removed.more[0].refusal


def test_a_budget_that_allows_no_disruption_blocks_the_drain() -> None:
    report = run_whatif(case_state("small/newcomer-4.json"), WhatifPlan(drain=("a",)))
    assert not report.all_placed
    assert report.verdict.blocked == (("default", "db-0"),)
    lines = list(report.lines(Paint()))
    assert "blocks" in lines[0]
    assert report.states[1]["default", "db-0"].node == "a"
    # In the messy cluster the budget of infra/db allows no disruption: its pod stays, the others move.
    report = run_whatif(cluster("real/messy-cluster.json.gz"), WhatifPlan(drain=("cpu-00",)))
    (stays,) = report.verdict.blocked
    assert stays[1].startswith("db-")
    on_node = {
        tree["metadata"]["name"]
        for tree in case_objects("real/messy-cluster.json.gz")
        if tree["kind"] == "Pod" and tree["spec"].get("nodeName") == "cpu-00"
    }
    moved = {name for _, name in report.verdict.scheduled}
    assert moved == {name for name in on_node if not name.startswith("node-exporter")} - {stays[1]}


@pytest.mark.parametrize(
    ("spec", "blocks"),
    [({"minAvailable": 1}, True), ({"maxUnavailable": 0}, True), ({"minAvailable": 0}, False), ({}, False)],
)
def test_a_budget_of_a_manifest_has_no_status(tmp_path: Any, spec: dict[str, Any], blocks: bool) -> None:
    trees = []
    for tree in case_objects("small/newcomer-4.json"):
        if tree["kind"] == "PodDisruptionBudget":
            selector = tree["spec"]["selector"]
            tree = {**tree, "spec": {**spec, "selector": selector}, "status": {}}
        trees.append(tree)
    report = run_whatif(make_cluster_state(trees), WhatifPlan(drain=("a",)))
    assert bool(report.verdict.blocked) is blocks
    assert report.all_placed is not blocks
    assert report.states[1]["default", "db-0"].node == ("a" if blocks else "b")


@pytest.mark.parametrize("name", ["newcomer-4.json", "newcomer-3.json", "newcomer-1.json", "min-align.yaml"])
def test_without_changes_nothing_is_evicted(name: str) -> None:
    report = run_whatif(case_state(f"small/{name}"), WhatifPlan())
    assert not report.evicted
    assert not any("evict" in line.lower() for line in report.lines(Paint(width=80)))


def test_pending_pods_have_a_fix_that_makes_them_fit() -> None:
    report = ask("small/aligned.yaml")
    fix = report.nearest_fix(("ml", "al2"))
    assert isinstance(fix, Fix)
    assert "resource.kubernetes.io/pcieRoot" in fix.text
    assert any(line.strip().startswith("fix: ") for line in report.lines(Paint()))
    with Whatif(case_state(GPU_CLUSTER)) as w:
        w.add(case_path("small/aligned.yaml"))
        state, pod = apply_fix(w.cluster_state, w.cluster_state.pod("al2", "ml"), fix)
    with Whatif(state) as fixed:
        assert pod.metadata.key in {each.pod for each in fixed.schedule().placed}


def test_pods_with_the_same_message_and_different_fixes_are_not_one_group() -> None:
    report = run_whatif(cluster("real/messy-cluster.json.gz"), WhatifPlan())
    groups = report.group_pending(report.verdict.pending)
    # These want the same devices, and kube-scheduler does not preempt for devices.
    same = [("ml", "p12-a100x8"), ("ml", "p13-a100x8-prod")]
    assert [group for group in groups if len(group) > 1] == [same]


@pytest.mark.parametrize("defaulted", [False, True])
def test_kube_scheduler_may_give_out_hardware_twice(tmp_path: Any, defaulted: bool) -> None:
    """n1 has two GPUs: one that a pod has through the device plugin, one that a claim has."""
    text = case_path("small/dual.yaml").read_text()
    if defaulted:
        text = text.replace(", allocationMode: ExactCount, count: 1", "")
        assert "allocationMode" not in text
    (tmp_path / "dual.yaml").write_text(text)
    spec = "{containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]}"
    (tmp_path / "pod.yaml").write_text(
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: new, namespace: d}}, spec: {spec}}}"
    )
    state = case_state(str(tmp_path / "dual.yaml"))
    for add, pods in (((), {"next"}), ((tmp_path / "pod.yaml",), {"next", "new"})):
        report = run_whatif(state, WhatifPlan(add=add, versus=("kube-1.36",)))
        (prediction,) = report.predictions
        for name in pods:
            assert not report.states[1]["d", name].node
            assert prediction.state["d", name].node == "n1"
        assert {each.pod for each in prediction.conflicts} == {("d", name) for name in pods}
        lines = list(report.lines(Paint(width=80)))
        assert all(len(line) <= 80 for line in lines)
        text = " ".join(" ".join(lines).split())
        assert "d/next gets gpu.nvidia.com/n1/gpu-1, which may be in use" in text
        assert report.as_json()["as"]["kube-1.36"]["mayBeInUse"]


def test_hardware_that_is_advertised_once_is_not_in_doubt() -> None:
    plan = WhatifPlan(add=(case_path("small/ext6.yaml"),), versus=("kube-1.37",))
    (prediction,) = run_whatif(cluster(GPU_CLUSTER), plan).predictions
    assert prediction.state["ml", "e6"].node
    assert not prediction.conflicts


def test_pending_pods_without_a_fix_say_so() -> None:
    """Each has a fix, a hint, or the bounds of the search; those that were not searched are counted."""
    report = run_whatif(cluster(GPU_CLUSTER), WhatifPlan())
    assert len(report.verdict.pending) == PENDING_PODS
    found = [report.fixes[name] for name in report.verdict.pending if name in report.fixes]
    assert all(each.nearest or each.note for each in found)
    text = " ".join(" ".join(report.lines(Paint())).split())
    assert all(each.note in text for each in found if each.nearest is None)
    rest = PENDING_PODS - len(found)
    assert not rest or f"no fix was searched for {rest} pods" in text


def test_devices_of_a_pool_of_several_nodes_are_counted_once() -> None:
    for name, free in (("small/min-net.yaml", 2), (GPU_CLUSTER, 2048)):
        found = run_whatif(cluster(name), WhatifPlan()).as_json()["fragmentation"]["after"]
        assert found["freeDevices"]["imex.nvidia.com"] == free
        assert found["mostDevicesOnOneNode"]["imex.nvidia.com"] == free
