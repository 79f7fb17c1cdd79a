"""Parts of the plans of Jobs: index ranges, backoff, and policies."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.timestamps import format_time
from plimsoll.controllers.job.backoff import BackoffRecord, record_backoff, remaining_backoff
from plimsoll.controllers.job.index_ranges import (
    add_indexes,
    count_common,
    count_indexes,
    first_missing,
    format_ranges,
    has_index,
    merge_ranges,
    parse_ranges,
)
from plimsoll.controllers.job.policies import find_job_failure, match_failure, match_success
from tests.unit.controllers.cluster import START
from tests.unit.controllers.workloads.makers import job, owned_pod

INDEXES = st.sets(st.integers(0, 30))


@given(INDEXES, INDEXES, st.integers(0, 35), st.integers(0, 35))
def test_ranges_are_sets(one: set[int], two: set[int], completions: int, count: int) -> None:
    left, right = add_indexes((), one), add_indexes((), two)
    assert parse_ranges(format_ranges(left), 31) == left
    assert count_indexes(left) == len(one)
    assert {index for index in range(40) if has_index(left, index)} == one
    assert merge_ranges(left, right) == add_indexes((), one | two)
    assert count_common(left, right) == len(one & two)
    missing = [index for index in range(completions) if index not in one]
    assert first_missing(left, count, completions) == missing[:count]
    assert parse_ranges(format_ranges(left), completions) == add_indexes(
        (), (index for index in one if index < completions)
    )


def test_the_text_of_ranges_is_that_of_kubernetes() -> None:
    assert format_ranges(add_indexes((), [1, 3, 4, 6, 7, 8])) == "1,3,4,6-8"
    assert parse_ranges("1,x,3-5,7-", 10) == ((1, 1), (3, 5))


def ended(name: str, at: float, phase: str = "Failed", code: int = 1) -> Any:
    state = {"terminated": {"exitCode": code, "finishedAt": format_time(at)}}
    return owned_pod(
        name, "Job", "j", phase=phase, status={"containerStatuses": [{"name": "c", "state": state}]}
    )


def test_backoff_doubles_until_a_success() -> None:
    record = record_backoff(BackoffRecord(), [], [ended("a", START)])
    assert remaining_backoff(record, START) == 10
    record = record_backoff(record, [], [ended("b", START + 10), ended("c", START + 20)])
    assert remaining_backoff(record, START + 20) == 40
    record = record_backoff(record, [ended("d", START + 30, "Succeeded", 0)], [ended("e", START + 25)])
    assert remaining_backoff(record, START + 30) == 0
    assert remaining_backoff(BackoffRecord(50, START), START) == 600


EXIT_42 = {"onExitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("rule", "code", "action"),
    [
        ({"action": "FailJob", **EXIT_42}, 42, "FailJob"),
        ({"action": "FailJob", **EXIT_42}, 1, ""),
        ({"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [42]}}, 1, "Ignore"),
        ({"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [42]}}, 42, ""),
        ({"action": "Count", "onExitCodes": {"containerName": "x", **EXIT_42["onExitCodes"]}}, 42, ""),
        ({"action": "FailIndex", "onPodConditions": [{"type": "Ready", "status": "False"}]}, 1, "FailIndex"),
    ],
)
def test_the_first_matching_rule_decides(rule: dict[str, Any], code: int, action: str) -> None:
    failing = job(podFailurePolicy={"rules": [rule]})
    match = match_failure(failing, ended("p", START, code=code))
    assert match.action == action
    assert match.counts == (action != "Ignore")
    assert bool(find_job_failure(failing, [ended("p", START, code=code)])) == (action == "FailJob")


def test_a_failure_names_its_pod_and_rule() -> None:
    failing = job(podFailurePolicy={"rules": [{"action": "FailJob", **EXIT_42}]})
    assert match_failure(failing, ended("p", START, code=42)).message == (
        "Container c for pod n/p failed with exit code 42 matching FailJob rule at index 0"
    )


@pytest.mark.parametrize(
    ("rule", "indexes", "met"),
    [
        ({"succeededIndexes": "0-2"}, [0, 1, 2], True),
        ({"succeededIndexes": "0-2"}, [0, 1, 4], False),
        ({"succeededIndexes": "0-2", "succeededCount": 2}, [0, 1, 4], True),
        ({"succeededCount": 2}, [3, 4], True),
        ({"succeededCount": 3}, [3, 4], False),
        ({"succeededCount": 1}, [], False),
    ],
)
def test_success_policies_count_indexes(rule: dict[str, Any], indexes: list[int], met: bool) -> None:
    lenient = job(completions=5, completionMode="Indexed", successPolicy={"rules": [rule]})
    message = match_success(lenient, add_indexes((), indexes))
    assert message == ("Matched rules at index 0" if met else "")
