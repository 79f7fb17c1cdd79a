"""Status writer: what the API has in the end, whatever happens to writes on their way."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client import Client
from plimsoll.client.transport import Reply, Request
from plimsoll.errors import UnreachableError
from plimsoll.node.pods.writer import StatusWriter
from tests import virtual_time

Tree = dict[str, Any]


class FakeServer:
    """API server with one pod; `on_patch` is called with every patch before its response."""

    def __init__(self) -> None:
        self.pod: Tree = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}, "status": {}}
        self.revision = 1
        self.patches: list[Tree] = []
        self.dropped: tuple[str, ...] = ()
        self.on_patch: Callable[[int], None] = lambda number: None

    def read(self) -> Pod:
        return codec.decode(self._body(), Pod)

    def apply(self, status: Tree) -> None:
        kept = {name: value for name, value in status.items() if name not in self.dropped}
        self.pod["status"] = self.pod["status"] | kept
        self.revision += 1

    def _body(self) -> bytes:
        self.pod["metadata"]["resourceVersion"] = str(self.revision)
        return json.dumps(self.pod).encode()

    async def send(self, request: Request) -> Reply:
        if request.method == "PATCH":
            assert request.body is not None
            patch = json.loads(request.body)["status"]
            self.patches.append(patch)
            self.apply(patch)
            body = self._body()
            self.on_patch(len(self.patches))
            return Reply(200, {}, body)
        return Reply(200, {}, self._body())

    async def close(self) -> None:
        return None


def writer_of(server: FakeServer) -> StatusWriter:
    transport: Any = server
    return StatusWriter(Client(transport, attempts=1))


def test_a_status_is_complete_after_a_lost_response() -> None:
    server = FakeServer()
    server.apply({"phase": "Running", "startTime": "t"})

    def lose_first(number: int) -> None:
        if number == 1:
            writer.put(server.read(), {"phase": "Running", "startTime": "t"})
            raise UnreachableError("connection reset", sent=True)

    async def scenario() -> None:
        server.on_patch = lose_first
        # A restarted agent reports Pending; the response is lost, and meanwhile the pod runs.
        writer.put(server.read(), {"phase": "Pending", "startTime": "t"})
        await writer.wait_until_written("u")

    writer = writer_of(server)
    virtual_time.run(scenario())
    assert server.pod["status"]["phase"] == "Running"


@pytest.mark.parametrize("seen", [True, False])
def test_a_late_write_is_overwritten(*, seen: bool) -> None:
    server = FakeServer()

    def arrive_late(number: int) -> None:
        """Let an earlier write arrive after the last one was handled, before its response has arrived."""
        if number == 2:
            server.apply({"phase": "Running"})
            if seen:
                writer.observe(server.read())

    async def scenario() -> None:
        server.on_patch = arrive_late
        writer.put(server.read(), {"phase": "Running"})
        await writer.wait_until_written("u")
        writer.put(server.read(), {"phase": "Succeeded"})
        await writer.wait_until_written("u")
        if not seen:
            writer.observe(server.read())
            await writer.wait_until_written("u")

    writer = writer_of(server)
    virtual_time.run(scenario())
    assert server.pod["status"]["phase"] == "Succeeded"


def test_a_write_that_follows_a_late_one_repairs_it() -> None:
    server = FakeServer()

    async def scenario() -> None:
        writer.put(server.read(), {"phase": "Running"})
        await writer.wait_until_written("u")
        server.apply({"phase": "Pending"})  # late, and not seen yet
        writer.put(server.read(), {"phase": "Running", "startTime": "t"})
        await writer.wait_until_written("u")

    writer = writer_of(server)
    virtual_time.run(scenario())
    assert server.pod["status"] == {"phase": "Running", "startTime": "t"}


def test_fields_that_the_server_drops_are_not_written_again() -> None:
    server = FakeServer()
    server.dropped = ("observedGeneration",)

    async def scenario() -> None:
        for phase in ("Pending", "Running", "Succeeded"):
            writer.put(server.read(), {"phase": phase, "observedGeneration": 1})
            await writer.wait_until_written("u")

    writer = writer_of(server)
    virtual_time.run(scenario())
    assert [patch.get("phase") for patch in server.patches] == ["Pending", None, "Running", "Succeeded"]
