"""Which CPUs can be claimed under which device, on machines of every shape."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from operator import or_

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import Severity
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.drivers.cpu.allocation.allocate import Assigned, assign
from plimsoll.drivers.cpu.devices import Arrangement, arrange
from plimsoll.drivers.cpu.settings import CpuSettings, GroupBy, Mode
from plimsoll.drivers.cpu.topology import Cpu, Topology
from tests.unit.drivers.cpu.machines import machines, make_machine, switch_off

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
FULL = AssignOptions(full_cores=True)
#: 2 sockets of 2 nodes of 4 cores of 2 threads: 32 CPUs; siblings are 16 apart.
SERVER = make_machine(sockets=2, numa=2, cores=4, threads=2, roots=2)


def settings(**options: object) -> CpuSettings:
    return replace(CpuSettings(node="n"), **options)  # type: ignore[arg-type]


def cpus_of(arrangement: Arrangement) -> dict[str, str]:
    return {name: str(domain.cpus) for name, domain in arrangement.domains.items()}


def texts(arrangement: Arrangement) -> str:
    return "\n".join(finding.what for finding in arrangement.warnings)


# -- names, order and members


def test_groups_by_numa_node() -> None:
    assert cpus_of(arrange(SERVER, settings())) == {
        "cpudevnuma000": "0-3,16-19",
        "cpudevnuma001": "4-7,20-23",
        "cpudevnuma002": "8-11,24-27",
        "cpudevnuma003": "12-15,28-31",
    }


def test_groups_by_socket_and_machine() -> None:
    by_socket = arrange(SERVER, settings(group_by=GroupBy.SOCKET))
    assert cpus_of(by_socket) == {"cpudevsocket000": "0-7,16-23", "cpudevsocket001": "8-15,24-31"}
    assert cpus_of(arrange(SERVER, settings(group_by=GroupBy.MACHINE))) == {"cpudevmachine": "0-31"}


def test_groups_by_l3_cache() -> None:
    machine = make_machine(numa=1, l3=2, cores=2)
    found = arrange(machine, settings(group_by=GroupBy.L3))
    assert cpus_of(found) == {"cpudevl3000": "0-1", "cpudevl3001": "2-3"}
    assert [domain.l3 for domain in found.domains.values()] == [0, 1]


def test_cpus_without_an_l3_cache_are_grouped_by_numa_node() -> None:
    machine = make_machine(numa=2, l3=0, cores=2)
    found = arrange(machine, settings(group_by=GroupBy.L3))
    assert cpus_of(found) == {"cpudevnol3000": "0-1", "cpudevnol3001": "2-3"}
    assert [domain.l3 for domain in found.domains.values()] == [-1, -1]


def test_groups_by_pcie_root() -> None:
    machine = make_machine(numa=2, cores=2, roots=2)
    found = arrange(machine, settings(group_by=GroupBy.PCIE))
    assert cpus_of(found) == {"cpudevpci0000-00": "0-1", "cpudevpci0000-10": "2-3"}
    assert found.domains["cpudevpci0000-00"].pcie_roots == ("pci0000:00", "pci0000:01")


def test_sets_of_pcie_roots_that_overlap_are_devices_of_their_own() -> None:
    near = [("pci0000:00",), ("pci0000:00", "pci0000:40"), (), ("pci0000:40",)]
    machine = make_machine(cores=4)
    cpus = tuple(replace(cpu, pcie_roots=near[cpu.id]) for cpu in machine.cpus)
    found = cpus_of(arrange(replace(machine, cpus=cpus), settings(group_by=GroupBy.PCIE)))
    assert sorted(found.values()) == ["0", "1", "2", "3"]
    assert found["cpudevpci0000-40"] == "3"
    assert found["cpudevnopci000"] == "2"
    assert sum(name.startswith("cpudevpci0000-00-") for name in found) == 2


def test_individual_cpus_have_their_siblings_beside_them() -> None:
    machine = make_machine(cores=3, threads=2)
    found = arrange(machine, settings(mode=Mode.INDIVIDUAL))
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
    found = arrange(machine, settings(mode=Mode.INDIVIDUAL, reserved=CpuSet([0, 4])))
    assert cpus_of(found) == {"cpudev000": "1", "cpudev001": "2", "cpudev002": "5", "cpudev003": "3"}


def test_more_than_a_thousand_cpus_stay_in_order() -> None:
    machine = make_machine(cores=1002)
    names = list(arrange(machine, settings(mode=Mode.INDIVIDUAL)).domains)
    assert names[998:] == ["cpudev998", "cpudev999", "cpudev1000", "cpudev1001"]


def test_groups_without_cpus_are_left_out() -> None:
    reserved = CpuSet.parse("0-3,16-19")
    assert "cpudevnuma000" not in arrange(SERVER, settings(reserved=reserved)).domains
    assert len(arrange(SERVER, settings(reserved=reserved)).domains) == 3


@pytest.mark.parametrize("mode", [*GroupBy, None])
def test_nothing_is_published_if_all_is_reserved(mode: GroupBy | None) -> None:
    options = {"mode": Mode.INDIVIDUAL} if mode is None else {"group_by": mode}
    found = arrange(SERVER, settings(reserved=SERVER.all, **options))
    assert found.domains == {}
    assert "all 32 CPUs are reserved" in texts(found)
    assert found.warnings[0].severity is Severity.ERROR


# -- reserved CPUs and the floor of the shared pool


def test_reserved_cpus_by_number_lie_together() -> None:
    found = arrange(SERVER, settings(reserved=2))
    assert str(found.reserved) == "0,16"
    assert str(found.domains["cpudevnuma000"].cpus) == "1-3,17-19"


def test_reserved_cpus_that_do_not_exist() -> None:
    found = arrange(SERVER, settings(reserved=CpuSet([0, 40])))
    assert found.reserved == CpuSet([0, 40])
    assert texts(found) == "CPUs 40 in reservedCPUs do not exist: the machine has 0-31"


def test_reserved_cpus_that_are_offline_are_not_missed() -> None:
    machine = switch_off(SERVER, CpuSet([5]))
    assert arrange(machine, settings(reserved=CpuSet([5]))).warnings == ()


def test_more_reserved_than_there_are() -> None:
    found = arrange(SERVER, settings(reserved=33))
    assert found.domains == {}
    assert "33 CPUs are to be reserved, the machine has 32" in texts(found)


def test_the_floor_lies_together_beside_the_reserved_cpus() -> None:
    found = arrange(SERVER, settings(reserved=CpuSet([0, 16]), min_shared=2))
    assert str(found.floor) == "1,17"
    assert str(found.domains["cpudevnuma000"].cpus) == "2-3,18-19"


def test_the_floor_by_list_and_number() -> None:
    found = arrange(SERVER, settings(shared=CpuSet([4, 20]), min_shared=3))
    assert CpuSet([4, 20]) <= found.floor
    assert len(found.floor) == 3


def test_a_floor_larger_than_the_machine() -> None:
    found = arrange(make_machine(cores=4), settings(min_shared=9))
    assert found.domains == {}
    assert "minSharedCPUs is 9, but the shared pool can keep only 4 CPUs" in texts(found)


def test_a_floor_as_large_as_the_machine() -> None:
    found = arrange(make_machine(cores=4), settings(min_shared=4))
    assert "all 4 CPUs that are not reserved are kept for the shared pool" in texts(found)


def test_shared_cpus_that_are_reserved_stay_reserved() -> None:
    found = arrange(SERVER, settings(reserved=CpuSet([0]), shared=CpuSet([0, 1])))
    assert str(found.floor) == "1"
    assert "CPUs 0 are in sharedCPUs and reserved" in texts(found)


def test_cpus_that_claims_hold_are_neither_floor_nor_reserved_by_number() -> None:
    held = {"cpudevnuma000": CpuSet.parse("0-3,16-19")}
    found = arrange(SERVER, settings(reserved=2, min_shared=2), held=held)
    assert not (found.reserved | found.floor) & held["cpudevnuma000"]
    assert len(found.reserved) == len(found.floor) == 2


def test_reserving_cpus_by_list_that_claims_hold_is_told() -> None:
    found = arrange(SERVER, settings(reserved=CpuSet([0])), held={"cpudevnuma000": CpuSet([0, 1])})
    assert "CPUs 0 are reserved and held by claims" in texts(found)


# -- whole cores


def test_whole_cores_only() -> None:
    found = arrange(SERVER, settings(reserved=CpuSet([0]), assign=FULL))
    domain = found.domains["cpudevnuma000"]
    assert (str(domain.cpus), domain.step, domain.capacity) == ("1-3,17-19", 2, 6)
    assert "CPUs 16 cannot be claimed" in texts(found)


def test_whole_cores_of_a_hybrid_machine() -> None:
    machine = make_machine(cores=2, threads=2, efficient=3)
    found = arrange(machine, settings(assign=FULL))
    domain = found.domains["cpudevnuma000"]
    assert (len(domain.cpus), domain.step, domain.capacity) == (7, 2, 6)
    assert "has 7 CPUs and offers 6" in texts(found)


def test_whole_cores_do_not_change_individual_cpus() -> None:
    found = arrange(SERVER, settings(mode=Mode.INDIVIDUAL, reserved=CpuSet([0]), assign=FULL))
    assert len(found.domains) == 31
    assert "fullCores does not change what is published" in texts(found)


# -- CPUs that come and go


def test_individual_names_stay_when_a_cpu_goes_and_comes_back() -> None:
    machine, options = make_machine(cores=4), settings(mode=Mode.INDIVIDUAL)
    first = arrange(machine, options)
    without = arrange(switch_off(machine, CpuSet([1])), options, earlier=first)
    assert cpus_of(without) == {"cpudev000": "0", "cpudev002": "2", "cpudev003": "3"}
    assert list(without.away) == ["cpudev001"]
    back = arrange(machine, options, earlier=without)
    assert (back.domains, back.away) == (first.domains, {})


def test_individual_names_of_held_cpus_survive_a_restart_without_a_cpu() -> None:
    smaller = switch_off(make_machine(cores=4), CpuSet([1]))
    options = settings(mode=Mode.INDIVIDUAL)
    held = {"cpudev002": CpuSet([2]), "cpudev001": CpuSet([1])}
    assert cpus_of(arrange(smaller, options, held=held)) == {
        "cpudev000": "0",
        "cpudev002": "2",
        "cpudev003": "3",
    }


def test_names_of_caches_stay_when_their_lowest_cpu_goes() -> None:
    machine = make_machine(l3=2, cores=2, l3_ids="lowest")
    smaller = make_machine(l3=2, cores=2, l3_ids="lowest", offline=[2])
    options = settings(group_by=GroupBy.L3)
    first = arrange(machine, options)
    assert cpus_of(first) == {"cpudevl3000": "0-1", "cpudevl3002": "2-3"}
    assert cpus_of(arrange(smaller, options)) == {"cpudevl3000": "0-1", "cpudevl3003": "3"}
    assert cpus_of(arrange(smaller, options, earlier=first)) == {"cpudevl3000": "0-1", "cpudevl3002": "3"}
    held = {"cpudevl3002": CpuSet([2, 3])}
    assert cpus_of(arrange(smaller, options, held=held)) == {"cpudevl3000": "0-1", "cpudevl3002": "3"}


def test_the_floor_stays_and_is_filled_up() -> None:
    options = settings(min_shared=2)
    first = arrange(SERVER, options)
    assert str(first.floor) == "0,16"
    smaller = switch_off(SERVER, CpuSet([16]))
    held = {"cpudevnuma000": CpuSet.parse("1-3,17-19")}
    again = arrange(smaller, options, earlier=first, held=held)
    assert 0 in again.floor
    assert len(again.floor) == 2
    assert not again.floor & held["cpudevnuma000"]


def test_reserved_cpus_by_number_stay() -> None:
    first = arrange(SERVER, settings(reserved=2))
    smaller = switch_off(SERVER, CpuSet([0]))
    assert arrange(smaller, settings(reserved=2), earlier=first).reserved == first.reserved


def test_cpus_held_under_names_of_another_grouping_are_not_offered() -> None:
    held = {"cpudevsocket000": CpuSet([0, 16]), "": CpuSet([5])}
    found = arrange(SERVER, settings(), held=held)
    assert str(found.domains["cpudevnuma000"].cpus) == "1-3,17-19"
    assert 5 in found.domains["cpudevnuma001"].cpus  # whose device is not known: the scheduler counts it
    assert "claims hold CPUs 0,16 of devices that are published no more (cpudevsocket000)" in texts(found)
    assert str(arrange(SERVER, settings(), held={"cpudevnuma000": CpuSet([0])}).claimable) == "0-31"


# -- machines of every shape

OPTIONS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(Mode),
        "group_by": st.sampled_from(GroupBy),
        "reserved": st.one_of(st.integers(0, 4), st.sets(st.integers(0, 12), max_size=4).map(CpuSet)),
        "min_shared": st.integers(0, 3),
        "shared": st.sets(st.integers(0, 8), max_size=2).map(CpuSet),
        "assign": st.sampled_from([AssignOptions(), FULL]),
    }
)


@given(machines(), OPTIONS)
def test_every_cpu_is_somewhere_and_nowhere_twice(machine: Topology, options: dict[str, object]) -> None:
    chosen = settings(**options)
    found = arrange(machine, chosen)
    parts = [found.reserved & machine.all, found.floor, *(domain.cpus for domain in found.domains.values())]
    union = reduce(or_, parts, EMPTY)
    assert sum(map(len, parts)) == len(union)
    assert union <= machine.all
    if not chosen.assign.full_cores or chosen.mode is Mode.INDIVIDUAL:
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
def test_a_naive_grouping_agrees(machine: Topology, options: dict[str, object]) -> None:
    """CPU by CPU: what it has in common with the others of its device."""
    chosen = replace(settings(**options), assign=AssignOptions())
    found = arrange(machine, chosen)
    groups: dict[object, set[int]] = {}
    for cpu in machine.cpus:
        if cpu.id not in found.reserved | found.floor:
            groups.setdefault(_common(cpu, chosen), set()).add(cpu.id)
    assert sorted(map(sorted, groups.values())) == sorted(sorted(d.cpus) for d in found.domains.values())


def _common(cpu: Cpu, chosen: CpuSettings) -> object:
    if chosen.mode is Mode.INDIVIDUAL:
        return cpu.id
    return {
        GroupBy.NUMA: cpu.numa,
        GroupBy.SOCKET: cpu.socket,
        GroupBy.L3: (cpu.l3, cpu.numa if cpu.l3 < 0 else -1),
        GroupBy.PCIE: (cpu.pcie_roots, -1 if cpu.pcie_roots else cpu.numa),
        GroupBy.MACHINE: 0,
    }[chosen.group_by]


@given(machines(), OPTIONS, st.data())
def test_names_mean_the_same_while_cpus_come_and_go(
    machine: Topology, options: dict[str, object], data: st.DataObject
) -> None:
    chosen = settings(**options)
    now = arrange(machine, chosen)
    meant = dict(now.names)
    for _ in range(3):
        off = data.draw(st.sets(st.sampled_from(sorted(machine.all)), max_size=len(machine.all) - 1))
        now = arrange(switch_off(machine, CpuSet(off)), chosen, earlier=now)
        for name, domain in now.domains.items():
            for cpu in domain.cpus:
                assert meant.setdefault(cpu, name) == name
        assert not set(now.domains) & set(now.away)
        assert all(not domain.cpus for domain in now.away.values())


@given(machines(), OPTIONS, st.data())
def test_every_amount_that_the_policy_allows_can_be_had_in_whole_cores(
    machine: Topology, options: dict[str, object], data: st.DataObject
) -> None:
    """Claim after claim until nothing is left: whatever was taken before, whole cores make up the amount."""
    chosen = replace(settings(**options), mode=Mode.GROUPED, assign=FULL)
    for domain in arrange(machine, chosen).domains.values():
        free, left = domain.cpus, domain.capacity
        while left:
            amount = domain.step * data.draw(st.integers(1, left // domain.step))
            got = assign(machine, free, amount, FULL)
            assert isinstance(got, Assigned), (domain, free, amount, got)
            assert got.cpus <= free
            assert len(got.cpus) == amount
            free, left = free - got.cpus, left - amount
