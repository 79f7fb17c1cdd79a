"""Plugins in the registration directory: registered ones, and rejected ones with their errors."""

from __future__ import annotations

import asyncio
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.errors import ConfigError
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from tests.coroutines import run_by
from tests.directories import short_directory
from tests.unit.node.plugins.peers import BETA, DRIVER, QUICK, V1, Peer, claim, device, node, registered, run
from tests.waiting import until


@run_by(run)
async def test_an_endpoint_is_not_taken_over() -> None:
    async with node() as (layout, plugins):
        first = await Peer(layout).start()
        await registered(plugins)
        thief = Peer(layout, socket="thief.sock", endpoint=f"{first.dra.parent}/./dra.sock")
        await thief.register()
        await until(lambda: thief.notified)
        text = f"endpoint {thief.endpoint} already registered for DRA driver plugin {DRIVER}"
        text = f"RegisterPlugin error -- plugin registration failed with err: {text}"
        assert thief.notified[0] == (False, text)
        await until(plugins.refused)  # the plugin is notified before it is recorded
        assert plugins.refused() == {thief.socket: text}
        await first.stop(first.socket)  # and it is tried again
        await until(lambda: (True, "") in thief.notified)
        await until(lambda: not plugins.refused())  # it is notified before it is recorded
        await thief.stop()
        await first.stop()


@run_by(run)
async def test_a_plugin_of_the_older_version() -> None:
    async with node() as (layout, plugins):
        peer = await Peer(layout, versions=[BETA]).start()
        await registered(plugins)
        assert plugins.drivers()[0].version == "v1beta1"
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device()}
        assert await plugins.unprepare(DRIVER, [claim("a")]) == {"uid-a": None}
        assert {version for _, version, _ in peer.calls} == {"v1beta1"}
        await peer.stop()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"type": "CSIPlugin"},
            "RegisterPlugin error -- no handler registered for plugin type: CSIPlugin at socket {socket}",
        ),
        (
            {"versions": ["v1alpha9.DRAPlugin"]},
            "RegisterPlugin error -- plugin validation failed with err: invalid supported gRPC versions of"
            " DRA driver plugin {name} at endpoint {endpoint}: none of services supported by the plugin"
            ' (["v1alpha9.DRAPlugin"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
        (
            {"name": "Not A Driver"},
            'RegisterPlugin error -- plugin validation failed with err: "Not A Driver" is not the name of a'
            " driver: a DNS subdomain of at most 63 characters is needed",
        ),
        (
            {"endpoint": "dra.sock"},
            'RegisterPlugin error -- plugin validation failed with err: endpoint "dra.sock" is not the'
            " absolute path of a socket",
        ),
    ],
)
@run_by(run)
async def test_plugins_receive_the_reason_of_a_rejection(*, options: dict[str, str], text: str) -> None:
    async with node() as (layout, plugins):
        peer = Peer(layout, socket="peer.sock", **options)
        await peer.register()
        await until(lambda: len(peer.notified) >= 2)  # and again, after a while
        message = text.format(socket=peer.socket, name=peer.name, endpoint=peer.endpoint)
        assert set(peer.notified) == {(False, message)}
        assert plugins.refused() == {peer.socket: message}
        assert plugins.drivers() == ()
        await peer.stop()
        await until(lambda: not plugins.refused())


@run_by(run)
async def test_a_plugin_rejecting_the_notification_is_not_registered() -> None:
    async with node() as (layout, plugins):
        peer = await Peer(layout).start()
        peer.notify_fails = True
        await until(lambda: plugins.refused())
        assert "failed to send registration status" in plugins.refused()[peer.socket]
        peer.notify_fails = False
        await registered(plugins)
        await until(lambda: not plugins.refused())
        await peer.stop()


@run_by(run)
async def test_an_unresponsive_plugin_is_not_registered() -> None:
    async with node(replace(QUICK, info=0.2)) as (layout, plugins):
        peer = Peer(layout)
        peer.info_delay = 3600
        await peer.start()
        await until(lambda: plugins.refused())
        assert "GetInfo" in plugins.refused()[peer.socket]
        assert "DeadlineExceeded" in plugins.refused()[peer.socket]
        peer.info_delay = 0
        await registered(plugins)
        await peer.stop()


@run_by(run)
async def test_a_restarted_agent_finds_all_drivers() -> None:
    with short_directory() as directory:
        layout = Layout(directory)
        peers = [await Peer(layout, f"d{place}.example.com").start() for place in range(4)]
        for _ in range(3):
            plugins = PluginManager(layout, times=QUICK)
            await plugins.start()
            await registered(plugins, 4)
            for peer in peers:
                assert await plugins.prepare(peer.name, [claim("a")]) == {"uid-a": device()}
            await plugins.stop()
            assert plugins.drivers() == ()
        assert all(len(peer.notified) == 3 for peer in peers)
        for peer in peers:
            await peer.stop()


@run_by(run)
async def test_the_newest_socket_wins_after_a_restart() -> None:
    with short_directory() as directory:
        layout = Layout(directory)
        names = ["z", "m", "a", "k"]
        peers = []
        for name in names:
            peers.append(await Peer(layout, instance=name).start())
            await asyncio.sleep(0.02)  # the clock of files ticks that slowly
        peers[-1].info_delay = 0.2  # registered last or first, the age counts
        plugins = PluginManager(layout, times=QUICK)
        await plugins.start()
        await registered(plugins, 4)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device("k")}
        await peers.pop().stop()
        await registered(plugins, 3)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device("a")}
        await plugins.stop()
        for peer in peers:
            await peer.stop()


@run_by(run)
async def test_unexpected_files_in_the_registration_directory_are_ignored() -> None:
    async with node() as (layout, plugins):
        directory = layout.registry
        (directory / "a file").write_text("no socket")
        (directory / "loop").symlink_to(directory)
        (directory / "dangling").symlink_to("/nowhere/at/all")
        unexpected = await Peer(layout, "strange.example.com", socket="a b#?%41\udcff\n.sock").start()
        below = await Peer(layout, "below.example.com", socket="one/two/reg.sock").start()
        linked = Peer(layout, "linked.example.com", socket="../elsewhere.sock")
        await linked.start()
        (directory / "link.sock").symlink_to(linked.socket)
        hidden = await Peer(layout, "hidden.example.com", socket=".hidden.sock").start()
        deep = await Peer(layout, "deep.example.com", socket=".deep/reg.sock").start()
        long = directory / ("x" * 60)
        long.mkdir()
        await registered(plugins, 3)
        assert [info.name.partition(".")[0] for info in plugins.drivers()] == [
            "below",
            "linked",
            "strange",
        ]
        assert hidden.infos == deep.infos == 0
        for peer in (unexpected, below, linked):
            assert await plugins.prepare(peer.name, [claim("a")]) == {"uid-a": device()}
        for peer in (unexpected, below, linked, hidden, deep):
            await peer.stop()


@run_by(run)
async def test_a_socket_with_a_too_long_path_is_reported() -> None:
    async with node() as (layout, plugins):
        long = layout.registry / ("x" * 90)
        with socket.socket(socket.AF_UNIX) as server:
            before = os.open(layout.registry, os.O_RDONLY | os.O_DIRECTORY)
            server.bind(f"/proc/self/fd/{before}/{long.name}")
            os.close(before)
            await until(lambda: plugins.refused())
        assert "at most 107 bytes" in plugins.refused()[long]


@run_by(run)
async def test_an_unserved_socket_is_retried() -> None:
    async with node(replace(QUICK, dial=0.2)) as (layout, plugins):
        peer = Peer(layout)
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(peer.socket))
        await until(lambda: plugins.refused())
        assert "context deadline exceeded" in plugins.refused()[peer.socket]
        await peer.start()
        await registered(plugins)
        await peer.stop()


def test_directories_that_cannot_be_created_are_reported(tmp_path: Path) -> None:
    (tmp_path / "root").write_text("a file")
    with pytest.raises(ConfigError, match="plugins_registry: cannot be created: Not a directory"):
        asyncio.run(PluginManager(Layout(tmp_path / "root")).start())


@run_by(run)
async def test_the_first_supported_version_is_used() -> None:
    async with node() as (layout, plugins):
        peer = await Peer(layout, versions=["v2.DRAPlugin", BETA, V1]).start()
        await registered(plugins)
        assert plugins.drivers()[0].version == "v1beta1"
        await peer.stop()
