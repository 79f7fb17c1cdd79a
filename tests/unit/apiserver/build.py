"""In-memory API server with a fixed clock, and requests to it."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from plimsoll.api.gates import Gates
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.users import MASTERS, User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.in_process import connect_in_process
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.storage import Store
from plimsoll.controllers.bootstrap import bootstrap
from plimsoll.errors import ApiError
from tests import virtual_time
from tests.waiting import DEADLINE

T = TypeVar("T")
ADMIN = User("admin", groups=(MASTERS,))
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class ApiHarness:
    """API server under test."""

    def __init__(self, gates: Gates | None = None) -> None:
        self.store = Store.open(None)
        self.now = NOW
        numbers = itertools.count(1)
        self.context = ApiContext.for_store(
            self.store,
            gates=gates,
            now=lambda: self.now,
            new_uid=lambda: f"00000000-0000-4000-8000-{next(numbers):012d}",
        )
        self.api = Api(self.context)
        self.client = connect_in_process(self.api.handle, ADMIN)

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Sequence[tuple[str, str]] = (),
        user: User = ADMIN,
        **headers: str,
    ) -> tuple[int, Any]:
        """Send a request; return the code and the decoded response."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.api.handle(ApiRequest(method, path, user, query, named, raw))
        assert isinstance(answer.body, bytes)
        try:
            return answer.status, json.loads(answer.body)
        except ValueError:
            return answer.status, answer.body

    async def watch(self, path: str, count: int, **query: str) -> list[dict[str, Any]]:
        """Return the first events of a watch."""
        answer: ApiResponse = await self.api.handle(
            ApiRequest("GET", path, ADMIN, [("watch", "1"), *query.items()])
        )
        assert not isinstance(answer.body, bytes), answer.body
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(DEADLINE):
            async for chunk in answer.body:
                events += [json.loads(line) for line in chunk.splitlines()]
                if len(events) >= count:
                    break
        await answer.body.aclose()
        return events


def refused(attempt: Callable[[], object]) -> int:
    """Return the error code of a call; 0 if it succeeds."""
    try:
        attempt()
    except ApiError as error:
        return error.code
    return 0


def run(
    scenario: Callable[[ApiHarness], Awaitable[T]],
    gates: Gates | None = None,
    *,
    in_virtual_time: bool = False,
) -> T:
    """Run a scenario on a new API server with the default namespaces."""

    async def play() -> T:
        harness = ApiHarness(gates)
        await bootstrap(harness.client)
        try:
            return await scenario(harness)
        finally:
            await harness.store.close()

    return virtual_time.run(play()) if in_virtual_time else asyncio.run(play())


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def config_map(name: str = "c", **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, **metadata},
        "data": {"a": "1"},
    }


PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
