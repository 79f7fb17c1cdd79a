"""Plugin server between an API server and the node agent's plugin manager, on real sockets."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import Iterable, Sequence
from typing import Any

import grpc.aio
import pytest

from plimsoll.drivers.plugin import (
    ClaimError,
    ClaimRef,
    DeviceHealth,
    DevicePool,
    Health,
    InjectedDevice,
    PreparedDevice,
    claim_handler,
)
from plimsoll.drivers.plugin.claim_reader import read_claim
from plimsoll.errors import ConfigError
from plimsoll.node.claim_info import DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import PluginManager
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1, health_v1alpha1, registration
from tests.coroutines import run_by
from tests.unit.drivers.plugin.fixtures import (
    DRIVER,
    NODE,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Widgets,
    run,
)
from tests.unit.drivers.plugin.node_fixture import node_fixture
from tests.unit.node.plugins.peers import QUICK
from tests.waiting import DEADLINE, until


def fault(message: str) -> DriverFault:
    return DriverFault(DRIVER, "refused", message)


# -- registering


@run_by(run)
async def test_a_driver_registers_publishes_and_prepares() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        async with node.running(driver) as server:
            assert server.registered
            assert server.registration_error == ""
            await until(lambda: server.published)
            ref = await node.cluster.add_claim("c", "w1")
            (devices,) = await node.prepare(ref)
            cdi = f"{DRIVER}/claim={ref.uid}-0"
            assert devices == (PreparedDevice(NODE, "w1", ("it",), (cdi,)),)
            (path,) = node.cdi.iterdir()
            assert path.name == f"{DRIVER}-claim_{ref.uid}.json"
            spec = json.loads(path.read_text())
            assert spec["kind"] == f"{DRIVER}/claim"
            assert spec["devices"] == [{"name": f"{ref.uid}-0", "containerEdits": {"env": ["WIDGET=w1"]}}]
            assert await node.unprepare(ref) == [None]
            assert list(node.cdi.iterdir()) == []
            assert server.metrics.calls.prepared == server.metrics.calls.unprepared == 1
            assert driver.calls == [("prepare", "c"), ("unprepare", "c")]
        assert not server.registration.exists()
        assert not server.endpoint.exists()
        await until(lambda: not node.plugins.drivers())
        assert len(await node.cluster.slices()) == 1


@run_by(run)
async def test_slices_can_be_deleted_on_stop() -> None:
    async with node_fixture() as node:
        server = node.server(Widgets())
        await server.start()
        await until(lambda: server.published)
        await server.stop(withdraw=True)
        assert await node.cluster.slices() == []


@run_by(run)
async def test_publishing_can_be_disabled() -> None:
    async with node_fixture() as node, node.running(Widgets(), publish=False) as server:
        server.publish()
        await asyncio.sleep(0.1)
        assert not server.published
        assert server.publish_errors == ()
        assert await node.cluster.slices() == []


@run_by(run)
async def test_a_plugin_server_restarts() -> None:
    async with node_fixture() as node:
        server = node.server(Widgets())
        for _ in range(2):
            task = asyncio.create_task(server.run())
            await until(lambda: server.registered and server.published)
            await server.stop(withdraw=True)
            await task
            assert await node.cluster.slices() == []
            await until(lambda: not node.plugins.drivers())


@run_by(run)
async def test_rejected_registration_reports_the_reason() -> None:
    async with node_fixture() as node:
        await node.plugins.stop()
        server = node.server(Widgets())
        await server.start()
        try:
            why = await server.wait_registered(0.05)
            assert why.startswith("kubelet never reported a registration status, check that it watches /")
            channel = rpc.dial(server.registration)
            method = rpc.find_method(registration.DESCRIPTOR, "Registration", "NotifyRegistrationStatus")
            status = registration.RegistrationStatus(plugin_registered=False, error="too old")
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await rpc.call(channel, method, status, timeout=DEADLINE)
            assert caught.value.details() == "failed registration process: too old"
            await rpc.close(channel)
            assert (server.registered, server.registration_error) == (False, "too old")
            assert 'last rejection was "too old"' in await server.wait_registered(0.05)
            await node.plugins.start()
            assert await server.wait_registered(10) == ""
            assert server.registration_error == ""
        finally:
            await server.stop()


@run_by(run)
async def test_the_driver_registers_and_publishes_again_after_an_agent_restart() -> None:
    async with node_fixture() as node, node.running(Widgets()) as server:
        await until(lambda: server.published)
        await node.restart()
        # A kubelet that starts takes away all slices of its node.
        await node.cluster.admin.delete_collection(RESOURCE_SLICES)
        await until(lambda: server.metrics.registrations == 2)
        await until(node.cluster.slices)
        ref = await node.cluster.add_claim("c", "w1")
        assert len((await node.prepare(ref))[0]) == 1
        assert server.metrics.sockets_created == 2


@run_by(run)
async def test_sockets_are_recreated_when_their_directories_are_deleted() -> None:
    async with node_fixture() as node, node.running(Widgets()) as server:
        ref = await node.cluster.add_claim("c", "w1")
        for victims in (
            [node.root / "plugins_registry", node.root / "plugins"],
            [server.registration],
            [server.endpoint],
        ):
            await node.plugins.stop()
            made = server.metrics.sockets_created
            for victim in victims:
                if victim.is_dir():
                    shutil.rmtree(victim)
                else:
                    victim.unlink()
            await until(lambda made=made: server.metrics.sockets_created > made)  # type: ignore[misc]
            await until(lambda: server.registration.exists() and server.endpoint.exists())
            node.plugins = PluginManager(Layout(node.root), times=QUICK)
            await node.plugins.start()
            await until(lambda: [each for each in node.plugins.drivers() if each.connected])
            assert len((await node.prepare(ref))[0]) == 1


@run_by(run)
async def test_the_driver_registers_again_after_its_sockets_are_deleted() -> None:
    async with node_fixture() as node, node.running(Widgets()) as server:
        ref = await node.cluster.add_claim("c", "w1")
        server.endpoint.unlink()
        await until(lambda: server.metrics.registrations == 2)
        await until(lambda: [each for each in node.plugins.drivers() if each.connected])
        assert len((await node.prepare(ref))[0]) == 1


@run_by(run)
async def test_a_socket_served_by_another_process_is_not_replaced() -> None:
    async with node_fixture() as node, node.running(Widgets()) as server:
        with pytest.raises(ConfigError, match="another process serves on this socket"):
            await node.server(Widgets()).start()
        assert server.registered
        # And one taken by another driver is left alone.
        server.registration.unlink()
        other = await rpc.serve(server.registration, [])
        await until(lambda: "another process is serving on this socket" in server.registration_error)
        await other.stop(None)
        await until(lambda: server.registered)


@run_by(run)
async def test_a_socket_of_another_process_is_not_removed() -> None:
    async with node_fixture() as node:
        async with node.running(Widgets(), socket_poll=60.0) as server:
            server.registration.unlink()
            other = await rpc.serve(server.registration, [])
        assert rpc.is_listening(server.registration)
        await other.stop(None)


@run_by(run)
async def test_invalid_names_and_directories_are_refused() -> None:
    async with node_fixture() as node:
        for name in ("", "Upper", "a/b", "x" * 64, "-a", "a..b", "a.-b"):
            driver = Widgets()
            driver.name = name
            with pytest.raises(ConfigError, match="driver name"):
                node.server(driver)
        with pytest.raises(ConfigError, match="instance"):
            node.server(Widgets(), instance="a/b")
        with pytest.raises(ConfigError, match="at most 107 bytes"):
            node.server(Widgets(), root=node.root / ("x" * 80))
        (node.root / "plugins" / DRIVER).write_text("in the way")
        with pytest.raises(ConfigError, match="File exists"):
            await node.server(Widgets()).start()


@run_by(run)
async def test_two_instances_replace_each_other() -> None:
    async with node_fixture() as node:
        old, new = Widgets(), Widgets()
        ref = await node.cluster.add_claim("c", "w1")
        async with node.running(old, instance="old") as first:
            assert first.endpoint.name == "dra-old.sock"
            assert first.registration.name == f"{DRIVER}-old-reg.sock"
            before = await node.prepare(ref)
            second = node.server(new, instance="new")
            await second.start()
            await until(lambda: len([each for each in node.plugins.drivers() if each.connected]) == 2)
            await first.stop()
            assert await node.prepare(ref) == before
            assert await node.unprepare(ref) == [None]
            assert new.calls == [("unprepare", "c")]
            await second.stop()
        assert list(node.cdi.iterdir()) == []


# -- claims


@run_by(run)
async def test_a_claim_that_cannot_be_read_fails_alone() -> None:
    async with node_fixture() as node, node.running(Widgets()):
        cluster = node.cluster
        good = await cluster.add_claim("good", "w1")
        bare = await cluster.add_claim("bare")
        replaced = await cluster.add_claim("replaced", "w2")
        other = ClaimRef("default", "replaced", "11111111-2222-3333-4444-555555555555")
        missing = ClaimRef("default", "missing", "22222222-2222-3333-4444-555555555555")
        evil = ClaimRef("default", "../../pods/x", "33333333-2222-3333-4444-555555555555")
        responses = await node.prepare(good, bare, other, missing, evil)
        assert len(responses[0]) == 1
        assert responses[1:] == [
            fault("claim default/bare not allocated"),
            fault("claim default/replaced got replaced"),
            fault('retrieve claim default/missing: resourceclaims.resource.k8s.io "missing" not found'),
            fault("claim 'default/../../pods/x': '../../pods/x' is not a valid name"),
        ]
        assert len((await node.prepare(replaced))[0]) == 1


@run_by(run)
async def test_results_of_other_drivers_are_ignored() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        seen: list[Any] = []
        driver.response = lambda claim: seen.append(claim) or ()  # type: ignore[func-returns-value]
        async with node.running(driver):
            foreign = {"request": "other", "driver": "other.example.com", "pool": "p", "device": "d"}
            config: list[dict[str, Any]] = [
                {
                    "source": source,
                    "requests": names,
                    "opaque": {"driver": name, "parameters": {"n": n}},
                }
                for n, (source, names, name) in enumerate(
                    [
                        ("FromClass", [], DRIVER),
                        ("FromClaim", ["it"], DRIVER),
                        ("FromClaim", ["other"], DRIVER),
                        ("FromClaim", [], "other.example.com"),
                    ]
                )
            ]
            ref = await node.cluster.add_claim("c", "w0", more=[foreign], config=config)
            assert await node.prepare(ref) == [()]
            (claim,) = seen
            assert [result.device for result in claim.results] == ["w0"]
            assert claim.parameters() == ({"n": 0}, {"n": 1}, {"n": 2})
            assert claim.parameters("it") == ({"n": 0}, {"n": 1})
            assert claim.parameters("other/sub") == ({"n": 0}, {"n": 2})
            assert claim.tree["metadata"]["uid"] == ref.uid


@run_by(run)
async def test_repeated_calls_have_the_same_response_across_restarts() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        ref = await node.cluster.add_claim("c", "w0", "w2")
        async with node.running(driver):
            first = await node.prepare(ref)
            assert await node.prepare(ref, ref) == first * 2
        (path,) = node.cdi.iterdir()
        text = path.read_text()
        path.unlink()
        async with node.running(Widgets()) as server:
            # The file is restored without a call, so that containers can restart.
            assert path.read_text() == text
            assert list(server.prepared_claims) == [ref.uid]
            assert await node.prepare(ref) == first
            # A claim that is gone from the API can be released all the same, and more than once.
            await node.cluster.admin.delete(RESOURCE_CLAIMS, "c", "default")
            assert await node.unprepare(ref) == [None]
            assert await node.unprepare(ref) == [None]
            assert not server.prepared_claims
        assert list(node.cdi.iterdir()) == []
        assert driver.calls == [("prepare", "c")]


@run_by(run)
async def test_a_claim_is_prepared_again_after_a_failed_unprepare() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        ref = await node.cluster.add_claim("c", "w0")
        async with node.running(driver):
            first = await node.prepare(ref)
            driver.refuse = ClaimError("half done")
            assert await node.unprepare(ref) == [fault("half done")]
            # The devices may be in any state: the stored response is not enough, also after a restart.
            assert await node.prepare(ref) == first
            assert driver.calls[1:] == [("unprepare", "c"), ("prepare", "c")]
            assert await node.unprepare(ref) == [fault("half done")]
        later = Widgets()
        async with node.running(later) as server:
            assert list(server.prepared_claims) == [ref.uid]
            assert await node.prepare(ref) == first
            assert later.calls == [("prepare", "c")]
            assert await node.prepare(ref) == first
            assert await node.unprepare(ref) == [None]
            assert later.calls[1:] == [("unprepare", "c")]
            assert not server.prepared_claims


@run_by(run)
async def test_a_late_call_prepares_no_unprepared_claim(*, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node_fixture() as node:
        driver = Widgets()
        ref = await node.cluster.add_claim("c", "w0")
        answered = asyncio.Event()

        async def read_slowly(*arguments: Any) -> Any:
            found = await read_claim(*arguments)
            await answered.wait()
            return found

        async with node.running(driver) as server:
            with monkeypatch.context() as patch:
                patch.setattr(claim_handler, "read_claim", read_slowly)
                late = asyncio.create_task(server.prepare(ref))
                await asyncio.sleep(0)
                # The node agent is restarted, and the pod is gone: it knows nothing of the first call.
                assert await node.unprepare(ref) == [None]
                answered.set()
                refusal = await late
            assert refusal is not None
            assert refusal.message == "claim default/c was unprepared while it was read"
            assert driver.calls == [("unprepare", "c")]
            assert len(await node.prepare(ref)) == 1
            assert driver.calls[1:] == [("prepare", "c")]


def test_an_error_in_the_driver_fails_only_that_claim(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with node_fixture() as node:
            driver = Widgets()

            def response(claim: Any) -> Sequence[InjectedDevice]:
                if claim.ref.name == "bad":
                    raise RuntimeError("smoke")
                return [InjectedDevice(["it"], NODE, "w0")]

            driver.response = response
            async with node.running(driver) as server:
                good, bad = (
                    await node.cluster.add_claim("good", "w0"),
                    await node.cluster.add_claim("bad", "w1"),
                )
                responses = await node.prepare(bad, good)
                assert responses == [
                    fault(f"driver {DRIVER}: RuntimeError: smoke"),
                    (PreparedDevice(NODE, "w0", ("it",)),),
                ]
                assert server.metrics.calls.faults == 1
                driver.refuse = ClaimError("in use")
                assert await node.unprepare(good) == [fault("in use")]
                assert list(server.prepared_claims) == [good.uid]
                driver.unprepare = None  # type: ignore[assignment,method-assign]
                assert (await node.unprepare(good))[0].message.startswith(f"driver {DRIVER}: TypeError: ")

    with caplog.at_level(logging.ERROR, "plimsoll.driver"):
        run(scenario)
    assert "prepare of claim default/bad failed" in caplog.text


@pytest.mark.parametrize(
    ("response", "text"),
    [
        (None, "NoneType instead of a list of devices or a ClaimError"),
        ("w0", "str instead of a list"),
        (["w0"], "a list of str; use either"),
        (
            [InjectedDevice((), NODE, "w0"), PreparedDevice(NODE, "w0")],
            "a list of InjectedDevice, PreparedDevice",
        ),
        ([PreparedDevice("", "w0")], "a device without a pool"),
        ([PreparedDevice(NODE, "w0", ("../x",))], "'../x' is not a valid request name"),
        ([InjectedDevice("it", NODE, "w0")], "requests is a string"),
        ([PreparedDevice(NODE, "w0", (), ("nonsense",))], "'nonsense' is not a valid CDI device name"),
        ([InjectedDevice((), NODE, "w0", mounts=[{"hostPath": "/x"}])], "containerPath"),
        ([InjectedDevice((), NODE, "w0", env={"": "x"})], "invalid environment variable"),
    ],
)
@run_by(run)
async def test_invalid_responses_of_a_driver_are_errors(*, response: Any, text: str) -> None:
    async with node_fixture() as node:
        driver = Widgets()
        driver.response = lambda claim: response
        async with node.running(driver) as server:
            (found,) = await node.prepare(await node.cluster.add_claim("c", "w0"))
            assert text in found.message
            assert not server.prepared_claims
            assert not node.cdi.exists() or not list(node.cdi.iterdir())


@run_by(run)
async def test_calls_are_serialized_and_completed() -> None:
    async with node_fixture() as node:
        under_way = most = done = 0
        gate = asyncio.Event()

        class Slow(Widgets):
            async def prepare(self, claim: Any) -> Any:
                nonlocal under_way, most, done
                under_way += 1
                most = max(most, under_way)
                await gate.wait()
                await asyncio.sleep(0.01)
                under_way -= 1
                done += 1
                return ()

        async with node.running(Slow()) as server:
            refs = [await node.cluster.add_claim(f"c{n}", "w0") for n in range(3)]
            channel = rpc.dial(server.endpoint)
            method = rpc.find_method(dra_v1.DESCRIPTOR, "DRAPlugin", "NodePrepareResources")
            request = dra_v1.NodePrepareResourcesRequest(
                claims=[{"namespace": "default", "name": refs[0].name, "uid": refs[0].uid}]
            )
            first = asyncio.create_task(rpc.call(channel, method, request, timeout=60))
            await until(lambda: under_way == 1)
            first.cancel()  # the caller gives up; the driver does not
            await rpc.close(channel)
            calls = [asyncio.create_task(node.prepare(ref)) for ref in refs[1:]]
            await asyncio.sleep(0.05)
            gate.set()
            await asyncio.gather(*calls)
        assert (most, done) == (1, 3)


@run_by(run)
async def test_calls_in_progress_finish_before_the_driver_stops() -> None:
    async with node_fixture() as node:
        began, gate = asyncio.Event(), asyncio.Event()

        class Slow(Widgets):
            async def prepare(self, claim: Any) -> Any:
                began.set()
                await gate.wait()
                return ()

        async with node.running(Slow()) as server:
            ref = await node.cluster.add_claim("c", "w0")
            call = asyncio.create_task(node.prepare(ref))
            await began.wait()
            ending = asyncio.create_task(server.stop())
            await until(lambda: not server.registration.exists())
            gate.set()
            await ending
            assert await call == [()]


@run_by(run)
async def test_claims_are_prepared_while_nothing_is_published() -> None:
    async with node_fixture() as node:
        driver = Widgets(DevicePool("a", [{"name": "Not a name"}]))
        async with node.running(driver) as server:
            ref = await node.cluster.add_claim("c", "w0")
            assert len((await node.prepare(ref))[0]) == 1
            assert not server.published
            await until(lambda: server.publish_errors)
            assert "spec.devices[0].name" in server.publish_errors[0]


@run_by(run)
async def test_claims_during_an_api_outage() -> None:
    async with node_fixture() as node, node.running(Widgets()):
        ref = await node.cluster.add_claim("c", "w0")
        node.cluster.transport.disconnect()
        (response,) = await node.prepare(ref)
        assert response == fault("retrieve claim default/c: connection refused")
        assert await node.unprepare(ref) == [None]
        node.cluster.transport.reconnect()
        assert len((await node.prepare(ref))[0]) == 1


@run_by(run)
async def test_pools_method_that_raises() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        async with node.running(driver) as server:
            await until(lambda: server.published)
        driver.offer = 5  # type: ignore[assignment]
        async with node.running(driver) as server:
            assert not server.published
            assert server.publish_errors[0].startswith("pools(): TypeError: ")
            driver.offer = [object()]  # type: ignore[list-item]
            server.publish()
            assert server.publish_errors[0].startswith("pools(): AttributeError: ")
            await asyncio.sleep(0.2)
            assert len(await node.cluster.slices()) == 1  # of a former run: it was not unprepared
            driver.offer = [DevicePool(NODE)]
            server.publish()
            await until(lambda: server.published)
            assert server.publish_errors == ()


@run_by(run)
async def test_a_driver_without_pools_publishes_nothing() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        async with node.running(driver) as server:
            await until(lambda: server.published)
        before = await node.cluster.slices()
        driver.offer = None  # type: ignore[assignment]
        async with node.running(driver) as server:
            await asyncio.sleep(0.1)
            assert not server.published
            assert await node.cluster.slices() == before
            driver.offer = [DevicePool(NODE)]
            server.publish()
            await until(lambda: server.published)


@run_by(run)
async def test_both_api_versions_are_served() -> None:
    async with node_fixture() as node:
        driver = Widgets()
        driver.response = lambda claim: [PreparedDevice(NODE, "w0", ("it/sub",), ("a/b=c",), "share-1")]
        async with node.running(driver) as server:
            ref = await node.cluster.add_claim("c", "w0")
            channel = rpc.dial(server.endpoint)
            found = []
            for messages in (dra_v1, dra_v1beta1):
                method = rpc.find_method(messages.DESCRIPTOR, "DRAPlugin", "NodePrepareResources")
                claim = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
                request = messages.NodePrepareResourcesRequest(claims=[claim, claim])
                response = await rpc.call(channel, method, request, timeout=DEADLINE)
                (device,) = response.claims[ref.uid].devices
                found.append(device)
                assert (device.pool_name, device.device_name) == (NODE, "w0")
                assert list(device.request_names) == ["it"]
                assert list(device.cdi_device_ids) == ["a/b=c"]
            assert found[0].share_id == "share-1"
            await rpc.close(channel)


@run_by(run)
async def test_observers_are_called_for_every_claim() -> None:
    async with node_fixture() as node, node.running(Widgets()) as server:
        calls: list[tuple[str, str, str]] = []

        def broken(call: Any) -> None:
            raise RuntimeError("no")

        server.metrics.calls.observers += [
            broken,
            lambda call: calls.append((call.method, call.ref.name, str(call.refusal or ""))),
        ]
        good, bare = await node.cluster.add_claim("good", "w0"), await node.cluster.add_claim("bare")
        await node.prepare(good, bare)
        await node.unprepare(good)
        assert calls == [
            ("prepare", "good", ""),
            ("prepare", "bare", "claim default/bare not allocated"),
            ("unprepare", "good", ""),
        ]


# -- health


class HealthDriver(Widgets):
    health_values: Iterable[DeviceHealth] = (DeviceHealth(NODE, "w0"),)

    def health(self) -> Iterable[DeviceHealth]:
        return self.health_values


@run_by(run)
async def test_health_is_sent_on_change_and_periodically() -> None:
    async with node_fixture() as node:
        driver = HealthDriver()
        async with node.running(driver, health_interval=0.2) as server:
            channel = rpc.dial(server.endpoint)
            for messages in (health_v1, health_v1alpha1):
                driver.health_values = (DeviceHealth(NODE, "w0"),)
                method = rpc.find_method(messages.DESCRIPTOR, "DRAResourceHealth", "NodeWatchResources")
                stream = rpc.watch(channel, method, messages.NodeWatchResourcesRequest())
                message = await anext(aiter(stream))
                assert [(each.device.device_name, each.health) for each in message.devices] == [("w0", 1)]
                assert message.devices[0].last_updated_time > 1_700_000_000
                driver.health_values = [
                    DeviceHealth(NODE, "w0", Health.UNHEALTHY, "hot" * 1000, timeout=20),
                    DeviceHealth(NODE, "w1", Health.UNKNOWN),
                ]
                server.publish_health()
                iterator = aiter(stream)
                message = await anext(iterator)
                while len(message.devices) == 1:  # sent before the change
                    message = await anext(iterator)
                assert [each.health for each in message.devices] == [2, 0]
                assert message.devices[0].health_check_timeout_seconds == 20
                assert len(message.devices[0].message) == 1024
                assert len((await anext(iterator)).devices) == 2  # and again
                assert server.health_watched
                stream.cancel()  # type: ignore[attr-defined]
            await rpc.close(channel)


@run_by(run)
async def test_health_service_is_registered_only_if_implemented() -> None:
    async with node_fixture() as node:
        async with node.running(HealthDriver()) as server:
            await until(lambda: server.health_watched)
        async with node.running(Widgets()) as server:
            await asyncio.sleep(0.05)
            assert not server.health_watched
            assert server.info()["supported_versions"] == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


@run_by(run)
async def test_health_method_that_raises() -> None:
    async with node_fixture() as node:
        driver = HealthDriver()
        driver.health_values = None  # type: ignore[assignment]
        async with node.running(driver) as server:
            await until(lambda: server.health_watched)
            driver.health_values = [DeviceHealth(NODE, "w0")]
            server.publish_health()
            await asyncio.sleep(0.05)
            assert server.health_watched
