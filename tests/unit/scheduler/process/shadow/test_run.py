"""A shadow next to our own scheduler, which plays the other one, on a server in the same process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from plimsoll.apiserver.auth.users import SCHEDULER
from plimsoll.client.endpoints import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIM_TEMPLATES
from plimsoll.errors import ConfigError, PlimsollError
from plimsoll.scheduler.process.configuration import SchedulerSettings
from plimsoll.scheduler.process.shadow.run import ShadowProcess
from plimsoll.scheduler.profile import SchedulerProfile, Strategy
from tests.manifests import DRIVER, claim_template, claiming_pod, device_class
from tests.unit.scheduler.process.scheduler_cluster import NS, QUICK, SchedulerCluster, scheduler_cluster
from tests.waiting import DEADLINE, until

PACKING = SchedulerProfile(name="default-scheduler", strategy=Strategy.MOST_ALLOCATED, balanced=())


@asynccontextmanager
async def shadowing(
    row: SchedulerCluster, settings: SchedulerSettings = QUICK, report: Path | None = None
) -> AsyncIterator[ShadowProcess]:
    process = ShadowProcess(row.server.client(SCHEDULER), settings, report=report)
    task = asyncio.create_task(process.run())
    try:
        await process.ready(DEADLINE)
        yield process
    finally:
        process.stop()
        await asyncio.wait_for(task, DEADLINE)


def seen(process: ShadowProcess) -> int:
    return sum(process.report.pods.values())


async def bind(row: SchedulerCluster, pod: str, node: str) -> None:
    tree = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
    await row.admin.call("POST", PODS.path(NS, pod, "binding"), tree=tree)


async def test_the_same_scheduler_decides_the_same() -> None:
    async with scheduler_cluster() as row:
        await row.node("n1", "8")
        await row.node("n2", "4")
        await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
        await row.admin.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
        await row.devices("n1", "n2")
        async with shadowing(row) as process:
            await row.start()
            for number in range(4):
                await row.pod(f"p{number}")
                await row.bound(f"p{number}")
            for name in ("g0", "g1"):
                await row.admin.create(PODS, claiming_pod(name, "t"), NS)
                await row.bound(name)
            await until(lambda: seen(process) == 6)
            assert process.report.pods["same"] + process.report.pods["tie"] == 6, process.report.to_tree()
            page = (await collect(process)).decode()
            assert 'plimsoll_shadow_pods_total{outcome="same"' in page


async def collect(process: ShadowProcess) -> bytes:
    return b"".join([chunk async for chunk in process.context.metrics.expose()])


async def test_differences_are_reported_with_their_reasons(tmp_path: Path) -> None:
    report = tmp_path / "shadow.json"
    async with scheduler_cluster() as row:
        await row.node("n1", "8")
        await row.node("n2", "8")
        await row.pod("first", "4", nodeName="n1")
        await row.node("n3", "2", tainted="yes")
        settings = replace(QUICK, profiles=(PACKING,))
        async with shadowing(row, settings, report) as process:
            await row.start()  # spreads, whereas the shadow packs
            await row.pod("second", "1")
            assert await row.bound("second") == "n2"
            await until(lambda: seen(process) == 1)
            [difference] = process.report.differences
            assert (difference["outcome"], difference["node"], difference["ours"]) == (
                "elsewhere",
                "n2",
                "n1",
            )
            assert difference["plugins"] == ["NodeResourcesFit"]
            assert not difference["raced"]
            # A pod that both leave pending.
            await row.pod("huge", "99")
            await until(lambda: process.report.pods["both-pending"] == 1)
        saved = json.loads(report.read_bytes())
        assert (saved["pods"]["elsewhere"], saved["runs"]) == (1, 1)
        assert "default/second: elsewhere, n2 -> n1" in (tmp_path / "shadow.json.txt").read_text()
        # Another process continues the report.
        async with shadowing(row, settings, report) as process:
            await row.pod("third", "1")
            await row.bound("third")
            await until(lambda: process.report.pods["elsewhere"] == 2 or process.report.pods["same"] == 1)
        assert json.loads(report.read_bytes())["runs"] == 2


async def test_a_pod_that_would_wait_and_one_that_would_not() -> None:
    avoided = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]
        }
    }
    strict = SchedulerProfile.read({"schedulerName": "default-scheduler", "addedAffinity": avoided})
    loose = SchedulerProfile.read(
        {"schedulerName": "default-scheduler", "disabledFilters": ["NodeResourcesFit"]}
    )
    async with scheduler_cluster() as row:
        await row.node("n1", "2")
        async with (
            shadowing(row, replace(QUICK, profiles=(strict,))) as waits,
            shadowing(row, replace(QUICK, profiles=(loose,))) as sooner,
        ):
            await row.start()
            await row.pod("fits", "1")
            await row.bound("fits")
            await until(lambda: seen(waits) == 1)
            assert waits.report.pods["waits"] == 1
            assert waits.report.differences[0]["why"] == [
                "0/1 nodes are available: 1 node(s) didn't match scheduler-enforced node affinity."
            ]
            await row.pod("big", "50")
            await until(lambda: sooner.report.pods["sooner"] == 1)
            assert sooner.report.differences[-1]["ours"] == "n1"


async def test_a_state_that_changed_meanwhile_is_marked() -> None:
    async with scheduler_cluster() as row:
        await row.node("n1", "8")
        async with shadowing(row) as process:
            # No scheduler runs: the pod is decided on arrival, then a better node appears.
            await row.pod("p", "1")
            await row.pod("other", "1")
            await until(lambda: len(process.pending) == 2)
            await until(lambda: all(each.decided == "n1" for each in process.pending.values()))
            await row.node("n2", "64")
            await until(lambda: len(process.context.snapshot) == 2)
            await bind(row, "p", "n1")
            await until(lambda: seen(process) == 1)
            assert process.report.pods["same"] == process.report.raced["same"] == 1
            # A node that neither decision had: a difference, with other pods under way before it.
            await row.node("n3", "1")
            await row.pod("late", "1")
            await until(lambda: len(process.context.snapshot) == 3)
            await bind(row, "other", "n3")
            await until(lambda: seen(process) == 2)
            [difference] = process.report.differences
            assert difference["outcome"] == "elsewhere"
            assert "other pods were being scheduled" in difference["raced"]


async def test_a_shadow_cannot_write() -> None:
    async with scheduler_cluster() as row, shadowing(row) as process:
        with pytest.raises(PlimsollError, match="a shadow writes nothing"):
            await process.client.create(NODES, {"metadata": {"name": "x"}})


def test_the_default_scheduler_is_followed_unless_names_are_given() -> None:
    assert list(SchedulerSettings().shadowing().by_name) == ["default-scheduler"]
    assert list(SchedulerSettings().named(["batch"]).shadowing().by_name) == ["batch"]
    with pytest.raises(ConfigError, match="cannot be combined"):
        SchedulerSettings(dry_run=True).shadowing()
