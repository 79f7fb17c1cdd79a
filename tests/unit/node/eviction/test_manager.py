"""Eviction manager: thresholds over time, selection of the pod, and messages."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.node.cgroup_plans.oom import is_critical_pod
from plimsoll.node.eviction.manager import (
    EvictionManager,
    EvictionSettings,
    NodeStats,
    PodEviction,
    PodStats,
    SignalObservation,
    ThresholdState,
    admit_under_pressure,
    evaluate_thresholds,
    select_pod,
)
from plimsoll.node.eviction.ranking import eviction_request
from plimsoll.node.eviction.thresholds import MEMORY_PRESSURE, Threshold
from plimsoll.node.eviction.usage import measure_processes
from tests import build
from tests.build import container
from tests.waiting import until

MI = 1 << 20
GI = 1 << 30
HARD = Threshold("memory.available", "100Mi")
SOFT = Threshold("memory.available", "1Gi", grace=60)


def pod(uid: str, memory: str = "", **fields: Any) -> Pod:
    requests = {"memory": memory} if memory else {}
    fields.setdefault("containers", [container("c", **requests)])
    metadata = {"generation": 7, "annotations": fields.pop("annotations", {})}
    return build.pod(uid, namespace="n", uid=uid, metadata=metadata, **fields)


def free(memory: int, pods: dict[str, int] | None = None, capacity: int = 8 * GI) -> NodeStats:
    used = {uid: PodStats({"memory": amount}, {"c": amount}) for uid, amount in (pods or {}).items()}
    return NodeStats({"memory.available": SignalObservation(memory, capacity)}, used)


def follow(settings: EvictionSettings, *looks: tuple[float, int]) -> list[tuple[bool, bool]]:
    """Return whether memory pressure is shown, and whether a threshold is starved, at (time, bytes free)."""
    state, found = ThresholdState(), []
    for now, memory in looks:
        observed = evaluate_thresholds(state, free(memory), settings, now)
        state = observed.state
        found.append((MEMORY_PRESSURE in observed.conditions, bool(observed.starved)))
    return found


# -- over time


def test_a_hard_threshold_counts_at_once_and_the_condition_stays() -> None:
    settings = EvictionSettings(thresholds=(HARD,), transition=300)
    found = follow(settings, (0, GI), (10, 99 * MI), (20, 100 * MI), (309, GI), (310, GI), (311, GI))
    assert found == [
        (False, False),
        (True, True),
        (True, False),
        (True, False),
        (False, False),
        (False, False),
    ]


def test_a_soft_threshold_applies_after_its_grace_period() -> None:
    settings = EvictionSettings(thresholds=(SOFT,), transition=300)
    found = follow(settings, (0, 999 * MI), (59, 999 * MI), (60, 999 * MI), (70, 2 * GI), (80, 999 * MI))
    assert found == [(True, False), (True, False), (True, True), (True, False), (True, False)]


def test_a_threshold_stays_met_until_the_minimum_reclaim() -> None:
    threshold = Threshold("memory.available", "100Mi", min_reclaim="400Mi")
    settings = EvictionSettings(thresholds=(threshold,), transition=10)
    found = follow(
        settings, (0, 200 * MI), (1, 50 * MI), (2, 200 * MI), (3, 499 * MI), (4, 500 * MI), (5, 200 * MI)
    )
    assert [starving for _, starving in found] == [False, True, True, True, False, False]


def test_without_a_transition_period_the_condition_follows_at_once() -> None:
    settings = EvictionSettings(thresholds=(HARD,), transition=0)
    assert follow(settings, (0, 1), (1, GI)) == [(True, True), (False, False)]


def test_signals_that_are_not_measured_are_not_met() -> None:
    settings = EvictionSettings(thresholds=(Threshold("nodefs.available", "10%"), HARD))
    observed = evaluate_thresholds(ThresholdState(), free(GI), settings, 0)
    assert (observed.conditions, observed.starved) == ((), ())


@given(st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=30), st.integers(1, 300))
def test_a_condition_is_shown_for_the_whole_transition_period(
    steps: list[tuple[int, bool]], period: int
) -> None:
    """Compare with the naive rule: shown if there was pressure within the transition period."""
    settings = EvictionSettings(thresholds=(HARD,), transition=period)
    state, now, pressed = ThresholdState(), 0, []
    for pause, short in steps:
        now += pause
        observed = evaluate_thresholds(state, free(1 if short else GI), settings, now)
        state = observed.state
        if short:
            pressed.append(now)
        assert bool(observed.conditions) == any(now - at < period for at in pressed)
        assert bool(observed.starved) == short


# -- selection of pods


def first(pods: Sequence[Pod], used: dict[str, int], **more: Any) -> tuple[Pod, PodEviction] | None:
    settings = EvictionSettings(thresholds=(HARD,), **more)
    return select_pod((HARD,), free(50 * MI, used), pods, settings)


def test_the_message_is_upstreams() -> None:
    chosen = first([pod("a", "1Gi")], {"a": 3 * GI})
    assert chosen is not None
    _, eviction = chosen
    assert eviction.message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container c was using 3Gi, request is 1Gi, has larger consumption of memory. "
    )
    assert (eviction.phase, eviction.reason, eviction.grace) == ("Failed", "Evicted", 1)
    condition = eviction.condition
    assert condition is not None
    assert (condition.type, condition.status, condition.reason, condition.observed_generation) == (
        "DisruptionTarget",
        "True",
        "TerminationByKubelet",
        7,
    )
    assert condition.message == eviction.message
    assert eviction.annotations == {
        "offending_containers": "c",
        "offending_containers_usage": "3Gi",
        "starved_resource": "memory",
    }


def test_the_message_covers_pod_level_resources() -> None:
    whole = pod("a", resources={"requests": {"memory": "1Gi"}})
    chosen = first([whole], {"a": 2 * GI})
    assert chosen is not None
    assert "Pod a was using 2Gi, request is 1Gi, has larger consumption of memory. " in chosen[1].message
    assert chosen[1].annotations["offending_pod"] == "a"


def test_an_unmeasured_pod_is_evicted_first_with_a_short_message() -> None:
    chosen = first([pod("a", "1Gi"), pod("b", "1Gi")], {"a": 3 * GI})
    assert chosen is not None
    assert chosen[0].metadata.name == "b"
    assert chosen[1].message == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )


def test_claim_charges_count_as_requested_memory() -> None:
    entry = {"resourceClaimName": "x", "containers": ["c"], "resources": {"memory": "4Gi"}}
    claimed = pod("claimed", "1Gi", status={"nodeAllocatableResourceClaimStatuses": [entry]})
    greedy = pod("greedy", "1Gi")
    used = {"claimed": 5 * GI, "greedy": 2 * GI}
    chosen = first([claimed, greedy], used)
    assert chosen is not None
    assert chosen[0].metadata.name == "greedy"
    chosen = first([claimed, greedy], used, count_claims=False)
    assert chosen is not None
    assert chosen[0].metadata.name == "claimed"


@pytest.mark.parametrize(
    "spared",
    [
        pod("a", priority=2_000_000_000),
        pod("a", annotations={"kubernetes.io/config.source": "file"}),
        pod("a", annotations={"kubernetes.io/config.mirror": "x"}),
    ],
)
def test_critical_pods_are_not_evicted(spared: Pod) -> None:
    assert first([spared], {"a": 9 * GI}) is None
    chosen = first([spared, pod("b", "1Gi")], {"a": 9 * GI, "b": 1})
    assert chosen is not None
    assert chosen[0].metadata.name == "b"


def test_soft_evictions_have_a_grace_period() -> None:
    settings = EvictionSettings(thresholds=(SOFT,), max_grace=30)
    for own, grace in ((None, 30), (10, 10), (90, 30)):
        spec: dict[str, Any] = {} if own is None else {"terminationGracePeriodSeconds": own}
        chosen = select_pod((SOFT,), free(MI), [pod("a", **spec)], settings)
        assert chosen is not None
        assert chosen[1].grace == grace


def test_process_ids_are_ranked_by_priority_then_number() -> None:
    measure_node = NodeStats(
        {"pid.available": SignalObservation(1, 100)},
        {uid: PodStats({"pids": number}) for uid, number in (("a", 50), ("b", 2), ("d", 3))},
    )
    threshold = Threshold("pid.available", "10")
    pods = [pod("a", priority=5), pod("b"), pod("d")]
    chosen = select_pod((threshold,), measure_node, pods, EvictionSettings())
    assert chosen is not None
    assert chosen[0].metadata.name == "d"
    assert chosen[1].message == "The node was low on resource: pids. Threshold quantity: 10, available: 1. "


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.none() | st.integers(0, 5),
            st.sampled_from([None, -10, 0, 1000, 2_000_000_000]),
        ),
        max_size=8,
    )
)
def test_critical_pods_are_not_evicted_and_others_by_usage_above_request(
    drawn: list[tuple[int, int | None, int | None]],
) -> None:
    pods = [
        pod(str(i), f"{request}Gi", **({} if priority is None else {"priority": priority}))
        for i, (request, _, priority) in enumerate(drawn)
    ]
    used = {str(i): amount * GI for i, (_, amount, _) in enumerate(drawn) if amount is not None}
    chosen = first(pods, used)
    mortal = [one for one in pods if not is_critical_pod(one)]
    assert (chosen is None) == (not mortal)
    if chosen is None:
        return
    gone = chosen[0]
    assert not is_critical_pod(gone)

    def above(one: Pod) -> bool:
        """Return whether the usage is unknown or above the request."""
        name = one.metadata.uid
        return name not in used or used[name] > eviction_request(one, "memory").value()

    if not above(gone):
        assert not any(above(one) for one in mortal)
    same = [one for one in mortal if above(one) == above(gone) and (one.metadata.uid in used)]
    if gone.metadata.uid in used:
        assert all((one.spec.priority or 0) >= (gone.spec.priority or 0) for one in same)


# -- admission


def test_admission_under_pressure() -> None:
    best_effort, burstable = pod("a"), pod("b", "1Gi")
    tolerating = pod("t", tolerations=[{"key": "node.kubernetes.io/memory-pressure", "operator": "Exists"}])
    assert admit_under_pressure((), best_effort).admit
    refused = admit_under_pressure(("MemoryPressure",), best_effort)
    assert (refused.admit, refused.reason) == (False, "Evicted")
    assert refused.message == "The node had condition: [MemoryPressure]. "
    assert admit_under_pressure(("MemoryPressure",), burstable).admit
    assert admit_under_pressure(("MemoryPressure",), tolerating).admit
    entry = {"resourceClaimName": "x", "containers": ["c"], "resources": {"memory": "1Gi"}}
    claiming = pod("q", status={"nodeAllocatableResourceClaimStatuses": [entry]})
    assert not admit_under_pressure(("MemoryPressure",), claiming).admit
    assert admit_under_pressure(("MemoryPressure",), claiming, claims_in_qos=True).admit
    assert not admit_under_pressure(("MemoryPressure", "DiskPressure"), burstable).admit
    assert not admit_under_pressure(("PIDPressure",), tolerating).admit
    assert admit_under_pressure(("PIDPressure",), pod("x", priority=2_000_000_000)).admit


# -- the loop


class Machine:
    """Pods that use memory, which eviction frees."""

    def __init__(self, used: dict[str, int], capacity: int) -> None:
        self.used = dict(used)
        self.capacity = capacity
        self.pods = [pod(uid) for uid in used]
        self.evicted: list[tuple[str, PodEviction]] = []
        self.conditions: dict[str, bool] = {}
        self.reported: list[str] = []
        self.now = 0.0
        self.broken = False

    def read(self) -> NodeStats:
        if self.broken:
            raise OSError("no /proc")
        return free(self.capacity - sum(self.used.values()), self.used, self.capacity)

    async def evict(self, pod: Pod, eviction: PodEviction) -> None:
        self.evicted.append((pod.metadata.name, eviction))
        self.pods.remove(pod)
        del self.used[pod.metadata.uid]

    def watch(self, **settings: Any) -> EvictionManager:
        full = EvictionSettings(thresholds=(HARD,), interval=0.001, **settings)
        return EvictionManager(
            self.read,
            lambda: list(self.pods),
            self.evict,
            self.conditions.__setitem__,
            settings=full,
            clock=lambda: self.now,
            reclaiming=self.reported.append,
        )


async def test_one_pod_is_evicted_at_a_time() -> None:
    machine = Machine({"a": GI, "b": 4 * GI, "d": 2 * GI}, 7 * GI)
    watch = machine.watch()
    task = asyncio.create_task(watch.run())
    await until(lambda: machine.evicted and machine.conditions.get(MEMORY_PRESSURE) is not None)
    await asyncio.sleep(0.01)  # a second eviction would show by now
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [name for name, _ in machine.evicted] == ["b"]
    assert watch.evictions == {"memory.available": 1}
    assert machine.reported == ["Attempting to reclaim memory"]
    assert watch.conditions == (MEMORY_PRESSURE,)
    assert machine.conditions == {"MemoryPressure": True, "DiskPressure": False, "PIDPressure": False}
    machine.now = 1000
    assert await watch.step() is None
    assert machine.conditions[MEMORY_PRESSURE] is False


async def test_a_pod_that_lingers_is_waited_for() -> None:
    machine = Machine({"a": GI, "b": 2 * GI}, 3 * GI)
    ghost = pod("b")

    async def slow(one: Pod, eviction: PodEviction) -> None:
        await machine.evict(one, eviction)
        machine.pods.append(ghost)

    watch = machine.watch(termination_timeout=30.0)
    watch.evict = slow
    task = asyncio.create_task(watch.run())
    await until(lambda: machine.evicted)
    await asyncio.sleep(0.01)
    machine.pods.remove(ghost)
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [name for name, _ in machine.evicted] == ["b"]


async def test_without_measurements_no_pod_is_evicted() -> None:
    machine = Machine({"a": 9 * GI}, 8 * GI)
    machine.broken = True
    assert await machine.watch().step() is None
    assert machine.evicted == []


def test_an_eviction_that_fails_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        machine = Machine({"a": GI}, GI)
        failures = 0

        async def evict(one: Pod, eviction: PodEviction) -> None:
            nonlocal failures
            failures += 1
            if failures < 3:
                raise ValueError("not now")
            await machine.evict(one, eviction)

        watch = machine.watch()
        watch.evict = evict
        task = asyncio.create_task(watch.run())
        await until(lambda: machine.evicted)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert failures == 3

    asyncio.run(main())
    assert "retrying" in caplog.text


async def test_pressure_without_evictable_pods_is_reported() -> None:
    machine = Machine({"a": 9 * GI}, 8 * GI)
    machine.pods = [pod("a", priority=2_000_000_000)]
    assert await machine.watch().step() is None


async def test_eviction_of_real_processes() -> None:
    """Of two processes without cgroups, the one that has more resident goes."""
    script = "import sys, time; b = b'x' * (int(sys.argv[1]) << 20); print(1, flush=True); time.sleep(60)"
    children = {
        name: subprocess.Popen(["python3", "-c", script, str(size)], stdout=subprocess.PIPE, text=True)
        for name, size in (("big", 60), ("small", 1))
    }
    try:
        for child in children.values():
            assert child.stdout is not None
            assert child.stdout.readline() == "1\n"
        pods = [pod("small"), pod("big")]

        def read() -> NodeStats:
            alive = {pod.metadata.uid: children[pod.metadata.uid] for pod in pods}
            measures = {uid: measure_processes({"c": [child.pid]}) for uid, child in alive.items()}
            used = sum(measure.used["memory"] for measure in measures.values())
            return NodeStats({"memory.available": SignalObservation(80 * MI - used, 80 * MI)}, measures)

        async def evict(one: Pod, eviction: PodEviction) -> None:
            assert "Container c was using" in eviction.message
            child = children[one.metadata.uid]
            child.kill()
            await asyncio.to_thread(child.wait)
            pods.remove(one)

        conditions: dict[str, bool] = {}
        settings = EvictionSettings(thresholds=(Threshold("memory.available", "25Mi"),), interval=0.01)
        watch = EvictionManager(
            read, lambda: list(pods), evict, conditions.__setitem__, settings=settings, clock=lambda: 0.0
        )
        gone = await watch.step()
        assert gone is not None
        assert gone.metadata.name == "big"
        assert await watch.step() is None
        assert [one.metadata.name for one in pods] == ["small"]
        assert conditions[MEMORY_PRESSURE]
    finally:
        for child in children.values():
            child.kill()
            child.communicate()
