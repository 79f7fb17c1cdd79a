"""Detection of every kind of violation in broken clusters."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from fractions import Fraction

import pytest

from tests.chaos.sample_cluster import find_claim, healthy, sample_claim, sample_pod
from tests.chaos.scheduler_faults.invariants import Rule, find_leaks, find_violations
from tests.chaos.scheduler_faults.objects import ClusterObjects, Tree, pod_requests
from tests.chaos.scheduler_faults.quantities import parse_quantity


def test_a_healthy_cluster_has_no_violations() -> None:
    assert find_violations(healthy()) == []
    assert find_leaks(healthy()) == []


# -- violations at any time


def _twice(objects: ClusterObjects) -> None:
    objects.claims.append(sample_claim("again", "plain", "d0", "p1"))


def _same_share(objects: ClusterObjects) -> None:
    find_claim(objects, "share-b")["status"]["allocation"]["devices"]["results"][0]["shareID"] = "a"


def _unknown_device(objects: ClusterObjects) -> None:
    objects.claims.append(sample_claim("unknown", "plain", "d7", "p1"))


def _old_generation(objects: ClusterObjects) -> None:
    newer = copy.deepcopy(objects.slices[0])
    newer["spec"]["pool"]["generation"] = 3
    newer["spec"]["devices"] = [{"name": "d1"}]
    objects.slices.append(newer)


def _too_much_capacity(objects: ClusterObjects) -> None:
    more = sample_claim("share-c", "share", "s0", "p1", shareID="c", consumedCapacity={"units": "1"})
    objects.claims.append(more)


def _too_many_counters(objects: ClusterObjects) -> None:
    objects.claims.append(sample_claim("half-c", "part", "half-2", "p1"))


def _too_many_pods(objects: ClusterObjects) -> None:
    objects.pods.append(sample_pod("p4", cpu="0"))
    del objects.pods[-1]["spec"]["containers"][0]["resources"]


def _too_much_cpu(objects: ClusterObjects) -> None:
    objects.pods[0]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1001m"


def _too_much_by_charges(objects: ClusterObjects) -> None:
    device = objects.slices[2]["spec"]["devices"][0]
    device["nodeAllocatableResourceMappings"]["cpu"]["allocationMultiplier"] = "2001m"
    entry = objects.pods[3]["status"]["nodeAllocatableResourceClaimStatuses"][0]
    entry["resources"]["cpu"] = "2001m"


def _too_many_extended(objects: ClusterObjects) -> None:
    objects.pods[0]["spec"]["containers"][0]["resources"]["requests"]["example.com/w"] = "2"


def _init_container_too_large(objects: ClusterObjects) -> None:
    init = {"name": "init", "resources": {"requests": {"cpu": "1500m"}}}
    objects.pods[0]["spec"]["initContainers"] = [init]


def _no_claim(objects: ClusterObjects) -> None:
    objects.claims.remove(find_claim(objects, "half-a"))


def _not_generated(objects: ClusterObjects) -> None:
    objects.pods[0]["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": "t"}]


def _not_allocated(objects: ClusterObjects) -> None:
    del find_claim(objects, "half-a")["status"]["allocation"]


def _not_reserved(objects: ClusterObjects) -> None:
    find_claim(objects, "plain")["status"]["reservedFor"].pop()


def _reserved_for_a_namesake(objects: ClusterObjects) -> None:
    find_claim(objects, "half-a")["status"]["reservedFor"][0]["uid"] = "uid-of-an-earlier-p1"


def _elsewhere(objects: ClusterObjects) -> None:
    objects.pods[0]["spec"]["nodeName"] = "n2"


def _not_recorded(objects: ClusterObjects) -> None:
    del objects.pods[3]["status"]["nodeAllocatableResourceClaimStatuses"]


BROKEN: list[tuple[Callable[[ClusterObjects], None], Rule]] = [
    (_twice, Rule.DEVICE_ALLOCATED_TWICE),
    (_same_share, Rule.DEVICE_ALLOCATED_TWICE),
    (_unknown_device, Rule.DEVICE_NOT_PUBLISHED),
    (_old_generation, Rule.DEVICE_NOT_PUBLISHED),
    (_too_much_capacity, Rule.CAPACITY_EXCEEDED),
    (_too_many_counters, Rule.COUNTER_EXCEEDED),
    (_too_many_pods, Rule.NODE_OVERCOMMITTED),
    (_too_much_cpu, Rule.NODE_OVERCOMMITTED),
    (_too_much_by_charges, Rule.NODE_OVERCOMMITTED),
    (_too_many_extended, Rule.NODE_OVERCOMMITTED),
    (_init_container_too_large, Rule.NODE_OVERCOMMITTED),
    (_no_claim, Rule.CLAIM_MISSING),
    (_not_generated, Rule.CLAIM_MISSING),
    (_not_allocated, Rule.CLAIM_NOT_ALLOCATED),
    (_not_reserved, Rule.CLAIM_NOT_RESERVED),
    (_reserved_for_a_namesake, Rule.CLAIM_NOT_RESERVED),
    (_elsewhere, Rule.DEVICE_NOT_ON_NODE),
    (_not_recorded, Rule.CHARGES_NOT_RECORDED),
]


@pytest.mark.parametrize(("damage", "rule"), BROKEN, ids=lambda each: getattr(each, "__name__", None))
def test_a_broken_cluster_is_found(damage: Callable[[ClusterObjects], None], rule: Rule) -> None:
    objects = healthy()
    damage(objects)
    assert [violation.rule for violation in find_violations(objects)] == [rule]


def test_administrative_access_does_not_count() -> None:
    objects = healthy()
    objects.claims.append(sample_claim("monitor", "plain", "d0", "p1", adminAccess=True))
    assert find_violations(objects) == []


def test_finished_pods_hold_nothing() -> None:
    objects = healthy()
    for claim in objects.claims:
        claim["status"] = {}
    for pod in objects.pods:
        pod["status"]["phase"] = "Succeeded"
    objects.pods.append(sample_pod("p4", cpu="6"))
    assert find_violations(objects) == []


def test_devices_of_all_nodes_and_of_selected_nodes() -> None:
    objects = healthy()
    _elsewhere(objects)
    del objects.slices[0]["spec"]["nodeName"]
    objects.slices[0]["spec"]["allNodes"] = True
    assert find_violations(objects) == []
    del objects.slices[0]["spec"]["allNodes"]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    objects.slices[0]["spec"]["nodeSelector"] = selector
    assert find_violations(objects) == []
    field["values"] = ["n1"]
    assert [each.rule for each in find_violations(objects)] == [Rule.DEVICE_NOT_ON_NODE]


def test_charges_of_a_class_and_in_an_annotation() -> None:
    objects = healthy()
    del objects.slices[2]["spec"]["devices"][0]["nodeAllocatableResourceMappings"]
    rules = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
    annotations = {"plimsoll.dev/node-allocatable": json.dumps(rules)}
    objects.classes = [{"metadata": {"name": "cores", "annotations": annotations}}]
    entries = objects.pods[3]["status"].pop("nodeAllocatableResourceClaimStatuses")
    assert [each.rule for each in find_violations(objects)] == [Rule.CHARGES_NOT_RECORDED]
    objects.pods[3]["metadata"]["annotations"] = {"plimsoll.dev/claim-charges": json.dumps(entries)}
    assert find_violations(objects) == []


# -- leaks


def _gone(objects: ClusterObjects) -> None:
    objects.pods = [pod for pod in objects.pods if pod["metadata"]["name"] != "p0"]


def _finished(objects: ClusterObjects) -> None:
    objects.pods[0]["status"]["phase"] = "Failed"


def _unused(objects: ClusterObjects) -> None:
    del find_claim(objects, "half-a")["status"]["reservedFor"]


def _orphaned(objects: ClusterObjects) -> None:
    owner = {"kind": "Pod", "name": "p9", "uid": "uid-p9"}
    find_claim(objects, "half-a")["metadata"]["ownerReferences"] = [owner]


def _blocked(objects: ClusterObjects) -> None:
    claim = find_claim(objects, "half-a")
    claim["status"] = {}
    claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


LEAKS: list[tuple[Callable[[ClusterObjects], None], Rule]] = [
    (_gone, Rule.STALE_RESERVATION),
    (_finished, Rule.STALE_RESERVATION),
    (_unused, Rule.ALLOCATION_UNUSED),
    (_orphaned, Rule.CLAIM_ORPHANED),
    (_blocked, Rule.DELETION_BLOCKED),
]


@pytest.mark.parametrize(("damage", "rule"), LEAKS, ids=lambda each: getattr(each, "__name__", None))
def test_a_leak_is_found(damage: Callable[[ClusterObjects], None], rule: Rule) -> None:
    objects = healthy()
    damage(objects)
    assert [violation.rule for violation in find_leaks(objects)] == [rule]


# -- sums


def test_quantities_are_exact() -> None:
    for text, value in (
        ("100m", "1/10"),
        ("2", "2"),
        ("1.5Gi", "1610612736"),
        ("3k", "3000"),
        ("5n", "5e-9"),
    ):
        assert parse_quantity(text) == Fraction(value)
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity("1Xi")


def test_init_containers_and_sidecars_count_as_kubernetes_counts_them() -> None:
    def container(cpu: str, **more: str) -> Tree:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec: Tree = {"containers": [container("1"), container("2")], "overhead": {"cpu": "100m"}}
    assert pod_requests({"spec": spec})["cpu"] == Fraction("3.1")
    spec["initContainers"] = [container("1", restartPolicy="Always"), container("4")]
    assert pod_requests({"spec": spec})["cpu"] == Fraction("5.1")
    spec["resources"] = {"requests": {"cpu": "7"}}
    assert pod_requests({"spec": spec})["cpu"] == Fraction("7.1")
