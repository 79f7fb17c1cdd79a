"""Claims tell about their devices what a driver wants, against a server with the rules of the API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import VIEWERS, User, driver_user
from plimsoll.apiserver.in_process import InProcessTransport
from plimsoll.client import Client
from plimsoll.client.retries import Backoff
from plimsoll.drivers.plugin import (
    AllocatedClaim,
    ClaimRef,
    DeviceCondition,
    DeviceReport,
    InjectedDevice,
    Prepared,
    PreparedDevice,
)
from plimsoll.drivers.plugin.claim_status_writer import MOST_REFUSALS, Reporter
from tests.unit.drivers.plugin.test_plugin_server import place
from tests.unit.drivers.plugin.world import (
    DRIVER,
    NODE,
    RESOURCE_CLAIMS,
    Tree,
    Widgets,
    Wire,
    World,
    run,
    until,
    until_async,
    world,
)

READY = DeviceCondition("Ready", True, "Working", "all is well")
BROKEN = DeviceCondition("Ready", False, "Broken")
SHARES = ("a671734a-e8e5-11e4-8fde-42010af09327", "b671734a-e8e5-11e4-8fde-42010af09327")


def told(
    ref: ClaimRef, device: str, value: int = 0, *conditions: DeviceCondition, **more: Any
) -> DeviceReport:
    return DeviceReport(ref, NODE, device, data={"value": value}, conditions=conditions, **more)


@asynccontextmanager
async def reporting(client: Client, **options: Any) -> AsyncIterator[Reporter]:
    options = {"settle": 0.01, "backoff": Backoff(0.01, 0.1), "seldom": Backoff(0.01, 0.02), **options}
    reporter = Reporter(client, DRIVER, **options)
    task = asyncio.create_task(reporter.run())
    try:
        yield reporter
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def devices_of(earth: World, ref: ClaimRef) -> list[Tree]:
    tree = await earth.admin.get(RESOURCE_CLAIMS, ref.name, ref.namespace)
    return list(tree["status"].get("devices", []))


async def values_of(earth: World, ref: ClaimRef) -> dict[str, Any]:
    return {each["device"]: each["data"]["value"] for each in await devices_of(earth, ref) if "data" in each}


def test_claims_tell_what_is_wanted_and_nothing_is_written_twice() -> None:
    async def story() -> None:
        async with world() as earth:
            ref = await earth.add_claim("c", "w0", "w1")
            async with reporting(earth.client) as reporter:
                reporter.want([told(ref, "w0", 1, READY), told(ref, "w1", 2)])
                await until(lambda: reporter.in_line)
                first, second = await devices_of(earth, ref)
                assert first["data"] == {"value": 1}
                (condition,) = first["conditions"]
                since = condition.pop("lastTransitionTime")
                assert condition == {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Working",
                    "message": "all is well",
                }
                assert (second["device"], second["data"]) == ("w1", {"value": 2})
                assert reporter.counters.written == 1
                reporter.want([told(ref, "w0", 1, READY), told(ref, "w1", 3)])
                await until(lambda: reporter.in_line)
                assert await values_of(earth, ref) == {"w0": 1, "w1": 3}
                assert (await devices_of(earth, ref))[0]["conditions"][0]["lastTransitionTime"] == since
            written = len(earth.wire.writes)
            async with reporting(earth.client) as reporter:
                reporter.want([told(ref, "w0", 1, READY), told(ref, "w1", 3)])
                await until(lambda: reporter.in_line)
                assert len(earth.wire.writes) == written, "a new process finds it as it should be"
                reporter.want([told(ref, "w1", 3)])
                await until(lambda: reporter.in_line)
                assert await values_of(earth, ref) == {"w1": 3}
                reporter.want([])
                await until(lambda: reporter.in_line)
                assert await devices_of(earth, ref) == []
                assert not reporter.problems

    run(story)


def test_changes_that_follow_each_other_are_one_write() -> None:
    async def story() -> None:
        async with world() as earth:
            ref = await earth.add_claim("c", "w0")
            async with reporting(earth.client, settle=0.2) as reporter:
                for value in range(50):
                    reporter.want([told(ref, "w0", value)])
                    await asyncio.sleep(0)
                await until(lambda: reporter.in_line)
                assert await values_of(earth, ref) == {"w0": 49}
                assert reporter.counters.written == 1

    run(story)


def test_shares_of_one_device_are_kept_apart() -> None:
    async def story() -> None:
        async with world() as earth:
            amount = {"consumedCapacity": {f"{DRIVER}/n": "1"}}
            results = [
                {"request": "it", "driver": DRIVER, "pool": NODE, "device": "w0", "shareID": share, **amount}
                for share in SHARES
            ]
            ref = await earth.add_claim("c", more=results)
            async with reporting(earth.client) as reporter:
                reporter.want([told(ref, "w0", n, share_id=share) for n, share in enumerate(SHARES)])
                await until(lambda: reporter.in_line)
                found = {each["shareID"]: each["data"]["value"] for each in await devices_of(earth, ref)}
                assert found == {SHARES[0]: 0, SHARES[1]: 1}
                # One without a share is no device of the claim; the others are told all the same.
                reporter.want([told(ref, "w0", 5), told(ref, "w0", 7, share_id=SHARES[1])])
                await until(lambda: reporter.counters.refused > 0)
                (entry,) = await devices_of(earth, ref)
                assert (entry["shareID"], entry["data"]) == (SHARES[1], {"value": 7})
                assert "it has no such devices of driver" in reporter.problems[0]

    run(story)


def test_what_others_tell_stays() -> None:
    """Other drivers, and other conditions of the same device, such as those a pod's binding waits for."""

    async def story() -> None:
        async with world() as earth:
            other = {"request": "other", "driver": "x.example.com", "pool": NODE, "device": "x0"}
            ref = await earth.add_claim("c", "w0", more=[other])
            attached = {
                "type": "example.com/attached",
                "status": "True",
                "reason": "Ready",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
            entries = [
                {"driver": "x.example.com", "pool": NODE, "device": "x0", "data": {"value": 9}},
                {"driver": DRIVER, "pool": NODE, "device": "w0", "conditions": [attached]},
            ]
            await earth.admin.patch(
                RESOURCE_CLAIMS,
                "c",
                {
                    "apiVersion": RESOURCE_CLAIMS.api_version,
                    "kind": "ResourceClaim",
                    "metadata": {"name": "c"},
                    "status": {"devices": entries},
                },
                "default",
                subresource="status",
                type="apply",
                field_manager="somebody",
            )
            async with reporting(earth.client) as reporter:
                reporter.want([told(ref, "w0", 1, READY)])
                await until(lambda: reporter.in_line)
                found = {each["device"]: each for each in await devices_of(earth, ref)}
                assert found["x0"] == entries[0]
                assert [each["type"] for each in found["w0"]["conditions"]] == [
                    "example.com/attached",
                    "Ready",
                ]
                reporter.want([])
                await until(lambda: reporter.in_line)
                assert await devices_of(earth, ref) == entries
                assert not reporter.problems

    run(story)


def test_claims_that_are_gone_replaced_or_deallocated_are_let_go() -> None:
    async def story() -> None:
        async with world() as earth:
            refs = [await earth.add_claim(name, "w0") for name in ("gone", "other", "free")]
            gone, other, free = refs
            for ref in (gone, other):
                await earth.admin.delete(RESOURCE_CLAIMS, ref.name, ref.namespace)
            again = await earth.add_claim("other", "w0")
            tree = await earth.admin.get(RESOURCE_CLAIMS, "free", "default")
            tree["status"] = {}
            await earth.admin.update(RESOURCE_CLAIMS, tree, subresource="status")
            async with reporting(earth.client) as reporter:
                before = len(earth.wire.writes)
                reporter.want([told(ref, "w0", 1) for ref in refs])
                await until(lambda: reporter.in_line)
                assert not reporter.problems
                assert len(earth.wire.writes) == before
                assert await devices_of(earth, again) == []
                assert await devices_of(earth, free) == []
                reporter.want([])
                await until(lambda: reporter.in_line)
                assert not reporter._claims, "nothing is remembered for ever"

    run(story)


def test_a_claim_that_is_written_meanwhile_is_read_again() -> None:
    async def story() -> None:
        async with world() as earth:
            ref = await earth.add_claim("c", "w0")

            class Meddler(Wire):
                """Writes the claim between every read and write of the driver, a few times."""

                times = 3

                async def send(self, request: Any) -> Any:
                    if request.method == "PATCH" and self.times:
                        self.times -= 1
                        label = {"metadata": {"labels": {"n": f"v{self.times}"}}}
                        await earth.admin.patch(RESOURCE_CLAIMS, "c", label, "default")
                    return await super().send(request)

            client = Client(Meddler(earth.wire.inner), attempts=1)
            async with reporting(client) as reporter:
                reporter.want([told(ref, "w0", 1)])
                await until(lambda: reporter.in_line)
                assert await values_of(earth, ref) == {"w0": 1}
                assert reporter.counters.failures == 3
                assert not reporter.problems

    run(story)


def test_while_the_api_is_away_the_last_wish_is_kept() -> None:
    async def story() -> None:
        async with world() as earth:
            ref = await earth.add_claim("c", "w0")
            async with reporting(earth.client) as reporter:
                earth.wire.cut()
                reporter.want([told(ref, "w0", 1)])
                await until(lambda: reporter.counters.failures >= 3)
                assert "connection refused" in reporter.problems[0]
                reporter.want([told(ref, "w0", 2)])
                await until(lambda: reporter.counters.failures >= 5)
                earth.wire.mend()
                await until(lambda: reporter.in_line)
                assert await values_of(earth, ref) == {"w0": 2}
                assert not reporter.problems

    run(story)


@pytest.mark.parametrize(
    ("user", "right"),
    [
        (driver_user("x.example.com"), "arbitrary-node:patch on resourceclaims/driver widgets.example.com"),
        (User("someone", groups=(VIEWERS,)), 'cannot patch resource "resourceclaims/status"'),
    ],
)
def test_who_has_no_right_is_told_once_and_gives_up(
    user: User, right: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with world() as earth:
            refs = [await earth.add_claim(f"c{n}", "w0") for n in range(3)]
            stranger = Wire(InProcessTransport(earth.server.api.handle, user))
            async with reporting(Client(stranger, attempts=1)) as reporter:
                reporter.want([told(ref, "w0", 1) for ref in refs])
                await until(lambda: reporter.counters.refused == 3 * MOST_REFUSALS)
                assert reporter.in_line, "nothing more is tried"
                assert len(stranger.writes) == 3 * MOST_REFUSALS
                (problem,) = reporter.problems
                assert problem.startswith("claim default/c0 and 2 more: ")
                assert right in problem
                reporter.want([])
                await until(lambda: reporter.in_line)
                assert not reporter.problems

    with caplog.at_level(logging.WARNING):
        run(story)
    assert len([each for each in caplog.messages if "does not tell about devices" in each]) == 1


def test_a_server_that_keeps_nothing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    gates = "DRAResourceClaimDeviceStatus=false,DRADeviceBindingConditions=false"
    gates += ",DRAResourceClaimGranularStatusAuthorization=false"

    async def story() -> None:
        async with world(gates) as earth:
            refs = [await earth.add_claim(f"c{n}", "w0") for n in range(2)]
            async with reporting(earth.client) as reporter:
                reporter.want([told(ref, "w0", 1) for ref in refs])
                await until(lambda: reporter.counters.refused == 2 * MOST_REFUSALS)
                assert reporter.in_line
                (problem,) = reporter.problems
                assert problem.startswith("claim default/c0 and 1 more: ")
                assert "feature gate DRAResourceClaimDeviceStatus is off" in problem

    with caplog.at_level(logging.WARNING):
        run(story)
    assert len([each for each in caplog.messages if "feature gate" in each]) == 1


def test_what_the_server_refuses_holds_up_no_other_claim() -> None:
    async def story() -> None:
        async with world() as earth:
            bad, good = [await earth.add_claim(name, "w0") for name in ("bad", "good")]
            async with reporting(earth.client) as reporter:
                reporter.want(
                    [
                        DeviceReport(bad, NODE, "w0", data={"x": "y" * 20_000}),
                        told(good, "w0", 1),
                    ]
                )
                await until(lambda: reporter.counters.refused > 0 and reporter.counters.written == 1)
                assert await values_of(earth, good) == {"w0": 1}
                assert "bad" in reporter.problems[0]
                reporter.want([told(bad, "w0", 2), told(good, "w0", 1)])
                await until(lambda: reporter.in_line)
                assert await values_of(earth, bad) == {"w0": 2}
                assert not reporter.problems

    run(story)


class Telling(Widgets):
    """A driver that tells of the claims it has prepared."""

    def __init__(self) -> None:
        super().__init__()
        self.has: dict[str, tuple[ClaimRef, str]] = {}
        self.condition = READY
        self.fault = False

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        self.has[claim.ref.uid] = (claim.ref, claim.results[0].device)
        return [PreparedDevice(NODE, each.device, (each.request,)) for each in claim.results]

    async def unprepare(self, claim: ClaimRef) -> None:
        self.has.pop(claim.uid, None)

    def reports(self) -> Iterable[DeviceReport]:
        if self.fault:
            raise OSError("lost")
        return [told(ref, device, 4, self.condition) for ref, device in self.has.values()]


async def statuses(earth: World, ref: ClaimRef) -> list[str]:
    return [each["conditions"][0]["status"] for each in await devices_of(earth, ref)]


def test_a_driver_tells_from_prepare_to_unprepare() -> None:
    async def story() -> None:
        async with place() as here:
            earth = here.earth
            ref = await earth.add_claim("c", "w0")
            driver = Telling()
            async with here.running(driver) as station:
                await here.prepare(ref)
                await until(lambda: station.reported)
                assert await statuses(earth, ref) == ["True"]
                driver.condition = BROKEN
                station.report()
                await until(lambda: station.reported)
                assert await statuses(earth, ref) == ["False"]
                driver.fault = True
                station.report()  # it is logged, and what is told stays
                await until(lambda: station.reported)
                driver.fault = False
            assert await statuses(earth, ref) == ["False"], "what claims tell outlives the process"
            async with here.running(driver) as station:
                driver.condition = READY
                station.report()
                await until(lambda: station.reported)
                assert await statuses(earth, ref) == ["True"]
                await here.unprepare(ref)
                # What was just released goes even if the driver ends now.
            assert await devices_of(earth, ref) == []

    run(story)


def test_what_a_former_run_told_goes_with_unprepare() -> None:
    async def story() -> None:
        async with place() as here:
            earth = here.earth
            ref = await earth.add_claim("c", "w0")
            async with here.running(Telling()) as station:
                await here.prepare(ref)
                await until(lambda: station.reported)
                assert await statuses(earth, ref) == ["True"]
            async with here.running(Telling()) as station:  # one that remembers nothing
                await here.unprepare(ref)
                await until(lambda: station.reported)
                assert await devices_of(earth, ref) == []

    run(story)


def test_data_of_handed_devices_is_on_record_and_told() -> None:
    async def story() -> None:
        async with place() as here:
            earth = here.earth
            ref, silent = await earth.add_claim("c", "w0"), await earth.add_claim("d", "w1")
            driver = Widgets()

            def hand(claim: AllocatedClaim) -> Sequence[InjectedDevice]:
                (result,) = claim.results
                data = {"value": 3} if result.device == "w0" else None
                return [InjectedDevice(["it"], NODE, result.device, data=data)]

            driver.answer = hand
            async with here.running(driver) as station:
                await here.prepare(ref, silent)
                await until(lambda: station.reported)
                assert await values_of(earth, ref) == {"w0": 3}
                assert await devices_of(earth, silent) == []
            written = len(earth.wire.writes)
            async with here.running(Widgets()) as station:
                await until(lambda: station.reported)
                assert not [path for _, path in earth.wire.writes[written:] if "resourceclaims" in path]
                await here.unprepare(ref, silent)
                await until_async(lambda: devices_of(earth, ref), lambda found: not found)

    run(story)


def test_no_claim_waits_for_what_it_tells() -> None:
    """The API server is gone between reading the claim and writing its status."""

    async def story() -> None:
        async with place() as here:
            earth = here.earth
            ref = await earth.add_claim("c", "w0")

            class Deaf(Wire):
                async def send(self, request: Any) -> Any:
                    if request.method == "PATCH":
                        await asyncio.sleep(3600)
                    return await super().send(request)

            earth.client = Client(Deaf(earth.wire.inner))
            async with here.running(Telling()) as station:
                async with asyncio.timeout(5):
                    await here.prepare(ref)
                    await until(lambda: station._reporter._busy == ref.uid)
                    await here.unprepare(ref)
                    await here.prepare(ref)

    run(story)
