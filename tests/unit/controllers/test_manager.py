"""Controller manager: selection, start and leader election."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import CONTROLLERS
from plimsoll.apiserver.in_process import InProcessTransport, connect_in_process
from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.client import Client
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import NAMESPACES, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from plimsoll.client.leader_election import Election, LeaseTiming
from plimsoll.controllers import NAMES, ControllerManager, choose_controllers
from plimsoll.controllers.object_views import DEFAULT_NAMESPACES
from plimsoll.errors import ApiError, InputError
from tests.unit.controllers.cluster import ADMIN, Cluster
from tests.unit.controllers.new_objects import pod, template
from tests.waiting import DEADLINE, until


@asynccontextmanager
async def running(*controllers: ControllerManager) -> AsyncIterator[list[asyncio.Task[None]]]:
    tasks = [asyncio.create_task(each.run()) for each in controllers]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def make_pod(cluster: Cluster) -> None:
    await cluster.client.create(RESOURCE_CLAIM_TEMPLATES, template(), "n")
    await cluster.client.create(PODS, pod("p", {"a": {"resourceClaimTemplateName": "t"}}), "n")


def test_all_controllers_are_listed() -> None:
    assert NAMES == (
        "resourceclaim-controller",
        "device-taint-eviction-controller",
        "garbage-collector-controller",
        "namespace-controller",
        "node-lifecycle-controller",
        "pod-garbage-collector-controller",
        "podgroup-protection-controller",
        "resourcepoolstatusrequest-controller",
        "resourcequota-controller",
        "root-ca-certificate-publisher-controller",
        "serviceaccount-controller",
        "taint-eviction-controller",
        "replicaset-controller",
        "replicationcontroller-controller",
        "deployment-controller",
        "statefulset-controller",
        "daemonset-controller",
        "job-controller",
        "cronjob-controller",
        "ttl-after-finished-controller",
        "disruption-controller",
        "endpointslice-controller",
        "persistentvolume-binder-controller",
        "persistentvolumeclaim-protection-controller",
        "persistentvolume-protection-controller",
        "ephemeral-volume-controller",
        "host-path-provisioner",
    )


async def test_an_unknown_controller_is_named() -> None:
    cluster = Cluster()
    with pytest.raises(InputError, match="unknown controller 'janitor'; valid controllers: resourceclaim"):
        ControllerManager(cluster.client, only=["janitor"])
    await cluster.store.close()


async def test_discovery_names_every_resource_once() -> None:
    cluster = Cluster()
    served = await discover(cluster.client)
    found = {(item.endpoint.group, item.endpoint.plural): item for item in served}
    assert len(found) == len(served)
    for resource in RESOURCES:
        item = found[resource.group, resource.plural]
        assert item.endpoint.version == resource.versions[0]
        assert item.endpoint.kind == resource.kind
        assert item.endpoint.namespaced == resource.namespaced
        assert item.versions == resource.versions
        assert item.verbs == set(resource.verbs)
    await cluster.store.close()


async def test_servers_that_answer_group_by_group_are_understood() -> None:
    class Plain(InProcessTransport):
        async def send(self, request: Any) -> Any:
            headers = {**request.headers, "Accept": "application/json"}
            return await super().send(request._replace(headers=headers))

    cluster = Cluster()
    at_once = await discover(cluster.client)
    one_by_one = await discover(Client(Plain(cluster.api.handle, ADMIN)))
    assert {item.endpoint: item for item in at_once} == {item.endpoint: item for item in one_by_one}
    await cluster.store.close()


async def test_every_controller_runs_as_its_own_user() -> None:
    """On all kinds of the embedded API, with the controllers' own rights."""
    cluster = Cluster()
    for name in (*DEFAULT_NAMESPACES, "n"):
        await cluster.client.create(NAMESPACES, {"metadata": {"name": name}})
    controllers = ControllerManager(connect_in_process(cluster.api.handle, CONTROLLERS))
    async with running(controllers):
        await asyncio.wait_for(controllers.ready(), DEADLINE)
        await make_pod(cluster)
        await until(lambda: cluster.names(RESOURCE_CLAIMS))
        await cluster.client.delete(NAMESPACES, "n")

        async def gone() -> bool:
            return "n" not in await cluster.names(NAMESPACES, "")

        await until(gone)
        faults = [informer for informer in controllers.informers.all() if informer.faults]
        assert not faults
    await cluster.store.close()


async def test_controllers_without_their_kinds_are_left_out() -> None:
    cluster = Cluster()
    served = [item for item in await discover(cluster.client) if item.endpoint.group != "resource.k8s.io"]
    controllers = ControllerManager(cluster.client, served=served)
    await controllers.start()
    devices = ("resourceclaim-controller", "device-taint-eviction-controller")
    absent = (*devices, "resourcepoolstatusrequest-controller")
    assert [each.name for each in controllers.controllers] == [name for name in NAMES if name not in absent]
    older = [
        item._replace(endpoint=item.endpoint.at("v1alpha2"), versions=("v1alpha2",))
        if item.endpoint.group == "resource.k8s.io"
        else item
        for item in await discover(cluster.client)
    ]
    controllers = ControllerManager(cluster.client, served=older, only=["resourceclaim-controller"])
    await controllers.start()
    assert not controllers.controllers
    await cluster.store.close()


async def test_the_manager_waits_for_the_api_server() -> None:
    cluster = Cluster()
    await cluster.client.create(NAMESPACES, {"metadata": {"name": "n"}})
    refusals = [ApiError(503, "ServiceUnavailable", "not yet")] * 3

    class Late(InProcessTransport):
        async def send(self, request: Any) -> Any:
            if refusals:
                raise refusals.pop()
            return await super().send(request)

    class Hasty:
        def now(self) -> float:
            return cluster.clock.now()

        def monotonic(self) -> float:
            return self.now()

        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

    client = Client(Late(cluster.api.handle, ADMIN), attempts=1)
    controllers = ControllerManager(client, clock=Hasty(), only=["resourceclaim-controller"])
    async with running(controllers):
        await asyncio.wait_for(controllers.ready(), DEADLINE)
    await cluster.store.close()


async def test_one_of_two_works_and_the_other_takes_over() -> None:
    cluster = Cluster()
    for name in ("n", "kube-system"):
        await cluster.client.create(NAMESPACES, {"metadata": {"name": name}})
    pair = []
    for identity in ("one", "two"):
        election = Election(
            cluster.client,
            "kube-system",
            "plimsoll-controllers",
            identity,
            timing=LeaseTiming(lease=120.0, renew=100.0, retry=0.02),
        )
        client = connect_in_process(cluster.api.handle, ADMIN, user_agent=identity)
        pair.append(ControllerManager(client, only=["resourceclaim-controller"], election=election))
    async with running(*pair) as tasks:
        first = [asyncio.create_task(each.ready()) for each in pair]
        done, waiting = await asyncio.wait(first, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
        assert len(done) == 1, "only one of them leads"
        (winner,) = [number for number, task in enumerate(first) if task in done]
        tasks[winner].cancel()
        await asyncio.wait(waiting, timeout=DEADLINE)
        assert first[1 - winner].done(), "the other has taken over"
        await make_pod(cluster)
        await until(lambda: cluster.names(RESOURCE_CLAIMS))
    await cluster.store.close()


def test_controllers_are_chosen_as_by_kube_controller_manager() -> None:
    assert choose_controllers(["*"]) == list(NAMES)
    assert choose_controllers(["*", "-job-controller"]) == [
        name for name in NAMES if name != "job-controller"
    ]
    assert choose_controllers(["job-controller", " cronjob-controller"]) == [
        "job-controller",
        "cronjob-controller",
    ]
    with pytest.raises(InputError, match="unknown controller 'janitor'"):
        choose_controllers(["*", "-janitor"])
