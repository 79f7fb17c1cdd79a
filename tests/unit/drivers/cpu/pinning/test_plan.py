"""Desired CPUs of containers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet, union
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerEnv,
    ContainerView,
    DesiredCpuset,
    PinFault,
    PinFaultReason,
    SnapshotCache,
    compute_desired,
    decide,
    read_env,
    take_snapshot,
)
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation
from plimsoll.drivers.cpu.topology.topology import Topology
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, cpus, env, hold, machine, snapshot, view

A = hold("a", "0-1")
B = hold("b", "x=2;y=3")


def want(
    container: ContainerView, state: FakeCPUState, owners: dict[str, str] | None = None, **pin: object
) -> DesiredCpuset:
    found = ask(container, state, owners, **pin)
    assert isinstance(found, DesiredCpuset), found
    return found


def ask(
    container: ContainerView, state: FakeCPUState, owners: dict[str, str] | None = None, **pin: object
) -> DesiredCpuset | PinFault:
    at = snapshot(state, **pin)
    return compute_desired(container, at.allocations, at.shared, at.topology, at.pin, owners=owners)


def refused(
    container: ContainerView, state: FakeCPUState, owners: dict[str, str] | None = None, **pin: object
) -> PinFault:
    found = ask(container, state, owners, **pin)
    assert isinstance(found, PinFault), found
    return found


# -- the environment


def test_claims_are_read_from_the_environment() -> None:
    env_claims = read_env(
        ["PATH=/bin", "DRA_CPUSET_u-1=0-1,4", "DRA_CPUSET_u-2=3", "DRA_CPUSETS=no", "DRA_CPUSET=1"]
    )
    assert env_claims == ContainerEnv({"u-1": cpus("0-1,4"), "u-2": cpus("3")})


def test_requests_require_their_claim() -> None:
    env_claims = read_env(
        [
            "DRA_CPUSET_u=0-3",
            "DRA_REQUEST_CPUSET_u_a=0-1",
            "DRA_REQUEST_CPUSET_w_a=0",
            "DRA_REQUEST_CPUSET_u=1",
        ]
    )
    assert env_claims == ContainerEnv({"u": cpus("0-3")}, {"u": frozenset({"a"})})


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("DRA_CPUSET_u", 'malformed DRA env entry "DRA_CPUSET_u"'),
        ("DRA_CPUSET", 'malformed DRA env entry "DRA_CPUSET"'),
        (
            "DRA_CPUSET_u=a-b",
            'failed to parse cpuset value "a-b" from env "DRA_CPUSET_u=a-b": '
            'strconv.Atoi: parsing "a": invalid syntax',
        ),
        (
            "DRA_CPUSET_u=3-1",
            'failed to parse cpuset value "3-1" from env "DRA_CPUSET_u=3-1": invalid range "3-1" (3 > 1)',
        ),
    ],
)
def test_a_malformed_environment_fails_with_the_go_drivers_message(entry: str, text: str) -> None:
    fault = read_env(["A=b", entry])
    assert isinstance(fault, PinFault)
    assert fault.reason is PinFaultReason.MALFORMED
    assert fault.message == text


def test_huge_cpusets_are_refused_quickly() -> None:
    for value in ("0-999999999999", "0," * 40_000 + "1", "9" * 300):
        fault = read_env([f"DRA_CPUSET_u={value}"])
        assert isinstance(fault, PinFault)
        assert len(fault.message) < 1000


@given(
    st.lists(
        st.one_of(st.text(), st.text().map("DRA_CPUSET_u=".__add__), st.text().map("DRA_CPUSET".__add__))
    )
)
def test_any_environment_is_read_without_an_error(entries: list[str]) -> None:
    env_claims = read_env(entries)
    assert env_claims.message if isinstance(env_claims, PinFault) else isinstance(env_claims.claims, dict)


# -- desired cpusets


def test_a_container_without_claims_gets_the_shared_pool() -> None:
    assert want(view("c"), FakeCPUState(machine(6), A, reserved="5")) == DesiredCpuset(cpus("2-4"))


def test_a_container_with_a_claim_gets_only_its_cpus() -> None:
    found = want(view("c", A), FakeCPUState(machine(6), A))
    assert (found.cpus, found.exclusive, found.mems, found.lift_quota) == (
        cpus("0-1"),
        cpus("0-1"),
        "",
        False,
    )


def test_several_claims_are_joined() -> None:
    assert want(view("c", A, B), FakeCPUState(machine(6), A, B)).cpus == cpus("0-3")


def test_mix_adds_the_shared_pool() -> None:
    state = FakeCPUState(machine(6), A, B)
    assert want(view("c", A), state, include_shared=True).cpus == cpus("0-1,4-5")
    assert want(view("c", A), state, include_shared=True).exclusive == cpus("0-1")


def test_the_claims_own_mix_wins() -> None:
    yes, no = hold("y", "0", include_shared=True), hold("n", "1", include_shared=False)
    state = FakeCPUState(machine(4), yes, no)
    assert want(view("c", yes), state).cpus == cpus("0,2-3")
    assert want(view("c", no), state, include_shared=True).cpus == cpus("1")
    assert want(view("c", yes, no), state).cpus == cpus("0-3")


def test_mix_without_shared_cpus_is_the_claims_cpus() -> None:
    whole = hold("a", "0-3")
    assert want(view("c", whole), FakeCPUState(machine(4), whole), include_shared=True).cpus == cpus("0-3")


def test_requests_are_separate_if_configured() -> None:
    state = FakeCPUState(machine(6), B)
    picks = view("c", B, requests={"b": frozenset({"y"})})
    assert want(picks, state).cpus == cpus("2-3")
    assert want(picks, state, per_request_cpus=True).cpus == cpus("3")
    assert want(view("c", B), state, per_request_cpus=True).cpus == cpus("2-3")
    both = view("c", B, requests={"b": frozenset({"x", "y"})})
    assert want(both, state, per_request_cpus=True).cpus == cpus("2-3")
    foreign = view("c", B, requests={"b": frozenset({"gpu"})})
    assert want(foreign, state, per_request_cpus=True).cpus == cpus("2-3")


def test_requests_of_an_adopted_allocation_are_unknown() -> None:
    old = replace(B, adopted=True)
    picks = view("c", B, requests={"b": frozenset({"y"})})
    assert want(picks, FakeCPUState(machine(6), old), per_request_cpus=True).cpus == cpus("2-3")


def test_memory_nodes_are_those_of_the_cpus() -> None:
    topology = make_machine(sockets=2, numa=2, cores=2)
    state = FakeCPUState(topology, hold("a", "2-5"))
    assert want(view("c", hold("a", "2-5")), state, mems=True).mems == "1-2"
    assert want(view("c"), state, mems=True).mems == ""
    assert want(view("c", hold("a", "2-5")), state, mems=True, include_shared=True).mems == "0-3"


def test_the_quota_is_lifted_for_exclusive_cpus_only() -> None:
    state = FakeCPUState(machine(4), A)
    assert want(view("c", A), state, lift_quota=True).lift_quota
    assert not want(view("c"), state, lift_quota=True).lift_quota
    assert not want(view("c", A), state, lift_quota=True, include_shared=True).lift_quota


def test_offline_cpus_are_left_out() -> None:
    state = FakeCPUState(switch_off(machine(4), CpuSet([1, 3])), A)
    found = want(view("c", A), state)
    assert (found.cpus, found.offline) == (cpus("0"), cpus("1"))
    assert want(view("d"), state).cpus == cpus("2")


def test_a_claim_with_no_cpu_online_is_a_fault() -> None:
    fault = refused(view("c", A), FakeCPUState(switch_off(machine(4), CpuSet([0, 1])), A))
    assert fault.reason is PinFaultReason.OFFLINE
    assert "0-1" in fault.message


def test_an_empty_pool_is_a_fault_and_never_an_empty_set() -> None:
    whole = hold("a", "0-3")
    fault = refused(view("c"), FakeCPUState(machine(4), whole))
    assert fault.reason is PinFaultReason.EMPTY_POOL
    assert str(fault) == "default/c/c: no shared CPUs are left for containers without exclusive CPUs"


def test_without_cpus_the_desired_cpuset_is_empty() -> None:
    assert want(view("c"), FakeCPUState(machine(4), reserved="0-3")) == DesiredCpuset(EMPTY)


def test_claims_without_cpus_have_no_effect() -> None:
    admin = ClaimAllocation(A.ref, ())
    assert want(view("c", admin), FakeCPUState(machine(4), admin)).cpus == cpus("0-3")


# -- refused containers


def test_an_unprepared_claim_is_refused() -> None:
    fault = refused(view("c", A), FakeCPUState(machine(4)))
    assert fault.message == 'claim "a" is not prepared by this driver'


def test_a_claim_that_has_other_cpus_is_refused() -> None:
    fault = refused(view("c", A), FakeCPUState(machine(4), hold("a", "2-3")))
    assert fault.message == 'validation failed for claim "a": cpuset mismatch (expected "2-3", got "0-1")'


def test_a_claim_in_dispute_is_refused() -> None:
    fault = refused(view("c", A), FakeCPUState(machine(4), replace(A, disputed="two say otherwise")))
    assert fault.reason is PinFaultReason.DISPUTED
    assert "two say otherwise" in fault.message


def test_a_claim_of_another_pod_is_refused_unless_configured() -> None:
    state, owners = FakeCPUState(machine(4), A), {"a": "uid-other"}
    fault = refused(view("c", A), state, owners)
    assert fault.message == 'claimUID "a" already bound to pod "uid-other"'
    assert want(view("c", A), state, owners, across_pods=True).cpus == cpus("0-1")
    assert want(view("c", A), state, {"a": "uid-c"}).cpus == cpus("0-1")


def test_a_claim_of_another_namespace_is_refused() -> None:
    far = hold("a", "0-1", namespace="far")
    assert refused(view("c", far), FakeCPUState(machine(4), far)).reason is PinFaultReason.FOREIGN
    unknown = hold("a", "0-1", namespace="")
    assert want(view("c", unknown), FakeCPUState(machine(4), unknown)).cpus == cpus("0-1")


def test_every_reason_has_a_message() -> None:
    for reason in PinFaultReason:
        fault = PinFault(reason, "id", "ns/pod/c", "uid", cpus("1"), cpus("2"), "other", "why")
        assert fault.message
        assert str(fault).startswith("ns/pod/c: ")


# -- running containers


def test_a_running_container_with_a_lost_claim_is_moved_to_the_shared_pool() -> None:
    decision = decide(view("c", A), snapshot(FakeCPUState(machine(4))))
    assert decision.desired == DesiredCpuset(cpus("0-3"))
    assert decision.fault is not None
    assert decision.fault.reason is PinFaultReason.UNKNOWN


def test_a_running_container_keeps_its_valid_claims() -> None:
    decision = decide(view("c", A, B), snapshot(FakeCPUState(machine(6), B)))
    assert decision.desired is not None
    assert decision.desired.cpus == cpus("2-3")
    assert decision.fault is not None
    assert decision.fault.claim == "a"


def test_a_running_container_keeps_its_cpus_if_the_correct_ones_are_unknown() -> None:
    whole = hold("a", "0-3")
    for container, state in (
        (view("c", A), FakeCPUState(machine(4), hold("a", "2-3"))),
        (view("c", A), FakeCPUState(machine(4), replace(A, disputed="x"))),
        (view("c"), FakeCPUState(machine(4), whole)),
        (view("c", A), FakeCPUState(switch_off(machine(4), CpuSet([0, 1])), A)),
    ):
        decision = decide(container, snapshot(state))
        assert decision.desired is None
        assert decision.fault is not None


def test_an_unreadable_running_container_is_moved_to_the_shared_pool() -> None:
    decision = decide(view("c", malformed="bad"), snapshot(FakeCPUState(machine(4), A)))
    assert decision.desired == DesiredCpuset(cpus("2-3"))
    assert decision.fault is not None
    assert decision.fault.message == "bad"


def test_a_running_container_of_a_second_pod_stays_with_the_claim() -> None:
    at = replace(snapshot(FakeCPUState(machine(4), A)), owners={"a": "uid-other"})
    decision = decide(view("c", A), at)
    assert decision.desired is not None
    assert decision.desired.cpus == cpus("0-1")
    assert decision.fault is not None
    assert decision.fault.reason is PinFaultReason.OWNED


def test_a_late_container_of_a_released_claim_gets_the_shared_cpus() -> None:
    state = FakeCPUState(machine(4), B)
    decision = decide(view("one", A), replace(snapshot(state), owners={"a": "uid-other"}))
    assert decision.desired is not None
    assert decision.desired.cpus == cpus("0-1")
    assert decision.fault is not None
    assert decision.fault.reason is PinFaultReason.UNKNOWN


def test_a_late_container_keeps_its_cpus_while_the_claim_is_disputed() -> None:
    state = FakeCPUState(machine(4), replace(A, disputed="why"))
    decision = decide(view("one", A), replace(snapshot(state), owners={"a": "uid-other"}))
    assert decision.desired is None
    assert decision.fault is not None
    assert decision.fault.reason is PinFaultReason.DISPUTED


def test_allocated_cpus_are_never_shared() -> None:
    class Torn(FakeCPUState):
        @property
        def shared(self) -> CpuSet:
            return self.topology.all  # as if the claim were gone already

    at = take_snapshot(Torn(machine(4), A), machine(4), PinSettings())
    assert at.shared == cpus("2-3")


@given(st.lists(st.sampled_from(["hold a", "hold b", "release a", "release b", "hotplug", ""]), max_size=9))
def test_a_cached_snapshot_is_a_current_one(acts: list[str]) -> None:
    topology = machine(4)
    state = FakeCPUState(topology)
    cache = SnapshotCache(state, PinSettings())
    for act in acts:
        verb, _, uid = act.partition(" ")
        if verb == "hold":
            state.hold(hold(uid, "0" if uid == "a" else "1-2"))
        elif verb == "release":
            state.release(uid)
        elif verb == "hotplug":
            topology = machine(3) if len(topology.all) == 4 else machine(4)
        assert cache.take(topology) == take_snapshot(state, topology, PinSettings())
        assert cache.take(topology) is cache.take(topology)


# -- for whatever there is


@st.composite
def cpu_states(draw: st.DrawFn) -> FakeCPUState:
    topology: Topology = make_machine(
        sockets=draw(st.integers(1, 2)), numa=draw(st.integers(1, 2)), cores=draw(st.integers(1, 4))
    )
    owner = {cpu: draw(st.integers(0, 4)) for cpu in topology.all}
    allocations = []
    for number in range(4):
        mine = CpuSet(cpu for cpu, claim in owner.items() if claim == number)
        if mine:
            allocations.append(
                hold(f"u{number}", str(mine), include_shared=draw(st.sampled_from([None, True, False])))
            )
    gone = CpuSet(cpu for cpu in topology.all if draw(st.integers(0, 9)) == 0)
    return FakeCPUState(switch_off(topology, gone) if gone != topology.all else topology, *allocations)


@st.composite
def containers(draw: st.DrawFn) -> list[ContainerView]:
    created = []
    for number in range(draw(st.integers(1, 6))):
        claims = {
            f"u{uid}": draw(st.sampled_from(["", "0", "0-1", "1-3", "right"]))
            for uid in draw(st.sets(st.integers(0, 4), max_size=2))
        }
        created.append((number, draw(st.integers(0, 2)), claims))
    return [
        ContainerView(f"c{n}", f"p{pod}", "default", claims={u: _said(t) for u, t in claims.items()})
        for n, pod, claims in created
    ]


def _said(text: str) -> CpuSet:
    return CpuSet([9999]) if text == "right" else cpus(text)


def _right(container: ContainerView, state: FakeCPUState) -> ContainerView:
    """Return the position of 9999, and the CPU state."""
    return replace(
        container,
        claims={
            uid: state.allocations[uid].assigned
            if named == CpuSet([9999]) and uid in state.allocations
            else named
            for uid, named in container.claims.items()
        },
    )


@given(cpu_states(), containers(), st.booleans(), st.booleans(), st.booleans())
def test_exclusive_cpus_are_exclusive_for_any_containers(
    state: FakeCPUState, others: list[ContainerView], include_shared: bool, mems: bool, running: bool
) -> None:
    at = snapshot(state, include_shared=include_shared, mems=mems)
    got: dict[str, DesiredCpuset] = {}
    for container in (_right(one, state) for one in others):
        found = (
            decide(container, at).desired
            if running
            else ask(container, state, include_shared=include_shared, mems=mems)
        )
        if isinstance(found, DesiredCpuset) and found.cpus:
            got[container.id] = found
            assert found.cpus <= state.topology.all
            assert found.exclusive <= union(
                state.allocations[u].assigned for u in container.claims if u in state.allocations
            )
            assert found.cpus - found.exclusive <= state.shared
            assert bool(found.mems) == (mems and bool(found.exclusive))
    by_id = {one.id: _right(one, state) for one in others}
    for id, one in got.items():
        for other, two in got.items():
            if id != other and one.exclusive & two.cpus:
                assert by_id[id].claims.keys() & by_id[other].claims.keys()


@given(cpu_states(), containers())
def test_an_admitted_container_keeps_its_cpuset(state: FakeCPUState, others: list[ContainerView]) -> None:
    for container in (_right(one, state) for one in others):
        found = ask(container, state)
        decision = decide(container, snapshot(state))
        if isinstance(found, DesiredCpuset):
            assert decision.desired == found
            assert decision.fault is None
        else:
            assert decision.fault is not None


def test_the_environment_of_an_allocation_survives_a_round_trip() -> None:
    env_claims = read_env(env(A, B))
    assert env_claims == ContainerEnv({"a": cpus("0-1"), "b": cpus("2-3")})
