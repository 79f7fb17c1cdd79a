"""Claims adopted from CDI files: named, found stale, forgotten, and not published as free."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client.endpoints import RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.forget_claim import ForgottenClaim
from plimsoll.drivers.cpu.process.control import ControlServer
from plimsoll.drivers.cpu.process.control_client import call_driver
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
from plimsoll.drivers.plugin import ClaimError
from plimsoll.errors import InputError
from plimsoll.protocols.dra import ClaimRef
from tests.directories import short_directory
from tests.unit.drivers.cpu.driver_harness import (
    MACHINE,
    DriverHarness,
    pod,
    running_cluster,
    template,
)
from tests.unit.drivers.cpu.state.fixtures import cpus, uid_of
from tests.waiting import until

GONE = uid_of(7)


@pytest.fixture
def harness() -> Iterator[DriverHarness]:
    with running_cluster(template("two", "2")) as harness:
        yield harness


def write_foreign(directory: Path, uid: str, text: str) -> Path:
    """Write a CDI file as the Go driver does."""
    edits = {"env": [f"DRA_CPUSET_{uid}={text}"]}
    tree = {
        "cdiVersion": "0.8.0",
        "kind": "dra.k8s.io/cpu",
        "devices": [{"name": f"claim-{uid}", "containerEdits": edits}],
        "containerEdits": {},
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"dra.k8s.io-cpu_claim-{uid}.json"
    path.write_text(json.dumps(tree))
    return path


def lose_checkpoint(harness: DriverHarness) -> None:
    harness.settings.checkpoint_path.unlink()


def capacity(harness: DriverHarness) -> dict[str, int]:
    return {
        device["name"]: int(device["capacity"]["dra.cpu/cpu"]["value"])
        for tree in harness.cluster.client.list(RESOURCE_SLICES)
        for device in tree["spec"]["devices"]
    }


def warnings(driver: CpuDriver) -> str:
    return "\n".join(f"{finding.what}; {finding.fix}" for finding in driver.findings)


async def test_a_cdi_file_of_a_deleted_claim_does_not_keep_its_cpus(harness: DriverHarness) -> None:
    file = write_foreign(harness.settings.cdi, GONE, "0-3")
    stale = StaleClaimTracker(grace_seconds=3600.0)
    async with harness.driver(stale=stale, stale_interval=0.05) as driver:
        assert driver.state.allocated == cpus("0-3")
        assert f"claim {GONE} was adopted from its CDI file with CPUs 0-3, and no container" in warnings(
            driver
        )
        assert f"plimsoll driver cpu forget {GONE}" in warnings(driver)
        # The scheduler does not count it, so its CPUs are not published.
        assert capacity(harness) == {"cpudevnuma001": 4}
        stale.grace_seconds = 0.1
        await until(lambda: not driver.state.allocations)
        assert not file.exists()
        await until(lambda: capacity(harness) == {"cpudevnuma000": 4, "cpudevnuma001": 4})


async def test_an_adopted_claim_gets_its_name(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("pinned", "two"))
        (before,) = driver.state.allocations.values()
    for path in harness.settings.plugin_dir.glob("dra-device-metadata/*/*/metadata.json"):
        path.unlink()
    lose_checkpoint(harness)
    more: dict[str, Any] = {"stale": StaleClaimTracker(grace_seconds=0.1), "stale_interval": 0.05}
    async with harness.driver(**more) as driver:
        await until(lambda: driver.state.allocations[before.ref.uid].ref == before.ref)
        assert driver.state.allocations[before.ref.uid].assigned == before.assigned
        assert "no container uses it" not in warnings(driver)
        await until(lambda: sum(capacity(harness).values()) == 8)
        await harness.end("pinned")
        await until(lambda: not driver.state.allocations)


async def test_names_of_metadata_files_need_no_list(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("pinned", "two"))
        (before,) = driver.state.allocations.values()
        assert driver.plugin_server.list_metadata_claims() == {before.ref.uid: before.ref}
        (path,) = harness.settings.plugin_dir.glob("dra-device-metadata/*/*/metadata.json")
        path.write_text("{")
        assert driver.plugin_server.list_metadata_claims() == {}


async def test_a_claim_is_forgotten_only_if_nothing_uses_it(harness: DriverHarness) -> None:
    write_foreign(harness.settings.cdi, GONE, "4-5")
    async with harness.driver() as driver:
        await harness.run(pod("pinned", "two"))
        (used,) = [each for each in driver.state.allocations.values() if each.ref.name]
        for force in (False, True):
            refusal = await driver.forget(used.ref.uid, force)
            assert isinstance(refusal, ClaimError)
            assert "is used by container default/pinned/app" in refusal.message
        unknown = await driver.forget("other", False)
        assert unknown == ClaimError("other: no such claim has CPUs of this driver", "NotFound")
        done = await driver.forget(GONE, False)
        assert done == ForgottenClaim(ClaimRef("", "", GONE), cpus("4-5"))
        assert GONE not in driver.state.allocations
        assert not (harness.settings.cdi / f"dra.k8s.io-cpu_claim-{GONE}.json").exists()


async def test_an_allocated_claim_is_forgotten_with_force(harness: DriverHarness) -> None:
    async with harness.driver() as driver:
        await harness.run(pod("pinned", "two"))
        (claim,) = driver.state.allocations.values()
        driver.enforcer.containers = lambda: ()  # type: ignore[method-assign]  # its pod has ended
        refusal = await driver.forget(str(claim.ref), False)
        assert isinstance(refusal, ClaimError)
        assert "is allocated in the cluster" in refusal.message
        assert await driver.forget(claim.ref.name, True) == ForgottenClaim(claim.ref, claim.assigned)
    assert harness.cluster.client.list(RESOURCE_CLAIMS, "default"), "the claim itself stays"


def test_the_control_socket() -> None:
    asked: list[tuple[str, bool]] = []

    async def forget(claim: str, force: bool) -> ForgottenClaim | ClaimError:
        asked.append((claim, force))
        if claim == "x":
            return ForgottenClaim(ClaimRef("ns", "n", "x"), cpus("1-2"))
        return ClaimError("no such claim", "NotFound")

    async def scenario(directory: Path) -> None:
        server = ControlServer(directory, forget)
        (directory / "ctl.sock").touch()  # of a driver that was killed
        await server.start()
        assert (directory / "ctl.sock").stat().st_mode & 0o777 == 0o600
        answer = await asyncio.to_thread(call_driver, directory, "/forget", {"claim": "x", "force": True})
        assert answer == {"uid": "x", "namespace": "ns", "name": "n", "cpus": "1-2"}
        for body, text in (({"claim": "y", "force": False}, "no such claim"), ({}, "are required")):
            with pytest.raises(InputError, match=text):
                await asyncio.to_thread(call_driver, directory, "/forget", body)
        await server.stop()
        with pytest.raises(InputError, match="no driver responds at"):
            await asyncio.to_thread(call_driver, directory, "/forget", {})
        assert asked == [("x", True), ("y", False)]

    with short_directory() as directory:
        asyncio.run(scenario(directory))


async def test_capacity_that_cannot_be_prepared_is_not_published(harness: DriverHarness) -> None:
    """A claim for everything that is published can be prepared while containers share CPUs."""
    async with harness.driver() as driver:
        await until(lambda: sum(capacity(harness).values()) == 8)
        await harness.run(pod("neighbour"))
        await until(lambda: sum(capacity(harness).values()) == 7)
        await asyncio.to_thread(harness.cluster.apply, template("all-of-one", "3"), template("rest", "4"))
        await harness.run(pod("first", "all-of-one"), pod("second", "rest"))
        assert len(driver.state.shared) == 1
        await until(lambda: harness.cpus()["neighbour/app"] == str(driver.state.shared))
    async with harness.driver():
        assert sum(capacity(harness).values()) == 7


async def test_all_cpus_can_be_claimed_if_the_minimum_is_zero(harness: DriverHarness) -> None:
    async with harness.driver(replace(harness.settings, min_shared=0)) as driver:
        await harness.run(pod("neighbour"))
        await until(lambda: driver.enforcer.shared_in_use)
        assert sum(capacity(harness).values()) == len(MACHINE.all)
