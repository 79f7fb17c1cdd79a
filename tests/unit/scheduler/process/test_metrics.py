"""Metrics: names, values, and the cost of observing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from plimsoll.api.core import Pod
from plimsoll.scheduler.binding.result import BindFailure, BindPoint, BindStep
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.process.context import new_id
from plimsoll.scheduler.process.metrics import UNSCHEDULABLE, Metrics
from plimsoll.scheduler.process.plugin_timer import PluginTimer, record_binding
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import Rule
from plimsoll.scheduler.result import DynamicProvision, Placement, PodVolumes
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import (
    CLASS,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)
from tests.unit.scheduler.filters.volume_objects import claim as volume_claim
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

LENGTHS = {"active": 1, "backoff": 2, "unschedulable": 3, "gated": 4}


def scrape(metrics: Metrics) -> dict[str, float]:
    """Return the page as Prometheus reads it: `name{label=value,...}` -> value."""

    async def read() -> str:
        return b"".join([piece async for piece in metrics.expose()]).decode()

    found = {}
    for family in text_string_to_metric_families(asyncio.run(read())):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_attempts_have_upstream_names() -> None:
    metrics = Metrics(Snapshot(), lambda: LENGTHS)
    metrics.decided(0.0005)
    metrics.scheduled("plimsoll", 0.003, 0.5, 1)
    metrics.scheduled("plimsoll", 0.003, 90.0, 40)
    metrics.failed(UNSCHEDULABLE, "plimsoll", 0.001)
    metrics.refused("a", frozenset({Rule.RESOURCES, Rule.DEVICES}), "plimsoll")
    metrics.refused("b", frozenset({Rule.RESOURCES}), "plimsoll")
    metrics.refused("c", frozenset({Rule.RESOURCES}), "plimsoll")
    metrics.cleared("c")
    metrics.cleared("unknown")
    metrics.preemptions.add()
    metrics.victims.at().observe(3)
    metrics.incoming.add("active", "PodAdd")
    metrics.watch("plimsoll_answer", "An answer.", lambda: 42)
    page = scrape(metrics)
    expected = {
        "scheduler_schedule_attempts_total{profile=plimsoll,result=scheduled}": 2,
        "scheduler_schedule_attempts_total{profile=plimsoll,result=unschedulable}": 1,
        "scheduler_scheduling_attempt_duration_seconds_count{profile=plimsoll,result=scheduled}": 2,
        "scheduler_scheduling_attempt_duration_seconds_bucket{le=0.002,profile=plimsoll,result=scheduled}": 0,
        "scheduler_scheduling_attempt_duration_seconds_bucket{le=0.004,profile=plimsoll,result=scheduled}": 2,
        "scheduler_scheduling_algorithm_duration_seconds_count": 1,
        "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=1}": 0.5,
        "scheduler_pod_scheduling_sli_duration_seconds_sum{attempts=15+}": 90,
        "scheduler_pod_scheduling_attempts_sum": 41,
        "scheduler_pending_pods{queue=unschedulable}": 3,
        "scheduler_unschedulable_pods{plugin=NodeResourcesFit,profile=plimsoll}": 2,
        "scheduler_unschedulable_pods{plugin=DynamicResources,profile=plimsoll}": 1,
        "scheduler_preemption_victims_sum": 3,
        "scheduler_preemption_attempts_total": 1,
        "scheduler_queue_incoming_pods_total{event=PodAdd,queue=active}": 1,
        "scheduler_cache_size{type=nodes}": 0,
        "plimsoll_answer": 42,
    }
    assert {name: page.get(name) for name in expected} == expected
    assert page["process_resident_memory_bytes"] > 0


def test_the_ledger_is_shown_node_by_node() -> None:
    devices = [charging_device("d0"), charging_device("d1")]
    slices = [resource_slice(devices, "n1")]
    snapshot = snapshot_of(
        node("n1", cpu="4", memory="1Gi"), node("n2", cpu="1500m"), pod("p", cpu="2500m", node="n1"), *slices
    )
    page = scrape(Metrics(snapshot, lambda: LENGTHS))
    expected = {
        "plimsoll_ledger_allocatable{node=n1,resource=cpu}": 4,
        "plimsoll_ledger_allocatable{node=n1,resource=memory}": 2**30,
        "plimsoll_ledger_allocatable{node=n2,resource=cpu}": 1.5,
        "plimsoll_ledger_requested{node=n1,resource=cpu}": 2.5,
        "plimsoll_ledger_requested{node=n1,resource=pods}": 1,
        "plimsoll_ledger_headroom{node=n1,resource=cpu}": 1.5,
        "plimsoll_ledger_headroom{node=n1,resource=pods}": 109,
        "plimsoll_devices{driver=" + slices[0].spec.driver + ",state=published}": 2,
        "plimsoll_devices{driver=" + slices[0].spec.driver + ",state=held}": 0,
        "scheduler_cache_size{type=nodes}": 2,
    }
    assert {name: page.get(name) for name in expected} == expected


def test_a_node_deleted_during_a_scrape_is_skipped() -> None:
    snapshot = snapshot_of(*(node(f"n{number}") for number in range(250)))

    async def read() -> int:
        pieces = 0
        async for _ in Metrics(snapshot, lambda: LENGTHS).expose():
            pieces += 1
            snapshot.remove(node(f"n{250 - pieces}"))
        return pieces

    assert asyncio.run(read()) > 9


def test_past_the_line_is_shown_as_such() -> None:
    snapshot = snapshot_of(node("n1", cpu="1"), pod("p", cpu="1250m", node="n1"))
    assert (
        scrape(Metrics(snapshot, lambda: LENGTHS))["plimsoll_ledger_headroom{node=n1,resource=cpu}"] == -0.25
    )


PLUGIN = "scheduler_plugin_execution_duration_seconds_{}{{extension_point={},plugin={},status={}}}"
POINT = (
    "scheduler_framework_extension_point_duration_seconds_count{{extension_point={},profile={},status={}}}"
)


def test_plugin_durations_are_sampled() -> None:
    timer = PluginTimer(Metrics(snapshot_of(), lambda: LENGTHS), interval=3)
    started = [timer.start() is timer for _ in range(7)]
    assert started == [True, False, False, True, False, False, True]


class StepClock:
    """Clock that advances by one second per reading."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def measure(*pods: Pod, objects: Sequence[Any]) -> dict[str, float]:
    """Return the metrics after one attempt per pod, where every step takes a second."""
    snapshot = snapshot_of(*objects)
    metrics = Metrics(snapshot, lambda: LENGTHS)
    timer = PluginTimer(metrics, interval=1, clock=StepClock())
    for each in pods:
        timer.start()
        pod_info = pod_info_of(each, snapshot)
        outcome = schedule_one(pod_info, snapshot, SchedulerProfile.default(), new_id, observer=timer)
        timer.finish("plimsoll", outcome)
    return scrape(metrics)


def test_device_searches_are_part_of_the_filter_duration() -> None:
    nodes = [node(f"n{number}") for number in range(3)]
    slices = [
        resource_slice([device("d")], node=each.metadata.name, pool=each.metadata.name) for each in nodes
    ]
    page = measure(
        pod("p", cpu="1", claims=["c"]),
        objects=[*nodes, *slices, device_class(), claim("c", exactly("r", device_class=CLASS))],
    )
    assert page[PLUGIN.format("count", "Filter", "DynamicResources", "Success")] == 1
    assert page[PLUGIN.format("sum", "Filter", "DynamicResources", "Success")] == 2, "candidates, one search"
    assert page[POINT.format("Filter", "plimsoll", "Success")] == 1


def test_failed_attempts_have_the_status_of_the_plugin_that_rejected() -> None:
    page = measure(
        pod("small", cpu="1", claims=["c"]),
        pod("large", cpu="100"),
        objects=[node("n1"), device_class(), claim("c", exactly("r", device_class=CLASS))],
    )
    unresolvable = "UnschedulableAndUnresolvable"
    assert page[PLUGIN.format("count", "Filter", "NodeResourcesFit", "Success")] == 1
    assert page[PLUGIN.format("count", "Filter", "NodeResourcesFit", unresolvable)] == 1
    rejected = [
        key for key in page if "_count{extension_point=Filter,plugin=DynamicResources,status=U" in key
    ]
    assert len(rejected) == 1
    assert page[PLUGIN.format("count", "PreFilter", "NodePorts", "Skip")] == 2
    assert POINT.format("Filter", "plimsoll", "Success") not in page
    assert page[POINT.format("PreFilter", "plimsoll", "Success")] == 2


def test_bindings_are_measured_by_extension_point() -> None:
    snapshot = snapshot_of(node("n1"), claim("c", exactly("r")))
    metrics = Metrics(snapshot, lambda: LENGTHS)
    plain = Placement(pod_info_of(pod("p"), snapshot), 0, "n1", {}, ())
    claiming = Placement(pod_info_of(pod("q", claims=["c"]), snapshot), 0, "n1", {}, ())
    failed = BindFailure(BindStep.BINDING, "refused")
    for placement in (plain, claiming):
        record_binding(metrics, placement, BindPoint.PRE_BIND, 0.5, None)
        record_binding(metrics, placement, BindPoint.BIND, 0.1, failed)
        record_binding(metrics, placement, BindPoint.UNRESERVE, 0.2, None)
    page = scrape(metrics)
    assert page[PLUGIN.format("count", "PreBind", "DynamicResources", "Success")] == 1
    assert page[PLUGIN.format("sum", "PreBind", "DynamicResources", "Success")] == 0.5
    assert page[PLUGIN.format("count", "Bind", "DefaultBinder", "Error")] == 2
    assert page[PLUGIN.format("count", "Unreserve", "DynamicResources", "Success")] == 1


def test_the_plugin_that_failed_before_the_binding_is_measured_as_such() -> None:
    snapshot = snapshot_of(node("n1"), claim("c", exactly("r")))
    metrics = Metrics(snapshot, lambda: LENGTHS)
    volumes = PodVolumes((), (DynamicProvision(volume_claim("data")),))
    both = Placement(pod_info_of(pod("q", claims=["c"]), snapshot), 0, "n1", {}, (), volumes=volumes)
    record_binding(metrics, both, BindPoint.PRE_BIND, 0.5, BindFailure(BindStep.VOLUMES, "late"))
    record_binding(metrics, both, BindPoint.PRE_BIND, 0.5, None)
    record_binding(metrics, both, BindPoint.PRE_BIND, 0.5, BindFailure(BindStep.CONDITIONS, "late"))
    page = scrape(metrics)
    assert page[PLUGIN.format("count", "PreBind", "VolumeBinding", "Error")] == 1
    assert page[PLUGIN.format("count", "PreBind", "VolumeBinding", "Success")] == 2
    assert page[PLUGIN.format("count", "PreBind", "DynamicResources", "Success")] == 2
    assert page[PLUGIN.format("count", "PreBind", "DynamicResources", "Error")] == 1
