"""Detection of API server capabilities."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.apiserver.process import ServerSettings, start_server
from plimsoll.client.endpoints import RESOURCE_SLICES
from plimsoll.drivers.cpu.devices import ServerCapabilities, detect_capabilities
from plimsoll.drivers.cpu.devices.wire_form import probe, read_capabilities
from plimsoll.drivers.cpu.settings import CpuSettings, Mapping
from plimsoll.drivers.plugin.wire_form import detect_form, read_form
from plimsoll.errors import ApiError

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["components", "schemas", "spec", "devices", "capacity", "properties", "taints", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
)


def document(*fields: str) -> dict[str, Any]:
    properties: dict[str, Any] = {field: {} for field in ("name", *fields)}
    return {"components": {"schemas": {"io.k8s.api.resource.v1.Device": {"properties": properties}}}}


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ((), None),
        (("nodeAllocatableResourceMappings",), Form.V1_36),
        (("nodeAllocatableResources",), Form.V1_37),
        (("nodeAllocatableResourceMappings", "nodeAllocatableResources"), Form.V1_37),
    ],
)
def test_the_newest_form_of_a_document(fields: tuple[str, ...], form: Form | None) -> None:
    assert read_form(document(*fields)) is form


@given(ANY_JSON)
def test_no_answer_of_a_server_makes_it_fail(tree: Any) -> None:
    assert read_form(tree) is None
    assert isinstance(read_capabilities(tree, Form.V1_37), ServerCapabilities)


def test_what_is_left_of_the_probe_is_what_the_server_keeps() -> None:
    tree = probe("n", Form.V1_36)
    assert read_capabilities(tree, Form.V1_36) == ServerCapabilities(Form.V1_36)
    device = tree["spec"]["devices"][0]
    for field in ("nodeAllocatableResourceMappings", "taints"):
        del device[field]
    del device["capacity"]["dra.cpu/cpu"]["requestPolicy"]
    device["attributes"] = {}
    assert read_capabilities(tree, Form.V1_36) == ServerCapabilities(
        None, policy=False, taints=False, lists=False
    )


class Refusing:
    """Client whose every call is refused."""

    def __init__(self, code: int) -> None:
        self.code = code

    async def call(self, *_: Any, **__: Any) -> Any:
        raise ApiError(self.code, "Refused", "no")

    create = call


@pytest.mark.parametrize("code", [403, 404])
def test_a_server_that_does_not_report(code: int) -> None:
    client: Any = Refusing(code)
    assert asyncio.run(detect_form(client)) is None
    assert asyncio.run(detect_capabilities(client, CpuSettings("n"))) == ServerCapabilities(None)
    forced = CpuSettings("n", mapping=Mapping.V1_36)
    assert asyncio.run(detect_capabilities(client, forced)) == ServerCapabilities(Form.V1_36)


class WithoutFeature:
    """Client of a 1.37 server that refuses mappings, because the node does not declare the feature."""

    async def call(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(body=json.dumps(document("nodeAllocatableResources")).encode())

    async def create(self, _: Any, tree: Any, **__: Any) -> Any:
        if "nodeAllocatableResources" in tree["spec"]["devices"][0]:
            raise ApiError(403, "Forbidden", 'node "n" does not support DRANodeAllocatableResources feature')
        return tree


def test_a_node_that_does_not_declare_the_feature() -> None:
    client: Any = WithoutFeature()
    assert asyncio.run(detect_form(client)) is Form.V1_37
    assert asyncio.run(detect_capabilities(client, CpuSettings("n"))) == ServerCapabilities(None)
    forced = CpuSettings("n", mapping=Mapping.V1_37)
    assert asyncio.run(detect_capabilities(client, forced)) == ServerCapabilities(Form.V1_37)


def test_a_server_that_is_away_is_no_answer() -> None:
    client: Any = Refusing(503)
    with pytest.raises(ApiError):
        asyncio.run(detect_form(client))
    with pytest.raises(ApiError):
        asyncio.run(detect_capabilities(client, CpuSettings("n", mapping=Mapping.OFF)))


@pytest.mark.parametrize(
    ("gates", "mapping", "capabilities"),
    [
        ("", Mapping.AUTO, ServerCapabilities(Form.V1_37)),
        ("", Mapping.V1_36, ServerCapabilities(Form.V1_36)),
        ("", Mapping.OFF, ServerCapabilities(None)),
        ("DRANodeAllocatableResources=false", Mapping.AUTO, ServerCapabilities(None)),
        ("DRAListTypeAttributes=false", Mapping.OFF, ServerCapabilities(None, lists=False)),
        ("DRAConsumableCapacity=false", Mapping.OFF, ServerCapabilities(None, policy=False, sharing=False)),
    ],
)
async def test_our_own_server(gates: str, mapping: Mapping, capabilities: ServerCapabilities) -> None:
    server = await start_server(ServerSettings(gates=Gates.parse(gates), controllers=False))
    try:
        client = server.client()
        assert await detect_form(client) is Form.V1_37
        assert await detect_capabilities(client, CpuSettings("n", mapping=mapping)) == capabilities
        assert (await client.list(RESOURCE_SLICES)).items == []  # the probe is not kept
    finally:
        await server.stop()
