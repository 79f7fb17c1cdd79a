"""Charges of claims without the charge lines, against the lines, on random entries."""

from __future__ import annotations

import random

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import ChargeRule, make_entry
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.tools.top.claims import simple_claim_charges
from plimsoll.tools.top.nodes import entry_holders, full_columns, simple_columns

AMOUNTS = [None, None, None, "0", "500m", "2", "3", "250u"]
POLICIES = ["", "", "", "", "AddPerClaim", "Max", "AddPerReference"]


def _pod(chance: random.Random) -> Pod:
    requests = {"cpu": chance.choice(["1", "300m", "1500u"]), "memory": "1Gi"}
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "work", "uid": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]},
    }
    if chance.random() < 0.2:
        tree["spec"]["overhead"] = {"cpu": "100m"}  # type: ignore[index]
    return codec.convert(tree, Pod)


def _amount(chance: random.Random) -> Quantity | None:
    text = chance.choice(AMOUNTS)
    return None if text is None else Quantity.parse(text)


def _claim(chance: random.Random, name: str) -> ChargedClaim:
    resources = {
        resource: ResourceCharge(
            _amount(chance), _amount(chance), _amount(chance), policy=chance.choice(POLICIES)
        )
        for resource in chance.sample(["cpu", "memory", "example.com/x", "hugepages-2Mi"], 2)
    }
    return ChargedClaim(ClaimCharge(name, ("c",) * chance.randrange(3), resources), f"uid-{name}")


def test_simple_charges_equal_those_of_the_lines() -> None:
    chance = random.Random(2026)
    profile, options = AccountingProfile.default(), PodResourcesOptions(count_claims=True)
    simple = 0
    for _ in range(600):
        claims = [_claim(chance, name) for name in ("a", "b")[: chance.randrange(1, 3)]]
        entry = make_entry(_pod(chance), claims, options, profile)
        columns = simple_columns(entry)
        assert columns is None or _nonzero(columns) == _nonzero(full_columns(entry))
        found = simple_claim_charges(entry, "a")
        if found is None:
            continue
        simple += 1
        expected: dict[tuple[str, str], int] = {}
        for holder in entry_holders(entry):
            if holder.claim == "a" and holder.rule != ChargeRule.CONSUME_FROM.value:
                key = (holder.resource, holder.rule)
                expected[key] = expected.get(key, 0) + holder.amount
        amounts = {(resource, rule): amount for resource, rule, amount in found}
        assert {k: v for k, v in amounts.items() if v} == {k: v for k, v in expected.items() if v}
    assert simple > 50


def _nonzero(columns: dict[str, tuple[int, int, int]]) -> dict[str, tuple[int, int, int]]:
    return {name: parts for name, parts in columns.items() if any(parts)}
