"""Tests of cost estimates: requests that belong in a worker."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.apiserver.handlers.negotiation import AcceptedMediaType
from plimsoll.apiserver.workers.cost import (
    MAX_INLINE_MICROSECONDS,
    estimate_write,
    is_expensive_rendering,
    is_expensive_write,
)
from tests.unit.apiserver.build import pod

CLAIMS = "resourceclaims.resource.k8s.io"
SLICES = "resourceslices.resource.k8s.io"


def text(tree: Any) -> bytes:
    return json.dumps(tree).encode()


def claim(expression: str) -> dict[str, Any]:
    exactly = {"deviceClassName": "c", "selectors": [{"cel": {"expression": expression}}]}
    return {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}


def device(number: int) -> dict[str, Any]:
    attributes = {f"attribute{each}": {"string": "value"} for each in range(16)}
    capacity = {f"capacity{each}": {"value": "10Gi"} for each in range(8)}
    return {"name": f"device-{number}", "attributes": attributes, "capacity": capacity}


def test_everyday_requests_stay_in_the_event_loop() -> None:
    containers = [
        {
            "name": f"c{number}",
            "image": "registry.example.com/team/image:v1",
            "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            "env": [{"name": f"NAME_{each}", "value": "value"} for each in range(20)],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        }
        for number in range(10)
    ]
    large = text(pod("p", containers=containers))
    assert not is_expensive_write("pods", text(pod()), "application/json", b"")
    assert not is_expensive_write("pods", large, "application/json", large)
    assert not is_expensive_write("configmaps", text({"data": {"a": "x" * 400_000}}), "application/json", b"")
    apply = "application/apply-patch+yaml"
    assert not is_expensive_write("configmaps", text({"data": {"a": "x" * 400_000}}), apply, b"")
    assert not is_expensive_write(CLAIMS, text(claim('device.driver == "d"')), "application/json", b"")
    assert not is_expensive_write(SLICES, text({"devices": [device(n) for n in range(128)]}), "", b"")


@pytest.mark.parametrize(
    ("resource", "body", "content_type"),
    [
        ("pods", text(pod("p", containers=[{"name": f"c{n}"} for n in range(3000)])), "application/json"),
        ("configmaps", text({"metadata": {"finalizers": [f"a/{n}" for n in range(5000)]}}), ""),
        (SLICES, text({"metadata": {"finalizers": [f"a/{n}" for n in range(5000)]}}), ""),
        (CLAIMS, text(claim("[1].all(x, true) || " * 200 + "true")), "application/json"),
        (CLAIMS, text(claim("true " * 1000)).replace(b"expression", b"\\u0065xpression"), "application/json"),
        ("configmaps", b"a: b\n" * 20_000, "application/yaml"),
        ("configmaps", b"{a: " + b"x" * 100_000 + b"}", "application/apply-patch+yaml"),
        ("configmaps", b"k8s\x00" + bytes(100_000), "application/vnd.kubernetes.protobuf"),
        ("configmaps", text({"data": {"a": "x" * 600_000}}), "application/json"),
    ],
)
def test_hostile_requests_go_to_a_worker(resource: str, body: bytes, content_type: str) -> None:
    assert is_expensive_write(resource, body, content_type, b"")


def test_the_object_counts_as_well_as_the_patch() -> None:
    stored = text(pod("p", containers=[{"name": f"c{n}", "image": "i"} for n in range(3000)]))
    small = b'{"metadata":{"labels":{"a":"b"}}}'
    assert not is_expensive_write("pods", small, "application/merge-patch+json", text(pod()))
    assert is_expensive_write("pods", small, "application/merge-patch+json", stored)


@pytest.mark.parametrize("operation", [b'{"op":"copy","from":"","path":"/x"}', b'{"\\u006fp":"cop\\u0079"}'])
def test_patches_that_copy_go_to_a_worker(operation: bytes) -> None:
    """A dozen copies of all before make megabytes of any object."""
    patch = b"[%s]" % b",".join([operation] * 12)
    assert is_expensive_write("pods", patch, "application/json-patch+json", text(pod()))
    assert not is_expensive_write(
        "pods", b'[{"op":"remove","path":"/x"}]', "application/json-patch+json", text(pod())
    )


def test_cost_is_monotonic() -> None:
    costs = [
        estimate_write(CLAIMS, text(claim("true || " * count + "true")), "", b"")
        for count in range(0, 2000, 100)
    ]
    assert costs == sorted(costs)
    assert costs[0] < MAX_INLINE_MICROSECONDS < costs[-1]


def test_large_objects_are_rendered_by_a_worker_unless_they_are_sent_as_stored() -> None:
    table = AcceptedMediaType("application/json", {"as": "Table", "g": "meta.k8s.io", "v": "v1"})
    raw = bytes(1 << 20)
    assert not is_expensive_rendering(raw, AcceptedMediaType())
    assert is_expensive_rendering(raw, table)
    assert is_expensive_rendering(raw, AcceptedMediaType("application/yaml"))
    assert not is_expensive_rendering(bytes(1000), AcceptedMediaType("application/yaml"))
