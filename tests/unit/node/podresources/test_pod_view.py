"""Pod views and their messages."""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.podresources.pod_view import (
    PodResourcesGates,
    PodResourcesView,
    build_allocatable_message,
    build_pod_message,
    claim_names,
    collect_resources,
    view_pod,
)
from plimsoll.node.podresources.source import Allocatable, MemoryBlock
from plimsoll.protocols.messages import podresources_v1 as v1

from .sources import DRIVER, NAMESPACE, FakeNode, make_claim, make_pod

ALL = PodResourcesGates()


def _view(pod: Pod, node: FakeNode, gates: PodResourcesGates) -> PodResourcesView:
    return view_pod(pod, collect_resources(pod, node, gates), gates)


def _claims(node: FakeNode, place: int = 0, gates: PodResourcesGates = ALL) -> list[v1.DynamicResource]:
    return list(build_pod_message(_view(node.known[0], node, gates)).containers[place].dynamic_resources)


def test_each_device_has_its_own_cdi_ids() -> None:
    node = FakeNode()
    node.add(make_pod("p", {"app": ["a"]}))
    first = PreparedDevice("pool", "gpu-0", cdi=("x/gpu=0", "x/common=all"))
    second = PreparedDevice("pool", "gpu-1", cdi=("x/gpu=1",))
    ref = ClaimRef(NAMESPACE, "a", "uid-a")
    node.prepare(ClaimInfo(ref, drivers={"z.example": (PreparedDevice("p", "d"),), DRIVER: (first, second)}))
    (claim,) = _claims(node)
    assert [
        (r.driver_name, r.device_name, [c.name for c in r.cdi_devices]) for r in claim.claim_resources
    ] == [
        (DRIVER, "gpu-0", ["x/gpu=0", "x/common=all"]),
        (DRIVER, "gpu-1", ["x/gpu=1"]),
        ("z.example", "d", []),
    ]


def test_claims_come_in_the_order_of_the_pod_not_of_the_container() -> None:
    node = FakeNode()
    node.add(make_pod("p", {"one": ["b", "a"], "two": ["c", "a", "b"]}))
    for name in "abc":
        node.prepare(make_claim(name))
    assert [c.claim_name for c in _claims(node, 1)] == ["b", "a", "c"]


def test_one_unknown_claim_hides_all_claims_of_a_container() -> None:
    node = FakeNode()
    node.add(make_pod("p", {"one": ["a"], "two": ["a", "b"]}))
    node.prepare(make_claim("a"))
    assert [c.claim_name for c in _claims(node, 0)] == ["a"]
    assert _claims(node, 1) == []


def test_a_claim_is_listed_before_its_driver_has_answered() -> None:
    node = FakeNode()
    node.add(make_pod("p", {"app": ["a"]}))
    node.prepare(ClaimInfo(ClaimRef(NAMESPACE, "a", "u"), drivers={DRIVER: ()}))
    (claim,) = _claims(node)
    assert (claim.claim_name, list(claim.claim_resources)) == ("a", [])


def test_claims_from_templates() -> None:
    entries = [
        {"name": "t", "resourceClaimTemplateName": "x"},
        {"name": "u", "resourceClaimTemplateName": "x"},
    ]
    made = {"name": "t", "resourceClaimName": "p-t-1"}
    pod = make_pod("p", {"app": ["t", "u"]}, claims=entries, status={"resourceClaimStatuses": [made]})
    assert claim_names(pod, pod.spec.containers[0]) is None, "the claim of u is still to be made"
    statuses = {"resourceClaimStatuses": [made, {"name": "u"}]}
    pod = make_pod("p", {"app": ["t", "u"]}, claims=entries, status=statuses)
    assert claim_names(pod, pod.spec.containers[0]) == ("p-t-1",), "u asks for nothing"
    node = FakeNode()
    node.add(pod)
    assert _claims(node) == []
    node.prepare(make_claim("p-t-1"))
    assert [c.claim_name for c in _claims(node)] == ["p-t-1"]


def test_the_claim_of_extended_resources_comes_last() -> None:
    mapping = {"containerName": "one", "resourceName": "example.com/gpu", "requestName": "c0r0"}
    status = {"extendedResourceClaimStatus": {"requestMappings": [mapping], "resourceClaimName": "a-ext"}}
    node = FakeNode()
    node.add(make_pod("p", {"one": ["b"], "two": ["b"]}, status=status))
    for name in ("a-ext", "b"):
        node.prepare(make_claim(name))
    assert [c.claim_name for c in _claims(node, 0)] == ["b", "a-ext"]
    assert [c.claim_name for c in _claims(node, 1)] == ["b"]
    assert [c.claim_name for c in _claims(node, 0, PodResourcesGates(extended=False))] == ["b"]


def test_cpus_of_the_pod_are_listed_once() -> None:
    node = FakeNode()
    pod = node.add(make_pod("p"))
    node.pod_cpus[pod.metadata.uid] = (4, 5)
    message = build_pod_message(_view(pod, node, ALL))
    assert list(message.cpu_ids) == [4, 5]
    assert list(message.containers[0].cpu_ids) == []


def test_numbers_beyond_int64_are_left_out() -> None:
    message = build_allocatable_message(Allocatable((1, 2**70), (MemoryBlock("memory", -1, (2**64,)),)))
    assert list(message.cpu_ids) == [1]
    assert message.memory[0].size == 0
    assert not message.memory[0].topology.nodes
