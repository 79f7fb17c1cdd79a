"""Interface of the node process to an agent.

An agent receives the pods of its node: first the full list, then single changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from plimsoll.api.core import Pod
from plimsoll.node.admission.admission_handler import AdmissionHandler
from plimsoll.node.status.reporter import NodeStatusReporter


class AgentLike(Protocol):
    """Agent of one node."""

    name: str
    status_reporter: NodeStatusReporter
    admission_handler: AdmissionHandler

    async def start(self) -> None:
        """Adopt running containers, open the sockets and start registering; pods follow later."""
        ...

    async def stop(self) -> None:
        """Stop in order; containers keep running and the Node object stays."""
        ...

    def pods_listed(self, pods: Sequence[Pod]) -> None:
        """Handle the initial list of the node's pods; those admitted before a restart come first."""
        ...

    def pod_added(self, pod: Pod) -> None: ...

    def pod_changed(self, old: Pod, new: Pod) -> None: ...

    def pod_removed(self, old: Pod) -> None: ...

    def describe_cgroups(self) -> dict[str, Any]:
        """Describe the applied cgroup settings, or those that would be applied if cgroups were available."""
        ...

    def cgroup_counts(self) -> tuple[int, int]:
        """Return how many times cgroups were found removed, and how many times they were created again."""
        ...

    def pods(self) -> Sequence[Pod]:
        """Return the pods the agent knows."""
        ...
