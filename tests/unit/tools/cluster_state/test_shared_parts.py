"""Shared parts: the same views as without sharing, equal parts once, and the same errors."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.errors import DecodeError
from plimsoll.tools.cluster_state.shared_parts import SharedParts


def _slice(name: str, devices: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "uid": name},
        "spec": {"driver": "gpu.example.com", "nodeName": name, "pool": {"name": name}, "devices": devices},
    }


def _claim(name: str, spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "work", "uid": name},
        "spec": spec,
    }


def _device(name: str, memory: str) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"model": {"string": "m80"}},
        "capacity": {"memory": {"value": memory}},
    }


def test_equal_parts_are_shared_and_views_are_those_of_the_codec() -> None:
    chance = random.Random(26)
    parts = SharedParts()
    for number in range(200):
        devices: Any = [
            _device(f"gpu-{index}", chance.choice(["80Gi", "40Gi", "81920Mi"]))
            for index in range(chance.randrange(3))
        ]
        tree = _slice(f"node-{number}", chance.choice([devices, devices, None]))
        if chance.random() < 0.1:
            del tree["spec"]["devices"]
        expected = codec.convert(tree, ResourceSlice)
        raw = json.dumps(tree, indent=chance.choice([None, 4])).encode()
        for found in (parts.decode(raw, ResourceSlice), parts.convert(tree, ResourceSlice)):
            assert type(found) is ResourceSlice
            assert found == expected
            assert codec.encode(found) == codec.encode(expected)  # the texts of quantities, too
        exactly = {"deviceClassName": chance.choice(["gpu", "nic"])}
        claim = _claim(f"c-{number}", {"devices": {"requests": [{"name": "r", "exactly": exactly}]}})
        found_claim = parts.decode(json.dumps(claim).encode(), ResourceClaim)
        assert found_claim == codec.convert(claim, ResourceClaim)


@pytest.mark.parametrize("as_json", [True, False])
def test_equal_devices_are_one_object(as_json: bool) -> None:
    parts = SharedParts()
    trees = [_slice(name, [_device("gpu-0", "80Gi")]) for name in ("a", "b")]
    one, other = (
        parts.decode(json.dumps(tree).encode(), ResourceSlice)
        if as_json
        else parts.convert(tree, ResourceSlice)
        for tree in trees
    )
    assert one.spec.devices is other.spec.devices
    assert one.spec.node_name != other.spec.node_name


@pytest.mark.parametrize("devices", ["none", [1], [{"name": 1}], [{"capacity": {"memory": {"value": "x"}}}]])
def test_errors_are_those_of_the_codec(devices: Any) -> None:
    tree = _slice("a", devices)
    with pytest.raises(DecodeError) as expected:
        codec.convert(tree, ResourceSlice)
    raw = json.dumps(tree).encode()
    with pytest.raises(DecodeError) as found:
        SharedParts().convert(tree, ResourceSlice)
    assert str(found.value) == str(expected.value)
    with pytest.raises(DecodeError) as found:
        SharedParts().decode(raw, ResourceSlice)
    assert str(found.value) == str(expected.value)
