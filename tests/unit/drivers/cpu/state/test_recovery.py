"""Recovery of claims after checkpoint and CDI files were lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.cpu.state.recovery import find_unverified, is_allocated_here, recover_claim
from plimsoll.drivers.plugin.driver import ClaimError
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.fixtures import (
    INDIVIDUAL,
    NODE,
    AllocationSpec,
    Container,
    CPUStateFixture,
    allocated,
    cpus,
    make_claim,
    record,
    scene_of,
    uid_of,
)

UID = uid_of(1)


def tree_of(*asked: AllocationSpec, cpuset: str = "", users: tuple[str, ...] = ("pod",)) -> dict[str, Any]:
    """Return a claim of the cluster; `cpuset` is in the status of its devices."""
    tree: dict[str, Any] = dict(make_claim(1, *asked).tree)
    tree["status"] = {**tree["status"], "reservedFor": [{"resource": "pods", "uid": uid} for uid in users]}
    if cpuset:
        tree["status"]["devices"] = [
            {"driver": each.driver, "device": each.device, "pool": NODE, "data": {"cpuset": cpuset}}
            for each in asked
        ]
    return tree


TWO = AllocationSpec("cpudevnuma000", "2")


def test_cpus_of_containers_are_withheld_until_the_cluster_is_asked() -> None:
    seen = [
        Container("ns/p/c", {"x": cpus("0-1"), "known": cpus("4")}),
        Container("ns/q/c", {"y": cpus("1-3,7,900")}),
    ]
    context = scene_of(reserved=cpus("7"))
    found = find_unverified(record(allocated("known", "2")), seen, context)
    assert {uid: str(allocation.cpus) for uid, allocation in found.items()} == {"x": "0-1", "y": "1,3"}
    assert all(allocation.disputed for allocation in found.values())


@pytest.mark.parametrize(
    ("tree", "containers", "expected"),
    [
        (tree_of(TWO), [Container("c", {UID: cpus("1-2")})], "1-2"),
        (tree_of(TWO, cpuset="1-2"), [], "1-2"),
        (tree_of(TWO, cpuset="1-2"), [Container("c", {UID: cpus("1-2")})], "1-2"),
        (tree_of(TWO, cpuset="1-2", users=()), [], None),  # unprepared, its status is out of date
        (tree_of(TWO), [], None),  # nothing says which
        (tree_of(TWO), [Container("c", {UID: cpus("1-2")}, namespace="other")], None),
        (tree_of(TWO, users=("another",)), [Container("c", {UID: cpus("1-2")})], None),
        (tree_of(AllocationSpec("gpu", driver="gpu")), [Container("c", {UID: cpus("1-2")})], None),
        (tree_of(AllocationSpec("cpudevnuma000", admin=True)), [Container("c", {UID: cpus("1")})], None),
    ],
)
def test_claims_are_recovered_from_containers_and_the_cluster(
    tree: dict[str, Any], containers: list[Container], expected: str | None
) -> None:
    found = recover_claim(tree, containers, scene_of())
    if expected is None:
        assert found is None
        return
    assert found is not None
    assert (str(found.assigned), found.adopted, found.disputed) == (expected, True, "")
    assert (found.ref.namespace, found.ref.uid) == ("default", UID)


@pytest.mark.parametrize(
    ("cpuset", "containers", "withheld"),
    [
        ("0-1", [Container("c", {UID: cpus("1-2")})], "0-2"),
        ("", [Container("c", {UID: cpus("1-2")}), Container("d", {UID: cpus("3")})], "1-3"),
    ],
)
def test_contradicting_sources_are_a_dispute(cpuset: str, containers: list[Container], withheld: str) -> None:
    found = recover_claim(tree_of(TWO, cpuset=cpuset), containers, scene_of())
    assert found is not None
    assert found.disputed
    assert str(found.cpus) == withheld


def test_single_cpus_are_known_by_their_devices() -> None:
    context = scene_of(**INDIVIDUAL)
    tree = tree_of(AllocationSpec("cpudev002"))
    found = recover_claim(tree, [Container("c", {UID: cpus("2")})], context)
    assert found is not None
    assert (str(found.assigned), found.disputed) == ("2", "")
    wrong = recover_claim(tree, [Container("c", {UID: cpus("5")})], context)
    assert wrong is not None
    assert "the claim's devices has CPUs 2" in wrong.disputed


def test_claims_of_other_nodes() -> None:
    assert is_allocated_here(tree_of(TWO), NODE)
    assert not is_allocated_here(tree_of(TWO), "other")
    assert not is_allocated_here({}, NODE)


@pytest.fixture
def fixture(tmp_path: Path) -> CPUStateFixture:
    return CPUStateFixture(tmp_path, make_machine(numa=2, cores=4), {"min_shared": 0})


def test_a_running_containers_cpus_are_not_given_to_another_claim(fixture: CPUStateFixture) -> None:
    held = fixture.open().prepare(make_claim(1, TWO))
    assert isinstance(held, ClaimAllocation)
    shutil.rmtree(fixture.settings.plugin_dir)
    shutil.rmtree(fixture.settings.cdi)
    container = Container("default/p/c", {UID: held.assigned})
    for _ in range(2):  # also if the driver is killed before it has asked the cluster
        state = fixture.open()
        assert state.recovering
        state.check_containers([container])
        assert state.unverified == {UID}
        other = state.prepare(make_claim(2, AllocationSpec("cpudevnuma000", "2")))
        assert isinstance(other, ClaimAllocation)
        assert not other.assigned & held.assigned
        assert isinstance(state.prepare(make_claim(1, TWO)), ClaimError)
    recovered = recover_claim(tree_of(TWO), [container], state.context)
    assert recovered is not None
    assert state.restore_claims({UID: recovered}) == ""
    assert not state.recovering
    again = state.prepare(make_claim(1, TWO))
    assert isinstance(again, ClaimAllocation)
    assert (again.assigned, again.adopted) == (held.assigned, False)
    reopened = fixture.open()
    assert not reopened.recovering
    assert reopened.allocations.keys() == {uid_of(1), uid_of(2)}


@pytest.mark.parametrize("killed", [False, True])
def test_a_claim_that_is_released_during_the_recovery_stays_released(
    fixture: CPUStateFixture, killed: bool
) -> None:
    """The list of claims may be older than the release."""
    state = fixture.open()
    recovered = recover_claim(tree_of(TWO, cpuset="1-2"), [], state.context)
    assert recovered is not None
    assert state.release(recovered.ref) is None
    if killed:
        state = fixture.open()
        assert state.recovering
    assert state.restore_claims({UID: recovered}) == ""
    assert not state.allocations
    assert not fixture.open().recovering
    assert isinstance(state.prepare(make_claim(1, TWO)), ClaimAllocation), "a later pod"


def test_a_claim_whose_cpus_another_one_has_is_not_recovered_without_a_container(
    fixture: CPUStateFixture,
) -> None:
    """It was unprepared before the checkpoint was lost; its status in the cluster is older."""
    state = fixture.open()
    held = state.prepare(make_claim(1, TWO))
    assert isinstance(held, ClaimAllocation)
    assert state.release(held.ref) is None
    other = state.prepare(make_claim(2, TWO))
    assert isinstance(other, ClaimAllocation)
    assert other.assigned == held.assigned
    shutil.rmtree(fixture.settings.plugin_dir)
    state = fixture.open()
    assert state.recovering
    assert recover_claim(tree_of(TWO, cpuset=str(held.assigned)), [], state.context) is None
    assert recover_claim(tree_of(TWO, cpuset="6-7"), [], state.context) is not None, "its CPUs are free"
    user = Container("default/p/c", {UID: held.assigned})
    assert recover_claim(tree_of(TWO), [user], state.context) is not None, "it is in use"


def test_claims_that_the_cluster_does_not_have_lose_their_cpus(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    state.check_containers([Container("default/p/c", {UID: cpus("0-1")})])
    assert state.allocated == cpus("0-1")
    assert state.restore_claims({}) == ""
    assert state.allocated == cpus("")
    state.check_containers([Container("default/p/c", {UID: cpus("0-1")})])
    assert not state.allocations, "only after a loss"


def test_recovered_claims_that_overlap_are_disputed(fixture: CPUStateFixture) -> None:
    state = fixture.open()
    taken = state.prepare(make_claim(2, TWO))
    assert isinstance(taken, ClaimAllocation)
    recovered = recover_claim(tree_of(TWO), [Container("default/p/c", {UID: taken.assigned})], state.context)
    assert recovered is not None
    assert state.restore_claims({UID: recovered}) == ""
    assert all(allocation.disputed for allocation in state.allocations.values())
