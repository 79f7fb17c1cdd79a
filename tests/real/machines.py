"""Simulated kubelets: pods are bound, reported as running, and deleted.

What a scheduler and kubelets do as far as controllers notice it. A pod is bound to a machine it may be on,
becomes ready there (or succeeds, if it is one that ends), and is gone once it is deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import ApiError

Tree = dict[str, Any]


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Machines:
    """Identical nodes. `order` lists pods (namespace/name) in the order in which they became ready."""

    def __init__(self, client: Client, *names: str) -> None:
        self._client = client
        self._names = names
        self._count = 0
        self.order: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Machines]:
        for name in self._names:
            await self._add(name)
        work = asyncio.create_task(self._follow())
        try:
            yield self
        finally:
            work.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _add(self, name: str) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "is ready"}
        ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}
        with suppress(ApiError):  # it is there already
            await self._client.create(NODES, node)

    async def _follow(self) -> None:
        listing = await self._client.list(PODS)
        for raw in listing.items:
            await self._see(codec.decode_tree(raw))
        async with aclosing(self._client.watch(PODS, since=listing.revision)) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    await self._see(codec.decode_tree(event.raw))

    async def _see(self, pod: Tree) -> None:
        """Take the next step with a pod; stale objects are retried."""
        with suppress(ApiError):
            name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
            if "deletionTimestamp" in pod["metadata"]:
                uid = pod["metadata"]["uid"]
                await self._client.delete(PODS, name, namespace, uid=uid, grace=0)
            elif not pod["spec"].get("nodeName"):
                await self._bind(pod)
            elif pod["status"].get("phase") == "Pending":
                await self._run(pod)

    async def _bind(self, pod: Tree) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._count += 1
        node = _demanded(pod) or self._names[self._count % len(self._names)]
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self._client.post(PODS, name, "binding", binding, namespace)

    async def _run(self, pod: Tree) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self._count += 1
        ends = pod["spec"]["restartPolicy"] != "Always"
        address = f"10.1.{self._count // 250}.{self._count % 250 + 1}"
        ready = {"type": "Ready", "status": "False" if ends else "True", "lastTransitionTime": now()}
        state = (
            {"terminated": {"exitCode": 0, "startedAt": now(), "finishedAt": now()}}
            if ends
            else {"running": {"startedAt": now()}}
        )
        statuses = [
            {"name": one["name"], "image": one["image"], "imageID": "", "ready": not ends, "restartCount": 0}
            | {"started": True, "state": state}
            for one in pod["spec"]["containers"]
        ]
        status = {
            "phase": "Succeeded" if ends else "Running",
            "startTime": now(),
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [ready],
            "containerStatuses": statuses,
        }
        # Strategic, as kubelets do: conditions that others have set meanwhile are kept.
        await self._client.patch(
            PODS, name, {"status": status}, namespace, subresource="status", type="strategic"
        )
        self.order.append(f"{namespace}/{name}")


def _demanded(pod: Tree) -> str:
    """Return the node that a pod of a daemon set requires."""
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms", ()):
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name":
                return str(field["values"][0])
    return ""
