"""Resources that claims give to a pod and its containers, with and without accounting policies."""

from __future__ import annotations

from hypothesis import given

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.charges import sum_container_charges, sum_pod_charges
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.containers import is_sidecar
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, charged_pods, texts

PAIR = pod("p", container("a", cpu="1"), container("b", cpu="2"))


def test_a_plain_claim_is_given_once_to_the_pod_and_in_full_to_each_container() -> None:
    for policy in ("", "AddPerClaim", "SomethingNew"):
        found = compute_claim_shares(PAIR, [charge("x", "a", "b", policy=policy, cpu="3")])
        assert texts(found.pod) == {"cpu": "3"}
        assert texts(found.of("a")) == texts(found.of("b")) == {"cpu": "3"}


def test_add_per_reference_is_given_for_each_container() -> None:
    found = compute_claim_shares(PAIR, [charge("x", "a", "b", "b", policy="AddPerReference", cpu="3")])
    assert texts(found.pod) == {"cpu": "6"}
    assert texts(found.of("a")) == texts(found.of("b")) == {"cpu": "3"}
    alone = compute_claim_shares(PAIR, [charge("x", policy="AddPerReference", cpu="3")])
    assert texts(alone.pod) == {"cpu": "3"}
    assert alone.of("a") == {}


def test_consume_from_gives_nothing_beyond_the_request() -> None:
    found = compute_claim_shares(PAIR, [charge("x", "a", policy="ConsumeFrom", cpu="100")])
    assert found.pod == {}
    assert found.of("a") == {}


def test_max_gives_what_the_claim_has_beyond_the_requests() -> None:
    found = compute_claim_shares(PAIR, [charge("x", "a", "b", policy="Max", cpu="10")])
    assert texts(found.pod) == {"cpu": "7"}
    assert texts(found.of("a")) == texts(found.of("b")) == {"cpu": "7"}
    assert compute_claim_shares(PAIR, [charge("x", "a", "b", policy="Max", cpu="2")]).pod == {}
    assert texts(compute_claim_shares(PAIR, [charge("x", policy="Max", cpu="2")]).pod) == {"cpu": "2"}


def test_claims_that_share_containers_are_one_group_under_max() -> None:
    trio = pod("p", container("a", cpu="1"), container("b", cpu="2"), container("c", cpu="4"))
    claims = [charge("x", "a", "b", policy="Max", cpu="3"), charge("y", "c", policy="Max", cpu="5")]
    apart = compute_claim_shares(trio, claims)
    assert texts(apart.pod) == {"cpu": "1"}
    assert texts(apart.of("c")) == {"cpu": "1"}
    joined = compute_claim_shares(trio, [*claims, charge("z", "b", "c", policy="Max", cpu="2")])
    assert texts(joined.pod) == {"cpu": "3"}
    assert [texts(joined.of(name)) for name in "abc"] == [{"cpu": "3"}] * 3


def test_an_init_container_has_its_own_excess_under_max() -> None:
    given_pod = pod("p", container("a", cpu="5"), init=(container("i", cpu="1"), sidecar("s", cpu="2")))
    found = compute_claim_shares(given_pod, [charge("x", "i", "s", "a", policy="Max", cpu="8")])
    # a and s request 7 of the 8 together, i requests 1 in a phase before s
    assert texts(found.of("a")) == texts(found.of("s")) == {"cpu": "1"}
    assert texts(found.of("i")) == {"cpu": "7"}
    assert texts(found.pod) == {"cpu": "7"}
    later = pod("p", container("a", cpu="5"), init=(sidecar("s", cpu="2"), container("i", cpu="1")))
    assert texts(
        compute_claim_shares(later, [charge("x", "i", "s", "a", policy="Max", cpu="8")]).of("i")
    ) == {"cpu": "5"}
    only = compute_claim_shares(given_pod, [charge("x", "i", policy="Max", cpu="8")])
    assert texts(only.pod) == {"cpu": "7"}
    assert only.of("a") == {}


def test_memory_is_shared_fairly() -> None:
    resource = ResourceCharge(Quantity.of(10), Quantity.of(5), Quantity.of(1))
    claim = ClaimCharge("x", ("a", "b"), {"memory": resource})
    found = compute_claim_shares(PAIR, [claim, charge("y", memory="100")])
    assert dict(found.memory) == {"a": 8, "b": 8}
    greater = compute_claim_shares(
        pod("p", container("a"), container("b")), [charge("x", "a", "b", policy="Max", memory="9")]
    )
    assert dict(greater.memory) == {"a": 4, "b": 4}
    init = pod("p", container("a"), init=(container("i"),))
    assert dict(compute_claim_shares(init, [charge("x", "i", policy="Max", memory="9")]).memory) == {
        "a": 0,
        "i": 9,
    }
    reference = compute_claim_shares(PAIR, [charge("x", "a", "b", policy="AddPerReference", memory="9")])
    assert dict(reference.memory) == {"a": 9, "b": 9}


@given(charged_pods(policies=("",)))
def test_without_policies_the_sums_of_1_37_hold(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    found = compute_claim_shares(given_pod, charges)
    assert found.pod == sum_pod_charges(charges)
    for each in (*given_pod.spec.init_containers, *given_pod.spec.containers):
        assert found.of(each.name) == sum_container_charges(charges, each.name)


def live_phases(pod: Pod) -> list[dict[str, Container]]:
    """Return the sets of containers that run together: one for each init container, and the last."""
    sidecars: dict[str, Container] = {}
    phases = []
    for each in pod.spec.init_containers:
        if is_sidecar(each):
            sidecars[each.name] = each
        else:
            phases.append({**sidecars, each.name: each})
    return [*phases, {**sidecars, **{c.name: c for c in pod.spec.containers}}]


def excess_by_search(phase: dict[str, Container], charges: tuple[ClaimCharge, ...], name: str) -> Quantity:
    """Return the excess of Max in one phase by growing groups (naive reference)."""
    left = [
        (set(c.containers) & phase.keys(), held)
        for c in charges
        if (held := c.resources.get(name, ResourceCharge()).quantity) is not None
        and (not c.containers or set(c.containers) & phase.keys())
    ]
    total = ZERO
    while left:
        names, held = left.pop()
        while touching := [claim for claim in left if claim[0] & names]:
            for claim in touching:
                left.remove(claim)
                names, held = names | claim[0], held + claim[1]
        wanted = sum((phase[n].resources.requests.get(name, ZERO) for n in names), ZERO)
        total += max(ZERO, held - wanted)
    return total


@given(charged_pods(policies=("Max",)))
def test_max_agrees_with_the_reference(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    bare = tuple(
        ClaimCharge(
            c.claim,
            c.containers,
            {n: ResourceCharge(r.quantity, policy="Max") for n, r in c.resources.items()},
        )
        for c in charges
    )
    found = compute_claim_shares(given_pod, bare)
    for name in ("cpu", "memory", "hugepages-2Mi"):
        wanted = max(excess_by_search(phase, bare, name) for phase in live_phases(given_pod))
        assert found.pod.get(name, ZERO) == wanted


@given(charged_pods(policies=("Max",)))
def test_a_containers_excess_is_that_of_its_group(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    """A container gets the excess of the claims it is grouped with."""
    given_pod, charges = case
    bare = tuple(
        ClaimCharge(c.claim, c.containers, {"cpu": ResourceCharge(Quantity.of(3), policy="Max")})
        for c in charges
    )
    found = compute_claim_shares(given_pod, bare)
    *before, last = live_phases(given_pod)
    homes = [*((name, last) for name in last), *((list(phase)[-1], phase) for phase in before)]
    for name, phase in homes:
        near = {name}
        for _ in bare:
            near |= {
                n for c in bare for n in c.containers if near & set(c.containers) & phase.keys()
            } & phase.keys()
        joined = tuple(c for c in bare if near & set(c.containers))
        assert found.of(name).get("cpu", ZERO) == excess_by_search(phase, joined, "cpu")


@given(charged_pods())
def test_no_container_is_given_more_than_its_claims_hold(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    found = compute_claim_shares(given_pod, charges)
    total = sum_pod_charges(charges)
    for each in (*given_pod.spec.init_containers, *given_pod.spec.containers):
        for name, amount in found.of(each.name).items():
            assert amount <= total.get(name, ZERO)
            assert amount >= ZERO
