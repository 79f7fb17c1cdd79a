"""What an explanation is made from: the cluster state, the pod as a task, and the way nodes are named.

Owns `PodView` and `RuleExplainer`, what all that know about one rule have in common: which places are alike,
which one is nearest, and what there is to say about it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain.tree import Statement


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod in one cluster state."""

    cluster_state: ClusterState
    task: PodInfo
    settings: SchedulerProfile = field(default_factory=SchedulerProfile.default)

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster_state.snapshot

    @property
    def pod(self) -> Pod:
        return self.task.pod

    def node(self, place: int) -> Node:
        return self.snapshot.node(place)

    def name(self, place: int) -> str:
        return self.snapshot.node(place).metadata.name


def full_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


class RuleExplainer:
    """What one rule has to say. This one says nothing beyond the sentence of the rule."""

    def __init__(self, view: PodView, rule: Filter, places: Sequence[int]) -> None:
        """`places` are those that break the rule."""
        self.view = view
        self.rule = rule
        self.places = places

    def key(self, place: int) -> Hashable:
        """Equal for places that are told together."""
        return ()

    def distance(self, place: int) -> int:
        """How far a place is from passing; the least is told."""
        return 0

    def explain(self, place: int, alike: Sequence[int]) -> tuple[Statement, ...]:
        """What there is to say about the nearest place, and those alike."""
        return ()
