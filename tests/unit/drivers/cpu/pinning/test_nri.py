"""NRI enforcer with runtimes over real sockets: the node agent's NRI server, and scripts of old and unusual
ones.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import PinFaultReason
from plimsoll.errors import StoreError
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import NriEvent
from plimsoll.protocols.ttrpc import UNIMPLEMENTED, UNKNOWN, TtrpcFault
from tests.directories import short_directory
from tests.unit.drivers.cpu.machines import switch_off
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, env, hold, machine, settings
from tests.unit.drivers.cpu.pinning.runtimes import (
    STOPPED,
    OwnRuntime,
    Scripted,
    apply_desired,
    changes,
    container,
    overlap,
    sandbox,
    with_own,
    with_script,
)
from tests.waiting import DEADLINE, until

A, B = hold("a", "0-1"), hold("b", "2")
NEW = {"name": "containerd", "release": "v2.4.0", "version": "v0.12.1"}


# -- with our own runtime


def test_containers_get_their_cpus_at_creation() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await runtime.add("shared") == ""
        assert runtime.cpus("shared") == "2-3"
        assert await runtime.add("own", env(A)) == ""
        assert runtime.cpus("own") == "0-1"
        assert {view.id: view.cpus for view in enforcer.containers()} == {"shared": "2-3", "own": "0-1"}
        assert enforcer.shared_in_use
        assert enforcer.runtime == "plimsoll 1.0, NRI 0.12.2"
        assert enforcer.counters.created == 2

    with_own(scenario, FakeCPUState(machine(4), A))


def test_the_shared_pool_shrinks_and_grows_with_claims() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("shared")
        assert runtime.cpus("shared") == "0-3"
        state.hold(A)
        assert await enforcer.apply() == ()
        assert runtime.cpus("shared") == "2-3"
        await runtime.add("own", env(A))
        await runtime.end("own")
        assert runtime.cpus("shared") == "2-3"
        state.release("a")
        await enforcer.apply()
        assert runtime.cpus("shared") == "0-3"

    with_own(scenario, FakeCPUState(machine(4)))


def test_an_unprepared_claim_is_refused_with_a_message() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await runtime.add("own", env(A)) == 'claim "a" is not prepared by this driver'
        assert enforcer.containers() == ()
        assert enforcer.counters.refused == 1

    with_own(scenario, FakeCPUState(machine(4)))


def test_a_malformed_environment_fails_the_container() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        text = await runtime.add("bad", ["DRA_CPUSET_a=zero"])
        assert text.startswith('failed to parse cpuset value "zero" from env "DRA_CPUSET_a=zero": ')

    with_own(scenario, FakeCPUState(machine(4), A))


def test_a_restarted_container_has_the_same_cpus_again() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("one", env(A), pod="p")
        await runtime.end("one", remove=False)
        assert await runtime.add("two", env(A), pod="p") == ""
        assert runtime.cpus("two") == "0-1"

    with_own(scenario, FakeCPUState(machine(4), A))


def test_a_second_pod_is_refused_until_the_first_is_gone() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("one", env(A), pod="p")
        assert await runtime.add("two", env(A), pod="q") == 'claimUID "a" already bound to pod "uid-p"'
        await runtime.end("one")
        assert await runtime.add("two", env(A), pod="q") == ""

    with_own(scenario, FakeCPUState(machine(4), A))


def test_pods_may_share_a_claim_if_configured() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("one", env(A), pod="p")
        assert await runtime.add("two", env(A), pod="q") == ""
        assert runtime.cpus("one") == runtime.cpus("two") == "0-1"

    with_own(scenario, FakeCPUState(machine(4), A), pin={"across_pods": True})


def test_containers_are_synchronized_after_a_runtime_restart() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        seen: list[bool] = []
        enforcer.on_change = lambda: seen.append(enforcer.linked)
        await runtime.add("shared")
        await runtime.add("own", env(A))
        await runtime.stop()
        await until(lambda: not enforcer.linked)
        await until(lambda: False in seen)
        assert enforcer.link_error
        # Meanwhile: one container is gone, an unpinned one was created, and CPUs were claimed.
        del runtime.held["own"]
        runtime.put("shared", runtime.held["shared"].resources)
        state.hold(B)
        assert await enforcer.apply() == ()
        await runtime.start()
        await until(lambda: enforcer.linked and runtime.cpus("shared") == "3")
        assert [view.id for view in enforcer.containers()] == ["shared"]
        assert enforcer.link_error == ""
        assert enforcer.counters.synchronized == 2
        assert len(state.witnessed) == 2
        assert True in seen

    with_own(scenario, FakeCPUState(machine(4), A))


def test_all_containers_are_passed_to_the_cpu_state() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert state.witnessed == [()]
        assert enforcer.findings == (NodeFinding(FindingSeverity.WARNING, "strange"),)

    state = FakeCPUState(machine(4), A)
    state.answers = (NodeFinding(FindingSeverity.WARNING, "strange"),)
    with_own(scenario, state)


def test_an_error_of_the_cpu_state_is_reported_and_pinning_continues() -> None:
    class Broken(FakeCPUState):
        def check_containers(self, containers: Any) -> Any:
            raise StoreError("disk full")

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert "disk full" in enforcer.findings[0].what
        assert await runtime.add("own", env(A)) == ""

    with_own(scenario, Broken(machine(4), A))


def test_a_failed_update_is_retried_and_blocks_exclusive_containers() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("stubborn")
        runtime.broken.add("stubborn")
        state.hold(A)
        faults = await enforcer.apply()
        assert [fault.reason for fault in faults] == [PinFaultReason.REFUSED]
        refused = await runtime.add("own", env(A))
        assert refused == 'CPUs "0-1" are still used by container "default/stubborn/stubborn"'
        runtime.broken.clear()
        await until(lambda: runtime.cpus("stubborn") == "2-3" and not enforcer.faults())
        assert await runtime.add("own", env(A)) == ""
        assert not overlap(runtime, "own", "stubborn")

    with_own(scenario, FakeCPUState(machine(4)))


def test_a_container_in_creation_is_updated_once_created() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await runtime.begin("shared") == ""
        making = runtime.making
        state.hold(A)
        await enforcer.apply()
        assert await runtime.begin("own", env(A)) == ""
        await runtime.finish("own")
        runtime.making = making
        await runtime.finish("shared")
        await until(lambda: runtime.cpus("shared") == "2-3")

    with_own(scenario, FakeCPUState(machine(4)))


def test_offline_cpus_leave_containers() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("shared")
        await runtime.add("own", env(A))
        state.change(switch_off(state.topology, CpuSet([1, 3])))
        assert await enforcer.apply() == ()
        assert (runtime.cpus("shared"), runtime.cpus("own")) == ("2", "0")
        state.change(switch_off(state.topology, CpuSet([0, 1, 3])))
        faults = await enforcer.apply()
        assert [fault.reason for fault in faults] == [PinFaultReason.OFFLINE]
        assert runtime.cpus("own") == "0"

    with_own(scenario, FakeCPUState(machine(4), A))


def test_memory_nodes_and_quota_are_set_with_the_cpus() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A), cpu_quota=150_000, cpu_period=100_000)
        await runtime.add("shared", cpu_quota=50_000, cpu_period=100_000)
        held = runtime.held["own"].resources
        assert (held.cpus, held.mems, held.cpu_quota) == ("0-1", "0", -1)
        assert runtime.held["shared"].resources.mems == ""
        assert runtime.quota("shared") == 50_000

    with_own(scenario, FakeCPUState(machine(4), A), pin={"mems": True, "lift_quota": True})


def test_quota_and_memory_nodes_are_repaired_on_update_events() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        limited = container("own", env(A), cpus="0-1")
        limited.linux.resources.cpu.quota.value = 150_000
        answer = await script.call(
            "Synchronize", nri.SynchronizeRequest(pods=[sandbox("own")], containers=[limited])
        )
        cpu = answer.update[0].linux.resources.cpu
        assert (cpu.cpus, cpu.mems, cpu.quota.value) == ("0-1", "0", -1)

    with_script(scenario, FakeCPUState(machine(4), A), pin={"mems": True, "lift_quota": True})


def test_a_conflicting_plugin_fails_the_container() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        assert script.mask & NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit
        mine = await script.create("own", env(A))

        async def validate(
            id: str, adjust: nri.ContainerAdjustment
        ) -> nri.ValidateContainerAdjustmentResponse:
            request = nri.ValidateContainerAdjustmentRequest(container=container(id), adjust=adjust)
            answer = await script.call("ValidateContainerAdjustment", request)
            assert isinstance(answer, nri.ValidateContainerAdjustmentResponse)
            return answer

        assert not (await validate("own", mine.adjust)).reject
        assert (await validate("unheard-of", mine.adjust)).reject
        mine.adjust.linux.resources.cpu.cpus = "3"
        other = await validate("own", mine.adjust)
        assert other.reject
        assert other.reason == "another plugin has set CPUs '3' instead of '0-1'"

    with_script(scenario, FakeCPUState(machine(4), A), runtime=NEW)


class DyingState(FakeCPUState):
    """State that ends the answer in which it is read, as if the process ended."""

    dying = False

    def __getattribute__(self, name: str) -> Any:
        if name == "topology" and self.dying:
            raise asyncio.CancelledError
        return super().__getattribute__(name)


def test_a_plugin_that_disconnects_during_creation_fails_the_container() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert runtime.server.plugins()[0].is_validator

        assert isinstance(state, DyingState)
        state.dying = True
        text = await runtime.add("own", env(A))
        state.dying = False
        assert text

    with_own(scenario, DyingState(machine(4), A), runtime={"request_timeout": 0.1})


def test_validation_is_requested_only_from_runtimes_that_support_it() -> None:
    for env_claims, expected in (
        ({"name": "containerd", "release": "v2.2.0"}, True),
        ({"name": "containerd", "release": "v2.0.0"}, False),
        ({"name": "cri-o", "release": "1.33.0"}, False),
        (NEW, True),
    ):

        async def scenario(
            script: Scripted, enforcer: NriEnforcer, state: FakeCPUState, expected: bool = expected
        ) -> None:
            assert bool(script.mask & NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit) is expected

        with_script(scenario, FakeCPUState(machine(4)), runtime=env_claims)


def test_validation_can_be_disabled() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert not script.mask & NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW, pin={"fail_closed": False})


# -- with a script: the initial synchronization


def test_synchronize_repairs_cpusets() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert script.registered[0].plugin_name == "dra.cpu"
        assert script.registered[0].plugin_idx == "00"
        answer = await script.synchronize(
            container("right", cpus="2-3"),
            container("wrong", cpus="0-3"),
            container("silent"),
            container("own", env(A), cpus="0-1"),
            container("moved", env(A), pod="own", cpus="3"),
            container("lost", env(B), cpus="2"),
            container("bad", ["DRA_CPUSET_x=?"], cpus="1"),
            container("ended", cpus="0-3", exit_code=1),
        )
        assert answer == {
            "wrong": "2-3",
            "silent": "2-3",
            "moved": "0-1",
            "lost": "2-3",
            "bad": "2-3",
            "ended": "2-3",
        }
        assert {fault.container: fault.reason for fault in enforcer.faults()} == {
            "lost": PinFaultReason.UNKNOWN,
            "bad": PinFaultReason.MALFORMED,
        }
        assert [view.id for view in state.witnessed[0]][:2] == ["right", "wrong"]

    with_script(scenario, FakeCPUState(machine(4), A))


def test_exited_containers_are_ignored() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        ended = container("ended", cpus="0-3")
        ended.state = STOPPED
        assert await script.synchronize(ended) == {}
        assert enforcer.containers() == ()

    with_script(scenario, FakeCPUState(machine(4), A))


def test_synchronize_in_parts() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        first = nri.SynchronizeRequest(pods=[sandbox("p")], containers=[container("a", pod="p")], more=True)
        answer = await script.call("Synchronize", first)
        assert (answer.more, list(answer.update)) == (True, [])
        assert not enforcer.linked
        assert await script.synchronize(container("b", pod="p"), pods=()) == {"a": "2-3", "b": "2-3"}
        assert enforcer.linked

    with_script(scenario, FakeCPUState(machine(4), A))


def test_labels_identify_a_container_of_an_unknown_pod() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        stray = container("x", env(A), cpus="0-1")
        for name, value in (("uid", "uid-x"), ("namespace", "default"), ("name", "x")):
            stray.labels[f"io.kubernetes.pod.{name}"] = value
        await script.call("Synchronize", nri.SynchronizeRequest(containers=[stray]))
        assert enforcer.containers()[0].where == "default/x/x"
        assert enforcer.faults() == ()

    with_script(scenario, FakeCPUState(machine(4), A))


# -- old runtimes: no updates at any time


def test_old_runtimes_receive_updates_with_the_next_event() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        assert not enforcer.pushes
        state.hold(A)
        assert await enforcer.apply() == ()
        assert enforcer.counters.deferred == 1
        answer = await script.created("own", env(A))
        assert apply_desired(answer) == "0-1"
        assert changes(answer) == {"s": "2-3"}
        # The result is not reported: the next claim sends it again.
        state.hold(B)
        assert changes(await script.created("two", env(B))) == {"s": "3"}
        state.release("b")
        await enforcer.apply()
        stop = nri.StopContainerRequest(pod=sandbox("two"), container=container("two"))
        assert changes(await script.call("StopContainer", stop)) == {"s": "2-3"}
        stop = nri.StopContainerRequest(pod=sandbox("own"), container=container("own"))
        assert changes(await script.call("StopContainer", stop)) == {}
        state.release("a")
        resize = nri.UpdateContainerRequest(pod=sandbox("s"), container=container("s", cpus="2-3"))
        assert changes(await script.call("UpdateContainer", resize)) == {"s": "0-3"}
        assert script.updates == []

    with_script(scenario, FakeCPUState(machine(4)))


def test_old_runtimes_grow_the_shared_pool_without_an_event() -> None:
    """By a new connection: the response to Synchronize carries the updates."""

    async def scenario(runtime: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.synchronize(container("s", cpus="2-3"))
        assert not enforcer.pushes
        await enforcer.apply()
        assert enforcer.counters.reconnected == 0, "there is nothing to grow"
        state.release("a")
        await enforcer.apply()
        await until(lambda: enforcer.counters.reconnected == 1)
        await until(lambda: not enforcer.linked)
        await runtime.configure()
        assert await runtime.synchronize(container("s", cpus="2-3")) == {"s": "0-3"}
        await enforcer.apply()
        assert (enforcer.counters.reconnected, enforcer.linked) == (1, True)

    with_script(scenario, FakeCPUState(machine(4), A), quiet=0.005)


def test_old_runtimes_grow_the_shared_pool_after_an_unconfirmed_update() -> None:
    """The last update of the shared container was sent in a response, so its result is unknown."""

    async def scenario(runtime: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.synchronize()
        await runtime.created("s")
        state.hold(A)
        assert changes(await runtime.created("own", env(A))) == {"s": "2-3"}
        stop = nri.StopContainerRequest(pod=sandbox("own"), container=container("own"))
        assert changes(await runtime.call("StopContainer", stop)) == {}
        await enforcer.apply()
        assert enforcer.counters.reconnected == 0, "there is nothing to grow"
        state.release("a")
        await enforcer.apply()
        await until(lambda: enforcer.counters.reconnected == 1)
        await until(lambda: not enforcer.linked)
        await runtime.configure()
        assert await runtime.synchronize(container("s", cpus="2-3")) == {"s": "0-3"}
        await enforcer.apply()
        assert (enforcer.counters.reconnected, enforcer.linked) == (1, True)

    with_script(scenario, FakeCPUState(machine(4)), quiet=0.005)


@pytest.mark.parametrize("push", [False, True])
def test_a_fixed_setting_of_updates_never_reconnects(push: bool) -> None:
    async def scenario(runtime: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.synchronize(container("s", cpus="2-3"))
        state.release("a")
        await enforcer.apply()
        for _ in range(50):
            await asyncio.sleep(0)
        assert enforcer.counters.reconnected == 0
        assert enforcer.linked

    with_script(scenario, FakeCPUState(machine(4), A), quiet=0.0, pin={"push": push})


def test_old_runtimes_report_state_changes() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        await script.created("own", env(A), pod="p")
        await script.news(11, "own", pod="p")
        assert enforcer.containers() == ()
        assert isinstance(await script.create("q", env(A)), TtrpcFault)
        removed: Any = 3
        gone = nri.StateChangeEvent(event=removed, pod=sandbox("p"))
        await script.call("StateChange", gone)
        assert apply_desired(await script.create("q", env(A))) == "0-1"

    with_script(scenario, FakeCPUState(machine(4), A))


def test_on_old_runtimes_creation_waits_for_containers_in_creation() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        assert apply_desired(await script.create("s")) == "0-3"
        state.hold(A)
        fault = await script.create("own", env(A))
        assert isinstance(fault, TtrpcFault)
        assert fault.message == 'CPUs "0-1" are still used by container "default/s/s"'
        await script.news(5, "s", cpus="0-3")
        answer = await script.create("own", env(A))
        assert apply_desired(answer) == "0-1"
        assert changes(answer) == {"s": "2-3"}

    with_script(scenario, FakeCPUState(machine(4)))


def test_a_claim_waits_for_containers_in_creation() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        assert apply_desired(await script.create("s")) == "0-3"
        state.hold(A)
        applying = asyncio.create_task(enforcer.apply())
        await asyncio.sleep(0.05)
        assert not applying.done()
        assert script.updates == []
        await script.news(5, "s", cpus="0-3")
        async with asyncio.timeout(DEADLINE):
            assert await applying == ()
        assert changes(script.updates[-1]) == {"s": "2-3"}

    async def gone(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        await script.create("s")
        state.hold(A)
        applying = asyncio.create_task(enforcer.apply())
        await asyncio.sleep(0.05)
        assert not applying.done()
        await script.call(
            "StopContainer", nri.StopContainerRequest(pod=sandbox("s"), container=container("s"))
        )
        async with asyncio.timeout(DEADLINE):
            assert await applying == ()

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW, apply_timeout=60)
    with_script(gone, FakeCPUState(machine(4)), runtime=NEW, apply_timeout=60)


def test_updates_can_be_enabled_and_disabled() -> None:
    async def forced(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        state.hold(A)
        await enforcer.apply()
        assert [changes(request) for request in script.updates] == [{"s": "2-3"}]

    async def forbidden(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        state.hold(A)
        await enforcer.apply()
        assert script.updates == []

    with_script(forced, FakeCPUState(machine(4)), pin={"push": True})
    with_script(forbidden, FakeCPUState(machine(4)), runtime=NEW, pin={"push": False})


# -- new runtimes that misbehave


def test_shrinking_comes_before_growing() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await script.synchronize(container("own", env(A), cpus="0"), container("s", cpus="2-3")) == {}
        # A CPU comes back to one container while another loses one.
        state.change(machine(4))
        state.hold(B)
        await enforcer.apply()
        assert [changes(request) for request in script.updates] == [{"s": "3"}, {"own": "0-1"}]

    with_script(scenario, FakeCPUState(switch_off(machine(4), CpuSet([1])), A), runtime=NEW)


def test_failed_updates_are_sent_until_they_succeed() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"), container("t", cpus="0-3"))
        script.failing.add("s")
        state.hold(A)
        assert [fault.container for fault in await enforcer.apply()] == ["s"]
        script.failing.clear()
        await until(lambda: enforcer.faults() == ())
        assert changes(script.updates[-1]) == {"s": "2-3"}
        assert enforcer.counters.failed >= 1

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW)


def test_an_unresponsive_runtime_does_not_block() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        script.stuck = asyncio.Event()
        state.hold(A)
        await enforcer.apply()  # comes back after its patience
        assert script.updates
        await until(lambda: bool(enforcer.faults()))  # the call itself has a limit too
        answer = await script.create("t")
        assert apply_desired(answer) == "2-3"
        script.stuck.set()
        script.stuck = None
        await until(lambda: enforcer.faults() == ())

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW, apply_timeout=0.02, call_timeout=0.05)


def test_a_slow_runtime_is_sent_fewer_updates_at_a_time() -> None:
    """It answers only calls with a single update in time."""

    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        names = [f"s{number}" for number in range(5)]
        await script.synchronize(*(container(name, cpus="0-3") for name in names))
        script.most_updates = 1
        state.hold(A)
        await enforcer.apply()
        await until(lambda: enforcer.faults() == () and enforcer.counters.changed >= len(names))
        sizes = [len(request.update) for request in script.updates]
        assert (sizes[0], min(sizes)) == (5, 1)
        script.most_updates = None
        state.release("a")
        await enforcer.apply()
        await until(lambda: all(view.cpus == "0-3" for view in enforcer.containers()))

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW, call_timeout=0.05, retry=0.001)


def test_events_do_not_repeat_updates_that_are_pushed() -> None:
    """A slow runtime would get them with every event, and would become even slower."""

    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        names = [f"s{number}" for number in range(5)]
        await script.synchronize(*(container(name, cpus="0-3") for name in names))
        script.most_updates = 0  # no update is confirmed
        state.hold(A)
        await enforcer.apply()
        assert {fault.reason for fault in enforcer.faults()} == {PinFaultReason.REFUSED}
        answer = await script.create("more")
        assert changes(answer) == {}
        stopped = await script.call(
            "StopContainer", nri.StopContainerRequest(pod=sandbox("s0"), container=container("s0"))
        )
        assert changes(stopped) == {}
        script.most_updates = None
        await until(lambda: enforcer.faults() == ())
        assert {view.cpus for view in enforcer.containers()} == {"2-3"}

    with_script(
        scenario, FakeCPUState(machine(4)), runtime=NEW, call_timeout=0.05, retry=0.001, apply_timeout=0.2
    )


def test_a_runtime_without_update_containers_receives_updates_with_events() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        script.refusing = TtrpcFault(UNIMPLEMENTED, "no such method")
        state.hold(A)
        await enforcer.apply()
        assert not enforcer.pushes
        assert changes(await script.create("t")) == {"s": "2-3"}

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW)


def test_a_refused_update_is_retried() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        script.refusing = TtrpcFault(UNKNOWN, "busy")
        state.hold(A)
        assert "busy" in (await enforcer.apply())[0].message
        script.refusing = None
        await until(lambda: enforcer.faults() == ())

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW)


def test_concurrent_changes_are_resolved_by_a_retry() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        script.stuck = asyncio.Event()
        state.hold(A)
        applying = asyncio.create_task(enforcer.apply())
        await until(lambda: bool(script.updates))
        # While the runtime is at it, a claim comes and an event takes the container along.
        state.hold(B)
        assert changes(await script.create("own", env(B)))["s"] == "3"
        script.stuck.set()
        script.stuck = None
        await applying
        await until(lambda: changes(script.updates[-1]).get("s") == "3")
        await until(lambda: enforcer.containers()[0].cpus == "3")

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW)


def test_updates_sent_with_an_event_are_confirmed() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await script.synchronize(container("s", cpus="0-3")) == {"s": "2-3"}
        await until(lambda: [changes(request) for request in script.updates] == [{"s": "2-3"}])
        await enforcer.apply()
        assert len(script.updates) == 1  # and then left alone

    with_script(scenario, FakeCPUState(machine(4), A), runtime=NEW)


def test_concurrent_changes_are_batched() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(*(container(f"c{n}", cpus="0-3") for n in range(50)))
        script.updates.clear()
        state.hold(A)
        await asyncio.gather(*(enforcer.apply() for _ in range(20)))
        assert len(script.updates) <= 2
        assert len(script.updates[0].update) == 50

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW)


def test_events_of_unknown_containers_are_ignored() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        empty = nri.StopContainerRequest()
        assert changes(await script.call("StopContainer", empty)) == {}
        await script.call("RemoveContainer", nri.RemoveContainerRequest())
        await script.call("RemovePodSandbox", nri.RemovePodSandboxRequest())
        answer = await script.call("UpdateContainer", nri.UpdateContainerRequest(container=container("new")))
        assert changes(answer) == {"new": "0-3"}

    with_script(scenario, FakeCPUState(machine(4)))


def test_a_disconnected_runtime_ends_pending_waits() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-3"))
        script.stuck = asyncio.Event()
        state.hold(A)
        applying = asyncio.create_task(enforcer.apply())
        await until(lambda: bool(script.updates))
        script.hang_up()
        await applying
        await until(lambda: not enforcer.linked)
        script.stuck.set()

    with_script(scenario, FakeCPUState(machine(4)), runtime=NEW, apply_timeout=10.0)


async def test_without_a_runtime_the_problem_is_reported() -> None:
    with short_directory() as path:
        state = FakeCPUState(machine(4))
        enforcer = NriEnforcer(state, lambda: state.topology, settings(path), shortest=0.001, longest=0.01)
        assert enforcer.link_error == "not connected yet"
        await enforcer.start()
        await enforcer.start()
        await until(lambda: "nri.sock" in enforcer.link_error)
        assert await enforcer.apply() == ()
        assert not enforcer.linked
        await enforcer.stop()
        await enforcer.stop()
