"""Bulk and pointwise forms of volume rules agree, in any order of objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_volume_limits import NodeVolumeLimitsFilter
from plimsoll.scheduler.filters.volume_binding import VolumeBindingFilter
from plimsoll.scheduler.filters.volume_restrictions import VolumeRestrictionsFilter
from plimsoll.scheduler.filters.volume_zone import VolumeZoneFilter
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import node, pod
from tests.sizes import examples
from tests.unit.scheduler.filters.volume_objects import (
    DRIVER,
    attachment,
    claim,
    csi_driver,
    csi_node,
    static_volume,
    storage_capacity,
    storage_class,
    using,
    volume,
)
from tests.unit.scheduler.snapshots import pod_info_of

RULES = (VolumeRestrictionsFilter, NodeVolumeLimitsFilter, VolumeBindingFilter, VolumeZoneFilter)
NODES = ("a", "b", "c")
CLAIMS = ("c0", "c1", "c2", "p-made")
VOLUMES = ("v0", "v1", "v2")
ZONE = "topology.kubernetes.io/zone"
few = st.integers(0, 2)

nodes = st.builds(
    lambda name, zone, other: node(
        name,
        labels={k: v for k, v in ((ZONE, zone), ("zone", other), ("kubernetes.io/hostname", name)) if v},
    ),
    st.sampled_from(NODES), st.sampled_from(("", "z1", "z2")), st.sampled_from(("", "z1")),
)  # fmt: skip
claims = st.builds(
    claim, st.sampled_from(CLAIMS), st.sampled_from(("", *VOLUMES)),
    storage_class=st.sampled_from((None, "k")),
    modes=st.sampled_from((("ReadWriteOnce",), ("ReadWriteOncePod",))),
    metadata=st.just({"ownerReferences": [{"uid": "uid-p", "controller": True}]}),
)  # fmt: skip


def term(expressions: list[tuple[str, str]], field: str) -> dict[str, Any]:
    """Return a node affinity term, valid or not."""
    values = {"In": ["z1"], "Exists": [], "Near": ["z1"]}
    return {
        "matchExpressions": [
            {"key": key, "operator": how, "values": values[how]} for key, how in expressions
        ],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": [field]}] if field else [],
    }


terms = st.builds(
    term,
    st.lists(
        st.tuples(st.sampled_from(("zone", ZONE)), st.sampled_from(("In", "In", "Exists", "Near"))),
        max_size=2,
    ),
    st.sampled_from(("", "a")),
)
affinities = st.none() | st.lists(terms, max_size=2).map(lambda all: {"required": {"nodeSelectorTerms": all}})


def volumes_of(*names: str) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda name, affinity, labelled, driver: volume(
            name, driver=driver, affinity=affinity, labels={ZONE: labelled} if labelled else {}
        ),
        st.sampled_from(names), affinities, st.sampled_from(("", "z1", "z1__z2")),
        st.sampled_from((DRIVER, "other.example.com")),
    )  # fmt: skip


volumes = volumes_of(*VOLUMES)
classes = st.builds(storage_class, st.just("k"), provisioner=st.sampled_from((DRIVER, "none.example.com")))
#: Claims that wait for their first consumer, and what decides where they find a volume.
waiting = st.builds(
    lambda name, size, chosen: claim(name, storage_class="w", size=size, selected_node=chosen),
    st.sampled_from(CLAIMS[:3]), st.sampled_from(("", "1Gi", "5Gi")), st.sampled_from(("", "", "a")),
)  # fmt: skip
waiting_volumes = st.builds(
    lambda name, size, host, own: static_volume(
        name, size, "w", host=host, claimed_by=claim(own) if own else None
    ),
    st.sampled_from(("w0", "w1", "w2")), st.sampled_from(("1Gi", "5Gi")), st.sampled_from(("", *NODES)),
    st.sampled_from(("", "", "c0")),
)  # fmt: skip
waiting_classes = st.builds(
    lambda provisioner, zones: storage_class(
        "w", "WaitForFirstConsumer", provisioner, **({"zone": zones} if zones else {})
    ),
    st.sampled_from((DRIVER, "kubernetes.io/no-provisioner")), st.sampled_from(((), ("z1",))),
)  # fmt: skip
capacities = st.builds(
    lambda name, size, largest, labels: storage_capacity(name, "w", size, largest=largest, topology=labels),
    st.sampled_from(("x", "y")), st.sampled_from((None, "2Gi", "9Gi")), st.sampled_from((None, "2Gi")),
    st.sampled_from((None, {}, {"zone": "z1"}, {"kubernetes.io/hostname": "b"})),
)  # fmt: skip
drivers = st.builds(csi_driver, st.just(DRIVER), st.sampled_from((None, True)))
storage = st.one_of(waiting, waiting_volumes, waiting_classes, capacities, drivers)
limits = st.builds(lambda name, most: csi_node(name, disk_example_com=most), st.sampled_from(NODES), few)
attachments = st.builds(
    attachment, st.sampled_from(("x", "y")), st.sampled_from(NODES), st.sampled_from(VOLUMES)
)
disks = st.builds(
    lambda kind, name, read_only: {"name": "d", kind[0]: {kind[1]: name, "readOnly": read_only}},
    st.sampled_from((("gcePersistentDisk", "pdName"), ("awsElasticBlockStore", "volumeID"))),
    st.sampled_from(("d0", "d1")), st.booleans(),
)  # fmt: skip
parts = st.lists(
    st.one_of(
        st.sampled_from(CLAIMS[:3]).map(lambda name: using(name)[0]),
        st.sampled_from(CLAIMS[:3]).map(lambda name: using(name)[0]),
        st.just({"name": "made", "ephemeral": {}}),
        disks,
    ),
    min_size=1,
    max_size=3,
)
#: A bound pod never moves.
pods = st.builds(
    lambda name, at, own: pod(f"{name}-{at}", node=at, volumes=own),
    st.sampled_from(("p", "q")), st.sampled_from(NODES), parts,
)  # fmt: skip
#: Where most things are as they should be: nodes in zones, volumes, claims bound to them, a pod.
basis = st.tuples(
    *(nodes for _ in range(3)), *(volumes_of(name) for name in VOLUMES), pods,
    *(st.just(claim(f"c{number}", name)) for number, name in enumerate(VOLUMES)),
).map(lambda all: [(each, True) for each in all])  # fmt: skip
objects = st.one_of(nodes, claims, volumes, classes, limits, attachments, pods)
#: Objects that are set, or (False) removed again.
steps = st.lists(st.tuples(objects, st.sampled_from((True, True, True, False))), max_size=12)
wanted = st.builds(lambda own: pod("p", uid="uid-p", volumes=own), parts)


def happen(snapshot: Snapshot, events: list[tuple[Any, bool]]) -> None:
    for each, stays in events:
        if stays:
            snapshot.set(each)
        else:
            snapshot.remove(each)


def check(kind: type[Filter], one: Any, snapshot: Snapshot) -> None:
    rule = kind.pre_filter(pod_info_of(one, snapshot), snapshot)
    if rule is None or isinstance(rule, NodeReason):
        return
    passed = rule.filter()
    assert passed.shape == snapshot.alive.shape
    assert passed.dtype == np.bool_
    for row in snapshot.rows():
        assert bool(passed[row]) == (not rule.filter_node(row)), row
    removed = snapshot.alive & ~passed
    bulk = {render(why): count for why, count in rule.count_reasons(removed)}
    assert bulk == {render(why): count for why, count in Filter.count_reasons(rule, removed)}
    assert rule.resolvable_nodes(removed).tolist() == Filter.resolvable_nodes(rule, removed).tolist()


@pytest.mark.parametrize("kind", RULES)
@given(first=basis, then=steps, one=wanted)
@settings(max_examples=examples(100))
def test_bulk_and_pointwise_agree(kind: type[Filter], first: list[Any], then: list[Any], one: Any) -> None:
    snapshot = Snapshot()
    for name in NODES:
        snapshot.set(node(name))
    happen(snapshot, first)
    check(kind, one, snapshot)
    happen(snapshot, then)
    check(kind, one, snapshot)


storage_steps = st.lists(
    st.tuples(st.one_of(storage, storage, nodes), st.sampled_from((True, True, True, False))), max_size=12
)
#: A class, claims that wait, and volumes for them.
storage_basis = st.tuples(
    *(nodes for _ in range(3)), waiting_classes, *(waiting for _ in range(2)),
    *(waiting_volumes for _ in range(2)), drivers,
).map(lambda all: [(each, True) for each in all])  # fmt: skip
consumers = st.lists(st.sampled_from(CLAIMS[:3]), min_size=1, max_size=3).map(
    lambda names: pod("p", uid="uid-p", volumes=using(*names))
)


@given(first=storage_basis, then=storage_steps, one=consumers)
@settings(max_examples=examples(300))
def test_bulk_and_pointwise_agree_on_claims_that_wait(first: list[Any], then: list[Any], one: Any) -> None:
    snapshot = Snapshot()
    for name in NODES:
        snapshot.set(node(name))
    for number in range(3):
        snapshot.set(claim(f"c{number}", storage_class="w", size="1Gi"))
    happen(snapshot, first)
    check(VolumeBindingFilter, one, snapshot)
    happen(snapshot, then)
    check(VolumeBindingFilter, one, snapshot)


@pytest.mark.parametrize("kind", RULES)
@given(first=basis, then=steps, one=wanted)
@settings(max_examples=examples(100))
def test_the_order_of_objects_does_not_matter(
    kind: type[Filter], first: list[Any], then: list[Any], one: Any
) -> None:
    early, late = Snapshot(), Snapshot()
    happen(late, first)
    asked = kind.pre_filter(
        pod_info_of(one, late), late
    )  # the index is made now, and kept up to date from here on
    if isinstance(asked, Filter):
        asked.filter()
    happen(late, then)
    happen(early, [*first, *then])
    answers = []
    for snapshot in (early, late):
        rule = kind.pre_filter(pod_info_of(one, snapshot), snapshot)
        if isinstance(rule, Filter):
            mask = rule.filter()
            answers.append({snapshot.node(at).metadata.name: bool(mask[at]) for at in snapshot.rows()})
        else:
            answers.append({} if rule is None else {render(rule): False})
    assert answers[0] == answers[1]


def test_masks_grow_with_the_cluster() -> None:
    snapshot = Snapshot()
    for each in (node("n0"), csi_node("n0", disk_example_com=0), claim("c0", "v0"), volume("v0")):
        snapshot.set(each)
    one = pod("p", volumes=using("c0"))
    check(NodeVolumeLimitsFilter, one, snapshot)
    for number in range(1, snapshot.size + 2):
        snapshot.set(node(f"n{number}"))
    snapshot.set(csi_node(f"n{number}", disk_example_com=0))
    check(NodeVolumeLimitsFilter, one, snapshot)
    rule = NodeVolumeLimitsFilter.pre_filter(pod_info_of(one, snapshot), snapshot)
    assert isinstance(rule, Filter)
    assert int(np.count_nonzero(rule.filter() & snapshot.alive)) == len(snapshot) - 2
