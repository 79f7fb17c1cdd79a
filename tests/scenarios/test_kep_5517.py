"""KEP-5517 end to end: objects over HTTP in, bound pods and the ledger's numbers out.

Its four use cases, its four ways to represent node resources as devices, and the walk through a shared pool.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.scenarios.ledger_cluster import DRIVER, LedgerCluster, container, exactly, socket

GPU = "gpu.example.com"


@pytest.fixture
def cluster() -> Iterator[LedgerCluster]:
    with LedgerCluster() as running:
        assert isinstance(running, LedgerCluster)
        yield running


# -- the four use cases


def test_use_case_1_requests_and_a_claim(cluster: LedgerCluster) -> None:
    """100m + 4 CPUs and 100Mi + 8Gi, once, although two containers share the claim."""
    cluster.node("node1", cpu="128", memory="256Gi")
    cluster.device_class("cpu-mem-socket")
    cluster.slice("node1-slice", "node1", devices=[socket("socket0", cpu="128", memory="256Gi")])
    cluster.claim(
        "cpu-mem-claim", exactly("cpu-mem-req", "cpu-mem-socket", capacity={"cpu": "4", "memory": "8Gi"})
    )
    containers = [container("my-app1", "c", cpu="100m", memory="100Mi"), container("my-app2", "c")]
    cluster.pod("dra-pod", containers, {"c": "cpu-mem-claim"})
    node, charges = cluster.bound("dra-pod")
    assert node == "node1"
    assert charges == [
        {
            "resourceClaimName": "cpu-mem-claim",
            "containers": ["my-app1", "my-app2"],
            "resources": {"cpu": "4", "memory": "8Gi"},
        }
    ]
    cluster.assert_requested("node1", cpu="4100m", memory="8292Mi")
    cluster.remove("dra-pod")
    cluster.assert_requested("node1")


def test_use_case_2_a_gpu_or_cpus(cluster: LedgerCluster) -> None:
    """The first pod gets the GPU and costs 1 CPU; the second gets 30 CPUs and costs 31."""
    cluster.node("node1", cpu="128", memory="256Gi")
    cluster.device_class("cpu-class")
    cluster.device_class("gpu-class", GPU)
    cluster.slice("node1-slice", "node1", devices=[socket("socket0", cpu="128")])
    cluster.slice("node1-gpus", "node1", GPU, devices=[{"name": "gpu0"}])
    alternatives = [
        {"name": "gpu", "deviceClassName": "gpu-class", "count": 1},
        {"name": "cpu", "deviceClassName": "cpu-class", "capacity": {"requests": {f"{DRIVER}/cpu": "30"}}},
    ]
    cluster.template("gpu-or-cpu", {"name": "gpu-or-cpu-req", "firstAvailable": alternatives})
    cluster.pod("first", [container("my-app", "c", cpu="1", memory="1Gi")], {"c": ":gpu-or-cpu"})
    assert cluster.bound("first") == ("node1", [])
    cluster.assert_requested("node1", cpu="1", memory="1Gi")
    cluster.pod("second", [container("my-app", "c", cpu="1", memory="1Gi")], {"c": ":gpu-or-cpu"})
    _, charges = cluster.bound("second")
    assert [charge["resources"] for charge in charges] == [{"cpu": "30"}]
    cluster.assert_requested("node1", cpu="32", memory="2Gi")
    results = [cluster.devices(claim["metadata"]["name"]) for claim in cluster.client.list("resourceclaims")]
    assert sorted(results) == [["gpu-or-cpu-req/cpu: socket0"], ["gpu-or-cpu-req/gpu: gpu0"]]


def test_use_case_3_cpus_and_a_gpu_that_needs_some(cluster: LedgerCluster) -> None:
    """300m + 10 + 2 CPUs, 3Gi + 4Gi: 12.3 CPUs and 7Gi, to the last milli-CPU."""
    cluster.node("node1", cpu="20", memory="10Gi")
    cluster.device_class("cpu-class")
    cluster.device_class("gpu-class", GPU)
    cluster.slice("node1-slice", "node1", devices=[socket("socket0", cpu="128")])
    needs = {"cpu": {"allocationMultiplier": "2"}, "memory": {"allocationMultiplier": "4Gi"}}
    gpu = {"name": "gpu0", "nodeAllocatableResourceMappings": needs}
    cluster.slice("node1-gpus", "node1", GPU, devices=[gpu])
    cluster.claim("cpu-claim", exactly("r", "cpu-class", capacity={"cpu": "10"}))
    cluster.claim("gpu-claim", exactly("r", "gpu-class"))
    containers = [
        container("my-app1", "cpus", "gpu", cpu="100m", memory="1Gi"),
        container("my-app2", "cpus", "gpu", cpu="200m", memory="2Gi"),
    ]
    cluster.pod("combined-dra-pod", containers, {"cpus": "cpu-claim", "gpu": "gpu-claim"})
    _, charges = cluster.bound("combined-dra-pod")
    assert [(charge["resourceClaimName"], charge["resources"]) for charge in charges] == [
        ("cpu-claim", {"cpu": "10"}),
        ("gpu-claim", {"cpu": "2", "memory": "4Gi"}),
    ]
    cluster.assert_requested("node1", cpu="12300m", memory="7Gi")
    cluster.pod("rest", [container("a", cpu="7700m", memory="3Gi")], {})
    cluster.bound("rest")
    cluster.assert_requested("node1", cpu="20", memory="10Gi")
    cluster.pod("too-much", [container("a", cpu="1m")], {})
    assert cluster.refused("too-much").startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_use_case_4_a_pod_level_budget(cluster: LedgerCluster) -> None:
    """The pod-level request of 11 CPUs is what the node is charged; the claim's 10 are inside it."""
    cluster.node("node1", cpu="128", memory="256Gi")
    cluster.device_class("cpu-class")
    cluster.slice("node1-slice", "node1", devices=[socket("socket0", cpu="128")])
    cluster.claim("cpu-req-10-cpus", exactly("r", "cpu-class", capacity={"cpu": "10"}))
    whole = {"cpu": "11", "memory": "10Gi"}
    containers = [container("my-app1", "c"), container("my-app2", "c"), container("sidecar")]
    cluster.pod("plr", containers, {"c": "cpu-req-10-cpus"}, resources={"requests": whole, "limits": whole})
    _, charges = cluster.bound("plr")
    assert [charge["resources"] for charge in charges] == [{"cpu": "10"}]
    cluster.assert_requested("node1", cpu="11", memory="10Gi")


# -- the four representations


def test_individual_devices(cluster: LedgerCluster) -> None:
    """Each device is a core of two threads: four of them are 8 CPUs."""
    cluster.node("my-node", cpu="9", memory="1Gi")
    cluster.device_class("cpu-core")
    core = {"cpu": {"allocationMultiplier": "2"}}
    devices = [{"name": f"cpu{n}", "nodeAllocatableResourceMappings": core} for n in range(8)]
    cluster.slice("cpu-slice", "my-node", devices=devices)
    cluster.claim("four", exactly("r", "cpu-core", count=4))
    cluster.pod("pinned", [container("a", "c", cpu="1")], {"c": "four"})
    cluster.bound("pinned")
    cluster.assert_requested("my-node", cpu="9")
    assert len(cluster.devices("four")) == 4


def test_a_consumable_pool(cluster: LedgerCluster) -> None:
    """8 CPUs and 4Gi of a socket are charged, not the whole socket; two claims share it."""
    cluster.node("my-node", cpu="128", memory="256Gi")
    cluster.device_class("additional-cpu-memory")
    cluster.slice("s", "my-node", devices=[socket("socket0", cpu="128", memory="256Gi")])
    share = {"cpu": "8", "memory": "4Gi"}
    cluster.template("share", exactly("r", "additional-cpu-memory", capacity=share))
    for number in (1, 2):
        cluster.pod(f"p{number}", [container("a", "c")], {"c": ":share"})
        cluster.bound(f"p{number}")
    cluster.assert_requested("my-node", cpu="16", memory="8Gi")


def test_partitionable_devices(cluster: LedgerCluster) -> None:
    """An L3 cache of 8 CPUs, then the NUMA node of 32 around it only when the counters allow it."""
    cluster.node("my-node", cpu="64", memory="1Gi")
    for kind in ("l3cache", "numa"):
        expression = f'device.attributes["{DRIVER}"].type == "{kind}"'
        cluster.client.create(
            "deviceclasses",
            {"metadata": {"name": kind}, "spec": {"selectors": [{"cel": {"expression": expression}}]}},
        )
    counters = [{"name": "node-cpu-counters", "counters": {"cpu": {"value": "32"}}}]
    cluster.slice("counters", "my-node", count=2, sharedCounters=counters)
    devices = [
        {
            "name": name,
            "attributes": {f"{DRIVER}/type": {"string": kind}},
            "capacity": {f"{DRIVER}/cpu": {"value": cpus}},
            "consumesCounters": [
                {"counterSet": "node-cpu-counters", "counters": {"cpu": {"value": cpus}}},
            ],
            "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": f"{DRIVER}/cpu"}},
        }
        for name, kind, cpus in (("socket-0-l3-0", "l3cache", "8"), ("socket-0-numa-0", "numa", "32"))
    ]
    cluster.slice("devices", "my-node", count=2, devices=devices)
    cluster.template("l3", exactly("r", "l3cache"))
    cluster.template("numa", exactly("r", "numa"))
    cluster.pod("small", [container("a", "c")], {"c": ":l3"})
    cluster.bound("small")
    cluster.assert_requested("my-node", cpu="8")
    cluster.pod("large", [container("a", "c")], {"c": ":numa"})
    assert "1 cannot allocate all claims" in cluster.refused("large")
    cluster.remove("small")
    cluster.bound("large")
    cluster.assert_requested("my-node", cpu="32")


def test_an_accelerator_charges_its_cpu_and_memory(cluster: LedgerCluster) -> None:
    """An XPU takes 2 CPUs, 8Gi and a huge page; a second one does not fit although it is free."""
    cluster.node("my-node", cpu="4", memory="20Gi", hugepages_1Gi="1Gi")
    cluster.device_class("ai-accelerators", "xpu.example.com")
    needs = {
        "cpu": {"allocationMultiplier": "2"},
        "memory": {"allocationMultiplier": "8Gi"},
        "hugepages-1Gi": {"allocationMultiplier": "1Gi"},
    }
    devices = [{"name": f"xpu-{n}", "nodeAllocatableResourceMappings": needs} for n in (1, 2)]
    cluster.slice("my-node-xpus", "my-node", "xpu.example.com", devices=devices)
    cluster.template("xpu", exactly("r", "ai-accelerators"))
    cluster.pod("inference", [container("a", "c", cpu="1", memory="1Gi")], {"c": ":xpu"})
    cluster.bound("inference")
    cluster.assert_requested("my-node", cpu="3", memory="9Gi", hugepages_1Gi="1Gi")
    cluster.pod("another", [container("a", "c", cpu="1", memory="1Gi")], {"c": ":xpu"})
    message = cluster.refused("another")
    assert message.startswith("0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient hugepages-1Gi.")
    cluster.remove("inference")
    cluster.bound("another")
    cluster.assert_requested("my-node", cpu="3", memory="9Gi", hugepages_1Gi="1Gi")


# -- joint allocation, and the shared pool


def test_use_case_4_devices_are_chosen_within_the_budget(cluster: LedgerCluster) -> None:
    """8 CPUs or a GPU: where the CPUs are not free the GPU is taken, though it is second on the list."""
    cluster.node("node1", cpu="8", memory="16Gi")
    cluster.device_class("cpu-class")
    cluster.device_class("gpu-class", GPU)
    cluster.slice("node1-slice", "node1", devices=[socket("socket0", cpu="8")])
    cluster.slice("node1-gpus", "node1", GPU, devices=[{"name": "gpu0"}])
    alternatives = [
        {"name": "cpu", "deviceClassName": "cpu-class", "capacity": {"requests": {f"{DRIVER}/cpu": "8"}}},
        {"name": "gpu", "deviceClassName": "gpu-class", "count": 1},
    ]
    cluster.claim("either", {"name": "r", "firstAvailable": alternatives})
    cluster.pod("p", [container("a", "c", cpu="1")], {"c": "either"})
    cluster.bound("p")
    cluster.assert_requested("node1", cpu="1")
    assert cluster.devices("either") == ["r/gpu: gpu0"]


def test_a_shared_pool_from_first_to_last_consumer(cluster: LedgerCluster) -> None:
    """A claim for 100 CPUs: pod1 draws 10 and pod2 20 of them, the node is charged 100 while either lives."""
    cluster.node("node1", cpu="128", memory="256Gi")
    cluster.device_class(
        "shared-cpu-pool",
        managesNodeAllocatableResources=True,
        nodeAllocatableResourceAccountingPolicies={"cpu": "ConsumeFrom"},
    )
    cluster.slice("s", "node1", devices=[socket("shared-pool-instance-1", cpu="128")])
    cluster.claim("shared-cpu-claim", exactly("pool", "shared-cpu-pool", capacity={"cpu": "100"}))
    claims = {"my-pool": "shared-cpu-claim"}
    cluster.pod("pod1", [container("container-a", "my-pool", cpu="10")], claims)
    cluster.bound("pod1")
    cluster.assert_requested("node1", cpu="100")
    cluster.pooled("node1", "shared-cpu-claim", ("100", "10", 1))
    cluster.pod("pod2", [container("container-b", "my-pool", cpu="20")], claims)
    cluster.bound("pod2")
    cluster.assert_requested("node1", cpu="100")
    cluster.pooled("node1", "shared-cpu-claim", ("100", "30", 2))
    cluster.pod("pod3", [container("container-c", "my-pool", cpu="71")], claims)
    assert "Insufficient cpu in claim shared-cpu-claim" in cluster.refused("pod3")
    cluster.pod("outsider", [container("a", cpu="29")], {})
    assert "Insufficient cpu" in cluster.refused("outsider")
    cluster.remove("pod3")
    cluster.remove("pod1")
    cluster.pooled("node1", "shared-cpu-claim", ("100", "20", 1))
    cluster.assert_requested("node1", cpu="100")
    cluster.remove("pod2")
    cluster.bound("outsider")
    cluster.assert_requested("node1", cpu="29")
    cluster.pooled("node1", "shared-cpu-claim", None)
