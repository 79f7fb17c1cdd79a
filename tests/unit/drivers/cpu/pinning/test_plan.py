"""What containers may run on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.pinning.plan import (
    ContainerView,
    PinFault,
    Reason,
    Told,
    Wanted,
    judge,
    read_env,
    take_scene,
    wanted,
)
from plimsoll.drivers.cpu.settings import PinSettings
from plimsoll.drivers.cpu.state.holdings import Holding, union
from plimsoll.drivers.cpu.topology.topology import Topology
from tests.unit.drivers.cpu.machines import make_machine, switch_off
from tests.unit.drivers.cpu.pinning.parts import Book, cpus, env, hold, machine, scene, view

A = hold("a", "0-1")
B = hold("b", "x=2;y=3")


def want(container: ContainerView, book: Book, owners: dict[str, str] | None = None, **pin: object) -> Wanted:
    found = ask(container, book, owners, **pin)
    assert isinstance(found, Wanted), found
    return found


def ask(
    container: ContainerView, book: Book, owners: dict[str, str] | None = None, **pin: object
) -> Wanted | PinFault:
    at = scene(book, **pin)
    return wanted(container, at.holdings, at.shared, at.topology, at.pin, owners=owners)


def refused(
    container: ContainerView, book: Book, owners: dict[str, str] | None = None, **pin: object
) -> PinFault:
    found = ask(container, book, owners, **pin)
    assert isinstance(found, PinFault), found
    return found


# -- the environment


def test_claims_are_read_from_the_environment() -> None:
    told = read_env(
        ["PATH=/bin", "DRA_CPUSET_u-1=0-1,4", "DRA_CPUSET_u-2=3", "DRA_CPUSETS=no", "DRA_CPUSET=1"]
    )
    assert told == Told({"u-1": cpus("0-1,4"), "u-2": cpus("3")})


def test_requests_are_read_beside_their_claim_only() -> None:
    told = read_env(
        [
            "DRA_CPUSET_u=0-3",
            "DRA_REQUEST_CPUSET_u_a=0-1",
            "DRA_REQUEST_CPUSET_w_a=0",
            "DRA_REQUEST_CPUSET_u=1",
        ]
    )
    assert told == Told({"u": cpus("0-3")}, {"u": frozenset({"a"})})


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
def test_a_malformed_environment_fails_in_the_go_drivers_words(entry: str, text: str) -> None:
    fault = read_env(["A=b", entry])
    assert isinstance(fault, PinFault)
    assert fault.reason is Reason.MALFORMED
    assert fault.message == text


def test_sets_that_no_machine_has_are_refused_and_cost_nothing() -> None:
    for value in ("0-999999999999", "0," * 40_000 + "1", "9" * 300):
        fault = read_env([f"DRA_CPUSET_u={value}"])
        assert isinstance(fault, PinFault)
        assert len(fault.message) < 1000


@given(
    st.lists(
        st.one_of(st.text(), st.text().map("DRA_CPUSET_u=".__add__), st.text().map("DRA_CPUSET".__add__))
    )
)
def test_whatever_an_environment_says_nothing_raises(entries: list[str]) -> None:
    told = read_env(entries)
    assert told.message if isinstance(told, PinFault) else isinstance(told.claims, dict)


# -- who gets what


def test_without_claims_the_shared_pool() -> None:
    assert want(view("c"), Book(machine(6), A, reserved="5")) == Wanted(cpus("2-4"))


def test_with_a_claim_its_cpus_and_no_others() -> None:
    found = want(view("c", A), Book(machine(6), A))
    assert (found.cpus, found.exclusive, found.mems, found.lift_quota) == (
        cpus("0-1"),
        cpus("0-1"),
        "",
        False,
    )


def test_several_claims_are_joined() -> None:
    assert want(view("c", A, B), Book(machine(6), A, B)).cpus == cpus("0-3")


def test_mix_adds_the_shared_pool() -> None:
    book = Book(machine(6), A, B)
    assert want(view("c", A), book, mix=True).cpus == cpus("0-1,4-5")
    assert want(view("c", A), book, mix=True).exclusive == cpus("0-1")


def test_the_claims_own_mix_wins() -> None:
    yes, no = hold("y", "0", mix=True), hold("n", "1", mix=False)
    book = Book(machine(4), yes, no)
    assert want(view("c", yes), book).cpus == cpus("0,2-3")
    assert want(view("c", no), book, mix=True).cpus == cpus("1")
    assert want(view("c", yes, no), book).cpus == cpus("0-3")


def test_mix_with_nothing_shared_is_what_is_claimed() -> None:
    whole = hold("a", "0-3")
    assert want(view("c", whole), Book(machine(4), whole), mix=True).cpus == cpus("0-3")


def test_requests_are_kept_apart_if_asked_for() -> None:
    book = Book(machine(6), B)
    picks = view("c", B, requests={"b": frozenset({"y"})})
    assert want(picks, book).cpus == cpus("2-3")
    assert want(picks, book, requests_apart=True).cpus == cpus("3")
    assert want(view("c", B), book, requests_apart=True).cpus == cpus("2-3")
    both = view("c", B, requests={"b": frozenset({"x", "y"})})
    assert want(both, book, requests_apart=True).cpus == cpus("2-3")
    foreign = view("c", B, requests={"b": frozenset({"gpu"})})
    assert want(foreign, book, requests_apart=True).cpus == cpus("2-3")


def test_requests_of_an_adopted_holding_are_not_known() -> None:
    old = replace(B, adopted=True)
    picks = view("c", B, requests={"b": frozenset({"y"})})
    assert want(picks, Book(machine(6), old), requests_apart=True).cpus == cpus("2-3")


def test_memory_nodes_are_those_of_the_cpus() -> None:
    topology = make_machine(sockets=2, numa=2, cores=2)
    book = Book(topology, hold("a", "2-5"))
    assert want(view("c", hold("a", "2-5")), book, mems=True).mems == "1-2"
    assert want(view("c"), book, mems=True).mems == ""
    assert want(view("c", hold("a", "2-5")), book, mems=True, mix=True).mems == "0-3"


def test_the_quota_is_lifted_for_exclusive_cpus_only() -> None:
    book = Book(machine(4), A)
    assert want(view("c", A), book, lift_quota=True).lift_quota
    assert not want(view("c"), book, lift_quota=True).lift_quota
    assert not want(view("c", A), book, lift_quota=True, mix=True).lift_quota


def test_offline_cpus_are_left_out() -> None:
    book = Book(switch_off(machine(4), CpuSet([1, 3])), A)
    found = want(view("c", A), book)
    assert (found.cpus, found.left_out) == (cpus("0"), cpus("1"))
    assert want(view("d"), book).cpus == cpus("2")


def test_a_claim_with_no_cpu_online_is_a_fault() -> None:
    fault = refused(view("c", A), Book(switch_off(machine(4), CpuSet([0, 1])), A))
    assert fault.reason is Reason.OFFLINE
    assert "0-1" in fault.message


def test_an_empty_pool_is_a_fault_and_never_an_empty_set() -> None:
    whole = hold("a", "0-3")
    fault = refused(view("c"), Book(machine(4), whole))
    assert fault.reason is Reason.EMPTY_POOL
    assert str(fault) == "default/c/c: no shared CPUs are left for containers without exclusive CPUs"


def test_a_driver_without_any_cpus_has_no_say() -> None:
    assert want(view("c"), Book(machine(4), reserved="0-3")) == Wanted(EMPTY)


def test_claims_without_cpus_give_none() -> None:
    admin = Holding(A.ref, ())
    assert want(view("c", admin), Book(machine(4), admin)).cpus == cpus("0-3")


# -- who gets nothing


def test_a_claim_that_nobody_prepared_is_refused() -> None:
    fault = refused(view("c", A), Book(machine(4)))
    assert fault.message == 'claim "a" is not prepared by this driver'


def test_a_claim_that_holds_other_cpus_is_refused() -> None:
    fault = refused(view("c", A), Book(machine(4), hold("a", "2-3")))
    assert fault.message == 'validation failed for claim "a": cpuset mismatch (expected "2-3", got "0-1")'


def test_a_claim_in_dispute_is_refused() -> None:
    fault = refused(view("c", A), Book(machine(4), replace(A, disputed="two say otherwise")))
    assert fault.reason is Reason.DISPUTED
    assert "two say otherwise" in fault.message


def test_a_claim_of_another_pod_is_refused_unless_that_is_wanted() -> None:
    book, owners = Book(machine(4), A), {"a": "uid-other"}
    fault = refused(view("c", A), book, owners)
    assert fault.message == 'claimUID "a" already bound to pod "uid-other"'
    assert want(view("c", A), book, owners, across_pods=True).cpus == cpus("0-1")
    assert want(view("c", A), book, {"a": "uid-c"}).cpus == cpus("0-1")


def test_a_claim_of_another_namespace_is_refused() -> None:
    far = hold("a", "0-1", namespace="far")
    assert refused(view("c", far), Book(machine(4), far)).reason is Reason.FOREIGN
    unknown = hold("a", "0-1", namespace="")
    assert want(view("c", unknown), Book(machine(4), unknown)).cpus == cpus("0-1")


def test_every_reason_has_words() -> None:
    for reason in Reason:
        fault = PinFault(reason, "id", "ns/pod/c", "uid", cpus("1"), cpus("2"), "other", "why")
        assert fault.message
        assert str(fault).startswith("ns/pod/c: ")


# -- those that run already


def test_a_running_container_with_a_lost_claim_goes_to_the_shared_pool() -> None:
    verdict = judge(view("c", A), scene(Book(machine(4))))
    assert verdict.wanted == Wanted(cpus("0-3"))
    assert verdict.fault is not None
    assert verdict.fault.reason is Reason.UNKNOWN


def test_a_running_container_keeps_the_claims_that_are_good() -> None:
    verdict = judge(view("c", A, B), scene(Book(machine(6), B)))
    assert verdict.wanted is not None
    assert verdict.wanted.cpus == cpus("2-3")
    assert verdict.fault is not None
    assert verdict.fault.claim == "a"


def test_a_running_container_keeps_what_it_has_where_nobody_knows_better() -> None:
    whole = hold("a", "0-3")
    for container, book in (
        (view("c", A), Book(machine(4), hold("a", "2-3"))),
        (view("c", A), Book(machine(4), replace(A, disputed="x"))),
        (view("c"), Book(machine(4), whole)),
        (view("c", A), Book(switch_off(machine(4), CpuSet([0, 1])), A)),
    ):
        verdict = judge(container, scene(book))
        assert verdict.wanted is None
        assert verdict.fault is not None


def test_a_running_container_that_cannot_be_read_goes_to_the_shared_pool() -> None:
    verdict = judge(view("c", malformed="bad"), scene(Book(machine(4), A)))
    assert verdict.wanted == Wanted(cpus("2-3"))
    assert verdict.fault is not None
    assert verdict.fault.message == "bad"


def test_a_running_container_of_a_second_pod_stays_with_the_claim() -> None:
    at = replace(scene(Book(machine(4), A)), owners={"a": "uid-other"})
    verdict = judge(view("c", A), at)
    assert verdict.wanted is not None
    assert verdict.wanted.cpus == cpus("0-1")
    assert verdict.fault is not None
    assert verdict.fault.reason is Reason.OWNED


def test_who_got_in_goes_when_the_claim_is_released() -> None:
    book = Book(machine(4), B)
    verdict = judge(view("one", A), replace(scene(book), owners={"a": "uid-other"}))
    assert verdict.wanted is not None
    assert verdict.wanted.cpus == cpus("0-1")
    assert verdict.fault is not None
    assert verdict.fault.reason is Reason.UNKNOWN


def test_who_got_in_keeps_what_it_has_while_the_claim_is_disputed() -> None:
    book = Book(machine(4), replace(A, disputed="why"))
    verdict = judge(view("one", A), replace(scene(book), owners={"a": "uid-other"}))
    assert verdict.wanted is None
    assert verdict.fault is not None
    assert verdict.fault.reason is Reason.DISPUTED


def test_a_scene_never_shares_what_is_held() -> None:
    class Torn(Book):
        @property
        def shared(self) -> CpuSet:
            return self.topology.all  # as if the claim were gone already

    at = take_scene(Torn(machine(4), A), machine(4), PinSettings())
    assert at.shared == cpus("2-3")


# -- for whatever there is


@st.composite
def books(draw: st.DrawFn) -> Book:
    topology: Topology = make_machine(
        sockets=draw(st.integers(1, 2)), numa=draw(st.integers(1, 2)), cores=draw(st.integers(1, 4))
    )
    owner = {cpu: draw(st.integers(0, 4)) for cpu in topology.all}
    holdings = []
    for number in range(4):
        mine = CpuSet(cpu for cpu, claim in owner.items() if claim == number)
        if mine:
            holdings.append(hold(f"u{number}", str(mine), mix=draw(st.sampled_from([None, True, False]))))
    gone = CpuSet(cpu for cpu in topology.all if draw(st.integers(0, 9)) == 0)
    return Book(switch_off(topology, gone) if gone != topology.all else topology, *holdings)


@st.composite
def containers(draw: st.DrawFn) -> list[ContainerView]:
    made = []
    for number in range(draw(st.integers(1, 6))):
        claims = {
            f"u{uid}": draw(st.sampled_from(["", "0", "0-1", "1-3", "right"]))
            for uid in draw(st.sets(st.integers(0, 4), max_size=2))
        }
        made.append((number, draw(st.integers(0, 2)), claims))
    return [
        ContainerView(f"c{n}", f"p{pod}", "default", claims={u: _said(t) for u, t in claims.items()})
        for n, pod, claims in made
    ]


def _said(text: str) -> CpuSet:
    return CpuSet([9999]) if text == "right" else cpus(text)


def _right(container: ContainerView, book: Book) -> ContainerView:
    """Where 9999 stands, what the book holds."""
    return replace(
        container,
        claims={
            uid: book.holdings[uid].granted if said == CpuSet([9999]) and uid in book.holdings else said
            for uid, said in container.claims.items()
        },
    )


@given(books(), containers(), st.booleans(), st.booleans(), st.booleans())
def test_exclusive_cpus_are_exclusive_whatever_there_is(
    book: Book, crowd: list[ContainerView], mix: bool, mems: bool, running: bool
) -> None:
    at = scene(book, mix=mix, mems=mems)
    got: dict[str, Wanted] = {}
    for container in (_right(one, book) for one in crowd):
        found = judge(container, at).wanted if running else ask(container, book, mix=mix, mems=mems)
        if isinstance(found, Wanted) and found.cpus:
            got[container.id] = found
            assert found.cpus <= book.topology.all
            assert found.exclusive <= union(
                book.holdings[u].granted for u in container.claims if u in book.holdings
            )
            assert found.cpus - found.exclusive <= book.shared
            assert bool(found.mems) == (mems and bool(found.exclusive))
    by_id = {one.id: _right(one, book) for one in crowd}
    for id, one in got.items():
        for other, two in got.items():
            if id != other and one.exclusive & two.cpus:
                assert by_id[id].claims.keys() & by_id[other].claims.keys()


@given(books(), containers())
def test_who_may_be_made_has_the_same_when_it_runs(book: Book, crowd: list[ContainerView]) -> None:
    for container in (_right(one, book) for one in crowd):
        found = ask(container, book)
        verdict = judge(container, scene(book))
        if isinstance(found, Wanted):
            assert verdict.wanted == found
            assert verdict.fault is None
        else:
            assert verdict.fault is not None


def test_the_environment_of_a_holding_is_read_back() -> None:
    told = read_env(env(A, B))
    assert told == Told({"a": cpus("0-1"), "b": cpus("2-3")})
