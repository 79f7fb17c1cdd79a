"""Benchmark of decoding: 10,000 pods and 1,000 slices of 128 devices.

    python -m bench.decode

Prints CPU seconds for our typed views beside the standard library's json and msgspec's plain dicts, and the
ratios. Everything decoded is kept alive until the run ends, as an informer's first list would be.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bench.clock import best
from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import Wire
from plimsoll.api.resource import ResourceSlice


def make_pod(n: int) -> dict[str, Any]:
    containers = [
        {
            "name": f"c{i}",
            "image": "registry.example/app:1.2.3",
            "env": [{"name": f"KEY_{k}", "value": f"value-{n}-{k}"} for k in range(4)],
            "resources": {
                "requests": {"cpu": f"{100 + n % 50}m", "memory": f"{64 + n % 64}Mi"},
                "limits": {"cpu": "2", "memory": "1Gi"},
                "claims": [{"name": "gpu"}],
            },
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/token", "readOnly": True}],
        }
        for i in range(2)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{n}",
            "namespace": f"ns-{n % 40}",
            "uid": f"5c1f8a2e-0000-4000-8000-{n:012d}",
            "resourceVersion": str(1000 + n),
            "labels": {"app": f"app-{n % 100}", "tier": "web"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}],
        },
        "spec": {
            "containers": containers,
            "nodeName": f"node-{n % 500}",
            "schedulerName": "plimsoll",
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
            ],
        },
        "status": {
            "phase": "Running",
            "conditions": [{"type": t, "status": "True"} for t in ("PodScheduled", "Ready", "Initialized")],
            "nodeAllocatableResourceClaimStatuses": [
                {"resourceClaimName": f"pod-{n}-gpu", "containers": ["c0"], "resources": {"cpu": "2"}}
            ],
        },
    }


def make_slice(n: int) -> dict[str, Any]:
    devices = [
        {
            "name": f"gpu-{d}",
            "attributes": {
                "model": {"string": "a100" if d % 2 else "h100"},
                "uuid": {"string": f"GPU-{n:04d}-{d:04d}"},
                "numa": {"int": d % 8},
                "driverVersion": {"version": "535.104.5"},
            },
            "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "6912"}},
            "nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "2"}},
        }
        for d in range(128)
    ]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"slice-{n}", "uid": f"u{n}", "resourceVersion": str(n)},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": f"node-{n}",
            "pool": {"name": f"node-{n}", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def measure(what: str, objects: list[dict[str, Any]], view: type[Wire]) -> None:
    texts = [msgspec.json.encode(tree) for tree in objects]
    size = sum(map(len, texts)) / len(texts) / 1024
    ours = best(lambda: [codec.decode(text, view) for text in texts])
    plain = best(lambda: [msgspec.json.decode(text) for text in texts])
    stdlib = best(lambda: [json.loads(text) for text in texts])
    print(
        f"{len(texts):6,} {what} of {size:5.1f} KiB: {ours:6.3f} s, {len(texts) / ours:9,.0f}/s; "
        f"msgspec dicts {plain / ours:4.2f} x that, json {stdlib / ours:4.2f} x"
    )


if __name__ == "__main__":
    measure("pods", [make_pod(n) for n in range(10_000)], Pod)
    measure("slices", [make_slice(n) for n in range(1_000)], ResourceSlice)
