"""Pod lifecycle events: relists of the runtime, its container events, and its readiness.

The runtime is listed every second, or when it reports a container event; while it does, periodic relists are
rare. The state of a container is read only if it has changed. A runtime that does not respond keeps its last
known state, and the node is not Ready until it responds again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from plimsoll.common.tasks import at_most
from plimsoll.errors import RuntimeCallError
from plimsoll.node.runtime.cri import names
from plimsoll.node.runtime.cri.cache import RuntimeCache
from plimsoll.node.runtime.cri.client import NOT_FOUND, UNIMPLEMENTED, CriClient
from plimsoll.node.runtime.cri.container_status import (
    CriContainer,
    CriSandbox,
    phase_of,
    read_container,
    read_sandbox,
)
from plimsoll.node.runtime.cri.settings import CriTiming
from plimsoll.protocols.messages import cri

_log = logging.getLogger("plimsoll.node.runtime.cri")
#: Conditions that a runtime must report as true.
_CONDITIONS = ("RuntimeReady", "NetworkReady")


class PodLifecycleEvents:
    """Keeps the cache of a runtime up to date, and reports the pods that have changed."""

    def __init__(
        self,
        client: CriClient,
        cache: RuntimeCache,
        owner: str,
        timing: CriTiming,
        *,
        node_ip: Callable[[], str],
        changed: Callable[[str], None],
        relisted: Callable[[], None],
        set_ready: Callable[[str], None],
    ) -> None:
        """Create it. `changed` takes the UID of a pod, `relisted` is called after every relist, `set_ready`
        takes the problem of the runtime, or "".
        """
        self._client = client
        self._cache = cache
        self._owner = owner
        self._timing = timing
        self._node_ip = node_ip
        self._changed = changed
        self._relisted = relisted
        self._set_ready = set_ready
        self._busy = asyncio.Lock()
        self._wake = asyncio.Event()
        self._has_events = False
        self._relist_problem = ""

    # -- loops

    async def run_relists(self) -> None:
        """Relist periodically, and after container events."""
        while True:
            seconds = self._timing.relist_with_events if self._has_events else self._timing.relist
            async with at_most(seconds):
                await self._wake.wait()
            self._wake.clear()
            try:
                await self.relist()
                self._relist_problem = ""
            except RuntimeCallError as error:
                if str(error) != self._relist_problem:
                    _log.warning("the runtime cannot be listed: %s", error)
                self._relist_problem = str(error)

    async def run_events(self) -> None:
        """Wait for container events, and connect again when the stream breaks."""
        while True:
            try:
                stream = self._client.events()
                self._has_events = True
                async for _ in stream:
                    self._wake.set()
                problem = "the runtime has closed the stream of container events"
            except RuntimeCallError as error:
                problem = str(error)
                if error.code == UNIMPLEMENTED:
                    _log.info("the runtime has no container events; it is listed every second")
                    return
            finally:
                self._has_events = False
                self._wake.set()
            _log.debug("%s", problem)
            await asyncio.sleep(self._timing.relist)

    async def run_status_checks(self) -> None:
        """Check periodically whether the runtime and its network are ready."""
        while True:
            self._set_ready(await self.check_status())
            await asyncio.sleep(self._timing.status)

    async def check_status(self) -> str:
        """Return why the runtime cannot run pods, in the kubelet's words, or ""."""
        try:
            response = await self._client.call(
                "Status", cri.StatusRequest(), timeout=max(self._timing.status, 1.0)
            )
        except RuntimeCallError as error:
            return f"container runtime is down: {error}"
        conditions = {condition.type: condition for condition in response.status.conditions}
        for name in _CONDITIONS:
            found = conditions.get(name)
            if found is None or not found.status:
                why = (
                    f"reason:{found.reason} message:{found.message}" if found is not None else "not reported"
                )
                what = "network" if name == "NetworkReady" else "container runtime"
                return f"{what} is not ready: {name}=false {why}"
        return ""

    # -- relists

    async def try_relist(self) -> None:
        """Relist, if the runtime responds."""
        try:
            await self.relist()
        except RuntimeCallError as error:
            _log.debug("relist failed: %s", error)

    async def relist(self) -> None:
        """List all sandboxes and containers of this node, and read what has changed."""
        async with self._busy:
            cache, mark = self._cache, self._cache.mark()
            selector = {names.OWNER: self._owner}
            boxes = await self._client.call(
                "ListPodSandbox",
                cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector=selector)),
            )
            containers = await self._client.call(
                "ListContainers",
                cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=selector)),
            )
            new_boxes = [await self.read_sandbox(box.id) for box in boxes.items if self._is_new_sandbox(box)]
            new_containers = {
                each.id: await self.read_container(each.id, each.pod_sandbox_id)
                for each in containers.containers
                if self._is_new_container(each)
            }
            changed = cache.apply(
                mark,
                {each.id for each in (*boxes.items, *containers.containers)},
                [box for box in new_boxes if box is not None],
                {id: each for id, each in new_containers.items() if each is not None},
            )
        for uid in sorted(changed):
            self._changed(uid)
        self._relisted()

    def _is_new_sandbox(self, listed: Any) -> bool:
        known = self._cache.sandboxes.get(listed.id)
        return known is None or known.info.running != (listed.state == cri.SANDBOX_READY)

    def _is_new_container(self, listed: Any) -> bool:
        known = self._cache.containers.get(listed.id)
        unknown = listed.state == cri.CONTAINER_UNKNOWN
        return known is None or known.unknown != unknown or known.info.phase is not phase_of(listed.state)

    async def read_sandbox(self, id: str) -> CriSandbox | None:
        """Read the state of a sandbox; None if it does not exist."""
        try:
            response = await self._client.call(
                "PodSandboxStatus", cri.PodSandboxStatusRequest(pod_sandbox_id=id)
            )
        except RuntimeCallError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return read_sandbox(response.status, self._node_ip())

    async def read_container(self, id: str, sandbox: str) -> CriContainer | None:
        """Read the state of a container; None if it does not exist."""
        request = cri.ContainerStatusRequest(container_id=id, verbose=True)
        try:
            response = await self._client.call("ContainerStatus", request)
        except RuntimeCallError as error:
            if error.code == NOT_FOUND:
                return None
            raise
        return await asyncio.to_thread(read_container, response.status, sandbox, response.info)
