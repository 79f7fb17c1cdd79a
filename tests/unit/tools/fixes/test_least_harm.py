"""Fixes that harm least come first, and name what they are about."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.codec import convert
from plimsoll.api.storage import PersistentVolumeClaim, StorageClass
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.explain.verdict import ExplainVerdict, PodExplanation
from plimsoll.tools.fixes import apply_fix
from plimsoll.tools.fixes.fix import HintKind
from plimsoll.tools.report import as_text
from tests.build import (
    DRIVER,
    claim,
    container,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
    result,
)


def state(*things: Any) -> ClusterState:
    return ClusterState(ClusterObjects(things))


def explained(*things: Any) -> PodExplanation:
    cluster_state = state(*things)
    return explain_pod(cluster_state, cluster_state.pod("p"))


def text_of(explanation: PodExplanation) -> str:
    return " ".join(as_text(explanation).split())


def gpus(*names: str) -> list[Any]:
    return [node("n1"), device_class(), resource_slice([device(name) for name in names], "n1")]


WANTING = (pod("p", claims=["c"]), claim("c", exactly()))


# -- claims that no pod uses


@pytest.mark.parametrize("reserved", [(), ("deleted",)])
def test_an_unused_claim_is_released_before_a_running_pod_is_removed(reserved: tuple[str, ...]) -> None:
    things = [
        *gpus("g0", "g1"),
        *WANTING,
        pod("q", claims=["busy"], node="n1"),
        claim("busy", exactly(), results=[result("g0", pool="n1")], node="n1", reserved=["q"]),
        claim("leaked", exactly(), results=[result("g1", pool="n1")], node="n1", reserved=reserved),
    ]
    explanation = explained(*things)
    assert explanation.fix == f"delete claim default/leaked, which no pod uses and which holds {DRIVER}/n1/g1"
    assert explanation.fixes[1].text == "remove pod default/q from node n1"
    text = text_of(explanation)
    assert text.index("claim default/leaked, which no pod uses") < text.index("claim default/busy")
    changed, changed_pod = apply_fix(state(*things), things[3], explanation.fixes[0])
    assert explain_pod(changed, changed_pod).verdict is ExplainVerdict.FITS


def test_claims_of_pending_pods_and_of_other_consumers_are_used() -> None:
    workload = claim("of-workload", exactly(), results=[result("g1", pool="n1")], node="n1", reserved=["w"])
    consumer = replace(workload.status.reserved_for[0], resource="podgroups")
    workload = replace(workload, status=replace(workload.status, reserved_for=(consumer,)))
    things = [
        *gpus("g0", "g1"),
        *WANTING,
        pod("q", claims=["early"]),
        claim("early", exactly(), results=[result("g0", pool="n1")], node="n1"),
        workload,
    ]
    assert "no pod uses" not in text_of(explained(*things))


def test_an_unused_claim_that_blocks_partitions_is_named() -> None:
    parts = [
        device("whole", draws={"gpu": {"memory": "80Gi"}}, whole=True),
        *(device(f"part-{number}", draws={"gpu": {"memory": "20Gi"}}, whole=False) for number in range(4)),
    ]
    things = [
        node("n1"),
        device_class(),
        resource_slice(name="counters", pool="n1", node="n1", count=2, counters={"gpu": {"memory": "80Gi"}}),
        resource_slice(parts, "n1", name="devices", count=2),
        pod("p", claims=["c"]),
        claim("c", exactly(select=f'!device.attributes["{DRIVER}"].whole')),
        claim("leaked", exactly(), results=[result("whole", pool="n1")], node="n1"),
    ]
    explanation = explained(*things)
    assert explanation.fix.startswith("delete claim default/leaked")
    text = text_of(explanation)
    assert "4 devices match, 0 in use, 4 blocked" in text


# -- classes and drivers


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("gpu.exmaple.com", "gpu.example.com"),
        ("GPU.example.com", "gpu.example.com"),
        ("gpu", "gpu.example.com"),
        ("nics", "nic"),
    ],
)
def test_a_class_with_a_similar_name_is_proposed_where_the_pod_fits_with_it(wrong: str, right: str) -> None:
    wanted = claim("c", exactly(device_class=wrong))
    classes = [device_class("gpu.example.com"), device_class("nic")]
    asking = [*classes, pod("p", claims=["c"]), wanted]
    fix = explained(node("n1"), resource_slice([device("g0")], "n1"), *asking).fix
    assert fix == f"use DeviceClass {right}: DeviceClass {wrong} does not exist (on n1)"
    without = explained(node("n1"), *asking)
    assert not without.fixes
    assert right in without.found.hints[0].text


@pytest.mark.parametrize("wrong", ["quantum", "qat.example.com"])
def test_no_class_of_another_kind_of_device_is_proposed(wrong: str) -> None:
    things = [*gpus("g0"), device_class("gaudi.example.com"), pod("p", claims=["c"])]
    explanation = explained(*things, claim("c", exactly(device_class=wrong)))
    assert not explanation.fixes
    assert explanation.found.note


FPGA = device_class("fpga", select='device.driver == "fpga.example.com"')
WANTS_FPGA = (pod("p", claims=["c"]), claim("c", exactly(device_class="fpga")))


def test_a_driver_is_looked_for_only_where_it_has_run() -> None:
    never = explained(*gpus("g0"), FPGA, *WANTS_FPGA)
    assert [hint.kind for hint in never.found.hints] == [HintKind.INSTALL_DRIVER]
    held = claim("held", exactly(device_class="fpga"), results=[result("f0", "fpga.example.com", "n1")])
    once = explained(*gpus("g0"), FPGA, *WANTS_FPGA, held, pod("q", claims=["held"], node="n1"))
    assert once.found.hints[0].kind is HintKind.CHECK_DRIVER
    assert once.found.hints[0].facts == {"driver": "fpga.example.com", "node": "n1"}


def test_a_node_that_never_had_a_driver_does_not_ask_for_one() -> None:
    busy = claim("busy", exactly(device_class="fpga"), results=[result("f0", "fpga.example.com", "n2")])
    things = [
        *gpus("g0"),
        FPGA,
        *WANTS_FPGA,
        node("n2", cpu="1"),
        resource_slice([device("f0")], "n2", driver="fpga.example.com"),
        pod("q", claims=["busy"], node="n2"),
        busy,
    ]
    assert "driver" not in " ".join(fix.text for fix in explained(*things).fixes)


# -- spread and volumes


def test_a_spread_is_relaxed_no_further_than_needed() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    things: list[Any] = [
        node("n1", labels={"zone": "a"}),
        node("n2", labels={"zone": "b"}, cpu="1"),
        node("n3", labels={"zone": "c"}),
        pod("w1", labels={"app": "web"}, node="n1"),
        pod("w2", labels={"app": "web"}, node="n3"),
        pod("p", cpu="4", labels={"app": "web"}, topology_spread_constraints=[constraint]),
    ]
    explanation = explained(*things)
    text = text_of(explanation)
    assert "zone=a has 1 matching pods, zone=b 0; maxSkew is 1" in text
    fix = explanation.fixes[0]
    assert fix.text == "raise maxSkew of the spread over zone from 1 to 2 (any of 2 nodes)"
    changed, changed_pod = apply_fix(state(*things), things[-1], fix)
    assert explain_pod(changed, changed_pod).verdict is ExplainVerdict.FITS


def volume_claim(name: str, storage_class: str = "") -> PersistentVolumeClaim:
    tree = {"metadata": {"name": name, "namespace": "default"}, "spec": {"storageClassName": storage_class}}
    return convert(tree, PersistentVolumeClaim)


@pytest.mark.parametrize(
    ("storage_class", "why"),
    [
        ("", "it has no storage class, and no PersistentVolume is bound to it"),
        ("fsat", 'StorageClass "fsat" does not exist (similar: fast)'),
        ("fast", 'the provisioner of StorageClass "fast" has not created a volume'),
    ],
)
def test_an_unbound_volume_claim_is_named(storage_class: str, why: str) -> None:
    fast = convert({"metadata": {"name": "fast"}, "volumeBindingMode": "Immediate"}, StorageClass)
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    things = [
        node("n1"),
        fast,
        volume_claim("data", storage_class),
        pod("p", container("main"), volumes=[volume]),
    ]
    assert explained(*things).found.hints[0].text == f'bind PersistentVolumeClaim "data": {why}'
