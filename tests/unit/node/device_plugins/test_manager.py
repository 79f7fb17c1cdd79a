"""Device manager with plugins on real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.node.device_plugins import DeviceManager
from plimsoll.node.device_plugins.connection import DevicePluginConnection, PluginFault
from plimsoll.node.device_plugins.devices import choose_devices
from plimsoll.node.layout import Layout
from tests.build import container, pod, sidecar
from tests.coroutines import run_by
from tests.directories import short_directory
from tests.unit.node.device_plugins.fake_plugin import RESOURCE, FakePlugin, device
from tests.waiting import DEADLINE, until


class Node:
    """Device manager, its directory, and plugins."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.manager = DeviceManager(layout)
        self.plugins: list[FakePlugin] = []

    async def restart(self, **options: Any) -> None:
        await self.manager.stop()
        self.manager = DeviceManager(self.layout, **options)
        await self.manager.start()

    async def plugin(self, *devices: Any, **options: Any) -> FakePlugin:
        """Start and register a plugin, and wait until its devices are known."""
        made = FakePlugin(self.layout.device_plugins, devices, **options)
        self.plugins.append(made)
        await made.start()
        await made.register()
        await until(lambda: self.manager.resources().get(made.resource, (0, 0))[1] == healthy(made))
        return made

    def ids(self, uid: str, name: str = "c") -> list[str]:
        return sorted(id for each in self.manager.of_container(uid, name) for id in each.ids)


def healthy(plugin: FakePlugin) -> int:
    return sum(each.health == "Healthy" for each in plugin.devices)


@asynccontextmanager
async def node() -> AsyncIterator[Node]:
    with short_directory() as directory:
        made = Node(Layout(directory))
        await made.manager.start()
        try:
            yield made
        finally:
            for plugin in made.plugins:
                await plugin.stop()
            await made.manager.stop()


def run(scenario: Callable[[Node], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(DEADLINE), node() as made:
            await scenario(made)

    asyncio.run(whole())


def wants(uid: str, number: int = 1, **fields: Any) -> Pod:
    return pod(uid, asks("c", number), uid=uid, **fields)


def asks(name: str, number: int) -> Any:
    return container(name, limits={RESOURCE: str(number)})


@run_by(run)
async def test_devices_are_the_nodes_resources(node: Node) -> None:
    plugin = await node.plugin(device("a"), device("b", healthy=False))
    assert node.manager.resources() == {RESOURCE: (2, 1)}
    plugin.set_devices(device("a"), device("b"), device("c"))
    await until(lambda: node.manager.resources() == {RESOURCE: (3, 3)})
    await plugin.stop()
    await until(lambda: node.manager.resources() == {RESOURCE: (3, 0)})  # unhealthy at first


@run_by(run)
async def test_devices_of_a_plugin_that_is_gone_are_removed(node: Node) -> None:
    await node.restart(grace_seconds=0.05)
    plugin = await node.plugin(device("a"))
    await plugin.stop()
    await until(lambda: node.manager.resources() == {RESOURCE: (0, 0)})


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": "v1"}, 'requested API version "v1" is not supported by kubelet'),
        ({"resource_name": "cpu"}, 'the ResourceName "cpu" is invalid'),
        ({"endpoint": "../x.sock"}, 'the endpoint "../x.sock" is not the name of a socket'),
    ],
)
@run_by(run)
async def test_invalid_registrations_are_refused(node: Node, *, change: dict[str, str], text: str) -> None:
    plugin = FakePlugin(node.layout.device_plugins, ())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await plugin.register(**change)
    assert text in (caught.value.details() or "")
    assert node.manager.resources() == {}


@run_by(run)
async def test_a_device_has_one_pod_at_a_time(node: Node) -> None:
    plugin = await node.plugin(device("a", 0), device("b", 0, 1), device("c", healthy=False))
    assert await node.manager.allocate(wants("p", 1)) == ""
    assert await node.manager.allocate(wants("p", 1)) == "", "it has them already"
    assert len(plugin.calls) == 1
    assert await node.manager.allocate(wants("q", 2)) == (
        "Allocate failed due to requested number of devices unavailable for example.com/fpga. "
        "Requested: 2, Available: 1, which is unexpected"
    )
    assert await node.manager.allocate(wants("q", 1)) == ""
    assert sorted(node.ids("p") + node.ids("q")) == ["a", "b"]
    (made,) = node.manager.of_container("p", "c")
    assert made.env == {"FPGA": node.ids("p")[0], "SHARED": "plugin"}
    assert made.edits.mounts[0].options == ("ro",)
    assert made.edits.device_nodes[0].permissions == "rw"
    await node.manager.release("p")
    assert await node.manager.allocate(wants("r", 1)) == ""


@run_by(run)
async def test_allocations_survive_a_restart_without_their_plugin(node: Node) -> None:
    plugin = await node.plugin(device("a"), device("b"))
    assert await node.manager.allocate(wants("p")) == ""
    before = node.manager.of_container("p", "c")
    await node.restart()
    assert node.manager.of_container("p", "c") == before
    assert node.manager.resources() == {RESOURCE: (2, 0)}
    assert await node.manager.allocate(wants("q")) == (
        f"Allocate failed due to cannot allocate unregistered device {RESOURCE}, which is unexpected"
    )
    await plugin.register()
    await until(lambda: node.manager.resources() == {RESOURCE: (2, 2)})
    assert await node.manager.allocate(wants("q")) == ""
    assert {*node.ids("p"), *node.ids("q")} == {"a", "b"}
    await node.manager.reconcile({"q"})
    assert node.ids("p") == []


@run_by(run)
async def test_containers_use_the_devices_of_init_containers_before_them(node: Node) -> None:
    await node.plugin(device("a"), device("b"), device("c"))
    lasting = sidecar("s", limits={RESOURCE: "1"})
    given_pod = pod("p", asks("c", 2), init=(asks("i", 2), lasting), uid="p")
    assert await node.manager.allocate(given_pod) == ""
    assert set(node.ids("p", "s")) <= set(node.ids("p", "i")), "the init container has ended"
    assert not set(node.ids("p", "s")) & set(node.ids("p", "c"))
    assert len(node.ids("p", "c")) == 2


@run_by(run)
async def test_preferred_devices_are_chosen(node: Node) -> None:
    plugin = await node.plugin(*map(device, "abcd"), prefers=("c", "d"), pre_start=True)
    assert await node.manager.allocate(wants("p", 2)) == ""
    assert node.ids("p") == ["c", "d"]
    assert await node.manager.announce_start("p", "c") == ""
    assert plugin.calls == ["prefer 2 of a,b,c,d", "allocate c,d", "start c,d"]


@run_by(run)
async def test_containers_wait_for_a_disconnected_plugin_that_requires_pre_start(node: Node) -> None:
    plugin = await node.plugin(device("a"), pre_start=True)
    assert await node.manager.allocate(wants("p")) == ""
    await plugin.stop()
    await until(lambda: node.manager.resources() == {RESOURCE: (1, 0)})
    assert await node.manager.announce_start("p", "c") == (
        "device plugin PreStartContainer rpc failed with err: "
        f"the device plugin of {RESOURCE} is disconnected"
    )
    await plugin.start()
    await plugin.register()
    assert await node.manager.announce_start("p", "c") == ""
    assert node.ids("p") == ["a"], "the pod keeps its device"


@run_by(run)
async def test_unhealthy_devices_are_not_allocated_and_come_back(node: Node) -> None:
    plugin = await node.plugin(device("a"), device("b"))
    assert await node.manager.allocate(wants("p")) == ""
    (held,) = node.ids("p")
    plugin.set_devices(*(device(id, healthy=False) for id in "ab"))
    await until(lambda: node.manager.resources() == {RESOURCE: (2, 0)})
    assert "Requested: 1, Available: 0" in await node.manager.allocate(wants("q"))
    plugin.set_devices(device("a"), device("b"))
    await until(lambda: node.manager.resources() == {RESOURCE: (2, 2)})
    assert await node.manager.allocate(wants("q")) == ""
    assert node.ids("q") == [{"a": "b", "b": "a"}[held]]


def test_a_plugin_that_does_not_serve_its_socket_is_refused() -> None:
    async def scenario(directory: Path) -> None:
        connection = DevicePluginConnection(RESOURCE, directory / "x.sock", pre_start=False, prefers=False)
        fault = await connection.connect(timeout=0.05)
        await connection.close()
        assert fault == PluginFault(f"failed to dial device plugin with socketPath {directory}/x.sock")

    with short_directory() as directory:
        asyncio.run(scenario(directory))


@run_by(run)
async def test_a_call_ends_with_a_fault_when_its_plugin_registers_again(node: Node) -> None:
    plugin = await node.plugin(device("a"))
    plugin.holds = True
    waiting = asyncio.create_task(node.manager.allocate(wants("p")))
    await until(lambda: plugin.calls == ["allocate a"])
    assert await node.manager.allocate(pod("q", container("c"), uid="q")) == "", "it needs no device"
    plugin.holds = False
    await plugin.register()
    assert "Allocate failed due to rpc error: code = Canceled" in await waiting
    assert node.ids("p") == []


@run_by(run)
async def test_refusals_of_a_plugin_are_reported(node: Node) -> None:
    plugin = await node.plugin(device("a"))
    plugin.refusal = "no firmware"
    problem = await node.manager.allocate(wants("p"))
    assert problem == (
        "Allocate failed due to rpc error: code = Internal desc = no firmware, which is unexpected"
    )
    assert node.ids("p") == []
    assert await node.manager.allocate(pod("q", container("c", limits={"example.com/other": "1"}))) == ""


@given(st.integers(1, 4), st.lists(st.sampled_from("abcd"), unique=True), st.lists(st.sampled_from("abcdef")))
def test_a_choice_has_the_number_that_was_requested(needed: int, free: list[str], others: list[str]) -> None:
    reusable, preferred = others[:2], others[2:]
    chosen = choose_devices(needed, free, reusable, preferred)
    possible = {*free, *reusable}
    if chosen is None:
        assert len(possible) < needed
    else:
        assert len(set(chosen)) == len(chosen) == needed
        assert set(chosen) <= possible
        assert set(chosen) >= set(list(dict.fromkeys(reusable))[:needed]), "those of init containers first"
