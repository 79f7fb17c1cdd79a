"""Validation of plugin requests."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.nri.checks import adjustment_fault, is_set, resources_fault, unsupported_fields
from plimsoll.protocols.messages import nri


@pytest.mark.parametrize("text", ["0", "0-3", "1,3-5", "65535", "7,1"])
def test_cpu_lists_are_accepted(text: str) -> None:
    assert is_set(text)


@pytest.mark.parametrize(
    "text", ["", "a", "3-1", "1-", "-1", "0,", "65536", "0-99999", "0 1", "0\n", "1--2", "٣"]
)
def test_malformed_cpu_lists_are_refused(text: str) -> None:
    assert not is_set(text)


@given(st.text("0123456789,-", max_size=8))
def test_cpu_lists_equal_the_naive_parser(text: str) -> None:
    def naive() -> bool:
        for part in text.split(","):
            ends = part.split("-")
            if len(ends) > 2 or not all(end.isdigit() and len(end) <= 5 for end in ends):
                return False
            if int(ends[0]) > int(ends[-1]) or int(ends[-1]) >= 65536:
                return False
        return True

    assert is_set(text) == naive()


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"cpu": {"quota": {"value": -2}}}, "quota: -2 is out of range"),
        ({"cpu": {"shares": {"value": 2**63}}}, f"shares: {2**63} is out of range"),
        ({"cpu": {"mems": "x"}}, "mems: 'x' is not a list of numbers and ranges"),
        ({"memory": {"limit": {"value": -2}}}, "memory limit: -2 is out of range"),
        ({"pids": {"limit": -2}}, "pids limit: -2 is out of range"),
        ({"hugepage_limits": [{"page_size": "../x"}]}, "huge pages: '../x' is not a page size"),
        ({"hugepage_limits": [{"page_size": "2MB", "limit": 2**63}]}, f"huge pages: {2**63} is out of range"),
        ({"unified": {"memory": "1"}}, "unified: 'memory' is not a cgroup file"),
        ({"unified": {"a/b.c": "1"}}, "unified: 'a/b.c' is not a cgroup file"),
        ({"unified": {"a.b": "\0"}}, "unified: the value of a.b cannot be written"),
        ({"unified": {"memory.high": "max"}, "cpu": {"quota": {"value": -1}}}, None),
    ],
)
def test_resources(fields: dict[str, Any], fault: str | None) -> None:
    assert resources_fault(nri.LinuxResources(**fields)) == fault


def test_long_texts_are_truncated() -> None:
    fault = resources_fault(nri.LinuxResources(cpu=nri.LinuxCPU(cpus="x" * 10_000)))
    assert fault is not None
    assert len(fault) < 200


def test_removals_are_names_too() -> None:
    assert (
        adjustment_fault(nri.ContainerAdjustment(env=[{"key": "-A"}], mounts=[{"destination": "-/m"}]))
        is None
    )
    assert adjustment_fault(nri.ContainerAdjustment(env=[{"key": "-"}])) is not None


def test_unsupported_adjustments_are_named() -> None:
    adjust = nri.ContainerAdjustment(
        hooks={"prestart": [{"path": "/x"}]},
        rlimits=[{"type": "RLIMIT_NOFILE"}],
        env=[{"key": "A"}],
        linux={
            "sysctl": {"a": "b"},
            "oom_score_adj": {"value": 1},
            "resources": {"memory": {"swap": {"value": 1}, "limit": {"value": 1}}},
        },
    )
    assert unsupported_fields(adjust) == ("hooks", "rlimits", "linux.sysctl", "memory.swap")
    assert unsupported_fields(nri.ContainerAdjustment()) == ()
