"""A real kube-controller-manager on our server: its workloads converge."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    REPLICA_SETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    Endpoint,
)
from plimsoll.errors import ApiError
from tests.real.machines import Machines, Tree
from tests.real.programs import Program, missing
from tests.smoke.process import ServerProcess
from tests.waiting import until

NAME = "kube-controller-manager"
pytestmark = pytest.mark.skipif(bool(missing(NAME)), reason=missing(NAME))

CRON_JOBS = Endpoint("batch", "v1", "cronjobs", "CronJob", True)
ENDPOINT_SLICES = Endpoint("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", True)
LABELS = {"app": "web"}
#: What controllers say at any server when they are overtaken: by each other, or by the end of a namespace.
OVERTAKEN = (
    "is not as new as written version",
    "the object has been modified",
    "because it is being terminated",
    'not found" logger=',  # what they were about to write to is gone
)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientConfig]:
    """Run a server without controllers, and the real ones, each with its own service account."""
    server = ServerProcess(tmp_path_factory.mktemp("controllers"), "--no-controllers")
    server.start()
    own = server.directory / "controller-manager.kubeconfig"
    where = ("--data-dir", server.data, "--server", server.url, "--out", own)
    command = [sys.executable, "-m", "plimsoll.cli.main", "kubeconfig", "controller-manager", *where]
    subprocess.run([str(word) for word in command], check=True, capture_output=True)
    patience = (
        "--node-monitor-grace-period=10m",
        "--node-startup-grace-period=10m",
    )  # no leases
    credentials = "--use-service-account-credentials"
    manager = Program(NAME, server, "--leader-elect=false", credentials, *patience, kubeconfig=own)
    try:
        yield server.config()
    finally:
        alive = manager.alive
        manager.stop()
        server.stop()
    assert alive
    assert "Traceback" not in server.complaints()
    assert [one for one in manager.complaints() if not any(known in one for known in OVERTAKEN)] == []


class ControllerHarness:
    """Namespace on three machines for one scenario."""

    def __init__(self, client: Client, namespace: str, machines: Machines) -> None:
        self.client = client
        self.namespace = namespace
        self.machines = machines

    async def create(self, endpoint: Endpoint, name: str, **fields: Any) -> Tree:
        head = {"apiVersion": endpoint.api_version, "kind": endpoint.kind, "metadata": {"name": name}}
        return await self.client.create(endpoint, head | fields, self.namespace)

    async def create_workload(self, endpoint: Endpoint, **spec: Any) -> None:
        pod = {"containers": [{"name": "main", "image": "img:1", "ports": [{"containerPort": 80}]}]}
        template = {"metadata": {"labels": LABELS}, "spec": pod}
        spec = {"selector": {"matchLabels": LABELS}, "template": template, **spec}
        await self.create(endpoint, "web", spec=spec)

    async def get(self, endpoint: Endpoint, name: str) -> Tree:
        return await self.client.get(endpoint, name, self.namespace)

    async def all(self, endpoint: Endpoint) -> list[Tree]:
        listing = await self.client.list(endpoint, self.namespace)
        return [codec.decode_tree(raw) for raw in listing.items]

    async def ready_pods(self) -> list[Tree]:
        return [
            pod
            for pod in await self.all(PODS)
            if "deletionTimestamp" not in pod["metadata"] and has_condition(pod, "Ready")
        ]

    async def await_gone(self, endpoint: Endpoint, name: str) -> None:
        async def gone() -> bool:
            try:
                await self.get(endpoint, name)
            except ApiError as error:
                if error.code != 404:
                    raise
                return True
            return False

        await until(gone)

    async def await_none(self, *endpoints: Endpoint) -> None:
        async def none() -> bool:
            return not [found for endpoint in endpoints for found in await self.all(endpoint)]

        await until(none)

    async def await_pods(self, endpoint: Endpoint, count: int, image: str = "img:1") -> None:
        """Wait until all pods are ready with the current image and the workload's status agrees."""

        async def settled() -> bool:
            pods = await self.ready_pods()
            status = (await self.get(endpoint, "web")).get("status") or {}
            images = {pod["spec"]["containers"][0]["image"] for pod in pods}
            counts = {status.get(name, 0) for name in ("replicas", "readyReplicas", "updatedReplicas")}
            return len(pods) == count and images <= {image} and counts == {count}

        await until(settled)


def run(
    config: ClientConfig, namespace: str, scenario: Callable[[ControllerHarness], Awaitable[None]]
) -> None:
    """Run a scenario; the namespace is ready once it has its default service account."""

    async def run() -> None:
        async with Client.connect(config) as client:
            head = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            await client.create(NAMESPACES, head)
            async with Machines(client, "n1", "n2", "n3").running() as machines:
                harness = ControllerHarness(client, namespace, machines)
                await until(lambda: harness.all(SERVICE_ACCOUNTS))
                await scenario(harness)

    asyncio.run(run())


def has_condition(tree: Tree, kind: str) -> bool:
    conditions = (tree.get("status") or {}).get("conditions") or ()
    return any((one["type"], one["status"]) == (kind, "True") for one in conditions)


# -- the scenarios


def test_a_deployment_scales_rolls_out_and_is_deleted(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        client, namespace = harness.client, harness.namespace
        await harness.create_workload(DEPLOYMENTS, replicas=3)
        await harness.await_pods(DEPLOYMENTS, 3)
        scale = {"spec": {"replicas": 5}}
        await client.patch(DEPLOYMENTS, "web", scale, namespace, subresource="scale")
        await harness.await_pods(DEPLOYMENTS, 5)
        image = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "img:2"}]
        await client.patch(DEPLOYMENTS, "web", image, namespace, type="json")
        await harness.await_pods(DEPLOYMENTS, 5, "img:2")
        counts = sorted(one["spec"]["replicas"] for one in await harness.all(REPLICA_SETS))
        assert counts == [0, 5]
        after = await harness.get(DEPLOYMENTS, "web")
        assert after["status"]["observedGeneration"] == after["metadata"]["generation"]
        await client.delete(DEPLOYMENTS, "web", namespace, propagation="Foreground")
        await harness.await_gone(DEPLOYMENTS, "web")
        await harness.await_none(REPLICA_SETS, PODS)

    run(config, "deployments", scenario)


def test_dependents_are_orphaned_or_deleted_after_their_owner(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        await harness.create_workload(DEPLOYMENTS, replicas=2)
        await harness.await_pods(DEPLOYMENTS, 2)
        await harness.client.delete(DEPLOYMENTS, "web", harness.namespace, propagation="Orphan")
        await harness.await_gone(DEPLOYMENTS, "web")
        (left,) = await harness.all(REPLICA_SETS)
        assert "ownerReferences" not in left["metadata"]
        name = left["metadata"]["name"]
        await harness.client.delete(REPLICA_SETS, name, harness.namespace, propagation="Background")
        await harness.await_none(REPLICA_SETS, PODS)

    run(config, "garbage", scenario)


def test_a_stateful_set_starts_in_order(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        await harness.create_workload(STATEFUL_SETS, replicas=3, serviceName="web")
        await harness.await_pods(STATEFUL_SETS, 3)
        order = [name for name in harness.machines.order if name.startswith("stateful/")]
        assert order == ["stateful/web-0", "stateful/web-1", "stateful/web-2"]

    run(config, "stateful", scenario)


def test_a_daemon_set_has_a_pod_on_every_node(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        await harness.create_workload(DAEMON_SETS)

        async def everywhere() -> bool:
            status = (await harness.get(DAEMON_SETS, "web")).get("status") or {}
            return status.get("numberReady") == status.get("desiredNumberScheduled") == 3

        await until(everywhere)
        assert sorted(pod["spec"]["nodeName"] for pod in await harness.all(PODS)) == ["n1", "n2", "n3"]

    run(config, "daemons", scenario)


def test_jobs_come_to_an_end(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "img"}]}
        template = {"spec": {"completions": 3, "parallelism": 2, "template": {"spec": pod}}}
        await harness.create(JOBS, "once", **template)
        often = {"schedule": "* * * * *", "suspend": True, "jobTemplate": template}
        made = await harness.create(CRON_JOBS, "often", spec=often)
        # As if the last run had been a while ago: the next one is due now, not in a minute.
        before = datetime.now(UTC) - timedelta(seconds=90)
        made["status"] = {"lastScheduleTime": before.strftime("%Y-%m-%dT%H:%M:%SZ")}
        await harness.client.update(CRON_JOBS, made, subresource="status")
        await harness.client.patch(CRON_JOBS, "often", {"spec": {"suspend": False}}, harness.namespace)

        async def both_complete() -> bool:
            done = [
                job["metadata"]["name"] for job in await harness.all(JOBS) if has_condition(job, "Complete")
            ]
            return "once" in done and any(name.startswith("often-") for name in done)

        await until(both_complete)
        assert (await harness.get(JOBS, "once"))["status"]["succeeded"] == 3

    run(config, "jobs", scenario)


def test_services_find_ready_pods_and_budgets_count_them(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        await harness.create_workload(DEPLOYMENTS, replicas=3)
        await harness.create(
            SERVICES, "web", spec={"selector": LABELS, "ports": [{"port": 8080, "targetPort": 80}]}
        )
        budget = {"selector": {"matchLabels": LABELS}, "maxUnavailable": "34%"}
        await harness.create(POD_DISRUPTION_BUDGETS, "web", spec=budget)
        await harness.await_pods(DEPLOYMENTS, 3)

        async def found() -> bool:
            addresses = {
                address
                for one in await harness.all(ENDPOINT_SLICES)
                for endpoint in one.get("endpoints") or ()
                for address in endpoint["addresses"]
                if (endpoint.get("conditions") or {}).get("ready")
            }
            return addresses == {pod["status"]["podIP"] for pod in await harness.ready_pods()}

        async def counted() -> bool:
            status = (await harness.get(POD_DISRUPTION_BUDGETS, "web")).get("status") or {}
            wanted = {"expectedPods": 3, "currentHealthy": 3, "desiredHealthy": 1, "disruptionsAllowed": 2}
            return wanted.items() <= status.items()

        await until(found)
        await until(counted)
        name = (await harness.ready_pods())[0]["metadata"]["name"]
        head = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        await harness.client.post(PODS, name, "eviction", head, harness.namespace)
        await harness.await_gone(PODS, name)
        await harness.await_pods(DEPLOYMENTS, 3)
        await until(found)

    run(config, "services", scenario)


@pytest.mark.slow  # its controller waits before it looks again whether the pods are gone
def test_a_namespace_ends_with_all_that_is_in_it(config: ClientConfig) -> None:
    async def scenario(harness: ControllerHarness) -> None:
        await harness.create_workload(DEPLOYMENTS, replicas=2)
        await harness.await_pods(DEPLOYMENTS, 2)
        await harness.client.delete(NAMESPACES, harness.namespace)
        await until(lambda: _is_gone(harness))
        await harness.await_none(DEPLOYMENTS, REPLICA_SETS, PODS, SERVICE_ACCOUNTS)

    run(config, "ending", scenario)


async def _is_gone(harness: ControllerHarness) -> bool:
    spaces = (await harness.client.list(NAMESPACES)).items
    return harness.namespace not in {codec.decode_tree(raw)["metadata"]["name"] for raw in spaces}
