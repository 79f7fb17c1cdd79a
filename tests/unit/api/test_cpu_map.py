"""Compact text form of a machine's CPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpu_map import MAX_BYTES, CpuLocation, CpuMap, format_cpu_map, parse_cpu_map
from plimsoll.api.cpuset import CpuSet

GOOD: dict[str, Any] = {"groups": [{"socket": 0, "numa": 0, "l3": 0, "cores": ["0,2", "1,3"]}]}


@st.composite
def maps(draw: st.DrawFn) -> CpuMap:
    cpus = draw(st.lists(st.integers(0, 600), min_size=1, max_size=40, unique=True))
    places: dict[int, CpuLocation] = {}
    rest = sorted(cpus)
    while rest:
        core, rest = rest[: (size := draw(st.integers(1, 4)))], rest[size:]
        where = [draw(st.integers(-1, 3)) for _ in range(3)]
        places |= {cpu: CpuLocation(where[0], where[1], where[2], core[0]) for cpu in core}
    some = st.sets(st.sampled_from(sorted(cpus))).map(CpuSet)
    kinds = draw(st.dictionaries(st.sampled_from(sorted(cpus)), st.sampled_from(["p-core", "e-core"])))
    return CpuMap(places, draw(some), draw(some), CpuSet(draw(st.sets(st.integers(700, 710)))), kinds)


@given(maps())
def test_cpu_maps_round_trip(machine: CpuMap) -> None:
    assert parse_cpu_map(format_cpu_map(machine)) == machine


def test_the_map_of_a_large_machine_is_short() -> None:
    places = {
        cpu: CpuLocation(cpu % 256 // 128, cpu % 256 // 32, cpu % 256 // 8, cpu % 256) for cpu in range(512)
    }
    text = format_cpu_map(CpuMap(places))
    assert len(text) < 5000
    assert parse_cpu_map(text) == CpuMap(places)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"0-3"',
        "{}",
        json.dumps({"groups": []}),
        json.dumps({"groups": 3}),
        json.dumps({"groups": [3]}),
        json.dumps({"groups": [{"cores": [""]}]}),
        json.dumps({"groups": [{"cores": [4]}]}),
        json.dumps({"groups": [{"cores": ["x"]}]}),
        json.dumps({"groups": [{"cores": ["0-999999999"]}]}),
        json.dumps({"groups": [{"cores": [f"{n * 4096}-{n * 4096 + 4095}" for n in range(3)]}]}),
        json.dumps({"groups": [{"socket": "0", "cores": ["0"]}]}),
        json.dumps({"groups": [{"socket": True, "cores": ["0"]}]}),
        json.dumps({"groups": [{"socket": -2, "cores": ["0"]}]}),
        json.dumps({"groups": [{"socket": 2**40, "cores": ["0"]}]}),
        json.dumps({**GOOD, "reserved": 3}),
        json.dumps({**GOOD, "offline": "a"}),
        json.dumps({**GOOD, "kinds": []}),
        json.dumps({**GOOD, "kinds": {"p": 3}}),
        json.dumps(GOOD) + " " * MAX_BYTES,
        "[" * 100_000,
    ],
)
def test_invalid_text_is_no_map(text: str) -> None:
    assert parse_cpu_map(text) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_any_text_is_a_map_or_none(tree: Any) -> None:
    for each in (tree, {"groups": tree}, {"groups": [{"cores": tree}]}, {**GOOD, "kinds": tree}):
        parse_cpu_map(json.dumps(each))


def test_missing_fields_are_unknown() -> None:
    assert parse_cpu_map(json.dumps({"groups": [{"cores": ["0-1"]}]})) == CpuMap(
        {0: CpuLocation(-1, -1, -1, 0), 1: CpuLocation(-1, -1, -1, 0)}
    )
