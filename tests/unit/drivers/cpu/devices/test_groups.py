"""Device groups and their allocatable CPUs, on machines of every shape."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import FindingSeverity
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign
from plimsoll.drivers.cpu.devices import CpuLayout, compute_layout
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.cpu.topology import Cpu, Topology
from tests.unit.drivers.cpu.machines import machines, make_machine, switch_off

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
FULL = AssignOptions(full_cores=True)
#: 2 sockets of 2 nodes of 4 cores of 2 threads: 32 CPUs; siblings are 16 apart.
SERVER = make_machine(sockets=2, numa=2, cores=4, threads=2, roots=2)


def settings(**options: object) -> CpuSettings:
    return replace(CpuSettings(node="n"), **options)  # type: ignore[arg-type]


def cpus_of(layout: CpuLayout) -> dict[str, str]:
    return {name: str(domain.cpus) for name, domain in layout.domains.items()}


def texts(layout: CpuLayout) -> str:
    return "\n".join(finding.what for finding in layout.warnings)


# -- names, order and members


def test_groups_by_numa_node() -> None:
    assert cpus_of(compute_layout(SERVER, settings())) == {
        "cpudevnuma000": "0-3,16-19",
        "cpudevnuma001": "4-7,20-23",
        "cpudevnuma002": "8-11,24-27",
        "cpudevnuma003": "12-15,28-31",
    }


def test_groups_by_socket_and_machine() -> None:
    by_socket = compute_layout(SERVER, settings(group_by=GroupBy.SOCKET))
    assert cpus_of(by_socket) == {"cpudevsocket000": "0-7,16-23", "cpudevsocket001": "8-15,24-31"}
    assert cpus_of(compute_layout(SERVER, settings(group_by=GroupBy.MACHINE))) == {"cpudevmachine": "0-31"}


def test_groups_by_l3_cache() -> None:
    machine = make_machine(numa=1, l3=2, cores=2)
    found = compute_layout(machine, settings(group_by=GroupBy.L3))
    assert cpus_of(found) == {"cpudevl3000": "0-1", "cpudevl3001": "2-3"}
    assert [domain.l3 for domain in found.domains.values()] == [0, 1]


def test_cpus_without_an_l3_cache_are_grouped_by_numa_node() -> None:
    machine = make_machine(numa=2, l3=0, cores=2)
    found = compute_layout(machine, settings(group_by=GroupBy.L3))
    assert cpus_of(found) == {"cpudevnol3000": "0-1", "cpudevnol3001": "2-3"}
    assert [domain.l3 for domain in found.domains.values()] == [-1, -1]


def test_groups_by_pcie_root() -> None:
    machine = make_machine(numa=2, cores=2, roots=2)
    found = compute_layout(machine, settings(group_by=GroupBy.PCIE))
    assert cpus_of(found) == {"cpudevpci0000-00": "0-1", "cpudevpci0000-10": "2-3"}
    assert found.domains["cpudevpci0000-00"].pcie_roots == ("pci0000:00", "pci0000:01")


def test_sets_of_pcie_roots_that_overlap_are_devices_of_their_own() -> None:
    near = [("pci0000:00",), ("pci0000:00", "pci0000:40"), (), ("pci0000:40",)]
    machine = make_machine(cores=4)
    cpus = tuple(replace(cpu, pcie_roots=near[cpu.id]) for cpu in machine.cpus)
    found = cpus_of(compute_layout(replace(machine, cpus=cpus), settings(group_by=GroupBy.PCIE)))
    assert sorted(found.values()) == ["0", "1", "2", "3"]
    assert found["cpudevpci0000-40"] == "3"
    assert found["cpudevnopci000"] == "2"
    assert sum(name.startswith("cpudevpci0000-00-") for name in found) == 2


def test_individual_cpus_have_their_siblings_next_to_them() -> None:
    machine = make_machine(cores=3, threads=2)
    found = compute_layout(machine, settings(mode=DeviceMode.INDIVIDUAL))
    assert cpus_of(found) == {
        "cpudev000": "0",
        "cpudev001": "3",
        "cpudev002": "1",
        "cpudev003": "4",
        "cpudev004": "2",
        "cpudev005": "5",
    }


def test_individual_cpus_without_their_reserved_siblings() -> None:
    machine = make_machine(cores=3, threads=2)
    found = compute_layout(machine, settings(mode=DeviceMode.INDIVIDUAL, reserved=CpuSet([0, 4])))
    assert cpus_of(found) == {"cpudev000": "1", "cpudev001": "2", "cpudev002": "5", "cpudev003": "3"}


def test_more_than_a_thousand_cpus_stay_in_order() -> None:
    machine = make_machine(cores=1002)
    names = list(compute_layout(machine, settings(mode=DeviceMode.INDIVIDUAL)).domains)
    assert names[998:] == ["cpudev998", "cpudev999", "cpudev1000", "cpudev1001"]


def test_groups_without_cpus_are_left_out() -> None:
    reserved = CpuSet.parse("0-3,16-19")
    assert "cpudevnuma000" not in compute_layout(SERVER, settings(reserved=reserved)).domains
    assert len(compute_layout(SERVER, settings(reserved=reserved)).domains) == 3


@pytest.mark.parametrize("mode", [*GroupBy, None])
def test_nothing_is_published_if_all_is_reserved(mode: GroupBy | None) -> None:
    options = {"mode": DeviceMode.INDIVIDUAL} if mode is None else {"group_by": mode}
    found = compute_layout(SERVER, settings(reserved=SERVER.all, **options))
    assert found.domains == {}
    assert "all 32 CPUs are reserved" in texts(found)
    assert found.warnings[0].severity is FindingSeverity.ERROR


# -- reserved CPUs and the floor of the shared pool


def test_reserved_cpus_by_count_are_adjacent() -> None:
    found = compute_layout(SERVER, settings(reserved=2))
    assert str(found.reserved) == "0,16"
    assert str(found.domains["cpudevnuma000"].cpus) == "1-3,17-19"


def test_reserved_cpus_that_do_not_exist() -> None:
    found = compute_layout(SERVER, settings(reserved=CpuSet([0, 40])))
    assert found.reserved == CpuSet([0, 40])
    assert texts(found) == "CPUs 40 in reservedCPUs do not exist: the machine has 0-31"


def test_reserved_cpus_that_are_offline_are_not_missed() -> None:
    machine = switch_off(SERVER, CpuSet([5]))
    assert compute_layout(machine, settings(reserved=CpuSet([5]))).warnings == ()


def test_more_reserved_cpus_than_the_machine_has() -> None:
    found = compute_layout(SERVER, settings(reserved=33))
    assert found.domains == {}
    assert "33 CPUs must be reserved, the machine has 32" in texts(found)


def test_always_shared_cpus_are_adjacent_to_the_reserved_cpus() -> None:
    found = compute_layout(SERVER, settings(reserved=CpuSet([0, 16]), min_shared=2))
    assert str(found.always_shared) == "1,17"
    assert str(found.domains["cpudevnuma000"].cpus) == "2-3,18-19"


def test_always_shared_cpus_by_list_and_count() -> None:
    found = compute_layout(SERVER, settings(shared=CpuSet([4, 20]), min_shared=3))
    assert CpuSet([4, 20]) <= found.always_shared
    assert len(found.always_shared) == 3


def test_more_always_shared_cpus_than_the_machine_has() -> None:
    found = compute_layout(make_machine(cores=4), settings(min_shared=9))
    assert found.domains == {}
    assert "minSharedCPUs is 9, but only 4 CPUs" in texts(found)


def test_all_cpus_always_shared() -> None:
    found = compute_layout(make_machine(cores=4), settings(min_shared=4))
    assert "all 4 CPUs that are not reserved are kept for the shared pool" in texts(found)


def test_a_cpu_stays_shared_once_containers_share_cpus() -> None:
    first = compute_layout(SERVER, settings())
    assert (first.min_shared, first.always_shared) == (0, EMPTY)
    used = compute_layout(SERVER, settings(), earlier=first, shared_in_use=True)
    assert (used.min_shared, len(used.always_shared)) == (1, 1)
    assert compute_layout(SERVER, settings(), earlier=used, shared_in_use=True) == used
    assert compute_layout(SERVER, settings(), earlier=used).domains == first.domains
    assert compute_layout(SERVER, settings(min_shared=0), shared_in_use=True).always_shared == EMPTY


def test_names_of_single_cpus_do_not_depend_on_the_shared_ones() -> None:
    options = settings(mode=DeviceMode.INDIVIDUAL)
    every = cpus_of(compute_layout(SERVER, options))
    fewer = compute_layout(SERVER, options, shared_in_use=True)
    assert cpus_of(fewer).items() <= every.items()
    assert len(fewer.domains) == len(every) - 1
    assert cpus_of(compute_layout(SERVER, options, earlier=fewer)) == every


def test_a_core_stays_shared_if_only_full_cores_are_claimed() -> None:
    options = settings(assign=AssignOptions(full_cores=True))
    found = compute_layout(SERVER, options, shared_in_use=True)
    assert found.always_shared in SERVER.cores.values()
    assert not found.warnings


def test_shared_cpus_that_are_reserved_stay_reserved() -> None:
    found = compute_layout(SERVER, settings(reserved=CpuSet([0]), shared=CpuSet([0, 1])))
    assert str(found.always_shared) == "1"
    assert "CPUs 0 are in sharedCPUs and reserved" in texts(found)


def test_allocated_cpus_are_neither_always_shared_nor_reserved_by_count() -> None:
    allocated = {"cpudevnuma000": CpuSet.parse("0-3,16-19")}
    found = compute_layout(SERVER, settings(reserved=2, min_shared=2), allocated=allocated)
    assert not (found.reserved | found.always_shared) & allocated["cpudevnuma000"]
    assert len(found.reserved) == len(found.always_shared) == 2


def test_reserving_cpus_by_list_that_claims_have_is_reported() -> None:
    found = compute_layout(
        SERVER, settings(reserved=CpuSet([0])), allocated={"cpudevnuma000": CpuSet([0, 1])}
    )
    assert "CPUs 0 are reserved and allocated to claims" in texts(found)


# -- full cores


def test_full_cores_only() -> None:
    found = compute_layout(SERVER, settings(reserved=CpuSet([0]), assign=FULL))
    domain = found.domains["cpudevnuma000"]
    assert (str(domain.cpus), domain.step, domain.capacity) == ("1-3,17-19", 2, 6)
    assert "CPUs 16 cannot be claimed" in texts(found)


def test_full_cores_of_a_hybrid_machine() -> None:
    machine = make_machine(cores=2, threads=2, efficient=3)
    found = compute_layout(machine, settings(assign=FULL))
    domain = found.domains["cpudevnuma000"]
    assert (len(domain.cpus), domain.step, domain.capacity) == (7, 2, 6)
    assert "has 7 CPUs and offers 6" in texts(found)


def test_full_cores_do_not_change_individual_cpus() -> None:
    found = compute_layout(SERVER, settings(mode=DeviceMode.INDIVIDUAL, reserved=CpuSet([0]), assign=FULL))
    assert len(found.domains) == 31
    assert "fullCores does not change what is published" in texts(found)


# -- CPUs that come and go


def test_an_always_shared_cpu_that_comes_back_is_shared_again() -> None:
    first = compute_layout(SERVER, settings(), shared_in_use=True)
    (cpu,) = first.always_shared
    others = SERVER.all - first.always_shared
    smaller = switch_off(SERVER, first.always_shared)
    # The only free CPU is one of another device.
    allocated = {"cpudevnuma000": others - CpuSet([31])}
    without = compute_layout(smaller, settings(), earlier=first, allocated=allocated, shared_in_use=True)
    assert str(without.always_shared) == "31"
    again = compute_layout(smaller, settings(), earlier=without, allocated=allocated, shared_in_use=True)
    assert again.always_shared == without.always_shared
    back = compute_layout(SERVER, settings(), earlier=again, allocated=allocated, shared_in_use=True)
    assert (back.always_shared, back.domains) == (first.always_shared, first.domains)
    assert back.preferred_shared == (cpu, 31)


def test_the_always_shared_cpus_of_an_earlier_process_are_preferred() -> None:
    chosen = compute_layout(SERVER, settings(), shared_in_use=True, preferred_shared=(99, 30, 2))
    assert str(chosen.always_shared) == "30"
    claimed = {"cpudevnuma003": CpuSet([30])}
    other = compute_layout(
        SERVER, settings(), allocated=claimed, shared_in_use=True, preferred_shared=(30, 2)
    )
    assert (str(other.always_shared), other.preferred_shared) == ("2", (2,))
    unused = compute_layout(SERVER, settings(), preferred_shared=(30, 2))
    assert (unused.always_shared, unused.preferred_shared) == (EMPTY, (30, 2))


def test_individual_names_are_stable_when_a_cpu_goes_offline_and_back() -> None:
    machine, options = make_machine(cores=4), settings(mode=DeviceMode.INDIVIDUAL)
    first = compute_layout(machine, options)
    without = compute_layout(switch_off(machine, CpuSet([1])), options, earlier=first)
    assert cpus_of(without) == {"cpudev000": "0", "cpudev002": "2", "cpudev003": "3"}
    assert list(without.offline_devices) == ["cpudev001"]
    back = compute_layout(machine, options, earlier=without)
    assert (back.domains, back.offline_devices) == (first.domains, {})


def test_individual_names_of_allocated_cpus_survive_a_restart_without_a_cpu() -> None:
    smaller = switch_off(make_machine(cores=4), CpuSet([1]))
    options = settings(mode=DeviceMode.INDIVIDUAL)
    allocated = {"cpudev002": CpuSet([2]), "cpudev001": CpuSet([1])}
    assert cpus_of(compute_layout(smaller, options, allocated=allocated)) == {
        "cpudev000": "0",
        "cpudev002": "2",
        "cpudev003": "3",
    }


def test_cache_names_are_stable_when_their_lowest_cpu_goes_offline() -> None:
    machine = make_machine(l3=2, cores=2, l3_ids="lowest")
    smaller = make_machine(l3=2, cores=2, l3_ids="lowest", offline=[2])
    options = settings(group_by=GroupBy.L3)
    first = compute_layout(machine, options)
    assert cpus_of(first) == {"cpudevl3000": "0-1", "cpudevl3002": "2-3"}
    assert cpus_of(compute_layout(smaller, options)) == {"cpudevl3000": "0-1", "cpudevl3003": "3"}
    assert cpus_of(compute_layout(smaller, options, earlier=first)) == {
        "cpudevl3000": "0-1",
        "cpudevl3002": "3",
    }
    allocated = {"cpudevl3002": CpuSet([2, 3])}
    assert cpus_of(compute_layout(smaller, options, allocated=allocated)) == {
        "cpudevl3000": "0-1",
        "cpudevl3002": "3",
    }


def test_always_shared_cpus_are_stable_and_replenished() -> None:
    options = settings(min_shared=2)
    first = compute_layout(SERVER, options)
    assert str(first.always_shared) == "0,16"
    smaller = switch_off(SERVER, CpuSet([16]))
    allocated = {"cpudevnuma000": CpuSet.parse("1-3,17-19")}
    again = compute_layout(smaller, options, earlier=first, allocated=allocated)
    assert 0 in again.always_shared
    assert len(again.always_shared) == 2
    assert not again.always_shared & allocated["cpudevnuma000"]


def test_reserved_cpus_by_count_are_stable() -> None:
    first = compute_layout(SERVER, settings(reserved=2))
    smaller = switch_off(SERVER, CpuSet([0]))
    assert compute_layout(smaller, settings(reserved=2), earlier=first).reserved == first.reserved


def test_cpus_allocated_under_names_of_another_grouping_are_not_offered() -> None:
    allocated = {"cpudevsocket000": CpuSet([0, 16]), "": CpuSet([5])}
    found = compute_layout(SERVER, settings(), allocated=allocated)
    assert str(found.domains["cpudevnuma000"].cpus) == "1-3,17-19"
    assert 5 in found.domains["cpudevnuma001"].cpus  # whose device is not known: the scheduler counts it
    assert "claims have CPUs 0,16 of devices that are no longer published (cpudevsocket000)" in texts(found)
    assert (
        str(compute_layout(SERVER, settings(), allocated={"cpudevnuma000": CpuSet([0])}).claimable) == "0-31"
    )


# -- machines of every shape

OPTIONS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(DeviceMode),
        "group_by": st.sampled_from(GroupBy),
        "reserved": st.one_of(st.integers(0, 4), st.sets(st.integers(0, 12), max_size=4).map(CpuSet)),
        "min_shared": st.integers(0, 3),
        "shared": st.sets(st.integers(0, 8), max_size=2).map(CpuSet),
        "assign": st.sampled_from([AssignOptions(), FULL]),
    }
)


@given(machines(), OPTIONS)
def test_every_cpu_is_in_exactly_one_group(machine: Topology, options: dict[str, object]) -> None:
    chosen = settings(**options)
    found = compute_layout(machine, chosen)
    parts = [
        found.reserved & machine.all,
        found.always_shared,
        *(domain.cpus for domain in found.domains.values()),
    ]
    union = reduce(or_, parts, EMPTY)
    assert sum(map(len, parts)) == len(union)
    assert union <= machine.all
    if not chosen.assign.full_cores or chosen.mode is DeviceMode.INDIVIDUAL:
        assert union == machine.all
    else:
        left = machine.all - union
        largest = max(map(len, machine.cores.values()))
        for core in _broken(machine, left):
            assert len(core) < largest or not core <= left | found.claimable
    for name, domain in found.domains.items():
        assert LABEL.fullmatch(name)
        assert domain.name == name
        assert 0 < domain.capacity <= len(domain.cpus)
        assert domain.capacity % domain.step == 0
    assert found.claimable == reduce(or_, (d.cpus for d in found.domains.values()), EMPTY)


def _broken(machine: Topology, left: CpuSet) -> list[CpuSet]:
    return [core for core in machine.cores.values() if core & left]


@given(machines(), OPTIONS)
def test_groups_equal_the_naive_grouping(machine: Topology, options: dict[str, object]) -> None:
    """Compare CPU by CPU: the properties it shares with the other CPUs of its device."""
    chosen = replace(settings(**options), assign=AssignOptions())
    found = compute_layout(machine, chosen)
    groups: dict[object, set[int]] = {}
    for cpu in machine.cpus:
        if cpu.id not in found.reserved | found.always_shared:
            groups.setdefault(_common(cpu, chosen), set()).add(cpu.id)
    assert sorted(map(sorted, groups.values())) == sorted(sorted(d.cpus) for d in found.domains.values())


def _common(cpu: Cpu, chosen: CpuSettings) -> object:
    if chosen.mode is DeviceMode.INDIVIDUAL:
        return cpu.id
    return {
        GroupBy.NUMA: cpu.numa,
        GroupBy.SOCKET: cpu.socket,
        GroupBy.L3: (cpu.l3, cpu.numa if cpu.l3 < 0 else -1),
        GroupBy.PCIE: (cpu.pcie_roots, -1 if cpu.pcie_roots else cpu.numa),
        GroupBy.MACHINE: 0,
    }[chosen.group_by]


@given(machines(), OPTIONS, st.data())
def test_device_names_are_stable_while_cpus_change(
    machine: Topology, options: dict[str, object], data: st.DataObject
) -> None:
    chosen = settings(**options)
    now = compute_layout(machine, chosen)
    meant = dict(now.names)
    for _ in range(3):
        off = data.draw(st.sets(st.sampled_from(sorted(machine.all)), max_size=len(machine.all) - 1))
        now = compute_layout(switch_off(machine, CpuSet(off)), chosen, earlier=now)
        for name, domain in now.domains.items():
            for cpu in domain.cpus:
                assert meant.setdefault(cpu, name) == name
        assert not set(now.domains) & set(now.offline_devices)
        assert all(not domain.cpus for domain in now.offline_devices.values())


@given(machines(), OPTIONS, st.data())
def test_every_amount_the_policy_allows_is_available_in_full_cores(
    machine: Topology, options: dict[str, object], data: st.DataObject
) -> None:
    """Claim after claim until nothing is left: full cores always make up the amount."""
    chosen = replace(settings(**options), mode=DeviceMode.GROUPED, assign=FULL)
    for domain in compute_layout(machine, chosen).domains.values():
        free, left = domain.cpus, domain.capacity
        while left:
            amount = domain.step * data.draw(st.integers(1, left // domain.step))
            got = assign(machine, free, amount, FULL)
            assert isinstance(got, Assigned), (domain, free, amount, got)
            assert got.cpus <= free
            assert len(got.cpus) == amount
            free, left = free - got.cpus, left - amount
