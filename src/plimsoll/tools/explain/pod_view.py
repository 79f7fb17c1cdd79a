"""`PodView` and `RuleExplainer`: input of an explanation, and the interface of the explainers of one rule."""

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
    pod_info: PodInfo
    settings: SchedulerProfile = field(default_factory=SchedulerProfile.default)

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster_state.snapshot

    @property
    def pod(self) -> Pod:
        return self.pod_info.pod

    def node(self, row: int) -> Node:
        return self.snapshot.node(row)

    def name(self, row: int) -> str:
        return self.snapshot.node(row).metadata.name


class RuleExplainer:
    """Base class: groups the nodes that fail a rule, ranks them, and describes the nearest one."""

    def __init__(self, view: PodView, rule: Filter, rows: Sequence[int]) -> None:
        """`rows` are the snapshot rows of the nodes that fail the rule."""
        self.view = view
        self.rule = rule
        self.rows = rows

    def key(self, row: int) -> Hashable:
        """Return a key that is equal for nodes described together."""
        return ()

    def distance(self, row: int) -> int:
        """Return the distance of a node from passing; the nearest node is described."""
        return 0

    def explain(self, row: int, members: Sequence[int]) -> tuple[Statement, ...]:
        """Return the statements about the nearest node of a group; `members` are all its rows."""
        return ()
