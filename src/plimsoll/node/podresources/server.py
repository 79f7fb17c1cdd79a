"""PodResources on its socket: all of `v1`, and List of `v1alpha1` (document 004).

Owns the calls: what is counted, what is refused and in which words. Promises: the socket belongs to its owner
alone (0600, in a folder of 0750), no caller can make the node work harder than the limit allows, and a fault
of ours is told to the caller and counted, and ends nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
from prometheus_client import CollectorRegistry

from plimsoll.api.gates import Gates
from plimsoll.errors import ConfigError
from plimsoll.node.podresources.metrics import EndpointMetrics
from plimsoll.node.podresources.pod_view import Switches
from plimsoll.node.podresources.rate_limit import Limit, Tokens
from plimsoll.node.podresources.response_cache import Answers
from plimsoll.node.podresources.source import Source
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.protocols.messages import podresources_v1alpha1 as v1alpha1

_log = logging.getLogger("plimsoll.podresources")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"

RATE_LIMITED = "rejected by rate limit"
GET_DISABLED = "PodResources API Get method disabled"
#: No name in Kubernetes is longer.
_LONGEST_NAME = 253


class PodResourcesServer:
    """Serves what a source knows, from `start` to `stop`.

    Pods that have ended are left out of List (`active_only`), as the kubelet does unless its gate
    KubeletPodResourcesListUseActivePods is off; Get never finds them. No limit: as many calls as come.
    """

    def __init__(
        self,
        path: Path,
        source: Source,
        gates: Gates | None = None,
        registry: CollectorRegistry | None = None,
        limit: Limit | None = Limit(),  # noqa: B008 - a frozen value
        *,
        active_only: bool = True,
        largest: int = rpc.LARGEST_MESSAGE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.metrics = EndpointMetrics()
        self._switches = Switches.of(gates or Gates.all_on())
        self._answers = Answers(source, self._switches, active_only=active_only)
        self._registry = registry
        self._tokens = None if limit is None else Tokens(limit)
        self._largest = largest
        self._clock = clock
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Open the socket; ConfigError if it cannot be had."""
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
            folder.chmod(0o750)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}") from None
        methods: dict[str, rpc.Unary] = {
            "List": self._list,
            "Get": self._get,
            "GetAllocatableResources": self._get_allocatable,
        }
        # DIFF: a kubelet's socket is 0755, and only the folder around it keeps others out; here it is 0600
        # (test_the_socket_belongs_to_its_owner_alone).
        self._server = await rpc.serve(
            self.path,
            (
                rpc.handle(v1.DESCRIPTOR, "PodResourcesLister", methods),
                rpc.handle(v1alpha1.DESCRIPTOR, "PodResourcesLister", {"List": self._list_alpha}),
            ),
            largest=self._largest,
        )
        if self._registry is not None:
            self._registry.register(self.metrics)

    async def stop(self, grace: float = 1.0) -> None:
        """Close the socket; calls under way have `grace` seconds to end."""
        server, self._server = self._server, None
        if server is None:
            return
        await server.stop(grace)
        if self._registry is not None:
            self._registry.unregister(self.metrics)

    # -- calls

    async def _list(self, _: v1.ListPodResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("list")
        return await self._reply(context, "list", self._answers.list)

    async def _list_alpha(self, _: v1alpha1.ListPodResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("list", "v1alpha1")
        return await self._reply(context, "list", self._answers.list_alpha, "v1alpha1")

    async def _get_allocatable(self, _: v1.AllocatableResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("get_allocatable")
        return await self._reply(context, "get_allocatable", self._answers.allocatable)

    async def _get(self, request: v1.GetPodResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("get")
        name, namespace = request.pod_name, request.pod_namespace
        if not self._switches.get:
            # DIFF: a kubelet of 1.36 with this gate off does not open the socket at all, older ones answer as
            # here; document 004 wants a well-known error (test_get_is_refused_while_its_gate_is_off).
            await self._refuse(context, "get", GET_DISABLED)
        found = await self._reply(context, "get", lambda: self._answers.get(namespace, name) or b"")
        if not found:
            # DIFF: a name that no pod can have is not repeated at length: it would not fit into the answer's
            # headers (test_long_names_are_not_repeated).
            await self._refuse(
                context, "get", f"pod {_short(name)} in namespace {_short(namespace)} not found"
            )
        return found

    async def _admit(self, context: Context) -> None:
        if self._tokens is not None and not self._tokens.take(self._clock()):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, RATE_LIMITED)

    async def _reply(
        self, context: Context, method: str, make: Callable[[], bytes], version: str = "v1"
    ) -> bytes:
        try:
            reply = make()
        except Exception:
            # Whatever is wrong with one pod or claim, the node and its other callers go on.
            _log.exception("no answer to %s could be made", method)
            self.metrics.failed(method, version)
            await context.abort(grpc.StatusCode.INTERNAL, "the answer could not be made; see the log")
        if len(reply) > self._largest:
            self.metrics.failed(method, version)
            text = f"the answer has {len(reply)} bytes, at most {self._largest} can be sent"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        return reply

    async def _refuse(self, context: Context, method: str, text: str) -> NoReturn:
        """As an error of Go's without a code arrives: UNKNOWN."""
        self.metrics.failed(method)
        await context.abort(grpc.StatusCode.UNKNOWN, text)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
