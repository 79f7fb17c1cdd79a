"""Audit of ledgers recomputed from the objects, all of them or a sample."""

from __future__ import annotations

import pytest

from plimsoll.tools.audit import audit, choose_checks
from plimsoll.tools.audit.checks import ledgers
from tests.dumps import make_cluster_state
from tests.unit.tools.audit.build import node, pod


@pytest.mark.parametrize("most", [500, 2])
def test_wrong_ledgers_are_found(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "MAX_VERIFIED_NODES", most)
    cluster_state = make_cluster_state([node("n1"), node("n2"), node("n3"), pod("p", on="n1")])
    place = cluster_state.snapshot.row_of("n1")
    assert place is not None
    assert audit(cluster_state, checks=choose_checks(["PLM008"])).findings == ()
    cluster_state.snapshot.ledger(place).requested["cpu"] += 1
    report = audit(cluster_state, checks=choose_checks(["PLM008"]))
    assert any("requested cpu: charged 1001, recomputed 1000" in each.message for each in report.findings)
