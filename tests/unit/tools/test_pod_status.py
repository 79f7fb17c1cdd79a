"""Status of pods and state of claims, as kubectl get prints them."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.apiserver.tables.core import resource_claim_state
from plimsoll.apiserver.tables.row import TableRow
from plimsoll.tools.pod_status import pod_status
from plimsoll.tools.top.claims import STATES, claim_state
from tests.build import claim, pod, result

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def _container(**state: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "main", "state": state}]}


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({}, "Pending"),
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Running"}, "Running"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        ({"phase": "Running"} | _container(waiting={"reason": "CrashLoopBackOff"}), "CrashLoopBackOff"),
        ({"phase": "Succeeded"} | _container(terminated={"exitCode": 0, "reason": "Completed"}), "Completed"),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]},
            "SchedulingGated",
        ),
    ],
)
def test_the_status_of_a_pod(status: dict[str, Any], text: str) -> None:
    assert pod_status(pod("p", status=status)) == text


def test_a_pod_that_is_being_deleted_is_terminating() -> None:
    assert pod_status(pod("p", status={"phase": "Running"}, metadata=DELETED)) == "Terminating"


def test_states_of_claims_are_those_of_the_api_servers_table() -> None:
    found = set()
    for allocated, reserved, deleted in product((False, True), repeat=3):
        made = claim(
            results=[result("a")] if allocated else (),
            reserved=["p"] if reserved else (),
            metadata=DELETED if deleted else None,
        )
        state = claim_state(made)
        assert state == resource_claim_state(TableRow(codec.to_tree(made), datetime.now(UTC)))
        found.add(state)
    assert found == set(STATES)
