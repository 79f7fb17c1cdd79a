"""Node agent: cases that need exact timing."""

from __future__ import annotations

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from tests.playbooks.node_harness import running


async def test_a_pod_that_changes_while_the_agent_stops_starts_no_worker() -> None:
    """The pod informer runs until all agents have stopped."""
    deleted = convert(
        {
            "metadata": {
                "name": "a",
                "namespace": "default",
                "uid": "u",
                "deletionTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"nodeName": "n", "containers": [{"name": "c"}]},
            "status": {"phase": "Succeeded"},
        },
        Pod,
    )
    async with running(driver=False) as harness:  # nothing may be left running at its end
        agent = harness.agent
        await harness.stop_agent()
        agent.pod_added(deleted)
        agent.pod_changed(deleted, deleted)
