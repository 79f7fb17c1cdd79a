"""How drivers behave: delays, failures, health that changes with time, orders of a control file."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.drivers.fake.fault_injection import failure, health_of, next_change, parse_control, taints_of
from plimsoll.drivers.fake.plan import CallPlan, Conduct, HealthRule
from plimsoll.drivers.plugin import Health
from plimsoll.errors import ConfigError


def test_calls_that_fail() -> None:
    plan = CallPlan(fail_first=2, fail_claims=("bad-*",), message="")
    assert failure(None, "c", 1) == ""
    assert failure(plan, "c", 1) == "call 1 of the 2 that are set to fail"
    assert failure(plan, "c", 2) == "call 2 of the 2 that are set to fail"
    assert failure(plan, "c", 3) == ""
    assert failure(plan, "bad-1", 9) == "claim bad-1 is set to fail"
    assert failure(CallPlan(fail_first=1, message="out of order"), "c", 1) == "out of order"


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
    assert health_of(RULES, device, elapsed)[0] is state


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
    """Looking every second finds no change that `next_change` has not told of."""
    due = next_change(rules, now)
    for moment in range(now, 26):
        if due is not None and moment >= due:
            break
        assert [health_of(rules, name, moment) for name in "ab"] == [
            health_of(rules, name, now) for name in "ab"
        ]


def test_orders_are_for_some_drivers_on_some_nodes() -> None:
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
    assert control.conduct("gpu.example.com", "node-0").absent == ("gpu-3",)
    assert control.conduct("gpu.example.com", "edge-7").absent == ()
    assert control.conduct("gpu.example.com", "edge-7").prepare == CallPlan(fail_first=1)
    assert control.conduct("nic", "n") == Conduct(absent=("gpu-3",))
    taints = control.conduct("other", "n").taints
    assert taints is not None
    assert taints_of(taints, "gpu-0") == [{"key": "a", "effect": "NoExecute"}]
    assert taints_of(taints, "gpu-1") == []
    assert parse_control(None).conduct("x", "y") == Conduct()


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        ({"drivers": {}}, "control: drivers: must be a list"),
        ({"driver": []}, "control: driver: there is no such setting"),
        (
            {"drivers": [{"devices": []}]},
            "drivers[0].devices: there is no such setting; there is name, nodes",
        ),
        ({"drivers": [{"health": [{"after": -1}]}]}, "health[0].after: must be a time"),
        ({"drivers": [{"absent": 3}]}, "drivers[0].absent: must be a list of texts"),
    ],
)
def test_orders_that_cannot_be_followed(tree: Any, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_control(tree)
    assert problem in str(caught.value)
