"""Availability of each device class, compared with naive counting."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.report import as_text
from plimsoll.tools.top import class_rows
from plimsoll.tools.top.classes import free_by_class
from plimsoll.tools.top.top import top
from plimsoll.tools.whatif import Whatif
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    pool_device,
    resource_slice,
)
from tests.sizes import examples

#: A node: slices of a card, what each partition draws of them, which are taken, cordoned?
NODE = st.tuples(
    st.integers(1, 7), st.lists(st.integers(1, 4), max_size=6), st.sets(st.integers(0, 5)), st.booleans()
)


def held(name: str, node_name: str, device_name: str) -> Any:
    result = {"request": "r", "driver": DRIVER, "pool": node_name, "device": device_name}
    return claim(name, exactly(), results=[result], node=node_name)


def partitioned(parts: list[Any], name: str, total: int) -> list[Any]:
    """Slices of a card: its counters, and its partitions."""
    counters = {"card": {"slices": str(total)}}
    return [
        resource_slice((), name, name=f"{name}-counters", counters=counters, count=2),
        resource_slice(parts, name, name=f"{name}-parts", count=2),
    ]


def most_partitions(total: int, draws: list[int]) -> int:
    """The largest set of partitions that fit together, by trying all."""
    return max(
        count
        for count in range(len(draws) + 1)
        for chosen in combinations(draws, count)
        if sum(chosen) <= total
    )


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(NODE, max_size=3))
def test_partitions_that_exclude_each_other_are_not_added_up(nodes: list[Any]) -> None:
    objects: list[Any] = [device_class()]
    expected: dict[str, int] = {}
    for number, (total, draws, wanted, closed) in enumerate(nodes):
        name = f"n{number}"
        objects.append(node(name, unschedulable=closed))
        left, free = total, []
        parts = [
            device(f"d{place}", draws={"card": {"slices": str(draw)}}, profile=f"{draw}g")
            for place, draw in enumerate(draws)
        ]
        if parts:
            objects += partitioned(parts, name, total)
        for place, draw in enumerate(draws):
            if place in wanted and draw <= left:
                left -= draw
                objects.append(held(f"c{number}-{place}", name, f"d{place}"))
            else:
                free.append(draw)
        count = 0 if closed else most_partitions(left, free)
        if count:
            expected[name] = count
    state = ClusterState(ClusterObjects(objects))
    (row,) = class_rows(state)
    assert dict(row.nodes) == expected
    assert row.total == sum(expected.values())
    assert row.most == max(expected.values(), default=0)
    assert {name: counts["gpu"] for name, counts in free_by_class(state).items()} == expected
    assert row.devices == sum(len(draws) for _, draws, _, _ in nodes)


def test_partitions_have_rows_by_type() -> None:
    parts = [device("whole", draws={"card": {"slices": "7"}}, profile="7g")]
    parts += [device(f"half-{n}", draws={"card": {"slices": "3"}}, profile="3g") for n in range(2)]
    parts += [device(f"small-{n}", draws={"card": {"slices": "1"}}, profile="1g") for n in range(7)]
    state = ClusterState(
        ClusterObjects([device_class(), node("n"), *partitioned(parts, "n", 7), held("c", "n", "half-0")])
    )
    (row,) = class_rows(state)
    assert [(type, each.devices, each.total) for type, each in row.partitions] == [
        ("1g", 7, 4), ("3g", 2, 1), ("7g", 1, 0),
    ]  # fmt: skip
    assert (row.devices, row.held, row.total) == (10, 1, 4)
    assert "  3g  " in as_text(top(state, "classes"))


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(0, 8), st.lists(st.integers(0, 4), max_size=5), st.integers(0, 8))
def test_what_devices_charge_to_the_node_limits_them(cpu: int, charges: list[int], requested: int) -> None:
    offered = [charging_device(f"d{place}", cpu=str(charge)) for place, charge in enumerate(charges)]
    state = ClusterState(
        ClusterObjects(
            [
                device_class(),
                node("n", cpu=str(cpu)),
                pod("p", cpu=str(requested), node="n"),
                *([resource_slice(offered, "n")] if offered else ()),
            ]
        )
    )
    (row,) = class_rows(state)
    free = max(0, cpu - requested)
    past = cpu < requested
    affordable = max(
        count
        for count in range(len(charges) + 1)
        for chosen in combinations(charges, count)
        if sum(chosen) <= free and not (past and any(chosen))
    )
    assert row.total == affordable


def test_a_pod_gets_what_is_free_and_no_more() -> None:
    """Whatever the numbers are made of, the scheduler agrees."""
    devices = [charging_device(f"d{number}", cpu="3") for number in range(40)]
    objects = [device_class(), node("n", cpu="110"), resource_slice(devices, "n")]
    state = ClusterState(ClusterObjects(objects))
    (row,) = class_rows(state)
    assert row.total == 36
    for count, fits in ((32, True), (36, True), (37, False)):
        whatif = Whatif(state)
        names = [f"c{number}" for number in range(-(-count // 32))]
        sizes = [min(32, count - 32 * number) for number in range(len(names))]
        whatif.add(
            *(claim(name, exactly(count=size)) for name, size in zip(names, sizes, strict=True)),
            pod("p", claims=names),
        )
        assert bool(whatif.schedule(preempt=False).placed) is fits


def test_devices_of_several_nodes_count_once() -> None:
    shared = resource_slice([device("a"), device("b"), device("c")], allNodes=True)
    state = ClusterState(ClusterObjects([device_class(), node("n"), node("m"), shared]))
    (row,) = class_rows(state)
    assert (row.total, row.most, dict(row.nodes)) == (3, 3, {"n": 3, "m": 3})


def test_nodes_that_take_no_pods_do_not_count() -> None:
    full = node("full", pods="1")
    slices = [resource_slice([device("d")], name) for name in ("full", "open")]
    state = ClusterState(ClusterObjects([device_class(), full, node("open"), *slices, pod("p", node="full")]))
    (row,) = class_rows(state)
    assert dict(row.nodes) == {"open": 1}


def test_capacity_of_shareable_devices_is_what_is_left() -> None:
    result: dict[str, Any] = {"request": "r", "driver": DRIVER, "pool": "n", "device": "socket0"}
    result |= {"shareID": "s", "consumedCapacity": {f"{DRIVER}/cpu": "100"}}
    state = ClusterState(
        ClusterObjects(
            [
                device_class(),
                node("n", cpu="300"),
                resource_slice([pool_device("socket0"), pool_device("socket1")], "n"),
                claim("c", exactly(), results=[result], node="n"),
            ]
        )
    )
    (row,) = class_rows(state)
    left = row.capacity[f"{DRIVER}/cpu"]
    assert tuple(map(str, left)) == ("256", "156", "128")
    assert "cpu 156 of 256 (at most 128)" in as_text(top(state, "classes"))


def test_one_class_by_name() -> None:
    state = ClusterState(
        ClusterObjects(
            [
                device_class(),
                device_class("other", select="false"),
                node("n"),
                resource_slice([device("d")], "n"),
            ]
        )
    )
    text = as_text(top(state, "classes", name="gpu"))
    assert "\nother " not in text
    assert text.endswith("NODE  FREE\nn        1")
    with pytest.raises(InputError, match="device class gp not found; did you mean gpu"):
        top(state, "classes", name="gp")
    assert as_text(top(ClusterState(ClusterObjects([node("n")])), "classes")) == "No device classes found."
