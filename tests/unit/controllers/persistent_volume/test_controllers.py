"""Binder, provisioner, protection and ephemeral claims on an API in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.storage import (
    CLAIM_PROTECTION,
    HOST_PATH_PROVISIONER,
    PROVISIONED_BY,
    SELECTED_NODE,
    VOLUME_PROTECTION,
)
from plimsoll.client.endpoints import (
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    STORAGE_CLASSES,
)
from plimsoll.controllers import ControllerSettings
from plimsoll.controllers.bootstrap import ensure_default_class
from plimsoll.errors import ApiError
from tests.unit.controllers.cluster import Cluster, run_scenario

BINDER = "persistentvolume-binder-controller"
ONLY = [
    BINDER,
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
    "ephemeral-volume-controller",
    "host-path-provisioner",
]


def new_claim(name: str = "c", size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": {"name": name}, "spec": fields}


def new_volume(name: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    source = {"hostPath": {"path": f"/tmp/{name}"}}
    fields = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, **source, **spec}
    return {"metadata": {"name": name}, "spec": fields}


def new_class(name: str, mode: str = "Immediate", **fields: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name}, "provisioner": HOST_PATH_PROVISIONER, "volumeBindingMode": mode, **fields,
    }  # fmt: skip


def new_pod(name: str, volume: dict[str, Any], **spec: Any) -> dict[str, Any]:
    mount = {"name": "data", "mountPath": "/data"}
    containers = [{"name": "c", "image": "i", "volumeMounts": [mount]}]
    volumes = [{"name": "data", **volume}]
    return {"metadata": {"name": name}, "spec": {"containers": containers, "volumes": volumes, **spec}}


async def phase(cluster: Cluster, endpoint: Any, name: str) -> str | None:
    tree = await cluster.get(endpoint, name)
    return None if tree is None else str(tree["status"].get("phase"))


def run(scenario: Any, tmp_path: Path) -> None:
    run_scenario(scenario, only=ONLY, settings=ControllerSettings(volumes_dir=tmp_path / "volumes"))


def test_a_claim_is_bound_and_its_volume_retained(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(storageClassName=""), "n")
        await cluster.settle()
        assert await phase(cluster, PERSISTENT_VOLUME_CLAIMS, "c") == "Pending"
        for name, size in (("large", "5Gi"), ("fits", "2Gi")):
            await cluster.client.create(PERSISTENT_VOLUMES, new_volume(name, size))
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        assert claim["status"]["phase"] == "Bound"
        # Whichever volume became available first is bound.
        bound = claim["spec"]["volumeName"]
        assert claim["status"]["capacity"]["storage"] == {"fits": "2Gi", "large": "5Gi"}[bound]
        other = {"fits": "large", "large": "fits"}[bound]
        assert await phase(cluster, PERSISTENT_VOLUMES, bound) == "Bound"
        assert await phase(cluster, PERSISTENT_VOLUMES, other) == "Available"
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        await cluster.settle()
        assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == []
        assert await phase(cluster, PERSISTENT_VOLUMES, bound) == "Released"

    run(scenario, tmp_path)


def test_a_volume_is_provisioned_and_removed_with_its_claim(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(STORAGE_CLASSES, new_class("s"))
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(storageClassName="s"), "n")
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        name = f"pvc-{claim['metadata']['uid']}"
        assert (claim["status"]["phase"], claim["spec"]["volumeName"]) == ("Bound", name)
        directory = tmp_path / "volumes" / name
        assert directory.is_dir()
        (directory / "file").write_text("data")
        volume = await cluster.client.get(PERSISTENT_VOLUMES, name)
        assert volume["spec"]["hostPath"]["path"] == str(directory)
        assert "nodeAffinity" not in volume["spec"]
        assert ("Normal", "ProvisioningSucceeded", f"Successfully provisioned volume {name}") in (
            await cluster.events()
        )
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        await cluster.settle()
        assert await cluster.names(PERSISTENT_VOLUMES) == []
        assert not directory.exists()

    run(scenario, tmp_path)


def test_a_volume_for_the_selected_node_is_reachable_from_there_only(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await ensure_default_class(cluster.client)
        labels = {"kubernetes.io/hostname": "w"}
        await cluster.client.create(NODES, {"metadata": {"name": "w", "labels": labels}})
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(), "n")
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        assert claim["spec"]["storageClassName"] == "standard"
        assert await cluster.names(PERSISTENT_VOLUMES) == []
        selected = {"metadata": {"annotations": {SELECTED_NODE: "w"}}}
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", selected, "n")
        await cluster.settle()
        (volume,) = await cluster.trees(PERSISTENT_VOLUMES)
        terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"][0]["values"] == ["w"]
        assert await phase(cluster, PERSISTENT_VOLUME_CLAIMS, "c") == "Bound"

    run(scenario, tmp_path)


@pytest.mark.parametrize(
    ("spec", "fields", "problem"),
    [
        ({"volumeMode": "Block"}, {}, "volumeMode Block is not supported"),
        ({"selector": {"matchLabels": {"a": "b"}}}, {}, "claim.spec.selector is not supported"),
        ({}, {"parameters": {"path": "/x"}}, "unknown parameter 'path'"),
        ({}, {"mountOptions": ["noatime"]}, "mountOptions ['noatime'] are not supported"),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "o"}}, {}, "data source"),
    ],
)
def test_what_cannot_be_provisioned_is_reported(spec: Any, fields: Any, problem: str, tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(STORAGE_CLASSES, new_class("s", **fields))
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(storageClassName="s", **spec), "n")
        await cluster.settle()
        failed = [text for _, reason, text in await cluster.events() if reason == "ProvisioningFailed"]
        assert len(failed) == 1
        assert problem in failed[0]
        assert await cluster.names(PERSISTENT_VOLUMES) == []

    run(scenario, tmp_path)


def test_only_its_own_directory_is_removed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()

    async def scenario(cluster: Cluster) -> None:
        reference = {"kind": "PersistentVolumeClaim", "namespace": "n", "name": "gone", "uid": "u"}
        tree = new_volume(
            "v", claimRef=reference, hostPath={"path": str(other)}, persistentVolumeReclaimPolicy="Delete"
        )
        tree["metadata"]["annotations"] = {PROVISIONED_BY: HOST_PATH_PROVISIONER}
        await cluster.client.create(PERSISTENT_VOLUMES, tree)
        await cluster.settle()
        assert await phase(cluster, PERSISTENT_VOLUMES, "v") == "Released"
        assert other.is_dir()
        assert "VolumeFailedDelete" in [reason for _, reason, _ in await cluster.events("default")]

    run(scenario, tmp_path)


def test_a_claim_grows_if_its_class_allows_it(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(STORAGE_CLASSES, new_class("fixed"))
        await cluster.client.create(STORAGE_CLASSES, new_class("s", allowVolumeExpansion=True))
        for name, of in (("c", "s"), ("d", "fixed")):
            await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(name, storageClassName=of), "n")
        larger = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
        with pytest.raises(ApiError, match="Only bound persistent volume claims can be expanded"):
            await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", larger, "n")
        await cluster.settle()
        await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "c", larger, "n")
        with pytest.raises(ApiError, match="only dynamically provisioned pvc can be resized"):
            await cluster.client.patch(PERSISTENT_VOLUME_CLAIMS, "d", larger, "n")
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        volume = await cluster.client.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
        assert claim["status"]["capacity"] == volume["spec"]["capacity"] == {"storage": "3Gi"}

    run(scenario, tmp_path)


def test_a_claim_that_a_scheduled_pod_uses_is_protected(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.client.create(PERSISTENT_VOLUMES, new_volume("v"))
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim(storageClassName=""), "n")
        used = {"persistentVolumeClaim": {"claimName": "c"}}
        await cluster.client.create(PODS, new_pod("p", used, nodeName="w"), "n")
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        volume = await cluster.client.get(PERSISTENT_VOLUMES, "v")
        assert claim["metadata"]["finalizers"] == [CLAIM_PROTECTION]
        assert volume["metadata"]["finalizers"] == [VOLUME_PROTECTION]
        await cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "c", "n")
        await cluster.client.delete(PERSISTENT_VOLUMES, "v")
        await cluster.settle()
        assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == ["c"]
        assert await cluster.names(PERSISTENT_VOLUMES) == ["v"]
        await cluster.client.delete(PODS, "p", "n", grace=0)
        await cluster.settle()
        assert await cluster.names(PERSISTENT_VOLUME_CLAIMS) == []
        assert await cluster.names(PERSISTENT_VOLUMES) == []

    run(scenario, tmp_path)


def test_claims_of_ephemeral_volumes_are_created(tmp_path: Path) -> None:
    async def scenario(cluster: Cluster) -> None:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": new_claim()["spec"]}
        volume = {"ephemeral": {"volumeClaimTemplate": template}}
        await cluster.client.create(PERSISTENT_VOLUME_CLAIMS, new_claim("q-data"), "n")
        pod = await cluster.client.create(PODS, new_pod("p", volume), "n")
        await cluster.client.create(PODS, new_pod("q", volume), "n")
        await cluster.settle()
        claim = await cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "p-data", "n")
        assert claim["metadata"]["labels"] == {"a": "b"}
        assert claim["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]
        problems = [text for _, reason, text in await cluster.events() if "not owner" in text]
        assert problems == [
            "ephemeral volume data: PVC n/q-data was not created for pod n/q (pod is not owner)"
        ]

    run(scenario, tmp_path)
