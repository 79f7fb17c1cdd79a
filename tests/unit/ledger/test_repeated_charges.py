"""Claims that several pods of a node use although they must not be shared: counted once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import ChargeRule, sum_lines
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.units import to_units
from tests.build import container, node, pod
from tests.sizes import examples

COUNTED_ONCE = AccountingProfile(charge_shared_once=True)


def charge(amount: str = "4", policy: str = "", name: str = "c") -> ChargedClaim:
    return ChargedClaim(
        ClaimCharge(name, ("a",), {"cpu": ResourceCharge(Quantity.parse(amount), policy=policy)})
    )


def user(name: str, cpu: str = "1", **spec: Any) -> Pod:
    return pod(name, container("a", cpu=cpu), **spec)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", 1000 + 2000 + 4000),
        ("AddPerClaim", 1000 + 2000 + 4000),
        ("AddPerReference", 1000 + 2000 + 2 * 4000),  # defined for several pods: each of them pays
        ("Max", 1000 + 2000 + 3000),  # the larger excess: 4 over a request of 1
        ("ConsumeFrom", 4000),
    ],
)
def test_a_claim_of_two_pods_is_charged_once(policy: str, expected: int) -> None:
    ledger = NodeLedger(node(), profile=COUNTED_ONCE)
    one, two = user("p"), user("q", "2")
    ledger.add(one, [charge(policy=policy)])
    before = dict(ledger.requested)
    ledger.add(two, [charge(policy=policy)])
    assert ledger.requested["cpu"] == ledger.non_zero["cpu"] == expected
    assert to_units(sum_lines([*ledger.lines()]))["cpu"] == expected
    assert ledger.verify() == []
    ledger.remove(two)
    assert ledger.requested == before
    assert ledger.repeated_charges == {}


def test_the_remaining_pod_is_charged_when_the_other_goes() -> None:
    ledger = NodeLedger(node(), profile=COUNTED_ONCE)
    ledger.add(user("p"), [charge()])
    ledger.add(user("q"), [charge()])
    (line,) = [line for line in ledger.lines() if line.rule is ChargeRule.SHARED]
    assert (str(line.amount), line.namespace, line.pod, line.claim) == ("-4", "default", "", "c")
    ledger.remove(user("p"))
    assert ledger.requested["cpu"] == 5000


def test_upstream_charges_a_claim_for_every_pod() -> None:
    ledger = NodeLedger(node(), profile=AccountingProfile.upstream_1_36())
    ledger.add(user("p"), [charge()])
    ledger.add(user("q"), [charge()])
    assert ledger.requested["cpu"] == 10_000


def test_pod_level_requests_count_in_full() -> None:
    """A pod-level request is reserved for its pod, whatever claims are within it."""
    ledger = NodeLedger(node(), profile=COUNTED_ONCE)
    for name in ("p", "q"):
        ledger.add(user(name, resources={"requests": {"cpu": "5"}}), [charge()])
    assert ledger.requested["cpu"] == 10_000


AMOUNTS = st.sampled_from(["1", "2", "1500u", "2500m", "3"])


@settings(max_examples=examples(100))
@given(
    users=st.lists(
        st.tuples(AMOUNTS, st.dictionaries(st.sampled_from("cde"), AMOUNTS, max_size=3)),
        min_size=1,
        max_size=6,
    ),
    removed=st.sets(st.integers(0, 5)),
)
def test_the_totals_have_each_claim_once(users: list[tuple[str, dict[str, str]]], removed: set[int]) -> None:
    """At least the largest charge of each claim counts; rounding adds less than a unit per pod and claim."""
    ledger = NodeLedger(node(), profile=COUNTED_ONCE)
    pods = [user(f"p{number}", cpu) for number, (cpu, _) in enumerate(users)]
    for one, (_, claims) in zip(pods, users, strict=True):
        ledger.add(one, [charge(amount, name=name) for name, amount in claims.items()])
    for number in sorted(removed & {*range(len(users))}):
        ledger.remove(pods[number])
    left = [each for number, each in enumerate(users) if number not in removed]
    largest: dict[str, int] = {}
    for _, claims in left:
        for name, amount in claims.items():
            largest[name] = max(largest.get(name, 0), Quantity.parse(amount).nano)
    exact = Fraction(sum(Quantity.parse(cpu).nano for cpu, _ in left) + sum(largest.values()), 10**6)
    got = ledger.requested.get("cpu", 0)
    assert exact <= got <= exact + 2 * len(left) + len(largest)
    assert ledger.verify() == []
