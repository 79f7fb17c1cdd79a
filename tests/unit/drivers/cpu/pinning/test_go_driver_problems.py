"""Open problems of the Go driver about pinning (docs/spec/cpu-driver.md, "Open problems").

Numbered as there; issues by their numbers in the Go driver's tracker, or Kubernetes' own.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll.drivers.cpu.pinning.audit import CpusetObserver
from plimsoll.drivers.cpu.pinning.cgroups import CgroupEnforcer
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import PinFaultReason
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri import NriEvent
from tests.unit.drivers.cpu.machines import make_machine
from tests.unit.drivers.cpu.pinning.builders import FakeCPUState, env, hold, machine
from tests.unit.drivers.cpu.pinning.cgroup_harness import Pods, place, pod, run_enforcer
from tests.unit.drivers.cpu.pinning.runtimes import (
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
from tests.unit.drivers.cpu.pinning.stand_in import CPUS, V1
from tests.waiting import until

A, B = hold("a", "0-1"), hold("b", "2")


def test_problem_6_shared_pool_grows_right_after_unprepare() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("shared")
        await runtime.add("own", env(A))
        await runtime.end("own")
        assert runtime.cpus("shared") == "2-3"
        state.release("a")
        await enforcer.apply()
        assert runtime.cpus("shared") == "0-3"  # and no container was made in between

    with_own(scenario, FakeCPUState(machine(4), A))


def test_problem_7_containers_of_one_pod_share_a_claim() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await runtime.add("init", env(A), pod="p") == ""
        await runtime.end("init", remove=False)
        for name in ("app", "sidecar", "app-restarted"):
            assert await runtime.add(name, env(A), pod="p") == ""
            assert runtime.cpus(name) == "0-1"
        assert await runtime.add("no-claim", pod="p") == ""
        assert runtime.cpus("no-claim") == "2-3"
        assert await runtime.add("thief", env(A), pod="q") == 'claimUID "a" already bound to pod "uid-p"'

    with_own(scenario, FakeCPUState(machine(4), A))


def test_problem_7_the_claim_is_free_with_its_last_user() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("one", env(A), pod="p")
        await runtime.add("two", env(A), pod="p")
        await runtime.end("one")
        assert "already bound" in await runtime.add("next", env(A), pod="q")
        await runtime.end("two")
        assert await runtime.add("next", env(A), pod="q") == ""

    with_own(scenario, FakeCPUState(machine(4), A))


def test_problem_9_kubelet_updates_do_not_overwrite() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A))
        await runtime.add("shared")
        assert await runtime.update("own", cpus="0-3", cpu_shares=2048, memory_limit=1 << 30) == ""
        assert runtime.cpus("own") == "0-1"
        assert runtime.held["own"].resources.memory_limit == 1 << 30  # what is not ours goes through
        assert await runtime.update("shared", cpus="0") == ""
        assert runtime.cpus("shared") == "2-3"
        assert enforcer.counters.corrected == 2

    with_own(scenario, FakeCPUState(machine(4), A))


def test_problem_9_a_container_that_keeps_what_it_has_keeps_it_through_updates() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="0-1"))
        state.hold(hold("w", "0-3"))
        request = nri.UpdateContainerRequest(pod=sandbox("s"), container=container("s", cpus="0-1"))
        request.linux_resources.cpu.cpus = "2-3"
        assert changes(await script.call("UpdateContainer", request)) == {"s": "0-1"}

    state = FakeCPUState(machine(4), hold("x", "2-3"))
    with_script(scenario, state)


def test_problem_10_reconnects_indefinitely() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        for number in range(2, 12):  # more often than five times
            script.hang_up()
            await until(lambda number=number: script.connections == number)  # type: ignore[misc]
            assert not enforcer.linked
            await script.configure()
            await script.synchronize(container(f"c{number}", cpus="0-3"))
            await until(lambda: enforcer.linked)
            assert [view.id for view in enforcer.containers()] == [f"c{number}"]
        assert enforcer.counters.connections == 11

    with_script(scenario, FakeCPUState(machine(4), A))


def test_problem_10_a_runtime_that_is_away_is_waited_for() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A))
        await runtime.stop()
        await until(lambda: "nri.sock" in enforcer.link_error)
        await runtime.start()
        await until(lambda: enforcer.linked)
        assert runtime.cpus("own") == "0-1"

    with_own(scenario, FakeCPUState(machine(4), A))


def test_issue_295_empty_shared_pool() -> None:
    whole = hold("w", "0-3")

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert await runtime.add("own", env(whole), pod="p") == ""
        refused = await runtime.add("sidecar", pod="p")
        assert refused == "no shared CPUs are left for containers without exclusive CPUs"
        assert "sidecar" not in runtime.held

    with_own(scenario, FakeCPUState(machine(4), whole))


def test_issue_297_a_claim_of_everything_does_not_start_over_shared_containers() -> None:
    whole = hold("w", "0-3")

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("shared")
        state.hold(whole)
        assert [fault.reason for fault in await enforcer.apply()] == [PinFaultReason.EMPTY_POOL]
        assert runtime.cpus("shared") == "0-3"  # never an empty set
        refused = await runtime.add("own", env(whole))
        assert refused == 'CPUs "0-3" are still used by container "default/shared/shared"'
        await runtime.end("shared")
        assert await runtime.add("own", env(whole)) == ""

    with_own(scenario, FakeCPUState(machine(4)))


def test_issue_103_exclusive_and_shared_cpus_in_one_container() -> None:
    mixed = hold("m", "0", include_shared=True)

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("mixed", env(mixed))
        await runtime.add("shared")
        assert runtime.cpus("mixed") == "0-3"
        assert runtime.cpus("shared") == "1-3"
        state.hold(B)
        await enforcer.apply()
        assert runtime.cpus("mixed") == "0-1,3"
        assert runtime.cpus("shared") == "1,3"

    with_own(scenario, FakeCPUState(machine(4), mixed))


def test_issue_305_quota_does_not_throttle_exclusive_cpus() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A), cpu_quota=150_000, cpu_period=100_000)
        await runtime.add("shared", cpu_quota=50_000, cpu_period=100_000)
        assert runtime.quota("own") == -1
        assert runtime.quota("shared") == 50_000

    with_own(scenario, FakeCPUState(machine(4), A), pin={"lift_quota": True})


def test_issue_313_a_resize_does_not_bring_the_quota_back() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A), cpu_quota=150_000, cpu_period=100_000)
        await runtime.update("own", cpu_quota=180_000, cpu_period=100_000)
        assert runtime.quota("own") == -1

    with_own(scenario, FakeCPUState(machine(4), A), pin={"lift_quota": True})


def test_issue_305_quota_is_left_alone_unless_asked_for() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A), cpu_quota=150_000, cpu_period=100_000)
        assert runtime.quota("own") == 150_000

    with_own(scenario, FakeCPUState(machine(4), A))


def test_issue_140_a_cpuset_that_something_else_wrote(tmp_path: Path) -> None:
    files = V1(tmp_path, ("cpuset",))

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(A))
        directory = files.add("kubepods/poduid-own/cri-containerd-own.scope")
        files.write(directory / CPUS, "2-3")
        (fault,) = await enforcer.audit.check()
        assert fault.message == 'runs on CPUs "2-3" instead of "0-1": something else has set them'
        assert runtime.log == [("own", "0-1")]

    with_own(scenario, FakeCPUState(machine(4), A), observer=CpusetObserver(tmp_path, tmp_path, files))


def test_issue_109_containers_made_while_disconnected() -> None:
    """Containers created unpinned during a disconnect are corrected on reconnect, or are not created."""

    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        assert script.mask & NriEvent.VALIDATE_CONTAINER_ADJUSTMENT.bit
        answer = await script.synchronize(
            container("shared"), container("own", env(A)), container("late", env(B))
        )
        assert answer == {"shared": "3", "own": "0-1", "late": "2"}

    runtime = {"name": "containerd", "release": "v2.3.4", "version": "v0.12.0"}
    with_script(scenario, FakeCPUState(machine(4), A, B), runtime=runtime)


def test_issue_279_shared_containers_are_updated_without_a_lock_up() -> None:
    """Never from a handler if the runtime may deadlock, but with the next event."""

    async def old(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="2-3"))
        state.release("a")
        await enforcer.apply()
        assert script.updates == []
        assert changes(await script.create("t")) == {"s": "0-3"}

    async def new(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize(container("s", cpus="2-3"))
        state.release("a")
        await enforcer.apply()
        assert [changes(request) for request in script.updates] == [{"s": "0-3"}]

    with_script(
        old,
        FakeCPUState(machine(4), A),
        runtime={"name": "containerd", "release": "v2.3.4", "version": "v0.12.0"},
    )
    with_script(
        new,
        FakeCPUState(machine(4), A),
        runtime={"name": "containerd", "release": "v2.4.0", "version": "v0.12.1"},
    )


def test_issue_138523_memory_of_exclusive_cpus_is_near() -> None:
    affinity = hold("n", "2-3")

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("own", env(affinity))
        held = runtime.held["own"].resources
        assert (held.cpus, held.mems) == ("2-3", "1")

    with_own(scenario, FakeCPUState(make_machine(sockets=2, cores=2), affinity), pin={"mems": True})


def test_issues_235_and_239_a_container_that_restarts() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("one", env(A), pod="p")
        first = runtime.held["one"]
        assert await runtime.add("two", env(A), pod="p") == ""  # before the old one is reported as gone
        await runtime.server.stopped(runtime.pods["uid-p"], first.state)
        assert [view.id for view in enforcer.containers()] == ["two"]
        assert await runtime.add("three", env(A), pod="p") == ""

    with_own(scenario, FakeCPUState(machine(4), A))


def test_seen_live_shared_containers_get_their_cpus_back() -> None:
    """Two CPUs: a claimed container on 0, its sidecar and another pod on 1, and back after it is deleted."""

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("other")
        assert runtime.cpus("other") == "0-1"
        own = state.hold(hold("a", "0"))
        await enforcer.apply()
        await runtime.add("claimed", env(own), pod="p")
        await runtime.add("sidecar", pod="p")
        assert [runtime.cpus(id) for id in ("claimed", "sidecar", "other")] == ["0", "1", "1"]
        await runtime.end("claimed")
        await runtime.end("sidecar")
        state.release("a")
        await enforcer.apply()
        assert runtime.cpus("other") == "0-1"

    with_own(scenario, FakeCPUState(machine(2)))


def test_seen_live_a_claim_of_both_cpus_has_them_for_itself() -> None:
    both = hold("a", "0-1")

    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("older")
        state.hold(both)
        await enforcer.apply()
        assert "still used" in await runtime.add("claimed", env(both), pod="p")
        await runtime.end("older")
        assert await runtime.add("claimed", env(both), pod="p") == ""
        assert await runtime.add("sidecar", pod="p") != ""

    with_own(scenario, FakeCPUState(machine(2)))


def test_seen_live_a_runtime_that_stops_for_seconds() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.stop()
        await until(lambda: "nri.sock" in enforcer.link_error)
        tries = enforcer.counters.connections
        await runtime.start()
        await until(lambda: enforcer.linked)
        assert enforcer.counters.connections == tries + 1
        assert await runtime.add("own", env(A)) == ""

    with_own(scenario, FakeCPUState(machine(4), A))


def test_seen_live_pause_containers_leave_exclusive_cpus(tmp_path: Path) -> None:
    """NRI does not report them; where cpusets are written they are visible."""

    async def scenario(enforcer: CgroupEnforcer, files: V1, pods: Pods) -> None:
        place(files, "p", "app")
        pause = files.add("kubepods/poduid-p/0123456789abcdef")
        await enforcer.apply()
        assert (pause / CPUS).read_text() == "2-3"
        assert not enforcer.shared_in_use  # a claim of everything is not refused because of them

    run_enforcer(
        tmp_path, scenario, FakeCPUState(machine(4), A), pod("p", {"app": ["c"]}, claims={"c": "name-a"})
    )


def test_no_overlap_while_the_pool_moves() -> None:
    async def scenario(runtime: OwnRuntime, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await runtime.add("shared")
        for number in range(6):
            own = state.hold(hold(f"u{number}", str(number % 4)))
            assert await runtime.add(f"c{number}", env(own)) == ""
            assert not overlap(runtime, "shared", f"c{number}")
            await runtime.end(f"c{number}")
            state.release(f"u{number}")
            await enforcer.apply()
            assert runtime.cpus("shared") == "0-3"

    with_own(scenario, FakeCPUState(machine(4)))


def test_an_older_generation_of_the_protocol_is_spoken_too() -> None:
    async def scenario(script: Scripted, enforcer: NriEnforcer, state: FakeCPUState) -> None:
        await script.synchronize()
        assert apply_desired(await script.created("own", env(A))) == "0-1"
        await script.news(7, "own", pid=77)
        assert enforcer.containers()[0].pid == 77

    with_script(scenario, FakeCPUState(machine(4), A))
