"""Flow controller: classification, waiting, rejection, changes of the configuration, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.apiserver.auth.users import (
    ADMIN,
    ALL_AUTHENTICATED,
    ALL_SERVICE_ACCOUNTS,
    ALL_UNAUTHENTICATED,
    ANONYMOUS,
    CONTROLLER_MANAGER,
    MASTERS,
    NODES,
    SCHEDULER,
    User,
    node_user,
    service_account_user,
)
from plimsoll.apiserver.flowcontrol.bootstrap import ensure_bootstrap_objects
from plimsoll.apiserver.flowcontrol.flow_controller import FlowController, HeldSeats
from plimsoll.apiserver.flowcontrol.flow_schema_status import update_conditions
from plimsoll.apiserver.flowcontrol.matching import RequestDigest
from plimsoll.apiserver.flowcontrol.work_estimate import estimate_seats
from plimsoll.apiserver.registry import flow_control_objects
from plimsoll.apiserver.request import ApiRequest
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.common.metrics import MetricRegistry
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.apiserver.auth.objects import BOB
from tests.unit.apiserver.build import MAPS, NOW, PODS, ApiHarness, config_map, run
from tests.unit.apiserver.flowcontrol.flow_objects import Tree, flow_schema, priority_level

EVE = User("eve", groups=(ALL_AUTHENTICATED,))
SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"


class FlowHarness:
    """Flow controller of an API with the bootstrap objects."""

    def __init__(self, harness: ApiHarness, total: int = 600) -> None:
        self.harness = harness
        self.now = 1000.0
        self.flows = FlowController(harness.store, total, lambda: self.now)

    async def create(self, *trees: Tree) -> None:
        for tree in trees:
            path = SCHEMAS if tree["kind"] == "FlowSchema" else LEVELS
            code, body = await self.harness.request("POST", path, tree)
            assert code == 201, body

    async def uid(self, path: str) -> str:
        return str((await self.harness.request("GET", path))[1]["metadata"]["uid"])

    def request(self, user: User, method: str = "GET", path: str = PODS, **query: str) -> ApiRequest:
        request = ApiRequest(method, path, user, list(query.items()))
        self.harness.api.resolve(request)
        return request

    async def acquire(self, user: User, method: str = "GET", path: str = PODS, **query: str) -> HeldSeats:
        return await self.flows.acquire(self.request(user, method, path, **query))

    def waiting(self, level: str) -> int:
        return self.flows.queue_sets[level].waiting.total()


def play(scenario: Callable[[FlowHarness], Awaitable[None]], total: int = 600) -> None:
    async def within(harness: ApiHarness) -> None:
        await ensure_bootstrap_objects(harness.client)
        await scenario(FlowHarness(harness, total))

    run(within)


def digest(
    user: User, verb: str, resource: str = "pods", namespace: str = "", group: str = ""
) -> RequestDigest:
    return RequestDigest(user, verb, group=group, resource=resource, namespace=namespace)


ACCOUNT = service_account_user("default", "x")
SYSTEM_ACCOUNT = service_account_user("kube-system", "x")
LEASES = "coordination.k8s.io"


@pytest.mark.parametrize(
    ("request_digest", "name"),
    [
        (digest(ADMIN, "list"), "exempt"),
        (RequestDigest(ANONYMOUS, "get", path="/healthz"), "probes"),
        (RequestDigest(ANONYMOUS, "get", path="/readyz/ping"), "probes"),
        (RequestDigest(ANONYMOUS, "get", path="/readyzz"), "global-default"),
        (RequestDigest(ANONYMOUS, "post", path="/healthz"), "global-default"),
        (digest(SCHEDULER, "update", "leases", "kube-system", LEASES), "system-leader-election"),
        (digest(SYSTEM_ACCOUNT, "get", "leases", "kube-system", LEASES), "system-leader-election"),
        (digest(SCHEDULER, "list", "leases", "kube-system", LEASES), "kube-scheduler"),
        (digest(SCHEDULER, "create", "pods/binding", "default"), "kube-scheduler"),
        (digest(CONTROLLER_MANAGER, "list"), "kube-controller-manager"),
        (digest(SYSTEM_ACCOUNT, "list"), "kube-system-service-accounts"),
        (digest(ACCOUNT, "list"), "service-accounts"),
        (digest(node_user("n"), "patch", "nodes/status"), "system-node-high"),
        (digest(node_user("n"), "update", "leases", "kube-node-lease", LEASES), "system-node-high"),
        (digest(node_user("n"), "list"), "system-nodes"),
        (digest(EVE, "list"), "global-default"),
        (digest(User("in no group"), "list"), "catch-all"),
    ],
)
@run_by(play)
async def test_requests_are_classified_as_by_kube_apiserver(
    harness: FlowHarness, *, request_digest: RequestDigest, name: str
) -> None:
    assert harness.flows.classify(request_digest).name == name


def test_names_of_the_bootstrap_objects_are_those_of_the_users() -> None:
    text = repr(vars(flow_control_objects))
    for name in (
        MASTERS, NODES, ALL_AUTHENTICATED, ALL_UNAUTHENTICATED, ALL_SERVICE_ACCOUNTS,
        SCHEDULER.name, CONTROLLER_MANAGER.name,
    ):  # fmt: skip
        assert f"'{name}'" in text


@run_by(run)
async def test_without_stored_objects_the_mandatory_ones_apply(harness: ApiHarness) -> None:
    flows = FlowController(harness.store, 600)
    assert [schema.name for schema in flows.configuration.flow_schemas] == ["exempt", "catch-all"]
    assert flows.classify(digest(EVE, "list")).level == "catch-all"
    assert flows.limits["catch-all"].current == 600


@run_by(play)
async def test_a_user_created_flow_schema_takes_effect_with_the_next_request(harness: FlowHarness) -> None:
    before = (await harness.acquire(EVE)).headers
    assert before["X-Kubernetes-PF-FlowSchema-UID"] == await harness.uid(f"{SCHEMAS}/global-default")
    assert before["X-Kubernetes-PF-PriorityLevel-UID"] == await harness.uid(f"{LEVELS}/global-default")
    await harness.create(priority_level(), flow_schema())
    after = (await harness.acquire(EVE)).headers
    assert after["X-Kubernetes-PF-FlowSchema-UID"] == await harness.uid(f"{SCHEMAS}/fs")
    assert after["X-Kubernetes-PF-PriorityLevel-UID"] == await harness.uid(f"{LEVELS}/pl")
    assert (await harness.acquire(BOB)).headers == before
    await harness.harness.request("DELETE", f"{LEVELS}/pl")
    assert (await harness.acquire(EVE)).headers == before


@run_by(play)
async def test_rules_for_namespaces_apply_to_them_only(harness: FlowHarness) -> None:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"], "namespaces": ["default"]}
    await harness.create(priority_level(), flow_schema(resourceRules=[rule]))
    found = []
    for path in (f"{MAPS}/x", "/api/v1/namespaces/other/configmaps/x", f"{PODS}/x", MAPS):
        held = await harness.acquire(EVE, path=path)
        found.append(held.headers["X-Kubernetes-PF-FlowSchema-UID"] == await harness.uid(f"{SCHEMAS}/fs"))
    assert found == [True, False, False, False]


@run_by(play, total=24)
async def test_a_rejecting_level_answers_429_at_once(harness: FlowHarness) -> None:
    await harness.create(priority_level(shares=1), flow_schema())
    assert "pl" in harness.flows.configuration.levels
    limit = harness.flows.limits["pl"].current
    held = [await harness.acquire(EVE, "POST") for _ in range(limit)]
    with pytest.raises(ApiError) as caught:
        await harness.acquire(EVE, "POST")
    assert (caught.value.code, caught.value.headers["Retry-After"]) == (429, "1")
    assert caught.value.headers["X-Kubernetes-PF-FlowSchema-UID"] == await harness.uid(f"{SCHEMAS}/fs")
    await harness.acquire(BOB, "POST")
    held[0].release()
    held[0].release()  # has no effect
    await harness.acquire(EVE, "POST")
    with pytest.raises(ApiError):
        await harness.acquire(EVE, "POST")
    rejected = harness.flows.metrics.rejected.values
    assert rejected == {("pl", "fs", "concurrency-limit"): 2}


@run_by(play, total=100)
async def test_requests_wait_in_queues_and_one_flow_cannot_starve_another(harness: FlowHarness) -> None:
    subjects = [{"kind": "Group", "group": {"name": ALL_AUTHENTICATED}}]
    level = priority_level(shares=1, queues=64, handSize=4, queueLengthLimit=10)
    await harness.create(level, flow_schema(subjects=subjects))
    held = [await harness.acquire(EVE, "POST")]
    assert harness.flows.limits["pl"].current == 1
    flood = [asyncio.ensure_future(harness.acquire(EVE, "POST")) for _ in range(60)]
    await asyncio.sleep(0)
    full = [task for task in flood if task.done()]
    assert len(full) == 60 - 4 * 10
    assert {str(task.exception()) for task in full} == {"Too many requests, please try again later."}
    bob = asyncio.ensure_future(harness.acquire(BOB, "POST"))
    await asyncio.sleep(0)
    assert harness.waiting("pl") == 41
    turns = 0
    while not bob.done():
        harness.now += 0.003
        held.pop().release()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        held += [task.result() for task in flood if task.done() and task not in full]
        full += [task for task in flood if task.done() and task not in full]
        turns += 1
    assert turns <= 6
    for task in flood:
        task.cancel()
    await asyncio.gather(*flood, return_exceptions=True)
    assert harness.waiting("pl") == 0
    page = MetricRegistry(harness.flows.metrics).render().decode()
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    metrics = {(sample.name, *sorted(sample.labels.values())): sample.value for sample in samples}
    prefix = "apiserver_flowcontrol_"
    assert metrics[f"{prefix}rejected_requests_total", "fs", "pl", "queue-full"] == 20
    assert metrics[f"{prefix}nominal_limit_seats", "pl"] == 1
    assert metrics[f"{prefix}current_inqueue_requests", "fs", "pl"] == 0
    assert metrics[f"{prefix}dispatched_requests_total", "fs", "pl"] == turns + 1


@run_by(play, total=100)
async def test_a_request_waits_for_a_quarter_of_its_timeout(harness: FlowHarness) -> None:
    level = priority_level(shares=1, queues=1, handSize=1, queueLengthLimit=10)
    await harness.create(level, flow_schema())
    await harness.acquire(EVE, "POST")
    with pytest.raises(ApiError) as caught:
        await harness.acquire(EVE, "POST", timeout="40ms")
    assert caught.value.code == 429
    assert harness.flows.metrics.rejected.values == {("pl", "fs", "time-out"): 1}
    assert harness.waiting("pl") == 0


@run_by(play, total=1)
async def test_exempt_requests_never_wait(harness: FlowHarness) -> None:
    held = [await harness.acquire(ADMIN) for _ in range(50)]
    for each in held:
        each.release()
    assert harness.flows.metrics.dispatched.values == {("exempt", "exempt"): 50}


@run_by(play)
async def test_long_running_requests_hold_no_seats(harness: FlowHarness) -> None:
    request = harness.request(EVE, "GET", f"{PODS}/p/status")
    assert request.info is not None
    request.info = type(request.info)(request.info.resource, "v1", "get", "default", "p", "log")
    held = await harness.flows.acquire(request)
    held.release()
    assert not held.headers
    assert not harness.flows.metrics.dispatched.values


@run_by(play)
async def test_broken_objects_of_older_versions_are_ignored(harness: FlowHarness) -> None:
    store = harness.harness.store
    queue = {"type": "Queue", "queuing": {"queues": 9}}
    levels: dict[str, Tree] = {
        "a": {"type": "Limited"},
        "b": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}},
        "c": {"type": 7},
        "d": {"type": "Exempt", "exempt": {}},
        "e": {"type": "Limited", "limited": {"limitResponse": queue}},
    }
    schemas: dict[str, Tree] = {
        "x": {"rules": "x"},
        "y": {},
        "z": {"priorityLevelConfiguration": {"name": "a"}},
    }
    for plural, objects in (("prioritylevelconfigurations", levels), ("flowschemas", schemas)):
        for name, spec in objects.items():
            key = ObjectKey(f"{plural}.flowcontrol.apiserver.k8s.io", "", name)
            store.create(key, {"metadata": {"name": name}, "spec": spec})
    assert not set(levels) & set(harness.flows.configuration.levels)
    assert (await harness.acquire(EVE)).headers["X-Kubernetes-PF-FlowSchema-UID"]


@run_by(play)
async def test_lists_take_seats_by_the_size_of_what_they_list(harness: FlowHarness) -> None:
    for number in range(6):
        tree = {**config_map(f"m{number}"), "data": {"a": "x" * 100_000}}
        await harness.harness.request("POST", MAPS, tree)

    def seats(path: str, most: int = 100, **query: str) -> int:
        info = harness.request(EVE, "GET", path, **query).info
        return estimate_seats(info, query, harness.harness.store, most)

    assert seats(MAPS) == 7
    assert seats(MAPS, 4) == 4
    assert seats(MAPS, limit="2") == 2  # of seven, one of them small
    assert seats(MAPS, fieldSelector="metadata.name=m1") == 1
    assert seats(f"{MAPS}/m1") == 1
    assert seats(PODS) == 1
    assert seats(MAPS, watch="1") == 7
    assert seats(MAPS, watch="1", resourceVersion="5") == 1
    assert seats(MAPS, watch="1", resourceVersion="5", sendInitialEvents="true") == 7
    assert seats("/version") == 1


@run_by(play)
async def test_writes_take_one_seat(harness: FlowHarness) -> None:
    for _ in range(30):
        await harness.harness.api.handle(ApiRequest("GET", MAPS, ADMIN, [("watch", "1")]))
    info = harness.request(EVE, "POST", MAPS).info
    assert estimate_seats(info, {}, harness.harness.store, 100) == 1


@run_by(play)
async def test_flow_schemas_without_a_level_are_dangling(harness: FlowHarness) -> None:
    await harness.create(flow_schema(level="missing"))

    async def condition(name: str) -> Tree:
        await update_conditions(harness.harness.client, harness.flows, lambda: NOW)
        tree = (await harness.harness.request("GET", f"{SCHEMAS}/{name}"))[1]
        (found,) = tree["status"]["conditions"]
        return dict(found)

    start = "This FlowSchema references the PriorityLevelConfiguration object named"
    assert await condition("fs") == {
        "type": "Dangling",
        "status": "True",
        "reason": "NotFound",
        "message": f'{start} "missing" but there is no such object',
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    assert (await condition("catch-all"))["status"] == "False"
    await harness.create(priority_level("missing"))
    found = await condition("fs")
    assert (found["status"], found["reason"]) == ("False", "Found")
    before = harness.harness.store.revision
    await condition("fs")
    assert harness.harness.store.revision == before


@run_by(play)
async def test_the_configuration_is_read_again_when_a_spec_changes_but_not_for_a_status(
    harness: FlowHarness,
) -> None:
    await harness.create(flow_schema(level="catch-all"))
    await update_conditions(harness.harness.client, harness.flows, lambda: NOW)
    before = harness.flows.configuration
    harness.flows.changed.clear()
    _, tree = await harness.harness.request("GET", f"{SCHEMAS}/fs")
    await harness.harness.request("PUT", f"{SCHEMAS}/fs/status", {**tree, "status": {}})
    assert harness.flows.changed.is_set()
    assert harness.flows.configuration is before
    _, tree = await harness.harness.request("GET", f"{SCHEMAS}/fs")
    tree["spec"]["matchingPrecedence"] = 17
    await harness.harness.request("PUT", f"{SCHEMAS}/fs", tree)
    (found,) = (schema for schema in harness.flows.configuration.flow_schemas if schema.name == "fs")
    assert found.precedence == 17
    await harness.harness.request("DELETE", f"{SCHEMAS}/fs")
    assert "fs" not in {schema.name for schema in harness.flows.configuration.flow_schemas}
