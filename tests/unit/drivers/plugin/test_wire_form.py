"""Detection of the form in which an API server keeps node resource mappings."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest

from plimsoll.api.forms import Form
from plimsoll.drivers.plugin.wire_form import detect_kept_form
from plimsoll.errors import ApiError

FIELD = "nodeAllocatableResources"


class Server:
    """Client of a server with the field of 1.37, which rejects a slice or drops some of its fields."""

    def __init__(self, rejects: int = 0, drops: bool = False) -> None:
        self.rejects, self.drops = rejects, drops
        self.created: list[Any] = []

    async def call(self, *_: Any, **__: Any) -> Any:
        schema: dict[str, Any] = {"io.k8s.api.resource.v1.Device": {"properties": {FIELD: {}}}}
        return SimpleNamespace(body=json.dumps({"components": {"schemas": schema}}).encode())

    async def create(self, _: Any, tree: Any, *, dry_run: bool) -> Any:
        assert dry_run
        self.created.append(tree)
        if self.rejects:
            raise ApiError(self.rejects, "Refused", "no")
        if self.drops:
            for device in tree["spec"]["devices"]:
                del device[FIELD]
        return tree


def detect(server: Any, count: int = 2) -> Form | None:
    def make(form: Form) -> list[dict[str, Any]]:
        assert form is Form.V1_37
        return [{"name": f"d{number}", FIELD: {"cpu": {}}} for number in range(count)]

    return asyncio.run(detect_kept_form(server, "x.example.com", "n1", make))


def test_a_form_that_is_kept() -> None:
    server = Server()
    assert detect(server) is Form.V1_37
    (tree,) = server.created
    assert tree["spec"]["nodeName"] == "n1"
    assert [device["name"] for device in tree["spec"]["devices"]] == ["d0"]


def test_a_form_that_is_dropped() -> None:
    assert detect(Server(drops=True)) is None


@pytest.mark.parametrize("code", [400, 403, 422])
def test_a_form_that_is_rejected(code: int) -> None:
    assert detect(Server(rejects=code)) is None


def test_a_server_that_does_not_respond_is_no_answer() -> None:
    with pytest.raises(ApiError):
        detect(Server(rejects=503))


def test_without_devices_nothing_is_tried() -> None:
    server = Server(rejects=422)
    assert detect(server, count=0) is Form.V1_37
    assert server.created == []
