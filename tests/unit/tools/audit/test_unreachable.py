"""Devices that are not released: pods that do not terminate, nodes that are not ready, unfinished pools."""

from __future__ import annotations

import pytest

from tests.unit.tools.audit.build import (
    NOW,
    Tree,
    claim,
    device,
    found,
    node,
    only,
    pod,
    result,
    slice_of,
)

DUE = "2026-11-15T00:30:00Z"  # half an hour before NOW


def deleted(name: str = "p", due: str = DUE, **more: object) -> Tree:
    tree = pod(name, claims="c")
    tree["metadata"] |= {"deletionTimestamp": due, "deletionGracePeriodSeconds": 30, **more}
    return tree


def unready(status: str, **more: str) -> Tree:
    tree = node()
    tree["status"]["conditions"] = [{"type": "Ready", "status": status, **more}]
    return tree


@pytest.mark.parametrize(("after", "is_found"), [(299, False), (301, True), (-60, False)])
def test_a_pod_is_stuck_five_minutes_after_its_grace_period(after: int, is_found: bool) -> None:
    trees = [node(), claim("c", result()), deleted()]
    assert bool(found("PLM048", *trees, now=NOW - 1800 + after)) is is_found


def test_a_pod_without_devices_is_not_reported() -> None:
    assert found("PLM048", node(), claim("c", pods=()), deleted()) == []


def test_in_a_dump_the_newest_timestamp_counts_as_the_time() -> None:
    """The pod may have terminated after the dump: an hour passed since, but not in the dump."""
    trees = [node(), claim("c", result()), deleted()]
    assert found("PLM048", *trees, live=False) == []
    later = pod("later", claims=())
    later["metadata"]["creationTimestamp"] = "2026-11-15T00:40:00Z"
    finding = only("PLM048", *trees, later, live=False)
    assert "2026-11-15T00:40:00Z" in finding.message
    assert not finding.proven


def test_a_stuck_pod_of_a_lost_node_is_not_the_fault_of_the_pod() -> None:
    finding = only("PLM048", unready("Unknown"), claim("c", result()), deleted())
    assert "out-of-service" in finding.fix


@pytest.mark.parametrize(("status", "count"), [("True", 0), ("False", 1), ("Unknown", 1)])
def test_nodes_that_are_not_ready_and_hold_devices(status: str, count: int) -> None:
    trees = [unready(status, reason="NodeStatusUnknown"), claim("c", result()), pod("p", claims="c")]
    assert [each.subject for each in found("PLM049", *trees)] == ["Node/n1"] * count
    assert found("PLM049", unready(status), pod("plain"), claim("unused")) == []


# -- slices of older generations


@pytest.mark.parametrize(
    ("newest", "devices", "proven"),
    [(2, ["d0"], False), (1, ["d0"], True), (1, ["d1"], False)],
    ids=["incomplete", "complete", "the device is gone"],
)
def test_old_slices_may_be_deleted_if_nothing_depends_on_them(
    newest: int, devices: list[str], proven: bool
) -> None:
    trees = [
        node(),
        slice_of(device("d0"), generation=1),
        slice_of(*map(device, devices), generation=2, count=newest),
        claim("c", result("d0")),
        pod("p", claims="c"),
    ]
    finding = only("PLM028", *trees)
    assert finding.proven is proven
    assert finding.fix.startswith("kubectl delete resourceslice") is proven
