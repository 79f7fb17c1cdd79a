"""Tests of the volumes on which the placement of a pod depends."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.codec import convert, encode
from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import placement_spec, placement_volumes


def _pod(volumes: list[dict[str, Any]], mounts: tuple[str, ...] = ()) -> Pod:
    container = {"name": "c", "volumeMounts": [{"name": name, "mountPath": "/" + name} for name in mounts]}
    return convert({"spec": {"volumes": volumes, "containers": [container]}}, Pod)


@pytest.mark.parametrize(
    ("volume", "counts"),
    [
        ({}, False),
        ({"emptyDir": {}}, False),
        ({"projected": {"sources": []}}, False),
        ({"hostPath": {"path": "/x"}}, False),
        ({"persistentVolumeClaim": {"claimName": "c"}}, True),
        ({"ephemeral": {}}, True),
        ({"image": {"reference": "i"}}, True),
        ({"awsElasticBlockStore": {"volumeID": "v"}}, True),
        ({"csi": {"driver": "d"}}, True),
        ({"ofTheFuture": {}}, True),
        ({"emptyDir": {}, "persistentVolumeClaim": {"claimName": "c"}}, True),
    ],
)
def test_volumes_that_matter(volume: dict[str, Any], counts: bool) -> None:
    volume = {"name": "v", **volume}
    assert placement_volumes(_pod([volume]).spec) == ((volume,) if counts else ())


def test_pods_that_differ_in_their_token_volume_have_equal_specs() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}

    def spec(name: str) -> bytes:
        pod = _pod([claim, {"name": name, "projected": {"sources": []}}], ("data", name))
        return encode(placement_spec(pod.spec))

    assert spec("kube-api-access-aaaaa") == spec("kube-api-access-bbbbb")
    plain = _pod([])
    assert placement_spec(plain.spec) is plain.spec
    assert encode(placement_spec(_pod([claim], ("data",)).spec)) != encode(placement_spec(plain.spec))
