"""Fault injection: delays, failures, health that changes over time, commands of a control file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.drivers.fake.fault_injection import (
    find_failure,
    find_next_change,
    get_health,
    get_taints,
    parse_control,
)
from plimsoll.drivers.fake.plan import CallPlan, FaultInjection, HealthRule
from plimsoll.drivers.plugin import Health
from plimsoll.errors import ConfigError


def test_calls_that_fail() -> None:
    plan = CallPlan(fail_first=2, fail_claims=("bad-*",), message="")
    assert find_failure(None, "c", 1) == ""
    assert find_failure(plan, "c", 1) == "call 1 of the 2 that are set to fail"
    assert find_failure(plan, "c", 2) == "call 2 of the 2 that are set to fail"
    assert find_failure(plan, "c", 3) == ""
    assert find_failure(plan, "bad-1", 9) == "claim bad-1 is set to fail"
    assert find_failure(CallPlan(fail_first=1, message="out of order"), "c", 1) == "out of order"


RULES = (
    HealthRule(devices=("gpu-0",), state=Health.UNHEALTHY, after=5, message="too hot"),
    HealthRule(devices=("*",), state=Health.UNKNOWN, after=10),
    HealthRule(devices=("gpu-0", "gpu-1"), state=Health.HEALTHY, after=20),
)


@pytest.mark.parametrize(
    ("device", "elapsed", "state"),
    [
        ("gpu-0", 0, Health.HEALTHY),
        ("gpu-0", 5, Health.UNHEALTHY),
        ("gpu-1", 5, Health.HEALTHY),
        ("gpu-1", 10, Health.UNKNOWN),
        ("gpu-0", 20, Health.HEALTHY),
        ("gpu-2", 99, Health.UNKNOWN),
    ],
)
def test_health_follows_its_script(device: str, elapsed: float, state: Health) -> None:
    assert get_health(RULES, device, elapsed)[0] is state


@given(
    st.lists(
        st.builds(
            HealthRule,
            devices=st.tuples(st.sampled_from(["a", "b", "*"])),
            state=st.sampled_from(Health),
            after=st.integers(0, 20),
        ),
        max_size=5,
    ),
    st.integers(0, 25),
)
def test_between_two_changes_nothing_changes(rules: list[HealthRule], now: int) -> None:
    """Polling every second finds no change that `find_next_change` missed."""
    due = find_next_change(rules, now)
    for timestamp in range(now, 26):
        if due is not None and timestamp >= due:
            break
        assert [get_health(rules, name, timestamp) for name in "ab"] == [
            get_health(rules, name, now) for name in "ab"
        ]


def test_faults_select_drivers_and_nodes() -> None:
    control = parse_control(
        {
            "drivers": [
                {"absent": ["gpu-3"]},
                {"name": "gpu.example.com", "nodes": ["node-1", "edge-*"], "absent": []},
                {"name": "*.example.com", "prepare": {"failFirst": 1}},
                {"name": "other", "taints": [{"key": "a", "effect": "NoExecute", "devices": "gpu-0"}]},
            ]
        }
    )
    assert control.faults("gpu.example.com", "node-0").absent == ("gpu-3",)
    assert control.faults("gpu.example.com", "edge-7").absent == ()
    assert control.faults("gpu.example.com", "edge-7").prepare == CallPlan(fail_first=1)
    assert control.faults("nic", "n") == FaultInjection(absent=("gpu-3",))
    taints = control.faults("other", "n").taints
    assert taints is not None
    assert get_taints(taints, "gpu-0") == [{"key": "a", "effect": "NoExecute"}]
    assert get_taints(taints, "gpu-1") == []
    assert parse_control(None).faults("x", "y") == FaultInjection()


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"drivers": {}}, "control: drivers: must be a list"),
        ({"driver": []}, "control: driver: unknown field"),
        (
            {"drivers": [{"devices": []}]},
            "drivers[0].devices: unknown field; valid fields: name, nodes",
        ),
        ({"drivers": [{"health": [{"after": -1}]}]}, "health[0].after: must be a time"),
        ({"drivers": [{"absent": 3}]}, "drivers[0].absent: must be a list of strings"),
    ],
)
def test_invalid_control_files(tree: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_control(tree)
    assert problem in str(caught.value)
