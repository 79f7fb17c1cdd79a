"""Volume rules: rejected pods, messages and nodes."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_volume_limits import NodeVolumeLimitsFilter
from plimsoll.scheduler.filters.volume_binding import VolumeBindingFilter
from plimsoll.scheduler.filters.volume_restrictions import VolumeRestrictionsFilter
from plimsoll.scheduler.filters.volume_zone import VolumeZoneFilter
from plimsoll.scheduler.reasons import NodeReason, render
from tests.build import node, pod
from tests.unit.scheduler.filters.volume_objects import (
    attachment,
    claim,
    csi_node,
    made,
    open_places,
    storage_class,
    using,
    volume,
)
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

ALL = (VolumeRestrictionsFilter, NodeVolumeLimitsFilter, VolumeBindingFilter, VolumeZoneFilter)
ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


def refusal(kind: type[Filter], one: Any, *objects: Any) -> str:
    """Return the reason why no node fits."""
    snapshot = snapshot_of(*objects)
    found = kind.pre_filter(pod_info_of(one, snapshot), snapshot)
    assert isinstance(found, NodeReason), found
    assert found.rule is kind.rule
    assert not found.resolvable
    return render(found)


@pytest.mark.parametrize("kind", ALL)
def test_pods_without_volumes_skip_the_filter(kind: type[Filter]) -> None:
    snapshot = snapshot_of(node("a"))
    plain = [{"name": "token", "projected": {}}, {"name": "tmp", "emptyDir": {}}, {"name": "none"}]
    for one in (pod("p"), pod("p", volumes=plain)):
        assert kind.pre_filter(pod_info_of(one, snapshot), snapshot) is None


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "volumes",
    [
        [{"name": "v", "persistentVolumeClaim": None}],
        [{"name": "v", "persistentVolumeClaim": "text"}],
        [{"persistentVolumeClaim": {"claimName": 3}}],
        [{"name": 7, "ephemeral": {}}],
        [{"name": "v", "rbd": {"monitors": "no list"}, "iscsi": [], "gcePersistentDisk": 1}],
        [{"name": "v", "rbd": {"monitors": [1, None]}, "awsElasticBlockStore": {"volumeID": {}}}],
    ],
)
def test_malformed_volumes_are_ignored(kind: type[Filter], volumes: list[dict[str, Any]]) -> None:
    one, other = pod("p", volumes=volumes), pod("q", node="a", volumes=volumes)
    snapshot = snapshot_of(node("a"), claim("p-x"), other)
    found = kind.pre_filter(pod_info_of(one, snapshot), snapshot)
    if isinstance(found, Filter):
        assert bool(found.filter()[0]) == (not found.filter_node(0))
    snapshot.remove(other)


# -- claims


def test_a_missing_claim() -> None:
    one = pod("p", volumes=using("data"))
    expected = 'persistentvolumeclaim "data" not found'
    assert refusal(VolumeRestrictionsFilter, one, node("a")) == expected
    assert refusal(VolumeBindingFilter, one, node("a")) == expected
    assert refusal(VolumeZoneFilter, one, node("a")) == expected
    other = claim("data", "pv", namespace="elsewhere")
    assert refusal(VolumeBindingFilter, one, node("a"), other) == expected


def test_an_ephemeral_claim_that_does_not_exist_yet() -> None:
    one = pod("p", volumes=made())
    expected = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert refusal(VolumeBindingFilter, one, node("a")) == expected


def test_a_claim_with_another_owner_is_not_used_for_the_pod() -> None:
    one = pod("p", volumes=made())
    expected = "PVC default/p-scratch was not created for pod default/p (pod is not owner)"
    assert refusal(VolumeBindingFilter, one, claim("p-scratch", "pv"), volume("pv")) == expected
    owner = {"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
    own = claim("p-scratch", "pv", metadata={"ownerReferences": [owner]})
    snapshot = snapshot_of(node("a"), own, volume("pv"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"a"}
    bystander = claim("p-scratch", "pv", metadata={"ownerReferences": [owner | {"controller": False}]})
    assert refusal(VolumeBindingFilter, one, bystander, volume("pv")) == expected


def test_a_lost_claim() -> None:
    lost = claim("data", "pv", phase="Lost")
    expected = 'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"'
    assert refusal(VolumeBindingFilter, pod("p", volumes=using("data")), lost) == expected


def test_a_claim_being_deleted() -> None:
    leaving = claim("data", "pv", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    expected = 'persistentvolumeclaim "data" is being deleted'
    assert refusal(VolumeBindingFilter, pod("p", volumes=using("data")), leaving, volume("pv")) == expected


@pytest.mark.parametrize(
    "unbound",
    [
        claim("data"),  # no class
        claim("data", storage_class="gone"),
        claim("data", storage_class="now"),
        claim("data", "pv", storage_class="later", completed=False),  # a volume is named, but not bound yet
    ],
)
def test_an_unbound_immediate_claim(unbound: Any) -> None:
    classes = (storage_class("now"), storage_class("later", "WaitForFirstConsumer"))
    expected = "pod has unbound immediate PersistentVolumeClaims"
    assert refusal(VolumeBindingFilter, pod("p", volumes=using("data")), unbound, *classes) == expected


def test_an_unbound_immediate_claim_comes_before_claims_that_wait() -> None:
    waiting, later = claim("data", storage_class="later"), storage_class("later", "WaitForFirstConsumer")
    both = pod("p", volumes=using("data", "other"))
    unbound = "pod has unbound immediate PersistentVolumeClaims"
    assert refusal(VolumeBindingFilter, both, waiting, later, claim("other")) == unbound


def test_the_class_in_the_old_annotation_counts() -> None:
    annotated = {"annotations": {"volume.beta.kubernetes.io/storage-class": "later"}}
    waiting = claim("data", storage_class="now", metadata=annotated)
    later = storage_class("later", "WaitForFirstConsumer")
    one = pod("p", volumes=using("data"))
    assert open_places(VolumeBindingFilter, one, snapshot_of(node("a"), waiting, later)) == {"a"}


def test_a_class_without_binding_mode() -> None:
    modeless = storage_class("odd", mode=None)
    found = refusal(
        VolumeBindingFilter, pod("p", volumes=using("data")), claim("data", storage_class="odd"), modeless
    )
    assert found == 'VolumeBindingMode not set for StorageClass "odd"'


# -- volume locations


def test_a_pod_fits_where_its_volume_is_reachable() -> None:
    snapshot = snapshot_of(
        node("a", labels={"zone": "east"}), node("b", labels={"zone": "west"}), node("c"),
        claim("data", "pv"), volume("pv", zone="east"), claim("any", "free"), volume("free"),
    )  # fmt: skip
    one = pod("p", volumes=using("data"))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"a"}
    assert open_places(VolumeBindingFilter, pod("p", volumes=using("any")), snapshot) == {"a", "b", "c"}
    found = VolumeBindingFilter.pre_filter(pod_info_of(one, snapshot), snapshot)
    assert isinstance(found, Filter)
    (message,) = found.filter_node(snapshot.row_of("b") or 0)
    assert render(message) == "node(s) didn't match PersistentVolume's node affinity"
    assert message.code is VerdictCode.UNRESOLVABLE
    snapshot.set(node("b", labels={"zone": "east"}))
    assert open_places(VolumeBindingFilter, one, snapshot) == {"a", "b"}


def test_volume_affinity_has_no_match_fields() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["a"]}
    named = volume("pv", affinity={"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}})
    snapshot = snapshot_of(node("a"), claim("data", "pv"), named)
    assert open_places(VolumeBindingFilter, pod("p", volumes=using("data")), snapshot) == set()


def test_invalid_affinity_matches_no_node() -> None:
    expression = {"key": "zone", "operator": "Near", "values": ["x"]}
    odd = volume("pv", affinity={"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}})
    snapshot = snapshot_of(node("a", labels={"zone": "x"}), claim("data", "pv"), odd)
    assert open_places(VolumeBindingFilter, pod("p", volumes=using("data")), snapshot) == set()


def test_a_missing_volume() -> None:
    snapshot = snapshot_of(node("a"), claim("data", "pv"))
    one = pod("p", volumes=using("data"))
    found = VolumeBindingFilter.pre_filter(pod_info_of(one, snapshot), snapshot)
    assert isinstance(found, Filter)
    assert not found.filter()[0]
    message = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    assert [render(each) for each in found.filter_node(0)] == [message]
    assert refusal(VolumeZoneFilter, one, node("a"), claim("data", "pv")) == 'persistentvolume "pv" not found'


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({ZONE: "z1"}, {"a", "plain"}),
        ({ZONE: "z1__z2"}, {"a", "b", "plain"}),
        ({ZONE: "z1 __ z2"}, {"a", "b", "plain"}),
        ({OLD_ZONE: "z2"}, {"b", "old", "plain"}),
        ({ZONE: "z2", "topology.kubernetes.io/region": "r"}, {"plain"}),
        ({ZONE: "z1__"}, {"a", "b", "old", "plain"}),  # says nothing
        ({"zone": "z1"}, {"a", "b", "old", "plain"}),
    ],
)
def test_a_pod_fits_in_the_zone_of_its_volume(labels: dict[str, str], expected: set[str]) -> None:
    snapshot = snapshot_of(
        node("a", labels={ZONE: "z1"}), node("b", labels={ZONE: "z2"}), node("old", labels={OLD_ZONE: "z2"}),
        node("plain"), claim("data", "pv"), volume("pv", labels=labels),
    )  # fmt: skip
    assert open_places(VolumeZoneFilter, pod("p", volumes=using("data")), snapshot) == expected


def test_messages_about_zones() -> None:
    snapshot = snapshot_of(
        node("a", labels={ZONE: "z2"}), claim("data", "pv"), volume("pv", labels={ZONE: "z1"})
    )
    found = VolumeZoneFilter.pre_filter(pod_info_of(pod("p", volumes=using("data")), snapshot), snapshot)
    assert isinstance(found, Filter)
    assert [render(each) for each in found.filter_node(0)] == ["node(s) had no available volume zone"]
    assert refusal(VolumeZoneFilter, pod("p", volumes=using(""))) == "PersistentVolumeClaim had no name"


# -- for one pod alone


def test_read_write_once_pod() -> None:
    own = claim("data", "pv", modes=["ReadWriteOncePod"])
    user = pod("user", node="a", volumes=using("data"))
    snapshot = snapshot_of(node("a"), node("b"), own, volume("pv"))
    one = pod("p", volumes=using("data"))
    assert VolumeRestrictionsFilter.pre_filter(pod_info_of(one, snapshot), snapshot) is None
    snapshot.set(user)
    found = VolumeRestrictionsFilter.pre_filter(pod_info_of(one, snapshot), snapshot)
    assert isinstance(found, Filter)
    at_a, at_b = snapshot.row_of("a"), snapshot.row_of("b")
    assert at_a is not None
    assert at_b is not None
    message = (
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use "
        "by another pod"
    )
    for row in (at_a, at_b):
        assert not found.filter()[row]
        assert [render(each) for each in found.filter_node(row)] == [message]
    mask = found.resolvable_nodes(snapshot.alive)
    assert mask[at_a]
    assert not mask[at_b]
    assert found.count_reasons(snapshot.alive)[0][1] == 2
    snapshot.remove(user)
    assert VolumeRestrictionsFilter.pre_filter(pod_info_of(one, snapshot), snapshot) is None


def test_a_claim_of_the_same_name_in_another_namespace() -> None:
    own = claim("data", "pv", modes=["ReadWriteOncePod"])
    user = pod("user", node="a", namespace="elsewhere", volumes=using("data"))
    snapshot = snapshot_of(node("a"), own, volume("pv"), user)
    one = pod("p", volumes=using("data"))
    assert VolumeRestrictionsFilter.pre_filter(pod_info_of(one, snapshot), snapshot) is None


def _disk(kind: str, read_only: bool, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "disk", kind: {"readOnly": read_only, **fields}}]


@pytest.mark.parametrize(
    ("kind", "same", "other", "shared_read_only"),
    [
        ("gcePersistentDisk", {"pdName": "d"}, {"pdName": "e"}, True),
        ("awsElasticBlockStore", {"volumeID": "d"}, {"volumeID": "e"}, False),
        ("iscsi", {"iqn": "d"}, {"iqn": "e"}, True),
        (
            "rbd",
            {"monitors": ["m", "n"], "pool": "p", "image": "i"},
            {"monitors": ["x"], "pool": "p", "image": "i"},
            True,
        ),
    ],
)
def test_a_disk_is_mounted_once_on_a_node(
    kind: str, same: dict[str, Any], other: dict[str, Any], shared_read_only: bool
) -> None:
    def there(mounted: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> set[str]:
        snapshot = snapshot_of(node("a"), node("b"), pod("user", node="a", volumes=mounted))
        return open_places(VolumeRestrictionsFilter, pod("p", volumes=wanted), snapshot)

    assert there(_disk(kind, False, **same), _disk(kind, False, **same)) == {"b"}
    assert there(_disk(kind, True, **same), _disk(kind, False, **same)) == {"b"}
    assert there(_disk(kind, False, **same), _disk(kind, True, **same)) == {"b"}
    both = {"a", "b"} if shared_read_only else {"b"}
    assert there(_disk(kind, True, **same), _disk(kind, True, **same)) == both
    assert there(_disk(kind, False, **same), _disk(kind, False, **other)) == {"a", "b"}


def test_messages_about_disks() -> None:
    disk = _disk("iscsi", False, iqn="d")
    snapshot = snapshot_of(node("a"), pod("user", node="a", volumes=disk))
    found = VolumeRestrictionsFilter.pre_filter(pod_info_of(pod("p", volumes=disk), snapshot), snapshot)
    assert isinstance(found, Filter)
    (message,) = found.filter_node(0)
    assert render(message) == "node(s) had no available disk"
    assert message.resolvable


# -- volume limits


def test_volume_limits_of_a_node() -> None:
    objects = [claim(f"c{n}", f"v{n}") for n in range(4)] + [volume(f"v{n}") for n in range(4)]
    users = pod("user", node="a", volumes=using("c0", "c1"))
    snapshot = snapshot_of(
        node("a"), node("b"), node("c"), users, csi_node("a", disk_example_com=2),
        csi_node("b", disk_example_com=2), csi_node("c", disk_example_com=None), *objects,
    )  # fmt: skip
    kind = NodeVolumeLimitsFilter
    assert open_places(kind, pod("p", volumes=using("c2")), snapshot) == {"b", "c"}
    assert open_places(kind, pod("p", volumes=using("c1")), snapshot) == {"a", "b", "c"}  # there already
    assert open_places(kind, pod("p", volumes=using("c1", "c2")), snapshot) == {"b", "c"}
    assert open_places(kind, pod("p", volumes=using("c1", "c2", "c3")), snapshot) == {"c"}
    snapshot.remove(users)
    assert open_places(kind, pod("p", volumes=using("c2")), snapshot) == {"a", "b", "c"}
    snapshot.set(attachment("x", "a", "v0"))
    snapshot.set(attachment("y", "a", "v1"))
    assert open_places(kind, pod("p", volumes=using("c2")), snapshot) == {"b", "c"}  # still attached
    snapshot.remove(attachment("y", "a", "v1"))
    assert open_places(kind, pod("p", volumes=using("c2")), snapshot) == {"a", "b", "c"}
    snapshot.set(csi_node("b", disk_example_com=0))
    assert open_places(kind, pod("p", volumes=using("c2")), snapshot) == {"a", "c"}
    snapshot.remove(csi_node("b"))
    assert open_places(kind, pod("p", volumes=using("c2")), snapshot) == {"a", "b", "c"}
    found = kind.pre_filter(pod_info_of(pod("p", volumes=using("c1", "c2", "c3")), snapshot), snapshot)
    assert isinstance(found, Filter)
    (message,) = found.filter_node(snapshot.row_of("a") or 0)
    assert render(message) == "node(s) exceed max volume count"
    assert message.resolvable


def test_a_claim_without_a_volume_counts_for_its_provisioner() -> None:
    snapshot = snapshot_of(
        node("a"), csi_node("a", disk_example_com=1), storage_class("k", "WaitForFirstConsumer"),
        claim("one", storage_class="k"), claim("two", storage_class="k"),
        pod("user", node="a", volumes=using("one")),
    )  # fmt: skip
    assert open_places(NodeVolumeLimitsFilter, pod("p", volumes=using("two")), snapshot) == set()
    assert open_places(NodeVolumeLimitsFilter, pod("p", volumes=using("one")), snapshot) == {"a"}


def test_in_tree_volumes_count_for_their_csi_driver() -> None:
    disk = [{"name": "d", "awsElasticBlockStore": {"volumeID": "x"}}]
    snapshot = snapshot_of(
        node("a"), csi_node("a", ebs_csi_aws_com=1), pod("user", node="a", volumes=disk),
        claim("data", "pv"), volume("pv", awsElasticBlockStore={"volumeID": "y"}),
        claim("new", storage_class="old"), storage_class("old", provisioner="kubernetes.io/aws-ebs"),
        claim("nfs", "share"), volume("share", nfs={}),
    )  # fmt: skip
    kind = NodeVolumeLimitsFilter
    assert open_places(kind, pod("p", volumes=using("data")), snapshot) == set()
    assert open_places(kind, pod("p", volumes=using("new")), snapshot) == set()
    assert open_places(kind, pod("p", volumes=disk), snapshot) == {"a"}
    assert open_places(kind, pod("p", volumes=using("nfs")), snapshot) == {"a"}
