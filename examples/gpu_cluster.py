"""Cluster with simulated GPUs: allocates partitions until no more fit.

    python examples/gpu_cluster.py

Everything runs in this process: an API server, the scheduler, and two nodes with two GPUs each, as defined in
`gpus.yaml` of `plimsoll.drivers.fake`. Partitions can be combined if they cover different memory slices.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from plimsoll.up.local_cluster import LocalCluster

#: Requested profiles, in order of creation; "7g.40gb" is a whole GPU.
PROFILES = ("7g.40gb", "3g.20gb", "3g.20gb", "2g.10gb", "1g.5gb", "7g.40gb", "2g.10gb", "3g.20gb", "7g.40gb")


def claim(name: str, profile: str) -> dict[str, Any]:
    expression = f'device.attributes["gpu.example.com"].profile == "{profile}"'
    selectors = [{"cel": {"expression": expression}}]
    exactly = {"deviceClassName": "partition.gpu.example.com", "selectors": selectors}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
    }


def pod(name: str) -> dict[str, Any]:
    container = {"name": "train", "image": "train", "resources": {"claims": [{"name": "gpu"}]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
    }


def is_decided(tree: dict[str, Any]) -> bool:
    reasons = [condition.get("reason") for condition in tree["status"]["conditions"]]
    return bool(tree["status"]["phase"] == "Running") or "Unschedulable" in reasons


def schedule_jobs() -> Iterator[str]:
    with LocalCluster(nodes=["node-a", "node-b"], scheduler=True, drivers="gpus") as cluster:
        yield f"{'POD':<8}{'PROFILE':<10}{'NODE':<8}DEVICE, OR WHY THERE IS NONE"
        for number, profile in enumerate(PROFILES):
            name = f"job-{number}"
            cluster.apply(claim(name, profile), pod(name))
            found = cluster.wait_for("pods", name, condition=is_decided, timeout=30)
            if found["status"]["phase"] == "Running":
                status = cluster.client.get("resourceclaims", name, "default")["status"]
                result = status["allocation"]["devices"]["results"][0]["device"]
            else:
                result = found["status"]["conditions"][0]["message"].partition(".")[0]
            yield f"{name:<8}{profile:<10}{found['spec'].get('nodeName', '-'):<8}{result}"


if __name__ == "__main__":
    for line in schedule_jobs():
        sys.stdout.write(line + "\n")
