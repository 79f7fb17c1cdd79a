"""Node status reporter: registration, renewal, and registration after deletion."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from plimsoll.api.core import Node, NodeAddress, Taint
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.auth.users import node_user
from plimsoll.apiserver.in_process import InProcessTransport
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import LEASES, NODES
from plimsoll.client.transport import Reply, Request
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.machine.machine import Machine, NumaNode
from plimsoll.node.status.reporter import HeartbeatTiming, NodeStatusReporter
from tests.waiting import DEADLINE, until

MACHINE = parse_machine({"capacity": {"cpu": 8, "memory": "32Gi"}})
FAST = HeartbeatTiming(renew=0.05, check=0.05, first=0.01, most=0.05)


@asynccontextmanager
async def cluster(*, controllers: bool = False) -> AsyncIterator[RunningServer]:
    server = await start_server(ServerSettings(durability="normal", controllers=controllers))
    try:
        yield server
    finally:
        await server.stop()


@asynccontextmanager
async def running(status_reporter: NodeStatusReporter) -> AsyncIterator[NodeStatusReporter]:
    task = asyncio.create_task(status_reporter.run())
    try:
        yield status_reporter
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def make(server: RunningServer, name: str = "n1", **options: Any) -> NodeStatusReporter:
    options = {"timing": FAST, **options}
    return NodeStatusReporter(server.client(node_user(name)), name, MACHINE, **options)


async def test_a_node_registers_as_itself() -> None:
    async with cluster() as server:
        status_reporter = make(
            server,
            labels={"rack": "7"},
            taints=[Taint(key="a", effect="NoSchedule")],
            addresses=[NodeAddress(type="InternalIP", address="10.0.0.1")],
            features=["DRANodeAllocatableResources"],
        )
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            node = await server.client().get(NODES, "n1")
            assert node["metadata"]["labels"]["rack"] == "7"
            assert node["spec"]["taints"] == [{"key": "a", "effect": "NoSchedule"}]
            assert node["status"]["allocatable"]["memory"] == f"{32 * 1024 - 100}Mi"
            assert node["status"]["declaredFeatures"] == ["DRANodeAllocatableResources"]
            assert status_reporter.address == "10.0.0.1"
            lease = await server.client().get(LEASES, "n1", "kube-node-lease")
            assert lease["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
            assert lease["spec"]["leaseDurationSeconds"] == 40
            before = lease["spec"]["renewTime"]

            async def renewed() -> bool:
                found = await server.client().get(LEASES, "n1", "kube-node-lease")
                return bool(found["spec"]["renewTime"] > before)

            await until(renewed, ignore=(ApiError,))
            assert status_reporter.failures == 0


async def test_an_existing_node_is_adopted() -> None:
    async with cluster() as server:
        admin = server.client()
        tree = {
            "metadata": {"name": "n1", "labels": {"mine": "x", "kubernetes.io/os": "other"}},
            "spec": {"taints": [{"key": "keep", "effect": "NoSchedule"}], "unschedulable": True},
        }
        await admin.create(NODES, tree)
        await admin.patch(NODES, "n1", {"status": {"capacity": {"example.com/x": "3"}}}, subresource="status")
        seen: list[Node] = []
        status_reporter = make(server, taints=[Taint(key="new", effect="NoSchedule")], changed=seen.append)
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
        node = await admin.get(NODES, "n1")
        assert node["metadata"]["labels"]["mine"] == "x"
        assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["keep"]
        assert node["spec"]["unschedulable"] is True
        assert node["status"]["capacity"]["cpu"] == "8"
        assert node["status"]["allocatable"]["example.com/x"] == "3"
        assert seen[-1].status.allocatable["cpu"] == Quantity.of(8)


async def test_a_node_that_is_deleted_comes_back_with_its_lease() -> None:
    async with cluster(controllers=True) as server:
        admin = server.client()
        status_reporter = make(server)
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            first = status_reporter.uid
            await admin.delete(NODES, "n1")
            await until(lambda: status_reporter.uid not in ("", first), ignore=(ApiError,))

            async def owned() -> bool:
                lease = await admin.get(LEASES, "n1", "kube-node-lease")
                return bool(lease["metadata"]["ownerReferences"][0]["uid"] == status_reporter.uid)

            await until(owned, ignore=(ApiError,))
            await asyncio.sleep(0.2)  # the garbage collector has looked at it
            await until(owned, ignore=(ApiError,))
            await admin.delete(LEASES, "n1", "kube-node-lease")
            await until(owned, ignore=(ApiError,))
        assert status_reporter.registrations == 2


async def test_a_reboot_is_reported() -> None:
    async with cluster() as server:
        for boot in ("one", "one", "two"):
            events: list[tuple[str, str, str]] = []
            machine = replace(MACHINE, boot_id=boot)
            client = server.client(node_user("n1"))
            status_reporter = NodeStatusReporter(
                client,
                "n1",
                machine,
                emit_event=lambda *event: events.append(event),  # noqa: B023
            )
            await status_reporter.register()
            reboots = [event for event in events if event[1] == "Rebooted"]
            assert bool(reboots) == (boot == "two")
        assert reboots == [("Warning", "Rebooted", "Node n1 has been rebooted, boot id: two")]


async def test_a_watch_delivers_a_deletion_at_once() -> None:
    async with cluster() as server:
        admin = server.client()
        status_reporter = make(server, watched=True, timing=replace(FAST, check=60.0))
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            node = await admin.get(NODES, "n1")
            status_reporter.on_node_event(node)
            first = status_reporter.uid
            await admin.delete(NODES, "n1")
            status_reporter.on_node_event(None)
            await until(lambda: status_reporter.uid not in ("", first), ignore=(ApiError,))
            # Late watch events of the old Node change nothing.
            status_reporter.on_node_event(node)
            assert status_reporter.uid != first


async def test_conditions_and_machines_are_written_at_once() -> None:
    async with cluster() as server:
        admin = server.client()
        events: list[tuple[str, str, str]] = []
        seen: list[Node] = []
        status_reporter = make(
            server,
            timing=replace(FAST, check=60.0),
            watched=True,
            emit_event=lambda *event: events.append(event),
            changed=seen.append,
        )
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            assert [event[1] for event in events] == [
                "NodeHasSufficientMemory",
                "NodeHasNoDiskPressure",
                "NodeHasSufficientPID",
                "NodeReady",
            ]
            events.clear()
            status_reporter.set_condition("MemoryPressure", True)
            status_reporter.set_condition("MemoryPressure", True)
            assert events == [
                (
                    "Normal",
                    "NodeHasInsufficientMemory",
                    "Node n1 status is now: NodeHasInsufficientMemory",
                )
            ]

            async def condition(type: str) -> tuple[str, str]:
                node = await admin.get(NODES, "n1")
                found = {c["type"]: c for c in node["status"]["conditions"]}[type]
                return str(found["status"]), str(found["message"])

            async def pressed() -> bool:
                return (await condition("MemoryPressure"))[0] == "True"

            await until(pressed, ignore=(ApiError,))
            status_reporter.set_ready("the runtime is down")

            async def unready() -> bool:
                return await condition("Ready") == ("False", "the runtime is down")

            await until(unready, ignore=(ApiError,))
            bigger = replace(MACHINE, capacity={**MACHINE.capacity, "cpu": Quantity.of(16)})
            status_reporter.set_machine(bigger)
            assert seen[-1].status.allocatable["cpu"] == Quantity.of(16), "the ledger need not wait"

            async def grown() -> bool:
                return bool((await admin.get(NODES, "n1"))["status"]["allocatable"]["cpu"] == "16")

            await until(grown, ignore=(ApiError,))


async def test_resources_of_device_plugins_are_added_to_those_of_others() -> None:
    async with cluster() as server:
        admin, seen = server.client(), list[Node]()
        status_reporter = make(server, changed=seen.append)
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            other = {"status": {"capacity": {"example.com/other": "3"}}}
            status_reporter.on_node_event(await admin.patch(NODES, "n1", other, subresource="status"))
            status_reporter.set_plugin_resources({"example.com/fpga": (2, 1)})
            found = seen[-1].status.allocatable
            assert found["example.com/fpga"] == Quantity.of(1)
            assert found["example.com/other"] == Quantity.of(3)

            async def reported() -> Any:
                status = (await admin.get(NODES, "n1"))["status"]
                return [status[kind].get("example.com/fpga") for kind in ("capacity", "allocatable")]

            await until(reported, lambda found: found == ["2", "1"], ignore=(ApiError,))


async def test_only_actual_changes_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async with cluster() as server:
        status_reporter = make(server)
        caplog.set_level("INFO", "plimsoll.node")
        node = NumaNode(id=0, cpus=MACHINE.cpus, memory=2**34)
        status_reporter.set_machine(replace(MACHINE, numa=(node,)))
        caplog.clear()
        status_reporter.set_machine(replace(MACHINE, numa=(replace(node, memory=2**33),)))
        assert status_reporter.machine.numa[0].memory == 2**33
        assert not caplog.messages
        more = {**MACHINE.capacity, "cpu": Quantity.of(16), "hugepages-2Mi": Quantity.parse("1Gi")}
        status_reporter.set_machine(replace(MACHINE, numa=status_reporter.machine.numa, capacity=more))
        assert caplog.messages == ["n1: machine changed: cpu 8 -> 16, hugepages-2Mi 0 -> 1Gi"]


async def test_a_machine_that_changes_is_noticed() -> None:
    async with cluster() as server:
        admin = server.client()
        machines = [MACHINE]

        def look() -> Machine:
            if not machines:
                raise ApiError(0, "x", "broken")
            return machines[-1]

        status_reporter = make(server, source=look)
        async with running(status_reporter):
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            pages = {"hugepages-2Mi": Quantity.parse("1Gi")}
            machines.append(replace(MACHINE, capacity={**MACHINE.capacity, **pages}))

            async def has_pages() -> bool:
                status = (await admin.get(NODES, "n1"))["status"]
                memory = Quantity.parse(status["allocatable"]["memory"])
                return memory == Quantity.parse(f"{31 * 1024 - 100}Mi") and bool(
                    status["capacity"].get("hugepages-2Mi") == "1Gi"
                )

            await until(has_pages, ignore=(ApiError,))
            machines.clear()
            await asyncio.sleep(0.15)
            assert await has_pages(), "a machine that cannot be read stays as it was"


class FlakyTransport(InProcessTransport):
    """Transport to a server that is unreachable at times."""

    def __init__(self, handle: Any, user: Any) -> None:
        super().__init__(handle, user)
        self.away = False
        self.refused = 0

    async def send(self, request: Request) -> Reply:
        if self.away:
            self.refused += 1
            raise UnreachableError("connection refused", sent=False)
        return await super().send(request)


async def test_the_reporter_waits_for_an_unreachable_server() -> None:
    async with cluster() as server:
        transport = FlakyTransport(server.api.handle, node_user("n1"))
        transport.away = True
        client = Client(transport, attempts=1)
        status_reporter = NodeStatusReporter(client, "n1", MACHINE, timing=FAST)
        async with running(status_reporter):
            await until(lambda: status_reporter.failures >= 3, ignore=(ApiError,))
            assert not status_reporter.registered.is_set()
            transport.away = False
            await asyncio.wait_for(status_reporter.registered.wait(), DEADLINE)
            transport.away = True
            before = status_reporter.failures
            await until(lambda: status_reporter.failures >= before + 4, ignore=(ApiError,))
            status_reporter.set_condition("DiskPressure", True)
            transport.away = False
            renewals = status_reporter.renewals
            await until(lambda: status_reporter.renewals > renewals, ignore=(ApiError,))

            async def pressed() -> bool:
                node = await server.client().get(NODES, "n1")
                return any(
                    (c["type"], c["status"]) == ("DiskPressure", "True") for c in node["status"]["conditions"]
                )

            await until(pressed, ignore=(ApiError,))


async def test_status_is_reported_periodically() -> None:
    async with cluster() as server:
        quiet = make(server, "quiet")
        due = make(server, "due", timing=replace(FAST, report=0.0))
        async with running(quiet), running(due):
            await until(lambda: due.reports >= 3 and quiet.renewals >= 4, ignore=(ApiError,))
        assert quiet.reports == 0, "nothing has changed"


async def test_deleting_the_node_requires_administrator_rights() -> None:
    async with cluster() as server:
        own = make(server)
        await own.register()
        assert not await own.deregister()
        assert await server.client().get(NODES, "n1")
        by_admin = NodeStatusReporter(server.client(), "n1", MACHINE)
        assert await by_admin.deregister()
        assert await by_admin.deregister(), "who is gone is gone"
        for endpoint, namespace in ((NODES, ""), (LEASES, "kube-node-lease")):
            with pytest.raises(ApiError) as caught:
                await server.client().get(endpoint, "n1", namespace)
            assert caught.value.code == 404


async def test_a_node_cannot_register_as_another() -> None:
    async with cluster() as server:
        client = server.client(node_user("n1"))
        status_reporter = NodeStatusReporter(client, "n2", MACHINE, timing=FAST)
        async with running(status_reporter):
            await until(lambda: status_reporter.failures >= 2, ignore=(ApiError,))
            assert not status_reporter.registered.is_set()
