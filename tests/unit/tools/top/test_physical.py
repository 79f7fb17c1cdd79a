"""Physical devices: their partitions, names and what still fits, compared with trying all combinations."""

from __future__ import annotations

from plimsoll.tools.availability import DeviceAvailability
from plimsoll.tools.top.physical import PhysicalDevice, is_accelerator
from plimsoll.tools.top.pools import physical_devices
from plimsoll.tools.top.top import top
from tests.unit.tools.top.gpus import Tree, claim, cluster, device, slices


def of(*trees: Tree) -> list[PhysicalDevice]:
    state = cluster(*trees)
    return physical_devices(state, DeviceAvailability(state.snapshot))


def fits(*trees: Tree) -> dict[str, tuple[str, dict[str, int]]]:
    """Return state and what still fits of each device."""
    state = cluster(*trees)
    availability = DeviceAvailability(state.snapshot)
    found = physical_devices(state, availability)
    return {each.name: (each.state, each.count_fitting(availability)) for each in found}


def test_partitions_of_one_counter_set_are_one_device() -> None:
    parts = [device(f"gpu-0-1g-{n}", "10Gi", {"memory": 10, f"slice-{n}": 1}, profile="1g") for n in range(4)]
    counters = {"memory": 40, **{f"slice-{n}": 1 for n in range(4)}}
    whole = device("gpu-0", "40Gi", counters, productName="Example 40")
    (found,) = of(*slices(whole, *parts, counters=counters))
    assert (found.name, found.state, found.product, str(found.memory)) == (
        "gpu-0",
        "free",
        "Example 40",
        "40Gi",
    )
    trees = slices(whole, *parts, counters=counters)
    assert fits(*trees) == {"gpu-0": ("free", {"": 1, "1g": 4})}
    assert fits(*trees, claim("gpu-0-1g-2")) == {"gpu-0": ("partly", {"1g": 3})}
    assert fits(*trees, claim("gpu-0")) == {"gpu-0": ("taken", {})}


def test_partitions_without_a_parent_device_are_grouped_by_its_uuid() -> None:
    static = [
        device(
            f"gpu-6-mig-3g20gb-9-{place}", "20Gi", parentUUID="GPU-6", uuid=f"MIG-{place}", profile="3g.20gb"
        )
        for place in (0, 4)
    ]
    alone = device("gpu-7-mig-1g5gb-19-0", "5Gi", parentUUID="GPU-7", uuid="MIG-7", profile="1g.5gb")
    full = device("gpu-0", "40Gi", uuid="GPU-0")
    trees = slices(*static, alone, full)
    assert fits(*trees) == {
        "gpu-0": ("free", {"": 1}), "gpu-6": ("free", {"3g.20gb": 2}), "gpu-7": ("free", {"1g.5gb": 1}),
    }  # fmt: skip
    assert fits(*trees, claim("gpu-6-mig-3g20gb-9-4"))["gpu-6"] == ("partly", {"3g.20gb": 1})


def test_two_forms_of_one_pci_device_are_one() -> None:
    trees = slices(
        device("gpu-0", "8Gi", uuid="GPU-0", pciBusID="0000:1b:00.0"),
        device("vfio-0", pciBusID="0000:1b:00.0"),
    )
    (found,) = of(*trees)
    assert {part.device for part in found.parts} == {"gpu-0", "vfio-0"}
    other = slices(device("nic-0", pciAddress="0000:1b:00.0"), driver="nic.example.com")
    assert len(of(*trees, *other)) == 2


def test_cpus_and_network_devices_are_no_accelerators() -> None:
    trees = [
        *slices(device("cpudev0"), driver="dra.cpu"),
        *slices(device("eth0"), driver="dra.net"),
        *slices(device("card", model="Gaudi2"), driver="gaudi.example.com"),
        *slices(device("gpu-0")),
    ]
    assert {each.name for each in of(*trees) if is_accelerator(each)} == {"card", "gpu-0"}
    report = top(cluster(*trees), "gpus").as_json()
    assert [(each["device"], each["state"]) for each in report["gpus"]] == [
        ("card", "free"),
        ("gpu-0", "free"),
    ]
