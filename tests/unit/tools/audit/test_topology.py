"""Checks of NUMA nodes and of CPUs."""

from __future__ import annotations

import pytest

from plimsoll.api.cpu_map import ANNOTATION, CpuLocation, CpuMap, format_cpu_map
from plimsoll.api.cpuset import CpuSet
from plimsoll.tools.findings import Severity
from tests.unit.tools.audit.build import (
    Tree,
    claim,
    cpus,
    device,
    device_class,
    found,
    node,
    numa,
    only,
    pod,
    result,
    share,
    slice_of,
    well,
)

# -- NUMA


def split(cpu_node: int, card_node: int) -> list[Tree]:
    return [
        node(),
        slice_of(cpus(attributes=numa(cpu_node)), driver="dra.cpu"),
        slice_of(device("d0", attributes=numa(card_node))),
        claim("c", share("4")),
        claim("g", result()),
        pod("p", claims="cg"),
    ]


def test_cpus_and_gpu_on_different_numa_nodes() -> None:
    finding = only("PLM050", *split(0, 1))
    assert finding.severity is Severity.WARNING
    assert finding.message == "its dra.cpu devices are on NUMA node 0, its gpu.example.com devices on 1"
    assert found("PLM050", *split(1, 1)) == []


@pytest.mark.parametrize(
    "name", ["dra.net/numaNode", "dra.cpu/numaNodeID", "numa", "gpu.example.com/numaNode"]
)
def test_older_attribute_names_are_read(name: str) -> None:
    trees = split(0, 1)
    trees[2] = slice_of(device("d0", attributes={name: {"int": 1}}))
    assert len(found("PLM050", *trees)) == 1


def test_devices_without_topology_are_not_reported() -> None:
    trees = split(0, 1)
    trees[2] = slice_of(device("d0", attributes={"model": {"string": "x"}}))
    assert found("PLM050", *trees) == []


def test_driver_status_overrides_device_attributes() -> None:
    trees = split(0, 1)
    data = {"cpuset": "4-7", "numaNodes": "1"}
    device_status = {"driver": "dra.cpu", "pool": "n1", "device": "cpus", "shareID": "s", "data": data}
    trees[3]["status"]["devices"] = [device_status]
    assert found("PLM050", *trees) == []


def test_devices_that_would_have_fitted_one_numa_node() -> None:
    cards = [device(f"d{n}", attributes=numa(n % 2)) for n in range(4)]
    trees = [node(), slice_of(*cards), claim("c", result("d0"), result("d1")), pod("p", claims="c")]
    finding = only("PLM050", *trees)
    assert finding.severity is Severity.INFO
    assert finding.message.endswith("are on NUMA nodes 0-1, but would fit on one")


def test_devices_that_fit_no_single_numa_node() -> None:
    cards = [device(f"d{n}", attributes=numa(n % 2)) for n in range(4)]
    three = [result(f"d{n}") for n in range(3)]
    assert found("PLM050", node(), slice_of(*cards), claim("c", *three), pod("p", claims="c")) == []


def rooted(card: str, nic: str) -> list[Tree]:
    attribute = "resource.kubernetes.io/pcieRoot"
    return [
        node(),
        slice_of(device("d0", attributes={attribute: {"string": card}})),
        slice_of(device("n0", attributes={attribute: {"string": nic}}), driver="nic.example.com"),
        claim("c", result("d0"), result("n0", "nic.example.com")),
        pod("p", claims="c"),
    ]


def test_pcie_roots_without_numa_nodes() -> None:
    finding = only("PLM050", *rooted("pci0000:00", "pci0000:80"))
    assert finding.severity is Severity.INFO
    assert finding.message.endswith("are on different PCIe roots")
    assert found("PLM050", *rooted("pci0000:00", "pci0000:00")) == []


# -- CPUs


def managed(amount: int, driver: str = "dra.cpu") -> Tree:
    return slice_of(cpus(amount, driver), driver=driver)


def test_the_kubelet_offers_more_than_the_driver_manages() -> None:
    finding = only("PLM051", node(cpu="24"), managed(23))
    assert finding.severity is Severity.WARNING
    assert finding.message == (
        "the kubelet has 24 CPUs allocatable, dra.cpu manages 23: "
        "with all of them claimed, 1 more can be requested than remain"
    )


def test_the_driver_manages_more_than_the_kubelet_offers() -> None:
    finding = only("PLM051", node(cpu="22", capacity="24"), managed(24))
    assert finding.severity is Severity.INFO
    assert finding.fix.endswith("the driver should reserve 2 more")


def test_the_driver_has_more_than_the_machine() -> None:
    finding = only("PLM051", node(cpu="8"), managed(128))
    assert finding.message == "dra.cpu publishes 128 CPUs, the machine has 8"


@pytest.mark.parametrize("cpu", ["24", "23500m", "24900m"])
def test_fractions_are_rounding(cpu: str) -> None:
    assert found("PLM051", node(cpu=cpu, capacity="25"), managed(24)) == []


def test_other_drivers_may_manage_some_of_the_cpus() -> None:
    assert found("PLM051", node(cpu="24"), managed(4, "x.example.com")) == []


def mapped(tree: Tree, shared: str) -> Tree:
    places = {cpu: CpuLocation(0, 0, 0, cpu) for cpu in range(24)}
    tree["metadata"]["annotations"] = {
        ANNOTATION: format_cpu_map(CpuMap(places, shared=CpuSet.parse(shared)))
    }
    return tree


def test_shared_cpus_count_as_managed() -> None:
    assert found("PLM051", node(cpu="24"), mapped(managed(22), "0-1")) == []
    assert len(found("PLM051", node(cpu="24"), mapped(managed(22), ""))) == 1


def full() -> list[Tree]:
    return [node(), managed(8), claim("c", share("8")), pod("p", claims="c"), pod("plain")]


def test_no_shared_cpus_left() -> None:
    finding = only("PLM053", *full())
    assert finding.message == (
        "all 8 CPUs of dra.cpu are allocated to claims, and 1 pod runs without one: no CPU is left for it"
    )
    assert finding.evidence == ("Pod/work/plain",)
    assert found("PLM053", *full()[:-1]) == []
    assert found("PLM053", *well()) == []


def holding(name: str, cpuset: str, pool: str = "n1") -> Tree:
    device_status = {
        "driver": "dra.cpu",
        "pool": pool,
        "device": "cpus",
        "shareID": name,
        "data": {"cpuset": cpuset},
    }
    return claim(name, share("4", name, pool=pool), status={"devices": [device_status]})


def test_two_claims_on_one_cpu() -> None:
    finding = only("PLM052", holding("c", "0-3"), holding("d", "3-6"))
    assert finding.message == "has CPUs 3, and so has work/d"
    assert found("PLM052", holding("c", "0-3"), holding("d", "4-7")) == []
    assert found("PLM052", holding("c", "0-3"), holding("d", "0-3", "n2")) == []


@pytest.mark.parametrize("odd", ["x", "9-1", "1,,2", 7, None, "0-99999999999"])
def test_unreadable_maps_are_skipped(odd: object) -> None:
    tree = holding("c", "0-3")
    tree["status"]["devices"][0]["data"]["cpuset"] = odd
    assert found("PLM052", tree, holding("d", "0-3")) == []


def test_a_device_that_is_not_ready() -> None:
    tree = holding("c", "0-3")
    condition = {"type": "Ready", "status": "False", "reason": "CPUsOffline", "message": "CPUs 3 are offline"}
    tree["status"]["devices"][0]["conditions"] = [condition]
    finding = only("PLM054", tree)
    assert finding.message == "the driver reports device cpus as not ready: CPUsOffline"
    condition["status"] = "True"
    assert found("PLM054", tree) == []


def test_partitions_are_no_room_for_whole_devices() -> None:
    """Two GPUs per NUMA node, each with partitions: four whole ones cannot be on one node."""
    cards: list[Tree] = []
    for number in range(4):
        draws = [{"counterSet": f"gpu-{number}", "counters": {"slices": {"value": "7"}}}]
        small = [{"counterSet": f"gpu-{number}", "counters": {"slices": {"value": "1"}}}]
        place = numa(number // 2)
        cards.append(device(f"d{number}", attributes=place | model("full"), consumesCounters=draws))
        cards += [
            device(f"d{number}-{part}", attributes=place | model("small"), consumesCounters=small)
            for part in range(7)
        ]
    counters = [{"name": f"gpu-{number}", "counters": {"slices": {"value": "7"}}} for number in range(4)]
    sets = slice_of(counters=counters, count=2, name="sets")
    full = device_class("full")
    full["spec"]["selectors"] = [
        {"cel": {"expression": 'device.attributes["gpu.example.com"].model == "full"'}}
    ]
    for count, findings in ((4, 0), (2, 1)):
        held = claim("c", *(result(f"d{number}") for number in (0, 2, 1, 3)[:count]), klass="full")
        trees = [node(), full, sets, slice_of(*cards, count=2), held, pod("p", claims="c")]
        assert len(found("PLM050", *trees)) == findings


def model(text: str) -> Tree:
    return {"model": {"string": text}}
