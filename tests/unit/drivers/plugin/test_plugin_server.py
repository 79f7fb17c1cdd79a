"""A driver between an API server and a node, on real sockets; the node's side is that of our agent."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from plimsoll.drivers.plugin import (
    ClaimRef,
    DeviceHealth,
    Health,
    InjectedDevice,
    PluginServer,
    Pool,
    PreparedDevice,
    Refusal,
)
from plimsoll.errors import ConfigError
from plimsoll.node.claim_info import DriverFault
from plimsoll.node.layout import Layout
from plimsoll.node.plugins import Plugins
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1, health_v1alpha1, registration
from tests.unit.drivers.plugin.world import (
    DRIVER,
    NODE,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Widgets,
    World,
    run,
    short_folder,
    until,
    until_async,
    world,
)
from tests.unit.node.plugins.peers import QUICK


class Place:
    """A node's folders, the agent's side of its sockets, and stations."""

    def __init__(self, earth: World, folder: Path) -> None:
        self.earth = earth
        self.root = folder / "r"
        self.cdi = folder / "cdi"
        self.plugins = Plugins(Layout(self.root), times=QUICK)

    async def restart(self) -> None:
        """As when the agent ends and another begins."""
        await self.plugins.stop()
        self.plugins = Plugins(Layout(self.root), times=QUICK)
        await self.plugins.start()

    def station(self, driver: Widgets, **options: Any) -> PluginServer:
        options = {"root": self.root, "cdi": self.cdi, "look": 0.05, "grace": 5.0, **options}
        return PluginServer(driver, self.earth.client, NODE, **options)

    @asynccontextmanager
    async def running(self, driver: Widgets, **options: Any) -> AsyncIterator[PluginServer]:
        station = self.station(driver, **options)
        await station.start()
        try:
            assert await station.wait_registered(10) == ""
            await until(lambda: [each for each in self.plugins.drivers() if each.connected])
            yield station
        finally:
            await station.stop()

    async def prepare(self, *refs: ClaimRef) -> list[Any]:
        answers = await self.plugins.prepare(DRIVER, refs)
        return [answers[ref.uid] for ref in refs]

    async def unprepare(self, *refs: ClaimRef) -> list[Any]:
        answers = await self.plugins.unprepare(DRIVER, refs)
        return [answers[ref.uid] for ref in refs]


@asynccontextmanager
async def place(gates: str = "") -> AsyncIterator[Place]:
    with short_folder() as folder:
        async with world(gates) as earth:
            found = Place(earth, folder)
            await found.plugins.start()
            try:
                yield found
            finally:
                await found.plugins.stop()


def fault(message: str) -> DriverFault:
    return DriverFault(DRIVER, "refused", message)


# -- registering


def test_a_driver_registers_publishes_and_answers() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            async with here.running(driver) as station:
                assert station.registered
                assert station.registration_error == ""
                await until(lambda: station.published)
                ref = await here.earth.add_claim("c", "w1")
                (devices,) = await here.prepare(ref)
                cdi = f"{DRIVER}/claim={ref.uid}-0"
                assert devices == (PreparedDevice(NODE, "w1", ("it",), (cdi,)),)
                (path,) = here.cdi.iterdir()
                assert path.name == f"{DRIVER}-claim_{ref.uid}.json"
                spec = json.loads(path.read_text())
                assert spec["kind"] == f"{DRIVER}/claim"
                assert spec["devices"] == [{"name": f"{ref.uid}-0", "containerEdits": {"env": ["WIDGET=w1"]}}]
                assert await here.unprepare(ref) == [None]
                assert list(here.cdi.iterdir()) == []
                assert station.metrics.calls.prepared == station.metrics.calls.unprepared == 1
                assert driver.calls == [("prepare", "c"), ("unprepare", "c")]
            assert not station.registration.exists()
            assert not station.endpoint.exists()
            await until(lambda: not here.plugins.drivers())
            assert len(await here.earth.slices()) == 1

    run(story)


def test_slices_can_be_taken_along() -> None:
    async def story() -> None:
        async with place() as here:
            station = here.station(Widgets())
            await station.start()
            await until(lambda: station.published)
            await station.stop(withdraw=True)
            assert await here.earth.slices() == []

    run(story)


def test_slices_can_be_left_to_others() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets(), publish=False) as station:
            station.publish()
            await asyncio.sleep(0.1)
            assert not station.published
            assert station.publish_errors == ()
            assert await here.earth.slices() == []

    run(story)


def test_a_station_starts_again() -> None:
    async def story() -> None:
        async with place() as here:
            station = here.station(Widgets())
            for _ in range(2):
                task = asyncio.create_task(station.run())
                await until(lambda: station.registered and station.published)
                await station.stop(withdraw=True)
                await task
                assert await here.earth.slices() == []
                await until(lambda: not here.plugins.drivers())

    run(story)


def test_a_driver_that_is_refused_says_why() -> None:
    async def story() -> None:
        async with place() as here:
            await here.plugins.stop()
            station = here.station(Widgets())
            await station.start()
            try:
                why = await station.wait_registered(0.05)
                assert why.startswith("kubelet never reported a registration status, check that it watches /")
                channel = rpc.dial(station.registration)
                method = rpc.method_of(registration.DESCRIPTOR, "Registration", "NotifyRegistrationStatus")
                status = registration.RegistrationStatus(plugin_registered=False, error="too old")
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await rpc.call(channel, method, status, timeout=5)
                assert caught.value.details() == "failed registration process: too old"
                await rpc.close(channel)
                assert (station.registered, station.registration_error) == (False, "too old")
                assert 'last rejection was "too old"' in await station.wait_registered(0.05)
                await here.plugins.start()
                assert await station.wait_registered(10) == ""
                assert station.registration_error == ""
            finally:
                await station.stop()

    run(story)


def test_a_node_that_comes_back_finds_the_driver() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()) as station:
            await until(lambda: station.published)
            await here.restart()
            # A kubelet that starts takes away all slices of its node.
            await here.earth.admin.delete_collection(RESOURCE_SLICES)
            await until(lambda: station.metrics.registrations == 2)
            await until_async(here.earth.slices)
            ref = await here.earth.add_claim("c", "w1")
            assert len((await here.prepare(ref))[0]) == 1
            assert station.metrics.sockets_made == 2

    run(story)


def test_sockets_are_made_anew_when_their_folders_are_wiped() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()) as station:
            ref = await here.earth.add_claim("c", "w1")
            for victims in (
                [here.root / "plugins_registry", here.root / "plugins"],
                [station.registration],
                [station.endpoint],
            ):
                await here.plugins.stop()
                made = station.metrics.sockets_made
                for victim in victims:
                    if victim.is_dir():
                        shutil.rmtree(victim)
                    else:
                        victim.unlink()
                await until(lambda made=made: station.metrics.sockets_made > made)  # type: ignore[misc]
                await until(lambda: station.registration.exists() and station.endpoint.exists())
                here.plugins = Plugins(Layout(here.root), times=QUICK)
                await here.plugins.start()
                await until(lambda: [each for each in here.plugins.drivers() if each.connected])
                assert len((await here.prepare(ref))[0]) == 1

    run(story)


def test_a_node_that_stays_finds_the_driver_again_when_sockets_are_wiped() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()) as station:
            ref = await here.earth.add_claim("c", "w1")
            station.endpoint.unlink()
            await until(lambda: station.metrics.registrations == 2)
            await until(lambda: [each for each in here.plugins.drivers() if each.connected])
            assert len((await here.prepare(ref))[0]) == 1

    run(story)


def test_a_socket_that_somebody_else_serves_is_not_taken() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()) as station:
            with pytest.raises(ConfigError, match="somebody serves on this socket already"):
                await here.station(Widgets()).start()
            assert station.registered
            # And one that somebody else took is left to them.
            station.registration.unlink()
            other = await rpc.serve(station.registration, [])
            await until(lambda: "somebody else serves on this socket" in station.registration_error)
            await other.stop(None)
            await until(lambda: station.registered)

    run(story)


def test_a_socket_of_somebody_else_is_still_there_after_the_end() -> None:
    async def story() -> None:
        async with place() as here:
            async with here.running(Widgets(), look=60.0) as station:
                station.registration.unlink()
                other = await rpc.serve(station.registration, [])
            assert rpc.answers(station.registration)
            await other.stop(None)

    run(story)


def test_names_and_folders_that_cannot_be_used() -> None:
    async def story() -> None:
        async with place() as here:
            for name in ("", "Upper", "a/b", "x" * 64, "-a", "a..b", "a.-b"):
                driver = Widgets()
                driver.name = name
                with pytest.raises(ConfigError, match="driver name"):
                    here.station(driver)
            with pytest.raises(ConfigError, match="instance"):
                here.station(Widgets(), instance="a/b")
            with pytest.raises(ConfigError, match="at most 107 bytes"):
                here.station(Widgets(), root=here.root / ("x" * 80))
            (here.root / "plugins" / DRIVER).write_text("in the way")
            with pytest.raises(ConfigError, match="File exists"):
                await here.station(Widgets()).start()

    run(story)


def test_two_instances_relieve_each_other() -> None:
    async def story() -> None:
        async with place() as here:
            old, new = Widgets(), Widgets()
            ref = await here.earth.add_claim("c", "w1")
            async with here.running(old, instance="old") as first:
                assert first.endpoint.name == "dra-old.sock"
                assert first.registration.name == f"{DRIVER}-old-reg.sock"
                before = await here.prepare(ref)
                second = here.station(new, instance="new")
                await second.start()
                await until(lambda: len([each for each in here.plugins.drivers() if each.connected]) == 2)
                await first.stop()
                assert await here.prepare(ref) == before
                assert await here.unprepare(ref) == [None]
                assert new.calls == [("unprepare", "c")]
                await second.stop()
            assert list(here.cdi.iterdir()) == []

    run(story)


# -- claims


def test_a_claim_that_cannot_be_read_fails_alone() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()):
            earth = here.earth
            good = await earth.add_claim("good", "w1")
            bare = await earth.add_claim("bare")
            replaced = await earth.add_claim("replaced", "w2")
            other = ClaimRef("default", "replaced", "11111111-2222-3333-4444-555555555555")
            missing = ClaimRef("default", "missing", "22222222-2222-3333-4444-555555555555")
            evil = ClaimRef("default", "../../pods/x", "33333333-2222-3333-4444-555555555555")
            answers = await here.prepare(good, bare, other, missing, evil)
            assert len(answers[0]) == 1
            assert answers[1:] == [
                fault("claim default/bare not allocated"),
                fault("claim default/replaced got replaced"),
                fault('retrieve claim default/missing: resourceclaims.resource.k8s.io "missing" not found'),
                fault("claim 'default/../../pods/x': '../../pods/x' is no name of a claim"),
            ]
            assert len((await here.prepare(replaced))[0]) == 1

    run(story)


def test_results_of_other_drivers_are_none_of_its_business() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            seen: list[Any] = []
            driver.answer = lambda claim: seen.append(claim) or ()  # type: ignore[func-returns-value]
            async with here.running(driver):
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
                ref = await here.earth.add_claim("c", "w0", more=[foreign], config=config)
                assert await here.prepare(ref) == [()]
                (claim,) = seen
                assert [result.device for result in claim.results] == ["w0"]
                assert claim.parameters() == ({"n": 0}, {"n": 1}, {"n": 2})
                assert claim.parameters("it") == ({"n": 0}, {"n": 1})
                assert claim.parameters("other/sub") == ({"n": 0}, {"n": 2})
                assert claim.tree["metadata"]["uid"] == ref.uid

    run(story)


def test_repeated_calls_have_the_same_answer_over_restarts() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            ref = await here.earth.add_claim("c", "w0", "w2")
            async with here.running(driver):
                first = await here.prepare(ref)
                assert await here.prepare(ref, ref) == first * 2
            (path,) = here.cdi.iterdir()
            text = path.read_text()
            path.unlink()
            async with here.running(Widgets()) as station:
                # The file is back before anybody asks: containers may start again without a call.
                assert path.read_text() == text
                assert list(station.handed) == [ref.uid]
                assert await here.prepare(ref) == first
                # A claim that is gone from the API can be released all the same, and more than once.
                await here.earth.admin.delete(RESOURCE_CLAIMS, "c", "default")
                assert await here.unprepare(ref) == [None]
                assert await here.unprepare(ref) == [None]
                assert not station.handed
            assert list(here.cdi.iterdir()) == []
            assert driver.calls == [("prepare", "c")]

    run(story)


def test_a_driver_that_raises_has_refused_that_claim_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()

            def answer(claim: Any) -> Sequence[InjectedDevice]:
                if claim.ref.name == "bad":
                    raise RuntimeError("smoke")
                return [InjectedDevice(["it"], NODE, "w0")]

            driver.answer = answer
            async with here.running(driver) as station:
                good, bad = await here.earth.add_claim("good", "w0"), await here.earth.add_claim("bad", "w1")
                answers = await here.prepare(bad, good)
                assert answers == [
                    fault(f"driver {DRIVER}: RuntimeError: smoke"),
                    (PreparedDevice(NODE, "w0", ("it",)),),
                ]
                assert station.metrics.calls.faults == 1
                driver.refuse = Refusal("in use")
                assert await here.unprepare(good) == [fault("in use")]
                assert list(station.handed) == [good.uid]
                driver.unprepare = None  # type: ignore[assignment,method-assign]
                assert (await here.unprepare(good))[0].message.startswith(f"driver {DRIVER}: TypeError: ")

    with caplog.at_level(logging.ERROR, "plimsoll.driver"):
        run(story)
    assert "prepare of claim default/bad failed" in caplog.text


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "NoneType in place of a list of devices or a Refusal"),
        ("w0", "str in place of a list"),
        (["w0"], "a list of str; all devices"),
        (
            [InjectedDevice((), NODE, "w0"), PreparedDevice(NODE, "w0")],
            "a list of InjectedDevice, PreparedDevice",
        ),
        ([PreparedDevice("", "w0")], "a device without the name of its pool"),
        ([PreparedDevice(NODE, "w0", ("../x",))], "'../x' is not the name of a request"),
        ([InjectedDevice("it", NODE, "w0")], "requests is a text"),
        ([PreparedDevice(NODE, "w0", (), ("nonsense",))], "'nonsense' is not the name of a CDI device"),
        ([InjectedDevice((), NODE, "w0", mounts=[{"hostPath": "/x"}])], "containerPath"),
        ([InjectedDevice((), NODE, "w0", env={"": "x"})], "invalid environment variable"),
    ],
)
def test_answers_of_a_driver_that_cannot_be_used(answer: Any, text: str) -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            driver.answer = lambda claim: answer
            async with here.running(driver) as station:
                (found,) = await here.prepare(await here.earth.add_claim("c", "w0"))
                assert text in found.message
                assert not station.handed
                assert not here.cdi.exists() or not list(here.cdi.iterdir())

    run(story)


def test_calls_are_carried_out_one_at_a_time_and_to_their_end() -> None:
    async def story() -> None:
        async with place() as here:
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

            async with here.running(Slow()) as station:
                refs = [await here.earth.add_claim(f"c{n}", "w0") for n in range(3)]
                channel = rpc.dial(station.endpoint)
                method = rpc.method_of(dra_v1.DESCRIPTOR, "DRAPlugin", "NodePrepareResources")
                request = dra_v1.NodePrepareResourcesRequest(
                    claims=[{"namespace": "default", "name": refs[0].name, "uid": refs[0].uid}]
                )
                with pytest.raises(grpc.aio.AioRpcError):  # it gives up; the driver does not
                    await rpc.call(channel, method, request, timeout=0.1)
                await rpc.close(channel)
                calls = [asyncio.create_task(here.prepare(ref)) for ref in refs[1:]]
                await asyncio.sleep(0.05)
                gate.set()
                await asyncio.gather(*calls)
            assert (most, done) == (1, 3)

    run(story)


def test_calls_under_way_end_before_the_driver_does() -> None:
    async def story() -> None:
        async with place() as here:
            began, gate = asyncio.Event(), asyncio.Event()

            class Slow(Widgets):
                async def prepare(self, claim: Any) -> Any:
                    began.set()
                    await gate.wait()
                    return ()

            async with here.running(Slow()) as station:
                ref = await here.earth.add_claim("c", "w0")
                call = asyncio.create_task(here.prepare(ref))
                await began.wait()
                ending = asyncio.create_task(station.stop())
                await until(lambda: not station.registration.exists())
                gate.set()
                await ending
                assert await call == [()]

    run(story)


def test_claims_are_answered_while_nothing_is_published() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets(Pool("a", [{"name": "Not a name"}]))
            async with here.running(driver) as station:
                ref = await here.earth.add_claim("c", "w0")
                assert len((await here.prepare(ref))[0]) == 1
                assert not station.published
                await until(lambda: station.publish_errors)
                assert "spec.devices[0].name" in station.publish_errors[0]

    run(story)


def test_claims_while_the_api_is_away() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()):
            ref = await here.earth.add_claim("c", "w0")
            here.earth.wire.cut()
            (answer,) = await here.prepare(ref)
            assert answer == fault("retrieve claim default/c: connection refused")
            assert await here.unprepare(ref) == [None]
            here.earth.wire.mend()
            assert len((await here.prepare(ref))[0]) == 1

    run(story)


def test_a_driver_that_cannot_say_what_to_publish() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            async with here.running(driver) as station:
                await until(lambda: station.published)
            driver.offer = 5  # type: ignore[assignment]
            async with here.running(driver) as station:
                assert not station.published
                assert station.publish_errors[0].startswith("pools(): TypeError: ")
                driver.offer = [object()]  # type: ignore[list-item]
                station.publish()
                assert station.publish_errors[0].startswith("pools(): AttributeError: ")
                await asyncio.sleep(0.2)
                assert len(await here.earth.slices()) == 1  # of a former run: nobody said that it must go
                driver.offer = [Pool(NODE)]
                station.publish()
                await until(lambda: station.published)
                assert station.publish_errors == ()

    run(story)


def test_a_driver_that_does_not_know_yet_what_to_publish() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            async with here.running(driver) as station:
                await until(lambda: station.published)
            before = await here.earth.slices()
            driver.offer = None  # type: ignore[assignment]
            async with here.running(driver) as station:
                await asyncio.sleep(0.1)
                assert not station.published
                assert await here.earth.slices() == before
                driver.offer = [Pool(NODE)]
                station.publish()
                await until(lambda: station.published)

    run(story)


def test_both_versions_are_served_alike() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Widgets()
            driver.answer = lambda claim: [PreparedDevice(NODE, "w0", ("it/sub",), ("a/b=c",), "share-1")]
            async with here.running(driver) as station:
                ref = await here.earth.add_claim("c", "w0")
                channel = rpc.dial(station.endpoint)
                found = []
                for messages in (dra_v1, dra_v1beta1):
                    method = rpc.method_of(messages.DESCRIPTOR, "DRAPlugin", "NodePrepareResources")
                    claim = {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}
                    request = messages.NodePrepareResourcesRequest(claims=[claim, claim])
                    answer = await rpc.call(channel, method, request, timeout=5)
                    (device,) = answer.claims[ref.uid].devices
                    found.append(device)
                    assert (device.pool_name, device.device_name) == (NODE, "w0")
                    assert list(device.request_names) == ["it"]
                    assert list(device.cdi_device_ids) == ["a/b=c"]
                assert found[0].share_id == "share-1"
                await rpc.close(channel)

    run(story)


def test_observers_hear_of_every_claim() -> None:
    async def story() -> None:
        async with place() as here, here.running(Widgets()) as station:
            heard: list[tuple[str, str, str]] = []

            def broken(call: Any) -> None:
                raise RuntimeError("no")

            station.metrics.calls.observers += [
                broken,
                lambda call: heard.append((call.method, call.ref.name, str(call.refusal or ""))),
            ]
            good, bare = await here.earth.add_claim("good", "w0"), await here.earth.add_claim("bare")
            await here.prepare(good, bare)
            await here.unprepare(good)
            assert heard == [
                ("prepare", "good", ""),
                ("prepare", "bare", "claim default/bare not allocated"),
                ("unprepare", "good", ""),
            ]

    run(story)


# -- health


class Sickly(Widgets):
    ill: Iterable[DeviceHealth] = (DeviceHealth(NODE, "w0"),)

    def health(self) -> Iterable[DeviceHealth]:
        return self.ill


def test_health_is_told_at_once_when_it_changes_and_every_so_often() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Sickly()
            async with here.running(driver, health_every=0.2) as station:
                channel = rpc.dial(station.endpoint)
                for messages in (health_v1, health_v1alpha1):
                    driver.ill = (DeviceHealth(NODE, "w0"),)
                    method = rpc.method_of(messages.DESCRIPTOR, "DRAResourceHealth", "NodeWatchResources")
                    stream = rpc.watch(channel, method, messages.NodeWatchResourcesRequest())
                    message = await anext(aiter(stream))
                    assert [(each.device.device_name, each.health) for each in message.devices] == [("w0", 1)]
                    assert message.devices[0].last_updated_time > 1_700_000_000
                    driver.ill = [
                        DeviceHealth(NODE, "w0", Health.UNHEALTHY, "hot" * 1000, timeout=20),
                        DeviceHealth(NODE, "w1", Health.UNKNOWN),
                    ]
                    station.tell_health()
                    iterator = aiter(stream)
                    message = await anext(iterator)
                    while len(message.devices) == 1:  # said before we did
                        message = await anext(iterator)
                    assert [each.health for each in message.devices] == [2, 0]
                    assert message.devices[0].health_check_timeout_seconds == 20
                    assert len(message.devices[0].message) == 1024
                    assert len((await anext(iterator)).devices) == 2  # and again
                    assert station.watched
                    stream.cancel()  # type: ignore[attr-defined]
                await rpc.close(channel)

    run(story)


def test_a_node_hears_of_health_and_drivers_without_it_do_not_offer_it() -> None:
    async def story() -> None:
        async with place() as here:
            async with here.running(Sickly()) as station:
                await until(lambda: station.watched)
            async with here.running(Widgets()) as station:
                await asyncio.sleep(0.05)
                assert not station.watched
                assert station._info()["supported_versions"] == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]

    run(story)


def test_a_driver_that_cannot_say_how_its_devices_are() -> None:
    async def story() -> None:
        async with place() as here:
            driver = Sickly()
            driver.ill = None  # type: ignore[assignment]
            async with here.running(driver) as station:
                await until(lambda: station.watched)
                driver.ill = [DeviceHealth(NODE, "w0")]
                station.tell_health()
                await asyncio.sleep(0.05)
                assert station.watched

    run(story)
