"""Clusters without the alpha fields: joint allocation with annotated classes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.forms import CLASS_KEY, POD_KEY, format_charges_annotation
from plimsoll.api.resource import DeviceClass
from plimsoll.ledger.status import build_status_entries
from plimsoll.scheduler.devices import NodeFit, try_node
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, Rule, render
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import (
    DRIVER,
    claim,
    device,
    device_class,
    exactly,
    first_available,
    node,
    pod,
    resource_slice,
)
from tests.unit.scheduler.snapshots import snapshot_of

MAPPINGS = "nodeAllocatableResourceMappings"


def ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"share-{next(numbers)}"


def annotated(name: str, words: Any, select: str | None = None) -> DeviceClass:
    plain = device_class(name, select=select)
    return replace(plain, metadata=replace(plain.metadata, annotations={CLASS_KEY: json.dumps(words)}))


def fit(
    name: str, snapshot: Snapshot, cpu: str = "1", claims: tuple[str, ...] = ("c",)
) -> tuple[PodInfo, Any]:
    pod_info = read_pod_info(pod(name, cpu=cpu, claims=list(claims)), snapshot)
    assert isinstance(pod_info, PodInfo), pod_info
    return pod_info, try_node(pod_info, 0, snapshot, ids())


KIND = f'device.attributes["{DRIVER}"].kind == '
CPUS = annotated("cpus", {MAPPINGS: {"cpu": {"allocationMultiplier": "6"}}}, KIND + '"cpu"')
GPUS = device_class("gpus", select=KIND + '"gpu"')


def test_devices_of_an_annotated_class_are_charged() -> None:
    by_class = annotated("k", {MAPPINGS: {"cpu": {"allocationMultiplier": "5"}}})
    snapshot = snapshot_of(
        node("n", cpu="8"), resource_slice([device("d"), device("e")], "n"), by_class,
        claim("c", exactly(device_class="k")), claim("more", exactly(device_class="k")),
    )  # fmt: skip
    pod_info, found = fit("p", snapshot)
    assert isinstance(found, NodeFit), found
    assert {name: str(each.quantity) for name, each in found.charged_claims[0].charge.resources.items()} == {
        "cpu": "5"
    }
    snapshot.assume(Placement(pod_info, 0, "n", found.allocations, found.charged_claims))
    assert snapshot.ledger(0).requested["cpu"] == 6000
    _, refused = fit("q", snapshot, claims=("more",))
    assert isinstance(refused, tuple)  # a device is free, 5 CPUs are not
    snapshot.forget(pod_info.key)
    assert isinstance(fit("q", snapshot, claims=("more",))[1], NodeFit)


def test_a_bound_pod_is_read_back_from_its_annotation() -> None:
    by_class = annotated("k", {MAPPINGS: {"cpu": {"allocationMultiplier": "5"}}})
    objects = (node("n", cpu="8"), resource_slice([device("d")], "n"), by_class)
    snapshot = snapshot_of(*objects, claim("c", exactly(device_class="k")))
    _, found = fit("p", snapshot)
    text = format_charges_annotation(build_status_entries(found.charged_claims))
    bound = pod("p", cpu="1", claims=["c"], node="n", metadata={"annotations": {POD_KEY: text}})
    again = snapshot_of(*objects[:1], bound)  # neither class nor slice nor claim is needed
    assert again.ledger(0).requested["cpu"] == 6000


def test_an_invalid_annotation_is_reported_before_filtering() -> None:
    bad = annotated("k", {MAPPINGS: {"cpu": {"multiplier": "5"}}})
    snapshot = snapshot_of(
        node("n"), resource_slice([device("d")], "n"), bad, claim("c", exactly(device_class="k"))
    )
    found = read_pod_info(pod("p", claims=["c"]), snapshot)
    assert isinstance(found, NodeReason)
    assert found.rule is Rule.DEVICES
    assert render(found).startswith(
        f"request r: device class k, annotation {CLASS_KEY}: {MAPPINGS}[cpu].multiplier: unknown field"
    )


def test_a_list_of_alternatives_takes_what_fits_below_the_line() -> None:
    """KEP-5517, story 4, with mappings in the class: CPUs if they fit, else a GPU."""
    offered = [device("cores", kind="cpu"), device("gpu", kind="gpu")]
    request = first_available("r", exactly("cpu", device_class="cpus"), exactly("gpu", device_class="gpus"))
    for line, expected in (("8", "cores"), ("6", "gpu")):
        snapshot = snapshot_of(
            node("n", cpu=line), resource_slice(offered, "n"), CPUS, GPUS, claim("c", request)
        )
        _, found = fit("p", snapshot)
        assert isinstance(found, NodeFit), found
        assert [r.device for a in found.allocations.values() for r in a.devices.results] == [expected]
        assert len(found.charged_claims) == (1 if expected == "cores" else 0)


def test_a_class_that_loses_its_annotation_charges_no_more() -> None:
    by_class = annotated("k", {MAPPINGS: {"cpu": {"allocationMultiplier": "50"}}})
    snapshot = snapshot_of(
        node("n", cpu="8"),
        resource_slice([device("d")], "n"),
        by_class,
        claim("c", exactly(device_class="k")),
    )
    assert isinstance(fit("p", snapshot)[1], tuple)
    snapshot.set(device_class("k"))
    assert isinstance(fit("p", snapshot)[1], NodeFit)
    snapshot.set(by_class)
    assert isinstance(fit("p", snapshot)[1], tuple)


@pytest.mark.parametrize("by_class", [True, False])
def test_a_pod_of_another_scheduler_is_charged_in_whatever_order_objects_come(by_class: bool) -> None:
    result = {"request": "r", "driver": DRIVER, "pool": "n", "device": "d"}
    words = {MAPPINGS: {"cpu": {"allocationMultiplier": "5"}}}
    objects = (
        node("n"),
        resource_slice([device("d")] if by_class else [device("d", fields=words)], "n"),
        annotated("k", words) if by_class else device_class("k"),
        claim("c", exactly(device_class="k"), results=[result], node="n", reserved=["p"]),
        pod("p", cpu="1", claims=["c"], node="n"),
    )
    for order in itertools.permutations(objects):
        snapshot = snapshot_of(*order)
        assert snapshot.ledger(0).requested["cpu"] == 6000, [type(each).__name__ for each in order]
        assert verify(snapshot) == []
