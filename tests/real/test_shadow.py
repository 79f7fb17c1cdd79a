"""A shadow next to a real kube-scheduler, both with the same configuration file, on a real kube-apiserver.

Pods of random kinds come one after the other, so that both have the same state: every decision must be the
same, or another node with the same score. If all come at once, the two see different states: then every
difference must be marked as raced. `python -m tests.real.test_shadow --seed N --pods N [--burst]` runs more.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    REPLICA_SETS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
)
from plimsoll.scheduler.process.configuration import parse_settings
from plimsoll.scheduler.process.shadow.run import ShadowProcess
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.manifests import DRIVER, claim, device_class, resource_slice
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, missing
from tests.waiting import DEADLINE, until

NEEDED = ("etcd", "kube-apiserver", "kube-scheduler")
pytestmark = pytest.mark.skipif(bool(missing(*NEEDED)), reason=missing(*NEEDED))
NS = "default"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
IMAGES = {f"registry.example.org/app{n}:1": size << 20 for n, size in enumerate((40, 200, 700, 1500, 3000))}


def requirement(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


PROFILES: list[dict[str, Any]] = [
    {"schedulerName": "default-scheduler"},
    {
        "schedulerName": "ratio",
        "pluginConfig": [
            {
                "name": "NodeResourcesFit",
                "args": {
                    "scoringStrategy": {
                        "type": "RequestedToCapacityRatio",
                        "resources": [{"name": "cpu", "weight": 3}, {"name": "memory"}],
                        "requestedToCapacityRatio": {
                            "shape": [
                                {"utilization": 0, "score": 2},
                                {"utilization": 40, "score": 10},
                                {"utilization": 90, "score": 0},
                            ]
                        },
                    }
                },
            },
        ],
    },
    {
        "schedulerName": "packing",
        "plugins": {
            "score": {
                "disabled": [{"name": "NodeResourcesBalancedAllocation"}, {"name": "ImageLocality"}],
                "enabled": [{"name": "NodeResourcesFit", "weight": 5}],
            }
        },
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
            {"name": "PodTopologySpread", "args": {"defaultingType": "List"}},
            {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 40}},
        ],
    },
    {
        "schedulerName": "added",
        "plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}},
        "pluginConfig": [
            {
                "name": "NodeAffinity",
                "args": {
                    "addedAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [requirement("disk", "ssd", "nvme")]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 30, "preference": requirement("disk", "nvme")}
                        ],
                    }
                },
            },
            {
                "name": "PodTopologySpread",
                "args": {
                    "defaultingType": "List",
                    "defaultConstraints": [
                        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
                        {"maxSkew": 4, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"},
                    ],
                },
            },
            {"name": "InterPodAffinity", "args": {"ignorePreferredTermsOfExistingPods": True}},
        ],
    },
]


def random_node(random: Random, name: str) -> dict[str, Any]:
    labels = {HOSTNAME: name, "disk": random.choice(["hdd", "ssd", "nvme"])}
    if random.random() < 0.8:
        labels[ZONE] = random.choice("abc")
    line = {
        "cpu": str(random.choice([2, 4, 8])),
        "memory": f"{random.choice([4, 8, 16])}Gi",
        "pods": "20",
    }
    taints = [{"key": "busy", "effect": "PreferNoSchedule"}] if random.random() < 0.3 else []
    if random.random() < 0.1:
        taints.append({"key": "kept", "effect": "NoSchedule"})
    images = [
        {"names": [image], "sizeBytes": size} for image, size in IMAGES.items() if random.random() < 0.4
    ]
    status = {
        "allocatable": line,
        "capacity": line,
        "images": images,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "ready"}],
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}, "status": status}


def random_pod(random: Random, name: str, owners: dict[str, str]) -> dict[str, Any]:
    app = random.choice(["web", "db", "job"])
    containers = [
        {
            "name": f"c{number}",
            "image": random.choice([*IMAGES, "registry.example.org/none"]),
            "resources": random.choice(
                [{}, {"requests": {"cpu": random.choice(["100m", "400m", "1"]), "memory": "300Mi"}}]
            ),
        }
        for number in range(random.choice([1, 1, 2]))
    ]
    spec: dict[str, Any] = {
        "schedulerName": random.choice([profile["schedulerName"] for profile in PROFILES]),
        "containers": containers,
        "terminationGracePeriodSeconds": 0,
    }
    same = {"labelSelector": {"matchLabels": {"app": app}}}
    if random.random() < 0.2:
        key, how = random.choice([ZONE, HOSTNAME]), random.choice(["ScheduleAnyway", "DoNotSchedule"])
        spec["topologySpreadConstraints"] = [
            {"maxSkew": 2, "topologyKey": key, "whenUnsatisfiable": how, **same}
        ]
    affinity: dict[str, Any] = {}
    if random.random() < 0.2:
        kind = random.choice(["podAffinity", "podAntiAffinity"])
        term = {"weight": random.randint(1, 100), "podAffinityTerm": {"topologyKey": ZONE, **same}}
        affinity[kind] = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    if random.random() < 0.1:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, **same}]}
        affinity["podAffinity"] = {**affinity.get("podAffinity", {}), **required}
    if random.random() < 0.2:
        preference = {"weight": random.randint(1, 100), "preference": requirement("disk", "ssd")}
        affinity["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}
    if affinity:
        spec["affinity"] = affinity
    metadata: dict[str, Any] = {"name": name, "labels": {"app": app}}
    if app in owners and random.random() < 0.7:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": f"{app}-set",
                "uid": owners[app],
                "controller": True,
            }
        ]
    return {"metadata": metadata, "spec": spec}


@contextmanager
def run_kube_scheduler(directory: Path, config: ClientConfig) -> Iterator[dict[str, Any]]:
    """Run kube-scheduler with all profiles; yield its configuration."""
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
    tree: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "profiles": PROFILES,
    }
    settings = directory / "kube-scheduler.yaml"
    settings.write_text(yaml.safe_dump(tree))
    own = [f"--{kind}kubeconfig={kubeconfig}" for kind in ("authentication-", "authorization-")]
    process = Process(
        (ASSETS / "kube-scheduler", *own, "--secure-port=0", f"--config={settings}"),
        directory / "kube-scheduler.log",
    )
    process.start()
    try:
        yield tree
    finally:
        process.stop()


async def furnish(client: Client, random: Random) -> dict[str, str]:
    """Create nodes, services and ReplicaSets; return the UIDs of these by app."""
    for number in range(random.randint(4, 9)):
        tree = random_node(random, f"n{number}")
        name = tree["metadata"]["name"]
        await client.create(NODES, {"metadata": tree["metadata"]})
        await client.patch(NODES, name, {"status": tree["status"]}, subresource="status")
        # The API server taints nodes that are not ready yet.
        await client.patch(NODES, name, {"spec": {"taints": tree["spec"]["taints"] or None}})
    selector = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    await client.create(SERVICES, {"metadata": {"name": "web"}, "spec": selector}, NS)
    owners = {}
    for app in ("web", "db"):
        labels = {"matchLabels": {"app": app}}
        template = {
            "metadata": {"labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "image": "x"}]},
        }
        tree = {"metadata": {"name": f"{app}-set"}, "spec": {"selector": labels, "template": template}}
        owners[app] = (await client.create(REPLICA_SETS, tree, NS))["metadata"]["uid"]
    await client.create(DEVICE_CLASSES, device_class(DRIVER))
    for number in range(3):
        await client.create(RESOURCE_SLICES, resource_slice(f"n{number}-gpu", f"n{number}", 3))
    return owners


async def create_pod(client: Client, random: Random, name: str, owners: dict[str, str]) -> None:
    """Create a random pod; some have a claim of their own."""
    tree = random_pod(random, name, owners)
    if random.random() < 0.15:
        wanted = claim(name)
        wanted["spec"]["devices"]["requests"][0]["exactly"]["count"] = random.choice([1, 1, 2])
        await client.create(RESOURCE_CLAIMS, wanted, NS)
        tree["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
        tree["spec"]["containers"][0].setdefault("resources", {})["claims"] = [{"name": "gpu"}]
    await client.create(PODS, tree, NS)


async def run_pods(
    client: Client, process: ShadowProcess, random: Random, count: int, *, burst: bool
) -> None:
    """Create pods one after the other, each once the shadow has compared the one before, or all at once."""
    owners = await furnish(client, random)
    report = process.report
    if burst:
        await asyncio.gather(*(create_pod(client, random, f"p{number}", owners) for number in range(count)))
        await until(lambda: sum(report.pods.values()) >= count)
        return
    for number in range(count):
        await create_pod(client, random, f"p{number}", owners)
        await until(lambda wanted=number + 1: sum(report.pods.values()) >= wanted)  # type: ignore[misc]


async def compare_decisions(directory: Path, seed: int, pods: int, *, burst: bool = False) -> ShadowProcess:
    """Run a cluster; return the shadow with its report."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "server").mkdir()
    with (
        run_apiserver(ASSETS, directory / "server", "") as config,
        run_kube_scheduler(directory, config) as tree,
    ):
        settings = replace(parse_settings(tree), listen="")
        async with Client.connect(config) as client, Client.connect(config) as own:
            process = ShadowProcess(own, settings)
            task = asyncio.create_task(process.run())
            try:
                await process.ready(DEADLINE)
                await run_pods(client, process, Random(seed), pods, burst=burst)
            finally:
                process.stop()
                await asyncio.wait_for(task, DEADLINE)
            return process


def test_decisions_are_those_of_kube_scheduler(tmp_path: Path) -> None:
    process = asyncio.run(compare_decisions(tmp_path / "run", seed=1, pods=40))
    differences = [each for each in process.report.differences if not each["raced"]]
    assert not differences, process.report.format_text()
    assert process.report.pods["same"] > process.report.pods["tie"]


def test_differences_of_a_burst_are_marked_as_raced(tmp_path: Path) -> None:
    process = asyncio.run(compare_decisions(tmp_path / "run", seed=5, pods=60, burst=True))
    assert all(each["raced"] for each in process.report.differences), process.report.format_text()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--burst", action="store_true", help="create all pods at once")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        process = asyncio.run(
            compare_decisions(Path(directory) / "run", options.seed, options.pods, burst=options.burst)
        )
    sys.stdout.write(process.report.format_text())
    return 1 if any(not each["raced"] for each in process.report.differences) else 0


if __name__ == "__main__":
    sys.exit(main())
