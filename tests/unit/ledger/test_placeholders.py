"""Placeholder pods: their amounts and names, and ledgers that count them and their owners once."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import ChargeRule, sum_lines
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placeholders import (
    NAMESPACE,
    OwnerKind,
    Placeholder,
    PlaceholderOwner,
    make_pod,
    placeholder_owner,
    plan_placeholders,
)
from plimsoll.ledger.placement import check_charged_claims
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import pod_requests
from plimsoll.ledger.units import PODS, to_units
from plimsoll.ledger.verdict import Cause
from tests.build import container, node, pod

PROFILE = replace(AccountingProfile.default(), placeholders=True)
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
POLICIES = ("AddPerClaim", "AddPerReference", "Max", "ConsumeFrom")


def charge(amount: str = "4", policy: str = "", name: str = "c", resource: str = "cpu") -> ChargedClaim:
    resources = {resource: ResourceCharge(Quantity.parse(amount), policy=policy)}
    return ChargedClaim(ClaimCharge(name, ("a",), resources))


def user(name: str, cpu: str = "1", *, generated: str = "", **spec: Any) -> Pod:
    """Return a pod of the claim `c`, or of a claim generated for it."""
    if not generated:
        return pod(name, container("a", cpu=cpu), claims=("c",), **spec)
    status = {"resourceClaimStatuses": [{"name": "x", "resourceClaimName": generated}]}
    claims = [{"name": "x", "resourceClaimTemplateName": "t"}]
    return pod(name, container("a", cpu=cpu), resourceClaims=claims, status=status, **spec)


def empty() -> NodeLedger:
    return NodeLedger(node(cpu="32"), profile=PROFILE)


def planned(ledger: NodeLedger, owner: Pod) -> list[Pod]:
    """Return the placeholders of a pod in a ledger."""
    charged = ledger.entries[owner.metadata.uid].charged_claims
    found = plan_placeholders(owner, charged, ledger.options, ledger.profile)
    return [make_pod(each, ledger.name) for each in found]


@pytest.mark.parametrize(
    ("policy", "amount", "placeholder"),
    [
        ("AddPerClaim", "4", {"cpu": 4000}),
        ("AddPerReference", "4", {"cpu": 4000}),
        ("Max", "4", {"cpu": 3000}),
        ("Max", "1", None),
        ("ConsumeFrom", "4", {"cpu": 3000}),
        ("ConsumeFrom", "1", None),
    ],
)
def test_a_placeholder_requests_what_the_pod_does_not(
    policy: str, amount: str, placeholder: dict[str, int] | None
) -> None:
    """Under Max and ConsumeFrom, requests that contain the claim need no placeholder."""
    ledger, owner = empty(), user("p", generated="c")
    ledger.add(owner, [charge(amount, policy)])
    before = dict(ledger.requested)
    found = planned(ledger, owner)
    assert [to_units(pod_requests(each)) for each in found] == ([placeholder] if placeholder else [])
    for each in found:
        ledger.add(each)
    assert ledger.requested == before, "charges and placeholders count once"
    shown = to_units(pod_requests(owner))["cpu"] + sum(to_units(pod_requests(each))["cpu"] for each in found)
    assert shown == before["cpu"], "kubelets see as much as is charged"


def test_pods_that_draw_from_a_shared_claim_count_as_kubelets_count_them() -> None:
    ledger, one, two = empty(), user("one"), user("two", "2")
    for each in (one, two):
        ledger.add(each, [charge(policy="ConsumeFrom")])
    assert ledger.requested["cpu"] == 4000
    (placeholder,) = planned(ledger, one)
    assert planned(ledger, two) == [placeholder]
    owner = placeholder_owner(placeholder)
    assert owner is not None
    assert (owner.kind, str(owner)) == (OwnerKind.CLAIM, "claim default/c")
    ledger.add(placeholder)
    assert ledger.requested["cpu"] == 4000 + 1000 + 2000
    assert ledger.placeholders_of(one) == [], "the other pod needs it too"
    ledger.remove(two)
    assert ledger.requested["cpu"] == 4000 + 1000
    assert ledger.placeholders_of(one) == [placeholder]


def test_a_placeholder_without_its_pod_counts_in_full() -> None:
    ledger, owner = empty(), user("p", generated="c")
    ledger.add(owner, [charge()])
    (placeholder,) = planned(ledger, owner)
    ledger.add(placeholder)
    assert ledger.covered == {owner.metadata.uid: {"cpu": 4000}}
    ledger.remove(owner)
    assert (ledger.requested["cpu"], ledger.covered) == (4000, {})
    ledger.remove(placeholder)
    assert ledger.requested["cpu"] == 0
    assert not ledger.has_placeholders


def test_any_order_of_additions_is_equal() -> None:
    filled = empty()
    owners = [user("p", generated="g"), user("one"), user("two", "2")]
    charges = [[charge(name="g")], [charge(policy="ConsumeFrom")], [charge(policy="ConsumeFrom")]]
    for owner, charged in zip(owners, charges, strict=True):
        filled.add(owner, charged)
    by_pod = [*zip(owners, charges, strict=True)]
    by_pod += [(each, []) for each in (*planned(filled, owners[0]), *planned(filled, owners[1]))]
    totals = set()
    for order in permutations(by_pod):
        ledger = empty()
        for each, charged in order:
            ledger.add(each, charged)
        assert ledger.verify() == []
        assert to_units(sum_lines([*ledger.lines()]))["cpu"] == ledger.requested["cpu"]
        totals.add(ledger.requested["cpu"])
        for each, _ in order:
            ledger.remove(each)
        assert ledger.requested["cpu"] == 0
        assert ledger.covered == {}
    assert totals == {5000 + 4000 + 3000}


@given(
    amounts=st.lists(
        st.tuples(st.sampled_from(POLICIES), st.integers(0, 5), st.integers(0, 5), st.booleans()),
        min_size=1,
        max_size=5,
    )
)
def test_what_kubelets_see_is_never_less_than_what_is_charged(
    amounts: list[tuple[str, int, int, bool]],
) -> None:
    """A node that kubelets and kube-scheduler consider free is free, and nothing counts twice."""
    ledger, shown = empty(), 0
    found: dict[str, Pod] = {}
    for number, (policy, requests, amount, shared) in enumerate(amounts):
        name = "c" if shared and policy == "ConsumeFrom" else f"g{number}"
        # No scheduler lets pods draw more than there is.
        whole = 25 if name == "c" else amount + requests if policy == "ConsumeFrom" else amount
        owner = user(f"p{number}", str(requests), generated="" if name == "c" else name)
        ledger.add(owner, [charge(str(whole), policy, name)])
        shown += 1000 * requests
        found |= {each.metadata.name: each for each in planned(ledger, owner)}
    charged = ledger.requested["cpu"]
    shown += sum([to_units(pod_requests(each))["cpu"] for each in found.values()])
    assert shown >= charged
    for each in found.values():
        ledger.add(each)
    assert ledger.requested["cpu"] == shown
    assert ledger.verify() == []


def test_a_fit_counts_the_placeholder_as_a_pod() -> None:
    owner = user("p", generated="c")
    for pods, causes in (("1", [Cause.TOO_MANY_PODS]), ("2", [])):
        ledger = NodeLedger(node(cpu="32", pods=pods), profile=PROFILE)
        result = check_charged_claims(ledger, owner, [charge()])
        assert [each.cause for each in result.verdict.reasons] == causes
        assert result.demand == {"cpu": 5000}
    without = NodeLedger(node(cpu="32", pods="1"))
    assert check_charged_claims(without, owner, [charge()]).verdict.fits


def test_a_fit_counts_a_remaining_placeholder_once() -> None:
    """An interrupted binding left the placeholder of a pod that is pending."""
    ledger, owner = NodeLedger(node(cpu="5"), profile=PROFILE), user("p", generated="c")
    ledger.add(owner, [charge()])
    (placeholder,) = planned(ledger, owner)
    ledger.remove(owner)
    ledger.add(placeholder)
    assert ledger.requested["cpu"] == 4000
    result = check_charged_claims(ledger, owner, [charge()])
    assert result.verdict.fits
    assert result.demand == {"cpu": 1000}
    assert not check_charged_claims(ledger, user("q", generated="d"), [charge(name="d")]).verdict.fits


def test_a_fit_on_a_shared_claim_counts_what_the_kubelet_counts() -> None:
    ledger, one, two = NodeLedger(node(cpu="6"), profile=PROFILE), user("one"), user("two", "2")
    assert check_charged_claims(ledger, one, [charge(policy="ConsumeFrom")]).demand == {"cpu": 5000}
    ledger.add(one, [charge(policy="ConsumeFrom")])
    (placeholder,) = planned(ledger, one)
    ledger.add(placeholder)
    result = check_charged_claims(ledger, two, [charge(policy="ConsumeFrom")])
    assert result.demand == {"cpu": 2000}
    assert not result.verdict.fits


def test_names_are_labels_that_name_the_owner() -> None:
    long = "my.service." + 30 * "very-" + "long"
    for name in ("web-0", "a.b", long):
        placeholder = Placeholder(PlaceholderOwner(OwnerKind.POD, "ns", name, "uid"), {"cpu": 1})
        made, elsewhere = make_pod(placeholder, "n1"), make_pod(placeholder, "n2")
        assert LABEL.fullmatch(made.metadata.name)
        assert len(made.metadata.name) <= 63
        assert made.metadata.name.startswith(name.replace(".", "-")[:40])
        assert made.metadata.name != elsewhere.metadata.name
        assert placeholder_owner(made) == placeholder.owner
        assert made.metadata.namespace == NAMESPACE
        assert made.metadata.annotations["plimsoll.dev/amounts"] == "cpu=1m"
    assert placeholder_owner(pod("web-0")) is None


def test_huge_pages_have_limits_and_cpu() -> None:
    owner = PlaceholderOwner(OwnerKind.POD, "ns", "p", "uid")
    (made,) = make_pod(Placeholder(owner, {"hugepages-2Mi": 4 << 20}), "n").spec.containers
    assert {name: str(amount) for name, amount in made.resources.requests.items()} == {
        "hugepages-2Mi": "4Mi",
        "cpu": "0",
    }
    assert {name: str(amount) for name, amount in made.resources.limits.items()} == {"hugepages-2Mi": "4Mi"}


def test_lines_show_what_is_counted_once() -> None:
    ledger, owner = empty(), user("p", generated="c")
    ledger.add(owner, [charge()])
    (placeholder,) = planned(ledger, owner)
    ledger.add(placeholder)
    (line,) = (each for each in ledger.lines() if each.rule is ChargeRule.PLACEHOLDER)
    assert (str(line.amount), line.namespace) == ("-4", NAMESPACE)
    assert PODS not in ledger.requested
    assert len(ledger) == 2
