"""Quotas: usage of objects, plan and controller."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import PodStatus
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Quantity
from plimsoll.api.quota import CountedService, CountedVolumeClaim, ResourceQuota
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
)
from plimsoll.controllers.actions import EMPTY_PLAN, PatchAction
from plimsoll.controllers.quota.usage import ExtendedResourceNames
from plimsoll.controllers.resource_quota import NamespaceObjects, measure, plan_quota
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario
from tests.unit.controllers.makers import claim_tree, metadata, owner, pod, view

ONLY = ["resourcequota-controller"]
AT = 1735689600.0  # 2025-01-01T00:00:00Z


def quota(*hard: str, scopes: Any = (), selector: Any = None, **status: Any) -> ResourceQuota:
    spec: dict[str, Any] = {"hard": dict.fromkeys(hard, "100"), "scopes": list(scopes)}
    if selector is not None:
        spec["scopeSelector"] = {"matchExpressions": selector}
    return view({"metadata": metadata("q"), "spec": spec, "status": status}, ResourceQuota)


def used(of: ResourceQuota, contents: NamespaceObjects) -> dict[str, str]:
    return {name: str(amount) for name, amount in measure(of, contents, AT).items()}


def sized(name: str = "p", cpu: str = "1", memory: str = "1Gi", **fields: Any) -> Any:
    amounts = {"cpu": cpu, "memory": memory, "hugepages-2Mi": "4Mi", "example.com/gpu": "2"}
    resources = {"requests": amounts, "limits": {**amounts, "cpu": "4"}}
    container = {"name": "c", "image": "i", "resources": resources}
    spec = {"containers": [container], **fields.pop("spec", {})}
    return pod(name, spec=spec, **fields)


# -- pods


def charged(name: str, *entries: Any, **fields: Any) -> Any:
    found = sized(name, **fields)
    status = codec.convert({"nodeAllocatableResourceClaimStatuses": list(entries)}, PodStatus)
    return msgspec.structs.replace(found, status=status)


def test_quotas_count_what_claims_charge() -> None:
    entry = {"resourceClaimName": "x", "containers": ["c"]}
    amounts = {"cpu": "2", "memory": "3Gi", "hugepages-2Mi": "8Mi"}
    pods = [charged("p", {**entry, "resources": amounts}), sized("q")]
    of = quota("requests.cpu", "cpu", "requests.memory", "requests.hugepages-2Mi", "limits.cpu", "pods")
    on, off = (
        used(of, NamespaceObjects(pods=pods, gates=Gates.of({"DRANodeAllocatableResourcesQuota": counts})))
        for counts in (True, False)
    )
    assert on == {
        "requests.cpu": "4",
        "cpu": "4",
        "requests.memory": "5Gi",
        "requests.hugepages-2Mi": "16Mi",
        "limits.cpu": "10",
        "pods": "2",
    }
    assert (off["requests.cpu"], off["requests.memory"], off["limits.cpu"]) == ("2", "2Gi", "8")


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_pool_counts_once_for_all_its_pods(number: int) -> None:
    pool = {
        "resourceClaimName": "x",
        "containers": ["c"],
        "resources": {"cpu": "20"},
        "accountingPolicies": {"cpu": "ConsumeFrom"},
        "drawn": {"cpu": "1"},
    }
    pods = [charged(f"p{i}", pool) for i in range(number)]
    gates = Gates.of({"DRANodeAllocatableResourcesQuota": True})
    assert used(quota("requests.cpu"), NamespaceObjects(pods=pods, gates=gates)) == {"requests.cpu": "20"}
    replace = msgspec.structs.replace
    ended = [replace(each, status=replace(each.status, phase="Failed")) for each in pods]
    rest = NamespaceObjects(pods=[*ended, charged("z", pool)], gates=gates)
    assert used(quota("requests.cpu"), rest) == {"requests.cpu": "20"}, "the first that is left counts"


def test_pods_count_by_requests_and_limits() -> None:
    names = (
        *("pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "memory", "limits.memory"),
        *(
            "hugepages-2Mi",
            "requests.hugepages-2Mi",
            "requests.example.com/gpu",
            "requests.ephemeral-storage",
        ),
    )
    assert used(quota(*names), NamespaceObjects(pods=[sized("p"), sized("q", cpu="500m")])) == {
        "pods": "2",
        "count/pods": "2",
        "cpu": "1500m",
        "requests.cpu": "1500m",
        "limits.cpu": "8",
        "memory": "2Gi",
        "limits.memory": "2Gi",
        "hugepages-2Mi": "8Mi",
        "requests.hugepages-2Mi": "8Mi",
        "requests.example.com/gpu": "4",
        "requests.ephemeral-storage": "0",
    }


def test_resources_outside_the_quota_are_not_reported() -> None:
    assert used(quota("pods"), NamespaceObjects(pods=[sized()])) == {"pods": "1"}
    assert used(quota("example.com/unheard-of"), NamespaceObjects(pods=[sized()])) == {}


def test_finished_pods_only_count_as_objects() -> None:
    of = quota("pods", "count/pods", "cpu")
    for phase in ("Succeeded", "Failed"):
        assert used(of, NamespaceObjects(pods=[sized(phase=phase)])) == {
            "pods": "0",
            "count/pods": "1",
            "cpu": "0",
        }


def test_a_pod_past_its_grace_period_only_counts_as_an_object() -> None:
    def ending(deleted: str) -> Any:
        return sized(deletionTimestamp=deleted, deletionGracePeriodSeconds=30)

    assert used(quota("pods"), NamespaceObjects(pods=[ending("2024-12-31T23:59:30Z")])) == {"pods": "1"}
    assert used(quota("pods"), NamespaceObjects(pods=[ending("2024-12-31T23:59:29Z")])) == {"pods": "0"}


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        ("Terminating", "deadline"),
        ("NotTerminating", "best, class, far, wide"),
        ("BestEffort", "best"),
        ("NotBestEffort", "class, deadline, far, wide"),
        ("PriorityClass", "class"),
        ("CrossNamespacePodAffinity", "far, wide"),
        ("Unheard", ""),
    ],
)
def test_scopes(scope: str, names: str) -> None:
    term = {"topologyKey": "zone", "namespaces": ["elsewhere"]}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    preferred = {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "namespaceSelector": {}}}
    wide = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}}
    pods = {
        "best": pod("best"),
        "class": sized("class", spec={"priorityClassName": "high"}),
        "deadline": sized("deadline", spec={"activeDeadlineSeconds": 0}),
        "far": sized("far", spec={"affinity": affinity}),
        "wide": sized("wide", spec={"affinity": wide}),
    }
    matching = [
        name
        for name, item in pods.items()
        if used(quota("pods", scopes=[scope]), NamespaceObjects(pods=[item])) == {"pods": "1"}
    ]
    assert ", ".join(matching) == names


@pytest.mark.parametrize(
    ("operator", "values", "names"),
    [
        ("In", ["high"], ["high"]),
        ("NotIn", ["high"], ["none", "low"]),
        ("Exists", [], ["high", "low"]),
        ("DoesNotExist", [], ["none"]),
    ],
)
def test_priority_classes_select(operator: str, values: list[str], names: list[str]) -> None:
    of = quota("pods", selector=[{"scopeName": "PriorityClass", "operator": operator, "values": values}])
    pods = {
        "none": pod("none"),
        "high": pod("high", spec={"priorityClassName": "high"}),
        "low": pod("low", spec={"priorityClassName": "low"}),
    }
    matching = [
        name for name, item in pods.items() if used(of, NamespaceObjects(pods=[item])) == {"pods": "1"}
    ]
    assert sorted(matching) == sorted(names)


# -- claims


def class_(name: str, extended: str = "", created: str = "2025-01-01T00:00:00Z") -> DeviceClass:
    spec = {"extendedResourceName": extended} if extended else {}
    return view({"metadata": metadata(name, "", creationTimestamp=created), "spec": spec}, DeviceClass)


def asking(
    name: str = "c", count: int = 3, of: str = "gpu", extended: bool = False, **fields: Any
) -> ResourceClaim:
    tree = claim_tree(name, **fields)
    request = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}
    tree["spec"]["devices"]["requests"] = [{"name": "r", "exactly": request}]
    if extended:
        tree["metadata"]["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        tree["metadata"]["ownerReferences"] = [owner("p", controller=True)]
    return view(tree, ResourceClaim)


def test_claims_count_by_the_devices_of_each_class() -> None:
    names = (
        "count/resourceclaims.resource.k8s.io",
        "gpu.deviceclass.resource.k8s.io/devices",
        "nic.deviceclass.resource.k8s.io/devices",
    )
    assert used(quota(*names), NamespaceObjects(claims=[asking("c"), asking("d", 2)])) == {
        names[0]: "2",
        names[1]: "5",
        names[2]: "0",
    }
    assert used(quota(*names, scopes=["BestEffort"]), NamespaceObjects(claims=[asking()])) == dict.fromkeys(
        names, "0"
    )


def test_devices_count_under_the_names_of_extended_resources_too() -> None:
    extended = ExtendedResourceNames.of([class_("gpu", "example.com/gpu"), class_("nic")])
    names = ("requests.example.com/gpu", "requests.deviceclass.resource.kubernetes.io/gpu")
    contents = NamespaceObjects(claims=[asking()], extended=extended)
    assert used(quota(*names), contents) == dict.fromkeys(names, "3")
    plain = "requests.deviceclass.resource.kubernetes.io/nic"
    contents = NamespaceObjects(claims=[asking(of="nic")], extended=extended)
    assert used(quota(plain), contents) == {plain: "3"}, "every class has that name"
    other = "requests.deviceclass.resource.kubernetes.io/none"
    contents = NamespaceObjects(claims=[asking(of="none")], extended=extended)
    assert used(quota(other), contents) == {other: "0"}, "there is no such class: only pods count"


def test_extended_resources_of_a_pod_are_not_counted_again_in_its_claim() -> None:
    extended = ExtendedResourceNames.of([class_("gpu", "example.com/gpu")])
    name = "requests.example.com/gpu"
    alone = NamespaceObjects(pods=[sized()], extended=extended)
    assert used(quota(name), alone) == {name: "2"}
    both = NamespaceObjects(pods=[sized()], claims=[asking(extended=True)], extended=extended)
    assert used(quota(name), both) == {name: "3"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "other", "requestMappings": []}}
    other = NamespaceObjects(pods=[sized(status=status)], claims=[asking(extended=True)], extended=extended)
    assert used(quota(name), other) == {name: "5"}
    plain = asking(ownerReferences=[owner("p", controller=True)])
    unrelated = NamespaceObjects(pods=[sized()], claims=[plain], extended=extended)
    assert used(quota(name), unrelated) == {name: "5"}, "not made for its extended resources"
    first = asking("a", extended=True), asking("b", extended=True)
    twice = NamespaceObjects(pods=[sized()], claims=first, extended=extended)
    assert used(quota(name), twice) == {name: "6"}, "only one of them can be the pod's"


def test_all_classes_of_a_name_count() -> None:
    extended = ExtendedResourceNames.of([class_("gpu", "example.com/gpu"), class_("old", "example.com/gpu")])
    name = "requests.example.com/gpu"
    contents = NamespaceObjects(claims=[asking("c", 3), asking("d", 2, "old")], extended=extended)
    assert used(quota(name), contents) == {name: "5"}


def test_a_claim_for_two_classes_of_one_name() -> None:
    extended = ExtendedResourceNames.of([class_("gpu", "example.com/gpu"), class_("old", "example.com/gpu")])
    tree = claim_tree()
    tree["spec"]["devices"]["requests"] = [
        {"name": of, "exactly": {"deviceClassName": of, "allocationMode": "ExactCount", "count": count}}
        for of, count in (("gpu", 2), ("old", 3))
    ]
    name = "requests.example.com/gpu"
    contents = NamespaceObjects(claims=[view(tree, ResourceClaim)], extended=extended)
    assert used(quota(name), contents) == {name: "3"}


# -- volumes, services, counts


def test_volume_claims_count_by_size_and_class() -> None:
    def volume(size: str, of: str | None = None, allocated: str = "") -> CountedVolumeClaim:
        status = {"allocatedResources": {"storage": allocated}} if allocated else {}
        spec = {"storageClassName": of, "resources": {"requests": {"storage": size}}}
        return view({"metadata": metadata("v"), "spec": spec, "status": status}, CountedVolumeClaim)

    names = (
        *("persistentvolumeclaims", "count/persistentvolumeclaims", "requests.storage"),
        "fast.storageclass.storage.k8s.io/requests.storage",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims",
    )
    volumes = [volume("1Gi"), volume("1Gi", "fast", "2Gi"), volume("500m")]
    assert used(quota(*names), NamespaceObjects(volume_claims=volumes)) == {
        "persistentvolumeclaims": "3",
        "count/persistentvolumeclaims": "3",
        "requests.storage": "3221225473",
        "fast.storageclass.storage.k8s.io/requests.storage": "2Gi",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
    }


def test_volume_claims_are_in_the_scope_of_their_attributes() -> None:
    def volume(wanted: str | None, current: str | None) -> CountedVolumeClaim:
        return view(
            {
                "metadata": metadata("v"),
                "spec": {"volumeAttributesClassName": wanted},
                "status": {"currentVolumeAttributesClassName": current},
            },
            CountedVolumeClaim,
        )

    def counted(of: ResourceQuota, item: CountedVolumeClaim) -> bool:
        return used(of, NamespaceObjects(volume_claims=[item])) == {"persistentvolumeclaims": "1"}

    any_class = quota("persistentvolumeclaims", scopes=["VolumeAttributesClass"])
    assert counted(any_class, volume("gold", None))
    assert counted(any_class, volume(None, "gold"))
    assert not counted(any_class, volume(None, None))
    gold = {"scopeName": "VolumeAttributesClass", "operator": "In", "values": ["gold"]}
    assert counted(quota("persistentvolumeclaims", selector=[gold]), volume("silver", "gold"))
    assert not counted(quota("persistentvolumeclaims", selector=[gold]), volume("silver", None))
    assert not counted(quota("persistentvolumeclaims", scopes=["BestEffort"]), volume("gold", None))


def test_services_count_by_type_and_ports() -> None:
    def service(kind: str, **fields: Any) -> CountedService:
        ports = [{"nodePort": 0}, {"nodePort": 30000}]
        return view(
            {"metadata": metadata("s"), "spec": {"type": kind, "ports": ports, **fields}}, CountedService
        )

    names = ("services", "count/services", "services.nodeports", "services.loadbalancers")
    services = [
        service("ClusterIP"),
        service("NodePort"),
        service("LoadBalancer"),
        service("LoadBalancer", allocateLoadBalancerNodePorts=False),
        service("LoadBalancer", allocateLoadBalancerNodePorts=False),
    ]
    assert used(quota(*names), NamespaceObjects(services=services)) == {
        "services": "5",
        "count/services": "5",
        "services.nodeports": "6",
        "services.loadbalancers": "3",
    }


def test_any_kind_counts_by_number() -> None:
    counts = {"configmaps": 3, "deployments.apps": 2, "pods": 9}
    names = ("configmaps", "count/configmaps", "count/deployments.apps", "deployments.apps", "count/pods")
    assert used(quota(*names), NamespaceObjects(counts=counts)) == {
        "configmaps": "3",
        "count/configmaps": "3",
        "count/deployments.apps": "2",
        "count/pods": "0",
    }
    assert used(quota("configmaps", scopes=["BestEffort"]), NamespaceObjects(counts=counts)) == {
        "configmaps": "0"
    }
    assert used(quota("count/events"), NamespaceObjects(counts={"events": 3})) == {}, "events are not counted"


# -- plans


def test_a_new_quota_gets_its_status() -> None:
    (patch,) = plan_quota(quota("pods"), NamespaceObjects(pods=[sized()]), AT).actions
    assert isinstance(patch, PatchAction)
    assert patch.patch["status"] == {"hard": {"pods": "100"}, "used": {"pods": "1"}}
    assert patch.subresource == "status"


def test_a_correct_status_is_not_written() -> None:
    known = quota("pods", hard={"pods": "100"}, used={"pods": "1"})
    assert plan_quota(known, NamespaceObjects(pods=[sized()]), AT) == EMPTY_PLAN
    assert plan_quota(known, NamespaceObjects(), AT) != EMPTY_PLAN


def test_changed_limits_are_copied_and_removed_limits_dropped() -> None:
    known = quota("pods", hard={"pods": "5", "cpu": "1"}, used={"pods": "1", "cpu": "1"})
    (patch,) = plan_quota(known, NamespaceObjects(pods=[sized()]), AT).actions
    assert isinstance(patch, PatchAction)
    assert patch.patch["status"] == {
        "hard": {"pods": "100", "cpu": None},
        "used": {"pods": "1", "cpu": None},
    }


def test_a_quota_that_was_just_charged_is_not_lowered() -> None:
    """The charged object may not be in the cache yet."""
    known = quota("pods", "cpu", hard={"pods": "100", "cpu": "100"}, used={"pods": "2", "cpu": "1"})
    contents = NamespaceObjects(pods=[sized()])
    early = plan_quota(known, contents, AT, unchanged_for=0.25)
    assert not early.actions
    assert early.requeue_after == 0.75
    assert plan_quota(known, contents, AT, unchanged_for=1.0).actions
    changed = quota("pods", hard={"pods": "5"}, used={"pods": "1"})
    assert plan_quota(changed, contents, AT, unchanged_for=0.0).actions, "nothing is lowered"
    low = quota("pods", hard={"pods": "100"}, used={"pods": "0"})
    assert plan_quota(low, contents, AT, unchanged_for=0.0).actions, "raising does no harm"


def test_unmeasurable_resources_keep_their_value() -> None:
    known = quota("odd", hard={"odd": "100"}, used={"odd": "7"})
    assert plan_quota(known, NamespaceObjects(), AT) == EMPTY_PLAN


@given(st.lists(st.tuples(st.integers(0, 2000), st.sampled_from(["Running", "Failed"])), max_size=8))
def test_usage_adds_up(shapes: list[tuple[int, str]]) -> None:
    pods = [sized(f"p{i}", cpu=f"{cpu}m", phase=phase) for i, (cpu, phase) in enumerate(shapes)]
    found = measure(quota("cpu", "pods", "count/pods"), NamespaceObjects(pods=pods), AT)
    running = [cpu for cpu, phase in shapes if phase == "Running"]
    assert found == {
        "cpu": Quantity.of(sum(running), scale=-3),
        "pods": Quantity.of(len(running)),
        "count/pods": Quantity.of(len(shapes)),
    }


# -- controller


@run_by(run_scenario, only=ONLY)
async def test_a_quota_follows_its_namespace(cluster: Cluster) -> None:
    hard = {
        "pods": "10",
        "requests.cpu": "10",
        "configmaps": "10",
        "services.nodeports": "10",
        "persistentvolumeclaims": "10",
        "gpu.deviceclass.resource.k8s.io/devices": "10",
        "requests.example.com/gpu": "10",
    }
    await cluster.client.create(RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": hard}}, "n")
    await cluster.settle()

    async def status() -> dict[str, str]:
        tree = await cluster.client.get(RESOURCE_QUOTAS, "q", "n")
        assert tree["status"]["hard"] == hard
        found: dict[str, str] = tree["status"]["used"]
        return found

    assert await status() == dict.fromkeys(hard, "0")
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}
    await cluster.client.create(
        RESOURCE_CLAIMS, {"metadata": {"name": "c"}, "spec": {"devices": devices}}, "n"
    )
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}
    await cluster.client.create(PODS, {"metadata": {"name": "p"}, "spec": {"containers": [container]}}, "n")
    await cluster.client.create(CONFIG_MAPS, {"metadata": {"name": "m"}}, "n")
    ports = [{"port": 80, "nodePort": 30080}]
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}
    await cluster.client.create(SERVICES, service, "n")
    volume = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, {"metadata": {"name": "v"}, "spec": volume}, "n")
    await cluster.settle()
    assert await status() == {
        "pods": "1",
        "requests.cpu": "250m",
        "configmaps": "1",
        "services.nodeports": "1",
        "persistentvolumeclaims": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "2",
        "requests.example.com/gpu": "0",
    }
    await cluster.client.create(
        DEVICE_CLASSES, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    )
    await cluster.settle()
    assert (await status())["requests.example.com/gpu"] == "2"
    await cluster.finish("p")
    await cluster.client.delete(CONFIG_MAPS, "m", "n")
    await cluster.settle()
    found = await status()
    assert (found["pods"], found["requests.cpu"], found["configmaps"]) == ("0", "0", "0")


@run_by(run_scenario, only=ONLY)
async def test_a_stuck_terminating_pod_stops_counting(cluster: Cluster) -> None:
    await cluster.client.create(
        RESOURCE_QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}}, "n"
    )
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "w"}
    await cluster.client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "n")
    await cluster.client.delete(PODS, "p", "n")
    await cluster.settle()
    assert (await cluster.client.get(RESOURCE_QUOTAS, "q", "n"))["status"]["used"] == {"pods": "1"}
    await cluster.advance(400)
    assert (await cluster.client.get(RESOURCE_QUOTAS, "q", "n"))["status"]["used"] == {"pods": "0"}
