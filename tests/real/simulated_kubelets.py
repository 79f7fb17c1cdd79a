"""Simulated kubelets without the feature gate: admission by our node agent's handler, and pods that end.

Pods are decided about in the order in which they are seen, by the requests in their specs alone. What is
admitted counts until the API server has seen it end. `ENDS` says when a pod's only container ends.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.client import Client
from plimsoll.client.endpoints import NODES, PODS
from plimsoll.errors import ApiError
from plimsoll.node.admission.admission_handler import AdmissionHandler, age_key, is_terminal
from tests.manifests import NODE_STATUS

Tree = dict[str, Any]
#: Annotation: seconds after its start, and exit code.
ENDS = "test.example.com/ends"
_GATES = Gates.of({"DRANodeAllocatableResources": False})


class SimulatedKubelets:
    """Kubelets of several nodes."""

    def __init__(self, client: Client, *, delay: float = 0.05) -> None:
        """Create kubelets; their writes come up to `delay` seconds late."""
        self._client = client
        self._delay = delay
        self._handlers: dict[str, AdmissionHandler] = {}
        self._known: dict[str, str] = {}  #: nodes of the pods that were decided about
        self._deleting: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._random = random.Random(1)

    async def add(self, name: str, amounts: Mapping[str, str], labels: Mapping[str, str]) -> None:
        """Register a node. Call before `running`."""
        status = NODE_STATUS | {"allocatable": dict(amounts), "capacity": dict(amounts)}
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
        await self._client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        tree = await self._client.patch(NODES, name, {"status": status}, subresource="status")
        # the API server taints nodes that are not ready yet
        await self._client.patch(NODES, name, {"spec": {"taints": None}})
        self._handlers[name] = AdmissionHandler(codec.convert(tree, Node), gates=_GATES)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        work = asyncio.create_task(self._run())
        try:
            yield
        finally:
            for task in (work, *self._tasks):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await work

    async def _run(self) -> None:
        while True:
            with suppress(ApiError):  # the server is away, or the watch has expired
                await self._follow()
            await asyncio.sleep(0.1)

    async def _follow(self) -> None:
        # Everything that is there comes in one batch: by age, as kubelets sort what they add.
        listing = await self._client.list(PODS, fields="spec.nodeName!=")
        pods = [codec.decode(raw, Pod) for raw in listing.items]
        left = {pod.metadata.uid for pod in pods}
        for uid in [uid for uid in self._known if uid not in left]:
            self._forget(uid)
        for pod in sorted(pods, key=age_key):
            self._see(pod)
        watch = self._client.watch(PODS, since=listing.revision, fields="spec.nodeName!=")
        async with aclosing(watch) as events:
            async for event in events:
                if event.type in ("ADDED", "MODIFIED"):
                    self._see(codec.decode(event.raw, Pod))
                elif event.type == "DELETED":
                    self._forget(codec.decode(event.raw, Pod).metadata.uid)

    def _see(self, pod: Pod) -> None:
        handler, uid = self._handlers.get(pod.spec.node_name), pod.metadata.uid
        if handler is None:
            return
        if pod.metadata.deletion_timestamp is not None:
            if uid not in self._deleting:
                self._deleting.add(uid)
                self._start(self._end(pod))
        elif uid not in self._known and not is_terminal(pod):
            self._known[uid] = pod.spec.node_name
            result = handler.admit(pod)
            if result.admit:
                self._start(self._serve(pod))
            else:
                status = {
                    "phase": "Failed",
                    "reason": result.reason,
                    "message": f"Pod was rejected: {result.message}",
                }
                self._start(self._write(pod, {"startTime": _now(), **status}))
        if is_terminal(pod):
            handler.remove(uid)

    def _forget(self, uid: str) -> None:
        node = self._known.pop(uid, None)
        self._deleting.discard(uid)
        if node is not None:
            self._handlers[node].remove(uid)

    async def _serve(self, pod: Pod) -> None:
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": _now()}
        await self._write(pod, {"phase": "Running", "startTime": _now(), "conditions": [ready]})
        text = pod.metadata.annotations.get(ENDS)
        if text:
            seconds, code = json.loads(text)
            await asyncio.sleep(seconds)
            await self._write(pod, {"phase": "Failed" if code else "Succeeded"})

    async def _end(self, pod: Pod) -> None:
        await asyncio.sleep(self._random.random() * 4 * self._delay)
        meta = pod.metadata
        await self._retry(self._client.delete, PODS, meta.name, meta.namespace, uid=meta.uid, grace=0)

    async def _write(self, pod: Pod, status: Tree) -> None:
        await asyncio.sleep(self._random.random() * self._delay)
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        await self._retry(
            self._client.patch, PODS, meta.name, patch, meta.namespace, subresource="status", type="strategic"
        )

    async def _retry(self, call: Any, *words: Any, **options: Any) -> None:
        """Repeat a write while the server is away."""
        while True:
            try:
                await call(*words, **options)
            except ApiError as error:
                if error.code in (404, 409, 422):  # the pod is gone, or another one has its name
                    return
                await asyncio.sleep(0.2)
            else:
                return

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
