"""Devices as API trees: names, attributes, capacities, policies, charges, slices and health."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.forms import DeviceRule, Form, read_device
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.drivers.cpu.devices import (
    ServerCapabilities,
    check_against_node,
    check_form,
    compute_layout,
    describe_server,
    device_health,
    make_devices,
    per_slice,
)
from plimsoll.drivers.cpu.settings import (
    CpuOverhead,
    CpuSettings,
    DeviceMode,
    GroupBy,
    Mapping,
    RequestPolicy,
)
from plimsoll.drivers.cpu.topology import Topology
from plimsoll.drivers.plugin import Health
from tests.build import NODE
from tests.unit.allocator.allocate import picked, results
from tests.unit.drivers.cpu.devices.publish import ask, assert_valid, attributes, publish, slices_of
from tests.unit.drivers.cpu.machines import machines, make_machine, switch_off

SERVER = make_machine(sockets=2, numa=1, l3=2, cores=2, threads=2, roots=2)
SINGLE_CPUS = "single CPUs (groups of CPUs: from 1.36 on, or with the feature gate DRAConsumableCapacity)"
BY_ANNOTATIONS = (
    "by annotations of DeviceClasses (mappings in slices: from 1.36 on, with the feature gate "
    "DRANodeAllocatableResources)"
)
POLICY = {"default": "8", "validRange": {"min": "1", "step": "1"}}


# -- attributes


def test_device_of_a_numa_node() -> None:
    first, second = publish(SERVER)
    assert first == {
        "name": "cpudevnuma000",
        "attributes": {
            "dra.cpu/numCPUs": {"int": 8},
            "dra.cpu/numaNodeID": {"int": 0},
            "dra.cpu/smtEnabled": {"bool": True},
            "dra.cpu/socketID": {"int": 0},
            "dra.net/numaNode": {"int": 0},
            "resource.kubernetes.io/numaNode": {"int": 0},
        },
        "capacity": {"dra.cpu/cpu": {"value": "8", "requestPolicy": POLICY}},
        "allowMultipleAllocations": True,
    }
    assert attributes(second)["dra.cpu/socketID"] == attributes(second)["dra.net/numaNode"] == 1


def test_device_of_a_socket() -> None:
    device = publish(SERVER, group_by=GroupBy.SOCKET)[1]
    assert device["name"] == "cpudevsocket001"
    assert attributes(device) == {"dra.cpu/numCPUs": 8, "dra.cpu/smtEnabled": True, "dra.cpu/socketID": 1}


def test_device_of_the_machine() -> None:
    (device,) = publish(SERVER, group_by=GroupBy.MACHINE)
    assert device["capacity"]["dra.cpu/cpu"]["value"] == "16"
    assert attributes(device) == {"dra.cpu/numCPUs": 16, "dra.cpu/smtEnabled": True}


def test_device_of_an_l3_cache() -> None:
    device = publish(SERVER, group_by=GroupBy.L3)[3]
    assert device["name"] == "cpudevl3003"
    assert attributes(device) == {
        "dra.cpu/cacheL3ID": 3,
        "dra.cpu/numCPUs": 4,
        "dra.cpu/numaNodeID": 1,
        "dra.cpu/smtEnabled": True,
        "dra.cpu/socketID": 1,
        "dra.net/numaNode": 1,
        "resource.kubernetes.io/numaNode": 1,
    }


def test_device_of_a_pcie_root() -> None:
    device = publish(SERVER, group_by=GroupBy.PCIE)[1]
    assert device["name"] == "cpudevpci0000-10"
    assert attributes(device)["resource.kubernetes.io/pcieRoot"] == ["pci0000:10", "pci0000:11"]
    assert attributes(device)["resource.kubernetes.io/numaNode"] == 1


def test_device_of_a_cpu() -> None:
    device = publish(SERVER, mode=DeviceMode.INDIVIDUAL)[9]
    assert device == {
        "name": "cpudev009",
        "attributes": {
            "dra.cpu/cacheL3ID": {"int": 2},
            "dra.cpu/coreID": {"int": 0},
            "dra.cpu/coreType": {"string": "standard"},
            "dra.cpu/cpuID": {"int": 12},
            "dra.cpu/numaNodeID": {"int": 1},
            "dra.cpu/smtEnabled": {"bool": True},
            "dra.cpu/socketID": {"int": 1},
            "dra.net/numaNode": {"int": 1},
            "resource.kubernetes.io/numaNode": {"int": 1},
        },
    }


def test_hybrid_cores_and_no_l3_cache() -> None:
    machine = make_machine(l3=0, cores=1, threads=2, efficient=1)
    kinds = [
        attributes(device)["dra.cpu/coreType"] for device in publish(machine, mode=DeviceMode.INDIVIDUAL)
    ]
    assert kinds == ["p-core", "p-core", "e-core"]
    assert attributes(publish(machine, mode=DeviceMode.INDIVIDUAL)[0])["dra.cpu/cacheL3ID"] == -1


def test_without_smt() -> None:
    assert attributes(publish(make_machine(cores=2))[0])["dra.cpu/smtEnabled"] is False


def test_attributes_count_allocatable_cpus() -> None:
    device = publish(SERVER, reserved=CpuSet([0, 8]))[0]
    assert attributes(device)["dra.cpu/numCPUs"] == 6
    assert device["capacity"]["dra.cpu/cpu"]["value"] == "6"


# -- PCIe roots


@pytest.mark.parametrize(
    ("options", "roots"),
    [
        ({}, ["pci0000:00", "pci0000:01"]),
        ({"group_by": GroupBy.MACHINE}, ["pci0000:00", "pci0000:01", "pci0000:10", "pci0000:11"]),
        ({"mode": DeviceMode.INDIVIDUAL}, ["pci0000:00", "pci0000:01"]),
    ],
)
def test_pcie_roots_are_an_optional_list(options: dict[str, Any], roots: list[str]) -> None:
    name = "resource.kubernetes.io/pcieRoot"
    assert name not in publish(SERVER, **options)[0]["attributes"]
    assert publish(SERVER, pcie_roots=True, **options)[0]["attributes"][name] == {"strings": roots}


def test_cpus_without_pcie_roots_report_nothing() -> None:
    device = publish(make_machine(cores=2), pcie_roots=True)[0]
    assert "resource.kubernetes.io/pcieRoot" not in device["attributes"]


def test_more_pcie_roots_than_the_api_allows() -> None:
    machine = make_machine(cores=2, roots=60)
    device = publish(machine, pcie_roots=True)[0]  # which our API finds valid
    assert len(device["attributes"]["resource.kubernetes.io/pcieRoot"]["strings"]) == 38
    warnings = compute_layout(machine, CpuSettings(NODE, pcie_roots=True)).warnings
    assert ["60 PCIe roots" in finding.what for finding in warnings] == [True]


# -- slices


@pytest.mark.parametrize(
    ("cpus", "roots", "sizes"),
    [
        (128, False, [128]),
        (129, False, [128, 1]),
        (64, True, [64]),
        (65, True, [64, 1]),
        (256, True, [64, 64, 64, 64]),
    ],
)
def test_slices_have_at_most_128_devices_or_64_with_lists(cpus: int, roots: bool, sizes: list[int]) -> None:
    machine = make_machine(cores=cpus, roots=1)
    settings = CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL, pcie_roots=roots)
    devices = publish(machine, mode=DeviceMode.INDIVIDUAL, pcie_roots=roots)
    assert [len(tree["spec"]["devices"]) for tree in slices_of(devices, settings)] == sizes


def test_slices_with_pcie_roots_enabled_have_at_most_64_devices() -> None:
    assert per_slice(CpuSettings(NODE, pcie_roots=True), []) == 64


# -- policies


def test_a_request_without_an_amount_takes_the_full_device() -> None:
    for publishes in (True, False):
        devices = publish(SERVER, policy=RequestPolicy(publish=publishes))
        (result,) = results(ask(devices, None))
        assert str(result.consumed_capacity["dra.cpu/cpu"]) == "8"


@pytest.mark.parametrize(("default", "taken"), [(1, "1"), (3, "3"), (99, "8")])
def test_the_default_amount_can_be_set(default: int, taken: str) -> None:
    devices = publish(SERVER, policy=RequestPolicy(default=default))
    (result,) = results(ask(devices, None))
    assert str(result.consumed_capacity["dra.cpu/cpu"]) == taken


def test_the_policy_can_be_left_out() -> None:
    devices = publish(SERVER, policy=RequestPolicy(publish=False))
    assert devices[0]["capacity"]["dra.cpu/cpu"] == {"value": "8"}
    settings = CpuSettings(NODE)
    layout = compute_layout(SERVER, settings)
    capabilities = ServerCapabilities(None, policy=False)
    assert (
        make_devices(SERVER, layout, settings, None, capabilities=capabilities)[0]["capacity"]
        == devices[0]["capacity"]
    )


@pytest.mark.parametrize(("amount", "taken"), [("1", "2"), ("2", "2"), ("3", "4"), ("8", "8")])
def test_full_cores_follow_the_policy(amount: str, taken: str) -> None:
    devices = publish(SERVER, assign=AssignOptions(full_cores=True))
    assert devices[0]["capacity"]["dra.cpu/cpu"]["requestPolicy"] == {
        "default": "8",
        "validRange": {"min": "2", "step": "2"},
    }
    (result,) = results(ask(devices, amount))
    assert str(result.consumed_capacity["dra.cpu/cpu"]) == taken


def test_a_device_of_one_core_has_a_fixed_amount() -> None:
    (device,) = publish(make_machine(cores=1, threads=2), assign=AssignOptions(full_cores=True))
    policy = {"default": "2", "validRange": {"min": "2", "max": "2"}}
    assert device["capacity"]["dra.cpu/cpu"]["requestPolicy"] == policy
    (result,) = results(ask([device], "1"))
    assert str(result.consumed_capacity["dra.cpu/cpu"]) == "2"


# -- charges


def test_charges_of_groups_in_both_forms() -> None:
    old, new = publish(SERVER, Form.V1_36)[0], publish(SERVER, Form.V1_37)[0]
    assert old["nodeAllocatableResourceMappings"] == {
        "cpu": {"capacityKey": "dra.cpu/cpu", "allocationMultiplier": "1"}
    }
    assert new["nodeAllocatableResources"] == {
        "cpu": {"mapping": {"capacityKey": "dra.cpu/cpu", "capacityMultiplier": "1"}}
    }
    rule = DeviceRule("dra.cpu/cpu", Quantity.of(1))
    assert read_device(convert(old, Device)) == read_device(convert(new, Device)) == {"cpu": rule}


def test_charges_of_single_cpus_in_both_forms() -> None:
    old = publish(SERVER, Form.V1_36, mode=DeviceMode.INDIVIDUAL)[0]
    new = publish(SERVER, Form.V1_37, mode=DeviceMode.INDIVIDUAL)[0]
    assert old["nodeAllocatableResourceMappings"] == {"cpu": {"allocationMultiplier": "1"}}
    assert new["nodeAllocatableResources"] == {"cpu": {"mapping": {"deviceMultiplier": "1"}}}


def test_nothing_is_charged_without_a_form() -> None:
    assert not {"nodeAllocatableResourceMappings", "nodeAllocatableResources"} & set(publish(SERVER)[0])


def test_overheads_are_published_where_the_form_has_fields() -> None:
    overhead = CpuOverhead(Quantity.parse("100m"), Quantity.parse("10m"))
    device = publish(SERVER, Form.V1_37, overhead=overhead)[0]
    warnings_for = {"perPod": "100m", "perContainer": "10m"}
    assert device["nodeAllocatableResources"]["cpu"]["overhead"] == warnings_for
    assert publish(SERVER, Form.V1_36, overhead=overhead) == publish(SERVER, Form.V1_36)
    settings = CpuSettings(NODE, overhead=overhead)
    assert check_form(settings, Form.V1_37) == ()
    assert "the 1.36 form has no field for it" in check_form(settings, Form.V1_36)[0].what
    assert "nothing is charged" in check_form(settings, None)[0].what
    assert check_form(CpuSettings(NODE), None) == ()


def test_fields_dropped_by_the_server_are_reported() -> None:
    def warnings_for(capabilities: ServerCapabilities, **options: Any) -> list[str]:
        return [
            finding.what
            for finding in check_form(CpuSettings(NODE, **options), capabilities.form, capabilities)
        ]

    assert warnings_for(ServerCapabilities()) == []
    assert warnings_for(ServerCapabilities(lists=False)) == []
    assert "drops lists" in warnings_for(ServerCapabilities(lists=False), pcie_roots=True)[0]
    assert "drops lists" in warnings_for(ServerCapabilities(lists=False), group_by=GroupBy.PCIE)[0]
    assert "drops amounts" in warnings_for(ServerCapabilities(policy=False))[0]
    assert warnings_for(ServerCapabilities(policy=False), mode=DeviceMode.INDIVIDUAL) == []
    assert "drops the 1.36 form" in warnings_for(ServerCapabilities(), mapping=Mapping.V1_36)[0]


def test_without_lists_a_single_root_is_a_string() -> None:
    settings = CpuSettings(NODE, group_by=GroupBy.PCIE)
    for roots, value in ((1, {"string": "pci0000:00"}), (2, None)):
        machine = make_machine(cores=2, roots=roots)
        (device,) = make_devices(
            machine,
            compute_layout(machine, settings),
            settings,
            None,
            capabilities=ServerCapabilities(lists=False),
        )
        assert_valid([device], settings)
        assert device["attributes"].get("resource.kubernetes.io/pcieRoot") == value


# -- CPUs that claims hold and that went offline


def _lose(
    settings: CpuSettings, off: set[int], allocated: dict[str, CpuSet]
) -> tuple[Topology, list[dict[str, Any]]]:
    """Return the devices of the server after CPUs went offline while claims hold some."""
    smaller = switch_off(SERVER, CpuSet(off))
    layout = compute_layout(smaller, settings, earlier=compute_layout(SERVER, settings), allocated=allocated)
    offline_allocated = {name: cpus - smaller.all for name, cpus in allocated.items() if cpus - smaller.all}
    devices = make_devices(smaller, layout, settings, Form.V1_36, offline_allocated=offline_allocated)
    assert_valid(devices, settings)
    return smaller, devices


def test_lost_cpus_stay_in_the_capacity_while_claims_count_against_it() -> None:
    # The claim holds four of eight, two of them are gone; the scheduler leaves what is free: four.
    _, devices = _lose(CpuSettings(NODE), {0, 1}, {"cpudevnuma000": CpuSet([0, 1, 2, 3])})
    assert devices[0]["capacity"]["dra.cpu/cpu"]["value"] == "8"
    assert attributes(devices[0])["dra.cpu/numCPUs"] == 6
    assert "taints" not in devices[0]


def test_cpus_that_are_not_allocated_leave_the_capacity() -> None:
    _, devices = _lose(CpuSettings(NODE), {0, 1}, {})
    assert devices[0]["capacity"]["dra.cpu/cpu"]["value"] == "6"


def test_a_device_without_cpus_stays_with_a_taint_while_it_is_allocated() -> None:
    node0 = {0, 1, 2, 3, 8, 9, 10, 11}
    smaller, devices = _lose(CpuSettings(NODE), node0, {"cpudevnuma000": CpuSet([0, 1])})
    assert [device["name"] for device in devices] == ["cpudevnuma001", "cpudevnuma000"]
    assert devices[1]["taints"] == [{"key": "dra.cpu/offline", "effect": "NoSchedule"}]
    assert devices[1]["capacity"]["dra.cpu/cpu"]["value"] == "2"
    assert devices[1]["nodeAllocatableResourceMappings"]
    assert attributes(devices[1])["resource.kubernetes.io/numaNode"] == 0
    assert picked(ask(devices, "1")) == [["cpudevnuma001"]]
    assert len(_lose(CpuSettings(NODE), node0, {})[1]) == 1
    assert len(smaller.all) == 8


def test_an_offline_allocated_cpu_keeps_its_device_and_attributes() -> None:
    settings = CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL)
    _, devices = _lose(settings, {4, 5}, {"cpudev008": CpuSet([4])})
    names = [device["name"] for device in devices]
    assert len(names) == 15
    assert "cpudev010" not in names  # CPU 5, which is free
    assert names[-1] == "cpudev008"
    assert attributes(devices[-1])["dra.cpu/cpuID"] == 4
    assert devices[-1]["taints"]
    assert per_slice(settings, devices) == 64


def test_a_device_known_only_by_name_is_published() -> None:
    settings = CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL)
    smaller = switch_off(SERVER, CpuSet([4]))
    offline_allocated = {"cpudev008": CpuSet([4])}
    layout = compute_layout(smaller, settings, allocated=offline_allocated)
    devices = make_devices(smaller, layout, settings, Form.V1_37, offline_allocated=offline_allocated)
    assert_valid(devices, settings)
    assert devices[-1]["name"] == "cpudev008"
    assert devices[-1]["taints"]


def test_devices_without_cpus_are_not_published_to_a_server_without_taints() -> None:
    settings = CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL)
    smaller = switch_off(SERVER, CpuSet([4]))
    layout = compute_layout(smaller, settings, earlier=compute_layout(SERVER, settings))
    capabilities = ServerCapabilities(None, taints=False)
    offline_allocated = {"cpudev008": CpuSet([4])}
    devices = make_devices(
        smaller, layout, settings, None, offline_allocated=offline_allocated, capabilities=capabilities
    )
    assert "cpudev008" not in [device["name"] for device in devices]


# -- health


def test_health_reports_which_cpus_are_offline() -> None:
    settings = CpuSettings(NODE)
    smaller = switch_off(SERVER, CpuSet([3]))
    layout = compute_layout(smaller, settings, earlier=compute_layout(SERVER, settings))
    well = device_health(smaller, layout, NODE)
    assert [(each.device, each.health, each.message) for each in well] == [
        ("cpudevnuma000", Health.HEALTHY, "CPUs 0-2,8-11 online"),
        ("cpudevnuma001", Health.HEALTHY, "CPUs 4-7,12-15 online"),
    ]
    ill = device_health(smaller, layout, NODE, offline_allocated={"cpudevnuma000": CpuSet([2, 3])})
    assert (ill[0].health, ill[0].pool) == (Health.UNHEALTHY, NODE)
    assert ill[0].message == "CPU 3 of this device is allocated to claims and offline"
    gone = device_health(smaller, layout, NODE, offline_allocated={"cpudevnuma009": CpuSet([90, 91])})
    assert gone[-1].message == "CPUs 90-91 of this device are allocated to claims and offline"
    none = device_health(smaller, layout, NODE, problem="no link to the runtime")
    assert {(each.health, each.message) for each in none} == {(Health.UNHEALTHY, "no link to the runtime")}


# -- node checks


@pytest.mark.parametrize(
    ("reserved", "allocatable", "expected"),
    [
        (2, "14", ""),
        (2, "13500m", ""),
        (0, "16", ""),
        (2, "16", "allocates CPUs that no container may use"),
        (2, "14100m", "allocates CPUs that no container may use"),
        (0, "14", "some CPUs are never allocated"),
    ],
)
def test_reserved_cpus_are_compared_with_the_node(reserved: int, allocatable: str, expected: str) -> None:
    layout = compute_layout(SERVER, CpuSettings(NODE, reserved=reserved))
    found = check_against_node(SERVER, layout.reserved, allocatable)
    assert [expected in finding.what for finding in found] == ([True] if expected else [])
    if found:
        assert f"({reserved} reserved)" in found[0].what
        assert found[0].fix


# -- machines of every shape


@pytest.mark.parametrize(("mode", "names"), [(DeviceMode.GROUPED, 1), (DeviceMode.INDIVIDUAL, 3)])
def test_cpus_of_claims_that_the_scheduler_does_not_count_are_not_published(
    mode: DeviceMode, names: int
) -> None:
    machine, settings = make_machine(cores=4), CpuSettings(NODE, mode=mode)
    layout = compute_layout(machine, settings)
    devices = make_devices(machine, layout, settings, None, uncounted=CpuSet([1]))
    assert len(devices) == names
    if mode is DeviceMode.GROUPED:
        assert devices[0]["capacity"]["dra.cpu/cpu"]["value"] == "3"
    assert make_devices(machine, layout, settings, None, uncounted=machine.all) == []


OPTIONS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(DeviceMode),
        "group_by": st.sampled_from(GroupBy),
        "reserved": st.integers(0, 4),
        "min_shared": st.none() | st.integers(0, 2),
        "pcie_roots": st.booleans(),
        "assign": st.sampled_from([AssignOptions(), AssignOptions(full_cores=True)]),
        "policy": st.sampled_from([RequestPolicy(), RequestPolicy(default=3), RequestPolicy(publish=False)]),
        "overhead": st.sampled_from([CpuOverhead(), CpuOverhead(per_pod=Quantity.parse("50m"))]),
    }
)


@given(machines(), OPTIONS, st.sampled_from([None, Form.V1_36, Form.V1_37]), st.data())
def test_the_api_server_accepts_the_devices_of_any_machine(
    machine: Topology, options: dict[str, Any], form: Form | None, data: st.DataObject
) -> None:
    settings = replace(CpuSettings(NODE), **options)
    first = compute_layout(machine, settings)
    off = CpuSet(data.draw(st.sets(st.sampled_from(sorted(machine.all)), max_size=len(machine.all) - 1)))
    smaller = switch_off(machine, off)
    allocated = {name: domain.cpus & off for name, domain in first.domains.items() if domain.cpus & off}
    now = compute_layout(smaller, settings, earlier=first, allocated=allocated)
    for topology, layout, offline_allocated in ((machine, first, {}), (smaller, now, allocated)):
        devices = make_devices(topology, layout, settings, form, offline_allocated=offline_allocated)
        assert_valid(devices, settings)
        names = [device["name"] for device in devices]
        assert len(names) == len(set(names))
        assert set(names) >= set(layout.domains)
        for tree in slices_of(devices, settings):
            assert len(tree["spec"]["devices"]) <= 128


@pytest.mark.parametrize(
    ("version", "capabilities", "settings", "expected"),
    [
        ("1.35", ServerCapabilities(sharing=False), CpuSettings(NODE), (SINGLE_CPUS, BY_ANNOTATIONS)),
        ("1.36", ServerCapabilities(), CpuSettings(NODE), ("groups of CPUs", BY_ANNOTATIONS)),
        (
            "1.37",
            ServerCapabilities(Form.V1_37),
            CpuSettings(NODE),
            ("groups of CPUs", "by mappings in slices (form 1.37)"),
        ),
        (
            "1.36",
            ServerCapabilities(),
            CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL, mapping=Mapping.OFF),
            (
                "single CPUs (cpuDeviceMode: individual)",
                "by annotations of DeviceClasses (nodeAllocatableForm: off)",
            ),
        ),
    ],
    ids=["1.35", "1.36", "1.37", "settings"],
)
def test_what_a_server_gives(
    version: str, capabilities: ServerCapabilities, settings: CpuSettings, expected: tuple[str, str]
) -> None:
    cpus, charged = expected
    text = describe_server(version, capabilities, settings)
    assert text == f"Kubernetes {version}: {cpus}; claims are charged {charged}"
