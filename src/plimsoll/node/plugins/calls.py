"""Calls to one driver: NodePrepareResources and NodeUnprepareResources of both versions.

Owns the calls' deadlines and what becomes of calls that fail. Promises: never raises for anything a driver
does; only the caller's own cancellation passes through.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import grpc
import grpc.aio

from plimsoll.node.claim_info import ClaimRef, DriverFault
from plimsoll.node.plugins.metrics import DraMetrics, code_name
from plimsoll.node.plugins.plugin_info import V1, V1BETA1, cut
from plimsoll.node.plugins.responses import LONGEST_TEXT, PREPARE
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, dra_v1beta1

_MESSAGES: dict[str, ModuleType] = {V1: dra_v1, V1BETA1: dra_v1beta1}


@dataclass(frozen=True, slots=True)
class Failed:
    """A call without an answer."""

    code: grpc.StatusCode
    details: str

    def __str__(self) -> str:
        return f"rpc error: code = {code_name(self.code)} desc = {cut(self.details, LONGEST_TEXT)}"


async def attempt(call: Any) -> Any:
    """A call's answer, or how it failed; a caller that is cancelled is, whatever the call does."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as error:
        return Failed(error.code(), error.details() or "")
    except asyncio.CancelledError:
        # A call also ends like this when its channel is closed under it. That is no wish of the caller.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return Failed(grpc.StatusCode.CANCELLED, "grpc: the client connection is closing")
    except (grpc.aio.UsageError, grpc.RpcError) as error:
        return Failed(grpc.StatusCode.CANCELLED, str(error))
    if answer is None:
        return Failed(grpc.StatusCode.INTERNAL, "the answer cannot be read")
    return answer


async def ask(
    channel: grpc.aio.Channel,
    service: str,
    method: str,
    driver: str,
    claims: Sequence[ClaimRef],
    metrics: DraMetrics,
    *,
    timeout: float,
) -> Any:
    """A driver's answer as its message, or a fault."""
    messages = _MESSAGES[service]
    request_type = (
        messages.NodePrepareResourcesRequest if method == PREPARE else messages.NodeUnprepareResourcesRequest
    )
    request = request_type(
        claims=[messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
    )
    descriptor = rpc.method_of(messages.DESCRIPTOR, "DRAPlugin", method)
    start = time.monotonic()
    answer = await attempt(rpc.call(channel, descriptor, request, timeout=timeout))
    code = answer.code if isinstance(answer, Failed) else grpc.StatusCode.OK
    metrics.call(driver, rpc.path_of(descriptor), code, time.monotonic() - start)
    if isinstance(answer, Failed):
        kind = "timeout" if answer.code is grpc.StatusCode.DEADLINE_EXCEEDED else "broken"
        return DriverFault(driver, kind, f"{method}: {answer}")
    return answer
