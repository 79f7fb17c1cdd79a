"""Random clusters and streams of pods: no node is overcommitted, and pending pods really do not fit.

The model is deliberately simple: it knows only the scheduler's results, sums up charges itself and tries
every choice of devices on every node.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.sizes import examples
from tests.unit.scheduler.overdrafts import find_overdrafts


@dataclass
class ModelNode:
    """Node of the model: allocatable CPUs, and devices by name with kind and charge."""

    cpu: int
    devices: dict[str, tuple[str, int]]
    used: int = 0
    taken: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class ModelPod:
    """Pod of the model: its own CPUs, and devices as alternatives of (kind, count)."""

    cpu: int
    alternatives: tuple[tuple[str, int], ...] = ()


def choices(machine: ModelNode, model_pod: ModelPod) -> Iterator[tuple[str, ...]]:
    """Return all choices of devices with which a pod fits on a node."""
    free = [name for name in machine.devices if name not in machine.taken]
    for kind, count in model_pod.alternatives or (("", 0),):
        fitting = [name for name in free if machine.devices[name][0] == kind]
        for chosen in itertools.combinations(fitting, count):
            charge = sum(machine.devices[name][1] for name in chosen)
            if machine.used + model_pod.cpu + charge <= machine.cpu:
                yield chosen


KINDS = st.sampled_from(["small", "large"])
MACHINES = st.builds(
    ModelNode,
    st.integers(1, 8),
    st.dictionaries(st.sampled_from(["d0", "d1", "d2", "d3"]), st.tuples(KINDS, st.integers(0, 4))),
)
WISHES = st.builds(
    ModelPod,
    st.integers(0, 4),
    st.lists(st.tuples(KINDS, st.integers(1, 2)), max_size=2).map(tuple),
)


def add_machine(snapshot: Snapshot, name: str, machine: ModelNode) -> None:
    snapshot.set(node(name, cpu=str(machine.cpu)))
    devices = []
    for each, (kind, charge) in machine.devices.items():
        charges: dict[str, Any] = {"cpu": str(charge)} if charge else {}
        attributes = {"attributes": {"kind": {"string": kind}}}
        devices.append(charging_device(each, fields=attributes, **charges))
    snapshot.set(resource_slice(devices, name))


def add_pod(snapshot: Snapshot, name: str, model_pod: ModelPod) -> PodInfo:
    def select(label: str, kind: str, count: int) -> dict[str, object]:
        return exactly(label, count=count, select=f'device.attributes["{DRIVER}"].kind == "{kind}"')

    claims = []
    if len(model_pod.alternatives) == 1:
        claims = [claim(f"c-{name}", select("r", *model_pod.alternatives[0]))]
    elif model_pod.alternatives:
        several = [select(f"a{i}", *each) for i, each in enumerate(model_pod.alternatives)]
        claims = [claim(f"c-{name}", first_available("r", *several))]
    for each in claims:
        snapshot.set(each)
    made = pod(
        name, cpu=str(model_pod.cpu) if model_pod.cpu else None, claims={"r": f"c-{name}"} if claims else ()
    )
    pod_info = read_pod_info(made, snapshot)
    assert isinstance(pod_info, PodInfo)
    return pod_info


@given(st.lists(MACHINES, min_size=1, max_size=3), st.lists(WISHES, min_size=1, max_size=8), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_no_schedulable_pod_is_left_pending(
    machines: list[ModelNode], model_pods: list[ModelPod], data: st.DataObject
) -> None:
    snapshot = Snapshot()
    snapshot.set(device_class())
    model = {f"n{number}": machine for number, machine in enumerate(machines)}
    for name, machine in model.items():
        add_machine(snapshot, name, machine)
    running: dict[str, tuple[str, int, tuple[str, ...]]] = {}
    numbers = itertools.count()
    for number, model_pod in enumerate(model_pods):
        name = f"p{number}"
        pod_info = add_pod(snapshot, name, model_pod)
        found = schedule_one(pod_info, snapshot, SchedulerProfile.default(), lambda: f"id{next(numbers)}")
        possible = {each: list(choices(machine, model_pod)) for each, machine in model.items()}
        if isinstance(found, Placement):
            devices = tuple(r.device for a in found.allocations.values() for r in a.devices.results)
            assert tuple(sorted(devices)) in {tuple(sorted(each)) for each in possible[found.node]}
            snapshot.assume(found)
            machine = model[found.node]
            charge = model_pod.cpu + sum(machine.devices[each][1] for each in devices)
            machine.used += charge
            machine.taken |= set(devices)
            running[name] = (found.node, charge, devices)
        else:
            assert not any(possible.values()), (model_pod, possible)
            counted = sum(count for _, count in found.reasons)
            assert found.nodes <= counted or not found.nodes
        assert not verify(snapshot)
        assert not find_overdrafts(snapshot)
        pod_leaves: bool = data.draw(st.booleans())
        if running and pod_leaves:
            gone = data.draw(st.sampled_from(sorted(running)))
            where, charge, devices = running.pop(gone)
            snapshot.forget(f"uid-{gone}")
            model[where].used -= charge
            model[where].taken -= set(devices)
            left = {name: model[name].cpu * 1000 - model[name].used * 1000 for name in model}
            for each in model:
                row = snapshot.row_of(each)
                assert row is not None
                assert snapshot.ledger(row).headroom()["cpu"] == left[each]


def test_equal_nodes_take_turns() -> None:
    snapshot = Snapshot()
    for number in range(4):
        snapshot.set(node(f"n{number}"))
    chosen = []
    for number in range(8):
        pod_info = read_pod_info(pod(f"p{number}"), snapshot)
        assert isinstance(pod_info, PodInfo)
        found = schedule_one(pod_info, snapshot, SchedulerProfile.default(), lambda: "")
        assert isinstance(found, Placement)
        snapshot.assume(found)
        chosen.append(found.node)
    assert sorted(chosen[:4]) == sorted(chosen[4:]) == ["n0", "n1", "n2", "n3"]
