"""Division of pools into slices, comparison of contents, and plans from current to desired slices."""

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
from plimsoll.drivers.plugin import DevicePool
from plimsoll.drivers.plugin.slices import (
    DesiredSlice,
    ExistingSlice,
    PoolError,
    SlicePlan,
    build_slices,
    decode_slice,
    find_dropped_gates,
    format_name_prefix,
    index_digits,
    is_same_content,
    keep_taint_times,
    parse_index,
    parse_slice,
    plan_slices,
)
from plimsoll.errors import DecodeError

Tree = dict[str, Any]


def devices(count: int, **more: Any) -> list[Tree]:
    return [{"name": f"d{number}", **more} for number in range(count)]


def sizes(pool: DevicePool) -> list[int]:
    parts = build_slices(pool)
    assert not isinstance(parts, PoolError)
    assert [part.index for part in parts] == list(range(len(parts)))
    return [len(next(iter(part.content.values()))) for part in parts]


@pytest.mark.parametrize(
    ("count", "desired"), [(0, [0]), (1, [1]), (128, [128]), (129, [128, 1]), (400, [128, 128, 128, 16])]
)
def test_slices_have_at_most_128_devices(count: int, desired: list[int]) -> None:
    assert sizes(DevicePool("p", devices(count))) == desired


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
    assert sizes(DevicePool("p", devices(65, **extra), counters)) == [1, 64, 1]
    # One is enough, and then only its own slice is small.
    mixed = devices(300)
    mixed[130] |= extra
    assert sizes(DevicePool("p", mixed, counters)) == [1, 128, 64, 108]
    late = devices(100)
    late[80] |= extra
    assert sizes(DevicePool("p", late, counters)) == [1, 80, 20]


def test_slice_size_can_be_set() -> None:
    assert sizes(DevicePool("p", devices(5), per_slice=2)) == [2, 2, 1]
    assert sizes(DevicePool("p", devices(3), per_slice=0)) == [1, 1, 1]
    assert sizes(DevicePool("p", devices(130), per_slice=1000)) == [128, 2]


def test_counters_are_in_separate_slices_first() -> None:
    counters = [{"name": f"s{n}", "counters": {"x": {"value": "1"}}} for n in range(9)]
    parts = build_slices(DevicePool("p", devices(1), counters))
    assert not isinstance(parts, PoolError)
    assert [sorted(part.content) for part in parts] == [["sharedCounters"], ["sharedCounters"], ["devices"]]
    assert sizes(DevicePool("p", devices(1), counters)) == [8, 1, 1]


def test_typed_devices_equal_trees() -> None:
    view = Device(name="d0", capacity={"size": DeviceCapacity(value=Quantity.parse("1Gi"))})
    parts = build_slices(DevicePool("p", [view]))
    assert not isinstance(parts, PoolError)
    assert parts[0].content == {"devices": [{"name": "d0", "capacity": {"size": {"value": "1Gi"}}}]}


def test_devices_are_copied() -> None:
    offered = devices(1)
    parts = build_slices(DevicePool("p", offered))
    offered[0]["name"] = "other"
    assert not isinstance(parts, PoolError)
    assert parts[0].content == {"devices": [{"name": "d0"}]}


USE = {"counterSet": "s", "counters": {"x": {"value": "1"}}}


@pytest.mark.parametrize(
    ("pool", "text"),
    [
        (DevicePool("p", [{"name": "d"}, {"name": "d"}]), 'found duplicate device "d" in pool "p"'),
        (DevicePool("p", (), [{"name": "s"}, {"name": "s"}]), 'found duplicate counter set "s" in pool "p"'),
        (
            DevicePool("p", [{"name": "d", "consumesCounters": [USE]}]),
            'counter set "s" referenced by device "d" not found',
        ),
        (
            DevicePool(
                "p", [{"name": "d", "consumesCounters": [USE]}], [{"name": "s", "counters": {"y": {}}}]
            ),
            'counter "x" referenced by device "d" not found in counter set "s"',
        ),
        (DevicePool("p", None), 'pool "p": '),  # type: ignore[arg-type]
        (DevicePool("p", (), (), per_slice="many"), 'pool "p": '),  # type: ignore[arg-type]
        (DevicePool("p", [{}]), 'pool "p": a device or counter set without a name'),
        (
            DevicePool("p", [{"name": "d", "attributes": {"x": object()}}]),
            'pool "p": a device or counter set that',
        ),
        (DevicePool("p", ["d"]), 'pool "p": a device or counter set without a name'),  # type: ignore[list-item]
    ],
)
def test_pool_errors_are_reported(pool: DevicePool, text: str) -> None:
    error = build_slices(pool)
    assert isinstance(error, PoolError)
    assert str(error).startswith(text)


@pytest.mark.parametrize(
    ("desired", "existing", "alike"),
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
def test_equivalent_contents_are_equal(desired: Tree, existing: Tree, alike: bool) -> None:
    assert (
        is_same_content({"devices": [{"name": "d", **desired}]}, {"devices": [{"name": "d", **existing}]})
        is alike
    )


def test_trees_of_any_depth_are_compared() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    alike = is_same_content({"devices": deep}, {"devices": copy.copy(deep)})
    assert alike is False


MEMBERS = st.sampled_from(["metadata", "spec", "pool", "name", "uid", "ownerReferences", "generation", "x"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner),
)


@given(JSON)
def test_any_server_response_is_read(tree: Any) -> None:
    found = decode_slice(msgspec.json.encode(tree))
    assert isinstance(found.name, str)
    assert found.version >= 0
    plan_slices([DesiredSlice(0, {"devices": []})], [found])


def test_resource_versions_may_be_any_text() -> None:
    for text in ("", "x", "²", "9" * 10_000, "-1"):
        assert parse_slice({"metadata": {"resourceVersion": text}}).version == 0
    assert parse_slice({"metadata": {"resourceVersion": "42"}}).version == 42
    assert parse_slice({"spec": {"pool": {"generation": 2**63}}}).generation == -1


def test_invalid_json_is_an_api_error() -> None:
    with pytest.raises(DecodeError):
        decode_slice(b"\xff")


def test_times_of_taints_are_kept() -> None:
    def device(*taints: Tree) -> Tree:
        return {"devices": [{"name": "d", "taints": list(taints)}]}

    stamp = "2026-01-01T00:00:00Z"
    before = device({"key": "a", "effect": "NoSchedule", "timeAdded": stamp})
    same_taint, other = {"key": "a", "value": "", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}
    own = {"key": "a", "effect": "NoSchedule", "timeAdded": "2027-01-01T00:00:00Z"}
    assert keep_taint_times(device(same_taint, other, own), before) == device(
        {**same_taint, "timeAdded": stamp}, other, own
    )
    assert keep_taint_times({"devices": []}, before) == {"devices": []}
    assert keep_taint_times({"sharedCounters": []}, before) == {"sharedCounters": []}


def test_disabled_feature_gates_are_guessed_from_dropped_fields() -> None:
    desired = {"devices": [{"name": "d", "taints": [1], "allowMultipleAllocations": True}]}
    assert find_dropped_gates(desired, {"devices": [{"name": "d"}]}) == (
        "DRADeviceTaints",
        "DRAConsumableCapacity",
    )
    counters = {"sharedCounters": [{"name": "s"}]}
    assert find_dropped_gates(counters, {}) == ("DRAPartitionableDevices",)
    mapped = {"devices": [{"name": "d", "nodeAllocatableResources": {"cpu": {}}}]}
    assert find_dropped_gates(mapped, {"devices": [{"name": "d"}]}) == ("DRANodeAllocatableResources",)
    assert find_dropped_gates({"devices": [{"name": "d"}]}, {"devices": []}) == ()
    grouped = {"name": "d", "consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]}]}
    plain = {"name": "d", "consumesCounters": [{"counterSet": "s"}]}
    assert find_dropped_gates({"devices": [grouped]}, {"devices": [plain]}) == (
        "DRADeviceCompatibilityGroups",
    )
    assert find_dropped_gates({"devices": [grouped]}, {"devices": [grouped]}) == ()
    assert find_dropped_gates({"devices": [grouped]}, {"devices": [{"name": "d"}]}) == (
        "DRAPartitionableDevices",
    )


def test_names_contain_the_index() -> None:
    assert format_name_prefix(0, 1, "drv", "node") == "00000-drv-node-"
    assert format_name_prefix(255, 300, "drv", "node") == "000ff-drv-node-"
    assert format_name_prefix(0, 1, "drv", "n" * 229 + ".n" * 9) == f"00000-drv-{'n' * 229}-"
    assert index_digits(16**5) == 5
    assert index_digits(16**5 + 1) == 6
    assert parse_index("000ff-drv-node-abcde", 5) == 255
    assert parse_index("000ff-drv", 6) == -1
    assert parse_index("node-drv-abcde", 5) == -1
    assert parse_index("", 5) == -1


# -- plans


class Api:
    """Apply a plan naively, as a server does."""

    def __init__(self, slices: Sequence[ExistingSlice]) -> None:
        self.slices = {slice_.name: slice_ for slice_ in slices}
        self.serial = 0

    def carry_out(self, plan: SlicePlan, pool: str, owner: str) -> None:
        for slice_ in plan.delete:
            del self.slices[slice_.name]
        for slice_, desired in plan.update:
            self._put(slice_.name, desired, plan, pool, owner)
        for desired in plan.create:
            self.serial += 1
            prefix = format_name_prefix(desired.index, plan.count, "drv", "node")
            self._put(f"{prefix}{self.serial}", desired, plan, pool, owner)

    def _put(self, name: str, desired: DesiredSlice, plan: SlicePlan, pool: str, owner: str) -> None:
        self.slices[name] = parse_slice(
            {
                "metadata": {"name": name, "uid": name, "ownerReferences": [{"uid": owner}]},
                "spec": {
                    "pool": {"name": pool, "generation": plan.generation, "resourceSliceCount": plan.count},
                    **desired.content,
                },
            }
        )


CONTENTS = st.integers(0, 2).map(lambda number: {"devices": [{"name": f"d{number}"}]})


@st.composite
def existing_slices(draw: st.DrawFn) -> list[ExistingSlice]:
    found = []
    for number in range(draw(st.integers(0, 6))):
        prefix = draw(st.sampled_from(["00000-", "00001-", "00002-", "00003-", "000000-", "x-", ""]))
        found.append(
            ExistingSlice(
                name=f"{prefix}s{number}",
                uid=f"u{number}",
                resource_version=str(number),
                pool="p",
                generation=draw(st.integers(0, 2)),
                count=draw(st.integers(0, 4)),
                owners=frozenset(draw(st.sampled_from([(), ("me",), ("you",)]))),
                content=draw(CONTENTS),
                tree={"metadata": {}},
            )
        )
    return found


@given(existing_slices(), st.lists(CONTENTS, max_size=4))
def test_a_plan_leads_to_the_desired_slices(there: list[ExistingSlice], contents: list[Tree]) -> None:
    desired = [DesiredSlice(index, content) for index, content in enumerate(contents)]
    api = Api(there)
    plan = plan_slices(desired, there, owner="me")
    api.carry_out(plan, "p", "me")
    after = sorted(api.slices.values(), key=lambda slice_: slice_.name)
    assert [slice_.content for slice_ in after] == contents
    assert {slice_.count for slice_ in after} <= {len(contents)}
    assert all("me" in slice_.owners for slice_ in after)
    assert len({slice_.generation for slice_ in after}) <= 1
    assert not plan_slices(desired, after, owner="me")
    # Generations only grow, and every part of the new state has the new generation.
    if desired and there:
        assert plan.generation >= max(slice_.generation for slice_ in there)
    if len(plan.update) + len(plan.create) > 1:
        assert all(plan.generation > slice_.generation for slice_ in there)
    # Nothing is touched that was right.
    untouched = {slice_.name for slice_ in there} - {slice_.name for slice_ in plan.delete}
    untouched -= {slice_.name for slice_, _ in plan.update}
    for slice_ in there:
        if slice_.name in untouched:
            assert api.slices[slice_.name] is slice_


def test_normalized_fields_are_not_differences() -> None:
    desired = [DesiredSlice(0, {"devices": [{"name": "d", "taints": [{"key": "k"}]}]})]
    kept = {"devices": [{"name": "d"}]}
    there = ExistingSlice("00000-x", "u", "1", "p", 1, 1, frozenset(), kept, {})
    assert plan_slices(desired, [there]).update
    altered: Mapping[int, tuple[Tree, Tree]] = {0: (desired[0].content, kept)}
    assert not plan_slices(desired, [there], altered=altered)
    # Not for other contents, and not if another client changes it.
    assert plan_slices([DesiredSlice(0, {"devices": [{"name": "e"}]})], [there], altered=altered).update
    assert plan_slices(desired, [replace(there, content={"devices": []})], altered=altered).update
