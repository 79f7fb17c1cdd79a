"""Placeholder pods on a server that drops the charges of claims, with a simulated kubelet."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import CLASS_KEY
from plimsoll.apiserver.auth.users import SCHEDULER
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Endpoint,
)
from plimsoll.errors import ApiError
from plimsoll.ledger.placeholders import NAMESPACE, PRIORITY, PRIORITY_CLASS, placeholder_owner
from plimsoll.ledger.requests import pod_requests
from plimsoll.ledger.units import CPU, to_units
from plimsoll.scheduler.process.charge import ChargeController
from plimsoll.scheduler.process.placeholder_writer import PlaceholderSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.scheduler.snapshot.verify import verify
from tests.manifests import DRIVER, Tree, claim, claim_template, claiming_pod, device_class
from tests.unit.scheduler.process.scheduler_cluster import (
    NS,
    QUICK,
    SchedulerCluster,
    scheduler_cluster,
)
from tests.waiting import until

ROLES = Endpoint("rbac.authorization.k8s.io", "v1", "roles", "Role", True)
ROLE_BINDINGS = Endpoint("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True)
STOCK = "DRANodeAllocatableResources=false"
MAPPING = {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}}}


class SimulatedKubelet:
    """Kubelet that admits pods in the order in which it sees them, by the CPU requests in their specs."""

    def __init__(self, cluster: SchedulerCluster, node: str, cpu: int) -> None:
        self._admin = cluster.admin
        self._node = node
        self.cpu = cpu
        self._admitted: dict[str, int] = {}
        self.rejected: list[str] = []
        self.paused = False

    async def run(self) -> None:
        while True:
            if not self.paused:
                await self._sync()
            await asyncio.sleep(0.02)

    async def _sync(self) -> None:
        listing = await self._admin.list(PODS, fields=f"spec.nodeName={self._node}")
        pods = [codec.decode(raw, Pod) for raw in listing.items]
        alive = {pod.metadata.uid for pod in pods if not pod.has_terminated}
        self._admitted = {uid: cpu for uid, cpu in self._admitted.items() if uid in alive}
        for pod in pods:
            if pod.metadata.deletion_timestamp is not None:
                await self._admin.delete(PODS, pod.metadata.name, pod.metadata.namespace, grace=0)
            if pod.has_terminated or pod.metadata.uid in self._admitted:
                continue
            cpu = to_units(pod_requests(pod)).get(CPU, 0)
            if sum(self._admitted.values()) + cpu > self.cpu:
                self.rejected.append(pod.metadata.name)
                status = {"phase": "Failed", "reason": "OutOfcpu", "message": "not enough cpu"}
            else:
                self._admitted[pod.metadata.uid] = cpu
                status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
            with suppress(ApiError):  # it has been deleted meanwhile
                await self._admin.patch(
                    PODS, pod.metadata.name, {"status": status}, pod.metadata.namespace, subresource="status"
                )


@asynccontextmanager
async def stock_cluster(**nodes: int) -> AsyncIterator[tuple[SchedulerCluster, dict[str, SimulatedKubelet]]]:
    """Run a server without the alpha fields, and nodes with this many CPUs and four devices of 2 CPUs."""
    async with scheduler_cluster(gates=STOCK) as cluster, asyncio.TaskGroup() as group:
        admin = cluster.admin
        await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        await admin.create(PRIORITY_CLASSES, {"metadata": {"name": PRIORITY_CLASS}, "value": PRIORITY})
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list"]}
        await admin.create(ROLES, {"metadata": {"name": "placeholders"}, "rules": [rule]}, NAMESPACE)
        subject = {"kind": "User", "name": "system:kube-scheduler", "apiGroup": "rbac.authorization.k8s.io"}
        role = {"kind": "Role", "name": "placeholders", "apiGroup": "rbac.authorization.k8s.io"}
        binding = {"metadata": {"name": "placeholders"}, "roleRef": role, "subjects": [subject]}
        await admin.create(ROLE_BINDINGS, binding, NAMESPACE)
        kind = device_class(DRIVER)
        kind["metadata"]["annotations"] = {CLASS_KEY: json.dumps(MAPPING)}
        await admin.create(DEVICE_CLASSES, kind)
        await admin.create(RESOURCE_CLAIM_TEMPLATES, claim_template("t", DRIVER), NS)
        kubelets = {}
        for name, cpu in nodes.items():
            await cluster.node(name, str(cpu))
            await cluster.devices(name, count=4)
            kubelets[name] = SimulatedKubelet(cluster, name, cpu * 1000)
        tasks = [group.create_task(each.run()) for each in kubelets.values()]
        yield cluster, kubelets
        for task in tasks:
            task.cancel()


async def placeholders(cluster: SchedulerCluster) -> list[Pod]:
    return [codec.decode(raw, Pod) for raw in (await cluster.admin.list(PODS, NAMESPACE)).items]


async def only(cluster: SchedulerCluster, count: int = 1) -> list[Pod]:
    return await until(lambda: placeholders(cluster), lambda found: len(found) == count)


async def requested(process: SchedulerProcess) -> list[int]:
    snapshot = process.context.snapshot
    await until(lambda: not snapshot.assumed)
    assert verify(snapshot) == []
    return sorted(ledger.requested[CPU] for ledger in snapshot.ledgers if ledger is not None)


def claiming(name: str, **spec: Any) -> Tree:
    tree = claiming_pod(name, "t")
    tree["spec"] |= spec
    return tree


async def test_a_charged_pod_is_bound_after_its_placeholder_is_admitted() -> None:
    async with stock_cluster(n1=8) as (cluster, kubelets):
        kubelets["n1"].paused = True
        process = await cluster.start()
        await cluster.admin.create(PODS, claiming("p"), NS)
        (placeholder,) = await only(cluster)
        await asyncio.sleep(0.2)
        assert "nodeName" not in (await cluster.admin.get(PODS, "p", NS))["spec"]
        kubelets["n1"].paused = False
        assert await cluster.bound("p") == "n1"
        owner = placeholder_owner(placeholder)
        assert owner is not None
        assert str(owner) == "pod default/p"
        assert placeholder.spec.priority == PRIORITY
        assert [to_units(pod_requests(placeholder))[CPU]] == [2000]
        (reference,) = placeholder.metadata.owner_references
        assert (reference.kind, reference.name, reference.controller) == ("Node", "n1", True)
        assert await requested(process) == [2100], "the pod's 100m and its claim, once"
        (ledger,) = (each for each in process.context.snapshot.ledgers if each is not None)
        assert len(ledger) == 2, "both count as pods"


async def test_a_rejected_placeholder_sends_the_pod_to_another_node() -> None:
    async with stock_cluster(n1=8, n2=8) as (cluster, kubelets):
        for kubelet in kubelets.values():
            kubelet.cpu = 1000  # something that the API does not show has the rest
        process = await cluster.start()
        await cluster.admin.create(PODS, claiming("p"), NS)
        first = await until(lambda: next((name for name, each in kubelets.items() if each.rejected), ""))
        (other,) = kubelets.keys() - {first}
        kubelets[other].cpu = 8000
        assert await cluster.bound("p") == other
        assert process.context.metrics.steps.values, "the refused binding is counted"
        await only(cluster)
        (allocated,) = [
            codec.decode_tree(raw) for raw in (await cluster.admin.list(RESOURCE_CLAIMS, NS)).items
        ]
        (result,) = allocated["status"]["allocation"]["devices"]["results"]
        assert result["pool"].startswith(other), "the device of the first node was released"


async def test_a_placeholder_goes_with_its_pod() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        process = await cluster.start()
        await cluster.admin.create(PODS, claiming("p"), NS)
        await cluster.bound("p")
        await only(cluster)
        await cluster.admin.delete(PODS, "p", NS, grace=0)
        await only(cluster, 0)
        await until(lambda: all(not ledger.entries for ledger in process.context.snapshot.ledgers if ledger))
        assert await requested(process) == [0]


async def test_a_deleted_placeholder_comes_back_unless_the_node_is_cordoned() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        await cluster.start()
        await cluster.admin.create(PODS, claiming("p"), NS)
        await cluster.bound("p")
        (first,) = await only(cluster)
        await cluster.admin.delete(PODS, first.metadata.name, NAMESPACE, grace=0)
        (second,) = await until(
            lambda: placeholders(cluster),
            lambda found: bool(found) and found[0].metadata.uid != first.metadata.uid,
        )
        await cluster.admin.patch(NODES, "n1", {"spec": {"unschedulable": True}})
        await asyncio.sleep(0.2)
        await cluster.admin.delete(PODS, second.metadata.name, NAMESPACE, grace=0)
        await asyncio.sleep(0.5)
        assert await placeholders(cluster) == []


async def test_what_a_crash_left_is_repaired_at_the_start() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        process = await cluster.start()
        for name in ("gone", "stays"):
            await cluster.admin.create(PODS, claiming(name), NS)
            await cluster.bound(name)
        left = {each.metadata.annotations["plimsoll.dev/pod"]: each for each in await only(cluster, 2)}
        await cluster.stop(process)
        await cluster.admin.delete(PODS, "gone", NS, grace=0)
        await cluster.admin.delete(PODS, left["default/stays"].metadata.name, NAMESPACE, grace=0)
        again = await cluster.start()
        (found,) = await until(
            lambda: placeholders(cluster),
            lambda found: (
                [each.metadata.annotations["plimsoll.dev/pod"] for each in found] == ["default/stays"]
            ),
        )
        assert found.metadata.uid != left["default/stays"].metadata.uid
        assert await requested(again) == [2100]


async def test_pods_of_a_shared_claim_have_one_placeholder() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        process = await cluster.start()
        policy = {"nodeAllocatableResourceAccountingPolicies": {"cpu": "ConsumeFrom"}}
        annotation = {CLASS_KEY: json.dumps(MAPPING | policy)}
        await cluster.admin.patch(DEVICE_CLASSES, DRIVER, {"metadata": {"annotations": annotation}})
        await cluster.admin.create(RESOURCE_CLAIMS, claim("shared", DRIVER), NS)
        for name in ("a", "b"):
            tree = claiming(name)
            tree["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "shared"}]
            await cluster.admin.create(PODS, tree, NS)
            await cluster.bound(name)
        (placeholder,) = await only(cluster)
        owner = placeholder_owner(placeholder)
        assert owner is not None
        assert str(owner) == "claim default/shared"
        assert await requested(process) == [2200], (
            "what kubelets count: the claim, and what pods draw from it"
        )
        await cluster.admin.delete(PODS, "a", NS, grace=0)
        await asyncio.sleep(0.3)
        await only(cluster, 1)
        await cluster.admin.delete(PODS, "b", NS, grace=0)
        await only(cluster, 0)


async def test_preemption_takes_pod_and_placeholder() -> None:
    async with stock_cluster(n1=4) as (cluster, _):
        process = await cluster.start()
        await cluster.admin.create(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
        await cluster.admin.create(PODS, claiming("low"), NS)
        await cluster.bound("low")
        await cluster.pod("high", "3", priorityClassName="high")
        assert await cluster.bound("high") == "n1"
        await only(cluster, 0)
        listing = await cluster.admin.list(PODS, NS)
        assert [codec.decode(raw, Pod).metadata.name for raw in listing.items] == ["high"]
        assert await requested(process) == [3000]


async def test_a_pod_needs_a_slot_for_its_placeholder() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        await cluster.admin.patch(
            NODES, "n1", {"status": {"allocatable": {"pods": "1"}}}, subresource="status"
        )
        await cluster.start()
        await cluster.admin.create(PODS, claiming("p"), NS)
        condition = await cluster.condition_of("p")
        assert condition["message"].startswith("0/1 nodes are available: 1 Too many pods.")


async def test_a_missing_namespace_is_named() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        await cluster.admin.delete(NAMESPACES, NAMESPACE)
        await cluster.start()
        await cluster.admin.create(PODS, claiming("p"), NS)
        condition = await cluster.condition_of("p")
        assert condition["reason"] == "SchedulerError"
        assert NAMESPACE in condition["message"]


async def test_a_kubelet_that_rejects_a_repaired_placeholder_is_reported() -> None:
    async with stock_cluster(n1=8) as (cluster, kubelets):
        process = await cluster.start(replace(QUICK, placeholders=PlaceholderSettings(mode="Off")))
        await cluster.admin.create(PODS, claiming("p"), NS)
        await cluster.bound("p")
        assert await placeholders(cluster) == [], "switched off"
        await cluster.stop(process)
        kubelets["n1"].cpu = 1000
        process = await cluster.start()
        events = await until(
            lambda: cluster.admin.list(EVENTS, NS),
            lambda found: any(b"ClaimsNotCharged" in raw for raw in found.items),
        )
        (event,) = (codec.decode_tree(raw) for raw in events.items if b"ClaimsNotCharged" in raw)
        assert event["type"] == "Warning"
        assert "node n1 has no room for the charges of the pod's claims" in event["message"]
        assert "OutOfcpu: not enough cpu" in event["message"]
        await only(cluster, 0)
        assert sum(process.context.metrics.placeholders_rejected.values.values()) == 1


async def test_pods_of_another_scheduler_are_charged_after_they_are_bound() -> None:
    async with stock_cluster(n1=8) as (cluster, _):
        process = await cluster.start(replace(QUICK, placeholders=PlaceholderSettings(mode="Off")))
        controller = ChargeController(cluster.server.client(SCHEDULER), replace(QUICK, listen=""), [NS])
        running = asyncio.create_task(controller.run())
        await cluster.admin.create(PODS, claiming("p"), NS)
        await cluster.bound("p")
        (placeholder,) = await only(cluster)
        owner = placeholder_owner(placeholder)
        assert str(owner) == "pod default/p"
        await cluster.admin.delete(PODS, "p", NS, grace=0)
        await only(cluster, 0)
        elsewhere = ChargeController(cluster.server.client(SCHEDULER), QUICK, ["other"])
        assert not elsewhere.is_responsible(codec.convert({"metadata": {"namespace": NS}}, Pod))
        controller.stop()
        await running
        await cluster.stop(process)
