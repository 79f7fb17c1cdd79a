"""Small random clusters for tests of preemption: nodes, devices that may charge CPUs, pods, claims, budgets.

A `Cluster` is a list of plain descriptions; `objects` makes them into API objects, with some pods left out as
if they were gone: then unused claims have no devices, as the controllers see to.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import NewId
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)

SETTINGS = SchedulerProfile.default()


@dataclass(frozen=True)
class NodeSpec:
    """Node: its CPUs, its number of pods, and the charge of each of its devices."""

    cpu: int
    pods: int
    devices: tuple[int, ...]


@dataclass(frozen=True)
class RunningPod:
    """Running pod: its node (by number, modulo), and its claim (0: none, else its device)."""

    machine: int
    cpu: int
    priority: int
    device: int = 0
    shared: bool = False  #: it uses the claim of the pod that holds its device
    port: int = 0
    app: str = ""
    lonely: bool = False  #: it wants no other pod of its app on its node
    start: int = 0


@dataclass(frozen=True)
class Preemptor:
    """Pod to schedule."""

    cpu: int
    priority: int
    devices: int = 0
    port: int = 0
    app: str = ""
    lonely: bool = False


@dataclass(frozen=True)
class Cluster:
    machines: tuple[NodeSpec, ...]
    residents: tuple[RunningPod, ...]


RESIDENTS = st.builds(
    RunningPod,
    machine=st.integers(0, 2),
    cpu=st.integers(0, 3),
    priority=st.integers(-1, 3),
    device=st.integers(0, 3),
    shared=st.booleans(),
    port=st.sampled_from([0, 0, 0, 80, 81]),
    app=st.sampled_from(["", "", "a", "b"]),
    lonely=st.sampled_from([False, False, False, True]),
    start=st.integers(0, 3),
)
MACHINES = st.builds(
    NodeSpec,
    cpu=st.integers(1, 6),
    pods=st.sampled_from([2, 4, 110]),
    devices=st.lists(st.integers(0, 2), max_size=3).map(tuple),
)
CLUSTERS = st.builds(
    Cluster,
    st.lists(MACHINES, min_size=1, max_size=3).map(tuple),
    st.lists(RESIDENTS, max_size=8).map(tuple),
)
WISHES = st.builds(
    Preemptor,
    cpu=st.integers(0, 6),
    priority=st.integers(0, 4),
    devices=st.integers(0, 3),
    port=st.sampled_from([0, 0, 80]),
    app=st.sampled_from(["", "a", "b"]),
    lonely=st.booleans(),
)


def objects(cluster: Cluster, gone: Collection[str] = ()) -> list[Any]:
    """Return the objects of a cluster without the deleted pods; pods are named p0, p1, ..."""
    made: list[Any] = [device_class()]
    for number, machine in enumerate(cluster.machines):
        name = f"n{number}"
        made.append(node(name, cpu=str(machine.cpu), pods=str(machine.pods), labels={"host": name}))
        devices = [
            charging_device(f"d{index}", cpu=str(charge)) if charge else device(f"d{index}")
            for index, charge in enumerate(machine.devices, 1)
        ]
        if devices:
            made.append(resource_slice(devices, name))
    return made + _residents(cluster, gone)


def _residents(cluster: Cluster, gone: Collection[str]) -> list[Any]:
    pods: list[Any] = []
    users: dict[tuple[str, int], list[str]] = {}  # (node, device) -> who uses the claim that holds it
    claims: dict[tuple[str, int], str] = {}
    for number, resident in enumerate(cluster.residents):
        name, machine = f"p{number}", resident.machine % len(cluster.machines)
        key = (f"n{machine}", resident.device)
        using = ""
        if 0 < resident.device <= len(cluster.machines[machine].devices):
            if key not in claims:
                using = claims[key] = f"c-{name}"
            elif resident.shared:
                using = claims[key]
        if using:
            users.setdefault(key, []).append(name)
        pods.append(
            pod(
                name,
                cpu=str(resident.cpu) if resident.cpu else None,
                node=f"n{machine}",
                priority=resident.priority,
                claims=[using] if using else [],
                status={"startTime": f"2026-01-01T00:00:0{resident.start}Z"},
                **_traits(resident),
            )
        )
    made: list[Any] = []
    for (where, number), names in users.items():
        left = [name for name in names if name not in gone]
        results = [{"request": "r", "driver": DRIVER, "pool": where, "device": f"d{number}"}]
        made.append(
            claim(
                claims[where, number],
                exactly("r"),
                results=results if left else (),
                node=where,
                reserved=left,
            )
        )
    return made + [each for each in pods if each.metadata.name not in gone]


def _traits(who: RunningPod | Preemptor) -> dict[str, Any]:
    traits: dict[str, Any] = {"labels": {"app": who.app} if who.app else {}}
    if who.port:
        traits["host_ports"] = [who.port]
    if who.lonely and who.app:
        term = {"labelSelector": {"matchLabels": {"app": who.app}}, "topologyKey": "host"}
        traits["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return traits


def snapshot_of(cluster: Cluster, gone: Collection[str] = ()) -> Snapshot:
    snapshot = Snapshot()
    for each in objects(cluster, gone):
        snapshot.set(each)
    return snapshot


def pod_info_of(preemptor: Preemptor, snapshot: Snapshot, name: str = "new") -> PodInfo:
    """Return the PodInfo of the preemptor; its claims are added to the snapshot."""
    if preemptor.devices:
        snapshot.set(claim(f"c-{name}", exactly("r", count=preemptor.devices)))
    made = pod(
        name,
        cpu=str(preemptor.cpu) if preemptor.cpu else None,
        priority=preemptor.priority,
        claims=[f"c-{name}"] if preemptor.devices else [],
        **_traits(preemptor),
    )
    pod_info = read_pod_info(made, snapshot)
    assert isinstance(pod_info, PodInfo)
    return pod_info


def ids() -> NewId:
    numbers = itertools.count()
    return lambda: f"id{next(numbers)}"


def attempt(pod_info: PodInfo, snapshot: Snapshot) -> Placement | FitError:
    return schedule_one(pod_info, snapshot, SETTINGS, ids())


def names_of(pods: Collection[Pod]) -> list[str]:
    return [each.metadata.name for each in pods]


def budget(
    name: str = "b", allowed: int = 0, disrupted: Collection[str] = (), **labels: str
) -> PodDisruptionBudget:
    tree = {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {
            "disruptionsAllowed": allowed,
            "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
        },
    }
    return convert(tree, PodDisruptionBudget)
