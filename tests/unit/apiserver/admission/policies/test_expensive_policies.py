"""Policies that cost more than the event loop may spend are evaluated by workers."""

from __future__ import annotations

import json
from typing import Any

from plimsoll.apiserver.api import Api
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.workers.dispatcher import MAX_INLINE_POLICY_COST
from plimsoll.apiserver.workers.pool import WorkerPool
from tests.coroutines import run_by
from tests.unit.apiserver.admission.policies.build import (
    CONFIG_MAPS,
    PODS,
    applying,
    bind,
    create,
    rule,
    validating,
)
from tests.unit.apiserver.build import ADMIN, ApiHarness, config_map, pod, run
from tests.unit.apiserver.workers.local import handle_in_worker

#: Costs some 200,000 for an object with five data keys, and next to nothing for one without.
LOOP = "!has(object.data) || object.data.all(a, object.data.all(b, lists.range(2000).all(n, n >= 0)))"
CREATED = {"resourceRules": [rule("configmaps", operations=["CREATE"])]}
KEYS = {f"k{number}": "v" for number in range(5)}


class LocalPool(WorkerPool):
    """Pool with a worker in this process."""

    def __init__(self, harness: ApiHarness) -> None:
        self._harness = harness
        self.jobs = 0

    async def run(self, user: str, job: Any, handle_query: Any) -> Any:
        self.jobs += 1
        return handle_in_worker(self._harness, job.request())


def api_with_worker(harness: ApiHarness) -> tuple[Api, LocalPool]:
    pool = LocalPool(harness)
    return Api(harness.context, workers=pool), pool


async def send(api: Api, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    raw = b"" if body is None else json.dumps(body).encode()
    response: ApiResponse = await api.handle(ApiRequest(method, path, ADMIN, body=raw))
    assert isinstance(response.body, bytes)
    return response.status, json.loads(response.body)


def big(name: str) -> dict[str, Any]:
    return {**config_map(name), "data": KEYS}


@run_by(run)
async def test_expensive_validations_are_evaluated_by_a_worker(harness: ApiHarness) -> None:
    cheap = "object.metadata.name != 'denied'"
    policy = validating(cheap, LOOP, matchConstraints={"resourceRules": [rule("configmaps")]})
    policy["spec"]["matchConstraints"]["resourceRules"][0]["operations"] = ["CREATE", "UPDATE"]
    await create(harness, policy, bind(policy))
    api, pool = api_with_worker(harness)
    code, tree = await send(api, "POST", CONFIG_MAPS, {**config_map("small"), "data": {}})
    assert (code, pool.jobs) == (201, 0)
    code, tree = await send(api, "POST", CONFIG_MAPS, big("large"))
    assert (code, pool.jobs) == (201, 1)
    assert tree["metadata"]["name"] == "large"
    code, tree = await send(api, "POST", CONFIG_MAPS, big("denied"))
    assert (code, pool.jobs) == (422, 2)
    assert "failed expression: object.metadata.name != 'denied'" in tree["message"]
    code, tree = await send(api, "PUT", f"{CONFIG_MAPS}/large", big("large"))
    assert (code, pool.jobs) == (200, 3)


@run_by(run)
async def test_expensive_deletions_variables_and_conditions_are_evaluated_by_a_worker(
    harness: ApiHarness,
) -> None:
    deletions = [rule("configmaps", operations=["DELETE"])]
    old = LOOP.replace("object", "oldObject")
    policy = validating(
        "variables.slow",
        matchConstraints={"resourceRules": deletions},
        variables=[{"name": "slow", "expression": old}],
        matchConditions=[{"name": "m", "expression": old}],
    )
    await create(harness, policy, bind(policy))
    api, pool = api_with_worker(harness)
    assert (await send(api, "POST", CONFIG_MAPS, big("a")))[0] == 201
    assert pool.jobs == 0
    assert (await send(api, "DELETE", f"{CONFIG_MAPS}/a"))[0] == 200
    assert pool.jobs == 1
    assert (await send(api, "GET", f"{CONFIG_MAPS}/a"))[0] == 404


@run_by(run)
async def test_expensive_mutations_are_evaluated_by_a_worker(harness: ApiHarness) -> None:
    text = f'Object{{metadata: Object.metadata{{labels: {{"ok": string({LOOP})}}}}}}'
    policy = applying(text, matchConstraints={"resourceRules": [rule("configmaps", operations=["CREATE"])]})
    await create(harness, policy, bind(policy))
    api, pool = api_with_worker(harness)
    code, tree = await send(api, "POST", CONFIG_MAPS, big("a"))
    assert (code, pool.jobs) == (201, 1)
    assert tree["metadata"]["labels"] == {"ok": "true"}


@run_by(run)
async def test_expensive_policies_on_requests_of_the_event_loop_are_refused(harness: ApiHarness) -> None:
    loop = "lists.range(300).all(n, lists.range(1000).all(m, m >= 0))"
    policy = validating(loop, matchConstraints={"resourceRules": [rule("pods/binding", "pods/eviction")]})
    await create(harness, policy, bind(policy))
    api, pool = api_with_worker(harness)
    assert (await send(api, "POST", PODS, pod("p")))[0] == 201
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    code, tree = await send(api, "POST", f"{PODS}/p/binding", binding)
    assert (code, pool.jobs) == (403, 0)
    assert f"cost more than {MAX_INLINE_POLICY_COST}" in tree["message"]
    stored = (await send(api, "GET", f"{PODS}/p"))[1]
    assert "nodeName" not in stored["spec"]


@run_by(run)
async def test_without_workers_only_the_limits_of_the_policies_count(harness: ApiHarness) -> None:
    policy = validating(LOOP, matchConstraints={"resourceRules": [rule("configmaps", operations=["CREATE"])]})
    await create(harness, policy, bind(policy))
    assert (await harness.request("POST", CONFIG_MAPS, big("a")))[0] == 201
