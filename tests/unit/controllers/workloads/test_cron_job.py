"""CronJobs: schedules against a naive search, plans, and the controller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.client.endpoints import CRON_JOBS, JOBS
from plimsoll.controllers.cron_job.plan import find_due
from plimsoll.controllers.cron_job.schedule import parse_schedule
from plimsoll.controllers.workload_views import CronJobView
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.controllers.cluster import Cluster, Tree, run_scenario
from tests.unit.controllers.makers import metadata, view
from tests.unit.controllers.workloads.makers import job_tree

ONLY = ["cronjob-controller"]


def seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("schedule", "zone", "after", "expected"),
    [
        ("*/15 * * * *", "", "2026-01-02T03:04:05+00:00", "2026-01-02T03:15:00+00:00"),
        ("0 0 1 1 *", "", "2026-01-02T03:04:05+00:00", "2027-01-01T00:00:00+00:00"),
        ("+5, 4 * * *", "", "2026-01-02T03:04:05+00:00", "2026-01-02T04:05:00+00:00"),
        ("@every -1m", "", "2026-01-02T00:00:10+00:00", "2026-01-02T00:00:11+00:00"),
        ("@daily", "", "2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"),
        ("@every 90s", "", "2026-01-02T00:00:10+00:00", "2026-01-02T00:01:40+00:00"),
        ("0 12 13 * FRI", "", "2026-01-01T00:00:00+00:00", "2026-01-02T12:00:00+00:00"),
        ("0 12 */2 * FRI", "", "2026-01-03T13:00:00+00:00", "2026-01-05T12:00:00+00:00"),
        ("0 12 * * mon-wed", "", "2026-01-02T00:00:00+00:00", "2026-01-05T12:00:00+00:00"),
        ("30 9 * * *", "America/New_York", "2026-01-02T00:00:00+00:00", "2026-01-02T14:30:00+00:00"),
        # Clocks go forward over 02:30 and back over 01:30.
        ("30 2 * * *", "America/New_York", "2026-03-07T12:00:00+00:00", "2026-03-09T06:30:00+00:00"),
        ("0 0 29 2 *", "", "2026-01-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
    ],
)
def test_the_next_time_of_a_schedule(schedule: str, zone: str, after: str, expected: str) -> None:
    parsed = parse_schedule(schedule, zone)
    assert parsed is not None
    assert parsed.next_after(seconds(after)) == seconds(expected)


FIELD = st.sampled_from(["*", "*/7", "1-5", "3", "2,4", "1-6/2"])


@given(
    st.tuples(FIELD, FIELD, FIELD, FIELD, FIELD),
    st.integers(0, 400_000),
    st.sampled_from(["", "Asia/Kolkata"]),
)
@settings(max_examples=examples(60), deadline=None)
def test_times_are_those_of_a_search_minute_by_minute(
    fields: tuple[str, ...], minute: int, zone: str
) -> None:
    parsed = parse_schedule(" ".join(fields), zone)
    assert parsed is not None
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    time, found = start, None
    for _ in range(3000):
        time += timedelta(minutes=1)
        local = time.astimezone(ZoneInfo(zone or "UTC"))
        day, week = local.day in parsed.cron.values[2], local.isoweekday() % 7 in parsed.cron.values[4]
        free = fields[2] == "*" or fields[4] == "*"
        if (
            local.minute in parsed.cron.values[0]
            and local.hour in parsed.cron.values[1]
            and local.month in parsed.cron.values[3]
            and (day and week if free else day or week)
        ):
            found = time.timestamp()
            break
    actual = parsed.next_after(start.timestamp())
    assert actual == found if found is not None else actual is None or actual > time.timestamp()


@pytest.mark.parametrize(
    "schedule", ["", "* * * *", "60 * * * *", "* * 0 * *", "5-1 * * * *", "*/0 * * * *", "@x"]
)
def test_invalid_schedules_are_refused(schedule: str) -> None:
    assert parse_schedule(schedule) is None


def test_unknown_time_zones_are_refused() -> None:
    assert parse_schedule("* * * * *", "Nowhere/Else") is None


def due(schedule: str, created: str, now: str, **fields: Any) -> Any:
    meta = {**metadata("c"), "creationTimestamp": created}
    cron_job = view({"metadata": meta, "spec": {"schedule": schedule, **fields}}, CronJobView)
    parsed = parse_schedule(schedule)
    assert parsed is not None
    return find_due(cron_job, parsed, seconds(now))


def test_of_missed_times_the_last_is_due() -> None:
    created, now = "2026-01-01T00:00:30Z", "2026-01-03T00:00:30Z"
    last, upcoming, missed = due("* * * * *", created, now)
    assert (last, upcoming) == (seconds("2026-01-03T00:00:00Z"), seconds("2026-01-03T00:01:00Z"))
    assert missed > 100
    last, upcoming, missed = due("@every 7m", created, now)
    assert (last - seconds(created)) % 420 == 0
    assert 0 <= seconds(now) - last < 420
    last, _, missed = due("* * * * *", created, now, startingDeadlineSeconds=90)
    assert (last, missed) == (seconds("2026-01-03T00:00:00Z"), 1)


# -- controller


def cron_job(**spec: Any) -> Tree:
    template = {"spec": job_tree()["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": "*/1 * * * *", "jobTemplate": template, **spec},
    }


async def finish(cluster: Cluster, name: str, type: str = "Complete") -> None:
    time = datetime.fromtimestamp(cluster.clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    first = "SuccessCriteriaMet" if type == "Complete" else "FailureTarget"
    conditions = [{"type": each, "status": "True", "lastTransitionTime": time} for each in (first, type)]
    status = {"conditions": conditions, "startTime": time}
    if type == "Complete":
        status["completionTime"] = time
    await cluster.client.patch(JOBS, name, {"status": status}, "n", subresource="status")


async def status_of(cluster: Cluster) -> Tree:
    found = await cluster.get(CRON_JOBS, "c")
    assert found is not None
    status: Tree = found.get("status", {})
    return status


@run_by(run_scenario, only=ONLY)
async def test_jobs_are_started_on_time_and_kept_up_to_a_limit(cluster: Cluster) -> None:
    await cluster.client.create(CRON_JOBS, cron_job(successfulJobsHistoryLimit=2), "n")
    for count in range(1, 5):
        await cluster.advance(60)
        jobs = await cluster.names(JOBS)
        assert len(jobs) == min(count, 3)
        status = await status_of(cluster)
        assert [each["name"] for each in status["active"]] == jobs[-1:]
        await finish(cluster, jobs[-1])
    await cluster.settle()
    assert len(await cluster.names(JOBS)) == 2
    status = await status_of(cluster)
    assert "active" not in status
    assert status["lastSuccessfulTime"] > status["lastScheduleTime"]


@pytest.mark.parametrize(("policy", "jobs"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
@run_by(run_scenario, only=ONLY)
async def test_concurrency_policies(cluster: Cluster, *, policy: str, jobs: int) -> None:
    await cluster.client.create(CRON_JOBS, cron_job(concurrencyPolicy=policy), "n")
    await cluster.advance(60)
    (first,) = await cluster.names(JOBS)
    await cluster.advance(120)
    names = await cluster.names(JOBS)
    assert len(names) == jobs
    assert (first in names) == (policy != "Replace")
    assert len((await status_of(cluster))["active"]) == jobs


@run_by(run_scenario, only=ONLY)
async def test_a_suspended_cron_job_starts_nothing(cluster: Cluster) -> None:
    await cluster.client.create(CRON_JOBS, cron_job(suspend=True), "n")
    await cluster.advance(180)
    assert not await cluster.names(JOBS)
    await cluster.client.patch(CRON_JOBS, "c", {"spec": {"suspend": False}}, "n")
    await cluster.settle()
    assert len(await cluster.names(JOBS)) == 1  # the last time that was missed


@run_by(run_scenario, only=ONLY)
async def test_a_job_that_disappears_is_no_longer_active(cluster: Cluster) -> None:
    await cluster.client.create(CRON_JOBS, cron_job(), "n")
    await cluster.advance(60)
    (name,) = await cluster.names(JOBS)
    await cluster.client.delete(JOBS, name, "n", propagation="Background")
    await cluster.settle()
    assert "active" not in await status_of(cluster)
    assert await cluster.names(JOBS) == []
    assert "MissingJob" in {reason for _, reason, _ in await cluster.events()}
