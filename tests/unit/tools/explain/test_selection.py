"""Devices and conditions that explanations show for a request."""

from __future__ import annotations

from collections.abc import Iterator
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

NIC = "dra.net"


def explain(*objects: Any) -> PodExplanation:
    state = make_cluster_state([GPUS, *objects, pod("p", claims=["c"])])
    return explain_pod(state, state.pod(SUBJECT))


def of_kind(explanation: PodExplanation, kind: StatementKind) -> list[Statement]:
    def walk(*branches: Statement) -> Iterator[Statement]:
        for branch in branches:
            yield branch
            yield from walk(*branch.children)

    groups = [branch for group in explanation.groups for branch in group.branches]
    sections = [branch for section in explanation.sections for branch in section.branches]
    return [each for each in walk(*groups, *sections) if each.kind is kind]


@pytest.mark.parametrize(
    ("select", "body", "attribute", "wanted", "values"),
    [
        (f"device.attributes['{DRIVER}'].slots >= 8", {"slots": 4}, "slots", "at least 8", "4 (1)"),
        (
            f"device.attributes['{DRIVER}'].cuda.compareTo(semver('10.0.0')) >= 0",
            {"fields": {"attributes": {"cuda": {"version": "9.0.0"}}}},
            "cuda",
            "at least 10.0.0",
            "9.0.0 (1)",
        ),
        (
            f"device.capacity['{DRIVER}'].memory.compareTo(quantity('80Gi')) >= 0",
            {"capacity": {"memory": "40Gi"}},
            "memory",
            "at least 80Gi",
            "40Gi (1)",
        ),
        (f"device.attributes['{DRIVER}'].mig", {"mig": False}, "mig", "true", "false (1)"),
        (f"'mig' in device.attributes['{DRIVER}']", {"slots": 4}, "mig", "present", "none (1)"),
    ],
)
def test_values_of_every_type(
    select: str, body: dict[str, Any], attribute: str, wanted: str, values: str
) -> None:
    devices = resource_slice([device("g0", **body)], "n1")
    explanation = explain(node("n1"), devices, claim("c", exactly(select=select)))
    (found,) = of_kind(explanation, StatementKind.ATTRIBUTE)
    assert (found.facts["attribute"], found.facts["wanted"]) == (attribute, wanted)
    assert found.facts["values"] == (values,)


def test_only_the_conditions_that_the_nearest_devices_fail_are_shown() -> None:
    select = f"device.attributes['{DRIVER}'].model == 'h100' && device.attributes['{DRIVER}'].numa == 1"
    devices = [device("far", model="l4", numa=0), device("near", model="h100", numa=0)]
    explanation = explain(node("n1"), resource_slice(devices, "n1"), claim("c", exactly(select=select)))
    (found,) = of_kind(explanation, StatementKind.ATTRIBUTE)
    assert found.facts["attribute"] == "numa"


def test_names_do_not_match_across_drivers() -> None:
    """The NIC publishes an attribute of the same name as the one that is asked of GPUs."""
    select = f"device.attributes['{DRIVER}'].type == 'mig'"
    objects = [
        node("n1"),
        resource_slice([device("eth0", type="mig")], "n1", driver=NIC),
        resource_slice([device("g0", type="gpu")], "n1"),
        claim("c", first_available("r", exactly("one", select=select), exactly("two", 2, select=select))),
    ]
    explanation = explain(*objects)
    found = of_kind(explanation, StatementKind.ATTRIBUTE)
    assert len(found) == 2
    assert all(each.facts["driver"] == DRIVER and each.facts["values"] == ("gpu (1)",) for each in found)
    assert {each.facts["devices"] for each in of_kind(explanation, StatementKind.REQUEST)} == {1}


@pytest.mark.parametrize(("shared", "kind"), [(False, "WANTS_SHARED"), (True, "WANTS_EXCLUSIVE")])
def test_shareable_devices_are_described_in_words(shared: bool, kind: str) -> None:
    select = "!device.allowMultipleAllocations" if shared else "device.allowMultipleAllocations"
    devices = resource_slice([device("g0", shared=shared)], "n1")
    explanation = explain(node("n1"), devices, claim("c", exactly(select=select)))
    assert of_kind(explanation, StatementKind[kind])


def test_incomplete_pools_count_for_their_own_driver_only() -> None:
    nics = device_class("nic", select=f"device.driver == '{NIC}'")
    objects = [
        nics,
        node("n1"),
        resource_slice([device("eth0")], "n1", driver=NIC, count=2),
        resource_slice([device("g0", type="gpu")], "n1"),
    ]
    for_gpu = explain(*objects, claim("c", exactly(count=2)))
    for_nic = explain(*objects, claim("c", exactly(device_class="nic")))
    assert not of_kind(for_gpu, StatementKind.POOL)
    assert of_kind(for_nic, StatementKind.POOL)


def test_an_error_on_an_allocated_device_is_shown() -> None:
    held = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "g0"}
    objects = [
        node("n1"),
        resource_slice([device("g0", model="a")], "n1"),
        claim("held", exactly(), results=[held], node="n1", reserved=["q"]),
        pod("q", node="n1", claims=["held"]),
        claim("c", exactly(select=f"device.attributes['{DRIVER}'].vram > 20")),
    ]
    explanation = explain(*objects)
    (failed,) = of_kind(explanation, StatementKind.FAILS_ON)
    assert "vram" in str(failed.facts["error"])
    assert not of_kind(explanation, StatementKind.TAKEN)


def test_a_pool_of_several_nodes_is_counted_once() -> None:
    objects = [
        *(node(f"n{number}") for number in range(3)),
        resource_slice([device(f"g{number}") for number in range(2)], pool="rack", allNodes=True),
        claim("c", exactly(select="device.allowMultipleAllocations")),
    ]
    (found,) = of_kind(explain(*objects), StatementKind.NOWHERE)
    assert found.facts["devices"] == 2


def test_an_extended_resource_of_no_class_behind_a_taint() -> None:
    state = make_cluster_state([node("n1", taints=["a=b:NoSchedule"]), pod("p", cpu="1")])
    tree = pod(
        "q",
        {
            "name": "m",
            "image": "i",
            "resources": {"requests": {"qat.intel.com/cy": "1"}, "limits": {"qat.intel.com/cy": "1"}},
        },
    )
    state.set(tree)
    found = explain_pod(state, state.pod("q")).found
    assert any(hint.facts.get("resource") == "qat.intel.com/cy" for hint in found.hints)


@settings(max_examples=examples(40), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.booleans()), max_size=6),
    st.integers(1, 3),
)
def test_devices_of_the_cluster_are_those_counted_one_by_one(
    shapes: list[tuple[str, bool, bool]], nodes: int
) -> None:
    """Devices of a pool of all nodes: of the wanted model, tainted, in use."""
    taint = [{"key": "sick", "effect": "NoSchedule"}]
    devices = [
        device(f"g{number}", model=model, taints=taint if is_tainted else [])
        for number, (model, is_tainted, _) in enumerate(shapes)
    ]
    used = [number for number, (_, _, is_used) in enumerate(shapes) if is_used]
    results = [{"request": "r", "driver": DRIVER, "pool": "rack", "device": f"g{number}"} for number in used]
    objects = [
        *(node(f"n{number}") for number in range(nodes)),
        resource_slice(devices, pool="rack", allNodes=True),
        claim("held", exactly(), results=results, reserved=["q"]),
        claim("c", exactly(count=20, select=f"device.attributes['{DRIVER}'].model == 'a'")),
    ]
    matching = [number for number, shape in enumerate(shapes) if shape[0] == "a"]
    for found in of_kind(explain(*objects), StatementKind.EVERYWHERE):
        assert found.facts["all"] == len(matching)
        assert found.facts["taken"] == len(set(matching) & set(used))
        free = [number for number in matching if not shapes[number][1] and number not in used]
        assert found.facts["free"] == len(free)
