"""CEL selectors that fail at run time: the pod stays pending, or only that node is rejected."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given

from plimsoll.scheduler.binding.pod_conditions import failure_reason, render_fit_error
from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.devices import NodeFit, try_node
from plimsoll.scheduler.devices.exact import is_selector_error
from plimsoll.scheduler.devices.selector_errors import SelectorErrorIndex
from plimsoll.scheduler.profile import SchedulerProfile, SelectorErrors
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import DRIVER, claim, device, device_class, exactly, node, pod, resource_slice
from tests.unit.scheduler.samples import SEEDS
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

FAST = f'device.attributes["{DRIVER}"].speed > 5'
SKIP = SchedulerProfile(selector_errors=SelectorErrors.SKIP_NODE)
WANTING = pod("p", claims=["c"])


def cluster(**speeds: list[int | None]) -> Snapshot:
    """Return a snapshot of nodes with devices of these speeds; None is a device without the attribute."""
    objects: list[Any] = [device_class(), claim("c", exactly("r", select=FAST))]
    for name, own in speeds.items():
        objects += [node(name), resource_slice([sized(f"d{n}", each) for n, each in enumerate(own)], name)]
    return snapshot_of(*objects)


def sized(name: str, speed: int | None) -> Any:
    return device(name) if speed is None else device(name, speed=speed)


def attempt(snapshot: Snapshot, settings: SchedulerProfile | None = None) -> Placement | FitError:
    return schedule_one(
        pod_info_of(WANTING, snapshot), snapshot, settings or SchedulerProfile.default(), lambda: ""
    )


def test_an_error_on_any_node_keeps_the_pod_pending() -> None:
    snapshot = cluster(bad=[None], good=[9])
    found = attempt(snapshot)
    assert isinstance(found, FitError)
    assert found.is_error
    assert failure_reason(found) == "SchedulerError"
    assert render_fit_error(found) == (
        'running "DynamicResources" filter plugin: claim default/c: selector #0 on device '
        f"{DRIVER}/bad/d0: CEL runtime error: no such key: speed"
    )
    [(reason, count)] = found.reasons
    assert count == 1
    assert reason.cause.facts["expression"] == FAST  # type: ignore[attr-defined]
    # A second attempt meets the error again, although the node's refusal is cached.
    assert isinstance(attempt(snapshot), FitError)


@pytest.mark.parametrize("settings", [None, SKIP])
def test_pods_with_equal_claims_share_results_that_name_their_own(settings: SchedulerProfile | None) -> None:
    snapshot = cluster(bad=[None], worse=[None])
    pods = {name: pod(name, claims={"own": f"c-{name}"}) for name in ("p", "q")}
    for name in pods:
        snapshot.set(claim(f"c-{name}", exactly("r", select=FAST)))
    for name in ("p", "q", "p"):
        found = schedule_one(
            pod_info_of(pods[name], snapshot), snapshot, settings or SchedulerProfile.default(), lambda: ""
        )
        assert isinstance(found, FitError)
        assert f"default/c-{name}" in render_fit_error(found)
        causes = [reason.cause for reason, _ in found.reasons]
        assert {cause.facts["claim"] for cause in causes} == {f"default/c-{name}"}  # type: ignore[attr-defined]


def test_a_profile_can_skip_the_node() -> None:
    found = attempt(cluster(bad=[None], good=[9]), SKIP)
    assert isinstance(found, Placement)
    assert found.node == "good"


def test_a_device_that_the_search_does_not_reach_is_no_error() -> None:
    assert isinstance(attempt(cluster(a=[9, None])), Placement)
    assert isinstance(attempt(cluster(a=[1, None, 9])), FitError)


def test_a_node_that_other_rules_reject_is_no_error() -> None:
    snapshot = cluster(bad=[None], good=[9])
    snapshot.set(node("bad", unschedulable=True))
    assert isinstance(attempt(snapshot), Placement)


def test_selectors_of_the_class_fail_as_well() -> None:
    snapshot = snapshot_of(
        node("n"),
        resource_slice([device("d0")], "n"),
        device_class(select=FAST),
        claim("c", exactly("r")),
    )
    found = attempt(snapshot)
    assert isinstance(found, FitError)
    assert ": class " in render_fit_error(found)
    assert found.reasons[0][0].cause.facts["expression"] == FAST  # type: ignore[attr-defined]


def test_the_pod_is_scheduled_once_the_device_is_corrected() -> None:
    snapshot = cluster(bad=[None], good=[9])
    assert isinstance(attempt(snapshot), FitError)
    snapshot.set(resource_slice([device("d0", speed=1)], "bad"))
    found = attempt(snapshot)
    assert isinstance(found, Placement)
    assert found.node == "good"


def test_the_index_follows_nodes_and_slices() -> None:
    snapshot = cluster(a=[None], b=[9])
    info = pod_info_of(WANTING, snapshot)
    index = snapshot.index(SelectorErrorIndex)

    def failing() -> list[str]:
        mask = index.failing_nodes(info, snapshot)
        rows = () if mask is None else snapshot.rows()
        return [snapshot.node(row).metadata.name for row in rows if mask is not None and mask[row]]

    assert failing() == ["a"]
    snapshot.set(resource_slice([device("d0")], "b"))
    assert failing() == ["a", "b"]
    snapshot.remove(node("a"))
    assert failing() == ["b"]
    snapshot.set(resource_slice([device("d0", speed=1)], "b"))
    assert failing() == []
    snapshot.set(resource_slice([device("d0")], "b"))
    for number in range(200):  # the columns grow
        snapshot.set(node(f"n{number}"))
    assert failing() == ["b"]


@given(seed=SEEDS)
def test_a_pod_is_pending_exactly_if_a_search_on_some_node_fails(seed: int) -> None:
    random = Random(seed)
    speeds: dict[str, list[int | None]] = {
        f"n{number}": [random.choice([None, 1, 9, 9]) for _ in range(random.randint(0, 3))]
        for number in range(random.randint(1, 5))
    }
    snapshot = cluster(**speeds)
    info = pod_info_of(WANTING, snapshot)
    answers = [try_node(info, row, snapshot, lambda: "") for row in snapshot.rows()]
    fails = any(
        is_selector_error(reason)
        for answer in answers
        if not isinstance(answer, NodeFit)
        for reason in answer
    )
    for _ in range(2):
        found = attempt(snapshot)
        skipped = attempt(snapshot, SKIP)
        assert isinstance(skipped, Placement) == any(isinstance(answer, NodeFit) for answer in answers)
        if fails:
            assert isinstance(found, FitError)
            assert found.is_error
        else:
            assert isinstance(found, Placement) == isinstance(skipped, Placement)
