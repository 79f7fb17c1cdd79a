"""Volume manager: contents, updates, tokens and mounts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.errors import InputError
from plimsoll.node.volumes.manager import common_user
from tests.unit.node.volumes.volume_node import Node, a_pod


def test_config_maps_follow_their_objects(tmp_path: Path) -> None:
    node = Node(tmp_path, cm={"data": {"a": "1"}})
    pod = a_pod({"configMap": {"name": "cm"}})
    assert node.set_up(pod) == ""
    (mount,) = node.manager.mounts(pod, pod.spec.containers[0], {})
    assert (mount.target, mount.read_only) == ("/x", True)
    assert (Path(mount.source) / "a").read_text() == "1"
    node.api.objects["cm"] = {"data": {"a": "2"}}
    asyncio.run(node.manager.refresh())
    assert (Path(mount.source) / "a").read_text() == "2"
    del node.api.objects["cm"]
    asyncio.run(node.manager.refresh())
    assert (Path(mount.source) / "a").read_text() == "2", "the last contents stay"
    node.manager.forget("u1")
    node.api.objects["cm"] = {"data": {"a": "3"}}
    asyncio.run(node.manager.refresh())
    assert (Path(mount.source) / "a").read_text() == "2"


def test_secrets_are_not_readable_by_others(tmp_path: Path) -> None:
    node = Node(tmp_path, s={"data": {"p": "aHVzaA=="}})
    pod = a_pod({"secret": {"secretName": "s"}})
    assert node.set_up(pod) == ""
    path = node.source(pod)
    assert (path / "p").read_text() == "hush"
    assert all(place.stat().st_mode & 0o077 == 0 for place in path.parents[:3])


def test_projected_volumes_and_tokens_that_are_renewed(tmp_path: Path) -> None:
    node = Node(tmp_path, cm={"data": {"a": "1"}})
    sources = [
        {"configMap": {"name": "cm", "items": [{"key": "a", "path": "deep/a"}]}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 1000}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
    ]
    pod = a_pod({"projected": {"sources": sources, "defaultMode": 0o440}})
    assert node.set_up(pod) == ""
    path = node.source(pod)
    assert (path / "deep/a").read_text() == "1"
    assert (path / "labels").read_text() == 'k="v"'
    assert (path / "token").stat().st_mode & 0o777 == 0o440
    node.now = 799.0
    asyncio.run(node.manager.refresh())
    assert (path / "token").read_text() == "token-1"
    node.now = 801.0
    asyncio.run(node.manager.refresh())
    assert (path / "token").read_text() == "token-2"


def test_downward_resources(tmp_path: Path) -> None:
    node = Node(tmp_path)
    reference = {"containerName": "c", "resource": "limits.memory", "divisor": "1Ki"}
    pod = a_pod({"downwardAPI": {"items": [{"path": "limit", "resourceFieldRef": reference}]}})
    assert node.set_up(pod) == ""
    assert (node.source(pod) / "limit").read_text() == "1024"


def test_empty_directories_and_sub_paths(tmp_path: Path) -> None:
    node = Node(tmp_path)
    pod = a_pod({"emptyDir": {}}, subPathExpr="in/$(A)")
    assert node.set_up(pod) == ""
    assert node.source(pod).relative_to(tmp_path) == Path("pods/u1/volumes/kubernetes.io~empty-dir/v/in/b")
    assert node.source(pod).is_dir()
    with pytest.raises(InputError, match="invalid path"):
        node.source(a_pod({"emptyDir": {}}, subPath="../../etc"))
    top = tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/v"
    (top / "out").symlink_to("/etc")
    with pytest.raises(InputError, match="leads out of the volume"):
        node.source(a_pod({"emptyDir": {}}, subPath="out"))


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"emptyDir": {"medium": "HugePages"}}, "emptyDir.medium 'HugePages' is not supported"),
        ({"projected": {"sources": [{"clusterTrustBundle": {"path": "x"}}]}}, "clusterTrustBundle"),
        ({"hostPath": {"path": "/no/such/file", "type": "File"}}, "does not exist"),
    ],
)
def test_what_cannot_be_provided_names_the_volume_and_the_field(
    tmp_path: Path, volume: dict[str, Any], text: str
) -> None:
    problem = Node(tmp_path).set_up(a_pod(volume))
    assert problem.startswith('MountVolume.SetUp failed for volume "v" : ')
    assert text in problem


def claimed(path: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    """Return a claim `c` and the volume `pv` that it is bound to, with changes of their specs."""
    done = {"pv.kubernetes.io/bind-completed": "yes"}
    claim = {
        "metadata": {"name": "c", "namespace": "ns", "uid": "cu", "annotations": done},
        "spec": {"volumeName": "pv", **changes.get("claim", {})},
    }
    reference = {"namespace": "ns", "name": "c", "uid": "cu"}
    source = {"hostPath": {"path": str(path), "type": "DirectoryOrCreate"}, "claimRef": reference}
    volume = {"metadata": {"name": "pv"}, "spec": changes.get("volume", source)}
    return {"c": claim, "pv": volume}


def test_a_claim_is_the_directory_of_its_volume(tmp_path: Path) -> None:
    data = tmp_path / "data"
    node = Node(tmp_path / "node", **claimed(data))
    pod = a_pod({"persistentVolumeClaim": {"claimName": "c", "readOnly": True}}, subPath="deep")
    assert node.set_up(pod) == ""
    (mount,) = Node(tmp_path / "node").manager.mounts(pod, pod.spec.containers[0], {})  # a restarted agent
    assert (Path(mount.source), mount.read_only) == (data / "deep", True)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"claim": {"volumeName": ""}}, "PVC ns/c is not bound"),
        ({"claim": {"volumeMode": "Block"}}, "has volumeMode Block, but is mounted as a file system"),
        ({"volume": {"hostPath": {"path": "/"}}}, "PV pv is not bound to PVC ns/c"),
        (
            {"volume": {"csi": {}, "claimRef": {"namespace": "ns", "name": "c", "uid": "cu"}}},
            "only the sources hostPath and local are supported by this runtime",
        ),
    ],
)
def test_claims_that_cannot_be_mounted_are_reported(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    node = Node(tmp_path, **claimed(tmp_path / "data", **changes))
    assert problem in node.set_up(a_pod({"persistentVolumeClaim": {"claimName": "c"}}))
    missing = 'persistentvolumeclaim "p-v" not found'
    assert missing in node.set_up(a_pod({"ephemeral": {"volumeClaimTemplate": {}}}))


@pytest.mark.parametrize(
    ("of_pod", "of_containers", "user"),
    [
        (None, [None, None], None),
        (7, [None, None], 7),
        (7, [8, 8], 8),
        (7, [8, None], None),
        (None, [8, None], None),
        (None, [0, 0], 0),
    ],
)
def test_the_common_user_of_a_pod(
    of_pod: int | None, of_containers: list[int | None], user: int | None
) -> None:
    def context(number: int | None) -> dict[str, Any]:
        return {} if number is None else {"securityContext": {"runAsUser": number}}

    containers = [{"name": f"c{i}", **context(number)} for i, number in enumerate(of_containers)]
    tree = {"spec": {**context(of_pod), "containers": containers[1:], "initContainers": containers[:1]}}
    assert common_user(codec.convert(tree, Pod)) == user


@pytest.mark.parametrize("user", [None, os.geteuid()])
def test_a_token_is_readable_by_the_common_user_only(tmp_path: Path, user: int | None) -> None:
    node = Node(tmp_path)
    pod = a_pod({"projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}})
    if user is not None:
        pod = replace(pod, spec=replace(pod.spec, security_context={"runAsUser": user}))
    assert node.set_up(pod) == ""
    found = (node.source(pod) / "token").stat()
    assert found.st_mode & 0o777 == (0o644 if user is None else 0o600)
    assert found.st_uid == os.geteuid()
