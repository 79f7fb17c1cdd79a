"""`FixTrial`: a pod on one node after the steps tried so far; steps are proposed from its refusal."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.preemption.node_filter import NodeFilter
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class FixTrial:
    """One pod on one node of a changed cluster state."""

    cluster_state: ClusterState
    settings: SchedulerProfile
    pod_info: PodInfo
    node_filter: NodeFilter
    row: int

    @property
    def snapshot(self) -> Snapshot:
        return self.cluster_state.snapshot

    @property
    def pod(self) -> Pod:
        return self.pod_info.stored

    @property
    def node(self) -> Node:
        return self.snapshot.node(self.row)

    @property
    def name(self) -> str:
        return self.node.metadata.name
