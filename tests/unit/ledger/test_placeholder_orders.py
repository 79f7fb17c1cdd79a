"""Ledgers with placeholders, in any order of pods and placeholders: totals, and their verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from plimsoll.api.core import Pod
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placeholders import (
    OwnerKind,
    is_placeholder,
    make_pod,
    placeholder_owner,
    plan_placeholders,
)
from plimsoll.ledger.placement import (
    assume_placeholders,
    check_admission,
    compute_demand,
    find_missing_placeholders,
)
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import without_status
from plimsoll.ledger.units import Units, to_unit
from tests.build import charging_device, claim, container, pod, resource_slice, result
from tests.sizes import examples
from tests.unit.ledger import samples
from tests.unit.ledger.fixture import LedgerFixture

Charged = tuple[Pod, tuple[ChargedClaim, ...]]
PLACEHOLDERS = replace(AccountingProfile.default(), placeholders=True)


@st.composite
def charged_pods(draw: st.DrawFn) -> tuple[NodeLedger, list[Charged]]:
    """An empty ledger, and pods that may share claims under any policies, with their charges."""
    devices = [charging_device(f"d{i}", **draw(samples.rules())) for i in range(5)]
    claims = [claim(name, results=[result(f"d{i}")]) for i, name in enumerate(samples.CLAIMS)]
    profile = replace(PLACEHOLDERS, share_per_claim=draw(st.booleans()))
    fixture = LedgerFixture(
        resource_slice(devices), claims=claims, profile=profile, cpu="99", memory="999Gi", pods="110"
    )
    pods = []
    for number in range(draw(st.integers(1, 4))):
        made = samples.make_pod(f"p{number}", draw(samples.bodies()))
        checked = fixture.check_placement(made)
        if checked.verdict.fits:
            pods.append((made, checked.charged_claims or ()))
    return fixture.ledger, pods


def placeholders_for(ledger: NodeLedger, pods: Sequence[Charged]) -> list[Pod]:
    """Return the placeholders of pods, each once."""
    planned = {
        each.owner.key: make_pod(each, ledger.name)
        for made, charged_claims in pods
        for each in plan_placeholders(made, charged_claims, ledger.options, ledger.profile)
    }
    return list(planned.values())


def consumed(ledger: NodeLedger) -> Units:
    """Return what pods draw from claims that have a placeholder: it is in the requests of both."""
    found: dict[str, int] = {}
    for state in ledger.claims.values():
        for name, charge in state.claim_level_charges.items():
            if charge.units(name):
                found[name] = found.get(name, 0) + to_unit(name, charge.pool.consumed)
    return found


@settings(max_examples=examples(150), deadline=None)
@given(charged_pods())
def test_placeholders_add_what_pods_draw_from_shared_claims(found: tuple[NodeLedger, list[Charged]]) -> None:
    ledger, pods = found
    plain = ledger.clone()
    for made, charged_claims in pods:
        plain.add(made, charged_claims)
        ledger.add(made, charged_claims)
        assume_placeholders(ledger, made, charged_claims)
    drawn = consumed(ledger)
    for name in {*plain.requested, *ledger.requested}:
        more = ledger.requested.get(name, 0) - plain.requested.get(name, 0)
        assert 0 <= more <= drawn.get(name, 0), name
    assert not any(find_missing_placeholders(ledger))
    assert len(ledger) == len(plain) + len(placeholders_for(ledger, pods))
    assert ledger.verify() == []


@settings(max_examples=examples(150), deadline=None)
@given(charged_pods(), st.data())
def test_any_order_of_pods_and_placeholders(found: tuple[NodeLedger, list[Charged]], data: Any) -> None:
    ledger, pods = found
    things: dict[str, Charged] = {made.metadata.name: (made, charged) for made, charged in pods}
    for placeholder in placeholders_for(ledger, pods):
        things[placeholder.metadata.name] = (placeholder, ())
        # A copy made by hand: the owner has two.
        name = f"copy-of-{placeholder.metadata.name}"
        meta = with_fields(placeholder.metadata, name=name, uid=name)
        things[name] = (with_fields(placeholder, metadata=meta), ())
    names = st.sampled_from(sorted(things)) if things else st.nothing()
    for name in data.draw(st.lists(names, max_size=20)):
        made, charged_claims = things[name]
        if data.draw(st.booleans()):
            ledger = ledger.clone()
        if made not in ledger:
            ledger.add(made, charged_claims)
        elif not is_placeholder(made) and data.draw(st.booleans()):
            ledger.remove_with_placeholders(made)
        elif data.draw(st.booleans()):
            ledger.restore(ledger.remove(made))
        else:
            ledger.remove(made)
        assert ledger.verify() == []
    for entry in list(ledger.entries.values()):
        ledger.remove(entry.pod)
    assert not any(ledger.requested.values())
    assert not any(ledger.non_zero.values())
    assert not ledger.has_placeholders
    assert not ledger.covered


@settings(max_examples=examples(100), deadline=None)
@given(charged_pods(), st.randoms(use_true_random=False))
def test_the_totals_do_not_depend_on_the_order(found: tuple[NodeLedger, list[Charged]], random: Any) -> None:
    ledger, pods = found
    things = [*pods, *((each, ()) for each in placeholders_for(ledger, pods))]
    other = ledger.clone()
    for made, charged_claims in things:
        ledger.add(made, charged_claims)
    random.shuffle(things)
    for made, charged_claims in things:
        demand = compute_demand(other, made, charged_claims, without_status(other.options))
        before = dict(other.requested)
        other.add(made, charged_claims)
        added = {name: other.requested[name] - before.get(name, 0) for name in other.requested}
        assert {n: u for n, u in added.items() if u} == {n: u for n, u in demand.items() if u}
    assert {n: u for n, u in other.requested.items() if u} == {n: u for n, u in ledger.requested.items() if u}


def test_a_kubelet_that_counts_charges_admits_a_placeholder_after_its_pod() -> None:
    device = charging_device("d0", cpu={"allocationMultiplier": "10"})
    fixture = LedgerFixture(
        resource_slice([device]), claims=[claim("claim-0", results=[result("d0")])], profile=PLACEHOLDERS
    )
    made = pod("p", container("c", "claim-0", cpu="1"), claims=["claim-0"])
    charged_claims = fixture.place(made)
    (placeholder,) = placeholders_for(fixture.ledger, [(made, charged_claims)])
    owner = placeholder_owner(placeholder)
    assert owner is not None
    assert owner.kind is OwnerKind.POD
    assert fixture.cpu == 11_000
    assert check_admission(fixture.ledger, placeholder, ()).admit
    fixture.ledger.add(placeholder)
    assert fixture.cpu == 11_000
    fixture.ledger.remove(made)
    assert fixture.cpu == 10_000
    assert check_admission(fixture.ledger, made, charged_claims).admit
