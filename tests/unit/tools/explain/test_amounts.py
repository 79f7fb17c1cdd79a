"""Amounts in explanations: short in the text, exact quantities in JSON output."""

from __future__ import annotations

from plimsoll.api.quantity import Quantity
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.facts import AmountFact, compared_amounts
from tests.build import node, pod
from tests.unit.tools.explain.symptoms import make_cluster_state

Mi = 2**20


def test_an_amount_is_short_in_the_text_and_exact_in_json() -> None:
    statement = Statement(
        StatementKind.UNCOUNTED, {"amount": AmountFact("memory", 20324 * Mi, is_named=True)}
    )
    assert statement.text == "claims hold 19.8Gi memory that is not counted"
    assert statement.as_json()["numbers"] == {"amount": "20324Mi memory"}


def test_compared_amounts_have_different_texts() -> None:
    facts = compared_amounts("memory", wanted=20325 * Mi, free=20324 * Mi)
    assert {name: str(fact) for name, fact in facts.items()} == {"wanted": "20325Mi", "free": "20324Mi"}


def test_numbers_of_a_shortage_can_be_added_up() -> None:
    """The numbers in JSON output are the ledger's, whatever the text rounds."""
    big = pod("big", cpu="1", memory="16001Mi")
    held = pod("held", cpu="1", memory="5001Mi", node="n")
    cluster_state = make_cluster_state([node("n", cpu="8", memory="20324Mi"), held, big])
    report = explain_pod(cluster_state, big)
    (group,) = report.as_json()["groups"]
    numbers = {key: Quantity.parse(group["numbers"][key]) for key in ("wanted", "free", "line", "requests")}
    assert numbers["line"] - numbers["requests"] == numbers["free"] == Quantity.parse("15323Mi")
    assert numbers["wanted"] == Quantity.parse("16001Mi")
    (branch,) = group["children"]
    assert "requests 15.6Gi, 14.9Gi of 19.8Gi free" in branch["reason"]
