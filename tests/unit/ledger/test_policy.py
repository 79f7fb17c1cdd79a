"""The four accounting policies, compared with their definitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import AccountingPolicy, ClaimCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.policy import (
    POLICY_RULES,
    find_policy_dependent_resources,
    is_claim_level,
    resolve_policies,
)
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions, aggregate_container_requests, pod_requests
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, charged_pods

COUNTED = PodResourcesOptions(count_claims=True)


def effective(one: Pod, *charges: ClaimCharge) -> str:
    return str(pod_requests(one, COUNTED, resolve_policies(one, charges, COUNTED)).get("cpu", ZERO))


def test_the_example_of_several_claims_in_kep_5517() -> None:
    one = pod("p", container("c1", cpu="1"), container("c2", cpu="2"))
    assert effective(one, charge("a", "c1", "c2", cpu="4"), charge("b", "c1", cpu="2")) == "9"


def test_additive_claims_come_on_top_of_max() -> None:
    """Rule 4: other claims are added to the result of Max."""
    one = pod("p", container("c", cpu="1"))
    base = charge("cpus", "c", policy="Max", cpu="4")
    for policy in ("AddPerClaim", "AddPerReference", ""):
        assert effective(one, charge("gpu", "c", policy=policy, cpu="2"), base) == "6"
        assert effective(one, base, charge("gpu", "c", policy=policy, cpu="2")) == "6"


def test_additive_claims_are_charged_to_the_node_in_addition_to_a_pool() -> None:
    """Rule 5: requests are drawn from the pool, the rest is charged to the node."""
    one = pod("p", container("c", cpu="1"), container("d", cpu="3"))
    pool = charge("pool", "c", policy="ConsumeFrom", cpu="10")
    assert effective(one, pool) == "3"
    assert effective(one, pool, charge("gpu", "c", policy="AddPerReference", cpu="2")) == "5"


def test_plain_charges_stay_as_they_are() -> None:
    one = pod("p", container("c", cpu="1"))
    charges = (charge("a", "c", cpu="4"), charge("b", policy="AddPerClaim", memory="1Gi"))
    assert resolve_policies(one, charges, COUNTED) == charges


def test_each_claim_gets_what_it_adds_to_those_before_it() -> None:
    one = pod("p", container("c", cpu="3"))
    charges = [charge(n, "c", policy="Max", cpu="2") for n in ("a", "b", "d")]
    parts = [str(found.resources["cpu"].quantity) for found in resolve_policies(one, charges, COUNTED)]
    assert parts == ["0", "1", "2"]  # 2 and 4 against 3, then 6


def test_draws_are_negative_charges() -> None:
    one = pod("p", container("c", cpu="3"), init=(sidecar("s", cpu="1"),))
    (found,) = resolve_policies(one, [charge("a", "c", "s", policy="ConsumeFrom", cpu="9")], COUNTED)
    assert str(found.resources["cpu"].quantity) == "-4"


def test_every_policy_has_a_rule() -> None:
    assert set(POLICY_RULES) == set(AccountingPolicy)


def test_charges_of_a_claim_as_a_whole() -> None:
    pool, plain = charge("a", policy="ConsumeFrom", cpu="1"), charge("a", cpu="1")
    sharing = AccountingProfile(share_per_claim=True)
    assert is_claim_level(pool.resources["cpu"], AccountingProfile.default())
    assert not is_claim_level(plain.resources["cpu"], AccountingProfile.default())
    assert is_claim_level(plain.resources["cpu"], sharing)
    assert not is_claim_level(charge("a", policy="Max", cpu="1").resources["cpu"], sharing)


def test_resources_that_need_claims_to_check() -> None:
    charges = [
        charge("a", policy="Max", cpu="1"),
        charge("b", policy="AddPerReference", memory="1"),
        charge("c", policy="ConsumeFrom", hugepages_2Mi="2Mi"),
    ]
    assert find_policy_dependent_resources(charges) == {"cpu", "hugepages-2Mi"}


# -- naive reference


def live_phases(one: Pod) -> list[list[Container]]:
    """Return every set of containers that runs together."""
    init = one.spec.init_containers
    phases = [[*filter(is_sidecar, init[:index]), each] for index, each in enumerate(init)]
    return [*phases, [*filter(is_sidecar, init), *one.spec.containers]]


def by_definition(one: Pod, charges: tuple[ClaimCharge, ...], resource: str) -> int:
    """Return a pod's charge by the definitions of the policies (naive reference)."""
    shares = [
        (effective_policy(found.policy), found.quantity.nano, set(c.containers))
        for c in charges
        if (found := c.resources.get(resource)) is not None and found.quantity is not None
    ]
    worst = 0
    for running in live_phases(one):
        names = {c.name for c in running}
        need = {c.name: c.resources.requests.get(resource, ZERO).nano for c in running}
        total = 0
        for name, amount in need.items():
            drawn = any(p is AccountingPolicy.CONSUME_FROM and name in who for p, _, who in shares)
            total += 0 if drawn else amount
        for policy, amount, who in shares:
            if policy is AccountingPolicy.ADD_PER_CLAIM:
                total += amount
            if policy is AccountingPolicy.ADD_PER_REFERENCE:
                total += amount * len(who & names) if who else amount
            if policy is AccountingPolicy.MAX and not who:
                total += amount
        total += excess(
            need, [(amount, who & names) for p, amount, who in shares if p is AccountingPolicy.MAX]
        )
        worst = max(worst, total)
    return worst


def excess(need: dict[str, int], shares: list[tuple[int, set[str]]]) -> int:
    """Return the excess of claims under Max over the requests, group by group."""
    joined = {a: {b for _, who in shares if a in who for b in who} for a in need}
    for _ in need:
        joined = {a: {c for b in known | {a} for c in joined[b] | {b}} for a, known in joined.items()}
    extra, seen = 0, set[str]()
    for name in need:
        group = joined[name] & {n for _, who in shares for n in who}
        if name in seen or name not in group:
            continue
        seen |= group
        claims = sum(amount for amount, who in shares if who & group)
        extra += max(0, claims - sum(need[n] for n in group))
    return extra


@given(charged_pods(), st.sampled_from(("cpu", "memory", "hugepages-2Mi")))
def test_charges_agree_with_the_definitions(
    drawn: tuple[Pod, tuple[ClaimCharge, ...]], resource: str
) -> None:
    one, charges = drawn
    plain = resolve_policies(one, charges, COUNTED)
    overhead = Quantity(
        sum(
            part.nano * times
            for c in charges
            if resource in c.resources
            for part, times in (
                (c.resources[resource].per_pod, 1),
                (c.resources[resource].per_container, len(c.containers)),
            )
            if part is not None
        )
    )
    got = aggregate_container_requests(one, COUNTED, plain).get(resource, ZERO)
    assert got.nano == by_definition(one, charges, resource) + overhead.nano
