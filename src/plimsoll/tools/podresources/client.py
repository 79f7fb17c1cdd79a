"""`PodResourcesClient`: client of a kubelet's PodResources socket (KEP-3695, docs/spec/keps.md).

Rate-limited calls are retried; every other failure is an InputError with a one-line fix. Works with any
kubelet.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

from plimsoll.client.retries import Backoff
from plimsoll.errors import InputError
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import podresources_v1 as v1

#: Default socket of a kubelet.
SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
#: Maximum size of a response; kubelets send a few MiB at most.
_LARGEST = 64 * 1024 * 1024
_ATTEMPTS = 8
_PROBE_SECONDS = 2.0

_LIST = rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", "List")
_GET = rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", "Get")
_GET_ALLOCATABLE = rpc.find_method(v1.DESCRIPTOR, "PodResourcesLister", "GetAllocatableResources")

_UNREACHABLE = {
    errno.ENOENT: "no such socket; check that a kubelet is running, or pass its socket with --socket",
    errno.ENOTDIR: "no such socket; pass the kubelet's socket with --socket",
    errno.EACCES: "permission denied; only root may use a kubelet's socket",
    errno.EPERM: "permission denied; only root may use a kubelet's socket",
    errno.ECONNREFUSED: "connection refused; the kubelet has exited, or it is not a socket",
    errno.EPROTOTYPE: "not a stream socket",
}


@dataclass(frozen=True, slots=True)
class PodNotFound:
    """The kubelet does not have the pod, or it has terminated; the text is the kubelet's."""

    message: str


def check_socket(path: Path) -> None:
    """Raise InputError if the socket does not accept connections."""
    rpc.check_path(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except TimeoutError:
            raise InputError(f"{path}: connection timed out") from None
        except OSError as error:
            why = _UNREACHABLE.get(error.errno or 0, error.strerror or str(error))
            raise InputError(f"{path}: {why}") from None


class PodResourcesClient:
    """Client of one kubelet; use as an async context manager."""

    def __init__(
        self,
        path: Path = SOCKET,
        *,
        timeout: float = 10.0,
        attempts: int = _ATTEMPTS,
        backoff: Backoff | None = None,
        rng: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.path = path
        #: Number of rate-limited calls.
        self.rate_limited = 0
        self._timeout = timeout
        self._attempts = max(1, attempts)
        self._backoff = backoff or Backoff(first=0.05, most=1.0)
        self._rng = rng or Random()
        self._sleep = sleep
        self._channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> PodResourcesClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await rpc.close(channel)

    async def list(self) -> v1.ListPodResourcesResponse:
        """Return all pods that have not terminated."""
        answer = await self._call(_LIST, v1.ListPodResourcesRequest())
        assert isinstance(answer, v1.ListPodResourcesResponse)
        return answer

    async def get(self, namespace: str, name: str) -> v1.GetPodResourcesResponse | PodNotFound:
        """Return one pod."""
        request = v1.GetPodResourcesRequest(pod_name=name, pod_namespace=namespace)
        answer = await self._call(_GET, request)
        assert isinstance(answer, v1.GetPodResourcesResponse | PodNotFound)
        return answer

    async def allocatable(self) -> v1.AllocatableResourcesResponse:
        """Return the allocatable CPUs, memory and device plugin devices."""
        answer = await self._call(_GET_ALLOCATABLE, v1.AllocatableResourcesRequest())
        assert isinstance(answer, v1.AllocatableResourcesResponse)
        return answer

    async def _call(self, method: MethodDescriptor, request: Message) -> Any:
        for attempt in range(1, self._attempts + 1):
            if self._channel is None:
                await asyncio.to_thread(check_socket, self.path)
                self._channel = rpc.dial(self.path, max_size=_LARGEST)
            try:
                return await rpc.call(self._channel, method, request, timeout=self._timeout)
            except grpc.aio.AioRpcError as error:
                if is_rate_limited(error):
                    self.rate_limited += 1
                    if attempt < self._attempts:
                        await self._sleep(self._backoff.delay(attempt, self._rng))
                        continue
                await self.close()
                return self._explain(method, error)
        raise AssertionError("unreachable")

    def _explain(self, method: MethodDescriptor, error: grpc.aio.AioRpcError) -> PodNotFound:
        """Convert an RPC error to PodNotFound or raise InputError."""
        code, text = error.code(), _one_line(error.details() or "")
        status = grpc.StatusCode
        if method is _GET and code in (status.UNKNOWN, status.NOT_FOUND) and text.endswith("not found"):
            return PodNotFound(text)
        if is_rate_limited(error):
            why = f"{text}, {self._attempts} times in a row: other clients call this kubelet too often"
        elif code is status.UNIMPLEMENTED or (method is _GET and text.endswith("Get method disabled")):
            why = f"this server has no {method.name}"
            if method is _GET:
                why += " (kubelets have it since 1.34, before that with the feature gate"
                why += " KubeletPodResourcesGet); `plimsoll podresources list` shows all pods"
        elif code is status.DEADLINE_EXCEEDED:
            why = f"no response to {method.name} within {self._timeout:g} s"
        elif code is status.UNAVAILABLE:
            why = f"connection lost, or not a gRPC server: {text}"
        else:
            why = f"{method.name} failed: {code.name}: {text}"
        raise InputError(f"{self.path}: {why}")


def is_rate_limited(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a call was rate-limited; oversized messages have the same code."""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "rate limit" in (error.details() or "")


def _one_line(text: str) -> str:
    return " ".join(text.split())
