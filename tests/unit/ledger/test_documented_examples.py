"""The examples in docs/ledger.md are run, and its table of one pod under four policies is checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.build import charging_device, claim, container, pod, resource_slice, result
from tests.unit.ledger.fixture import LedgerFixture

TEXT = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_python_blocks_hold(number: int) -> None:
    exec(BLOCKS[number], {})


def test_the_documentation_has_examples() -> None:
    assert BLOCKS


@pytest.mark.parametrize("policy", ["AddPerClaim", "AddPerReference", "Max", "ConsumeFrom"])
def test_the_same_pod_under_four_policies(policy: str) -> None:
    row = re.search(rf"^\| {policy} \| (?:.* = )?(\d+)", TEXT.split("share a claim for 4:")[1], re.MULTILINE)
    assert row is not None
    rule = {"allocationMultiplier": "4", "accountingPolicy": policy}
    fixture = LedgerFixture(
        resource_slice([charging_device("d", cpu=rule)]), claims=[claim("c", results=[result("d")])]
    )
    one = pod("p", container("a", "c", cpu="1"), container("b", "c", cpu="2"))
    assert fixture.cost(one) == int(row[1]) * 1000
    if policy == "ConsumeFrom":
        fixture.place(one)
        state = fixture.ledger.claim_state("default", "c")
        assert state is not None
        assert str(state.consumed["cpu"]) == "3"
