"""Small manifests with the verdict of kube-apiserver 1.36.4 (`fieldValidation=Strict`, gates as here)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from plimsoll.api.gates import Gates
from plimsoll.tools.check import check_all
from plimsoll.tools.cluster_state.manifests import ParsedObject

ROWS = Path(__file__).with_name("verdicts.jsonl")
CREATED = 201


def test_check_has_the_verdict_of_kube_apiserver() -> None:
    """Valid or not, and the fields that are wrong."""
    wrong = []
    for row in map(json.loads, ROWS.read_text().splitlines()):
        parsed = ParsedObject(row["document"], "a file")
        ((_, result),) = check_all([parsed], datetime(2026, 1, 1, tzinfo=UTC), Gates.default()).results
        missed = [field for field in row["fields"] if not any(field in each for each in result.problems)]
        if missed or (row["code"] == CREATED) == bool(result.problems):
            wrong.append((row, result.problems))
    assert wrong == []
