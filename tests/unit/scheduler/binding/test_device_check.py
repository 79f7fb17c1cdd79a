"""Devices found to be held by another pod right before binding."""

from __future__ import annotations

from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.binding.device_check import find_device_conflict
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import DRIVER, device, node, resource_slice
from tests.unit.scheduler.snapshots import snapshot_of


def held(name: str, device_name: str, **result: Any) -> ResourceClaim:
    found = {"request": "r", "driver": DRIVER, "pool": "n1", "device": device_name, **result}
    tree = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "status": {"allocation": {"devices": {"results": [found]}}},
    }
    return convert(tree, ResourceClaim)


def share(name: str, device_name: str, amount: str) -> ResourceClaim:
    return held(name, device_name, shareID=f"share-{name}", consumedCapacity={"memory": amount})


def make() -> Snapshot:
    devices = [
        device("whole"),
        device("shared", capacity={"memory": "10Gi"}, shared=True),
    ]
    return snapshot_of(node("n1"), resource_slice(devices, "n1"))


def test_a_device_of_one_claim_is_no_conflict() -> None:
    snapshot = make()
    claim = held("a", "whole")
    snapshot.set(claim)
    assert find_device_conflict(snapshot, "n1", [claim]) == ""
    assert find_device_conflict(snapshot, "n1", []) == ""


def test_a_device_of_two_claims_is_a_conflict() -> None:
    snapshot = make()
    claims = [held("a", "whole"), held("b", "whole")]
    for claim in claims:
        snapshot.set(claim)
    for claim in claims:
        assert find_device_conflict(snapshot, "n1", [claim]) == f"{DRIVER}/n1/whole"
    snapshot.remove(claims[1])
    assert find_device_conflict(snapshot, "n1", claims[:1]) == ""


def test_admin_access_never_conflicts() -> None:
    snapshot = make()
    claims = [held("a", "whole"), held("b", "whole", adminAccess=True)]
    for claim in claims:
        snapshot.set(claim)
    assert find_device_conflict(snapshot, "n1", claims) == ""


def test_shares_above_the_capacity_are_a_conflict() -> None:
    snapshot = make()
    claims = [share("a", "shared", "6Gi"), share("b", "shared", "4Gi")]
    for claim in claims:
        snapshot.set(claim)
    assert find_device_conflict(snapshot, "n1", claims) == ""
    late = share("c", "shared", "1Gi")
    snapshot.set(late)
    assert find_device_conflict(snapshot, "n1", claims[:1]) == f"{DRIVER}/n1/shared"


def test_a_whole_device_and_a_share_of_it() -> None:
    snapshot = make()
    claims = [held("a", "shared"), share("b", "shared", "1Gi")]
    for claim in claims:
        snapshot.set(claim)
    assert find_device_conflict(snapshot, "n1", claims[1:]) == f"{DRIVER}/n1/shared"


def test_a_node_or_device_that_is_gone_is_no_conflict() -> None:
    snapshot = make()
    claim = held("a", "gone")
    snapshot.set(claim)
    assert find_device_conflict(snapshot, "n1", [claim]) == ""
    assert find_device_conflict(snapshot, "n2", [claim]) == ""
