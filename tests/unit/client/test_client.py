"""Requests of the client, and its handling of errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client import Client, Endpoint
from plimsoll.client.endpoints import CONFIG_MAPS, NODES, PODS, RESOURCE_CLAIMS
from plimsoll.client.transport import Reply, Request, ResponseStream
from plimsoll.common.rate_limit import TokenBucket
from plimsoll.errors import ApiError, InputError, UnreachableError
from tests.unit.client.fake_api_server import refusal, reply

POD = {"kind": "Pod", "metadata": {"name": "p"}}


class Scripted:
    """Transport that answers in order; an exception in the script is raised."""

    def __init__(self, *script: Reply | Exception) -> None:
        self.script = list(script)
        self.requests: list[Request] = []
        self.renewals: list[bool] = []

    async def send(self, request: Request) -> Reply:
        self.requests.append(request)
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[ResponseStream]:
        answer = await self.send(request)

        async def chunks() -> AsyncIterator[bytes]:
            yield answer.body

        yield ResponseStream(answer.status, answer.headers, chunks())

    async def renew(self) -> bool:
        return self.renewals.pop(0)

    async def close(self) -> None:
        return None


def run_scenario(
    transport: Scripted, scenario: Callable[[Client], Awaitable[Any]], **settings: Any
) -> tuple[Any, list[float]]:
    """Run calls without waiting; return the result and the waits."""
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def run() -> Any:
        async with Client(transport, sleep=sleep, **settings) as client:
            return await scenario(client)

    return asyncio.run(run()), waits


def refused(
    transport: Scripted, scenario: Callable[[Client], Awaitable[Any]]
) -> tuple[ApiError, list[float]]:
    async def caught(client: Client) -> ApiError:
        with pytest.raises(ApiError) as info:
            await scenario(client)
        return info.value

    error, waits = run_scenario(transport, caught)
    return error, waits


# -- paths


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path("ns") == "/api/v1/namespaces/ns/pods"
    assert PODS.path("ns", "p", "status") == "/api/v1/namespaces/ns/pods/p/status"
    assert NODES.path("ns", "n") == "/api/v1/nodes/n"
    assert RESOURCE_CLAIMS.path("a/b", "c?") == (
        "/apis/resource.k8s.io/v1/namespaces/a%2Fb/resourceclaims/c%3F"
    )
    assert RESOURCE_CLAIMS.at("v1beta1").api_version == "resource.k8s.io/v1beta1"


# -- requests


async def every_call(client: Client) -> None:
    await client.get(PODS, "p")
    await client.get(PODS, "p", "ns", resource_version="0")
    await client.create(PODS, POD)
    await client.create(PODS, {"metadata": {"namespace": "own"}}, dry_run=True, field_validation="Strict")
    await client.post(PODS, "p", "binding", {"kind": "Binding"}, "ns")
    await client.update(PODS, POD, "ns", subresource="status")
    await client.patch(PODS, "p", {"a": 1}, "ns")
    await client.patch(PODS, "p", [], "ns", type="json")
    await client.patch(PODS, "p", {}, "ns", type="strategic", subresource="resize", dry_run=True)
    await client.patch(PODS, "p", {}, "ns", type="apply", force=True)
    await client.delete(PODS, "p", "ns", uid="u", revision="5", grace=0, propagation="Orphan")
    await client.delete_collection(PODS, "ns", labels="a=b", fields="c=d", dry_run=True)


def test_every_call_as_sent() -> None:
    transport = Scripted(*[reply(POD)] * 12)
    run_scenario(transport, every_call, user_agent="tester/2")
    found = [
        (
            request.method,
            request.path.removeprefix("/api/v1/namespaces/"),
            dict(request.query),
            request.headers.get("Content-Type", "").removeprefix("application/"),
            json.loads(request.body) if request.body is not None else None,
        )
        for request in transport.requests
    ]
    head = {"kind": "DeleteOptions", "apiVersion": "v1"}
    conditions = {"preconditions": {"uid": "u", "resourceVersion": "5"}}
    assert found == [
        ("GET", "default/pods/p", {}, "", None),
        ("GET", "ns/pods/p", {"resourceVersion": "0"}, "", None),
        ("POST", "default/pods", {}, "json", POD),
        (
            "POST",
            "own/pods",
            {"dryRun": "All", "fieldValidation": "Strict"},
            "json",
            {"metadata": {"namespace": "own"}},
        ),
        ("POST", "ns/pods/p/binding", {}, "json", {"kind": "Binding"}),
        ("PUT", "ns/pods/p/status", {}, "json", POD),
        ("PATCH", "ns/pods/p", {}, "merge-patch+json", {"a": 1}),
        ("PATCH", "ns/pods/p", {}, "json-patch+json", []),
        ("PATCH", "ns/pods/p/resize", {"dryRun": "All"}, "strategic-merge-patch+json", {}),
        ("PATCH", "ns/pods/p", {"fieldManager": "tester", "force": "true"}, "apply-patch+yaml", {}),
        (
            "DELETE",
            "ns/pods/p",
            {},
            "json",
            {**head, **conditions, "gracePeriodSeconds": 0, "propagationPolicy": "Orphan"},
        ),
        (
            "DELETE",
            "ns/pods",
            {"labelSelector": "a=b", "fieldSelector": "c=d"},
            "json",
            {**head, "dryRun": ["All"]},
        ),
    ]
    assert {request.headers["User-Agent"] for request in transport.requests} == {"tester/2"}


def test_a_view_is_not_written() -> None:
    """A view has only some of the fields: writing it would delete the others."""
    view = codec.decode(b'{"metadata":{"name":"p"}}', Pod)

    async def scenario(client: Client) -> None:
        for call in (client.create, client.update):
            with pytest.raises(InputError, match="a view would lose fields"):
                await call(PODS, view)  # type: ignore[arg-type]

    transport = Scripted()
    run_scenario(transport, scenario)
    assert transport.requests == []


# -- retries


def test_reads_are_retried_with_backoff() -> None:
    transport = Scripted(
        refusal(500, "InternalError"),
        UnreachableError("broke", sent=True),
        Reply(502, {}, b"<html>"),
        reply(POD),
    )
    found, waits = run_scenario(transport, lambda client: client.get(PODS, "p"))
    assert found == POD
    assert len(waits) == 3
    assert all(0.05 * 2**n <= wait <= 0.1 * 2**n for n, wait in enumerate(waits))


def test_retry_after_is_honored_up_to_a_limit() -> None:
    transport = Scripted(
        refusal(429, "TooManyRequests", **{"retry-after": "7"}),
        refusal(429, "TooManyRequests", **{"retry-after": "86400"}),
        reply(POD),
    )
    _, waits = run_scenario(transport, lambda client: client.create(PODS, POD))
    assert waits == [7.0, 60.0]


def test_unsafe_writes_are_not_retried() -> None:
    for failure in (UnreachableError("broke", sent=True), refusal(500, "InternalError")):
        transport = Scripted(failure, reply(POD))
        refused(transport, lambda client: client.create(PODS, POD))
        assert len(transport.requests) == 1
        versioned = {"metadata": {"name": "p", "resourceVersion": "1"}}
        transport = Scripted(failure, reply(POD))
        run_scenario(transport, lambda client: client.update(PODS, versioned))  # noqa: B023
        assert len(transport.requests) == 2
        transport = Scripted(failure, reply(POD))
        run_scenario(
            transport,
            lambda client: client.call("POST", "/x", tree={}, harmless=True),
        )
        assert len(transport.requests) == 2


def test_the_last_rejection_is_reported_on_timeout() -> None:
    transport = Scripted(*[refusal(503, "ServiceUnavailable")] * 10)
    error, waits = refused(transport, lambda client: client.get(PODS, "p"))
    assert error.code == 503
    assert len(transport.requests) == 6
    assert len(waits) == 5


def test_credentials_are_renewed_once() -> None:
    transport = Scripted(refusal(401, "Unauthorized"), reply(POD))
    transport.renewals = [True]
    _, waits = run_scenario(transport, lambda client: client.create(PODS, POD))
    assert waits == []
    transport = Scripted(refusal(401, "Unauthorized"), refusal(401, "Unauthorized"), reply(POD))
    transport.renewals = [True, True]
    error, _ = refused(transport, lambda client: client.get(PODS, "p"))
    assert error.code == 401
    transport = Scripted(refusal(401, "Unauthorized"), reply(POD))
    transport.renewals = [False]
    error, _ = refused(transport, lambda client: client.get(PODS, "p"))
    assert len(transport.requests) == 1


def test_opening_a_watch_is_retried() -> None:
    frame = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"3"}}}\n'
    transport = Scripted(
        refusal(401, "Unauthorized"),
        refusal(429, "TooManyRequests", **{"retry-after": "2"}),
        UnreachableError("refused", sent=False),
        Reply(200, {}, frame * 2),
    )
    transport.renewals = [True]

    async def scenario(client: Client) -> list[str]:
        return [event.revision async for event in client.watch(PODS, since="1")]

    found, waits = run_scenario(transport, scenario)
    assert found == ["3", "3"]
    assert len(waits) == 2
    error, waits = refused(Scripted(refusal(410, "Expired")), scenario)
    assert (error.code, waits) == (410, [])


# -- pages


def listing(names: str, revision: str, more: str = "") -> Reply:
    items = [{"metadata": {"name": name}} for name in names]
    return reply(
        {"kind": "PodList", "metadata": {"resourceVersion": revision, "continue": more}, "items": items}
    )


def test_an_expired_listing_restarts_without_paging() -> None:
    transport = Scripted(listing("ab", "5", "more"), refusal(410, "Expired"), listing("acd", "9"))

    async def scenario(client: Client) -> Any:
        return await client.list(PODS, limit=2, labels="x")

    found, _ = run_scenario(transport, scenario)
    assert [json.loads(raw)["metadata"]["name"] for raw in found.items] == ["a", "c", "d"]
    assert found.revision == "9"
    assert [dict(request.query) for request in transport.requests] == [
        {"labelSelector": "x", "limit": "2"},
        {"labelSelector": "x", "limit": "2", "continue": "more"},
        {"labelSelector": "x"},
    ]


def test_an_expired_first_page_is_an_error() -> None:
    error, _ = refused(Scripted(refusal(410, "Expired")), lambda client: client.list(PODS))
    assert error.code == 410


# -- our own limit


def test_calls_are_spaced_by_a_limit() -> None:
    now = 100.0

    async def run() -> list[float]:
        nonlocal now
        times = []

        async def sleep(seconds: float) -> None:
            nonlocal now
            now += seconds

        bucket = TokenBucket(10.0, 3, clock=lambda: now, sleep=sleep)
        for _ in range(6):
            await bucket.take()
            times.append(round(now - 100.0, 6))
        now += 10.0
        for _ in range(4):
            await bucket.take()
            times.append(round(now - 110.0, 6))
        return times

    times = asyncio.run(run())
    assert times == [0, 0, 0, 0.1, 0.2, 0.3, 0.3, 0.3, 0.3, 0.4]


def test_the_limit_counts_every_attempt() -> None:
    taken = []

    class Counting(TokenBucket):
        async def take(self) -> None:
            taken.append(1)

    transport = Scripted(refusal(500, "InternalError"), reply(POD))
    run_scenario(transport, lambda client: client.get(PODS, "p"), bucket=Counting(1.0))
    assert len(taken) == 2


def test_custom_endpoints() -> None:
    widgets = Endpoint("example.com", "v1alpha1", "widgets", "Widget", True)
    transport = Scripted(reply({"kind": "Widget"}))
    run_scenario(transport, lambda client: client.get(widgets, "w", "ns"))
    assert transport.requests[0].path == "/apis/example.com/v1alpha1/namespaces/ns/widgets/w"
    assert CONFIG_MAPS.namespaced
