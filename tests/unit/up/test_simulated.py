"""Simulated nodes have exactly the allocatable resources of their objects."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.core import Node
from plimsoll.node.machine.machine import allocatable
from plimsoll.up.simulated import is_simulated, machine_of


def node(capacity: dict[str, str], line: dict[str, str], simulated: str = "true") -> Node:
    tree: dict[str, Any] = {
        "metadata": {"name": "n", "annotations": {"plimsoll.dev/simulated": simulated}},
        "status": {"capacity": capacity, "allocatable": line},
    }
    return codec.convert(tree, Node)


amounts = st.dictionaries(
    st.sampled_from(
        ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi", "example.com/x"]
    ),
    st.sampled_from(["0", "1", "500m", "7910m", "4", "64Mi", "8Gi", "1Ti"]),
)


@given(amounts, amounts)
def test_allocatable_is_that_of_the_node(capacity: dict[str, str], line: dict[str, str]) -> None:
    made = node(capacity, line)
    found = allocatable(*machine_of(made))
    wanted = dict(made.status.allocatable or made.status.capacity)
    assert {name: amount for name, amount in found.items() if name != "pods"} == wanted


def test_reserved_resources_of_a_kubelet() -> None:
    made = node(
        {"cpu": "8", "memory": "32Gi", "hugepages-2Mi": "4Gi", "pods": "110"},
        {"cpu": "7910m", "memory": "27Gi", "hugepages-2Mi": "4Gi", "pods": "100"},
    )
    machine, reserved = machine_of(made)
    assert {name: str(amount) for name, amount in machine.capacity.items()} == {
        "cpu": "8",
        "memory": "32Gi",
        "hugepages-2Mi": "4Gi",
        "pods": "110",
    }
    assert {name: str(amount) for name, amount in reserved.system.items()} == {
        "cpu": "90m",
        "memory": "1Gi",
        "pods": "10",
    }
    assert machine.cpus == tuple(range(8))


@pytest.mark.parametrize(
    ("made", "played"),
    [
        (node({}, {"cpu": "1", "memory": "1Gi"}), True),
        (node({"cpu": "1", "memory": "1Gi"}, {}), True),
        (node({"cpu": "1", "memory": "1Gi"}, {}, "false"), False),
        (node({"cpu": "1"}, {}), False),
        (node({"cpu": "0", "memory": "1Gi"}, {}), False),
        (node({}, {}), False),
    ],
)
def test_nodes_that_are_simulated(made: Node, played: bool) -> None:
    assert is_simulated(made) is played
