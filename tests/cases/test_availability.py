"""Numbers of what claims can get: of the recorded clusters, and of random ones by trying all choices."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.allocator.availability import FREE
from plimsoll.api.forms.annotations import CLASS_KEY
from plimsoll.api.identity import DeviceId
from plimsoll.api.meta import Condition
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceClass
from plimsoll.tools.availability import Availability, DeviceAvailability
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.colors import Paint
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.history.samples import take_sample
from plimsoll.tools.dashboard.lists import ListQuery, list_devices
from plimsoll.tools.top import device_rows, pool_rows
from plimsoll.tools.top.classes import devices_of_class
from plimsoll.tools.top.nodes import node_rows
from plimsoll.tools.top.pools import physical_devices
from plimsoll.tools.top.top import top
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
    result,
)
from tests.cases.cases import case_state
from tests.sizes import examples

GPU_CLUSTER, MESSY = "real/gpu-cluster.json.gz", "real/messy-cluster.json.gz"
PROFILES = ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")


PIPE = Paint()
PHYSICAL = ListQuery(group="physical", limit=1000)


@cache
def cluster(name: str) -> Any:
    return case_state(name)


def rows(state: Any, view: str) -> list[Any]:
    return list(json.loads(json.dumps(top(state, view).as_json()))[view])


def class_row(state: Any, name: str) -> Any:
    return next(each for each in rows(state, "classes") if each["name"] == name)


def test_mig_profiles_of_the_gpu_cluster() -> None:
    row = class_row(cluster(GPU_CLUSTER), "mig.nvidia.com")
    free = {each["type"]: each["free"] for each in row["partitions"]}
    assert [free[profile] for profile in PROFILES] == [175, 25, 100, 75, 50, 25, 25]
    assert row["free"] == 190


def test_whole_gpus_of_the_gpu_cluster() -> None:
    gpus = [
        each
        for each in rows(cluster(GPU_CLUSTER), "gpus")
        if each["node"].startswith("gke-a3-ultra-h100") and each["driver"] == "gpu.nvidia.com"
    ]
    assert (len(gpus), sum(each["state"] == "free" for each in gpus)) == (32, 25)


def test_classes_of_the_messy_cluster() -> None:
    found = {each["name"]: each for each in rows(cluster(MESSY), "classes")}
    classes = ("h100", "h100-3g", "h100-1g", "a100", "a100-half", "l4", "gpu-any")
    assert [found[name]["free"] for name in classes] == [19, 42, 157, 37, 82, 10, 249]
    assert [each["left"] for each in found["nic"]["capacity"]] == ["290G"]
    assert [Quantity.parse(each["left"]) for each in found["cpu-exclusive"]["capacity"]] == [
        Quantity.parse("225.4")
    ]


def test_a_node_limits_what_is_left_of_its_devices() -> None:
    state = cluster("small/newcomer-7.yaml")
    assert [each["left"] for each in class_row(state, "cpu")["capacity"]] == ["2"]
    assert [each["shares"]["cpu"] for each in rows(state, "pools")] == [{"whole": "8", "left": "2"}]
    assert [each["capacity"]["cpu"]["free"] for each in rows(state, "devices")] == ["2"]
    (pool,) = DeviceCache().pools(state)
    assert str(pool.shares["cpu"][1]) == "2"


def test_gpus_are_those_that_claims_can_get() -> None:
    """`top gpus` agrees with the classes, whose charges two unused GPUs of a full node do not fit."""
    lines = [line.split() for line in top(cluster(MESSY), "gpus").lines(PIPE)]
    free = {line[0]: int(line[2]) for line in lines[1:8]}
    names = {"H100": "h100", "1g.10gb": "h100-1g", "3g.40gb": "h100-3g", "A100": "a100", "half": "a100-half"}
    classes = {each["name"]: each["free"] for each in rows(cluster(MESSY), "classes")}
    assert {name: free[name] for name in names} == {name: classes[each] for name, each in names.items()}
    full = [each for each in rows(cluster(MESSY), "gpus") if each["node"] == "h100-05"]
    assert [each["fits"] for each in full] == [[]] * 4
    listed = list_devices(cluster(MESSY), PHYSICAL, DeviceCache())["items"]
    gpus = {(each["pool"], each["device"]): each["fits"] for each in rows(cluster(MESSY), "gpus")}
    found = {(each["pool"], each["device"]): each["fits"] for each in listed}
    assert {key: found[key] for key in gpus} == gpus


def test_all_views_agree_on_what_is_free() -> None:
    """Free rows and counts of exclusive devices are those that claims of the classes can get, by node."""
    for name in (GPU_CLUSTER, MESSY, "small/newcomer-7.yaml"):
        state = cluster(name)
        snapshot = state.snapshot
        physical = physical_devices(state, DeviceAvailability(snapshot))
        devices = {each.id: each for each in device_rows(state)}
        for found in Availability(snapshot).all_classes():
            ids = devices_of_class(state, found.device_class)
            chosen = [each for id, each in devices.items() if id in ids]
            if any(each.shareable for each in chosen):
                continue  # a node limits their capacity
            free = Counter(each.node for each in chosen if each.state == FREE)
            if "" in free:
                assert free.total() == found.total, (name, found.device_class)
            elif any(each.draws for each in chosen):
                assert set(free) == set(found.nodes), (name, found.device_class)
            else:
                assert free == found.nodes, (name, found.device_class)
        pools = pool_rows(state)
        for pool in pools:
            parts = [
                each
                for each in physical
                if (each.parts[0].driver, each.parts[0].pool) == (pool.driver, pool.pool)
            ]
            assert pool.devices[FREE] == sum(each.counted_states[FREE] for each in parts)
        (states,) = [top(state, "devices").as_json()["physicalStates"]]
        assert states[FREE] == sum(each.devices[FREE] for each in pools)
    (full,) = [each for each in rows(cluster(MESSY), "pools") if each["pool"] == "h100-05"]
    assert (full["devices"][FREE], full["devices"]["unavailable"]) == (0, 2)
    assert {each["state"] for each in rows(cluster(MESSY), "gpus") if each["node"] == "h100-05"} == {
        "taken",
        "blocked",
    }
    for product in ("h100", "a100"):
        listed = [each for each in rows(cluster(MESSY), "pools") if each["pool"].startswith(product)]
        assert sum(each["devices"][FREE] for each in listed) == class_row(cluster(MESSY), product)["free"]


def test_free_devices_are_as_many_as_their_node_can_be_charged_for() -> None:
    cpus = [charging_device(f"cpu-{number}", cpu={"allocationMultiplier": "1"}) for number in range(6)]
    state = ClusterState(ClusterObjects([node("n", cpu="4"), device_class(), resource_slice(cpus, "n")]))
    (pool,) = rows(state, "pools")
    assert [pool["devices"][each] for each in (FREE, "unavailable")] == [4, 2]
    assert top(state, "devices").as_json()["physicalStates"][FREE] == 4
    assert (
        DeviceCache().counts(state)[DRIVER]["n"][FREE]
        == class_row(state, device_class().metadata.name)["free"]
        == 4
    )


def test_a_device_of_several_nodes_is_free_if_one_node_can_be_charged() -> None:
    for sizes, free in ((("1", "1"), 0), (("1", "4"), 1)):
        nodes = [node(f"n{number}", cpu=cpu) for number, cpu in enumerate(sizes)]
        shared = [charging_device(name, cpu={"allocationMultiplier": "3"}) for name in ("a", "b")]
        state = ClusterState(
            ClusterObjects([*nodes, device_class(), resource_slice(shared, pool="shared", allNodes=True)])
        )
        assert class_row(state, device_class().metadata.name)["free"] == free
        expected = ("free", None) if free else ("blocked", "node: needs cpu 3, 1 left")
        assert {(row["state"], row["why"]) for row in rows(state, "devices")} == {expected}
        assert [each["devices"][FREE] for each in rows(state, "pools")] == [free]


def test_a_device_is_charged_as_by_the_class_that_charges_least() -> None:
    for least, count in ((0, 4), (1, 4), (2, 2), (5, 1)):
        gpus = [device(f"gpu-{number}") for number in range(4)]
        classes = [charging_class("most", 3), charging_class("least", least)]
        state = ClusterState(ClusterObjects([node("n", cpu="5"), *classes, resource_slice(gpus, "n")]))
        found = DeviceAvailability(state.snapshot).count(DeviceId(DRIVER, "n", each["name"]) for each in gpus)
        assert found == (count if least < 3 else 1)
        product, *notes = list(top(state, "gpus").lines(PIPE))[1:3]
        assert product.split()[1:] == ["4", str(found), "0", "0", str(4 - found)]
        assert (f"includes {4 - found} on nodes" in notes[0]) is (found < 4)


def charging_class(name: str, cpu: int) -> DeviceClass:
    """Return a class whose annotation charges CPUs for each device."""
    mappings = {"cpu": {"allocationMultiplier": str(cpu)}} if cpu else {}
    found = device_class(name)
    annotations = {CLASS_KEY: json.dumps({"nodeAllocatableResourceMappings": mappings})}
    return replace(found, metadata=replace(found.metadata, annotations=annotations if cpu else {}))


def small_cluster(*, is_ready: bool = True, **of_node: Any) -> ClusterState:
    """Return a cluster of one node with three GPUs, one of them held, and CPUs that charge it."""
    only = node("n", **of_node)
    ready = Condition(type="Ready", status="True" if is_ready else "False")
    only = replace(only, status=replace(only.status, conditions=(ready,)))
    gpus = [device(f"gpu-{number}") for number in range(3)]
    cpus = [charging_device("cpus", shared=True, capacity={"cpu": "8"}, cpu={"capacityKey": "cpu"})]
    return ClusterState(
        ClusterObjects(
            [
                only,
                device_class(),
                resource_slice([*gpus, *cpus], "n"),
                claim("held", results=[result("gpu-0", pool="n")], node="n", reserved=["user"]),
                pod("user", claims=["held"], node="n"),
            ]
        )
    )


def test_nodes_that_take_no_pods_count_nowhere() -> None:
    taint = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}
    for closed in (
        small_cluster(unschedulable=True),
        small_cluster(is_ready=False),
        small_cluster(taints=[taint]),
    ):
        (row,) = rows(closed, "classes")
        assert (row["free"], sum(each["devices"] for each in row["leftOut"].values())) == (0, 3)
        assert {each["left"] for each in row["capacity"]} == {"0"}
        (pool,) = rows(closed, "pools")
        assert (pool["devices"]["free"], pool["shares"]["cpu"]["left"]) == (0, "0")
        assert {each["state"] for each in rows(closed, "devices")} == {"taken", "blocked"}
        answer = run_whatif(closed, WhatifPlan()).as_json()
        assert answer["after"]["free"]["cpu"] == "0"
        assert answer["fragmentation"]["after"]["freeDevices"] == {}
        (counts,) = DeviceCache().counts(closed).values()
        assert counts["n"][FREE] == 0
        gpus = list_devices(closed, PHYSICAL, DeviceCache())["items"]
        assert not any(each["fits"] for each in [*rows(closed, "gpus"), *gpus])
        said = "\n".join(top(closed, "gpus").lines(PIPE))
        assert next(iter(row["leftOut"])) in said
        assert set(take_sample(closed, node_rows(closed), 0).classes.values()) == {0}


def test_nodes_with_other_taints_count_everywhere() -> None:
    tainted = small_cluster(taints=[{"key": "gpu", "value": "a", "effect": "NoSchedule"}])
    (row,) = rows(tainted, "classes")
    assert row["free"] == 3
    assert row["nodeTaints"] == {"gpu=a:NoSchedule": {"devices": 3, "nodes": 1}}
    (pool,) = rows(tainted, "pools")
    assert pool["devices"]["free"] == 3
    assert run_whatif(tainted, WhatifPlan()).as_json()["after"]["free"]["cpu"] == "8"


# -- random clusters

#: Draws of a device by stock, with the CPUs that it charges to its node.
Draws = Mapping[str, int]


class SmallNode:
    """Devices of a node by draws, its stocks, and which devices claims have."""

    def __init__(self, random: Random) -> None:
        self.cpu = random.randint(1, 6)
        self.stocks = {f"s{number}": random.randint(1, 4) for number in range(random.randint(1, 2))}
        self.devices: list[Draws] = []
        for _ in range(random.randint(1, 7)):
            draws = {name: random.randint(0, 2) for name in self.stocks if random.random() < 0.7}
            self.devices.append({**draws, "cpu": random.choice((0, 0, 1, 2))})
        self.held: list[int] = []
        for number in random.sample(range(len(self.devices)), len(self.devices)):
            if random.random() < 0.3 and self.fits([*self.held, number]):
                self.held.append(number)
        self.cordoned = random.random() < 0.15

    def fits(self, chosen: Sequence[int]) -> bool:
        left = {**self.stocks, "cpu": self.cpu}
        return all(
            sum(self.devices[number].get(name, 0) for number in chosen) <= amount
            for name, amount in left.items()
        )

    def most(self) -> int:
        """Return the most devices that can be allocated next to those that are held."""
        others = [number for number in range(len(self.devices)) if number not in self.held]
        sizes = range(len(others), -1, -1)
        return next(
            size
            for size in sizes
            if any(self.fits([*self.held, *chosen]) for chosen in combinations(others, size))
        )

    def objects(self, name: str) -> list[Any]:
        found: list[Any] = [node(name, cpu=str(self.cpu), unschedulable=self.cordoned)]
        devices = []
        for number, draws in enumerate(self.devices):
            counters = {each: str(amount) for each, amount in draws.items() if each != "cpu"}
            mapped = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": str(draws["cpu"])}}}
            devices.append(
                device(
                    f"d{number}",
                    draws={"set": counters} if counters else None,
                    fields=mapped if draws["cpu"] else None,
                    uuid=f"{name}-{number}",
                )
            )
        stocks = {"set": {each: str(amount) for each, amount in self.stocks.items()}}
        found.append(resource_slice([], name, name=f"{name}-counters", count=2, counters=stocks))
        found.append(resource_slice(devices, name, name=f"{name}-devices", count=2))
        for number in self.held:
            of = f"{name}-c{number}"
            found.append(
                claim(of, exactly(), results=[result(f"d{number}", pool=name)], node=name, reserved=[of])
            )
            amount = self.devices[number]["cpu"]
            charged = {
                "nodeAllocatableResourceClaimStatuses": [
                    {"resourceClaimName": of, "containers": ["main"], "resources": {"cpu": str(amount)}}
                ]
            }
            found.append(pod(of, claims=[of], node=name, status=charged if amount else None))
        return found


@given(st.integers(0, 2**32))
@settings(max_examples=examples(300), deadline=None)
def test_as_many_devices_as_trying_all_choices_finds(number: int) -> None:
    random = Random(number)
    nodes = [SmallNode(random) for _ in range(random.randint(1, 3))]
    nodes += random.choices(nodes, k=2)  # equal states
    objects = [device_class(select=f"device.driver == '{DRIVER}'")]
    for index, each in enumerate(nodes):
        objects += each.objects(f"n{index}")
    state = ClusterState(ClusterObjects(objects))
    found = Availability(state.snapshot).all_classes()[0]
    true = {f"n{index}": each.most() for index, each in enumerate(nodes) if not each.cordoned}
    assert found.is_exact
    assert found.nodes == {name: count for name, count in true.items() if count}
    assert found.total == sum(true.values())
    assert found.held == sum(len(each.held) for each in nodes)
    availability = DeviceAvailability(state.snapshot)
    for index, each in enumerate(nodes):
        ids = [DeviceId(DRIVER, f"n{index}", f"d{n}") for n in range(len(each.devices)) if n not in each.held]
        assert availability.count(ids) == true.get(f"n{index}", 0)
