"""Volumes that wait for their first consumer in `whatif` and `explain`."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.storage import (
    NO_PROVISIONER,
    CSINodeDriver,
    CSINodeSpec,
    PersistentVolume,
    PersistentVolumeClaim,
)
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.report import as_text
from plimsoll.tools.whatif import Whatif
from tests.build import node, pod
from tests.unit.scheduler.filters.volume_objects import (
    DRIVER,
    claim,
    csi_driver,
    csi_node,
    static_volume,
    storage_capacity,
    storage_class,
    using,
    waiting_class,
)

HOST = "kubernetes.io/hostname"


def host(name: str, cpu: str = "8", **labels: str) -> Any:
    return node(name, cpu=cpu, labels={HOST: name, **labels})


def whatif_of(*objects: Any) -> Whatif:
    return Whatif(ClusterState(ClusterObjects(objects)))


def placed(whatif: Whatif) -> dict[str, str]:
    outcome = whatif.schedule()
    return {each.pod[1]: each.node for each in outcome.placed}


def find(whatif: Whatif, kind: type[Any], namespace: str, name: str) -> Any:
    return whatif.cluster_state.objects.find(kind, namespace, name)


def test_pods_get_different_local_volumes() -> None:
    volumes = [static_volume(f"v{name}", host=name) for name in "ab"]
    claims = [claim(f"c{number}", storage_class="local", size="1Gi") for number in range(3)]
    pods = [pod(f"p{number}", volumes=using(f"c{number}")) for number in range(3)]
    whatif = whatif_of(host("a"), host("b"), waiting_class(), *volumes, *claims, *pods)
    outcome = whatif.schedule()
    assert {each.pod[1]: each.node for each in outcome.placed}.keys() == {"p0", "p1"}
    (left,) = outcome.pending
    assert "didn't find available persistent volumes to bind" in left.why
    bound = {
        find(whatif, PersistentVolumeClaim, "default", f"c{number}").spec.volume_name for number in (0, 1)
    }
    assert bound == {"va", "vb"}
    assert find(whatif, PersistentVolume, "", "va").status.phase == "Bound"


def test_a_provisioned_volume_stays_in_the_topology_of_its_driver() -> None:
    drivers = [
        replace(
            csi_node(name),
            spec=CSINodeSpec(drivers=(CSINodeDriver(name=DRIVER, topology_keys=("zone",)),)),
        )
        for name in "abc"
    ]
    whatif = whatif_of(
        host("a", zone="east"), host("b", zone="east", cpu="4"), host("c", zone="west", cpu="2"), *drivers,
        storage_class("fast", "WaitForFirstConsumer"),
        claim("data", storage_class="fast", size="1Gi", modes=("ReadWriteMany",)),
        pod("p", volumes=using("data")), pod("q", volumes=using("data")), pod("r", volumes=using("data")),
    )  # fmt: skip
    nodes = placed(whatif)
    assert set(nodes) == {"p", "q", "r"}
    assert set(nodes.values()) <= {"a", "b"}
    known = find(whatif, PersistentVolumeClaim, "default", "data")
    assert known.bound
    assert known.selected_node == nodes["p"]


def test_ephemeral_volumes_get_a_claim_of_the_default_class() -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    fast = storage_class("fast", "WaitForFirstConsumer")
    default = replace(fast, metadata=replace(fast.metadata, annotations=annotations))
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    whatif = whatif_of(host("a"), default)
    tree = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes},
    }  # fmt: skip
    whatif.add(tree)
    assert placed(whatif) == {"p": "a"}
    known = find(whatif, PersistentVolumeClaim, "default", "p-scratch")
    assert known.bound
    assert known.storage_class == "fast"
    assert known.metadata.owner_references[0].name == "p"


# -- explanations

LACKS = "no available volume that matches it can be reached from the node"
SELECTED = claim("data", storage_class="fast", size="5Gi", selected_node="gone")
DATA = claim("data", storage_class="fast", size="5Gi")


@pytest.mark.parametrize(
    ("things", "why"),
    [
        (
            (waiting_class("fast"), DATA),
            f"{LACKS}, and its class has no provisioner",
        ),
        (
            (storage_class("fast", "WaitForFirstConsumer"), SELECTED),
            "its volume is provisioned for node gone",
        ),
        (
            (waiting_class("fast"), DATA, static_volume("own", "9Gi", "fast", host="x", claimed_by=DATA)),
            "volume own, which refers to it, cannot be reached from the node",
        ),
        (
            (storage_class("fast", "WaitForFirstConsumer", zone=("east", "west")), DATA),
            f"{LACKS}, and its class provisions volumes only for nodes with zone in (east, west)",
        ),
        (
            (
                storage_class("fast", "WaitForFirstConsumer"), DATA, csi_driver(),
                storage_capacity("c", "fast", "4Gi", topology={}),
            ),
            f"driver {DRIVER} publishes no storage capacity of that size for the node",
        ),
    ],
)  # fmt: skip
def test_explain_names_the_claim_and_what_it_lacks(things: tuple[Any, ...], why: str) -> None:
    objects = (host("a"), pod("p", volumes=using("data")), *things)
    cluster_state = ClusterState(ClusterObjects(objects))
    text = " ".join(as_text(explain_pod(cluster_state, cluster_state.pod("p"))).split())
    assert f"claim data (5Gi, class fast) is not bound: {why}" in text
    assert 'make room for a volume of claim "data" on node a' in text


# -- manifests

STATEFUL = {
    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
    "spec": {
        "replicas": 2,
        "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
        "volumeClaimTemplates": [
            {
                "metadata": {"name": "data"},
                "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}},
            }
        ],
    },
}  # fmt: skip


def test_stateful_sets_bring_their_claims() -> None:
    whatif = whatif_of(
        host("a"), host("b"), waiting_class(), static_volume("va", host="a"),
        claim("data-db-0", "old"), static_volume("old", host="b", claimed_by=claim("data-db-0")),
    )  # fmt: skip
    whatif.add(STATEFUL)
    assert placed(whatif) == {"db-0": "b", "db-1": "a"}
    assert find(whatif, PersistentVolumeClaim, "default", "data-db-0").spec.volume_name == "old"
    assert find(whatif, PersistentVolumeClaim, "default", "data-db-1").spec.volume_name == "va"


def test_a_claim_template_needs_a_name() -> None:
    nameless = {**STATEFUL, "spec": {**STATEFUL["spec"], "volumeClaimTemplates": [{"spec": {}}]}}  # type: ignore[dict-item]
    with pytest.raises(InputError, match=r"spec.volumeClaimTemplates\[0\].metadata.name is missing"):
        whatif_of(host("a")).add(nameless)


def test_added_volumes_are_available() -> None:
    whatif = whatif_of(host("a"))
    whatif.add(
        """
        {apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data},
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
        ---
        {apiVersion: v1, kind: PersistentVolume, metadata: {name: v},
         spec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteOnce], storageClassName: local,
                hostPath: {path: /v}}}
        ---
        {apiVersion: storage.k8s.io/v1, kind: StorageClass, provisioner: kubernetes.io/no-provisioner,
         metadata: {name: local, annotations: {storageclass.kubernetes.io/is-default-class: "true"}},
         volumeBindingMode: WaitForFirstConsumer}
        ---
        {apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}],
         volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}
        """
    )
    assert placed(whatif) == {"p": "a"}
    assert find(whatif, PersistentVolumeClaim, "default", "data").spec.volume_name == "v"


def test_pods_of_a_stateful_set_are_numbered_from_its_first_ordinal() -> None:
    whatif = whatif_of(host("a"))
    spec = {**STATEFUL["spec"], "ordinals": {"start": 3}, "volumeClaimTemplates": []}  # type: ignore[dict-item]
    whatif.add({**STATEFUL, "spec": spec})
    assert sorted(placed(whatif)) == ["db-3", "db-4"]


# -- claims that do not wait for their first consumer

IMMEDIATE_CLAIM = claim("now", storage_class="zonal", size="5Gi")


def test_a_new_immediate_claim_gets_the_smallest_volume_that_matches() -> None:
    immediate = storage_class("zonal", "Immediate", NO_PROVISIONER)
    volumes = [static_volume(f"v{size}", f"{size}Gi", "zonal", host="b") for size in (9, 5, 7)]
    whatif = whatif_of(host("a"), host("b"), immediate, *volumes)
    whatif.add(IMMEDIATE_CLAIM, pod("p", volumes=using("now")))
    assert placed(whatif) == {"p": "b"}
    assert find(whatif, PersistentVolumeClaim, "default", "now").spec.volume_name == "v5"
    assert find(whatif, PersistentVolume, "", "v5").spec.claim_ref.name == "now"


def test_a_new_immediate_claim_is_provisioned_in_the_allowed_topologies() -> None:
    allowed = storage_class("zonal", zone=["west"])
    whatif = whatif_of(host("a", zone="east"), host("b", zone="west"), allowed)
    whatif.add(IMMEDIATE_CLAIM, pod("p", volumes=using("now")))
    assert placed(whatif) == {"p": "b"}


def test_an_immediate_claim_that_waits_for_its_provisioner_keeps_waiting() -> None:
    whatif = whatif_of(host("a"), storage_class("zonal"), IMMEDIATE_CLAIM, pod("p", volumes=using("now")))
    whatif.add(pod("other"))
    assert placed(whatif) == {"other": "a"}


@pytest.mark.parametrize(
    "added", [static_volume("v", "5Gi", "zonal", host="a"), storage_class("zonal")], ids=["volume", "class"]
)
def test_an_immediate_claim_that_waits_gets_what_is_added(added: Any) -> None:
    whatif = whatif_of(host("a"), IMMEDIATE_CLAIM, pod("p", volumes=using("now")))
    assert placed(whatif) == {}
    whatif.add(added)
    assert placed(whatif) == {"p": "a"}


def test_a_claim_without_a_class_gets_a_default_class_that_is_added() -> None:
    whatif = whatif_of(host("a"), claim("now", storage_class=None), pod("p", volumes=using("now")))
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    added = storage_class("zonal")
    whatif.add(replace(added, metadata=replace(added.metadata, annotations=annotations)))
    assert placed(whatif) == {"p": "a"}
    assert find(whatif, PersistentVolumeClaim, "default", "now").spec.storage_class_name == "zonal"


def test_an_undone_branch_unbinds_claims() -> None:
    whatif = whatif_of(host("a"), storage_class("zonal"))
    with whatif.branch() as branch:
        branch.add(IMMEDIATE_CLAIM)
        assert branch.cluster_state.objects.all(PersistentVolume)
    assert find(whatif, PersistentVolumeClaim, "default", "now") is None
    assert not whatif.cluster_state.objects.all(PersistentVolume)
