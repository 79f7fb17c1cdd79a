"""Open problems of the Go driver that published devices and settings solve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from plimsoll.allocator import Allocation
from plimsoll.api.codec import convert
from plimsoll.api.forms import Form
from plimsoll.api.resource import DeviceAllocationConfiguration, ResourceSlice
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign
from plimsoll.drivers.cpu.claim_config import ClaimConfig, read_claim_config
from plimsoll.drivers.cpu.config_file import read_settings
from plimsoll.drivers.cpu.devices import compute_layout
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy, RequestPolicy
from plimsoll.drivers.cpu.topology import SkippedCpu
from tests.build import NODE, claim, device, exactly, resource_slice
from tests.unit.allocator.allocate import attempt, picked, results
from tests.unit.apiserver.validation.objects import field_errors
from tests.unit.drivers.cpu.devices.publish import ask, attributes, publish, slices_of
from tests.unit.drivers.cpu.machines import make_machine

SERVER = make_machine(sockets=2, numa=1, l3=2, cores=4, threads=2)


def consumed(devices: list[dict[str, Any]], amount: str | None) -> list[str]:
    return [str(result.consumed_capacity["dra.cpu/cpu"]) for result in results(ask(devices, amount))]


def configured(**keys: Any) -> ClaimConfig:
    tree = {"source": "FromClaim", "opaque": {"driver": "dra.cpu"}}
    tree["opaque"] |= {"parameters": {"apiVersion": "v1alpha1", "cpuConfig": keys}}  # type: ignore[operator]
    answer = read_claim_config([convert(tree, DeviceAllocationConfiguration)], "r", CpuSettings(NODE))
    assert isinstance(answer, ClaimConfig)
    return answer


def test_problem_2_siblings_of_four_way_smt_are_adjacent() -> None:
    machine = make_machine(cores=2, threads=4)
    devices = publish(machine, mode=DeviceMode.INDIVIDUAL)
    assert [attributes(device)["dra.cpu/cpuID"] for device in devices] == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize(("amount", "taken"), [("1500m", "2"), ("2500m", "3"), ("1m", "1"), ("0", "1")])
def test_problem_8_fractions_are_rounded_up_by_the_scheduler(amount: str, taken: str) -> None:
    assert consumed(publish(SERVER), amount) == [taken]
    assert consumed(publish(SERVER, policy=RequestPolicy(publish=False)), amount) == [amount]


def test_problem_8_on_a_device_of_one_cpu_fractions_above_it_are_refused() -> None:
    devices = publish(make_machine(cores=1))
    assert consumed(devices, "500m") == ["1"]
    assert not isinstance(ask(devices, "1500m"), Allocation)


def test_problem_8_more_than_there_is_is_refused_however_it_is_rounded() -> None:
    devices = publish(SERVER, assign=AssignOptions(full_cores=True))
    assert consumed(devices, "15") == ["16"]
    assert not isinstance(ask(devices, "16500m"), Allocation)


def test_problem_12_skipped_cpus_are_not_counted() -> None:
    machine = replace(make_machine(cores=4), skipped=(SkippedCpu(4, "no topology"),))
    (device,) = publish(machine, group_by=GroupBy.MACHINE)
    assert device["capacity"]["dra.cpu/cpu"]["value"] == "4"
    assert str(compute_layout(machine, CpuSettings(NODE, group_by=GroupBy.MACHINE)).claimable) == "0-3"
    assert publish(make_machine(cores=4), group_by=GroupBy.MACHINE, reserved=4) == []


def test_issue_104_full_l3_claims() -> None:
    """A request without an amount takes a full cache, and no other claim gets a CPU of it."""
    settings = CpuSettings(NODE, group_by=GroupBy.L3)
    devices = publish(SERVER, group_by=GroupBy.L3)
    assert [attributes(device)["dra.cpu/cacheL3ID"] for device in devices] == [0, 1, 2, 3]
    slices = [convert(tree, ResourceSlice) for tree in slices_of(devices, settings)]
    whole, one = exactly("whole"), exactly("one", capacity={"dra.cpu/cpu": "1"})
    outcome = attempt(slices, claim("c", whole, one))
    assert picked(outcome) == [["cpudevl3000", "cpudevl3001"]]
    assert str(results(outcome)[0].consumed_capacity["dra.cpu/cpu"]) == "8"


def test_issue_46_distribution_across_numa_nodes_is_a_matter_of_the_claim() -> None:
    config = configured(algorithm="distributed")
    assert config.options == AssignOptions(Algorithm.DISTRIBUTED)
    # More than one NUMA node has: the same number of each, instead of all of one and the rest of another.
    assert consumed(publish(SERVER, group_by=GroupBy.MACHINE), "20") == ["20"]
    for options, shares in ((config.options, (10, 10)), (AssignOptions(), (16, 4))):
        answer = assign(SERVER, SERVER.all, 20, options)
        assert isinstance(answer, Assigned)
        assert tuple(len(answer.cpus & SERVER.numa[numa]) for numa in (0, 1)) == shares


def test_issue_45_full_physical_cores() -> None:
    devices = publish(SERVER, assign=AssignOptions(full_cores=True))
    policy = devices[0]["capacity"]["dra.cpu/cpu"]["requestPolicy"]
    assert policy["validRange"] == {"min": "2", "step": "2"}
    assert consumed(devices, "3") == ["4"]
    assert configured(fullCores=True).options.full_cores


def test_issue_290_more_than_32_cpus_are_claimed_from_a_group() -> None:
    """A claim has at most 32 results, which limits single CPUs; a group is one result."""
    machine = make_machine(cores=40)
    single = publish(machine, mode=DeviceMode.INDIVIDUAL)
    assert len(picked(ask(single, None, count=32, mode=DeviceMode.INDIVIDUAL))[0]) == 32
    assert not isinstance(ask(single, None, count=33, mode=DeviceMode.INDIVIDUAL), Allocation)
    assert consumed(publish(machine, group_by=GroupBy.MACHINE), "40") == ["40"]


def test_issue_5_more_than_128_cpus_are_more_than_one_slice() -> None:
    machine = make_machine(cores=300)
    settings = CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL)
    trees = slices_of(publish(machine, mode=DeviceMode.INDIVIDUAL), settings)
    assert [len(tree["spec"]["devices"]) for tree in trees] == [128, 128, 44]
    assert {tree["spec"]["pool"]["resourceSliceCount"] for tree in trees} == {3}
    trees[0]["spec"]["devices"] += trees[1]["spec"]["devices"][:1]
    assert field_errors(trees[0]) == ["spec.devices TooMany"]


def test_issue_103_exclusive_and_shared_cpus_together() -> None:
    assert read_settings(None, {"exclusive-plus-shared": True}, hostname=NODE).pin.include_shared
    assert not read_settings(None, {}, hostname=NODE).pin.include_shared
    assert configured(mix=True).include_shared is True
    assert configured(mix=False).include_shared is False
    assert configured(sorting="packed").include_shared is None


def test_issue_299_legacy_attributes_are_still_there() -> None:
    for options in ({}, {"mode": DeviceMode.INDIVIDUAL}):
        env_cpus = attributes(publish(SERVER, Form.V1_37, **options)[0])
        assert env_cpus["dra.cpu/numaNodeID"] == env_cpus["dra.net/numaNode"] == 0


def test_issue_114_a_nic_and_its_cpus_lie_together() -> None:
    """Both drivers publish the standard attribute, so the scheduler can match it."""
    cpus = [convert(tree, ResourceSlice) for tree in slices_of(publish(SERVER), CpuSettings(NODE))]
    name = "resource.kubernetes.io/numaNode"
    nics = resource_slice(
        [device("eth0", fields={"attributes": {name: {"int": 1}}})],
        name="nics",
        pool="nics",
        driver="nic.example.com",
        nodeName=NODE,
    )
    wanted = claim(
        "c",
        exactly("nic", select='device.driver == "nic.example.com"'),
        exactly("cpu", select='device.driver == "dra.cpu"', capacity={"dra.cpu/cpu": "2"}),
        constraints=[{"matchAttribute": name}],
    )
    assert picked(attempt([*cpus, nics], wanted)) == [["eth0", "cpudevnuma001"]]


def test_issue_316_an_external_allocator_is_reported_the_topology() -> None:
    """The position of every CPU is in its device; a group has the properties that its CPUs share."""
    (cpu, *_) = [attributes(device) for device in publish(SERVER, mode=DeviceMode.INDIVIDUAL)][-1:]
    last = SERVER.cpus[-1]
    assert (cpu["dra.cpu/cpuID"], cpu["dra.cpu/socketID"]) == (last.id, last.socket)
    assert (cpu["dra.cpu/cacheL3ID"], cpu["dra.cpu/coreID"]) == (last.l3_id, last.core_id)
    assert cpu["resource.kubernetes.io/numaNode"] == last.numa
    caches = [attributes(device) for device in publish(SERVER, group_by=GroupBy.L3)]
    assert [cache["dra.cpu/cacheL3ID"] for cache in caches] == list(SERVER.l3)
    assert {cache["dra.cpu/numCPUs"] for cache in caches} == {8}
