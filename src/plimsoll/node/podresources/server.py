"""PodResources server on its socket: all of `v1`, and List of `v1alpha1` (KEP-3695).

Guarantees that only the owner can use the socket (0600, in a directory of mode 0750), that no caller can
cause more work than the rate limit allows, and that an internal error is reported to the caller and counted,
and stops nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias

from plimsoll.api.gates import Gates
from plimsoll.common.metrics import MetricRegistry
from plimsoll.common.rate_limit import TokenBucket
from plimsoll.errors import ConfigError
from plimsoll.node.podresources.metrics import EndpointMetrics
from plimsoll.node.podresources.pod_view import PodResourcesGates
from plimsoll.node.podresources.response_cache import ResponseCache
from plimsoll.node.podresources.source import PodResourcesSource
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.protocols.messages import podresources_v1alpha1 as v1alpha1

_log = logging.getLogger("plimsoll.podresources")

Context: TypeAlias = rpc.CallContext

RATE_LIMITED = "rejected by rate limit"
GET_DISABLED = "PodResources API Get method disabled"
#: Maximum length of a name in Kubernetes.
_MAX_NAME_LENGTH = 253


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Calls per second, and burst; the defaults are the kubelet's."""

    per_second: float = 100.0
    burst: int = 10


class PodResourcesServer:
    """Server of a source's data, from `start` to `stop`.

    Terminated pods are left out of List (`active_only`), as in the kubelet unless its gate
    KubeletPodResourcesListUseActivePods is off; Get never finds them. A limit of None disables rate limiting.
    """

    def __init__(
        self,
        path: Path,
        source: PodResourcesSource,
        gates: Gates | None = None,
        registry: MetricRegistry | None = None,
        limit: RateLimit | None = RateLimit(),  # noqa: B008 - a frozen value
        *,
        active_only: bool = True,
        max_bytes: int = rpc.MAX_MESSAGE_SIZE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.metrics = EndpointMetrics()
        self._gates = PodResourcesGates.of(gates or Gates.default())
        self._responses = ResponseCache(source, self._gates, active_only=active_only)
        self._registry = registry
        self._tokens = None if limit is None else TokenBucket(limit.per_second, limit.burst, clock=clock)
        self._max_bytes = max_bytes
        self._server: rpc.RpcServer | None = None

    async def start(self) -> None:
        """Open the socket; raise ConfigError if that fails."""
        directory = self.path.parent
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            directory.chmod(0o750)
        except OSError as error:
            raise ConfigError(f"{directory}: {error.strerror}") from None
        methods: dict[str, rpc.Unary] = {
            "List": self._list,
            "Get": self._get,
            "GetAllocatableResources": self._get_allocatable,
        }
        # DIFF: a kubelet's socket is 0755, and only its directory keeps others out; here it is 0600
        # (test_only_the_owner_can_open_the_socket).
        self._server = await rpc.serve(
            self.path,
            (
                rpc.handle(v1.DESCRIPTOR, "PodResourcesLister", methods),
                rpc.handle(v1alpha1.DESCRIPTOR, "PodResourcesLister", {"List": self._list_alpha}),
            ),
            max_size=self._max_bytes,
        )
        if self._registry is not None:
            self._registry.register(self.metrics)

    async def stop(self, grace: float = 1.0) -> None:
        """Close the socket; calls in progress have `grace` seconds to finish."""
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
        return await self._reply(context, "list", self._responses.list)

    async def _list_alpha(self, _: v1alpha1.ListPodResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("list", "v1alpha1")
        return await self._reply(context, "list", self._responses.list_alpha, "v1alpha1")

    async def _get_allocatable(self, _: v1.AllocatableResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("get_allocatable")
        return await self._reply(context, "get_allocatable", self._responses.allocatable)

    async def _get(self, request: v1.GetPodResourcesRequest, context: Context) -> bytes:
        await self._admit(context)
        self.metrics.called("get")
        name, namespace = request.pod_name, request.pod_namespace
        if not self._gates.get:
            # DIFF: a kubelet of 1.36 with this gate off does not open the socket at all, older ones respond
            # as here; KEP-3695 requires a well-known error (test_get_is_refused_while_its_gate_is_off).
            await self._abort(context, "get", GET_DISABLED)
        found = await self._reply(context, "get", lambda: self._responses.get(namespace, name) or b"")
        if not found:
            # DIFF: an overlong name is truncated in the error: it would not fit into the response headers
            # (test_long_names_are_not_repeated).
            await self._abort(
                context, "get", f"pod {_truncate(name)} in namespace {_truncate(namespace)} not found"
            )
        return found

    async def _admit(self, context: Context) -> None:
        if self._tokens is not None and not self._tokens.try_take():
            await context.abort(rpc.StatusCode.RESOURCE_EXHAUSTED, RATE_LIMITED)

    async def _reply(
        self, context: Context, method: str, make: Callable[[], bytes], version: str = "v1"
    ) -> bytes:
        try:
            reply = make()
        except Exception:
            # Whatever is wrong with one pod or claim, the node and its other callers are not affected.
            _log.exception("building the response to %s failed", method)
            self.metrics.failed(method, version)
            await context.abort(rpc.StatusCode.INTERNAL, "the response could not be built; see the log")
        if len(reply) > self._max_bytes:
            self.metrics.failed(method, version)
            text = f"the response has {len(reply)} bytes, the maximum is {self._max_bytes}"
            await context.abort(rpc.StatusCode.RESOURCE_EXHAUSTED, text)
        return reply

    async def _abort(self, context: Context, method: str, text: str) -> NoReturn:
        """Abort as a Go error without a code arrives: UNKNOWN."""
        self.metrics.failed(method)
        await context.abort(rpc.StatusCode.UNKNOWN, text)


def _truncate(name: str) -> str:
    return name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}..."
