"""Predictions of a stock scheduler, pod by pod, compared with the real one.

`Predictor` is built from a dump taken before the pods were created. It predicts the node or the message of
each pod, then learns the actual result, so that a random choice of kube-scheduler among equal nodes does not
spoil the next prediction. `differences` lists where the two disagree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.binding.pod_conditions import render_fit_error
from plimsoll.scheduler.cycle import build_filters
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.scores import score_nodes
from plimsoll.tools.cluster_state import Source, read_cluster_state
from plimsoll.tools.pod_schedulers import SCHEDULER_MODELS
from plimsoll.tools.whatif import Whatif
from plimsoll.tools.whatif.lifecycle import bind
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from tests.real.oracle import Decision
from tests.real.random_clusters import NS, Tree

#: The part of a claim's name that a server makes up.
_GENERATED = re.compile(r"\b(p\d+-claim-\d+)-[a-z0-9]{5,6}\b")
_NODE = re.compile(r"/n\d+")
#: What preemption has to say comes after the reasons, and is not part of a prediction.
_PREEMPTION = re.compile(
    r" (no new claims to deallocate|still not schedulable|deallocation of ResourceClaim completed), "
    r"preemption: .*$",
    re.DOTALL,
)


@dataclass(frozen=True)
class Prediction:
    """Predicted result of a pod: a node among those with the best score, or its message."""

    name: str
    node: str
    why: str
    scores: dict[str, int] = field(default_factory=dict)  #: of the nodes that would do
    charges: Any = ()  #: its claims in its status
    devices: tuple[tuple[str, ...], ...] = ()

    @property
    def best(self) -> set[str]:
        most = max(self.scores.values(), default=0)
        return {node for node, score in self.scores.items() if score == most}


class Predictor:
    """Cluster in memory that follows a real one, one pod behind."""

    def __init__(self, dump: Path, name: str) -> None:
        stock = SCHEDULER_MODELS[name]
        cluster_state = stock.cluster_state(read_cluster_state(Source((str(dump),))))
        self._whatif = Whatif(cluster_state, settings=stock.settings(SchedulerProfile.default()))

    def predict(self, tree: Tree) -> Prediction:
        """Return the predicted result of a new pod without changing anything."""
        with self._whatif.branch() as trial:
            (pod,) = trial.add(tree)
            cluster = trial.cluster
            pod = cluster.cluster_state.pod(pod.metadata.name, NS)
            outcome = cluster.schedule_pod(pod)
            name = pod.metadata.name
            if isinstance(outcome, Placement):
                bound, claims = bind(outcome, cluster.cluster_state.profile)
                charges = codec.to_tree(bound.status).get("nodeAllocatableResourceClaimStatuses", [])
                return Prediction(
                    name,
                    outcome.node,
                    "",
                    _scores(cluster, pod),
                    charges,
                    _devices(map(codec.to_tree, claims)),
                )
            if isinstance(outcome, FitError):
                return Prediction(name, "", render_fit_error(outcome))
            return Prediction(name, "", render(outcome))

    def learn(self, real: Decision) -> None:
        """Record the actual result of a pod; a pending pod is left out."""
        if not real.node:
            return
        cluster = self._whatif.cluster
        for claim in real.claims:
            cluster.changes.set(codec.convert(claim, ResourceClaim))
        cluster.changes.set(codec.convert(real.pod, Pod))


def _scores(cluster: MemoryCluster, pod: Pod) -> dict[str, int]:
    """Return every feasible node with its score, computed naively for all nodes."""
    snapshot, settings = cluster.cluster_state.snapshot, cluster.settings.for_pod(pod)
    task = read_pod_info(pod, snapshot)
    assert not isinstance(task, NodeReason)
    rules = build_filters(task, snapshot, settings, cluster.changes.new_id)
    assert not isinstance(rules, NodeReason)
    left = snapshot.alive.copy()
    for rule in rules:
        left &= rule.filter()
    scores = score_nodes(task, snapshot, settings, left)
    places = left.nonzero()[0].tolist()
    listed = dict.fromkeys(places, 0)
    for rule in rules:
        if isinstance(rule, DynamicResourcesFilter):
            for place in places:
                fit = rule.search(place)
                assert isinstance(fit, NodeFit)
                listed[place] = sum(
                    8 - number
                    for claim in task.claims
                    for request in claim.spec.devices.requests
                    for number, way in enumerate(request.first_available)
                    if f"{request.name}/{way.name}" in _requests_of(claim, fit)
                )
    most = max(listed.values(), default=0) or 1
    return {
        snapshot.node(place).metadata.name: int(scores[place])
        + settings.rank_weight * (listed[place] * 100 // most)
        for place in places
    }


def _requests_of(claim: ResourceClaim, fit: NodeFit) -> set[str]:
    allocation = claim.status.allocation or fit.allocations[claim.metadata.name]
    return {result.request for result in allocation.devices.results}


def _devices(claims: Any) -> tuple[tuple[str, ...], ...]:
    """Return the devices of claims, sorted."""
    found = []
    for claim in claims:
        allocation = claim.get("status", {}).get("allocation", {})
        for result in allocation.get("devices", {}).get("results", ()):
            consumed = sorted(
                (k, Quantity.parse(str(v)).nano) for k, v in result.get("consumedCapacity", {}).items()
            )
            name = _GENERATED.sub(r"\1-made", claim["metadata"]["name"])
            place = (result["request"], result["driver"], result["pool"], result["device"])
            found.append((name, *place, str(consumed)))
    return tuple(sorted(found))


def same_reason(ours: str, real: Decision) -> bool:
    """Return whether a pod got the predicted message; claims made from templates have other names."""
    ours, theirs = (_GENERATED.sub(r"\1-made", _PREEMPTION.sub("", text)) for text in (ours, real.why))
    if real.reason == "SchedulerError":
        # The message names the first node where it occurs, which is random.
        ours, theirs = (_NODE.sub("/n", text) for text in (ours, theirs))
    return ours == theirs


def differences(ours: Prediction, real: Decision) -> Iterator[str]:
    """List the differences between a prediction and the result."""
    if bool(ours.node) != bool(real.node):
        yield f"place: ours {ours.node or ours.why!r}, theirs {real.node or real.why!r}"
        return
    if not real.node:
        if not same_reason(ours.why, real):
            yield f"reason: ours {ours.why!r}, theirs {real.why!r}"
        return
    if real.node not in ours.scores:
        yield f"feasible: theirs {real.node}, ours only {ours.scores}"
    elif real.node not in ours.best:
        yield f"score: theirs {real.node}, ours {ours.scores}"
    if ours.node not in ours.best:
        yield f"choice: ours {ours.node} of {ours.scores}"
    if ours.node == real.node:
        charges = _named(real.pod["status"].get("nodeAllocatableResourceClaimStatuses", []))
        if _named(ours.charges) != charges:
            yield f"charges: ours {_named(ours.charges)}, theirs {charges}"
        devices = _devices(real.claims)
        if ours.devices != devices:
            yield f"devices: ours {ours.devices}, theirs {devices}"


def _named(entries: Any) -> list[Tree]:
    return [
        {**entry, "resourceClaimName": _GENERATED.sub(r"\1-made", entry["resourceClaimName"])}
        for entry in entries
    ]
