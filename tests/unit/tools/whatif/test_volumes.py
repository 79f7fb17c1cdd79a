"""Volumes that wait for their first consumer in `whatif` and `explain`."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api.storage import (
    CSINodeDriver,
    CSINodeSpec,
    PersistentVolume,
    PersistentVolumeClaim,
)
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
