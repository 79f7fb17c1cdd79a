"""Tests of worker processes: expensive requests next to cheap ones, deadlines, failures, fairness."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.users import MASTERS, User
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.apiserver.workers.pool import WorkerLimits, WorkerPool
from plimsoll.controllers.bootstrap import bootstrap
from tests.coroutines import run_by
from tests.unit.apiserver.build import ADMIN, PODS, ApiHarness, pod
from tests.waiting import until

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
MERGE = "application/merge-patch+json"
LARGE = [{"name": f"c{number}", "image": "i"} for number in range(2500)]


def endless_claim(name: str = "c") -> dict[str, Any]:
    """Return a claim that takes minutes to validate."""
    term = 'device.driver == "d"'
    for level in range(8):
        term = f"[1].all(v{level}, {term})"
    requests = [
        {
            "name": f"r{number}",
            "exactly": {
                "deviceClassName": "c",
                "selectors": [
                    {"cel": {"expression": f"{number} == {each} || " + " || ".join([term] * 18)}}
                    for each in range(32)
                ],
            },
        }
        for number in range(32)
    ]
    return {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}


class WorkerHarness(ApiHarness):
    """API server with workers."""

    def __init__(self, limits: WorkerLimits) -> None:
        super().__init__()
        self.pool = WorkerPool(limits, self.context.gates)
        self.api = Api(self.context, workers=self.pool)

    async def created(self, count: int) -> None:
        """Wait until a number of jobs has been given to started workers."""
        await until(
            lambda: (
                not (
                    self.pool.jobs < count or len(self.pool.processes) < min(count, self.pool.limits.workers)
                )
            )
        )


def run_scenario(
    scenario: Callable[[WorkerHarness], Awaitable[None]], limits: WorkerLimits | None = None
) -> None:
    async def run() -> None:
        served = WorkerHarness(limits or WorkerLimits())
        await bootstrap(served.client)
        try:
            async with asyncio.timeout(300):
                await scenario(served)
        finally:
            await served.pool.close()
            await served.store.close()
        assert served.pool.processes == []

    asyncio.run(run())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def gone(pid: int) -> None:
    await until(lambda: not is_alive(pid))


@run_by(run_scenario)
async def test_an_expensive_request_is_handled_by_a_worker_and_a_cheap_one_is_not(
    served: WorkerHarness,
) -> None:
    assert (await served.request("POST", PODS, pod("small")))[0] == 201
    assert served.pool.jobs == 0
    code, tree = await served.request("POST", PODS, pod("large", containers=LARGE))
    assert (code, served.pool.jobs) == (201, 1)
    assert tree["status"]["phase"] == "Pending"
    stored = served.store.get(ObjectKey("pods", "default", "large"))
    assert stored is not None
    assert json.loads(stored.raw) == tree
    code, tree = await served.request(
        "PATCH", f"{PODS}/large", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE
    )
    assert (code, tree["metadata"]["labels"], served.pool.jobs) == (200, {"app": "large", "a": "b"}, 2)
    code, table = await served.request(
        "GET", f"{PODS}/large", accept="application/json;as=Table;g=meta.k8s.io;v=v1"
    )
    assert (code, table["kind"], served.pool.jobs) == (200, "Table", 3)
    assert (await served.request("DELETE", f"{PODS}/large"))[0] == 200
    assert served.pool.jobs == 4
    assert len(served.pool.processes) == 1


@run_by(run_scenario)
async def test_others_are_served_meanwhile(served: WorkerHarness) -> None:
    expensive = asyncio.create_task(
        served.request("POST", CLAIMS, endless_claim(), query=[("dryRun", "All")])
    )
    await served.created(1)
    for number in range(50):
        assert (await served.request("POST", PODS, pod(f"p{number}")))[0] == 201
        assert (await served.request("GET", f"{PODS}/p{number}"))[0] == 200
    assert not expensive.done()
    expensive.cancel()
    await asyncio.gather(expensive, return_exceptions=True)


def test_the_deadline_stops_the_work() -> None:
    async def scenario(served: WorkerHarness) -> None:
        expensive = asyncio.create_task(served.request("POST", CLAIMS, endless_claim()))
        await served.created(1)
        (pid,) = served.pool.processes
        code, status = await expensive
        assert (code, status["reason"]) == (504, "Timeout")
        assert "did not complete within 1 second" in status["message"]
        await gone(pid)
        assert served.store.get(ObjectKey("resourceclaims.resource.k8s.io", "default", "c")) is None
        assert served.pool.processes == []

    run_scenario(scenario, replace(WorkerLimits(), request_timeout=1.0))


@run_by(run_scenario)
async def test_a_disconnected_client_stops_the_work(served: WorkerHarness) -> None:
    expensive = asyncio.create_task(served.request("POST", CLAIMS, endless_claim()))
    await served.created(1)
    (pid,) = served.pool.processes
    expensive.cancel()
    await asyncio.gather(expensive, return_exceptions=True)
    await gone(pid)
    assert (await served.request("POST", PODS, pod("large", containers=LARGE)))[0] == 201


@run_by(run_scenario)
async def test_a_worker_that_fails_is_replaced(served: WorkerHarness) -> None:
    expensive = asyncio.create_task(served.request("POST", CLAIMS, endless_claim()))
    await served.created(1)
    os.kill(served.pool.processes[0], signal.SIGKILL)
    code, status = await expensive
    assert (code, status["reason"]) == (503, "ServiceUnavailable")
    assert (await served.request("POST", PODS, pod("large", containers=LARGE)))[0] == 201


@run_by(run_scenario)
async def test_closing_ends_the_work_under_way(served: WorkerHarness) -> None:
    expensive = asyncio.create_task(served.request("POST", CLAIMS, endless_claim()))
    await served.created(1)
    (pid,) = served.pool.processes
    await served.pool.close()
    assert not is_alive(pid)
    assert (await expensive)[0] == 503


def test_idle_workers_end() -> None:
    async def scenario(served: WorkerHarness) -> None:
        assert (await served.request("POST", PODS, pod("large", containers=LARGE)))[0] == 201
        await until(lambda: not served.pool.processes)

    run_scenario(scenario, replace(WorkerLimits(), idle_timeout=0.01))


def test_a_request_that_needs_too_much_memory_is_refused() -> None:
    async def scenario(served: WorkerHarness) -> None:
        lists = b",".join([b"[[[[]]]]"] * 300_000)
        body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"x":[%s]}' % lists
        code, status = await served.request("POST", "/api/v1/namespaces/default/configmaps", body)
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
        assert "memory" in status["message"]
        assert served.pool.processes == []
        assert (await served.request("POST", PODS, pod("large", containers=LARGE)))[0] == 201

    run_scenario(scenario, replace(WorkerLimits(), memory_bytes=200 << 20))


def test_a_user_with_many_expensive_requests_does_not_starve_others() -> None:
    async def scenario(served: WorkerHarness) -> None:
        greedy, other = User("greedy", groups=(MASTERS,)), User("other", groups=(MASTERS,))

        def send(user: User, number: int) -> asyncio.Task[tuple[int, Any]]:
            claim = endless_claim(f"{user.name}{number}")
            return asyncio.create_task(served.request("POST", CLAIMS, claim, user=user))

        tasks = [send(greedy, number) for number in range(4)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        code, status = done.pop().result()
        assert (code, status["reason"]) == (429, "TooManyRequests")
        assert status["details"]["retryAfterSeconds"]
        await served.created(1)
        code, _ = await served.request("POST", PODS, pod("large", containers=LARGE), user=other)
        assert code == 201
        assert sum(task.done() for task in tasks) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    run_scenario(scenario, replace(WorkerLimits(), workers=2, workers_per_user=1, waiting_per_user=2))


@run_by(run_scenario)
async def test_bodies_that_are_never_large_are_limited(served: WorkerHarness) -> None:
    await served.request("POST", PODS, pod("p"))
    padding = {"annotations": {"a": "x" * 70_000}}
    binding = {"metadata": {"name": "p", **padding}, "target": {"kind": "Node", "name": "n"}}
    review = {"spec": {"user": "u" * 70_000, "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    for method, path, body in (
        ("POST", f"{PODS}/p/binding", binding),
        ("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p", **padding}}),
        ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review),
        ("DELETE", f"{PODS}/p", {"preconditions": {}, "x": "y" * 70_000}),
        ("DELETE", PODS, {"preconditions": {}, "x": "y" * 70_000}),
    ):
        code, status = await served.request(method, path, body)
        assert (code, status["reason"]) == (413, "RequestEntityTooLarge"), path
    assert served.pool.jobs == 0


@pytest.mark.parametrize("count", [3])
@run_by(run_scenario)
async def test_concurrent_patches_of_a_large_object_all_take_effect(
    served: WorkerHarness, *, count: int
) -> None:
    await served.request("POST", PODS, pod("large", containers=LARGE))

    async def patch(number: int) -> int:
        labels = {"metadata": {"labels": {f"l{number}": "1"}}}
        code, _ = await served.request("PATCH", f"{PODS}/large", labels, content_type=MERGE)
        return code

    assert set(await asyncio.gather(*map(patch, range(count)))) == {200}
    _, tree = await served.request("GET", f"{PODS}/large")
    assert set(tree["metadata"]["labels"]) == {"app", *(f"l{number}" for number in range(count))}


def test_credentials_do_not_reach_a_worker() -> None:
    from plimsoll.apiserver.workers.messages import WorkerJob, encode_frame  # noqa: PLC0415

    request = ApiRequest(
        "GET", "/", ADMIN, (), {"authorization": "Bearer secret-token", "accept": "application/json"}
    )
    harness = ApiHarness()
    assert b"secret-token" not in encode_frame(WorkerJob.of(request, harness.now, "uid"))


def test_the_memory_of_a_worker_is_its_own() -> None:
    """Memory that the server used before it started the worker does not count."""
    program = "from plimsoll.apiserver.worker_process import peak_memory_kib; print(peak_memory_kib())"
    ballast = bytearray(600 << 20)
    ballast[::4096] = b"x" * len(ballast[::4096])
    measured = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 10 << 10 < int(measured.stdout) < 300 << 10
