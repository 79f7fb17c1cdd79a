"""Small clusters with a pending pod or claim, one for each recorded symptom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import ResourceClaimTemplate, ResourceSlice
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    container,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)

MAKERS: dict[str, Callable[[], list[Any]]] = {}
#: What is asked about in each of them.
SUBJECT = "p"


def symptom(make: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    MAKERS[make.__name__.replace("_", "-")] = make
    return make


def make_cluster_state(objects: list[Any]) -> ClusterState:
    return ClusterState(ClusterObjects(objects))


def result(device: str, pool: str, request: str = "r", **fields: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": pool, "device": device, **fields}


GPUS = device_class(select=f'device.driver == "{DRIVER}"')
ZONE = "topology.kubernetes.io/zone"


def gpu_node(name: str, *devices: dict[str, Any], **fields: Any) -> list[Any]:
    return [node(name, **fields), resource_slice(devices, name)]


# -- before any node


@symptom
def gated() -> list[Any]:
    return [node("n1"), pod("p", cpu="1", schedulingGates=[{"name": "example.com/quota"}])]


@symptom
def gated_and_too_big() -> list[Any]:
    return [node("n1"), pod("p", cpu="10", schedulingGates=[{"name": "a"}, {"name": "b"}])]


@symptom
def unknown_scheduler() -> list[Any]:
    return [node("n1", cpu="1"), pod("p", cpu="2", schedulerName="volcano")]


@symptom
def claim_missing() -> list[Any]:
    return [node("n1"), claim("training-gpu", exactly()), pod("p", claims=["trainng-gpu"])]


@symptom
def claim_not_made() -> list[Any]:
    template = convert({"metadata": {"name": "one-gpu", "namespace": "default"}}, ResourceClaimTemplate)
    references = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return [node("n1"), template, pod("p", resourceClaims=references)]


@symptom
def template_missing() -> list[Any]:
    references = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    return [node("n1"), pod("p", resourceClaims=references)]


@symptom
def claim_being_deleted() -> list[Any]:
    gone = {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    held = claim("c", exactly(), results=[result("g0", "n1")], node="n1", reserved=["q"], metadata=gone)
    return [
        *gpu_node("n1", device("g0")),
        GPUS,
        held,
        pod("q", node="n1", claims=["c"]),
        pod("p", claims=["c"]),
    ]


@symptom
def claim_of_another() -> list[Any]:
    owner = [
        {"kind": "Pod", "name": "p", "uid": "uid-of-the-one-before", "controller": True, "apiVersion": "v1"}
    ]
    references = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}]}
    old = claim("p-gpu", exactly(), metadata={"ownerReferences": owner})
    return [node("n1"), old, pod("p", resourceClaims=references, status=made)]


@symptom
def class_missing() -> list[Any]:
    wanted = claim("c", exactly(device_class="gpus.example.com"))
    return [node("n1"), device_class("gpu.example.com"), wanted, pod("p", claims=["c"])]


@symptom
def volume_claim_missing() -> list[Any]:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return [node("n1"), pod("p", volumes=volumes)]


@symptom
def no_nodes() -> list[Any]:
    return [pod("p", cpu="1")]


# -- rules about nodes


@symptom
def cordoned() -> list[Any]:
    return [node("n1", unschedulable=True, taints=["node.kubernetes.io/unschedulable:NoSchedule"]), pod("p")]


@symptom
def taints() -> list[Any]:
    return [
        node("n1", taints=["gpu=yes:NoSchedule"]),
        node("n2", taints=["gpu=yes:NoSchedule"]),
        node("n3", taints=["node.kubernetes.io/not-ready:NoExecute", "gpu=yes:NoSchedule"]),
        pod("p", cpu="1"),
    ]


@symptom
def selector() -> list[Any]:
    nodes = [node(f"n{i}", labels={ZONE: f"zone-{i % 3}"}) for i in range(9)]
    return [*nodes, pod("p", node_selector={ZONE: "zone-x"})]


@symptom
def affinity() -> list[Any]:
    term = {
        "matchExpressions": [
            {"key": "gpu", "operator": "Exists"},
            {"key": ZONE, "operator": "In", "values": ["a"]},
        ]
    }
    required = {"nodeSelectorTerms": [term]}
    wanted = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return [
        node("n1", labels={ZONE: "a"}),
        node("n2", labels={ZONE: "b"}),
        node("n3", labels={ZONE: "b", "gpu": "yes"}),
        pod("p", affinity=wanted),
    ]


@symptom
def ports() -> list[Any]:
    return [node("n1"), pod("web", node="n1", host_ports=[80]), pod("p", host_ports=[80])]


@symptom
def spread() -> list[Any]:
    constraint = {
        "topologyKey": ZONE,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    return [
        node("n1", labels={ZONE: "a"}),
        node("n2", cpu="1", labels={ZONE: "b"}),
        pod("web-0", node="n1", labels={"app": "web"}),
        pod("p", cpu="2", labels={"app": "web"}, topology_spread_constraints=[constraint]),
    ]


def _pods_apart(kind: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "kubernetes.io/hostname"}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


@symptom
def anti_affinity() -> list[Any]:
    return [
        node("n1", labels={"kubernetes.io/hostname": "n1"}),
        pod("db-0", node="n1", labels={"app": "db"}),
        pod("p", labels={"app": "db"}, affinity=_pods_apart("podAntiAffinity")),
    ]


@symptom
def pod_affinity() -> list[Any]:
    return [
        node("n1", labels={"kubernetes.io/hostname": "n1"}),
        node("n2", cpu="1", labels={"kubernetes.io/hostname": "n2"}),
        pod("db-0", node="n2", cpu="1", labels={"app": "db"}),
        pod("p", cpu="1", affinity=_pods_apart("podAffinity")),
    ]


@symptom
def existing_anti_affinity() -> list[Any]:
    return [
        node("n1", labels={"kubernetes.io/hostname": "n1"}),
        pod("lonely", node="n1", affinity=_pods_apart("podAntiAffinity")),
        pod("p", labels={"app": "db"}),
    ]


@symptom
def volume_elsewhere() -> list[Any]:
    required = {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]
    }
    volume = convert(
        {"metadata": {"name": "pv-1"}, "spec": {"nodeAffinity": {"required": required}}}, PersistentVolume
    )
    bound = {
        "metadata": {
            "name": "data",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        }
    }
    bound |= {"spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return [
        node("n1", labels={ZONE: "a"}),
        volume,
        convert(bound, PersistentVolumeClaim),
        pod("p", volumes=volumes),
    ]


# -- ledgers


def six_cpus(node_name: str = "n1") -> list[Any]:
    """Return a claim that holds 6 CPUs of a node, and the pod that uses it."""
    charging = charging_device("cpus", cpu="6")
    held = claim("c7", exactly(), results=[result("cpus", node_name)], node=node_name, reserved=["holder"])
    return [resource_slice([charging], node_name), held, pod("holder", node=node_name, claims=["c7"])]


@symptom
def insufficient_cpu() -> list[Any]:
    return [node("n1"), node("n2", cpu="2"), GPUS, *six_cpus(), pod("p", cpu="4")]


@symptom
def too_many_pods() -> list[Any]:
    return [node("n1", pods="1"), pod("other", node="n1"), pod("p")]


@symptom
def no_node_large_enough() -> list[Any]:
    return [node("n1"), node("n2", cpu="16"), pod("p", cpu="20", memory="64Gi")]


@symptom
def extended_resource() -> list[Any]:
    return [node("n1"), pod("p", requests={"example.com/fpga": "1"})]


@symptom
def claim_too_expensive() -> list[Any]:
    return [
        node("n1"),
        resource_slice([charging_device("cpus", cpu="6")], "n1"),
        GPUS,
        pod("other", node="n1", cpu="3"),
        claim("c", exactly()),
        pod("p", cpu="1", claims=["c"]),
    ]


@symptom
def pod_level_budget() -> list[Any]:
    return [
        node("n1", cpu="32"),
        resource_slice([charging_device("cpus", cpu="6")], "n1"),
        GPUS,
        claim("c", exactly()),
        pod("p", cpu="1", claims=["c"], resources={"requests": {"cpu": "4"}}),
    ]


@symptom
def shared_claim() -> list[Any]:
    return [node("n1"), GPUS, *six_cpus(), pod("p", cpu="1", claims=["c7"])]


@symptom
def preemption() -> list[Any]:
    return [
        node("n1"),
        node("n2"),
        pod("low", node="n1", cpu="6", priority=1),
        pod("mid", node="n2", cpu="6", priority=50),
        pod("p", cpu="4", priority=100),
    ]


# -- devices


def gpu(name: str, model: str = "a100", **fields: Any) -> dict[str, Any]:
    return device(name, model=model, numa=int(name[-1]) % 2, capacity={"memory": "80Gi"}, **fields)


@symptom
def no_such_device() -> list[Any]:
    wanted = claim("c", exactly(select=f'device.attributes["{DRIVER}"].model == "h100"'))
    return [
        *gpu_node("n1", gpu("g0"), gpu("g1")),
        *gpu_node("n2", gpu("g0", "t4")),
        GPUS,
        wanted,
        pod("p", claims=["c"]),
    ]


@symptom
def none_left() -> list[Any]:
    held = claim("c0", exactly(), results=[result("g0", "n1")], node="n1", reserved=["q"])
    wanted = claim("c", exactly())
    return [
        *gpu_node("n1", gpu("g0")),
        GPUS,
        held,
        pod("q", node="n1", claims=["c0"]),
        wanted,
        pod("p", claims=["c"]),
    ]


@symptom
def free_behind_a_taint() -> list[Any]:
    return [
        *none_left(),
        *gpu_node("n2", gpu("g0"), gpu("g1"), taints=["team=ml:NoSchedule"]),
    ]


@symptom
def no_driver() -> list[Any]:
    return [node("n1"), node("n2"), GPUS, claim("c", exactly()), pod("p", claims=["c"])]


@symptom
def wrong_class() -> list[Any]:
    other = device_class("fpga", select='device.driver == "fpga.example.com"')
    return [
        *gpu_node("n1", gpu("g0")),
        other,
        claim("c", exactly(device_class="fpga")),
        pod("p", claims=["c"]),
    ]


@symptom
def device_taint() -> list[Any]:
    sick = gpu("g0", taints=[{"key": "unhealthy", "value": "ecc", "effect": "NoSchedule"}])
    return [*gpu_node("n1", sick), GPUS, claim("c", exactly()), pod("p", claims=["c"])]


@symptom
def capacity_used_up() -> list[Any]:
    nic = device("nic", shared=True, capacity={"bandwidth": "100"})
    used = result("nic", "n1", shareID="s1", consumedCapacity={"bandwidth": "70"})
    held = claim("c0", exactly(capacity={"bandwidth": "70"}), results=[used], node="n1", reserved=["q"])
    wanted = claim("c", exactly(capacity={"bandwidth": "40"}))
    return [
        *gpu_node("n1", nic),
        GPUS,
        held,
        pod("q", node="n1", claims=["c0"]),
        wanted,
        pod("p", claims=["c"]),
    ]


@symptom
def request_policy() -> list[Any]:
    policy = {"default": "10", "validRange": {"min": "10", "max": "60"}}
    nic = device("nic", shared=True, capacity={"bandwidth": {"value": "100", "requestPolicy": policy}})
    return [
        *gpu_node("n1", nic),
        GPUS,
        claim("c", exactly(capacity={"bandwidth": "61"})),
        pod("p", claims=["c"]),
    ]


def _partitioned() -> list[ResourceSlice]:
    return [
        resource_slice([], "n1", counters={"mem": {"gib": "80"}}, name="counters", count=2),
        resource_slice(
            [
                device("half", draws={"mem": {"gib": "40"}}, profile="half"),
                device("whole", draws={"mem": {"gib": "80"}}, profile="whole"),
            ],
            "n1",
            name="partitions",
            count=2,
        ),
    ]


@symptom
def counters() -> list[Any]:
    held = claim("c0", exactly(), results=[result("half", "n1")], node="n1", reserved=["q"])
    wanted = claim("c", exactly(select=f'device.attributes["{DRIVER}"].profile == "whole"'))
    return [
        node("n1"),
        *_partitioned(),
        GPUS,
        held,
        pod("q", node="n1", claims=["c0"]),
        wanted,
        pod("p", claims=["c"]),
    ]


@symptom
def match_attribute() -> list[Any]:
    constraint = {"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/numa"}
    wanted = claim("c", exactly("a"), exactly("b"), constraints=[constraint])
    return [*gpu_node("n1", gpu("g0"), gpu("g1")), GPUS, wanted, pod("p", claims=["c"])]


@symptom
def distinct_attribute() -> list[Any]:
    constraint = {"requests": ["a", "b"], "distinctAttribute": f"{DRIVER}/numa"}
    wanted = claim("c", exactly("a"), exactly("b"), constraints=[constraint])
    return [*gpu_node("n1", gpu("g0"), gpu("g2")), GPUS, wanted, pod("p", claims=["c"])]


@symptom
def pool_incomplete() -> list[Any]:
    half = resource_slice([gpu("g0")], "n1", count=2)
    return [node("n1"), half, GPUS, claim("c", exactly()), pod("p", claims=["c"])]


@symptom
def allocated_elsewhere() -> list[Any]:
    held = claim("c", exactly(), results=[result("g0", "n1")], node="n1", reserved=["p"])
    return [
        *gpu_node("n1", gpu("g0"), unschedulable=True),
        *gpu_node("n2", gpu("g0")),
        GPUS,
        held,
        pod("p", claims=["c"]),
    ]


@symptom
def alternatives() -> list[Any]:
    wanted = claim(
        "c",
        first_available(
            "r", exactly("big", select=f'device.attributes["{DRIVER}"].model == "h100"'), exactly("two", 2)
        ),
    )
    return [*gpu_node("n1", gpu("g0")), GPUS, wanted, pod("p", claims=["c"])]


@symptom
def selector_broken() -> list[Any]:
    wanted = claim("c", exactly(select="device.attributes[0] =="))
    return [*gpu_node("n1", gpu("g0")), GPUS, wanted, pod("p", claims=["c"])]


@symptom
def selector_fails() -> list[Any]:
    wanted = claim("c", exactly(select=f'device.attributes["{DRIVER}"].speed > 3'))
    return [*gpu_node("n1", gpu("g0")), GPUS, wanted, pod("p", claims=["c"])]


@symptom
def selector_fails_on_one_node() -> list[Any]:
    """The other node would fit, but an error on any node keeps a pod pending."""
    wanted = claim("c", exactly(select=f'device.attributes["{DRIVER}"].speed > 3'))
    fast = [node("n2"), resource_slice([device("g0", speed=9)], "n2")]
    return [*gpu_node("n1", gpu("g0")), *fast, GPUS, wanted, pod("p", claims=["c"])]


@symptom
def pool_of_a_claim_exhausted() -> list[Any]:
    """Two pods draw from a claim's CPUs: the first leaves too few."""
    mapping = {"cpu": {"allocationMultiplier": "6", "accountingPolicy": "ConsumeFrom"}}
    charging = {"name": "cpus", "nodeAllocatableResourceMappings": mapping}
    held = claim("c7", exactly(), results=[result("cpus", "n1")], node="n1", reserved=["holder"])
    return [
        node("n1"),
        resource_slice([charging], "n1"),
        GPUS,
        held,
        pod("holder", cpu="4", node="n1", claims=["c7"]),
        pod("p", cpu="3", claims=["c7"]),
    ]


@symptom
def extended_resource_held() -> list[Any]:
    fpga = {"example.com/fpga": "1"}
    return [node("n1", extended=fpga), pod("q", node="n1", requests=fpga), pod("p", requests=fpga)]


@symptom
def features() -> list[Any]:
    return [node("n1"), pod("p", host_network=True, host_users=False)]


@symptom
def disruption_budget() -> list[Any]:
    budget = {
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    return [
        node("n1"),
        convert(budget, PodDisruptionBudget),
        pod("db-0", node="n1", cpu="6", labels={"app": "db"}),
        pod("p", cpu="4", priority=100),
    ]


@symptom
def node_gone() -> list[Any]:
    return [pod("p", node="n9", status={"phase": "Running"})]


@symptom
def ended() -> list[Any]:
    return [node("n1"), pod("p", node="n1", status={"phase": "Succeeded"})]


@symptom
def several_rules() -> list[Any]:
    """A node that needs both a toleration and a preemption."""
    return [
        node("n1", taints=["team=ml:NoSchedule"]),
        pod("other", node="n1", cpu="6"),
        pod("p", cpu="4", node_selector={"disk": "ssd"}),
    ]


@symptom
def fits() -> list[Any]:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available: 1 Insufficient cpu. preemption: none.",
    }
    return [node("n1"), pod("p", cpu="1", status={"conditions": [condition]})]


# -- scheduled pods


@symptom
def placed() -> list[Any]:
    wanted = first_available(
        "r", exactly("big", select=f'device.attributes["{DRIVER}"].model == "h100"'), exactly("any")
    )
    held = claim("c", wanted, results=[result("g0", "n1", "r/any")], node="n1", reserved=["p"])
    charging = {**gpu("g0"), "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}
    return [
        *gpu_node("n1", charging, gpu("g1")),
        node("n2", cpu="16"),
        node("n3"),
        GPUS,
        held,
        pod(
            "p",
            node="n1",
            cpu="1",
            memory="1Gi",
            claims=["c"],
            status={"phase": "Running"},
            overhead={"cpu": "100m"},
        ),
    ]


@symptom
def placed_plain() -> list[Any]:
    return [
        node("n1"),
        node("n2"),
        pod("other", node="n1", cpu="6"),
        pod("p", node="n1", cpu="1", status={"phase": "Running"}),
    ]


__all__ = ["MAKERS", "SUBJECT", "container", "make_cluster_state", "six_cpus"]


@symptom
def named_node_full() -> list[Any]:
    """A pod for one node: a fix there is nearer than another node."""
    return [
        node("n1", cpu="8", labels={"kubernetes.io/hostname": "n1"}),
        node("n2", cpu="8", labels={"kubernetes.io/hostname": "n2"}),
        pod("web", node="n1", cpu="6"),
        pod("p", cpu="6", nodeSelector={"kubernetes.io/hostname": "n1"}),
    ]
