"""Calls of one driver: NodePrepareResources and NodeUnprepareResources of both versions.

Enforces the deadlines and classifies failures. Guarantees not to raise for anything a driver does; only the
caller's own cancellation is propagated.
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

from plimsoll.node.claim_info import PREPARE, ClaimRef, DriverFault
from plimsoll.node.plugins.metrics import DraMetrics, code_name
from plimsoll.node.plugins.plugin_info import V1, V1BETA1, truncate
from plimsoll.node.plugins.responses import MAX_TEXT_LENGTH
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, dra_v1beta1

_MESSAGES: dict[str, ModuleType] = {V1: dra_v1, V1BETA1: dra_v1beta1}


@dataclass(frozen=True, slots=True)
class FailedCall:
    """Failed call."""

    code: grpc.StatusCode
    details: str

    def __str__(self) -> str:
        return f"rpc error: code = {code_name(self.code)} desc = {truncate(self.details, MAX_TEXT_LENGTH)}"


async def try_call(call: Any) -> Any:
    """Return a call's response, or its failure; a cancellation of the caller is always propagated."""
    try:
        response = await call
    except grpc.aio.AioRpcError as error:
        return FailedCall(error.code(), error.details() or "")
    except asyncio.CancelledError:
        # A call also ends this way when its channel is closed. That is not a cancellation of the caller.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        return FailedCall(grpc.StatusCode.CANCELLED, "grpc: the client connection is closing")
    except (grpc.aio.UsageError, grpc.RpcError) as error:
        return FailedCall(grpc.StatusCode.CANCELLED, str(error))
    if response is None:
        return FailedCall(grpc.StatusCode.INTERNAL, "the response cannot be decoded")
    return response


async def call_driver(
    channel: grpc.aio.Channel,
    service: str,
    method: str,
    driver: str,
    claims: Sequence[ClaimRef],
    metrics: DraMetrics,
    *,
    timeout: float,
) -> Any:
    """Return a driver's response message, or a fault."""
    messages = _MESSAGES[service]
    request_type = (
        messages.NodePrepareResourcesRequest if method == PREPARE else messages.NodeUnprepareResourcesRequest
    )
    request = request_type(
        claims=[messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
    )
    descriptor = rpc.find_method(messages.DESCRIPTOR, "DRAPlugin", method)
    start = time.monotonic()
    response = await try_call(rpc.call(channel, descriptor, request, timeout=timeout))
    code = response.code if isinstance(response, FailedCall) else grpc.StatusCode.OK
    metrics.call(driver, rpc.method_path(descriptor), code, time.monotonic() - start)
    if isinstance(response, FailedCall):
        kind = "timeout" if response.code is grpc.StatusCode.DEADLINE_EXCEEDED else "broken"
        return DriverFault(driver, kind, f"{method}: {response}")
    return response
