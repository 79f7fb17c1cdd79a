"""Faults planted into a cluster without findings: each is found, once, with its numbers, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from plimsoll.tools.findings import Finding, Severity
from plimsoll.tools.top.claims import claim_rows
from plimsoll.tools.top.nodes import holders, node_rows
from tests.unit.tools.audit.build import (
    DRIVER,
    Tree,
    claim,
    cluster_state,
    cpus,
    device,
    device_class,
    node,
    numa,
    pod,
    report_on,
    result,
    share,
    slice_of,
)

KEY = "dra.cpu/cpu"


class Cluster:
    """Two nodes with CPUs and GPUs, and pods with claims of every kind; objects by kind and name."""

    def __init__(self, *faults: Callable[[Cluster], None]) -> None:
        self.objects = {(tree["kind"], tree["metadata"]["name"]): tree for tree in deepcopy([*healthy()])}
        for plant in faults:
            plant(self)

    def claim(self, name: str) -> Tree:
        return self.objects["ResourceClaim", name]

    def results(self, name: str) -> list[Tree]:
        found: list[Tree] = self.claim(name)["status"]["allocation"]["devices"]["results"]
        return found

    def request(self, name: str) -> Tree:
        found: Tree = self.claim(name)["spec"]["devices"]["requests"][0]
        return found

    def pod(self, name: str) -> Tree:
        return self.objects["Pod", name]

    def add(self, *trees: Tree) -> None:
        self.objects.update({(tree["kind"], tree["metadata"]["name"]): tree for tree in trees})

    def findings(self) -> tuple[Finding, ...]:
        return report_on(*self.objects.values()).findings


def healthy() -> Iterator[Tree]:
    yield device_class("cpu", "dra.cpu")
    yield device_class("gpu", DRIVER)
    for name in ("n1", "n2"):
        yield node(name, "16")
        policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        capacity = {KEY: {"value": "16", "requestPolicy": policy}}
        yield slice_of(cpus(16) | {"capacity": capacity}, driver="dra.cpu", pool=name, on=name)
        gpus = [device(f"{name}-g{i}", attributes=numa(0) | model(i) | board(0)) for i in range(40)]
        yield slice_of(*gpus, pool=name, on=name)
    exclusive = claim("cpus", share("4"), pods=["solver"], klass="cpu")
    yield exclusive
    yield pod("solver", "1", claims=["cpus"], charges={"cpus": {"cpu": "4"}})
    pair = claim("pair", gpu(0), gpu(1), pods=["trainer"], klass="gpu")
    pair["spec"]["devices"]["constraints"] = [
        {"matchAttribute": f"{DRIVER}/board"},
        {"distinctAttribute": f"{DRIVER}/model", "requests": ["r"]},
    ]
    exactly(pair)["selectors"] = [{"cel": {"expression": f'device.attributes["{DRIVER}"].model < 2'}}]
    yield pair
    yield pod("trainer", "1", claims=["pair"])
    within = claim("within", share("2", "t"), pods=["budget"], klass="cpu")
    yield within
    yield pod(
        "budget",
        "3",
        claims=["within"],
        charges={"within": {"cpu": "2"}},
        resources={"requests": {"cpu": "5"}},
    )


def exactly(tree: Tree) -> Tree:
    found: Tree = tree["spec"]["devices"]["requests"][0]["exactly"]
    return found


def board(number: int) -> Tree:
    return {"board": {"int": number}}


def model(number: int) -> Tree:
    return {"model": {"int": number}}


def gpu(number: int, on: str = "n1", **body: Any) -> Tree:
    return result(f"{on}-g{number}", DRIVER, on, **body)


def many_gpus(count: int) -> Tree:
    return claim("many", *(gpu(number, "n2") for number in range(count)), pods=["big"], on="n2", klass="gpu")


# -- the faults


def share_a_charging_claim(cluster: Cluster) -> None:
    cluster.add(pod("second", "1", claims=["cpus"], charges={"cpus": {"cpu": "4"}}))
    reserved = cluster.claim("cpus")["status"]["reservedFor"]
    reserved.append({"resource": "pods", "name": "second", "uid": "pod-second"})


def allocate_a_device_of_another_node(cluster: Cluster) -> None:
    cluster.results("pair")[1] |= {"pool": "n2", "device": "n2-g1"}


def allocate_a_device_of_another_node_without_pods(cluster: Cluster) -> None:
    allocate_a_device_of_another_node(cluster)
    cluster.pod("trainer")["metadata"]["name"] = "other"
    del cluster.pod("trainer")["spec"]["resourceClaims"]
    del cluster.pod("trainer")["spec"]["containers"][0]["resources"]["claims"]
    cluster.claim("pair")["status"]["reservedFor"] = []
    cluster.claim("pair")["status"]["allocation"]["allocationTimestamp"] = "2026-11-15T00:59:00Z"


def advertise_cpus_by_a_device_plugin(cluster: Cluster) -> None:
    cluster.objects["DeviceClass", "cpu"]["spec"]["extendedResourceName"] = "acme.com/cpu"
    cluster.objects["Node", "n1"]["status"]["allocatable"]["acme.com/cpu"] = "16"


def use_the_device_plugin_beside_claims(cluster: Cluster) -> None:
    advertise_cpus_by_a_device_plugin(cluster)
    cluster.add(pod("plugged", "1"))
    cluster.pod("plugged")["spec"]["containers"][0]["resources"]["requests"]["acme.com/cpu"] = "1"


def shrink_the_pod_level_request(cluster: Cluster) -> None:
    cluster.pod("budget")["spec"]["resources"]["requests"]["cpu"] = "3500m"


def consume_less_than_requested(cluster: Cluster) -> None:
    cluster.results("cpus")[0]["consumedCapacity"][KEY] = "3"
    cluster.pod("solver")["status"]["nodeAllocatableResourceClaimStatuses"][0]["resources"]["cpu"] = "3"


def consume_less_than_the_policy_demands(cluster: Cluster) -> None:
    exactly(cluster.claim("cpus"))["capacity"] = {"requests": {KEY: "500m"}}
    cluster.results("cpus")[0]["consumedCapacity"][KEY] = "500m"
    cluster.pod("solver")["status"]["nodeAllocatableResourceClaimStatuses"][0]["resources"]["cpu"] = "500m"


def consume_less_than_the_default(cluster: Cluster) -> None:
    del exactly(cluster.claim("within"))["capacity"]
    cluster.results("within")[0]["consumedCapacity"] = {}
    cluster.pod("budget")["status"]["nodeAllocatableResourceClaimStatuses"][0]["resources"]["cpu"] = "0"


def break_match_attribute(cluster: Cluster) -> None:
    for tree in cluster.objects["ResourceSlice", f"{DRIVER}-n1-1"]["spec"]["devices"][1:]:
        tree["attributes"] |= board(1)


def break_distinct_attribute(cluster: Cluster) -> None:
    for tree in cluster.objects["ResourceSlice", f"{DRIVER}-n1-1"]["spec"]["devices"]:
        tree["attributes"] |= model(0)


def drop_a_matched_attribute(cluster: Cluster) -> None:
    constraint = cluster.claim("pair")["spec"]["devices"]["constraints"][0]
    constraint["matchAttribute"] = f"{DRIVER}/missing"


def break_the_selector_of_the_request(cluster: Cluster) -> None:
    cluster.results("pair")[1]["device"] = "n1-g2"


def break_the_selector_of_the_class(cluster: Cluster) -> None:
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].model == 0'
    cluster.objects["DeviceClass", "gpu"]["spec"]["selectors"][0]["cel"]["expression"] = expression


def allocate_too_few(cluster: Cluster) -> None:
    exactly(cluster.claim("pair"))["count"] = 3


def allocate_too_many(cluster: Cluster) -> None:
    exactly(cluster.claim("pair"))["count"] = 1


def allocate_for_an_unknown_request(cluster: Cluster) -> None:
    cluster.results("pair").append(gpu(5, request="other"))
    cluster.claim("pair")["spec"]["devices"]["constraints"] = [
        {"matchAttribute": "resource.kubernetes.io/numaNode"}
    ]


def allocate_two_alternatives(cluster: Cluster) -> None:
    body = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    request = {"name": "r", "firstAvailable": [body | {"name": "a"}, body | {"name": "b"}]}
    cluster.claim("pair")["spec"]["devices"] = {"requests": [request]}
    for tree, name in zip(cluster.results("pair"), "ab", strict=True):
        tree["request"] = f"r/{name}"


def allocate(count: int) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        cluster.add(many_gpus(count), pod("big", "1", claims=["many"], on="n2"))

    return plant


def request(count: int) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        tree = claim("wanted", klass="gpu")
        exactly(tree)["count"] = count
        cluster.add(tree)

    return plant


def request_all(cluster: Cluster) -> None:
    tree = claim("wanted", klass="gpu")
    tree["spec"]["devices"]["requests"][0]["exactly"] = {"deviceClassName": "gpu", "allocationMode": "All"}
    cluster.add(tree)


def reserve(count: int) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        names = [f"user-{number}" for number in range(count)]
        cluster.add(claim("many", gpu(3), pods=names, klass="gpu"))
        cluster.add(*(pod(name, "", claims=["many"]) for name in names))
        cluster.objects["Node", "n1"]["status"]["allocatable"]["pods"] = "1000"

    return plant


def overload_a_node(cluster: Cluster) -> None:
    cluster.add(pod("web", "13350m"))


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO
FAULTS: dict[str, tuple[Callable[[Cluster], None], str, Severity, str, str]] = {
    "shared claim": (
        share_a_charging_claim, "PLM046", ERROR, "ResourceClaim/work/cpus",
        "charges cpu 4 to n1 and is used by 2 pods, 1 over: a claim that charges its node can be used by 1",
    ),
    "other node": (
        allocate_a_device_of_another_node, "PLM034", ERROR, "ResourceClaim/work/pair",
        "holds 1 device that node n1 cannot use: n2-g1",
    ),
    "advertised twice": (
        advertise_cpus_by_a_device_plugin, "PLM035", WARNING, "Node/n1",
        "advertises acme.com/cpu (16) and 1 device of dra.cpu",
    ),
    "used both ways": (
        use_the_device_plugin_beside_claims, "PLM035", ERROR, "Node/n1",
        "advertises acme.com/cpu (16) and 1 device of dra.cpu, and both are in use: by 1 pod and as 2 "
        "allocated devices; which units the pods have is not in the API, so one may be given out twice",
    ),
    "pod-level request": (
        shrink_the_pod_level_request, "PLM009", ERROR, "Pod/work/budget",
        "cpu: its containers and claims need 5, the pod-level request is 3.5: 1.5 over",
    ),
    "consumed below requested": (
        consume_less_than_requested, "PLM033", ERROR, "ResourceClaim/work/cpus",
        f"consumes 3 of capacity {KEY} of device cpus, but needs 4 (requested): 1 missing",
    ),
    "consumed below the rounded request": (
        consume_less_than_the_policy_demands, "PLM033", WARNING, "ResourceClaim/work/cpus",
        f"consumes 0.5 of capacity {KEY} of device cpus, but needs 1 (0.5 requested, rounded by the "
        "policy): 0.5 missing",
    ),
    "matchAttribute": (
        break_match_attribute, "PLM032", ERROR, "ResourceClaim/work/pair",
        "violates constraint 0 (matchAttribute gpu.example.com/board): "
        "2 devices with 2 different values instead of 1 in common",
    ),
    "distinctAttribute": (
        break_distinct_attribute, "PLM032", ERROR, "ResourceClaim/work/pair",
        f"violates constraint 1 (distinctAttribute {DRIVER}/model): 2 devices with only 1 different value",
    ),
    "attribute not set": (
        drop_a_matched_attribute, "PLM032", ERROR, "ResourceClaim/work/pair",
        f"violates constraint 0 (matchAttribute {DRIVER}/missing): 2 of 2 devices without the attribute",
    ),
    "request selector": (
        break_the_selector_of_the_request, "PLM031", ERROR, "ResourceClaim/work/pair",
        "holds device n1-g2 for request r, but selector 0 of request r does not match it",
    ),
    "class selector": (
        break_the_selector_of_the_class, "PLM031", WARNING, "ResourceClaim/work/pair",
        "holds device n1-g1 for request r, but selector 0 of class gpu does not match it",
    ),
    "too few devices": (
        allocate_too_few, "PLM030", ERROR, "ResourceClaim/work/pair",
        "holds 2 devices for request r of 3: 1 missing",
    ),
    "too many devices": (
        allocate_too_many, "PLM030", ERROR, "ResourceClaim/work/pair",
        "holds 2 devices for request r of 1: 1 over",
    ),
    "unknown request": (
        allocate_for_an_unknown_request, "PLM030", ERROR, "ResourceClaim/work/pair",
        "holds 1 device for request other, which it does not have",
    ),
    "two alternatives": (
        allocate_two_alternatives, "PLM030", ERROR, "ResourceClaim/work/pair",
        "holds devices of r/a and r/b: request r can be served by one of them",
    ),
    "32 devices": (
        allocate(32), "PLM045", INFO, "ResourceClaim/work/many", "holds 32 of at most 32 devices",
    ),
    "33 devices": (
        allocate(33), "PLM045", ERROR, "ResourceClaim/work/many",
        "holds 33 of at most 32 devices, 1 over: no API server stores such an allocation",
    ),
    "32 devices requested": (
        request(32), "PLM045", INFO, "ResourceClaim/work/wanted", "requests 32 of at most 32 devices",
    ),
    "33 devices requested": (
        request(33), "PLM045", WARNING, "ResourceClaim/work/wanted",
        "requests 33 of at most 32 devices, 1 over: it cannot be allocated",
    ),
    "all devices requested": (
        request_all, "PLM045", WARNING, "ResourceClaim/work/wanted",
        "requests 40 of at most 32 devices, 8 over: it cannot be allocated on every node",
    ),
    "256 reservations": (
        reserve(256), "PLM045", WARNING, "ResourceClaim/work/many", "is reserved for 256 of at most 256 pods",
    ),
    "257 reservations": (
        reserve(257), "PLM045", ERROR, "ResourceClaim/work/many",
        "is reserved for 257 of at most 256 pods, 1 over",
    ),
    "past the line": (
        overload_a_node, "PLM001", ERROR, "Node/n1", "cpu: 24.35 charged, 16 allocatable, 8.35 over",
    ),
}  # fmt: skip


def test_the_cluster_without_faults_has_no_findings() -> None:
    assert Cluster().findings() == ()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_the_only_finding(fault: str) -> None:
    plant, id, severity, subject, message = FAULTS[fault]
    (finding,) = Cluster(plant).findings()
    found = (finding.id, finding.severity, finding.subject, finding.message)
    assert found == (id, severity, subject, message)


def test_a_share_below_the_default_of_its_device() -> None:
    """A capacity that is not requested is consumed by the default of the request policy."""
    findings = Cluster(consume_less_than_the_default).findings()
    found = {finding.id: finding.message for finding in findings}
    assert found["PLM033"].endswith("but needs 1 (the default of the device): 1 missing")


def test_a_claim_of_two_pods_is_counted_once_by_top() -> None:
    cluster = Cluster()
    before = node_rows(cluster_state(cluster.objects.values()))[0].row("cpu")
    share_a_charging_claim(cluster)
    state = cluster_state(cluster.objects.values())
    after = node_rows(state)[0].row("cpu")
    assert (after.requests, after.claims) == (before.requests + 1000, before.claims)
    shared = [
        (each.amount, each.rule, each.pod) for each in holders(state, "n1", "cpu") if each.claim == "cpus"
    ]
    assert shared == [(4000, "AddPerClaim", "second"), (4000, "AddPerClaim", "solver"), (-4000, "shared", "")]
    (row,) = [row for row in claim_rows(state) if row.claim == "cpus"]
    assert [(charge.amount, charge.rule) for charge in row.charges] == [(4000, "AddPerClaim")]


def test_pods_of_two_nodes_on_one_claim() -> None:
    cluster = Cluster(share_a_charging_claim)
    cluster.pod("second")["spec"]["nodeName"] = "n2"
    found = {finding.id: finding.message for finding in cluster.findings()}
    assert found["PLM046"].startswith("charges cpu 4 to n1 and n2 and is used by 2 pods, 1 over")


def test_a_policy_that_defines_sharing_is_no_fault() -> None:
    cluster = Cluster(share_a_charging_claim)
    for name in ("solver", "second"):
        for entry in cluster.pod(name)["status"]["nodeAllocatableResourceClaimStatuses"]:
            entry["accountingPolicies"] = {"cpu": "AddPerReference"}
    for slice in ("dra.cpu-n1-1", "dra.cpu-n2-1"):
        mapping = cluster.objects["ResourceSlice", slice]["spec"]["devices"][0][
            "nodeAllocatableResourceMappings"
        ]
        mapping["cpu"]["accountingPolicy"] = "AddPerReference"
    assert [finding for finding in cluster.findings() if finding.id == "PLM046"] == []


def test_an_allocation_for_a_node_without_the_device() -> None:
    """Also while no pod uses the claim: the node that the allocation names counts."""
    findings = Cluster(allocate_a_device_of_another_node_without_pods).findings()
    (finding,) = [each for each in findings if each.id == "PLM034"]
    assert finding.evidence == (f"device {DRIVER}/n2/n2-g1 is on node n2",)
