"""Soundness of queueing hints: a pod that is not woken would not fit."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import needs_capacity
from plimsoll.scheduler.events import classify_change, make_release_event, node_capacity
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue import QueueSettings, QueueState, SchedulingQueue
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import (
    CLASS,
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
from tests.sizes import seeds

ZONE = "topology.kubernetes.io/zone"
_DISK = [{"key": "disk", "operator": "In", "values": ["ssd"]}]
_MUST = "requiredDuringSchedulingIgnoredDuringExecution"
_WANTS: list[dict[str, Any]] = [
    {"cpu": "1"},
    {"cpu": "3", "memory": "2Gi"},
    {"cpu": "3", "priority": 5},
    {"node_selector": {"disk": "ssd"}},
    {"cpu": "2", "affinity": {"nodeAffinity": {_MUST: {"nodeSelectorTerms": [{"matchExpressions": _DISK}]}}}},
    {"cpu": "1", "tolerations": [{"key": "t", "operator": "Exists"}]},
    {"host_ports": [80]},
    {"host_ports": [80], "cpu": "2", "node_selector": {"disk": "ssd"}},
    {"labels": {"app": "x"}, "affinity": {"podAntiAffinity": {_MUST: [
        {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE}]}}},
    {"labels": {"app": "y"}, "affinity": {"podAffinity": {_MUST: [
        {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": ZONE}]}}},
    {"labels": {"app": "y"}, "topology_spread_constraints": [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule",
         "labelSelector": {"matchLabels": {"app": "y"}}}]},
    {"one": True},
    {"one": True, "cpu": "2"},
    {"two": True, "node_selector": {"disk": "ssd"}},
    {"shared": True, "cpu": "1"},
]  # fmt: skip


class RandomCluster:
    """Small cluster with random changes, and a queue that observes them."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.snapshot = Snapshot()
        self.queue = SchedulingQueue(QueueSettings(max_backoff_ms=0, flush_ms=10**9))
        self.settings = SchedulerProfile.default()
        self.objects: dict[tuple[str, str], Any] = {}
        self.placements: dict[str, Placement] = {}
        self.traits: dict[str, dict[int, Any]] = {}
        self.count = 0
        self.set(device_class(CLASS))
        for name in ("n0", "n1"):
            self.set(self.make_node(name))

    # -- objects

    def key(self, each: Any) -> tuple[str, str]:
        return type(each).__name__, each.metadata.name

    def set(self, new: Any) -> None:
        old = self.objects.get(self.key(new))
        self.objects[self.key(new)] = new
        self.snapshot.set(new)
        self.notify(old, new)

    def drop(self, old: Any) -> None:
        del self.objects[self.key(old)]
        self.snapshot.remove(old)
        self.notify(old, None)

    def notify(self, old: Any, new: Any) -> None:
        # Sometimes the room is known, sometimes it is not.
        at = old.spec.node_name if isinstance(old, Pod) and self.dice.random() < 0.8 else ""
        event = classify_change(old, new, node_capacity(self.snapshot, at) if at else None)
        if event is not None:
            self.queue.on_event(event, self.count)

    def some(self, kind: type[Any]) -> Any:
        found = [each for each in self.objects.values() if type(each) is kind]
        return self.dice.choice(found) if found else None

    def make_node(self, name: str, old: Node | None = None) -> Node:
        """Return a node, or one that differs from an old one in one field."""
        dice, only = self.dice, self.dice.randrange(7) if old is not None else None
        traits = self.traits.setdefault(name, {})
        choices: list[list[Any]] = [
            ["1", "2", "3", "4"],
            ["1Gi", "4Gi"],
            ["1", "3", "5"],
            ["", "a", "b", "b"],
            ["", "ssd"],
            ["", "", "t", "u"],
            [False, False, True],
        ]
        for number, several in enumerate(choices):
            if only is None or only == number:
                traits[number] = dice.choice(several)
        labels = {key: text for key, text in ((ZONE, traits[3]), ("disk", traits[4])) if text}
        taints = [f"{traits[5]}:NoSchedule"] if traits[5] else []
        cpu, memory, pods = traits[0], traits[1], traits[2]
        return node(
            name, cpu=cpu, memory=memory, pods=pods, labels=labels, taints=taints, unschedulable=traits[6]
        )

    def make_slice(self, name: str) -> Any:
        """Return one or two devices; some charge a CPU of their node."""
        kinds = [
            device(f"d{number}") if self.dice.random() < 0.5 else charging_device(f"d{number}", cpu="2")
            for number in range(self.dice.randint(1, 2))
        ]
        return resource_slice(kinds, name, driver=DRIVER)

    # -- events

    def step(self) -> None:
        self.count += 1
        happen = self.dice.choices(
            [self.new_pod, self.change_node, self.lose_node, self.slice, self.lose_pod, self.relabel,
             self.free, self.forget, self.end, self.try_all],
            [6, 8, 1, 2, 6, 2, 2, 2, 2, 6],
        )[0]  # fmt: skip
        happen()

    def new_pod(self) -> None:
        name = f"p{self.count}"
        wants = dict(self.dice.choice(_WANTS))
        claims = list[str]()
        for kind, count in (("one", 1), ("two", 2)):
            if wants.pop(kind, False):
                claims.append(f"{name}-{kind}")
                self.set(claim(f"{name}-{kind}", exactly("r", count=count), uid=f"uid-{name}-{kind}"))
        if wants.pop("shared", False):
            claims.append("shared")
            if ("ResourceClaim", "shared") not in self.objects:
                self.set(claim("shared", exactly("r")))
        self.queue.add(pod(name, claims=claims, **wants), self.count)

    def change_node(self) -> None:
        name = f"n{self.dice.randrange(3)}"
        self.set(self.make_node(name, self.objects.get(("Node", name))))

    def lose_node(self) -> None:
        found = self.some(Node)
        if found is not None:
            self.drop(found)

    def slice(self) -> None:
        self.set(self.make_slice(f"n{self.dice.randrange(3)}"))

    def lose_pod(self) -> None:
        """Delete a bound pod, and its claims unless they are shared."""
        found = self.some(Pod)
        if found is not None:
            self.drop(found)
            for each in list(self.objects.values()):
                if isinstance(each, ResourceClaim) and each.metadata.name.startswith(
                    f"{found.metadata.name}-"
                ):
                    self.drop(each)

    def relabel(self) -> None:
        found = self.some(Pod)
        if found is not None:
            meta = msgspec.structs.replace(found.metadata, labels={"app": self.dice.choice("xyz")})
            self.set(msgspec.structs.replace(found, metadata=meta))

    def end(self) -> None:
        """Mark a bound pod as terminating."""
        found = self.some(Pod)
        if found is not None:
            meta = msgspec.structs.replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
            self.set(msgspec.structs.replace(found, metadata=meta))

    def free(self) -> None:
        """Deallocate the shared claim."""
        shared = self.objects.get(("ResourceClaim", "shared"))
        if shared is not None and shared.status.allocation is not None:
            self.set(claim("shared", exactly("r")))

    def forget(self) -> None:
        """Fail a binding and forget its placement."""
        if self.placements:
            key, placement = self.placements.popitem()
            self.snapshot.forget(key)
            room = node_capacity(self.snapshot, placement.node)
            self.queue.on_event(make_release_event(placement.pod_info.pod, room), self.count)
            self.queue.remove(key)
            self.queue.done(key, self.count)

    # -- attempts

    def attempt(self, each: Pod) -> Placement | FitError:
        pod_info = read_pod_info(each, self.snapshot)
        assert not isinstance(pod_info, NodeReason) or pod_info.rule is Rule.DEVICES
        if isinstance(pod_info, NodeReason):
            return FitError(None, 0, ((pod_info, 0),))  # type: ignore[arg-type]
        return schedule_one(pod_info, self.snapshot, self.settings, lambda: f"share-{self.count}")

    def try_all(self) -> None:
        """Try all pods that are ready; bind those that fit, now or later."""
        for _ in range(200):
            found = self.queue.pop(self.count)
            if found is None:
                break
            outcome = self.attempt(found.pod)
            if isinstance(outcome, FitError):
                self.queue.mark_unschedulable(
                    found.key, outcome.rules, self.count, needs_capacity=needs_capacity(outcome)
                )
                continue
            self.snapshot.assume(outcome)
            self.placements[found.key] = outcome
        for key in list(self.placements):
            if self.dice.random() < 0.7:
                self.bind(key)

    def bind(self, key: str) -> None:
        placement = self.placements.pop(key)
        for name, allocation in placement.allocations.items():
            old = self.objects[("ResourceClaim", name)]
            results = [
                {"request": r.request, "driver": r.driver, "pool": r.pool, "device": r.device}
                for r in allocation.devices.results
            ]
            bound = claim(
                name,
                exactly("r", count=len(results)),
                results=results,
                node=placement.node,
                reserved=[placement.pod_info.pod.metadata.name],
                uid=old.metadata.uid,
            )
            self.set(bound)
        self.queue.done(key, self.count)
        self.set(_bound(placement.pod_info.pod, placement.node))

    def check(self) -> None:
        """Check that pending pods still do not fit."""
        for each in list(self.queue):
            if self.placements and (each.spec.affinity or each.spec.topology_spread_constraints):
                continue  # assumed pods count already; other pods are notified at binding
            if self.queue.state_of(pod_key(each)) is QueueState.UNSCHEDULABLE:
                outcome = self.attempt(each)
                assert isinstance(outcome, FitError), f"{each.metadata.name} sleeps but fits {outcome.node}"


def _bound(whole: Pod, name: str) -> Pod:
    spec = msgspec.structs.replace(whole.spec, node_name=name)
    return msgspec.structs.replace(whole, spec=spec)


@pytest.mark.parametrize("seed", seeds(30))
def test_every_schedulable_pod_is_woken(seed: int) -> None:
    cluster = RandomCluster(seed)
    for _ in range(250):
        cluster.step()
        cluster.check()
    for key in list(cluster.placements):
        cluster.bind(key)
    cluster.check()
