"""Admission handler: admitted pods, and their order after a restart."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.common.checkpoint import RecordFile
from plimsoll.ledger.claims import read_charged_claims
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placeholders import make_pod, plan_placeholders
from plimsoll.node.admission.admission_handler import KIND, AdmissionHandler, host_ports, matches_node
from plimsoll.node.admission.allocation import PodAllocation
from plimsoll.node.admission.preemption import CRITICAL
from tests.build import container, node, pod
from tests.sizes import examples

NODE = node("n", cpu="4", memory="8Gi", pods="10")


def record(directory: Path) -> RecordFile:
    return RecordFile(directory / "admitted.json", KIND, directory / "quarantine")


def cpu(name: str, amount: str, *, at: str = "", **spec: Any) -> Pod:
    made = pod(name, container("c", cpu=amount), nodeName="n", **spec)
    if at:
        made = msgspec.structs.replace(
            made, metadata=msgspec.structs.replace(made.metadata, creation_timestamp=at)
        )
    return made


def charged(name: str, request: str, *entries: Any, claims: Sequence[str] = ("c",)) -> Pod:
    """Build a pod whose status has claim charges."""
    status = {"nodeAllocatableResourceClaimStatuses": list(entries)}
    return pod(name, container("c", *claims, cpu=request), status=status, nodeName="n")


def pool(claim: str, whole: str, drawn: str) -> Any:
    return {
        "resourceClaimName": claim,
        "containers": ["c"],
        "resources": {"cpu": whole},
        "accountingPolicies": {"cpu": "ConsumeFrom"},
        "drawn": {"cpu": drawn},
    }


def names(pods: Sequence[Pod]) -> list[str]:
    return [each.metadata.name for each in pods]


# -- resources


@pytest.mark.parametrize("resource", ["example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"])
@pytest.mark.parametrize(
    "plugin", [{}, {"example.com/gpu": "1", "deviceclass.resource.kubernetes.io/gpu": "1"}]
)
def test_extended_resources_that_a_claim_serves_are_not_checked(
    resource: str, plugin: dict[str, str]
) -> None:
    """Per container: what the claim does not serve is checked."""
    admission_handler = AdmissionHandler(node("n", extended=plugin))
    mapping = {"containerName": "a", "resourceName": resource, "requestName": "r"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "x", "requestMappings": [mapping]}}
    asks = [container(name, **{resource: "2"}) for name in ("a", "b")]
    assert admission_handler.admit(pod("p", asks[0], status=status, nodeName="n")).admit
    rejected = admission_handler.check(pod("q", *asks, status=status, nodeName="n"))
    if resource in plugin or resource.startswith("deviceclass"):
        assert rejected.reason == f"OutOf{resource}"
    else:
        assert rejected.admit  # other components may provide what the node does not know


def test_pods_are_admitted_while_resources_are_available() -> None:
    admission_handler = AdmissionHandler(NODE)
    assert admission_handler.admit(cpu("a", "3")).admit
    answer = admission_handler.admit(cpu("b", "1500m"))
    assert (answer.reason, answer.message) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000",
    )
    assert "uid-b" not in admission_handler
    assert admission_handler.admit(cpu("a", "3")).admit, "who is in stays in"
    assert len(admission_handler) == 1
    admission_handler.remove("uid-a")
    admission_handler.remove("uid-a")
    assert admission_handler.admit(cpu("b", "1500m")).admit
    assert not admission_handler.ledger.verify()


def test_the_number_of_pods_is_limited_too() -> None:
    admission_handler = AdmissionHandler(node("n", pods="1"))
    assert admission_handler.admit(cpu("a", "0")).admit
    answer = admission_handler.admit(cpu("b", "0"))
    assert (answer.reason, answer.message) == (
        "OutOfpods",
        "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1",
    )


def test_claims_are_charged_as_the_status_says() -> None:
    entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "2"}}
    admission_handler = AdmissionHandler(NODE)
    assert admission_handler.admit(charged("a", "1", entry)).admit
    assert admission_handler.ledger.requested["cpu"] == 3000
    assert admission_handler.admit(cpu("b", "2")).reason == "OutOfcpu"
    without = AdmissionHandler(NODE, gates=Gates.of({"DRANodeAllocatableResources": False}))
    assert without.admit(charged("a", "1", entry)).admit
    assert without.admit(cpu("b", "2")).admit


def test_a_shared_claim_counts_once_with_its_gate() -> None:
    entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "2"}}
    sharing = AdmissionHandler(NODE, gates=Gates.of({"SharedClaimCharges": True}))
    assert sharing.admit(charged("a", "1", entry)).admit
    assert sharing.admit(charged("b", "1", entry)).admit, "1 + 1 + 2 of 4 CPUs"
    plain = AdmissionHandler(NODE)
    assert plain.admit(charged("a", "1", entry)).admit
    assert plain.admit(charged("b", "1", entry)).reason == "OutOfcpu"


def test_claim_pools_are_not_overcommitted() -> None:
    admission_handler = AdmissionHandler(NODE)
    assert admission_handler.admit(charged("a", "2", pool("c", "3", "2"))).admit
    assert admission_handler.ledger.requested["cpu"] == 3000
    assert admission_handler.admit(charged("b", "1", pool("c", "3", "1"))).admit, (
        "the pool is paid for already"
    )
    answer = admission_handler.admit(charged("d", "1", pool("c", "3", "1")))
    assert (answer.reason, answer.message) == (
        "OutOfcpu",
        "Node didn't have enough resource: cpu in claim c, requested: 1000, used: 3000, capacity: 3000",
    )


# -- other rules


def labelled(**spec: Any) -> Node:
    status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}}
    return codec.convert(
        {"metadata": {"name": "n", "labels": {"zone": "a"}}, "spec": spec, "status": status}, Node
    )


def affinity(*terms: Any) -> Any:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


def expression(value: str) -> Any:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        (
            {"nodeSelector": {"zone": "b"}},
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ),
        (
            {"affinity": affinity(expression("b"))},
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ),
        ({"affinity": affinity()}, "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
        ({"nodeName": "m"}, "NodeName", "node(s) didn't match the requested node name"),
    ],
)
def test_node_affinity_and_node_name_are_checked(change: dict[str, Any], reason: str, text: str) -> None:
    answer = AdmissionHandler(labelled()).admit(pod("p", container("c"), **change))
    assert (answer.admit, answer.reason, answer.message) == (
        False,
        reason,
        f"Predicate {reason} failed: {text}",
    )


def test_taints_and_tolerations() -> None:
    admission_handler = AdmissionHandler(
        labelled(taints=[{"key": "t", "effect": "NoExecute"}, {"key": "s", "effect": "NoSchedule"}])
    )
    answer = admission_handler.admit(pod("p", container("c")))
    text = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    assert (answer.reason, answer.message) == ("TaintToleration", text)
    assert admission_handler.admit(
        pod("q", container("c"), tolerations=[{"key": "t", "operator": "Exists"}])
    ).admit


def test_a_pod_that_matches_the_node_is_admitted() -> None:
    assert matches_node(pod("p", affinity=affinity(expression("b"), expression("a"))), labelled())
    assert matches_node(pod("p", nodeSelector={"zone": "a"}), labelled())
    windows = msgspec.structs.replace(
        pod("p"), metadata=msgspec.structs.replace(pod("p").metadata, labels={"kubernetes.io/os": "windows"})
    )
    assert AdmissionHandler(labelled()).admit(windows).reason == "PodOSSelectorNodeLabelDoesNotMatch"


def port(number: int, **more: Any) -> Any:
    return {"name": "c", "ports": [{"containerPort": 80, "hostPort": number, **more}]}


def test_host_port_conflicts_are_refused() -> None:
    admission_handler = AdmissionHandler(labelled())
    assert admission_handler.admit(pod("a", port(80))).admit
    assert admission_handler.admit(pod("b", port(80))).message == (
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
    )
    assert admission_handler.admit(pod("c", port(80, protocol="UDP"))).admit
    assert admission_handler.admit(pod("d", port(81, hostIP="10.0.0.1"))).admit
    assert admission_handler.admit(pod("e", port(81, hostIP="10.0.0.2"))).admit
    assert not admission_handler.admit(pod("f", port(81, hostIP="0.0.0.0"))).admit
    on_host = pod("g", {"name": "c", "ports": [{"containerPort": 80}]}, hostNetwork=True)
    assert list(host_ports(on_host)) == [("", "TCP", 80)]


# -- a restart


def test_an_admitted_pod_stays_admitted(tmp_path: Path) -> None:
    young, old = cpu("young", "3", at="2025-02-01T00:00:00Z"), cpu("old", "2", at="2025-01-01T00:00:00Z")
    older = cpu("older", "1", at="2024-01-01T00:00:00Z")
    first = AdmissionHandler(NODE, record=record(tmp_path))
    assert first.admit(young).admit
    assert not first.admit(old).admit
    assert first.save() is None
    second = AdmissionHandler(node("n", cpu="2"), record=record(tmp_path))
    assert second.findings == ()
    others = second.restore([old, older, young])
    assert second.admitted_uids == ("uid-young",), "the line is lower now, and still it is in"
    assert names(others) == ["older", "old"]
    assert not second.admit(old).admit


def test_the_checkpoint_keeps_the_admission_order_and_drops_deleted_pods(tmp_path: Path) -> None:
    first = AdmissionHandler(NODE, record=record(tmp_path))
    pods = [cpu(name, "1") for name in ("c", "a", "d", "b")]
    for each in pods:
        assert first.admit(each).admit
    first.save()
    second = AdmissionHandler(NODE, record=record(tmp_path))
    ended = msgspec.structs.replace(pods[2], status=codec.convert({"phase": "Failed"}, type(pods[2].status)))
    assert second.restore([pods[3], pods[1], ended, pods[0]]) == ()
    assert second.admitted_uids == ("uid-c", "uid-a", "uid-b")
    assert asyncio.run(second.flush()) is None
    body = json.loads((tmp_path / "admitted.json").read_text())["body"]
    assert [entry["uid"] for entry in body["pods"]] == ["uid-c", "uid-a", "uid-b"]
    third = AdmissionHandler(NODE, record=record(tmp_path))
    third.restore(pods)
    assert third.admitted_uids == ("uid-c", "uid-a", "uid-b")


def test_the_checkpoint_is_kept_until_pods_are_listed(tmp_path: Path) -> None:
    first = AdmissionHandler(NODE, record=record(tmp_path))
    first.admit(cpu("a", "1"))
    first.save()
    second = AdmissionHandler(NODE, record=record(tmp_path))
    second.admit(cpu("b", "1"))
    second.save()
    third = AdmissionHandler(NODE, record=record(tmp_path))
    third.restore([cpu("a", "1"), cpu("b", "1")])
    assert set(third.admitted_uids) == {"uid-a", "uid-b"}


def test_allocated_resources_survive_a_restart(tmp_path: Path) -> None:
    first = AdmissionHandler(NODE, record=record(tmp_path))
    first.admit(cpu("a", "1"))
    wanted = cpu("a", "3")
    first.update(wanted)
    assert first.ledger.requested["cpu"] == 1000, "a resize that is asked for has no effect"
    assert first.allocated(wanted).spec == cpu("a", "1").spec
    first.allocate(wanted, PodAllocation.from_spec(cpu("a", "2")))
    assert first.ledger.requested["cpu"] == 2000
    first.save()
    second = AdmissionHandler(NODE, record=record(tmp_path))
    second.restore([wanted])
    assert second.ledger.requested["cpu"] == 2000
    assert second.allocation("uid-a") == first.allocation("uid-a")
    assert second.allocation("uid-b") is None


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"pods": 3},
        {"pods": [1, {}, {"uid": 5}, {"uid": ""}]},
        {"pods": [{"uid": "uid-a", "allocation": {"containers": {"c": {"requests": {"cpu": "x"}}}}}]},
        {"pods": [{"uid": "uid-a", "allocation": []}]},
    ],
)
def test_checkpoints_of_another_shape_are_ignored(tmp_path: Path, body: Any) -> None:
    record(tmp_path).save(body)
    admission_handler = AdmissionHandler(NODE, record=record(tmp_path))
    for each in admission_handler.restore([cpu("a", "1")]):
        assert admission_handler.admit(each).admit
    assert admission_handler.admitted_uids == ("uid-a",)
    assert admission_handler.ledger.requested["cpu"] == 1000


def test_a_damaged_checkpoint_is_reported_and_the_node_continues(tmp_path: Path) -> None:
    (tmp_path / "admitted.json").write_text("{")
    admission_handler = AdmissionHandler(NODE, record=record(tmp_path))
    assert len(admission_handler.findings) == 1
    assert names(admission_handler.restore([cpu("a", "1")])) == ["a"]


def test_a_failed_save_is_reported_and_retried(tmp_path: Path) -> None:
    blocked = tmp_path / "directory"
    blocked.write_text("a file")
    admission_handler = AdmissionHandler(
        NODE, record=RecordFile(blocked / "admitted.json", KIND, tmp_path / "quarantine")
    )
    admission_handler.admit(cpu("a", "1"))
    finding = admission_handler.save()
    assert finding is not None
    assert str(blocked) in finding.what
    blocked.unlink()
    blocked.mkdir()
    assert admission_handler.save() is None
    assert (blocked / "admitted.json").exists()


# -- critical pods


async def test_saves_are_serialized(tmp_path: Path) -> None:
    """A flush returns only when its change is on disk, and no older checkpoint follows a newer one."""

    class Slow(RecordFile):
        waits = iter((0.2, 0.0, 0.0))

        def save(self, value: Any) -> None:
            time.sleep(next(self.waits))
            super().save(value)

    def saved() -> list[str]:
        return [each["name"] for each in json.loads((tmp_path / "admitted.json").read_text())["body"]["pods"]]

    admission_handler = AdmissionHandler(
        NODE, record=Slow(tmp_path / "admitted.json", KIND, tmp_path / "quarantine")
    )
    admission_handler.admit(cpu("a", "1"))
    first = asyncio.create_task(admission_handler.flush())
    await asyncio.sleep(0)
    same = asyncio.create_task(
        admission_handler.flush()
    )  # nothing is new, but nothing is on the disk yet either
    await asyncio.sleep(0.01)
    assert not same.done()
    admission_handler.admit(cpu("b", "1"))
    first.cancel()
    await admission_handler.flush()
    assert saved() == ["a", "b"]
    await asyncio.gather(first, same, return_exceptions=True)
    assert saved() == ["a", "b"]


def test_a_critical_pod_preempts() -> None:
    admission_handler = AdmissionHandler(NODE)
    for each in (cpu("a", "1"), cpu("b", "2"), cpu("c", "1")):
        admission_handler.admit(each)
    boss = cpu("boss", "2", priority=CRITICAL)
    assert not admission_handler.admit(boss).admit
    victims = admission_handler.find_victims(boss)
    assert names(victims) == ["b"]
    for victim in victims:
        admission_handler.remove(victim.metadata.uid)
    assert admission_handler.admit(boss).admit
    assert admission_handler.find_victims(cpu("plain", "4")) == ()
    assert admission_handler.find_victims(cpu("too-big", "5", priority=CRITICAL)) == (), "not in vain"
    stranger = cpu("stranger", "4", priority=CRITICAL + 1, nodeSelector={"zone": "b"})
    assert admission_handler.admit(stranger).reason == "NodeAffinity"
    assert admission_handler.find_victims(stranger) == ()


def test_claim_charges_of_victims_count_as_freed() -> None:
    entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "2"}}
    admission_handler = AdmissionHandler(NODE)
    admission_handler.admit(charged("claims", "1", entry))
    admission_handler.admit(cpu("plain", "1"))
    assert names(admission_handler.find_victims(cpu("boss", "3", priority=CRITICAL))) == ["claims"]


@pytest.mark.parametrize(("counts", "victim"), [(True, "plain"), (False, "claims")])
def test_pods_with_claims_only_are_no_longer_preempted_first(counts: bool, victim: str) -> None:
    entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "2"}}
    gates = Gates.of({"DRANodeAllocatableResourcesQoS": counts})
    admission_handler = AdmissionHandler(NODE, gates=gates)
    assert admission_handler.admit(charged("claims", "0", entry)).admit
    assert admission_handler.admit(cpu("plain", "2")).admit
    assert names(admission_handler.find_victims(cpu("boss", "2", priority=CRITICAL))) == [victim]


def test_all_users_of_a_shared_claim_are_preempted_together() -> None:
    admission_handler = AdmissionHandler(NODE)
    assert admission_handler.admit(charged("a", "1", pool("c", "3", "1"))).admit
    assert admission_handler.admit(charged("b", "1", pool("c", "3", "1"))).admit
    assert admission_handler.admit(cpu("d", "1")).admit
    boss = cpu("boss", "3", priority=CRITICAL)
    assert sorted(names(admission_handler.find_victims(boss))) == ["a", "b"]
    late = charged("late", "2", pool("c", "3", "2"))
    late = msgspec.structs.replace(late, spec=msgspec.structs.replace(late.spec, priority=CRITICAL))
    assert len(admission_handler.find_victims(late)) == 1, "one place in the pool is enough"


# -- properties

PODS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 3000), st.booleans(), st.integers(0, 2)),
    max_size=8,
    unique_by=lambda each: each[0],
)


def build(pods: list[tuple[int, int, bool, int]]) -> list[Pod]:
    made = []
    for number, milli, drawing, day in pods:
        request = f"{milli}m"
        one = cpu(f"p{number}", request, at=f"2025-01-0{day + 1}T00:00:00Z")
        if drawing:
            status = charged("x", request, pool("c", "2", request)).status
            spec = charged("x", request, pool("c", "2", request)).spec
            one = msgspec.structs.replace(one, status=status, spec=spec)
        made.append(one)
    return made


@given(PODS, st.randoms(use_true_random=False))
def test_admitted_pods_never_exceed_allocatable(pods: list[tuple[int, int, bool, int]], dice: Any) -> None:
    admission_handler = AdmissionHandler(NODE)
    for one in build(pods):
        admission_handler.admit(one)
        if dice.random() < 0.3 and admission_handler.admitted_uids:
            admission_handler.remove(dice.choice(admission_handler.admitted_uids))
        assert all(left >= 0 for left in admission_handler.ledger.headroom().values())
        state = admission_handler.ledger.claim_state("default", "c")
        assert state is None or state.consumed["cpu"] <= state.allocated["cpu"]
    again = NodeLedger(NODE)
    for one in admission_handler.pods():
        again.add(one, read_charged_claims(one))
    assert again.requested.get("cpu", 0) == admission_handler.ledger.requested.get("cpu", 0)
    assert not admission_handler.ledger.verify()


@settings(max_examples=examples(50))
@given(PODS, st.randoms(use_true_random=False))
def test_after_a_restart_the_order_of_the_pod_list_does_not_matter(
    pods: list[tuple[int, int, bool, int]], dice: Any
) -> None:
    made = build(pods)
    with tempfile.TemporaryDirectory() as directory:
        first = AdmissionHandler(NODE, record=record(Path(directory)))
        for one in made[: len(made) // 2]:
            first.admit(one)
        first.save()
        orders = []
        for _ in range(2):
            dice.shuffle(made)
            after = AdmissionHandler(NODE, record=record(Path(directory)))
            for one in after.restore(made):
                after.admit(one)
            orders.append(after.admitted_uids)
            assert after.admitted_uids[: len(first.admitted_uids)] == first.admitted_uids
    assert orders[0] == orders[1]


@pytest.mark.parametrize("placeholder_first", [True, False])
def test_a_placeholder_and_its_pod_count_once(placeholder_first: bool) -> None:
    entry = {"resourceClaimName": "c", "containers": ["c"], "resources": {"cpu": "3"}}
    made = charged("p", "1", entry)
    handler = AdmissionHandler(NODE)
    charges = read_charged_claims(made, handler.ledger.profile)
    planned = plan_placeholders(made, charges, handler.ledger.options, handler.ledger.profile)
    (placeholder,) = (make_pod(each, "n") for each in planned)
    pods = [placeholder, made] if placeholder_first else [made, placeholder]
    assert all(handler.admit(each).admit for each in pods)
    assert handler.ledger.requested["cpu"] == 4000
    refused = handler.admit(cpu("late", "1m"))
    assert (refused.admit, refused.reason) == (False, "OutOfcpu")
    handler.remove(made.metadata.uid)
    assert handler.admit(cpu("next", "1")).admit
