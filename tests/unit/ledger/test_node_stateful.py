"""Stateful test of a node ledger: it stays consistent and never exceeds the node, whatever happens."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from plimsoll.api.core import Pod
from plimsoll.api.forms import Form
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import check_requests
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.status import write_charges
from tests.build import charging_device, claim, resource_slice, result
from tests.sizes import examples
from tests.unit.ledger.fixture import LedgerFixture
from tests.unit.ledger.samples import CLAIMS, bodies, make_pod, rules

# Few sizes, so that nodes and pools get full to the last unit; odd ones, so that rounding matters.


class NodeLedgerMachine(RuleBasedStateMachine):
    """Scheduler and kubelet on one node, with any claims under any policies."""

    running = Bundle("running")
    assumed = Bundle("assumed")

    @initialize(devices=st.lists(rules(), min_size=5, max_size=5), share=st.booleans())
    def start(self, devices: list[dict[str, Any]], share: bool) -> None:
        made = [charging_device(f"d{i}", **mappings) for i, mappings in enumerate(devices)]
        claims = [claim(name, results=[result(f"d{i}")]) for i, name in enumerate(CLAIMS)]
        profile = (
            AccountingProfile(name="sharing", share_per_claim=True) if share else AccountingProfile.default()
        )
        self.fixture = LedgerFixture(
            resource_slice(made), claims=claims, profile=profile, cpu="9", memory="16Gi", pods="6"
        )
        self.count = 0

    @property
    def ledger(self) -> NodeLedger:
        return self.fixture.ledger

    def fitting(self, one: Pod) -> tuple[ChargedClaim, ...] | None:
        """Return the charged claims of a pod if it fits."""
        judged = self.fixture.check_placement(one)
        if not judged.verdict.fits or judged.charged_claims is None:
            return None
        return judged.charged_claims if check_requests(self.ledger, one, judged.charged_claims).fits else None

    @rule(target=running, body=bodies())
    def add(self, body: dict[str, Any]) -> Any:
        self.count += 1
        one = make_pod(f"pod-{self.count}", body)
        charged_claims = self.fitting(one)
        if charged_claims is None:
            return multiple()
        self.ledger.add(one, charged_claims)
        return one

    @rule(target=assumed, body=bodies())
    def assume(self, body: dict[str, Any]) -> Any:
        self.count += 1
        one = make_pod(f"pod-{self.count}", body)
        charged_claims = self.fitting(one)
        if charged_claims is None:
            return multiple()
        before = dict(self.ledger.requested)
        demand = self.fixture.check_placement(one).demand or {}
        self.ledger.assume(one, charged_claims)
        for name in {*before, *demand}:
            assert self.ledger.requested.get(name, 0) == before.get(name, 0) + demand.get(name, 0)
        return one

    @rule(target=running, one=consumes(assumed), form=st.sampled_from(("none", Form.V1_36, Form.V1_37)))
    def confirm(self, one: Pod, form: Any) -> Pod:
        charged_claims = self.ledger.entries[one.metadata.uid].charged_claims
        bound = one if form == "none" else write_charges(one, charged_claims, form).lossless(form)
        before = dict(self.ledger.requested)
        self.ledger.add(bound)
        assert self.ledger.requested == before
        return bound

    @rule(one=consumes(assumed))
    def forget(self, one: Pod) -> None:
        self.ledger.forget(one)

    @rule(one=consumes(running))
    def remove(self, one: Pod) -> None:
        self.ledger.remove(one)

    @rule(target=running, one=consumes(running), body=bodies())
    def update(self, one: Pod, body: dict[str, Any]) -> Pod:
        changed = make_pod(one.metadata.name, body)
        charged_claims = self.fitting(changed)
        if charged_claims is None:
            return one
        self.ledger.update(changed, charged_claims)
        return changed

    @rule()
    def copy(self) -> None:
        """Continue with a copy, after changing another."""
        spoiled, self.fixture.ledger = self.ledger, self.ledger.clone()
        before = dict(self.ledger.requested), dict(self.ledger.claims)
        for entry in list(spoiled.entries.values()):
            spoiled.remove(entry.pod)
        assert all(amount == 0 for amount in (*spoiled.requested.values(), *spoiled.non_zero.values()))
        assert not spoiled.claims
        assert (dict(self.ledger.requested), dict(self.ledger.claims)) == before

    @invariant()
    def ledger_is_consistent(self) -> None:
        assert [str(found) for found in self.ledger.verify()] == []

    @invariant()
    def never_past_the_line(self) -> None:
        assert all(left >= 0 for left in self.ledger.headroom().values()), self.ledger.headroom()
        for state in self.ledger.claims.values():
            assert state.consumers
            for holding in state.claim_level_charges.values():
                assert holding.pool.rest.sign() >= 0

    @invariant()
    def totals_are_the_sum_of_the_lines(self) -> None:
        """By pod and claim, each rounded up once."""
        sums: dict[tuple[str, str], Fraction] = {}
        for line in self.ledger.lines():
            if line.counted:
                owner = line.pod or f"claim {line.claim}"
                unit = 10**6 if line.resource == "cpu" else 10**9
                sums[owner, line.resource] = sums.get((owner, line.resource), Fraction()) + Fraction(
                    line.amount.nano, unit
                )
        totals: dict[str, int] = {}
        for (_, name), amount in sums.items():
            totals[name] = totals.get(name, 0) + ceil(amount)
        requested = {name: amount for name, amount in self.ledger.requested.items() if amount}
        assert requested == {name: amount for name, amount in totals.items() if amount}


TestNodeLedger = NodeLedgerMachine.TestCase
TestNodeLedger.settings = settings(max_examples=examples(100), stateful_step_count=30)
