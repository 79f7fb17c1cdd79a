"""Joint allocation of devices and node headroom, and its cache."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit, SearchCache, try_node
from plimsoll.scheduler.devices import filter as devices_filter
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import DeviceOrder, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    pool_device,
    resource_slice,
)
from tests.sizes import examples
from tests.unit.scheduler.snapshots import snapshot_of


def ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"share-{next(numbers)}"


def task_for(pod: Pod, snapshot: Snapshot) -> PodInfo:
    pod_info = read_pod_info(pod, snapshot)
    assert isinstance(pod_info, PodInfo), pod_info
    return pod_info


def row(snapshot: Snapshot, name: str) -> int:
    found = snapshot.row_of(name)
    assert found is not None
    return found


def reason_texts(found: NodeFit | tuple[NodeReason, ...]) -> list[str]:
    assert not isinstance(found, NodeFit)
    return [render(reason) for reason in found]


def picked(found: NodeFit | tuple[NodeReason, ...]) -> list[str]:
    assert isinstance(found, NodeFit), found
    return [r.device for a in found.allocations.values() for r in a.devices.results]


def test_a_device_and_what_it_charges() -> None:
    offered = [charging_device("d", cpu="6")]
    snapshot = snapshot_of(
        node("n", cpu="8"), resource_slice(offered, "n"), device_class(), claim("c", exactly())
    )
    found = try_node(task_for(pod("p", cpu="2", claims=["c"]), snapshot), 0, snapshot, ids())
    assert picked(found) == ["d"]
    assert isinstance(found, NodeFit)
    assert {name: str(c.quantity) for name, c in found.charged_claims[0].charge.resources.items()} == {
        "cpu": "6"
    }


def test_devices_first_refuses_what_joint_allocation_finds() -> None:
    """kube-scheduler checks the ledger for its first choice only; joint allocation finds the device that
    fits.
    """
    offered = [charging_device("a-dear", cpu="8"), charging_device("b-cheap", cpu="2")]
    snapshot = snapshot_of(
        node("n", cpu="4"), resource_slice(offered, "n"), device_class(), claim("c", exactly())
    )
    pod_info = task_for(pod("p", cpu="1", claims=["c"]), snapshot)
    assert picked(try_node(pod_info, 0, snapshot, ids())) == ["b-cheap"]
    first = SchedulerProfile(device_order=DeviceOrder.FIRST)
    assert reason_texts(try_node(pod_info, 0, snapshot, ids(), first)) == ["Insufficient cpu"]
    assert SchedulerProfile.read({"deviceOrder": "devices-first"}).device_order is DeviceOrder.FIRST
    # What was found out in one way is not believed in the other.
    assert isinstance(DynamicResourcesFilter(pod_info, snapshot, ids(), first).search(0), tuple)
    assert isinstance(DynamicResourcesFilter(pod_info, snapshot, ids()).search(0), NodeFit)


def test_devices_first_takes_a_shortage_of_devices_for_final() -> None:
    snapshot = snapshot_of(node("n"), resource_slice([], "n"), device_class(), claim("c", exactly()))
    pod_info = task_for(pod("p", claims=["c"]), snapshot)
    for order, resolvable in ((DeviceOrder.JOINT, True), (DeviceOrder.FIRST, False)):
        answer = try_node(pod_info, 0, snapshot, ids(), SchedulerProfile(device_order=order))
        assert not isinstance(answer, NodeFit)
        assert [reason.resolvable for reason in answer] == [resolvable]


def test_devices_that_exceed_the_node_are_not_allocated() -> None:
    """KEP-5517, story 4: a GPU or 8 CPUs, whichever fits."""
    offered = [charging_device("cpus", cpu="8", fields={"attributes": {"kind": {"string": "cpu"}}}),
               device("gpu", kind="gpu")]  # fmt: skip
    either = first_available(
        "r",
        exactly("cpus", select=f'device.attributes["{DRIVER}"].kind == "cpu"'),
        exactly("gpu", select=f'device.attributes["{DRIVER}"].kind == "gpu"'),
    )
    objects = (resource_slice(offered, "n"), device_class(), claim("c", either))
    roomy, tight = snapshot_of(node("n", cpu="16"), *objects), snapshot_of(node("n", cpu="4"), *objects)
    wanted = pod("p", cpu="1", claims=["c"])
    first = try_node(task_for(wanted, roomy), 0, roomy, ids())
    second = try_node(task_for(wanted, tight), 0, tight, ids())
    assert (picked(first), picked(second)) == (["cpus"], ["gpu"])
    assert isinstance(first, NodeFit)
    assert isinstance(second, NodeFit)
    assert first.rank == 100
    assert second.rank == 50


def test_an_allocated_claim_restricts_the_node() -> None:
    results = [{"request": "r", "driver": DRIVER, "pool": "a", "device": "d"}]
    snapshot = snapshot_of(
        node("a"), node("b"), resource_slice([device("d")], "a"), resource_slice([device("d")], "b"),
        claim("c", exactly(), results=results, node="a"),
    )  # fmt: skip
    pod_info = task_for(pod("p", claims=["c"]), snapshot)
    assert isinstance(try_node(pod_info, row(snapshot, "a"), snapshot, ids()), NodeFit)
    elsewhere = try_node(pod_info, row(snapshot, "b"), snapshot, ids())
    assert reason_texts(elsewhere) == ["resourceclaim not available on the node"]
    rule = DynamicResourcesFilter(pod_info, snapshot, ids())
    assert np.flatnonzero(rule.candidates() & snapshot.alive).tolist() == [row(snapshot, "a")]


def test_a_preallocated_claim_is_charged_with_its_pod() -> None:
    results = [{"request": "r", "driver": DRIVER, "pool": "n", "device": "d"}]
    snapshot = snapshot_of(
        node("n", cpu="8"), resource_slice([charging_device("d", cpu="6")], "n"),
        claim("c", exactly(), results=results, node="n"),
    )  # fmt: skip
    fits = try_node(task_for(pod("p", cpu="2", claims=["c"]), snapshot), 0, snapshot, ids())
    assert isinstance(fits, NodeFit)
    assert [charged_claim.claim for charged_claim in fits.charged_claims] == ["c"]
    assert reason_texts(
        try_node(task_for(pod("q", cpu="3", claims=["c"]), snapshot), 0, snapshot, ids())
    ) == ["Insufficient cpu"]


def test_a_shortage_of_devices_is_resolvable() -> None:
    snapshot = snapshot_of(node("n"), device_class(), claim("c", exactly()))
    found = try_node(task_for(pod("p", claims=["c"]), snapshot), 0, snapshot, ids())
    assert reason_texts(found) == ["cannot allocate all claims"]
    assert isinstance(found, tuple)
    assert found[0].code is VerdictCode.UNSCHEDULABLE


def test_a_broken_selector_is_an_error() -> None:
    broken = claim("c", exactly(select='device.attributes["x"].y == 1'))
    snapshot = snapshot_of(node("n"), resource_slice([device("d")], "n"), device_class(), broken)
    found = try_node(task_for(pod("p", claims=["c"]), snapshot), 0, snapshot, ids())
    assert isinstance(found, tuple)
    assert found[0].code is VerdictCode.ERROR


def test_refusals_are_cached_until_devices_are_freed() -> None:
    snapshot = snapshot_of(
        node("n"), resource_slice([device("d")], "n"), device_class(),
        *(claim(name, exactly()) for name in "abc"),
    )  # fmt: skip
    first = task_for(pod("a", claims={"r": "a"}), snapshot)
    fit = try_node(first, 0, snapshot, ids())
    assert isinstance(fit, NodeFit)
    snapshot.assume(Placement(first, 0, "n", fit.allocations, fit.charged_claims))
    second = DynamicResourcesFilter(task_for(pod("b", claims={"r": "b"}), snapshot), snapshot, ids())
    assert second.candidates()[0]
    assert not isinstance(second.search(0), NodeFit)
    third = DynamicResourcesFilter(task_for(pod("c", claims={"r": "c"}), snapshot), snapshot, ids())
    assert not third.candidates()[0]
    snapshot.forget("uid-a")
    assert third.candidates()[0]
    assert third.filter()[0]


def test_a_reused_row_has_no_cached_results() -> None:
    snapshot = snapshot_of(node("n"), device_class(), claim("c", exactly()))
    rule = DynamicResourcesFilter(task_for(pod("p", claims=["c"]), snapshot), snapshot, ids())
    assert not rule.filter()[0]
    snapshot.remove(node("n"))
    snapshot.set(resource_slice([device("d")], "m"))
    snapshot.set(node("m"))
    assert row(snapshot, "m") == 0
    assert DynamicResourcesFilter(task_for(pod("p", claims=["c"]), snapshot), snapshot, ids()).filter()[0]


def test_the_signature_cache_is_bounded() -> None:
    memory = SearchCache()
    memory.resized(4)
    first = memory.results_for(b"0")
    assert memory.results_for(b"0") is first
    for number in range(1, 300):
        memory.results_for(str(number).encode())
    assert memory.results_for(b"0") is not first


AMOUNTS = st.sampled_from(["1", "2", "4"])


@given(st.data())
@settings(max_examples=examples(60), deadline=None)
def test_bulk_and_pointwise_agree(data: st.DataObject) -> None:
    """Bulk and pointwise forms and their counts agree, before and after devices are allocated."""
    nodes = [node(f"n{i}", cpu=data.draw(AMOUNTS)) for i in range(data.draw(st.integers(1, 5)))]
    slices = [
        resource_slice(
            [charging_device(f"d{i}", cpu=data.draw(AMOUNTS)) for i in range(data.draw(st.integers(0, 3)))],
            each.metadata.name,
        )
        for each in nodes
    ]
    claims = [claim(f"c{i}", exactly(count=data.draw(st.integers(1, 2)))) for i in range(4)]
    snapshot = snapshot_of(*nodes, *slices, device_class(), *claims)
    for number in range(4):
        pod_info = task_for(pod(f"p{number}", cpu=data.draw(AMOUNTS), claims={"r": f"c{number}"}), snapshot)
        snapshot.index(SearchCache).clear()  # so that reasons are those of now
        rule = DynamicResourcesFilter(pod_info, snapshot, ids())
        bulk = rule.filter() & snapshot.alive
        for each in snapshot.rows():
            assert bulk[each] == (not rule.filter_node(each))
        removed = snapshot.alive & ~bulk
        assert _counts(rule.count_reasons(removed)) == _counts(Filter.count_reasons(rule, removed))
        assert (rule.resolvable_nodes(removed) == Filter.resolvable_nodes(rule, removed)).all()
        fits = np.flatnonzero(bulk).tolist()
        if fits:
            fit = rule.search(fits[0])
            assert isinstance(fit, NodeFit)
            snapshot.assume(Placement(pod_info, fits[0], "", fit.allocations, fit.charged_claims))


def _counts(tally: object) -> dict[str, int]:
    assert isinstance(tally, list)
    return {render(reason): count for reason, count in tally}


def test_nodes_in_the_same_state_share_one_search() -> None:
    nodes = [node(f"n{number}") for number in range(20)]
    slices = [resource_slice([charging_device("d", cpu="1")], each.metadata.name) for each in nodes]
    snapshot = snapshot_of(*nodes, *slices, device_class(), claim("c", exactly(count=2)))
    pod_info = task_for(pod("p", cpu="1", claims=["c"]), snapshot)
    asked: list[int] = []
    real = try_node

    def count(pod_info: PodInfo, row: int, *rest: Any, **more: Any) -> Any:
        asked.append(row)
        return real(pod_info, row, *rest, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(devices_filter, "try_node", count)
        rule = DynamicResourcesFilter(pod_info, snapshot, ids())
        assert not (rule.filter() & snapshot.alive).any()
    assert len(asked) == 1
    assert _counts(rule.count_reasons(snapshot.alive)) == {"cannot allocate all claims": 20}


def test_nodes_in_different_states_are_searched_separately() -> None:
    """Nodes with other devices, other device states or less capacity do not share results."""
    snapshot = snapshot_of(
        node("a", cpu="4"), node("b", cpu="4"), node("c", cpu="4"), node("d", cpu="1"),
        resource_slice([charging_device("d", cpu="2")], "a"),
        resource_slice([charging_device("d", cpu="3")], "b"),
        resource_slice([charging_device("d", cpu="2")], "c"),
        resource_slice([charging_device("d", cpu="2")], "d"),
        device_class(), claim("x", exactly()),
        claim("y", exactly(), results=[{"request": "r", "driver": DRIVER, "pool": "c", "device": "d"}]),
    )  # fmt: skip
    rule = DynamicResourcesFilter(task_for(pod("p", cpu="2", claims=["x"]), snapshot), snapshot, ids())
    bulk = rule.filter() & snapshot.alive
    fits = {snapshot.node(each).metadata.name for each in np.flatnonzero(bulk).tolist()}
    assert fits == {"a"}


def test_aborted_searches_are_cached_per_step_limit() -> None:
    snapshot = snapshot_of(
        node("n"), resource_slice([device("d0"), device("d1")], "n"), device_class(),
        claim("c", exactly(count=2)),
    )  # fmt: skip
    pod_info = task_for(pod("p", claims=["c"]), snapshot)
    hasty = DynamicResourcesFilter(pod_info, snapshot, ids(), SchedulerProfile(search_steps=1)).search(0)
    assert reason_texts(hasty) == ["gave up the search for devices after 2 steps"]
    patient = DynamicResourcesFilter(pod_info, snapshot, ids(), SchedulerProfile())
    assert patient.candidates()[0]
    assert isinstance(patient.search(0), NodeFit)


@pytest.mark.parametrize("shared", [False, True], ids=["other node", "same node"])
@pytest.mark.parametrize(("cpu", "fits"), [("8", True), ("9", False)])
def test_requests_count_if_the_devices_of_the_pod_charge_nothing(shared: bool, cpu: str, fits: bool) -> None:
    """Although a pool of other devices, from which requests could be drawn, is published in the cluster."""
    pool = resource_slice([pool_device(policy="ConsumeFrom", cpu="4")], "n" if shared else "m", driver="cpus")
    only = device_class(select=f'device.driver == "{DRIVER}"')
    snapshot = snapshot_of(
        node("n", cpu="8"),
        node("m", cpu="4"),
        resource_slice([device("d")], "n"),
        pool,
        only,
        claim("c", exactly()),
    )
    pod_info = task_for(pod("p", cpu=cpu, claims=["c"]), snapshot)
    found = DynamicResourcesFilter(pod_info, snapshot, ids()).search(row(snapshot, "n"))
    if fits:
        assert picked(found) == ["d"]
    else:
        assert reason_texts(found) == ["Insufficient cpu"]


def test_headroom_counts_in_the_state_of_a_node_if_the_search_checks_requests() -> None:
    """The refusal of a node that is in use is not that of an empty one with the same devices."""
    pool = resource_slice([pool_device(policy="ConsumeFrom", cpu="4")], "m", driver="cpus")
    only = device_class(select=f'device.driver == "{DRIVER}"')
    nodes = [node(name, cpu="8") for name in ("a", "b")]
    slices = [resource_slice([device("d")], name) for name in ("a", "b")]
    busy = pod("busy", cpu="6", node="a")
    snapshot = snapshot_of(*nodes, *slices, busy, node("m", cpu="1"), pool, only, claim("c", exactly()))
    rule = DynamicResourcesFilter(task_for(pod("p", cpu="4", claims=["c"]), snapshot), snapshot)
    assert reason_texts(rule.search(row(snapshot, "a"))) == ["Insufficient cpu"]
    assert picked(rule.search(row(snapshot, "b"))) == ["d"]
