"""Constraints that explanations call unsatisfiable, compared with trying every choice of devices."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.tools.explain import PodExplanation, explain_pod
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from tests.build import (
    DRIVER,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.sizes import examples
from tests.unit.tools.explain.symptoms import GPUS, SUBJECT, make_cluster_state

NUMA = f"{DRIVER}/numa"


def explain(*objects: Any) -> PodExplanation:
    state = make_cluster_state([GPUS, node("n1"), *objects, pod("p", claims=["c"])])
    return explain_pod(state, state.pod(SUBJECT))


def unmet(explanation: PodExplanation) -> list[Statement]:
    branches = [branch for group in explanation.groups for branch in group.branches]
    return [branch for branch in branches if branch.kind is StatementKind.CONSTRAINT_UNMET]


def feasible(
    devices: list[dict[str, Any]], requests: list[dict[str, Any]], constraint: dict[str, Any]
) -> bool:
    """Try every choice of alternatives and devices."""
    values = {each["name"]: each.get("attributes", {}).get(NUMA) for each in devices}
    kinds = {each["name"]: each["attributes"]["kind"]["string"] for each in devices}
    lists = [each.get("firstAvailable") or [each["exactly"]] for each in requests]
    covered = constraint.get("requests") or [each["name"] for each in requests]
    for chosen in itertools.product(*lists):
        wanted = [
            (request["name"] in covered, body["selectors"][0]["cel"]["expression"])
            for request, body in zip(requests, chosen, strict=True)
            for _ in range(body["count"])
        ]
        for names in itertools.permutations(values, len(wanted)):
            if not all(f"'{kinds[name]}'" in text for name, (_, text) in zip(names, wanted, strict=True)):
                continue
            mine = [values[name] for name, (is_covered, _) in zip(names, wanted, strict=True) if is_covered]
            if any(value is None for value in mine):
                continue
            distinct = {str(value) for value in mine}
            if len(distinct) <= 1 if "matchAttribute" in constraint else len(distinct) == len(mine):
                return True
    return False


def request(name: str, count: int, kind: str) -> dict[str, Any]:
    return exactly(name, count, select=f"device.attributes['{DRIVER}'].kind == '{kind}'")


BODIES = st.tuples(st.integers(1, 2), st.sampled_from("xy"))


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xy"), st.none() | st.integers(0, 2)), min_size=1, max_size=5),
    st.lists(st.lists(BODIES, min_size=1, max_size=2), min_size=1, max_size=3),
    st.sampled_from(["matchAttribute", "distinctAttribute"]),
    st.booleans(),
)
def test_a_constraint_called_unmet_has_no_solution(
    shapes: list[tuple[str, int | None]], bodies: list[list[tuple[int, str]]], relation: str, is_whole: bool
) -> None:
    published: list[dict[str, Any]] = [
        {"kind": kind} if numa is None else {"kind": kind, NUMA: numa} for kind, numa in shapes
    ]
    devices = [device(f"g{number}", **each) for number, each in enumerate(published)]
    requests = [
        request(f"r{number}", *alternatives[0])
        if len(alternatives) == 1
        else first_available(
            f"r{number}", *(request(f"s{index}", *body) for index, body in enumerate(alternatives))
        )
        for number, alternatives in enumerate(bodies)
    ]
    constraint: dict[str, Any] = {relation: NUMA}
    if not is_whole:
        constraint["requests"] = ["r0"]
    explanation = explain(resource_slice(devices, "n1"), claim("c", *requests, constraints=[constraint]))
    if unmet(explanation):
        assert not feasible(devices, requests, constraint)


@pytest.mark.parametrize("value", ["a", 3, True])
def test_a_single_request_of_one_constraint_is_always_explained(value: Any) -> None:
    other = {"a": "b", 3: 4, True: False}[value]
    devices = [device("g0", numa=value), device("g1", numa=other), device("g2")]
    wanted = claim("c", exactly("r", 2), constraints=[{"matchAttribute": NUMA}])
    (found,) = unmet(explain(resource_slice(devices, "n1"), wanted))
    assert found.facts["wanted"] == 2
    assert str(value).lower() in str(found.facts["values"])
    assert "1 device without it" in str(found.facts["values"])


def test_allocated_devices_are_counted_apart() -> None:
    devices = [device("g0", numa=0), device("g1", numa=0), device("g2", numa=1)]
    holder = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "g0"}
    taken = claim("held", exactly(), results=[holder], node="n1", reserved=["q"])
    wanted = claim("c", exactly("r", 2), constraints=[{"matchAttribute": NUMA}])
    (found,) = unmet(
        explain(resource_slice(devices, "n1"), taken, pod("q", node="n1", claims=["held"]), wanted)
    )
    assert "0 (1 of 2 devices free)" in str(found.facts["values"])


def test_requests_of_two_drivers_that_share_no_value() -> None:
    root = "resource.kubernetes.io/pcieRoot"
    first: dict[str, Any] = {root: "pci0"}
    second: dict[str, Any] = {root: "pci1"}
    nics = device_class("nic", select="device.driver == 'dra.net'")
    objects = [
        nics,
        resource_slice([device(f"g{n}", **first) for n in range(2)], "n1"),
        resource_slice([device("eth0", **second)], "n1", driver="dra.net"),
        claim(
            "c", exactly("gpu"), exactly("nic", device_class="nic"), constraints=[{"matchAttribute": root}]
        ),
    ]
    (found,) = unmet(explain(*objects))
    assert "gpu: pci0" in str(found.facts["values"])
    assert "nic: pci1" in str(found.facts["values"])
