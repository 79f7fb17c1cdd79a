"""VolumeBinding for claims that wait for their first consumer: nodes, volumes and messages."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.storage import SELECTED_NODE
from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.binding.pod_conditions import failure_reason, render_fit_error
from plimsoll.scheduler.cycle import schedule_pod
from plimsoll.scheduler.filters.volume_binding import MIGRATED_PLUGINS, VolumeBindingFilter
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import node, pod
from tests.unit.scheduler.filters.volume_objects import (
    claim,
    csi_driver,
    csi_node,
    made,
    open_places,
    static_volume,
    storage_capacity,
    storage_class,
    using,
    volume,
    waiting_class,
)
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
NO_CAPACITY = "node(s) did not have enough free storage"
AFFINITY = "node(s) didn't match PersistentVolume's node affinity"


def host(name: str, **labels: str) -> Any:
    return node(name, labels={"kubernetes.io/hostname": name, **labels})


def schedule(one: Any, snapshot: Snapshot) -> Placement | FitError | NodeReason:
    return schedule_pod(one, snapshot, SchedulerProfile.default(), lambda: "id")


def placed(one: Any, snapshot: Snapshot) -> Placement:
    found = schedule(one, snapshot)
    assert isinstance(found, Placement), found
    return found


def message(one: Any, snapshot: Snapshot) -> str:
    found = schedule(one, snapshot)
    assert isinstance(found, FitError), found
    assert found.resolvable is None or not found.resolvable.any()
    return render_fit_error(found)


def chosen(placement: Placement) -> dict[str, str]:
    """Return the volume of each claim."""
    bindings = placement.volumes.static_bindings
    return {each.claim.metadata.name: each.volume.metadata.name for each in bindings}


def provisioned(placement: Placement) -> list[str]:
    return [each.claim.metadata.name for each in placement.volumes.dynamic_provisions]


# -- existing volumes


def test_a_pod_goes_where_a_volume_for_its_claim_is() -> None:
    snapshot = snapshot_of(
        host("a"), host("b"), waiting_class(), claim("data", storage_class="local", size="5Gi"),
        static_volume("small", "1Gi", host="a"), static_volume("large", "9Gi", host="b"),
    )  # fmt: skip
    one = pod("p", volumes=using("data"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"b"}
    placement = placed(one, snapshot)
    assert (placement.node, chosen(placement)) == ("b", {"data": "large"})


def test_no_volume_on_any_node() -> None:
    snapshot = snapshot_of(
        host("a"), host("b"), waiting_class(), claim("data", storage_class="local", size="5Gi"),
        static_volume("small", "1Gi", host="a"),
    )  # fmt: skip
    expected = f"0/2 nodes are available: 2 {NO_VOLUME}."
    assert message(pod("p", volumes=using("data")), snapshot) == expected


def test_several_claims_of_one_pod_get_volumes_together() -> None:
    snapshot = snapshot_of(
        host("a"), host("b"), waiting_class(),
        claim("big", storage_class="local", size="5Gi"), claim("small", storage_class="local", size="1Gi"),
        static_volume("a1", "9Gi", host="a"),
        static_volume("b1", "2Gi", host="b"), static_volume("b2", "6Gi", host="b"),
    )  # fmt: skip
    one = pod("p", volumes=using("big", "small"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"b"}
    assert chosen(placed(one, snapshot)) == {"small": "b1", "big": "b2"}


def test_a_claim_used_twice_is_bound_once() -> None:
    snapshot = snapshot_of(
        host("a"), waiting_class(), claim("data", storage_class="local", size="1Gi"),
        static_volume("v", host="a"), static_volume("w", host="a"),
    )  # fmt: skip
    assert chosen(placed(pod("p", volumes=using("data", "data")), snapshot)) == {"data": "v"}


def test_bound_and_unbound_claims_are_counted_separately() -> None:
    snapshot = snapshot_of(
        host("a", zone="east"), host("b", zone="west"), waiting_class(),
        claim("old", "pv"), volume("pv", zone="east"),
        claim("new", storage_class="local", size="1Gi"), static_volume("v", host="b"),
    )  # fmt: skip
    one = pod("p", volumes=using("old", "new"))
    assert message(one, snapshot) == f"0/2 nodes are available: 1 {NO_VOLUME}, 1 {AFFINITY}."
    snapshot.set(static_volume("v", host="c"))
    assert message(one, snapshot) == f"0/2 nodes are available: 1 {AFFINITY}, 2 {NO_VOLUME}."


def test_a_volume_assumed_for_one_claim_is_not_chosen_for_another() -> None:
    snapshot = snapshot_of(
        host("a"), waiting_class(), static_volume("v", host="a"),
        claim("one", storage_class="local", size="1Gi"), claim("two", storage_class="local", size="1Gi"),
    )  # fmt: skip
    first, second = pod("p", volumes=using("one")), pod("q", volumes=using("two"))
    placement = placed(first, snapshot)
    snapshot.assume(placement)
    assert NO_VOLUME in message(second, snapshot)
    snapshot.forget(placement.pod_info.key)
    assert len(snapshot.assumed_volumes) == 0
    assert chosen(placed(second, snapshot)) == {"two": "v"}


def test_verify_covers_assumed_volumes() -> None:
    snapshot = snapshot_of(
        host("a"), waiting_class(), static_volume("v", host="a"),
        storage_class("fast", "WaitForFirstConsumer"),
        claim("one", storage_class="local", size="1Gi"), claim("two", storage_class="fast", size="1Gi"),
    )  # fmt: skip
    placement = placed(pod("p", volumes=using("one", "two")), snapshot)
    snapshot.assume(placement)
    assert verify(snapshot) == []
    key = placement.pod_info.key
    snapshot.assumed_volumes.release(key)
    found = [str(each) for each in verify(snapshot)]
    assert found == [
        f"assumed claim default/two: recorded None, computed ('a', ('{key}',))",
        f"assumed volume v: recorded None, computed ('uid-one', ('{key}',))",
    ]
    snapshot.forget(key)
    assert verify(snapshot) == []
    snapshot.assumed_volumes.assume("other", placement.volumes, "a")  # of a pod that is not in flight
    assert len(verify(snapshot)) == 2


def test_node_affinity_of_in_tree_volumes_is_not_translated() -> None:
    old = "failure-domain.beta.kubernetes.io/zone"
    expression = {"key": old, "operator": "In", "values": ["east"]}
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    migrated = csi_node("a")
    plugins = {MIGRATED_PLUGINS: "kubernetes.io/gce-pd"}
    snapshot = snapshot_of(
        host("a", **{old: "east"}),
        replace(migrated, metadata=replace(migrated.metadata, annotations=plugins)),
        claim("data", "disk"), volume("disk", gcePersistentDisk={"pdName": "d"}, affinity=affinity),
    )  # fmt: skip
    assert placed(pod("p", volumes=using("data")), snapshot).node == "a"


def test_pods_that_share_a_claim_follow_the_first() -> None:
    shared = claim("data", storage_class="local", size="1Gi", modes=("ReadWriteMany",))
    volumes = [static_volume(f"v-{name}", host=name, modes=("ReadWriteMany",)) for name in "ab"]
    snapshot = snapshot_of(host("a"), host("b"), waiting_class(), shared, *volumes)
    first = placed(pod("p", volumes=using("data")), snapshot)
    snapshot.assume(first)
    second = placed(pod("q", volumes=using("data")), snapshot)
    assert (second.node, chosen(second)) == (first.node, chosen(first))
    snapshot.assume(second)
    snapshot.forget(first.pod_info.key)
    third = placed(pod("r", volumes=using("data")), snapshot)
    assert chosen(third) == chosen(first)  # the second pod still needs it
    snapshot.forget(second.pod_info.key)
    assert len(snapshot.assumed_volumes) == 0


def test_an_invalid_claim_selector_ends_the_attempt() -> None:
    selector = {"matchExpressions": [{"key": "tier", "operator": "Near", "values": ["x"]}]}
    snapshot = snapshot_of(
        host("a"), waiting_class(), claim("data", storage_class="local", selector=selector)
    )
    found = schedule(pod("p", volumes=using("data")), snapshot)
    assert isinstance(found, FitError)
    assert failure_reason(found) == "SchedulerError"
    assert "error creating internal label selector for claim: default/data" in render_fit_error(found)


# -- provisioning


def test_a_volume_is_provisioned_where_the_class_allows_it() -> None:
    zoned = storage_class("fast", "WaitForFirstConsumer", zone=("east", "north"))
    snapshot = snapshot_of(
        host("a", zone="east"), host("b", zone="west"), host("c"), zoned,
        claim("data", storage_class="fast", size="5Gi"),
    )  # fmt: skip
    one = pod("p", volumes=using("data"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"a"}
    assert provisioned(placed(one, snapshot)) == ["data"]
    snapshot.set(storage_class("fast", "WaitForFirstConsumer", zone=("south",)))
    assert message(one, snapshot) == f"0/3 nodes are available: 3 {NO_VOLUME}."


def test_an_existing_volume_is_preferred_to_a_new_one_on_the_same_node() -> None:
    snapshot = snapshot_of(
        host("a"), storage_class("fast", "WaitForFirstConsumer"), static_volume("v", "9Gi", "fast", host="a"),
        claim("one", storage_class="fast", size="5Gi"), claim("two", storage_class="fast", size="6Gi"),
    )  # fmt: skip
    placement = placed(pod("p", volumes=using("one", "two")), snapshot)
    assert (chosen(placement), provisioned(placement)) == ({"one": "v"}, ["two"])


def test_the_selected_node_binds_a_claim_to_its_node() -> None:
    selected = claim("data", storage_class="fast", size="5Gi", selected_node="b")
    snapshot = snapshot_of(host("a"), host("b"), storage_class("fast", "WaitForFirstConsumer"), selected)
    one = pod("p", volumes=using("data"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"b"}
    assert placed(one, snapshot).node == "b"
    snapshot.remove(host("b"))
    assert message(one, snapshot) == f"0/1 nodes are available: 1 {NO_VOLUME}."


def test_a_claim_assumed_on_a_node_keeps_other_pods_there() -> None:
    snapshot = snapshot_of(
        host("a"), host("b"), storage_class("fast", "WaitForFirstConsumer"),
        claim("data", storage_class="fast", size="5Gi", modes=("ReadWriteMany",)),
    )  # fmt: skip
    first = placed(pod("p", volumes=using("data")), snapshot)
    snapshot.assume(first)
    for number in range(3):
        assert placed(pod(f"q{number}", volumes=using("data")), snapshot).node == first.node
    snapshot.confirm(first.pod_info.key)
    assert len(snapshot.assumed_volumes) == 0


def test_the_api_takes_precedence_over_what_is_assumed() -> None:
    snapshot = snapshot_of(
        host("a"), host("b"), storage_class("fast", "WaitForFirstConsumer"),
        claim("data", storage_class="fast", size="5Gi"),
    )  # fmt: skip
    first = placed(pod("p", volumes=using("data")), snapshot)
    snapshot.assume(first)
    (other,) = {"a", "b"} - {first.node}
    elsewhere = {"annotations": {SELECTED_NODE: other}}
    snapshot.set(claim("data", storage_class="fast", size="5Gi", metadata=elsewhere))
    assert placed(pod("q", volumes=using("data")), snapshot).node == other


def test_a_generated_claim_is_provisioned() -> None:
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    own = claim("p-scratch", storage_class="fast", size="1Gi", metadata={"ownerReferences": [owner]})
    snapshot = snapshot_of(host("a"), storage_class("fast", "WaitForFirstConsumer"), own)
    assert provisioned(placed(pod("p", volumes=made()), snapshot)) == ["p-scratch"]


# -- storage capacity


CAPACITIES = [
    storage_capacity("small", "fast", "4Gi", topology={"zone": "east"}),
    storage_capacity("split", "fast", "100Gi", largest="4Gi", topology={"zone": "north"}),
    storage_capacity("nowhere", "fast", "100Gi"),
    storage_capacity("unknown", "fast", None, topology={"zone": "south"}),
    storage_capacity("other", "slow", "100Gi", topology={}),
    storage_capacity("large", "fast", "5Gi", topology={"zone": "west"}),
]


def capacity_cluster(*more: Any, size: str = "5Gi") -> Snapshot:
    nodes = [host(zone, zone=zone) for zone in ("east", "north", "south", "west")]
    fast = storage_class("fast", "WaitForFirstConsumer")
    return snapshot_of(*nodes, fast, *CAPACITIES, claim("data", storage_class="fast", size=size), *more)


def test_a_volume_is_provisioned_where_there_is_capacity() -> None:
    one = pod("p", volumes=using("data"))
    snapshot = capacity_cluster(csi_driver())
    assert open_places(VolumeBindingFilter, one, snapshot) == {"west"}
    (provision,) = placed(one, snapshot).volumes.dynamic_provisions
    assert provision.capacity is not None
    assert provision.capacity.metadata.name == "large"
    assert message(one, capacity_cluster(csi_driver(), size="6Gi")) == (
        f"0/4 nodes are available: 4 {NO_CAPACITY}."
    )


@pytest.mark.parametrize("driver", [(), (csi_driver(capacity=None),), (csi_driver(capacity=False),)])
def test_capacity_counts_only_if_the_driver_publishes_it(driver: tuple[Any, ...]) -> None:
    snapshot = capacity_cluster(*driver)
    one = pod("p", volumes=using("data"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"east", "north", "south", "west"}


def test_a_claim_without_a_size_needs_no_capacity() -> None:
    snapshot = capacity_cluster(csi_driver(), size="")
    one = pod("p", volumes=using("data"))
    assert len(open_places(VolumeBindingFilter, one, snapshot)) == 4


# -- many nodes


def test_each_pod_takes_one_of_many_local_volumes() -> None:
    count = 300
    snapshot = snapshot_of(waiting_class(), *(host(f"n{number}") for number in range(count)))
    for number in range(count):
        snapshot.set(static_volume(f"v{number}", host=f"n{number}"))
        snapshot.set(claim(f"c{number}", storage_class="local", size="1Gi"))
    seen: Counter[str] = Counter()
    for number in range(20):
        placement = placed(pod(f"p{number}", volumes=using(f"c{number}")), snapshot)
        snapshot.assume(placement)
        ((_, name),) = chosen(placement).items()
        assert name == f"v{placement.node[1:]}"
        seen[name] += 1
    assert max(seen.values()) == 1


def test_reasons_name_the_claim() -> None:
    snapshot = capacity_cluster(csi_driver(), size="6Gi")
    found = VolumeBindingFilter.pre_filter(pod_info_of(pod("p", volumes=using("data")), snapshot), snapshot)
    assert isinstance(found, VolumeBindingFilter)
    (reason,) = found.filter_node(snapshot.row_of("west") or 0)
    assert reason.facts["claim"] == "data"
    assert reason.code is VerdictCode.UNRESOLVABLE
