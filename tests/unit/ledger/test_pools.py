"""Drawing from pools: examples, and conditions every draw must meet."""

from __future__ import annotations

from itertools import chain, combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.policy import list_spec_requests as needs
from plimsoll.ledger.policy import split_phases
from plimsoll.ledger.pools import ClaimPool, draw_from_pools
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.ledger.verdict import Reason, VerdictCode
from tests.build import container, pod, sidecar
from tests.sizes import examples
from tests.unit.ledger.samples import charge

COUNTED = PodResourcesOptions(count_claims=True)


def drawn_from(found: dict[tuple[str, str], Quantity] | Reason) -> dict[str, str]:
    assert isinstance(found, dict), found
    return {claim: str(amount) for (claim, _), amount in found.items()}


def pool(claim: str, *containers: str, cpu: str) -> ClaimCharge:
    return charge(claim, *containers, policy="ConsumeFrom", cpu=cpu)


def referring(*names: str, **spec: Any) -> list[dict[str, str]]:
    return [{"name": name, "resourceClaimName": name} for name in names]


def test_a_pool_has_the_amount_left_by_other_consumers() -> None:
    one = pod("p", container("a", cpu="4"))
    pools = {("p", "cpu"): ClaimPool(Quantity.parse("10"), Quantity.parse("7"))}
    refused = draw_from_pools(one, [pool("p", "a", cpu="10")], COUNTED, pools)
    assert isinstance(refused, Reason)
    assert (refused.code, refused.wanted, refused.had) == (VerdictCode.UNSCHEDULABLE, 4000, 3000)
    over = draw_from_pools(one, [pool("p", "a", cpu="10")], COUNTED, pools, overdraw=True)
    assert drawn_from(over) == {"p": "4"}


def test_containers_with_one_pool_come_first() -> None:
    """`a` could take everything from `p`, but `b` has nothing else."""
    one = pod("p", container("a", cpu="4"), container("b", cpu="4"), resourceClaims=referring("p", "q"))
    charges = [pool("p", "a", "b", cpu="4"), pool("q", "a", cpu="4")]
    assert drawn_from(draw_from_pools(one, charges, COUNTED, {})) == {"p": "4", "q": "4"}


def test_sequential_containers_draw_their_maximum() -> None:
    one = pod(
        "p",
        container("a", cpu="3"),
        init=(container("i", cpu="4"), sidecar("s", cpu="1"), container("j", cpu="2")),
    )
    charges = [pool("p", "a", "i", "s", "j", cpu="4")]
    assert drawn_from(draw_from_pools(one, charges, COUNTED, {})) == {"p": "4"}


def test_every_resource_has_its_own_pool() -> None:
    one = pod("p", container("a", cpu="1", memory="2Gi"))
    both = charge("p", "a", policy="ConsumeFrom", cpu="4", memory="4Gi")
    found = draw_from_pools(one, [both], COUNTED, {})
    assert isinstance(found, dict)
    assert {name: str(amount) for (_, name), amount in found.items()} == {"cpu": "1", "memory": "2Gi"}
    refused = draw_from_pools(
        one, [charge("p", "a", policy="ConsumeFrom", cpu="4", memory="1Gi")], COUNTED, {}
    )
    assert isinstance(refused, Reason)
    assert (refused.resource, refused.code) == ("memory", VerdictCode.UNRESOLVABLE)


@st.composite
def drawing_pods(draw_from_pools: st.DrawFn) -> tuple[Pod, list[ClaimCharge]]:
    sizes = st.integers(0, 6).map(str)
    regular = [
        container(f"c{i}", cpu=draw_from_pools(sizes)) for i in range(draw_from_pools(st.integers(1, 3)))
    ]
    init = []
    for number in range(draw_from_pools(st.integers(0, 3))):
        make = draw_from_pools(st.sampled_from((container, sidecar)))
        init.append(make(f"i{number}", cpu=draw_from_pools(sizes)))
    names = [c["name"] for c in (*init, *regular)]
    claims = [f"p{i}" for i in range(draw_from_pools(st.integers(1, 3)))]
    charges = [
        pool(
            name,
            *draw_from_pools(st.lists(st.sampled_from(names), unique=True)),
            cpu=str(draw_from_pools(st.integers(0, 10))),
        )
        for name in claims
    ]
    return pod("p", *regular, init=tuple(init), resourceClaims=referring(*claims)), charges


@settings(max_examples=examples(400))
@given(drawing_pods())
def test_a_draw_never_exceeds_the_pool(case: tuple[Pod, list[ClaimCharge]]) -> None:
    one, charges = case
    found = draw_from_pools(one, charges, COUNTED, {})
    wholes = {c.claim: (c.resources["cpu"].quantity or ZERO).nano for c in charges}
    pools_of = {
        name: frozenset(c.claim for c in charges if name in c.containers)
        for c in charges
        for name in c.containers
    }
    phases = split_phases(needs(one, COUNTED), "cpu")

    def needed(phase: Any, some: set[str]) -> int:
        """Return the amount that only these pools can provide."""
        return sum(amount for name, amount in phase.items() if name in pools_of and pools_of[name] <= some)

    subsets = [
        set(s) for s in chain.from_iterable(combinations(wholes, n) for n in range(1, len(wholes) + 1))
    ]
    possible = all(
        needed(phase, some) <= sum(wholes[c] for c in some) for some in subsets for phase in phases
    )
    if isinstance(found, Reason):
        shared = any(len(pools) > 1 for pools in pools_of.values())
        assert shared or not possible
        return
    assert possible
    for claim, whole in wholes.items():
        assert 0 <= found[claim, "cpu"].nano <= whole
    for phase in phases:
        for some in subsets:
            assert needed(phase, some) <= sum(found[c, "cpu"].nano for c in some)
