"""Indexes registered after the objects equal those registered before: their `kinds` are complete."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import plimsoll.scheduler
import plimsoll.tools.top
from plimsoll.api.codec import convert
from plimsoll.api.forms import CLASS_KEY
from plimsoll.api.pod_claims import EXTENDED_RESOURCE_CLAIM
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.workloads import ReplicationController, Service
from plimsoll.scheduler.filters.static import SignatureIndex
from plimsoll.scheduler.process.informers import WATCHED_KINDS
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests import build
from tests.sizes import examples
from tests.unit.scheduler.filters import volume_objects as volumes
from tests.unit.scheduler.index_states import MEMORIES, comparable

NAMES = ("a", "b", "c")
ZONE = "topology.kubernetes.io/zone"


def index_kinds() -> list[type[SnapshotIndex]]:
    """Return all indexes of the product that do more than remember results."""
    for package in (plimsoll.scheduler, plimsoll.tools.top):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)

    def below(kind: type[SnapshotIndex]) -> Iterator[type[SnapshotIndex]]:
        for each in kind.__subclasses__():
            yield each
            yield from below(each)

    found = {kind for kind in below(SnapshotIndex) if kind.__module__.startswith("plimsoll.")}
    found.remove(SignatureIndex)  # the base of others
    return sorted(
        (kind for kind in found if kind.__name__ not in {*MEMORIES, "DryRunFailures"}),
        key=lambda kind: kind.__name__,
    )


# -- objects of all watched kinds


def make_node(random: Random, name: str) -> Any:
    return build.node(name, labels={ZONE: random.choice(NAMES)}, unschedulable=random.random() < 0.3)


def make_pod(random: Random, name: str) -> Any:
    term = {
        "labelSelector": {"matchLabels": {"app": random.choice(NAMES)}},
        "namespaceSelector": {"matchLabels": {"team": random.choice(NAMES)}},
        "topologyKey": ZONE,
    }
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    make = random.choice((build.pod, build.member))
    return make(
        f"pod-{name}",
        labels={"app": random.choice(NAMES)},
        node=random.choice((*NAMES, "unknown")),
        claims=random.sample(NAMES, random.randint(0, 1)),
        host_ports=random.sample((80, 81), random.randint(0, 2)),
        priority=random.choice((0, 5)),
        volumes=volumes.using(*random.sample(NAMES, random.randint(0, 2))),
        affinity=random.choice((None, rules)),
    )


def make_claim(random: Random, name: str) -> Any:
    """Return a claim, allocated or not; some are created for the extended resources of a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"pod-{name}", "uid": f"uid-pod-{name}"}
    extended = {
        "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
        "ownerReferences": [{**owner, "controller": True}],
    }
    results = [build.result("gpu0", pool=name)] if random.random() < 0.7 else []
    return build.claim(name, build.exactly(), results=results, metadata=random.choice((None, extended)))


def make_slice(random: Random, name: str) -> Any:
    policy = random.choice(("", "Max", "ConsumeFrom"))
    return build.resource_slice([build.pool_device(policy=policy, cpu="8")], name)


def make_class(random: Random, name: str) -> Any:
    extended = random.choice((None, "example.com/gpu", "example.com/nic"))
    made = build.device_class(name, extendedResourceName=extended)
    rule = {"allocationMultiplier": "1", "accountingPolicy": random.choice(("Max", "ConsumeFrom"))}
    text = json.dumps({"nodeAllocatableResourceMappings": {"cpu": rule}})
    return replace(made, metadata=replace(made.metadata, annotations={CLASS_KEY: text}))


def make_volume(random: Random, name: str) -> Any:
    make = random.choice((volumes.volume, volumes.static_volume))
    return make(name)


def make_selecting(kind: type[Any]) -> Callable[[Random, str], Any]:
    def make(random: Random, name: str) -> Any:
        labels = {"app": random.choice(NAMES)}
        selector = labels if kind in (Service, ReplicationController) else {"matchLabels": labels}
        metadata = {"name": name, "namespace": build.NAMESPACE, "uid": f"uid-{kind.__name__}-{name}"}
        return convert({"metadata": metadata, "spec": {"selector": selector}}, kind)

    return make


def make_labeled(kind: type[Any]) -> Callable[[Random, str], Any]:
    def make(random: Random, name: str) -> Any:
        return convert({"metadata": {"name": name, "labels": {"team": random.choice(NAMES)}}}, kind)

    return make


MAKERS: dict[str, Callable[[Random, str], Any]] = {
    "Node": make_node,
    "Pod": make_pod,
    "ResourceClaim": make_claim,
    "ResourceSlice": make_slice,
    "DeviceClass": make_class,
    "PodGroup": lambda random, name: build.pod_group(name, random.randint(0, 2)),
    "PersistentVolumeClaim": lambda random, name: volumes.claim(
        name, random.choice(("", *NAMES)), storage_class=random.choice((None, *NAMES))
    ),
    "PersistentVolume": make_volume,
    "StorageClass": lambda random, name: volumes.storage_class(name, provisioner=random.choice(NAMES)),
    "CSINode": lambda random, name: volumes.csi_node(name, disk_example_com=random.choice((None, 1, 2))),
    "CSIDriver": lambda random, name: volumes.csi_driver(name, random.choice((True, False))),
    "CSIStorageCapacity": lambda random, name: volumes.storage_capacity(
        name, random.choice(NAMES), random.choice((None, "1Gi")), topology={}
    ),
    "VolumeAttachment": lambda random, name: volumes.attachment(
        name, random.choice(NAMES), random.choice(NAMES)
    ),
    **{
        kind.view.__name__: make_selecting(kind.view)
        for kind in WATCHED_KINDS
        if kind.view.__name__ in ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
    },
    **{
        kind.view.__name__: make_labeled(kind.view)
        for kind in WATCHED_KINDS
        if kind.view.__name__ in ("Namespace", "PodDisruptionBudget", "DeviceTaintRule")
    },
}


def make_objects(random: Random, count: int) -> list[tuple[bool, Any]]:
    """Return changes: objects that are set (True) or removed (False)."""
    kinds = [kind.view.__name__ for kind in WATCHED_KINDS]
    random.shuffle(kinds)
    chosen = [*kinds, *random.choices(kinds, k=count)]  # each kind at least once
    return [(random.random() < 0.8, MAKERS[kind](random, random.choice(NAMES))) for kind in chosen]


def apply_changes(snapshot: Snapshot, changes: Sequence[tuple[bool, Any]]) -> None:
    for is_set, thing in changes:
        if is_set:
            snapshot.set(thing)
        else:
            snapshot.remove(thing)


def late_and_first(
    kinds: Sequence[type[SnapshotIndex]], changes: Sequence[tuple[bool, Any]]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the states of indexes that were registered after and before the changes."""
    late, first = Snapshot(), Snapshot()
    for kind in kinds:
        first.index(kind)
    for snapshot in (late, first):
        apply_changes(snapshot, changes)
    states = [{kind.__name__: comparable(vars(each.index(kind))) for kind in kinds} for each in (late, first)]
    return states[0], states[1]


@given(st.integers(0, 2**32), st.integers(0, 60))
@settings(max_examples=examples(200))
def test_an_index_registered_late_equals_one_registered_first(seed: int, count: int) -> None:
    late, first = late_and_first(index_kinds(), make_objects(Random(seed), count))
    assert late == first


#: Indexes and kinds that fill them with nothing: they only invalidate what was derived.
INVALIDATE = {("DefaultSelectors", name) for name in ("ReplicaSet", "ReplicationController", "StatefulSet")}


@pytest.mark.parametrize(
    "kind", [kind for kind in index_kinds() if kind.kinds], ids=lambda kind: kind.__name__
)
def test_every_kind_of_an_index_is_needed(kind: type[SnapshotIndex]) -> None:
    """Without one of its kinds an index that is registered late lacks something: the test above can fail."""
    for missing in kind.kinds:
        kinds = tuple(each for each in kind.kinds if each is not missing) or (PodGroup,)
        narrow = type(kind.__name__, (kind,), {"kinds": kinds})
        changes = (make_objects(Random(seed), 60) for seed in range(5))
        differ = any(late != first for late, first in (late_and_first([narrow], each) for each in changes))
        assert differ != ((kind.__name__, missing.__name__) in INVALIDATE), missing.__name__


def test_objects_of_every_watched_kind_are_tried() -> None:
    assert {type(thing) for _, thing in make_objects(Random(0), 0)} == {kind.view for kind in WATCHED_KINDS}
