"""Jobs: the controller on the API, with pods that end as a test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import JOBS, PODS
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, Tree, run_scenario
from tests.unit.controllers.workloads.makers import end_deleted_pods, job_tree

ONLY = ["job-controller", "ttl-after-finished-controller", "garbage-collector-controller"]
TRACKING = "batch.kubernetes.io/job-tracking"


async def read(cluster: Cluster) -> Tree:
    found = await cluster.get(JOBS, "j")
    assert found is not None
    return found


async def running_pods(cluster: Cluster) -> list[Tree]:
    found = [
        tree
        for tree in await cluster.trees(PODS)
        if tree["status"].get("phase") in ("Pending", "Running")
        and "deletionTimestamp" not in tree["metadata"]
    ]
    return sorted(found, key=lambda tree: tree["metadata"]["name"])


async def end(cluster: Cluster, pod: Tree, code: int = 0) -> None:
    """End the containers of a pod, as its node does."""
    state = {"terminated": {"exitCode": code, "finishedAt": format_time(cluster.clock.now())}}
    status = {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [
            {"name": "c", "state": state, "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        ],
    }
    name = pod["metadata"]["name"]
    await cluster.client.patch(PODS, name, {"status": status}, "n", subresource="status")


async def work(cluster: Cluster, codes: Sequence[int] = (), *, seconds: float = 700) -> None:
    """Run pods one after the other until the job has none; their exit codes, then 0."""
    left = list(codes)
    for _ in range(60):
        await cluster.settle()
        pods = await running_pods(cluster)
        await end_deleted_pods(cluster)
        if pods:
            await end(cluster, pods[0], left.pop(0) if left else 0)
            continue
        if any(each["status"] == "True" for each in (await read(cluster))["status"].get("conditions", ())):
            await cluster.settle()
            return
        await cluster.advance(seconds)


def types(tree: Tree) -> list[str]:
    return [each["type"] for each in tree["status"].get("conditions", ()) if each["status"] == "True"]


@run_by(run_scenario, only=ONLY)
async def test_a_job_completes_with_its_conditions_in_order(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(completions=3, parallelism=2), "n")
    await cluster.settle()
    pods = await running_pods(cluster)
    assert len(pods) == 2
    assert all(pod["metadata"]["finalizers"] == [TRACKING] for pod in pods)
    assert (await read(cluster))["status"]["active"] == 2
    await work(cluster)
    status = (await read(cluster))["status"]
    assert types(await read(cluster)) == ["SuccessCriteriaMet", "Complete"]
    assert status["succeeded"] == 3
    assert status.get("active", 0) == 0
    assert "completionTime" in status
    assert not status.get("uncountedTerminatedPods")
    assert not any("finalizers" in pod["metadata"] for pod in await cluster.trees(PODS))
    assert ("Normal", "Completed", "Job completed") in await cluster.events()


@run_by(run_scenario, only=ONLY)
async def test_pods_of_a_job_are_counted_at_once(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(completions=2, parallelism=2), "n")
    await cluster.settle()
    for succeeded, pod in enumerate(await running_pods(cluster), 1):
        await end(cluster, pod)
        await cluster.settle()  # no time passes
        assert (await read(cluster))["status"]["succeeded"] == succeeded
    assert types(await read(cluster)) == ["SuccessCriteriaMet", "Complete"]


@pytest.mark.parametrize(("limit", "failures"), [(0, 1), (2, 3)])
@run_by(run_scenario, only=ONLY)
async def test_too_many_failures_fail_the_job(cluster: Cluster, *, limit: int, failures: int) -> None:
    await cluster.client.create(JOBS, job_tree(backoffLimit=limit), "n")
    await work(cluster, [1] * 10)
    found = await read(cluster)
    assert types(found) == ["FailureTarget", "Failed"]
    assert found["status"]["conditions"][-1]["reason"] == "BackoffLimitExceeded"
    assert found["status"]["failed"] == failures


@run_by(run_scenario, only=ONLY)
async def test_a_failed_pod_is_replaced_after_a_backoff(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(), "n")
    await cluster.settle()
    await end(cluster, (await running_pods(cluster))[0], 1)
    await cluster.settle()
    assert not await running_pods(cluster)
    await cluster.advance(9)
    assert not await running_pods(cluster)
    await cluster.advance(2)
    assert len(await running_pods(cluster)) == 1


@run_by(run_scenario, only=ONLY)
async def test_an_indexed_job_runs_every_index_once(cluster: Cluster) -> None:
    tree = job_tree(completions=4, parallelism=2, completionMode="Indexed")
    await cluster.client.create(JOBS, tree, "n")
    await work(cluster, [0, 1, 0])
    found = await read(cluster)
    assert types(found) == ["SuccessCriteriaMet", "Complete"]
    assert found["status"]["completedIndexes"] == "0-3"
    assert (found["status"]["succeeded"], found["status"]["failed"]) == (4, 1)
    pod = (await cluster.trees(PODS))[0]
    index = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]
    assert pod["metadata"]["name"].startswith(f"j-{index}-")
    assert pod["spec"]["hostname"] == f"j-{index}"
    assert [each["name"] for each in pod["spec"]["containers"][0]["env"]] == ["JOB_COMPLETION_INDEX"]


@run_by(run_scenario, only=ONLY)
async def test_indexes_fail_by_themselves(cluster: Cluster) -> None:
    tree = job_tree(completions=2, parallelism=1, completionMode="Indexed", backoffLimitPerIndex=1)
    await cluster.client.create(JOBS, tree, "n")
    await work(cluster, [1, 1, 0])
    found = await read(cluster)
    assert found["status"]["failedIndexes"] == "0"
    assert found["status"]["completedIndexes"] == "1"
    assert found["status"]["conditions"][-1]["reason"] == "FailedIndexes"


@run_by(run_scenario, only=ONLY)
async def test_a_failure_policy_fails_the_job_or_ignores_a_pod(cluster: Cluster) -> None:
    rules = [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
    await cluster.client.create(JOBS, job_tree(podFailurePolicy={"rules": rules}), "n")
    await work(cluster, [7, 7, 42])
    found = await read(cluster)
    assert types(found) == ["FailureTarget", "Failed"]
    assert found["status"]["conditions"][-1]["reason"] == "PodFailurePolicy"
    assert found["status"]["failed"] == 1


@run_by(run_scenario, only=ONLY)
async def test_a_success_policy_ends_the_job_early(cluster: Cluster) -> None:
    policy = {"rules": [{"succeededIndexes": "0"}]}
    tree = job_tree(completions=3, parallelism=3, completionMode="Indexed", successPolicy=policy)
    await cluster.client.create(JOBS, tree, "n")
    await work(cluster)
    found = await read(cluster)
    assert types(found) == ["SuccessCriteriaMet", "Complete"]
    assert found["status"]["succeeded"] == 1
    assert found["status"]["conditions"][-1]["reason"] == "SuccessPolicy"


@run_by(run_scenario, only=ONLY)
async def test_a_deadline_ends_the_job(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(activeDeadlineSeconds=60), "n")
    await cluster.settle()
    await cluster.advance(61)
    await end_deleted_pods(cluster)
    await cluster.settle()
    found = await read(cluster)
    assert types(found) == ["FailureTarget", "Failed"]
    assert found["status"]["conditions"][-1]["reason"] == "DeadlineExceeded"
    assert not await running_pods(cluster)


@run_by(run_scenario, only=ONLY)
async def test_a_suspended_job_has_no_pods_until_it_is_resumed(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(suspend=True), "n")
    await cluster.settle()
    assert not await cluster.trees(PODS)
    assert types(await read(cluster)) == ["Suspended"]
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": False}}, "n")
    await cluster.settle()
    assert len(await running_pods(cluster)) == 1
    await cluster.client.patch(JOBS, "j", {"spec": {"suspend": True}}, "n")
    await cluster.settle()
    await end_deleted_pods(cluster)
    await cluster.settle()
    assert not await cluster.trees(PODS)
    found = await read(cluster)
    assert found["status"].get("failed", 0) == 0
    assert "startTime" not in found["status"]


@run_by(run_scenario, only=ONLY)
async def test_a_finished_job_is_deleted_with_its_pods_after_its_time(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(ttlSecondsAfterFinished=100), "n")
    await work(cluster, seconds=1)
    await cluster.advance(90)
    assert await cluster.names(JOBS) == ["j"]
    await cluster.advance(20)
    await end_deleted_pods(cluster)
    await cluster.settle()
    assert await cluster.names(JOBS) == []
    assert await cluster.names(PODS) == []


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
@run_by(run_scenario, only=ONLY)
async def test_pods_of_a_deleted_job_lose_their_finalizer(cluster: Cluster, *, propagation: Any) -> None:
    await cluster.client.create(JOBS, job_tree(), "n")
    await cluster.settle()
    await cluster.client.delete(JOBS, "j", "n", propagation=propagation)
    await cluster.settle()
    await end_deleted_pods(cluster)
    await cluster.settle()
    assert await cluster.names(JOBS) == []
    left = await cluster.trees(PODS)
    assert len(left) == (1 if propagation == "Orphan" else 0)
    assert not any("finalizers" in pod["metadata"] for pod in left)


@run_by(run_scenario, only=ONLY)
async def test_a_job_that_another_controller_manages_is_left_alone(cluster: Cluster) -> None:
    await cluster.client.create(JOBS, job_tree(managedBy="example.com/other"), "n")
    await cluster.settle()
    assert not await cluster.trees(PODS)
    assert not (await read(cluster)).get("status")


@given(
    completions=st.integers(1, 4),
    parallelism=st.integers(1, 3),
    codes=st.lists(st.sampled_from([0, 0, 1]), max_size=8),
    indexed=st.booleans(),
    limit=st.integers(0, 3),
)
@settings(max_examples=15, deadline=None)
def test_jobs_count_like_a_tally_of_exit_codes(
    completions: int, parallelism: int, codes: list[int], indexed: bool, limit: int
) -> None:
    async def scenario(cluster: Cluster) -> None:
        mode = "Indexed" if indexed else "NonIndexed"
        tree = job_tree(
            completions=completions, parallelism=parallelism, completionMode=mode, backoffLimit=limit
        )
        await cluster.client.create(JOBS, tree, "n")
        await work(cluster, codes)
        succeeded = failed = 0
        for code in (*codes, *([0] * completions)):
            if succeeded == completions or failed > limit:
                break
            succeeded, failed = succeeded + (not code), failed + bool(code)
        found = await read(cluster)
        assert types(found)[-1] == ("Complete" if succeeded == completions else "Failed")
        assert found["status"].get("succeeded", 0) == succeeded
        if succeeded == completions:
            assert found["status"].get("failed", 0) == failed
        else:  # pods that were running when the job failed count as failed
            assert limit < found["status"]["failed"] <= failed + parallelism

    run_scenario(scenario, only=["job-controller"])
