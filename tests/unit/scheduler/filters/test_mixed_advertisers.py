"""MixedAdvertisers: a device plugin and a DRA driver on the same hardware never give a unit twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.allocator import Refusal
from plimsoll.allocator.reasons.refusal import PluginConflict, RefusalRule
from plimsoll.api.core import Pod
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.devices import DynamicResourcesFilter
from plimsoll.scheduler.events import classify_change
from plimsoll.scheduler.filters.mixed_advertisers import (
    PLUGIN_RESOURCE,
    MixedAdvertisersFilter,
    held_by_plugins,
)
from plimsoll.scheduler.preemption import Preemption, plan_preemption
from plimsoll.scheduler.profile import MixedAdvertisers, SchedulerProfile
from plimsoll.scheduler.queueing_hints import any_event_helps, make_waiting_pod
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import claim, device, device_class, exactly, node, pod, resource_slice, result
from tests.sizes import examples
from tests.unit.scheduler.filters.agreement import check
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

DRIVER = "gpu.nvidia.com"
RESOURCE = "nvidia.com/gpu"
ALLOW = SchedulerProfile(mixed_advertisers=MixedAdvertisers.ALLOW)
GPUS = device_class("gpu", select=f"device.driver == '{DRIVER}'")


def advertise(name: str = "n", *, plugin: bool = True, driver: bool = True, gpus: int = 2) -> list[Any]:
    """Return a node that advertises its GPUs through a device plugin, a DRA driver, or both."""
    devices = [device(f"gpu-{number}") for number in range(gpus)]
    made: list[Any] = [node(name, extended={RESOURCE: str(gpus)} if plugin else {})]
    return [*made, *([resource_slice(devices, name, driver=DRIVER)] if driver else [])]


def by_plugin(name: str, on: str = "", **fields: Any) -> Pod:
    return pod(name, requests={RESOURCE: "1"}, node=on, **fields)


def by_claim(name: str, on: str = "", device: str = "gpu-0", **fields: Any) -> list[Any]:
    """Return a pod and its claim, which is allocated if the pod is on a node."""
    results = [result(device, DRIVER, on)] if on else []
    request = exactly(device_class="gpu")
    used = claim(f"c-{name}", request, results=results, node=on, reserved=[name] if on else [])
    return [used, pod(name, claims=[f"c-{name}"], node=on, **fields)]


def schedule(
    wanted: Pod, snapshot: Snapshot, profile: SchedulerProfile | None = None
) -> Placement | FitError:
    found = schedule_pod(wanted, snapshot, profile or SchedulerProfile.default(), lambda: "id")
    assert not isinstance(found, NodeReason), found
    return found


def test_a_device_plugin_and_a_driver_exclude_each_other() -> None:
    held = snapshot_of(GPUS, *advertise(), by_plugin("a", on="n"))
    *objects, wanted = by_claim("b")
    for each in objects:
        held.set(each)
    refused = schedule(wanted, held)
    assert isinstance(refused, FitError)
    assert isinstance(schedule(wanted, held, ALLOW), Placement)

    claimed = snapshot_of(GPUS, *advertise(), *by_claim("b", on="n"))
    refused = schedule(by_plugin("a"), claimed)
    assert isinstance(refused, FitError)
    assert refused.rules == {Rule.MIXED_ADVERTISERS}
    assert isinstance(schedule(by_plugin("a"), claimed, ALLOW), Placement)


def test_the_refusal_names_the_resource_of_the_device_plugin() -> None:
    snapshot = snapshot_of(GPUS, *advertise(), by_plugin("a", on="n"), *by_claim("b", on="n"))
    *objects, wanted = by_claim("c")
    for each in objects:
        snapshot.set(each)
    (reason,) = DynamicResourcesFilter(pod_info_of(wanted, snapshot), snapshot).filter_node(0)
    assert isinstance(reason.cause, Refusal)
    (request,) = reason.cause.requests
    assert [(each.rule, each.count) for each in request.removals] == [
        (RefusalRule.WITHHELD, 1),
        (RefusalRule.TAKEN, 1),
    ]
    assert request.removals[0].detail == PluginConflict(RESOURCE)


@pytest.mark.parametrize(
    ("objects", "held"),
    [
        ([*advertise(driver=False)], {}),
        ([*advertise(plugin=False)], {}),
        ([*advertise(), GPUS], {("n", DRIVER): RESOURCE}),
        ([node("n", extended={"nvidia.com/mig-1g.10gb": "2"}), advertise()[1]], {}),  # not requested
        ([node("n", extended={"fast.example.com/card": "2"}), advertise()[1], GPUS], {}),
    ],
)
def test_pairs_count_only_where_both_advertise(objects: list[Any], held: dict[tuple[str, str], str]) -> None:
    snapshot = snapshot_of(*objects, by_plugin("a", on="n"))
    assert held_by_plugins(snapshot, 0) == held


def test_classes_name_the_resource_of_the_device_plugin() -> None:
    select = "device.driver == 'card.acme.com'"
    annotated = device_class("card", select=select)
    annotated.metadata.annotations[PLUGIN_RESOURCE] = "acme.com/card"
    for cards in (device_class("card", select=select, extendedResourceName="acme.com/card"), annotated):
        snapshot = snapshot_of(
            node("n", extended={"acme.com/card": "1"}),
            resource_slice([device("card-0")], "n", driver="card.acme.com"),
            resource_slice([device("disk-0")], "n", driver="disk.acme.com"),
            pod("a", requests={"acme.com/card": "1"}, node="n"),
        )
        assert held_by_plugins(snapshot, 0) == {}
        snapshot.set(cards)
        assert held_by_plugins(snapshot, 0) == {("n", "card.acme.com"): "acme.com/card"}
        snapshot.remove(cards)
        assert held_by_plugins(snapshot, 0) == {}


def test_devices_of_several_nodes_are_not_of_a_device_plugin() -> None:
    shared = resource_slice([device("gpu-0")], driver=DRIVER, pool="rack", allNodes=True)
    snapshot = snapshot_of(GPUS, node("n", extended={RESOURCE: "1"}), shared, by_plugin("a", on="n"))
    *objects, wanted = by_claim("b")
    for each in objects:
        snapshot.set(each)
    assert isinstance(schedule(wanted, snapshot), Placement)


def test_preemption_frees_what_the_other_way_holds() -> None:
    snapshot = snapshot_of(GPUS, *advertise(), by_plugin("low", on="n"))
    *objects, wanted = by_claim("high", priority=10)
    for each in objects:
        snapshot.set(each)
    refused = schedule(wanted, snapshot)
    assert isinstance(refused, FitError)
    plan = plan_preemption(refused, snapshot, SchedulerProfile.default())
    assert isinstance(plan, Preemption)
    assert [victim.metadata.name for victim in plan.victims] == ["low"]

    snapshot = snapshot_of(GPUS, *advertise(), *by_claim("low", on="n"))
    refused = schedule(by_plugin("high", priority=10), snapshot)
    assert isinstance(refused, FitError)
    plan = plan_preemption(refused, snapshot, SchedulerProfile.default())
    assert isinstance(plan, Preemption)
    assert [victim.metadata.name for victim in plan.victims] == ["low"]


def test_the_release_of_a_unit_wakes_pods_that_need_the_other_way() -> None:
    gone = classify_change(by_plugin("a", on="n"), None)
    assert gone is not None
    *_, wanted = by_claim("b")
    assert any_event_helps([gone], make_waiting_pod(wanted, frozenset({Rule.DEVICES}), needs_capacity=False))

    freed = classify_change(by_claim("b", on="n")[0], by_claim("b")[0])
    assert freed is not None
    assert any_event_helps([freed], make_waiting_pod(by_plugin("a"), frozenset({Rule.MIXED_ADVERTISERS})))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.data())
@settings(max_examples=examples(100), deadline=None)
def test_no_node_ever_gives_units_both_ways(steps: list[tuple[bool, bool]], data: st.DataObject) -> None:
    """Random pods are scheduled on nodes that advertise in one way or both, and removed: no node that
    advertises both ever has pods of both kinds, and a pod is refused only where it must be.
    """
    kinds = [data.draw(st.tuples(st.booleans(), st.booleans()), label="node") for _ in range(2)]
    snapshot = snapshot_of(GPUS)
    for number, (plugin, driver) in enumerate(kinds):
        for each in advertise(f"n{number}", plugin=plugin, driver=driver):
            snapshot.set(each)
    on: dict[str, tuple[int, bool]] = {}
    for count, (is_claim, removes) in enumerate(steps):
        if removes and on:
            name = data.draw(st.sampled_from(sorted(on)), label="removed")
            del on[name]
            snapshot.remove(pod(name))
            if (used := snapshot.claim("default", f"c-{name}")) is not None:
                snapshot.remove(used)
            continue
        name = f"p{count}"
        *objects, wanted = by_claim(name) if is_claim else [by_plugin(name)]
        for each in objects:
            snapshot.set(each)
        check(MixedAdvertisersFilter, wanted, snapshot)
        found = schedule(wanted, snapshot)
        possible = {
            number
            for number, (plugin, driver) in enumerate(kinds)
            if (driver if is_claim else plugin)
            and sum(each == (number, is_claim) for each in on.values()) < 2
            and not (plugin and driver and (number, not is_claim) in on.values())
        }
        if isinstance(found, FitError):
            assert not possible
            continue
        number = int(found.node.removeprefix("n"))
        assert number in possible
        on[name] = number, is_claim
        gpu = next(iter(found.allocations.values())).devices.results[0].device if is_claim else ""
        for each in by_claim(name, found.node, gpu) if is_claim else [by_plugin(name, found.node)]:
            snapshot.set(each)
