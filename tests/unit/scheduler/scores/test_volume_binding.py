"""Score of volumes: utilization of chosen volumes and of storage capacity."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.gates import Gates
from plimsoll.scheduler.plugin_args import ShapePoint
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import DynamicProvision, PodVolumes, StaticBinding
from plimsoll.scheduler.scores.formulas import tabulate_shape
from plimsoll.scheduler.scores.volume_binding import VolumeBindingScorer, class_resources
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.sizes import examples
from tests.unit.scheduler.filters.volume_objects import (
    claim,
    csi_driver,
    static_volume,
    storage_capacity,
    storage_class,
    using,
    waiting_class,
)
from tests.unit.scheduler.snapshots import pod_info_of

GATED = Gates.of({"StorageCapacityScoring": True})
#: Fullest first.
PACKING = (ShapePoint(), ShapePoint(utilization=100, score=10))


def scores(one: Any, *things: Any, gates: Gates = GATED, **profile: Any) -> dict[str, int] | None:
    snapshot = Snapshot(gates)
    for each in things:
        snapshot.set(each)
    given_profile = SchedulerProfile(**profile)
    scorer = VolumeBindingScorer.pre_score(pod_info_of(one, snapshot), snapshot, given_profile)
    if scorer is None:
        return None
    column = scorer.scores(snapshot.alive)
    return {snapshot.node(row).metadata.name: int(column[row]) for row in snapshot.rows()}


def host(name: str) -> Any:
    return node(name, labels={"kubernetes.io/hostname": name})


STATIC = (
    host("a"), host("b"), waiting_class(), claim("data", storage_class="local", size="5Gi"),
    static_volume("va", "10Gi", host="a"), static_volume("vb", "6Gi", host="b"),
)  # fmt: skip


def test_volumes_of_the_right_size_are_preferred_on_demand() -> None:
    one = pod("p", volumes=using("data"))
    assert scores(one, *STATIC) == {"a": 50, "b": 17}  # 83 % used
    assert scores(one, *STATIC, volume_shape=PACKING) == {"a": 50, "b": 83}


def test_without_the_gate_or_without_such_claims_there_is_no_score() -> None:
    one = pod("p", volumes=using("data"))
    assert scores(one, *STATIC, gates=Gates.default()) is None
    assert scores(pod("q"), *STATIC) is None
    assert scores(one, host("a"), claim("data", "pv"), static_volume("pv")) is None


def test_storage_capacity_counts_once_for_several_volumes() -> None:
    two = pod("p", volumes=using("one", "two"))
    things = (
        host("a"), storage_class("fast", "WaitForFirstConsumer"), csi_driver(),
        claim("one", storage_class="fast", size="25Gi"), claim("two", storage_class="fast", size="50Gi"),
        storage_capacity("c", "fast", "100Gi", topology={}),
    )  # fmt: skip
    assert scores(two, *things) == {"a": 25}
    unpublished = [each for each in things if each is not things[2]]
    assert scores(two, *unpublished) == {"a": 0}


amounts = st.lists(
    st.tuples(st.sampled_from(("x", "y", "z")), st.integers(0, 40), st.integers(0, 40)), max_size=4
)


@given(static=amounts, dynamic=amounts)
@settings(max_examples=examples(200))
def test_the_average_of_classes_is_that_of_the_formula(static: Any, dynamic: Any) -> None:
    volumes = PodVolumes(
        tuple(
            StaticBinding(static_volume("v", str(size), name), claim("c", size=str(need), storage_class=name))
            for name, need, size in static
        ),
        tuple(
            DynamicProvision(
                claim("c", size=str(need), storage_class=name), storage_capacity("s", name, str(size))
            )
            for name, need, size in dynamic
        ),
    )
    expected: dict[str, list[int]] = {}
    for name, need, size in static or dynamic:
        own = expected.setdefault(name, [0, 0])
        own[0] += need
        own[1] = own[1] + size if static else size
    assert class_resources(volumes) == {name: tuple(own) for name, own in expected.items()}
    scorer = VolumeBindingScorer(pod_info_of(pod("p"), Snapshot()), Snapshot(), SchedulerProfile(), None)  # type: ignore[arg-type]
    table = tabulate_shape(SchedulerProfile().volume_shape)
    each_score = [
        table[100 if not size or need > size else need * 100 // size] for need, size in expected.values()
    ]
    average = sum(each_score) / len(each_score) if each_score else 0
    assert scorer.score(volumes) == int(average + 0.5)
