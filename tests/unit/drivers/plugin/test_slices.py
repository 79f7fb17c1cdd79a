"""Pools cut into slices, contents compared, and plans that lead from what is there to what is wanted."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device, DeviceCapacity
from plimsoll.drivers.plugin import Pool
from plimsoll.drivers.plugin.slices import (
    Plan,
    PoolFault,
    Seen,
    Wanted,
    cut,
    dropped,
    index_digits,
    keep_times,
    name_prefix,
    plan,
    read_index,
    same,
    see,
    see_tree,
)
from plimsoll.errors import DecodeError

Tree = dict[str, Any]


def devices(count: int, **more: Any) -> list[Tree]:
    return [{"name": f"d{number}", **more} for number in range(count)]


def sizes(pool: Pool) -> list[int]:
    parts = cut(pool)
    assert not isinstance(parts, PoolFault)
    assert [part.index for part in parts] == list(range(len(parts)))
    return [len(next(iter(part.content.values()))) for part in parts]


@pytest.mark.parametrize(
    ("count", "wanted"), [(0, [0]), (1, [1]), (128, [128]), (129, [128, 1]), (400, [128, 128, 128, 16])]
)
def test_slices_have_at_most_128_devices(count: int, wanted: list[int]) -> None:
    assert sizes(Pool("p", devices(count))) == wanted


@pytest.mark.parametrize(
    "extra",
    [
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"attributes": {"roots": {"strings": ["a", "b"]}}},
        {"consumesCounters": [{"counterSet": "s", "counters": {"x": {"value": "1"}}}]},
    ],
)
def test_slices_have_at_most_64_devices_where_one_has_extras(extra: Tree) -> None:
    counters = [{"name": "s", "counters": {"x": {"value": "1"}}}]
    assert sizes(Pool("p", devices(65, **extra), counters)) == [1, 64, 1]
    # One is enough, and then only its own slice is small.
    mixed = devices(300)
    mixed[130] |= extra
    assert sizes(Pool("p", mixed, counters)) == [1, 128, 64, 108]
    late = devices(100)
    late[80] |= extra
    assert sizes(Pool("p", late, counters)) == [1, 80, 20]


def test_slices_are_as_small_as_the_author_wants() -> None:
    assert sizes(Pool("p", devices(5), per_slice=2)) == [2, 2, 1]
    assert sizes(Pool("p", devices(3), per_slice=0)) == [1, 1, 1]
    assert sizes(Pool("p", devices(130), per_slice=1000)) == [128, 2]


def test_counters_come_first_in_slices_of_their_own() -> None:
    counters = [{"name": f"s{n}", "counters": {"x": {"value": "1"}}} for n in range(9)]
    parts = cut(Pool("p", devices(1), counters))
    assert not isinstance(parts, PoolFault)
    assert [sorted(part.content) for part in parts] == [["sharedCounters"], ["sharedCounters"], ["devices"]]
    assert sizes(Pool("p", devices(1), counters)) == [8, 1, 1]


def test_views_are_as_good_as_trees() -> None:
    view = Device(name="d0", capacity={"size": DeviceCapacity(value=Quantity.parse("1Gi"))})
    parts = cut(Pool("p", [view]))
    assert not isinstance(parts, PoolFault)
    assert parts[0].content == {"devices": [{"name": "d0", "capacity": {"size": {"value": "1Gi"}}}]}


def test_an_author_may_alter_the_devices_afterwards() -> None:
    offered = devices(1)
    parts = cut(Pool("p", offered))
    offered[0]["name"] = "other"
    assert not isinstance(parts, PoolFault)
    assert parts[0].content == {"devices": [{"name": "d0"}]}


USE = {"counterSet": "s", "counters": {"x": {"value": "1"}}}


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (Pool("p", [{"name": "d"}, {"name": "d"}]), 'found duplicate device "d" in pool "p"'),
        (Pool("p", (), [{"name": "s"}, {"name": "s"}]), 'found duplicate counter set "s" in pool "p"'),
        (
            Pool("p", [{"name": "d", "consumesCounters": [USE]}]),
            'counter set "s" referenced by device "d" not found',
        ),
        (
            Pool("p", [{"name": "d", "consumesCounters": [USE]}], [{"name": "s", "counters": {"y": {}}}]),
            'counter "x" referenced by device "d" not found in counter set "s"',
        ),
        (Pool("p", None), 'pool "p": '),  # type: ignore[arg-type]
        (Pool("p", (), (), per_slice="many"), 'pool "p": '),  # type: ignore[arg-type]
        (Pool("p", [{}]), 'pool "p": a device or counter set without a name'),
        (Pool("p", [{"name": "d", "attributes": {"x": object()}}]), 'pool "p": a device or counter set that'),
        (Pool("p", ["d"]), 'pool "p": a device or counter set without a name'),  # type: ignore[list-item]
    ],
)
def test_what_no_server_would_find(pool: Pool, text: str) -> None:
    fault = cut(pool)
    assert isinstance(fault, PoolFault)
    assert str(fault).startswith(text)


@pytest.mark.parametrize(
    ("wanted", "seen", "alike"),
    [
        ({"capacity": {"a": {"value": "1024Mi"}}}, {"capacity": {"a": {"value": "1Gi"}}}, True),
        ({"capacity": {"a": {"value": 2}}}, {"capacity": {"a": {"value": "2"}}}, True),
        ({"capacity": {"a": {"value": "2"}}}, {"capacity": {"a": {"value": "3"}}}, False),
        (
            {"capacity": {"a": {"requestPolicy": {"validValues": ["1000m"]}}}},
            {"capacity": {"a": {"requestPolicy": {"validValues": ["1"]}}}},
            True,
        ),
        ({"attributes": {"a": {"string": "1000m"}}}, {"attributes": {"a": {"string": "1"}}}, False),
        ({"attributes": {"a": {"string": ""}}}, {"attributes": {"a": {}}}, False),
        ({"attributes": {}}, {}, True),
        ({"attributes": None}, {"capacity": {}}, True),
        ({"attributes": {"a": {"bool": False}}}, {"attributes": {"a": {}}}, False),
        ({"attributes": {"a": {"int": 1}}}, {"attributes": {"a": {"bool": True}}}, False),
        ({"attributes": {"a": {"int": 1}}}, {"attributes": {"a": {"int": True}}}, False),
        ({"attributes": {}}, {"attributes": {"timeAdded": {"int": 1}}}, False),
        ({"taints": [{"key": "k"}]}, {"taints": [{"key": "k", "timeAdded": "2026-01-01T00:00:00Z"}]}, True),
        ({"taints": [{"key": "k", "value": ""}]}, {"taints": [{"key": "k"}]}, True),
        ({"taints": [{"key": "k", "value": "1"}]}, {"taints": [{"key": "k", "value": "1000m"}]}, False),
        (
            {"taints": [{"key": "k", "timeAdded": "2026-01-01T00:00:00.7Z"}]},
            {"taints": [{"key": "k", "timeAdded": "2026-01-01T00:00:00Z"}]},
            True,
        ),
        (
            {"taints": [{"key": "k", "timeAdded": "2026-01-01T00:00:09Z"}]},
            {"taints": [{"key": "k", "timeAdded": "2026-01-01T00:00:00Z"}]},
            False,
        ),
        ({"taints": [{"key": "k"}]}, {"taints": []}, False),
        ({"somethingNew": {"a": [1]}}, {}, False),
    ],
)
def test_contents_that_mean_the_same(wanted: Tree, seen: Tree, alike: bool) -> None:
    assert same({"devices": [{"name": "d", **wanted}]}, {"devices": [{"name": "d", **seen}]}) is alike


def test_trees_of_any_depth_are_compared() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    alike = same({"devices": deep}, {"devices": copy.copy(deep)})
    assert alike is False


MEMBERS = st.sampled_from(["metadata", "spec", "pool", "name", "uid", "ownerReferences", "generation", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner),
)


@given(JSON)
def test_whatever_a_server_sends_is_seen_somehow(tree: Any) -> None:
    found = see(msgspec.json.encode(tree))
    assert isinstance(found.name, str)
    assert found.version >= 0
    plan([Wanted(0, {"devices": []})], [found])


def test_revisions_that_are_no_numbers() -> None:
    for text in ("", "x", "²", "9" * 10_000, "-1"):
        assert see_tree({"metadata": {"resourceVersion": text}}).version == 0
    assert see_tree({"metadata": {"resourceVersion": "42"}}).version == 42
    assert see_tree({"spec": {"pool": {"generation": 2**63}}}).generation == -1


def test_what_is_no_json_is_an_error_that_is_known() -> None:
    with pytest.raises(DecodeError):
        see(b"\xff")


def test_times_of_taints_are_kept() -> None:
    def device(*taints: Tree) -> Tree:
        return {"devices": [{"name": "d", "taints": list(taints)}]}

    stamp = "2026-01-01T00:00:00Z"
    before = device({"key": "a", "effect": "NoSchedule", "timeAdded": stamp})
    same_taint, other = {"key": "a", "value": "", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}
    own = {"key": "a", "effect": "NoSchedule", "timeAdded": "2027-01-01T00:00:00Z"}
    assert keep_times(device(same_taint, other, own), before) == device(
        {**same_taint, "timeAdded": stamp}, other, own
    )
    assert keep_times({"devices": []}, before) == {"devices": []}
    assert keep_times({"sharedCounters": []}, before) == {"sharedCounters": []}


def test_gates_that_seem_to_be_off() -> None:
    wanted = {"devices": [{"name": "d", "taints": [1], "allowMultipleAllocations": True}]}
    assert dropped(wanted, {"devices": [{"name": "d"}]}) == ("DRADeviceTaints", "DRAConsumableCapacity")
    counters = {"sharedCounters": [{"name": "s"}]}
    assert dropped(counters, {}) == ("DRAPartitionableDevices",)
    mapped = {"devices": [{"name": "d", "nodeAllocatableResources": {"cpu": {}}}]}
    assert dropped(mapped, {"devices": [{"name": "d"}]}) == ("DRANodeAllocatableResources",)
    assert dropped({"devices": [{"name": "d"}]}, {"devices": []}) == ()


def test_names_say_the_place() -> None:
    assert name_prefix(0, 1, "drv", "node") == "00000-drv-node-"
    assert name_prefix(255, 300, "drv", "node") == "000ff-drv-node-"
    assert name_prefix(0, 1, "drv", "n" * 229 + ".n" * 9) == f"00000-drv-{'n' * 229}-"
    assert index_digits(16**5) == 5
    assert index_digits(16**5 + 1) == 6
    assert read_index("000ff-drv-node-abcde", 5) == 255
    assert read_index("000ff-drv", 6) == -1
    assert read_index("node-drv-abcde", 5) == -1
    assert read_index("", 5) == -1


# -- plans


class Api:
    """What a server does with a plan, in the simplest way."""

    def __init__(self, slices: Sequence[Seen]) -> None:
        self.slices = {slice_.name: slice_ for slice_ in slices}
        self.serial = 0

    def carry_out(self, todo: Plan, pool: str, owner: str) -> None:
        for slice_ in todo.delete:
            del self.slices[slice_.name]
        for slice_, wanted in todo.update:
            self._put(slice_.name, wanted, todo, pool, owner)
        for wanted in todo.create:
            self.serial += 1
            prefix = name_prefix(wanted.index, todo.count, "drv", "node")
            self._put(f"{prefix}{self.serial}", wanted, todo, pool, owner)

    def _put(self, name: str, wanted: Wanted, todo: Plan, pool: str, owner: str) -> None:
        self.slices[name] = see_tree(
            {
                "metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": owner}]},
                "spec": {
                    "pool": {"name": pool, "generation": todo.generation, "resourceSliceCount": todo.count},
                    **wanted.content,
                },
            }
        )


CONTENTS = st.integers(0, 2).map(lambda number: {"devices": [{"name": f"d{number}"}]})


@st.composite
def slices_there(draw: st.DrawFn) -> list[Seen]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        prefix = draw(st.sampled_from(["00000-", "00001-", "00002-", "00003-", "000000-", "x-", ""]))
        found.append(
            Seen(
                name=f"{prefix}s{number}",
                uid=f"u{number}",
                revision=str(number),
                pool="p",
                generation=draw(st.integers(0, 2)),
                count=draw(st.integers(0, 4)),
                owners=frozenset(draw(st.sampled_from([(), ("me",), ("you",)]))),
                content=draw(CONTENTS),
                tree={"metadata": {}},
            )
        )
    return found


@given(slices_there(), st.lists(CONTENTS, max_size=4))
def test_a_plan_leads_to_what_is_wanted(there: list[Seen], contents: list[Tree]) -> None:
    wanted = [Wanted(index, content) for index, content in enumerate(contents)]
    api = Api(there)
    todo = plan(wanted, there, owner="me")
    api.carry_out(todo, "p", "me")
    after = sorted(api.slices.values(), key=lambda slice_: slice_.name)
    assert [slice_.content for slice_ in after] == contents
    assert {slice_.count for slice_ in after} <= {len(contents)}
    assert all("me" in slice_.owners for slice_ in after)
    assert len({slice_.generation for slice_ in after}) <= 1
    assert not plan(wanted, after, owner="me")
    # Generations only go up, and whoever saw a part of the new state saw it under a new generation.
    if wanted and there:
        assert todo.generation >= max(slice_.generation for slice_ in there)
    if len(todo.update) + len(todo.create) > 1:
        assert all(todo.generation > slice_.generation for slice_ in there)
    # Nothing is touched that was right.
    untouched = {slice_.name for slice_ in there} - {slice_.name for slice_ in todo.delete}
    untouched -= {slice_.name for slice_, _ in todo.update}
    for slice_ in there:
        if slice_.name in untouched:
            assert api.slices[slice_.name] is slice_


def test_what_a_server_keeps_otherwise_counts_as_right() -> None:
    wanted = [Wanted(0, {"devices": [{"name": "d", "taints": [{"key": "k"}]}]})]
    kept = {"devices": [{"name": "d"}]}
    there = Seen("00000-x", "u", "1", "p", 1, 1, frozenset(), kept, {})
    assert plan(wanted, [there]).update
    taken: Mapping[int, tuple[Tree, Tree]] = {0: (wanted[0].content, kept)}
    assert not plan(wanted, [there], taken=taken)
    # Not for another content, and not if somebody alters it.
    assert plan([Wanted(0, {"devices": [{"name": "e"}]})], [there], taken=taken).update
    assert plan(wanted, [replace(there, content={"devices": []})], taken=taken).update
