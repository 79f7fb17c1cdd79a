"""NRI server over a real socket."""

from __future__ import annotations

import asyncio
import gc
import logging
import stat
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import ConfigError
from plimsoll.node.containers import ContainerPhase, RuntimeFault
from plimsoll.node.hooks import AdjustedContainer
from plimsoll.node.nri import EvictionRequest, NriServer
from plimsoll.node.resources import LinuxResources
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import PLUGIN_SERVICE, RUNTIME_SERVICE, Mux
from plimsoll.protocols.nri import ALL_EVENTS, NriEvent, NriPlugin, edits
from plimsoll.protocols.nri.events import PLUGIN, RUNTIME
from plimsoll.protocols.ttrpc import UNIMPLEMENTED, Handler, TtrpcClient, TtrpcFault, TtrpcServer
from tests import virtual_time
from tests.coroutines import run_by
from tests.unit.node.nri.fixtures import POD, RESOURCES, SPEC, FakeRuntime, fake_runtime, held, state
from tests.unit.protocols.nri.responses import cpu_resources, pin
from tests.waiting import DEADLINE, until


def run(scenario: Callable[[FakeRuntime], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def whole() -> None:
        async with fake_runtime(**options) as here:
            await scenario(here)

    virtual_time.run(whole())


def answering(response: Any, seen: list[Any] | None = None) -> Any:
    async def handle(request: Any) -> Any:
        if seen is not None:
            seen.append(request)
        return response

    return handle


async def hang(request: Any) -> None:
    await asyncio.sleep(3600)


async def create(here: FakeRuntime, id: str = "c1") -> AdjustedContainer | RuntimeFault:
    return await here.server.create(POD, replace(SPEC, id=id), RESOURCES)


# -- connections


@run_by(run)
async def test_a_cancelled_start_leaves_no_socket_open(here: FakeRuntime) -> None:
    socket = here.server.socket.with_name("2.sock")
    second = NriServer(socket, "r", "1", here.inventory, here.apply)
    starting = asyncio.create_task(second.start())
    await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait((starting,))
    assert starting.cancelled()
    gc.collect()  # an open socket would be reported here
    await second.start()
    await second.stop()


@run_by(run)
async def test_only_the_owner_reaches_the_socket(here: FakeRuntime) -> None:
    assert stat.S_IMODE(here.server.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(here.server.socket.parent.stat().st_mode) == 0o700
    again = NriServer(here.server.socket, "x", "1", here.inventory, here.apply)
    with pytest.raises(ConfigError, match="another process serves"):
        await again.start()
    await here.server.stop()
    assert not here.server.socket.exists()
    (here.directory / "file").write_text("")
    blocked = NriServer(here.directory / "file", "x", "1", here.inventory, here.apply)
    with pytest.raises(ConfigError, match="is not a socket"):
        await blocked.start()
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        await NriServer(Path("/tmp/" + "x" * 120), "x", "1", here.inventory, here.apply).start()


def test_a_plugin_receives_the_runtime_name() -> None:
    async def scenario(here: FakeRuntime) -> None:
        (here.directory / "conf").mkdir()
        (here.directory / "conf" / "cpu.conf").write_text("general")
        (here.directory / "conf" / "10-cpu.conf").write_text("special")
        here.containers = {"a": held("a"), "b": held("b", ContainerPhase.EXITED)}
        received: list[Any] = []

        async def synchronize(pods: Any, containers: Any) -> list[nri.ContainerUpdate]:
            received.append(([pod.uid for pod in pods], [container.id for container in containers]))
            return [edits.update("a", cpu_resources("3"))]

        first = await here.add("cpu", "10", {}, synchronize=synchronize)
        assert first.runtime == nri.ConfigureRequest(
            config="special",
            runtime_name="plimsoll",
            runtime_version="1.0",
            registration_timeout=5000,
            request_timeout=2000,
            NRI_version="v0.12.2",
        )
        assert received == [(["u1"], ["a"])]
        await until(lambda: here.applied == [("a", LinuxResources(cpus="3"))])
        second = await here.add("cpu", "11", {})
        assert second.runtime is not None
        assert second.runtime.config == "general"
        assert [(p.index, p.base) for p in here.server.plugins()] == [("10", "cpu"), ("11", "cpu")]

    async def whole() -> None:
        async with fake_runtime() as here:
            here.server.config = here.directory / "conf"
            await scenario(here)

    virtual_time.run(whole())


@run_by(run)
async def test_long_lists_are_reported_in_parts(here: FakeRuntime) -> None:
    here.containers = {f"c{n}": held(f"c{n}", env={"X": "y" * 500_000}) for n in range(20)}
    received: list[int] = []

    async def synchronize(pods: Any, containers: Any) -> list[nri.ContainerUpdate]:
        received.append(len(containers))
        return []

    await here.add("x", "10", {}, synchronize=synchronize)
    assert received == [20]


@pytest.mark.parametrize(
    ("name", "index", "text"),
    [
        ("", "10", "invalid plugin name: invalid plugin name: name is empty"),
        ("a/b", "10", "invalid plugin name: invalid plugin name \"a/b\": contains invalid character '/'"),
        ("x", "1", 'invalid plugin index: invalid plugin index "1", must be 2 digits'),
        ("x", "ab", 'invalid plugin index: invalid plugin index "ab" (not [0-9][0-9])'),
    ],
)
@run_by(run)
async def test_plugins_with_bad_names_are_refused(
    here: FakeRuntime, *, name: str, index: str, text: str
) -> None:
    fault = await NriPlugin(name, index, {}, socket=here.server.socket).run()
    assert fault == TtrpcFault(2, text)


@run_by(run)
async def test_a_plugin_that_does_not_register_in_time_is_closed(here: FakeRuntime) -> None:
    reader, writer = await asyncio.open_unix_connection(str(here.server.socket))
    assert await reader.read() == b""
    writer.close()


@run_by(run)
async def test_unknown_event_masks_are_refused(here: FakeRuntime) -> None:
    for events in (1 << 14, -1):
        plugin = NriPlugin("x", "10", {}, socket=here.server.socket, events=events)
        assert await plugin.run() is None
        assert not plugin.synchronized
        assert here.server.plugins() == ()


@run_by(run, max_plugins=1)
async def test_the_number_of_plugins_is_limited(here: FakeRuntime) -> None:
    await here.add("x", "10", {})
    fault = await NriPlugin("y", "20", {}, socket=here.server.socket).run()
    assert fault is not None
    assert fault.kind == "closed"


@run_by(run)
async def test_a_plugin_without_chunked_synchronize_is_refused(here: FakeRuntime) -> None:
    here.containers = {f"c{n}": held(f"c{n}", env={"X": "y" * 500_000}) for n in range(20)}
    old = OldPlugin(here.server.socket, split=False)
    await old.start()
    await old.gone()
    assert here.server.plugins() == ()
    await old.stop()


# -- creations


@run_by(run)
async def test_adjustments_are_merged_in_plugin_order(here: FakeRuntime) -> None:
    seen: list[Any] = []
    here.containers = {"other": held("other")}
    late = _adjust(env=[{"key": "B", "value": "9"}, {"key": "-A"}], args=["run"], annotations={"k": "v"})
    late.update.append(edits.update("other", cpu_resources("7")))
    early = _adjust(
        mounts=[{"destination": "/m", "source": "/s", "options": ["ro"]}],
        CDI_devices=[{"name": "v/c=d"}],
        linux={
            "devices": [{"path": "/dev/x", "type": "c"}],
            "oom_score_adj": {"value": -5},
            "resources": {"cpu": {"cpus": "0-1"}, "memory": {"limit": {"value": 77}}},
        },
    )
    await here.add("b", "20", {NriEvent.CREATE_CONTAINER: answering(late, seen)})
    await here.add("a", "10", {NriEvent.CREATE_CONTAINER: answering(early, seen)})
    adjusted = await create(here)
    assert isinstance(adjusted, AdjustedContainer)
    assert adjusted.resources == LinuxResources(cpu_shares=512, memory_limit=77, cpus="0-1")
    assert adjusted.env == {"B": "9"}
    assert adjusted.unset == {"A"}
    assert adjusted.command == ("run",)
    assert adjusted.cdi == ("v/c=d",)
    assert [(m.source, m.target, m.options) for m in adjusted.mounts] == [("/s", "/m", ("ro",))]
    assert [d.path for d in adjusted.devices] == ["/dev/x"]
    assert adjusted.oom_score_adj == -5
    assert adjusted.annotations == {"k": "v"}
    assert here.applied == [("other", LinuxResources(cpus="7"))]
    # The second has seen what the first did.
    assert [request.container.linux.resources.cpu.cpus for request in seen] == ["", "0-1"]
    assert seen[0].pod.name == "web"


def _adjust(**fields: Any) -> nri.CreateContainerResponse:
    return nri.CreateContainerResponse(adjust=nri.ContainerAdjustment(**fields))


@run_by(run)
async def test_without_plugins_nothing_changes(here: FakeRuntime) -> None:
    assert await create(here) == AdjustedContainer(resources=RESOURCES)
    assert await here.server.update(POD, state(), RESOURCES) == AdjustedContainer(resources=RESOURCES)
    await here.server.stopped(POD, state())
    assert here.applied == []


@run_by(run)
async def test_a_conflict_fails_the_creation_and_is_undone(here: FakeRuntime) -> None:
    news: list[Any] = []
    handlers = {
        NriEvent.CREATE_CONTAINER: answering(pin("1")),
        NriEvent.STOP_CONTAINER: answering(None, news),
        NriEvent.REMOVE_CONTAINER: answering(None, news),
    }
    await here.add("a", "10", handlers)
    await here.add("b", "20", {NriEvent.CREATE_CONTAINER: answering(pin("1"))})
    assert await create(here) == RuntimeFault(
        "CreateContainerError", 'plugins "20-b" and "10-a" both tried to set CPUSetCPUs'
    )
    assert [type(request).__name__ for request in news] == [
        "StopContainerRequest",
        "RemoveContainerRequest",
    ]
    assert {request.container.id for request in news} == {"c1"}


@run_by(run)
async def test_an_error_fails_the_creation_with_its_text(here: FakeRuntime) -> None:
    await here.add("a", "10", {NriEvent.CREATE_CONTAINER: answering(TtrpcFault(2, "no room for you"))})
    assert await create(here) == RuntimeFault("CreateContainerError", "no room for you")
    assert len(here.server.plugins()) == 1
    await here.add("b", "05", {NriEvent.CREATE_CONTAINER: answering(TtrpcFault(2, "x" * 100_000))})
    fault = await create(here)
    assert isinstance(fault, RuntimeFault)
    assert len(fault.message) == 1024


@run_by(run)
async def test_a_plugin_that_hangs_is_disconnected(here: FakeRuntime) -> None:
    await here.add("a", "10", {NriEvent.CREATE_CONTAINER: hang})
    await here.add("b", "20", {NriEvent.CREATE_CONTAINER: answering(pin("1"))})
    adjusted = await create(here)
    assert isinstance(adjusted, AdjustedContainer)
    assert adjusted.resources.cpus == "1"
    assert [plugin.base for plugin in here.server.plugins()] == ["b"]
    assert isinstance(await create(here, "c2"), AdjustedContainer)


@run_by(run)
async def test_a_validator_that_hangs_fails_the_creation(here: FakeRuntime) -> None:
    # Mask 0 is every event, validation too.
    await here.add("a", "10", {NriEvent.CREATE_CONTAINER: hang}, events=0)
    assert await create(here) == RuntimeFault(
        "CreateContainerError", "validator plugin 10-a failed: ttrpc: closed"
    )
    assert isinstance(await create(here, "c2"), AdjustedContainer)
    await here.add("b", "10", {NriEvent.VALIDATE_CONTAINER_ADJUSTMENT: hang})
    assert await create(here) == RuntimeFault(
        "CreateContainerError", "validator plugin 10-b failed: context deadline exceeded"
    )


@run_by(run)
async def test_validators_see_adjustments_and_their_owners(here: FakeRuntime) -> None:
    seen: list[Any] = []
    verdict = nri.ValidateContainerAdjustmentResponse()
    await here.add("a", "10", {NriEvent.CREATE_CONTAINER: answering(pin("1"))})
    await here.add("v", "90", {NriEvent.VALIDATE_CONTAINER_ADJUSTMENT: answering(verdict, seen)})
    assert isinstance(await create(here), AdjustedContainer)
    request = seen[0]
    assert request.container.linux.resources.cpu.cpus == ""
    assert request.adjust.linux.resources.cpu.cpus == "1"
    assert request.owners.owners["c1"].simple == {21: "10-a"}
    assert [(p.index, p.name) for p in request.plugins] == [("10", "a"), ("90", "v")]
    verdict.reject = True
    assert await create(here) == RuntimeFault(
        "CreateContainerError",
        'validator "90-v" rejected container adjustment, reason: unknown rejection reason',
    )
    verdict.reason = "too hot"
    fault = await create(here)
    assert isinstance(fault, RuntimeFault)
    assert fault.message.endswith("reason: too hot")


def test_a_missing_required_plugin_fails_the_creation() -> None:
    async def scenario(here: FakeRuntime) -> None:
        assert await create(here) == RuntimeFault(
            "CreateContainerError",
            'validator "00-default-validator" rejected container adjustment,'
            ' reason: validation error: required plugin "cpu" not present',
        )
        await here.add("cpu", "10", {})
        assert isinstance(await create(here), AdjustedContainer)
        pod = replace(POD, annotations={"required-plugins.noderesource.dev": "[gpu]"})
        fault = await here.server.create(pod, SPEC, RESOURCES)
        assert isinstance(fault, RuntimeFault)
        assert 'required plugin "gpu" not present' in fault.message

    run(scenario, required=["cpu"])


def test_unsupported_adjustments_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(here: FakeRuntime) -> None:
        response = _adjust(rlimits=[{"type": "RLIMIT_NOFILE"}], hooks={"prestart": [{"path": "/x"}]})
        await here.add("a", "10", {NriEvent.CREATE_CONTAINER: answering(response)})
        assert isinstance(await create(here), AdjustedContainer)

    with caplog.at_level(logging.WARNING):
        run(scenario)
    assert "10-a requested unsupported adjustments: hooks, rlimits" in caplog.text


@run_by(run)
async def test_a_malformed_response_fails_the_creation(here: FakeRuntime) -> None:
    plugin = OldPlugin(here.server.socket, garbage=True)
    await plugin.start()
    await until(lambda: len(here.server.plugins()) == 1)
    fault = await create(here)
    assert isinstance(fault, RuntimeFault)
    assert "protocol error" in fault.message
    await plugin.stop()


# -- the life of a container


@run_by(run)
async def test_events_reach_their_subscribers(here: FakeRuntime) -> None:
    news: list[Any] = []
    some: list[Any] = []
    everything = {event: answering(None, news) for event in NriEvent}
    await here.add("all", "10", everything, events=ALL_EVENTS & ~NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit)
    await here.add("some", "05", {NriEvent.START_CONTAINER: answering(None, some)})
    server = here.server
    await server.sandbox_run(POD)
    await server.create(POD, SPEC, RESOURCES)
    await server.created(POD, state(phase=ContainerPhase.CREATED))
    await server.starting(POD, state(phase=ContainerPhase.CREATED))
    await server.started(POD, state(pid=7))
    await server.update(POD, state(), RESOURCES)
    await server.updated(POD, state())
    await server.stopped(POD, state(phase=ContainerPhase.EXITED, exit_code=3))
    await server.removed(POD, state(phase=ContainerPhase.EXITED))
    await server.sandbox_update(POD)
    await server.sandbox_updated(POD)
    await server.sandbox_stopped(POD)
    await server.sandbox_removed(POD)
    assert [type(request).__name__.removesuffix("Request") for request in news] == [
        "RunPodSandbox",
        "CreateContainer",
        "PostCreateContainer",
        "StartContainer",
        "PostStartContainer",
        "UpdateContainer",
        "PostUpdateContainer",
        "StopContainer",
        "RemoveContainer",
        "UpdatePodSandbox",
        "PostUpdatePodSandbox",
        "StopPodSandbox",
        "RemovePodSandbox",
    ]
    assert news[4].container.pid == 7
    assert list(news[4].container.env) == ["A=1", "B=2"]
    assert (news[7].container.state, news[7].container.exit_code) == (nri.CONTAINER_STOPPED, 3)
    assert len(some) == 1
    assert server.known == server.pending == {}


@run_by(run)
async def test_an_error_of_one_plugin_does_not_keep_events_from_others(here: FakeRuntime) -> None:
    news: list[Any] = []
    refusal = answering(TtrpcFault(2, "not mine"))
    await here.add("a", "10", {NriEvent.REMOVE_CONTAINER: refusal, NriEvent.RUN_POD_SANDBOX: refusal})
    await here.add("b", "20", {NriEvent.REMOVE_CONTAINER: answering(None, news)})
    await here.server.removed(POD, state())
    assert len(news) == 1
    assert await here.server.sandbox_run(POD) == RuntimeFault("CreatePodSandboxError", "not mine")
    assert len(here.server.plugins()) == 2


@run_by(run)
async def test_plugins_adjust_an_update(here: FakeRuntime) -> None:
    here.containers = {"x": held("x")}
    seen: list[Any] = []
    first = nri.UpdateContainerResponse(update=[edits.update("c1", cpu_resources("2"))])
    second = nri.UpdateContainerResponse(
        update=[
            edits.update("c1", cpu_resources("", "0")),
            edits.update("x", cpu_resources("3")),
        ]
    )
    await here.add("a", "10", {NriEvent.UPDATE_CONTAINER: answering(first)})
    await here.add("b", "20", {NriEvent.UPDATE_CONTAINER: answering(second, seen)})
    adjusted = await here.server.update(POD, state(), LinuxResources(cpu_shares=2))
    assert adjusted == AdjustedContainer(resources=LinuxResources(cpu_shares=2, cpus="2", mems="0"))
    await until(lambda: here.applied == [("x", LinuxResources(cpus="3"))])
    assert seen[0].linux_resources.cpu.cpus == "2"
    await here.add("c", "30", {NriEvent.UPDATE_CONTAINER: answering(first)})
    assert await here.server.update(POD, state(), LinuxResources()) == RuntimeFault(
        "UpdateContainerError", 'plugins "30-c" and "10-a" both tried to set CPUSetCPUs'
    )


@run_by(run)
async def test_stopping_a_container_updates_others(here: FakeRuntime) -> None:
    response = nri.StopContainerResponse(update=[edits.update("x", cpu_resources("0-3"))])
    here.containers = {"x": held("x")}
    await here.add("a", "10", {NriEvent.STOP_CONTAINER: answering(response)})
    await here.server.stopped(POD, state())
    await until(lambda: here.applied == [("x", LinuxResources(cpus="0-3"))])


@run_by(run)
async def test_evictions(here: FakeRuntime) -> None:
    evict = [nri.ContainerEviction(container_id="x", reason="noisy")]
    create_answer = nri.CreateContainerResponse(evict=evict)
    update_answer = nri.UpdateContainerResponse(evict=evict)
    handlers = {
        NriEvent.CREATE_CONTAINER: answering(create_answer),
        NriEvent.UPDATE_CONTAINER: answering(update_answer),
    }
    plugin = await here.add("a", "10", handlers)
    await create(here)
    await here.server.update(POD, state(), RESOURCES)
    await plugin.update_containers([], evict)
    assert here.evicted == [EvictionRequest("x", "noisy", "10-a")] * 3


# -- updates that plugins ask for by themselves


@run_by(run)
async def test_updates_are_applied_and_failures_reported(here: FakeRuntime) -> None:
    here.containers = {id: held(id) for id in ("a", "b", "c")} | {"e": held("e", ContainerPhase.EXITED)}
    here.faults = {id: RuntimeFault("x", "no") for id in ("b", "c")}
    plugin = await here.add("p", "10", {})
    updates = [edits.update(id, cpu_resources("1")) for id in ("a", "b", "missing", "e")]
    updates.append(edits.update("c", cpu_resources("1"), ignore_failure=True))
    updates.append(edits.update("a", cpu_resources("garbage")))
    failed = await plugin.update_containers(updates)
    assert not isinstance(failed, TtrpcFault)
    assert [update.container_id for update in failed] == ["b", "a"]
    assert [id for id, _ in here.applied] == ["a", "b", "c"]


@run_by(run)
async def test_an_update_waits_for_a_creation_in_progress(here: FakeRuntime) -> None:
    here.containers = {"a": held("a")}
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> None:
        entered.set()
        await leave.wait()

    plugin = await here.add("p", "10", {NriEvent.CREATE_CONTAINER: slow})
    creating = asyncio.create_task(create(here))
    await entered.wait()
    updating = asyncio.create_task(plugin.update_containers([edits.update("a", cpu_resources("1"))]))
    await asyncio.wait([updating], timeout=0.05)
    assert here.applied == []
    leave.set()
    assert isinstance(await creating, AdjustedContainer)
    assert await updating == ()
    assert [id for id, _ in here.applied] == ["a"]


@run_by(run)
async def test_an_update_inside_a_handler_ends_with_the_handler(here: FakeRuntime) -> None:
    here.containers = {"a": held("a")}
    results: list[Any] = []

    async def foolish(request: Any) -> None:
        try:
            results.append(await plugin.update_containers([edits.update("a", cpu_resources("1"))]))
        except asyncio.CancelledError:
            results.append("given up")
            raise

    plugin = await here.add("p", "10", {NriEvent.CREATE_CONTAINER: foolish})
    assert isinstance(await create(here), AdjustedContainer)
    assert here.server.plugins() == ()
    await until(lambda: len(results) == 1)
    assert here.applied == [] or isinstance(results[0], TtrpcFault)


@run_by(run)
async def test_updates_are_applied_in_the_order_of_the_requests(here: FakeRuntime) -> None:
    """A plugin does not wait for a slow update and sends another one, of fewer containers."""
    here.containers = {id: held(id) for id in ("a", "b", "c")}
    leave = asyncio.Event()
    here.before_apply = leave.wait
    plugin = await here.add("p", "10", {})
    first = [edits.update(id, cpu_resources("0-1")) for id in ("a", "b", "c")]
    assert isinstance(await plugin.update_containers(first, timeout=0.01), TtrpcFault)
    second = [edits.update(id, cpu_resources("0-2")) for id in ("b", "c")]
    updating = asyncio.create_task(plugin.update_containers(second))
    await asyncio.wait([updating], timeout=0.01)
    leave.set()
    assert await updating == ()
    assert {id: resources.cpus for id, resources in here.applied} == {"a": "0-1", "b": "0-2", "c": "0-2"}


@run_by(run)
async def test_updates_of_an_event_precede_later_ones(here: FakeRuntime) -> None:
    """The response to a creation updates a container, and the plugin updates it again at once."""
    here.containers = {"x": held("x")}
    response = nri.CreateContainerResponse(update=[edits.update("x", cpu_resources("0-1"))])
    plugin = await here.add("p", "10", {NriEvent.CREATE_CONTAINER: answering(response)})
    entered, leave = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        entered.set()
        await leave.wait()

    here.before_apply = slow
    creating = asyncio.create_task(create(here))
    await entered.wait()
    updating = asyncio.create_task(plugin.update_containers([edits.update("x", cpu_resources("0-2"))]))
    await asyncio.wait([updating], timeout=0.01)
    assert not creating.done()
    leave.set()
    assert isinstance(await creating, AdjustedContainer)
    assert await updating == ()
    assert [resources.cpus for _, resources in here.applied] == ["0-1", "0-2"]


@run_by(run)
async def test_an_update_during_a_resize_is_repeated_afterwards(here: FakeRuntime) -> None:
    """The runtime applies the response to an event after what the plugin has requested since."""
    here.containers = {"c1": held("c1")}
    response = nri.UpdateContainerResponse(update=[edits.update("c1", cpu_resources("0-1"))])
    plugin = await here.add("p", "10", {NriEvent.UPDATE_CONTAINER: answering(response)})
    await create(here)
    adjusted = await here.server.update(POD, state(), RESOURCES)
    assert isinstance(adjusted, AdjustedContainer)
    assert await plugin.update_containers([edits.update("c1", cpu_resources("0-2"))]) == ()
    await here.apply("c1", adjusted.resources)
    await here.server.updated(POD, state())
    await until(lambda: [resources.cpus for _, resources in here.applied] == ["0-2", "0-1", "0-2"])
    await here.server.update(POD, state(), RESOURCES)
    await here.server.updated(POD, state())
    assert len(here.applied) == 3


@run_by(run)
async def test_concurrent_updates_do_not_deadlock(here: FakeRuntime) -> None:
    """A runtime locks a container during hooks, while a plugin updates the same container."""
    here.containers = {"c1": held("c1")}
    container = asyncio.Lock()

    async def locked() -> None:
        async with container:
            pass

    here.before_apply = locked
    plugin = await here.add("p", "10", {NriEvent.UPDATE_CONTAINER: answering(None)})
    for _ in range(20):
        async with container:
            updating = asyncio.create_task(plugin.update_containers([edits.update("c1", cpu_resources("1"))]))
            await asyncio.sleep(0.002)
            assert isinstance(await here.server.update(POD, state(), RESOURCES), AdjustedContainer)
        assert await updating == ()


@run_by(run)
async def test_plugins_see_updated_resources_of_a_container(here: FakeRuntime) -> None:
    news: list[Any] = []
    plugin = await here.add("p", "10", {NriEvent.POST_UPDATE_CONTAINER: answering(None, news)})
    await create(here)
    here.containers = {"c1": held("c1")}
    assert await plugin.update_containers([edits.update("c1", cpu_resources("5"))]) == ()
    await here.server.updated(POD, state())
    assert news[0].container.linux.resources.cpu.cpus == "5"
    assert news[0].container.linux.resources.cpu.shares.value == 512


@run_by(run)
async def test_a_plugin_connecting_during_creation_receives_the_container(here: FakeRuntime) -> None:
    received: list[list[str]] = []

    async def synchronize(pods: Any, containers: Any) -> list[nri.ContainerUpdate]:
        received.append([container.id for container in containers])
        return []

    await create(here)  # the runtime has not listed it yet
    await here.add("a", "10", {}, synchronize=synchronize)
    here.containers = {"c1": held("c1")}
    await here.server.created(POD, state(phase=ContainerPhase.CREATED))
    await here.add("b", "20", {}, synchronize=synchronize)
    await here.server.removed(POD, state())
    here.containers = {}
    await here.add("c", "30", {}, synchronize=synchronize)
    assert received == [["c1"], ["c1"], []]


# -- plugins of the older kind


class OldPlugin:
    """Plugin of an older protocol: responds to the calls it knows, all others are unimplemented."""

    def __init__(self, socket: Path, *, split: bool = True, garbage: bool = False) -> None:
        self.socket = socket
        self.split = split
        self.garbage = garbage
        self.calls: list[str] = []
        self.events: list[int] = []

    async def start(self) -> None:
        self.mux = Mux(*await asyncio.open_unix_connection(str(self.socket)))
        handlers: dict[str, Handler] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "StateChange": self._state_change,
            "RunPodSandbox": self._unknown,
            "StartContainer": self._unknown,
            "CreateContainer": self._create,
        }
        self.server = TtrpcServer(self.mux.open(PLUGIN_SERVICE), PLUGIN, handlers)
        self.client = TtrpcClient(self.mux.open(RUNTIME_SERVICE))
        request = nri.RegisterPluginRequest(plugin_name="old", plugin_idx="10")
        self.response = await self.client.call(
            RUNTIME.methods_by_name["RegisterPlugin"], request, timeout=DEADLINE
        )

    async def register_again(self) -> Any:
        request = nri.RegisterPluginRequest(plugin_name="new", plugin_idx="20")
        return await self.client.call(RUNTIME.methods_by_name["RegisterPlugin"], request, timeout=DEADLINE)

    async def _configure(self, request: Any) -> nri.ConfigureResponse:
        return nri.ConfigureResponse(events=ALL_EVENTS & ~NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit)

    async def _synchronize(self, request: nri.SynchronizeRequest) -> nri.SynchronizeResponse:
        return nri.SynchronizeResponse(more=request.more and self.split)

    async def _state_change(self, request: nri.StateChangeEvent) -> None:
        self.events.append(request.event)

    async def _unknown(self, request: Any) -> TtrpcFault:
        self.calls.append(type(request).__name__)
        return TtrpcFault(UNIMPLEMENTED, "method unknown")

    async def _create(self, request: Any) -> Any:
        if self.garbage:
            return nri.RegisterPluginRequest(plugin_name="\x07\x07\x07")
        return None

    async def gone(self) -> None:
        await self.mux.wait_closed()

    async def stop(self) -> None:
        await self.server.close()
        await self.client.close()
        await self.mux.close()


@run_by(run)
async def test_an_old_plugin_keeps_receiving_state_changes(here: FakeRuntime) -> None:
    plugin = OldPlugin(here.server.socket)
    await plugin.start()
    await until(lambda: len(here.server.plugins()) == 1)
    assert not here.server.plugins()[0].uses_state_change
    server = here.server
    assert await server.sandbox_run(POD) is None
    assert here.server.plugins()[0].uses_state_change
    await server.create(POD, SPEC, RESOURCES)
    await server.created(POD, state())
    await server.starting(POD, state())
    await server.started(POD, state())
    await server.removed(POD, state())
    await server.sandbox_stopped(POD)
    await server.sandbox_removed(POD)
    assert plugin.calls == ["RunPodSandboxRequest"]
    assert plugin.events == [1, 5, 6, 7, 11, 2, 3]
    again = await plugin.register_again()
    assert again == TtrpcFault(2, 'plugin "10-old" is registered already')
    await plugin.stop()
