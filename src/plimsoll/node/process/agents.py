"""What a node process needs of an agent.

Owns `AgentLike`. An agent is given the pods of its node: all of them once, then one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from plimsoll.api.core import Pod
from plimsoll.node.admission.admission_handler import AdmissionHandler
from plimsoll.node.status.reporter import NodeStatusReporter


class AgentLike(Protocol):
    """One node's agent."""

    name: str
    status_reporter: NodeStatusReporter
    admission_handler: AdmissionHandler

    async def start(self) -> None:
        """Take over what is there, open the sockets, begin to register; pods come later."""
        ...

    async def stop(self) -> None:
        """End in order; containers go on running, the Node stays."""
        ...

    def pods_listed(self, pods: Sequence[Pod]) -> None:
        """All pods of the node, once: who was in before comes first."""
        ...

    def pod_added(self, pod: Pod) -> None: ...

    def pod_changed(self, old: Pod, new: Pod) -> None: ...

    def pod_removed(self, old: Pod) -> None: ...

    def show_cgroups(self) -> dict[str, Any]:
        """What is set in cgroups, or would be if they could be used."""
        ...

    def cgroup_counts(self) -> tuple[int, int]:
        """Number of times that cgroups were found to be removed, and created again."""
        ...

    def pods(self) -> Sequence[Pod]:
        """The pods the agent knows."""
        ...
