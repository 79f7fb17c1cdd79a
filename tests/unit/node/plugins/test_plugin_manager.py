"""Plugin manager with drivers on real sockets: registration, restarts, and routing of calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from plimsoll.common.metrics import MetricRegistry
from plimsoll.node.claim_info import DriverFault
from plimsoll.node.plugins import DraMetrics
from tests.coroutines import run_by
from tests.unit.node.plugins.peers import (
    DRIVER,
    QUICK,
    Peer,
    claim,
    device,
    node,
    node_with_driver,
    registered,
    run,
)
from tests.waiting import until


@run_by(run)
async def test_a_driver_registers_prepares_and_releases() -> None:
    metrics = DraMetrics()
    async with node(metrics=metrics, clock=lambda: 1234.5) as (layout, plugins):
        changes: list[int] = []
        plugins.on_change = lambda: changes.append(len(plugins.drivers()))
        peer = await Peer(layout).start()
        await registered(plugins)
        (info,) = plugins.drivers()
        assert (info.name, info.endpoint, info.version) == (DRIVER, peer.endpoint, "v1")
        assert info.registered_at == 1234.5
        assert changes[0] == 1
        await until(lambda: peer.notified)
        assert peer.notified == [(True, "")]
        both = [claim("a"), claim("b")]
        assert await plugins.prepare(DRIVER, both) == {
            "uid-a": device(),
            "uid-b": device(uid="uid-b"),
        }
        assert await plugins.unprepare(DRIVER, both) == {"uid-a": None, "uid-b": None}
        assert peer.calls == [("prepare", "v1", ("a", "b")), ("unprepare", "v1", ("a", "b"))]
        assert plugins.health(DRIVER, "pool", "dev-0") is None
        await peer.stop()
        await until(lambda: not plugins.drivers())
        assert changes[-1] == 0
    shown = MetricRegistry(metrics).render().decode()
    for method in ("NodePrepareResources", "NodeUnprepareResources"):
        labels = (
            f'driver_name="{DRIVER}",grpc_status_code="OK",'
            f'method_name="/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}"'
        )
        assert f"dra_grpc_operations_duration_seconds_count{{{labels}}} 1.0" in shown


@run_by(run)
async def test_a_claim_listed_twice_is_prepared_once() -> None:
    async with node_with_driver() as (plugins, peer):
        assert set(await plugins.prepare(DRIVER, [claim("a"), claim("a")])) == {"uid-a"}
        assert peer.calls == [("prepare", "v1", ("a",))]
        await peer.stop()


@run_by(run)
async def test_calls_to_unregistered_drivers_fail() -> None:
    async with node() as (_, plugins):
        for name, text in (
            ("none.example.com", "DRA driver none.example.com is not registered"),
            ("", "DRA driver name is empty"),
        ):
            fault = DriverFault(name, "absent", text)
            assert await plugins.prepare(name, [claim("a")]) == {"uid-a": fault}
            assert await plugins.unprepare(name, [claim("a")]) == {"uid-a": fault}


@run_by(run)
async def test_a_driver_restarts_with_the_same_sockets() -> None:
    async with node_with_driver() as (plugins, peer):
        for _ in range(3):
            await peer.stop()
            await peer.start()
            peer.notified.clear()
            await until(lambda: peer.notified)
            await registered(plugins)
            assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device()}


@run_by(run)
async def test_a_driver_restart_that_the_registration_directory_does_not_show() -> None:
    """Only the driver's service socket is recreated: the manager reconnects."""
    async with node_with_driver() as (plugins, peer):
        await peer.stop(peer.dra)
        await registered(plugins, 1, 0)
        response = (await plugins.prepare(DRIVER, [claim("a")]))["uid-a"]
        assert isinstance(response, DriverFault)
        assert response.kind == "broken"
        assert response.message.startswith("NodePrepareResources: rpc error: code = Unavailable desc = ")
        await peer.serve()
        await registered(plugins)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device()}
        assert len(peer.notified) == 1
        await peer.stop()


@run_by(run)
async def test_a_rolling_update() -> None:
    async with node() as (layout, plugins):
        old = await Peer(layout, instance="old").start()
        await registered(plugins)
        new = await Peer(layout, instance="new").start()
        await registered(plugins, 2)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device("new")}
        # The new one is not connected for a while: the old one helps out.
        await new.stop(new.dra)
        await registered(plugins, 2, 1)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device("old")}
        await new.serve()
        await registered(plugins, 2)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device("new")}
        await old.stop()
        await registered(plugins)
        assert await plugins.prepare(DRIVER, [claim("a")]) == {"uid-a": device("new")}
        await new.stop()


@run_by(run)
async def test_a_driver_disconnects_during_a_call() -> None:
    async with node_with_driver() as (plugins, peer):
        peer.delay = 20
        call = asyncio.create_task(plugins.prepare(DRIVER, [claim("a")]))
        await until(lambda: peer.calls)
        await peer.stop()
        response = (await call)["uid-a"]
        assert isinstance(response, DriverFault)
        assert response.kind == "broken"


@run_by(run)
async def test_a_driver_that_unregisters_may_finish_its_response() -> None:
    async with node_with_driver() as (plugins, peer):
        peer.gate.clear()
        call = asyncio.create_task(plugins.prepare(DRIVER, [claim("a")]))
        await until(lambda: peer.calls)
        await peer.stop(peer.socket)
        await until(lambda: not plugins.drivers())
        assert not call.done()
        peer.gate.set()
        assert await call == {"uid-a": device()}
        await peer.stop()


@run_by(run)
async def test_stopping_ends_calls_under_way() -> None:
    async with node_with_driver() as (plugins, peer):
        peer.delay = 20
        call = asyncio.create_task(plugins.prepare(DRIVER, [claim("a")]))
        await until(lambda: peer.calls)
        await plugins.stop()
        response = (await call)["uid-a"]
        assert isinstance(response, DriverFault)
        assert response.kind == "broken"
        assert "Canceled" in response.message
        peer.delay = 0
        await peer.stop()


@run_by(run)
async def test_a_cancelled_call_is_cancelled() -> None:
    async with node_with_driver() as (plugins, peer):
        peer.delay = 20
        call = asyncio.create_task(plugins.prepare(DRIVER, [claim("a")]))
        await until(lambda: peer.calls)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await peer.stop()


@run_by(run)
async def test_a_late_response_is_a_timeout() -> None:
    metrics = DraMetrics()
    async with node_with_driver(replace(QUICK, call=0.4), metrics=metrics) as (plugins, peer):
        peer.gate.clear()
        fault = (await plugins.prepare(DRIVER, [claim("a")]))["uid-a"]
        assert isinstance(fault, DriverFault)
        assert fault.kind == "timeout"
        assert fault.message.startswith("NodePrepareResources: rpc error: code = DeadlineExceeded desc = ")
        released = (await plugins.unprepare(DRIVER, [claim("a")]))["uid-a"]
        assert released is not None
        assert released.kind == "timeout"
        peer.gate.set()
        await until(lambda: plugins.prepare(DRIVER, [claim("a")]), lambda found: found == {"uid-a": device()})
        await peer.stop()
    assert 'grpc_status_code="DeadlineExceeded"' in MetricRegistry(metrics).render().decode()


@run_by(run)
async def test_malformed_responses_are_faults() -> None:
    async with node_with_driver() as (plugins, peer):

        def refuse(request: object) -> bytes:
            raise RuntimeError("a bug of the driver")

        for response, kind, part in (
            (lambda request: b"\xff\xff\xff\x01", "broken", "cannot be decoded"),
            (lambda request: b"", "skipped", "skipped 1 ResourceClaims"),
            (lambda request: b"\0" * (5 << 20), "broken", "ResourceExhausted"),
            (refuse, "broken", "Unknown"),
        ):
            peer.response = response
            prepared = (await plugins.prepare(DRIVER, [claim("a")]))["uid-a"]
            released = (await plugins.unprepare(DRIVER, [claim("a")]))["uid-a"]
            for fault in (prepared, released):
                assert isinstance(fault, DriverFault)
                assert (fault.driver, fault.kind) == (DRIVER, kind)
                assert part in fault.message
        await peer.stop()


@run_by(run)
async def test_a_missing_driver_is_reported_once() -> None:
    async with node() as (layout, plugins):
        gone: list[str] = []

        async def on_gone(driver: str) -> None:
            gone.append(driver)

        plugins.on_gone = on_gone
        peer = await Peer(layout).start()
        await registered(plugins)
        await peer.stop(peer.dra)
        await until(lambda: gone)
        await asyncio.sleep(0.3)
        assert gone == [DRIVER]
        await peer.serve()
        await registered(plugins)
        await peer.stop()  # its registration too
        await until(lambda: len(gone) == 2)
        await asyncio.sleep(0.3)
        assert gone == [DRIVER, DRIVER]


@run_by(run)
async def test_a_driver_that_returns_in_time_is_not_reported_as_gone() -> None:
    async with node(replace(QUICK, gone=3600.0)) as (layout, plugins):
        gone: list[str] = []

        async def on_gone(driver: str) -> None:
            gone.append(driver)

        plugins.on_gone = on_gone
        peer = await Peer(layout).start()
        await registered(plugins)
        await peer.stop()
        await until(lambda: not plugins.drivers())
        await peer.start()
        await registered(plugins)
        assert plugins.registry.missing() == {}
        await peer.stop()
        assert gone == []


@run_by(run)
async def test_cleanup_is_cancelled_when_the_driver_returns() -> None:
    async with node() as (layout, plugins):
        ends: list[str] = []

        async def on_gone(driver: str) -> None:
            try:
                await asyncio.sleep(60)  # a server that does not answer
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        plugins.on_gone = on_gone
        peer = await Peer(layout).start()
        await registered(plugins)
        await peer.stop(peer.dra)
        await until(lambda: plugins.cleanups)
        await peer.serve()
        await until(lambda: ends)
        await peer.stop()


def test_errors_of_listeners_are_contained(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with node() as (layout, plugins):

            def on_change() -> None:
                raise RuntimeError("a bug of the listener")

            async def on_gone(driver: str) -> None:
                raise RuntimeError("another bug")

            plugins.on_change, plugins.on_gone = on_change, on_gone
            peer = await Peer(layout).start()
            await registered(plugins)
            await peer.stop()
            await until(lambda: "another bug" in caplog.text)
            await peer.start()
            await registered(plugins)
            await peer.stop()

    run(scenario)
    assert "a bug of the listener" in caplog.text
