"""A cluster on one machine: what is refused before anything is made, and what is made."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.api import codec
from plimsoll.cluster.client.endpoints import DEVICE_CLASSES, NODES, RESOURCE_SLICES
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.errors import ConfigError, InputError, StoreError
from plimsoll.run.up import Up, UpSettings, ensure_class
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs

SECONDS = 30.0


@pytest.fixture
def settings() -> Iterator[UpSettings]:
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        folder = Path(name)
        write_sysfs(make_machine(cores=4), folder / "host")
        cpu = CpuSettings(node="", host_root=folder / "host")
        yield UpSettings(data=folder / "data", port=0, name="here", runtime="none", cpu=cpu)


def test_what_cannot_be_is_refused_and_nothing_is_made(settings: UpSettings) -> None:
    for wrong, told in (
        (replace(settings, data=settings.data / ("x" * 60)), "too long for sockets below it"),
        (replace(settings, name="No Name"), "'No Name' is no name of a node"),
    ):
        with pytest.raises(ConfigError, match=told):
            asyncio.run(Up(wrong).run())
        assert not wrong.data.exists()


def test_an_address_that_is_taken(settings: UpSettings) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: .*--listen"),
    ):
        asyncio.run(Up(replace(settings, port=taken.getsockname()[1])).run())


def test_all_parts_and_their_end(settings: UpSettings) -> None:
    seen: list[str] = []

    async def story() -> None:
        up = Up(replace(settings, nodes=1))

        def ready(cluster: Up) -> None:
            seen.extend(cluster.lines())
            asyncio.get_running_loop().create_task(look(cluster))

        async def look(cluster: Up) -> None:
            try:
                assert cluster.server is not None
                client = cluster.server.client()
                for name in ("here", "sim-0"):
                    assert await client.get(NODES, name)
                assert cluster.driver is not None
                assert cluster.driver.problems() == ()
                tree = await client.get(DEVICE_CLASSES, "dra.cpu")
                await ensure_class(cluster.server)  # once is enough
                assert await client.get(DEVICE_CLASSES, "dra.cpu") == tree
                seen.append("looked")
            finally:
                cluster.stop()

        await asyncio.wait_for(up.run(ready), SECONDS)

    asyncio.run(story())
    assert seen[-1] == "looked"
    assert f"kubeconfig   {settings.data}/kubeconfig" in seen
    assert any("plimsoll driver cpu status --address 127.0.0.1:" in line for line in seen)
    assert "simulated    sim-0 to sim-0" in seen


def test_a_part_that_fails_ends_all(settings: UpSettings) -> None:
    lost = replace(settings, cpu=replace(settings.cpu, host_root=settings.data / "nowhere"))
    with pytest.raises(InputError, match="nowhere"):
        asyncio.run(asyncio.wait_for(Up(lost).run(), SECONDS))
    # Nothing is held: the next one can begin.
    asyncio.run(asyncio.wait_for(Up(settings).run(lambda cluster: cluster.stop()), SECONDS))


def test_one_cluster_for_each_folder(settings: UpSettings) -> None:
    async def story() -> None:
        first = Up(settings)
        task = asyncio.create_task(first.run())
        try:
            async with asyncio.timeout(SECONDS):
                while first.driver is None or first.driver.problems():
                    await asyncio.sleep(0.02)
            with pytest.raises(StoreError):
                await asyncio.wait_for(Up(settings).run(), SECONDS)
        finally:
            first.stop()
            await asyncio.wait_for(task, SECONDS)

    asyncio.run(story())


def test_without_a_driver(settings: UpSettings) -> None:
    async def story() -> None:
        up = Up(replace(settings, driver=False))
        await asyncio.wait_for(up.run(lambda cluster: cluster.stop()), SECONDS)
        assert up.driver is None

    asyncio.run(story())
    assert not (settings.root / "plugins" / "dra.cpu").exists()


def test_devices_of_files(settings: UpSettings) -> None:
    with pytest.raises(ConfigError, match="gpu: there is no such file"):
        asyncio.run(Up(replace(settings, devices=("gpu",))).run())
    seen: list[str] = []

    async def story() -> None:
        up = Up(replace(settings, nodes=2, driver=False, devices=("nics",)))

        async def look(cluster: Up) -> None:
            assert cluster.server is not None
            listing = await cluster.server.client().list(RESOURCE_SLICES)
            seen.extend(codec.decode_tree(raw)["spec"]["nodeName"] for raw in listing.items)
            cluster.stop()

        def ready(cluster: Up) -> None:
            seen.extend(line for line in cluster.lines() if line.startswith("driver"))
            asyncio.get_running_loop().create_task(look(cluster))

        async with asyncio.timeout(SECONDS):
            await up.run(ready)

    asyncio.run(story())
    line, *nodes = seen
    assert line == "driver       nic.example.com: class nic.example.com, all nodes"
    assert sorted(nodes) == ["here", "sim-0", "sim-1"]
