"""Whom to believe: record, CDI files and running containers, in every combination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import Severity
from plimsoll.drivers.cpu.devices.groups import arrange
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.cdi import CdiFile
from plimsoll.drivers.cpu.state.holdings import Grant, Holding, How, union
from plimsoll.drivers.cpu.state.prepare import Scene
from plimsoll.drivers.cpu.state.reconcile import apply, doubt, find_disputes, find_misplaced, reconcile
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.state.desk import NODE, Container

#: CPUs 0-3 are NUMA node 0, 4-7 are node 1.
SMALL = make_machine(sockets=2, cores=4)


def cpus(text: str) -> CpuSet:
    return CpuSet.parse(text)


def scene_of(offline: str = "", **extra: Any) -> Scene:
    topology = make_machine(sockets=2, cores=4, offline=cpus(offline))
    settings = CpuSettings(node=NODE, kubelet_root=Path("/nowhere"), cdi=Path("/nowhere"), **extra)
    return Scene(settings, topology, arrange(topology, settings))


def held(uid: str, text: str, **more: Any) -> Holding:
    grant = Grant("a", NODE, "cpudevnuma000", cpus(text))
    return Holding(ClaimRef("default", f"name-{uid}", uid), (grant,), **more)


def record(*holdings: Holding) -> dict[str, Holding]:
    return {holding.ref.uid: holding for holding in holdings}


def files(**said: str) -> dict[str, CdiFile]:
    return {uid: CdiFile(uid, cpus(text)) for uid, text in said.items()}


def test_witnesses_that_agree() -> None:
    found = reconcile(record(held("x", "0-1")), files(x="0-1"), scene_of())
    assert found.holdings == record(held("x", "0-1"))
    assert not found.findings
    assert not found.rewrite


def test_a_missing_file_is_written_again() -> None:
    found = reconcile(record(held("x", "0-1")), {}, scene_of())
    assert found.holdings == record(held("x", "0-1"))
    assert found.rewrite == ("x",)
    assert [finding.severity for finding in found.findings] == [Severity.INFO]


@pytest.mark.parametrize("named", ["", "0"])
def test_a_broken_file_that_contradicts_nothing_is_written_again(named: str) -> None:
    broken = {"x": CdiFile("x", cpus(named), fault="no JSON", path="/cdi/x")}
    found = reconcile(record(held("x", "0-1")), broken, scene_of())
    assert found.holdings == record(held("x", "0-1"))
    assert found.rewrite == ("x",)
    assert "no JSON" in found.findings[0].what


@pytest.mark.parametrize("fault", ["", "says two things"])
def test_a_file_that_says_otherwise_makes_a_dispute(fault: str) -> None:
    other = {"x": CdiFile("x", cpus("1-2"), fault=fault)}
    found = reconcile(record(held("x", "0-1")), other, scene_of())
    holding = found.holdings["x"]
    assert holding.cpus == cpus("0-2")
    assert holding.granted == cpus("0-1")
    assert holding.disputed.startswith("the record has CPUs 0-1, the CDI file 1-2")
    assert not found.rewrite
    told = find_disputes(found.holdings)[0]
    assert told.severity is Severity.ERROR
    assert "unprepared" in told.fix
    # It stays so when looked at again, also without the file.
    assert reconcile(found.holdings, other, scene_of()).holdings == found.holdings
    assert reconcile(found.holdings, {}, scene_of()).holdings == found.holdings
    assert not reconcile(found.holdings, {}, scene_of()).rewrite


def test_a_file_alone_is_taken_over() -> None:
    found = reconcile({}, files(x="2-5"), scene_of())
    holding = found.holdings["x"]
    assert holding.adopted
    assert not holding.disputed
    grants = {(grant.device, str(grant.cpus), grant.how) for grant in holding.grants}
    assert grants == {
        ("cpudevnuma000", "2-3", How.ADOPTED),
        ("cpudevnuma001", "4-5", How.ADOPTED),
    }
    assert found.findings[0].severity is Severity.INFO


@pytest.mark.parametrize(
    ("scene", "said", "why"),
    [
        (scene_of(reserved=CpuSet([0])), "0-1", "CPUs 0 are reserved"),
        (scene_of(offline="1"), "0-1", "CPUs 1 are offline"),
        (scene_of(), "3,900", "CPUs 900 are offline"),
    ],
)
def test_a_file_with_cpus_that_no_claim_can_have(scene: Scene, said: str, why: str) -> None:
    holding = reconcile({}, files(x=said), scene).holdings["x"]
    assert why in holding.disputed
    assert holding.cpus == cpus(said)


def test_a_broken_file_alone() -> None:
    named = {"x": CdiFile("x", cpus("1-2"), fault="says two things")}
    holding = reconcile({}, named, scene_of()).holdings["x"]
    assert holding.cpus == cpus("1-2")
    assert "says two things" in holding.disputed
    nothing = reconcile({}, {"x": CdiFile("x", EMPTY, fault="no JSON", path="/cdi/x")}, scene_of())
    assert not nothing.holdings
    assert nothing.findings[0].fix == "remove /cdi/x"


def test_claims_that_overlap_are_all_disputed() -> None:
    found = reconcile({}, files(x="0-1", y="1-2", z="5"), scene_of())
    assert "CPUs 1 are also those of claim y" in found.holdings["x"].disputed
    assert "CPUs 1 are also those of claim x" in found.holdings["y"].disputed
    assert not found.holdings["z"].disputed
    # Also a claim that the record knows: the other driver may have given its CPUs away.
    mixed = reconcile(record(held("x", "0-1")), files(x="0-1", y="1-2"), scene_of())
    assert all(holding.disputed for holding in mixed.holdings.values())


def test_claims_of_the_record_keep_cpus_that_are_reserved_or_offline_by_now() -> None:
    scene = scene_of(offline="1", reserved=CpuSet([0]))
    found = reconcile(record(held("x", "0-1")), files(x="0-1"), scene)
    assert found.holdings == record(held("x", "0-1"))
    texts = [finding.what for finding in find_misplaced(found.holdings, scene)]
    assert any("CPUs 1 of claim default/name-x (x) are offline" in text for text in texts)
    assert any("CPUs 0 of claim default/name-x (x) are reserved by now" in text for text in texts)


# -- running containers


def test_a_container_that_agrees() -> None:
    seen = [Container("ns/pod/c", {"x": cpus("0-1")}), Container("ns/pod/d", {})]
    assert doubt(record(held("x", "0-1")), seen, scene_of()) == ({}, ())


def test_a_container_with_a_claim_that_nobody_knows_is_not_believed() -> None:
    doubts, findings = doubt({}, [Container("ns/pod/c", {"x": cpus("0-1")})], scene_of())
    assert not doubts
    assert "ns/pod/c" in findings[0].what
    assert "not believed" in findings[0].fix


def test_a_container_that_was_told_otherwise_makes_a_dispute() -> None:
    holding = held("x", "0-1")
    doubts, findings = doubt(record(holding), [Container("ns/p/c", {"x": cpus("1-2")})], scene_of())
    seen = apply(holding, doubts["x"])
    assert seen.cpus == cpus("0-2")
    assert "was told CPUs 1-2, the claim has 0-1" in seen.disputed
    assert findings[0].severity is Severity.ERROR
    assert apply(holding, None) == holding


def test_a_container_of_another_namespace_cannot_dispute() -> None:
    stranger = Container("evil/p/c", {"x": cpus("0-7")}, namespace="evil")
    doubts, findings = doubt(record(held("x", "0-1")), [stranger], scene_of())
    assert not doubts
    assert "not believed" in findings[0].what


def test_a_container_takes_no_cpus_of_others() -> None:
    """Neither those of other claims, nor those that its claim could never have had, nor the last one."""
    holdings = record(held("x", "0-1"), held("y", "2"))
    liar = Container("default/p/c", {"x": cpus("0-900")})
    doubts, _ = doubt(holdings, [liar], scene_of())
    assert doubts["x"].contested == cpus("3")  # the rest of its own NUMA node
    tight = scene_of(reserved=cpus("4-7"))
    doubts, _ = doubt(holdings, [liar], tight)
    assert doubts["x"].contested == EMPTY  # 3 is the last one that is shared
    assert "x" in doubts


uids = st.sampled_from(["u", "v", "w", "x"])
sets = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(CpuSet)


@given(
    st.dictionaries(uids, sets),
    st.dictionaries(uids, st.tuples(sets, st.sampled_from(["", "broken"]))),
    st.lists(st.tuples(uids, sets), max_size=4),
)
@hypothesis_settings(max_examples=200, deadline=None)
def test_nothing_that_a_witness_names_is_given_away(
    known: dict[str, CpuSet], said: dict[str, tuple[CpuSet, str]], told: list[tuple[str, CpuSet]]
) -> None:
    scene = scene_of()
    before = {uid: held(uid, str(text)) for uid, text in known.items()}
    present = {uid: CdiFile(uid, text, fault=fault) for uid, (text, fault) in said.items()}
    found = reconcile(before, present, scene)
    for uid in known.keys() | said.keys():
        named = known.get(uid, EMPTY) | (present[uid].cpus if uid in present else EMPTY)
        assert found.holdings[uid].cpus == named
    fine = [holding for holding in found.holdings.values() if not holding.disputed]
    for holding in fine:
        others = union(other.cpus for other in found.holdings.values() if other is not holding)
        assert not holding.cpus & others
        # Whoever may start on CPUs has no witness against it.
        assert known.get(holding.ref.uid, holding.granted) == holding.granted
        assert holding.ref.uid not in said or said[holding.ref.uid][0] <= holding.granted
    again = reconcile(found.holdings, present, scene)
    assert again.holdings == found.holdings
    containers = [Container(f"default/p/{n}", {uid: text}) for n, (uid, text) in enumerate(told)]
    doubts, _ = doubt(found.holdings, containers, scene)
    for uid, text in told:
        if uid in found.holdings:
            assert (uid in doubts) == any(
                text != found.holdings[uid].granted for other, text in told if other == uid
            )
    pool = scene.shared - union(holding.cpus for holding in found.holdings.values())
    left = pool - union(one.contested for one in doubts.values())
    assert bool(left) == bool(pool)
