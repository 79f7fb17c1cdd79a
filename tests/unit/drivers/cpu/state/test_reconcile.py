"""Reconciliation of checkpoint, CDI files and running containers, in every combination."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.common.checkpoint import FindingSeverity
from plimsoll.drivers.cpu.state.cdi import CpuClaimCdiFile
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource
from plimsoll.drivers.cpu.state.prepare import PrepareContext
from plimsoll.drivers.cpu.state.reconcile import (
    apply_conflict,
    compare_containers,
    find_disputes,
    find_misplaced,
    reconcile,
)
from tests.sizes import examples
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import Container, allocated, cpus, files, record, scene_of

#: CPUs 0-3 are NUMA node 0, 4-7 are node 1.
SMALL = make_machine(sockets=2, cores=4)


def test_consistent_sources() -> None:
    found = reconcile(record(allocated("x", "0-1")), files(x="0-1"), scene_of())
    assert found.allocations == record(allocated("x", "0-1"))
    assert not found.findings
    assert not found.rewrite


def test_a_missing_file_is_written_again() -> None:
    found = reconcile(record(allocated("x", "0-1")), {}, scene_of())
    assert found.allocations == record(allocated("x", "0-1"))
    assert found.rewrite == ("x",)
    assert [finding.severity for finding in found.findings] == [FindingSeverity.INFO]


@pytest.mark.parametrize("named", ["", "0"])
def test_a_broken_file_that_contradicts_nothing_is_written_again(named: str) -> None:
    broken = {"x": CpuClaimCdiFile("x", cpus(named), fault="no JSON", path="/cdi/x")}
    found = reconcile(record(allocated("x", "0-1")), broken, scene_of())
    assert found.allocations == record(allocated("x", "0-1"))
    assert found.rewrite == ("x",)
    assert "no JSON" in found.findings[0].what


@pytest.mark.parametrize("fault", ["", "has two contents"])
def test_a_file_with_other_cpus_is_a_dispute(fault: str) -> None:
    other = {"x": CpuClaimCdiFile("x", cpus("1-2"), fault=fault)}
    found = reconcile(record(allocated("x", "0-1")), other, scene_of())
    allocation = found.allocations["x"]
    assert allocation.cpus == cpus("0-2")
    assert allocation.assigned == cpus("0-1")
    assert allocation.disputed.startswith("the checkpoint has CPUs 0-1, the CDI file 1-2")
    assert not found.rewrite
    env_cpus = find_disputes(found.allocations)[0]
    assert env_cpus.severity is FindingSeverity.ERROR
    assert "unprepared" in env_cpus.fix
    # It stays so when looked at again, also without the file.
    assert reconcile(found.allocations, other, scene_of()).allocations == found.allocations
    assert reconcile(found.allocations, {}, scene_of()).allocations == found.allocations
    assert not reconcile(found.allocations, {}, scene_of()).rewrite


def test_a_file_without_a_checkpoint_is_adopted() -> None:
    found = reconcile({}, files(x="2-5"), scene_of())
    allocation = found.allocations["x"]
    assert allocation.adopted
    assert not allocation.disputed
    assignments = {
        (assignment.device, str(assignment.cpus), assignment.source) for assignment in allocation.assignments
    }
    assert assignments == {
        ("cpudevnuma000", "2-3", AssignmentSource.ADOPTED),
        ("cpudevnuma001", "4-5", AssignmentSource.ADOPTED),
    }
    assert found.findings[0].severity is FindingSeverity.INFO


@pytest.mark.parametrize(
    ("context", "in_file", "why"),
    [
        (scene_of(reserved=CpuSet([0])), "0-1", "CPUs 0 are reserved"),
        (scene_of(offline="1"), "0-1", "CPUs 1 are offline"),
        (scene_of(), "3,900", "CPUs 900 are offline"),
    ],
)
def test_a_file_with_unallocatable_cpus_is_disputed(context: PrepareContext, in_file: str, why: str) -> None:
    allocation = reconcile({}, files(x=in_file), context).allocations["x"]
    assert why in allocation.disputed
    assert allocation.cpus == cpus(in_file)


def test_a_broken_file_without_a_checkpoint() -> None:
    named = {"x": CpuClaimCdiFile("x", cpus("1-2"), fault="has two contents")}
    allocation = reconcile({}, named, scene_of()).allocations["x"]
    assert allocation.cpus == cpus("1-2")
    assert "has two contents" in allocation.disputed
    nothing = reconcile({}, {"x": CpuClaimCdiFile("x", EMPTY, fault="no JSON", path="/cdi/x")}, scene_of())
    assert not nothing.allocations
    assert nothing.findings[0].fix == "remove /cdi/x"


def test_claims_that_overlap_are_all_disputed() -> None:
    found = reconcile({}, files(x="0-1", y="1-2", z="5"), scene_of())
    assert "CPUs 1 are also those of claim y" in found.allocations["x"].disputed
    assert "CPUs 1 are also those of claim x" in found.allocations["y"].disputed
    assert not found.allocations["z"].disputed
    # Also a claim that the record knows: the other driver may have given its CPUs away.
    mixed = reconcile(record(allocated("x", "0-1")), files(x="0-1", y="1-2"), scene_of())
    assert all(allocation.disputed for allocation in mixed.allocations.values())


def test_checkpointed_claims_keep_cpus_that_became_reserved_or_offline() -> None:
    context = scene_of(offline="1", reserved=CpuSet([0]))
    found = reconcile(record(allocated("x", "0-1")), files(x="0-1"), context)
    assert found.allocations == record(allocated("x", "0-1"))
    texts = [finding.what for finding in find_misplaced(found.allocations, context)]
    assert any("CPUs 1 of claim default/name-x (x) are offline" in text for text in texts)
    assert any("CPUs 0 of claim default/name-x (x) are now reserved" in text for text in texts)


# -- running containers


def test_a_consistent_container() -> None:
    seen = [Container("ns/pod/c", {"x": cpus("0-1")}), Container("ns/pod/d", {})]
    assert compare_containers(record(allocated("x", "0-1")), seen, scene_of()) == ({}, ())


def test_a_container_with_an_unknown_claim_is_not_trusted() -> None:
    conflicts, findings = compare_containers({}, [Container("ns/pod/c", {"x": cpus("0-1")})], scene_of())
    assert not conflicts
    assert "ns/pod/c" in findings[0].what
    assert "not trusted" in findings[0].fix


def test_a_container_with_other_cpus_is_a_dispute() -> None:
    allocation = allocated("x", "0-1")
    conflicts, findings = compare_containers(
        record(allocation), [Container("ns/p/c", {"x": cpus("1-2")})], scene_of()
    )
    seen = apply_conflict(allocation, conflicts["x"])
    assert seen.cpus == cpus("0-2")
    assert "has CPUs 1-2 in its environment, the claim has 0-1" in seen.disputed
    assert findings[0].severity is FindingSeverity.ERROR
    assert apply_conflict(allocation, None) == allocation


def test_a_container_of_another_namespace_cannot_dispute() -> None:
    stranger = Container("evil/p/c", {"x": cpus("0-7")}, namespace="evil")
    conflicts, findings = compare_containers(record(allocated("x", "0-1")), [stranger], scene_of())
    assert not conflicts
    assert "not trusted" in findings[0].what


def test_a_container_cannot_take_cpus_of_other_claims() -> None:
    """Nor CPUs that its claim could never have had, nor the last one."""
    allocations = record(allocated("x", "0-1"), allocated("y", "2"))
    liar = Container("default/p/c", {"x": cpus("0-900")})
    conflicts, _ = compare_containers(allocations, [liar], scene_of())
    assert conflicts["x"].contested == cpus("3")  # the rest of its own NUMA node
    tight = scene_of(reserved=cpus("4-7"))
    conflicts, _ = compare_containers(allocations, [liar], tight)
    assert conflicts["x"].contested == EMPTY  # 3 is the last one that is shared
    assert "x" in conflicts


uids = st.sampled_from(["u", "v", "w", "x"])
sets = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(CpuSet)


@given(
    st.dictionaries(uids, sets),
    st.dictionaries(uids, st.tuples(sets, st.sampled_from(["", "broken"]))),
    st.lists(st.tuples(uids, sets), max_size=4),
)
@hypothesis_settings(max_examples=examples(200), deadline=None)
def test_cpus_named_by_any_source_are_not_allocated(
    known: dict[str, CpuSet], in_file: dict[str, tuple[CpuSet, str]], env_cpus: list[tuple[str, CpuSet]]
) -> None:
    context = scene_of()
    before = {uid: allocated(uid, str(text)) for uid, text in known.items()}
    present = {uid: CpuClaimCdiFile(uid, text, fault=fault) for uid, (text, fault) in in_file.items()}
    found = reconcile(before, present, context)
    for uid in known.keys() | in_file.keys():
        named = known.get(uid, EMPTY) | (present[uid].cpus if uid in present else EMPTY)
        assert found.allocations[uid].cpus == named
    fine = [allocation for allocation in found.allocations.values() if not allocation.disputed]
    for allocation in fine:
        others = union(other.cpus for other in found.allocations.values() if other is not allocation)
        assert not allocation.cpus & others
        # A container may still start on these CPUs.
        assert known.get(allocation.ref.uid, allocation.assigned) == allocation.assigned
        assert allocation.ref.uid not in in_file or in_file[allocation.ref.uid][0] <= allocation.assigned
    again = reconcile(found.allocations, present, context)
    assert again.allocations == found.allocations
    containers = [Container(f"default/p/{n}", {uid: text}) for n, (uid, text) in enumerate(env_cpus)]
    conflicts, _ = compare_containers(found.allocations, containers, context)
    for uid, text in env_cpus:
        if uid in found.allocations:
            assert (uid in conflicts) == any(
                text != found.allocations[uid].assigned for other, text in env_cpus if other == uid
            )
    pool = context.shared - union(allocation.cpus for allocation in found.allocations.values())
    left = pool - union(one.contested for one in conflicts.values())
    assert bool(left) == bool(pool)
