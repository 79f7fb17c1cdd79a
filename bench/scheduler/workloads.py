"""Benchmarked clusters: nodes with devices, and pods that claim one device each.

A workload is made of JSON trees, so that the same one serves a snapshot in this process and a remote server.
In every scenario `devices` pods fit on a node; node resources are never the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]
DRIVER = "bench.example.com"
RESOURCE = "resource.k8s.io/v1"
NAMESPACE = "bench"
TEMPLATE = "one"
CLASS = "bench"
#: With claims, without claims, and with unschedulable pods among schedulable ones.
SCENARIOS = (
    "plain",
    "consumable",
    "partitionable",
    "node-allocatable",
    "node-allocatable+consumable",
    "prioritized",
    "no-dra",
    "unschedulable",
)


@dataclass(frozen=True)
class Workload:
    """Scenario and size of a cluster."""

    scenario: str
    nodes: int
    devices: int = 8

    def __post_init__(self) -> None:
        assert self.scenario in SCENARIOS, f"unknown scenario {self.scenario}"

    @property
    def claiming(self) -> bool:
        return self.scenario != "no-dra"

    @property
    def capacity(self) -> int:
        """Return the number of pods that fit."""
        return self.nodes * self.devices

    # -- nodes and devices

    def node(self, number: int) -> Tree:
        line = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        labels = {
            "kubernetes.io/hostname": node_name(number),
            "topology.kubernetes.io/zone": f"zone-{number % 3}",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node_name(number), "labels": labels},
            "spec": {},
            "status": {
                "capacity": line,
                "allocatable": line,
                "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "made up"}],
            },
        }

    def classes(self) -> list[Tree]:
        if not self.claiming:
            return []
        expression = f'device.driver == "{DRIVER}"'
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        return [{"apiVersion": RESOURCE, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}]

    def slices(self, number: int) -> list[Tree]:
        """Return the devices of a node."""
        if not self.claiming:
            return []
        if self.scenario == "partitionable":
            counters = [{"name": "units", "counters": _amounts(self.devices)}]
            return [
                _slice(number, "counters", 2, sharedCounters=counters),
                _slice(number, "devices", 2, devices=list(self._partitions())),
            ]
        if self.scenario in ("consumable", "node-allocatable+consumable"):
            return [_slice(number, "devices", 1, devices=[self._pool("pool-0", self.devices)])]
        whole = self.devices if self.scenario != "prioritized" else self.devices // 2
        devices = [self._device(index) for index in range(whole)]
        if self.scenario == "prioritized":
            devices.append(self._pool("pool-0", self.devices - whole))
        return [_slice(number, "devices", 1, devices=devices)]

    def _device(self, index: int) -> Tree:
        attributes = {"model": {"string": "whole"}, "index": {"int": index}}
        device: Tree = {
            "name": f"dev-{index}",
            "attributes": attributes,
            "capacity": _value("memory", "80Gi"),
        }
        if self.scenario == "node-allocatable":
            mappings = {"cpu": {"allocationMultiplier": "1"}, "memory": {"allocationMultiplier": "1Gi"}}
            device["nodeAllocatableResourceMappings"] = mappings
        return device

    def _pool(self, name: str, units: int) -> Tree:
        """Return a shared device with capacity for a number of claims of one unit."""
        steps = {"default": "1", "validRange": {"min": "1", "step": "1"}}
        gib = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
        device: Tree = {
            "name": name,
            "allowMultipleAllocations": True,
            "attributes": {"model": {"string": "shared"}},
            "capacity": {
                f"{DRIVER}/cpu": {"value": str(units), "requestPolicy": steps},
                f"{DRIVER}/memory": {"value": f"{units * 2}Gi", "requestPolicy": gib},
            },
        }
        if self.scenario == "node-allocatable+consumable":
            keys = {name: {"capacityKey": f"{DRIVER}/{name}"} for name in ("cpu", "memory")}
            device["nodeAllocatableResourceMappings"] = keys
        return device

    def _partitions(self) -> Iterator[Tree]:
        """Return halves of halves, down to single units, all from one counter set."""
        size = 1
        while size <= self.devices:
            for index in range(self.devices // size):
                attributes = {"model": {"string": f"{size}u"}, "index": {"int": index}}
                yield {
                    "name": f"p{size}-{index}",
                    "attributes": attributes,
                    "capacity": _value("memory", f"{size * 10}Gi"),
                    "consumesCounters": [{"counterSet": "units", "counters": _amounts(size)}],
                }
            size *= 2

    # -- pods

    def template(self) -> Tree:
        meta = {"name": TEMPLATE, "namespace": NAMESPACE}
        spec = {"spec": self.claim_spec()}
        return {"apiVersion": RESOURCE, "kind": "ResourceClaimTemplate", "metadata": meta, "spec": spec}

    def claim_spec(self) -> Tree:
        request: Tree = {"deviceClassName": CLASS, "allocationMode": "ExactCount", "count": 1}
        share = {"capacity": {"requests": {f"{DRIVER}/cpu": "1", f"{DRIVER}/memory": "2Gi"}}}
        if self.scenario in ("consumable", "node-allocatable+consumable"):
            request |= share
        if self.scenario == "partitionable":
            request |= _only("1u")
        if self.scenario == "prioritized":
            first = {"name": "whole", **request, **_only("whole")}
            second = {"name": "share", **request, **_only("shared"), **share}
            return {"devices": {"requests": [{"name": "r", "firstAvailable": [first, second]}]}}
        return {"devices": {"requests": [{"name": "r", "exactly": request}]}}

    def claim(self, name: str) -> Tree:
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "resourceVersion": "1"}
        return {"apiVersion": RESOURCE, "kind": "ResourceClaim", "metadata": meta, "spec": self.claim_spec()}

    def pod(self, name: str, claim: str = "", scheduler: str = "default-scheduler") -> Tree:
        """Return a pod; without its own claim it gets one from the template."""
        resources: Tree = {"requests": {"cpu": "10m", "memory": "16Mi"}}
        spec: Tree = {
            "schedulerName": scheduler,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "pause:3.10", "resources": resources}],
        }
        if self.claiming:
            resources["claims"] = [{"name": "r"}]
            source = {"resourceClaimName": claim} if claim else {"resourceClaimTemplateName": TEMPLATE}
            spec["resourceClaims"] = [{"name": "r", **source}]
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "labels": {"app": "bench"}}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}

    def unschedulable_pod(self, name: str, number: int, scheduler: str = "default-scheduler") -> Tree:
        """Return a pod that fits nowhere: too large, or for a node that does not exist. Every third is
        unique.
        """
        tree = self.pod(name, scheduler=scheduler)
        tree["spec"].pop("resourceClaims", None)
        container = tree["spec"]["containers"][0]
        container["resources"] = {"requests": {"cpu": "1000", "memory": "16Mi"}}
        if number % 3 == 1:
            container["resources"] = {"requests": {"cpu": "1", "memory": "16Mi"}}
            tree["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "nowhere"}
        elif number % 3 == 2:
            container["resources"] = {"requests": {"cpu": str(1000 + number), "memory": "16Mi"}}
        return tree


def node_name(number: int) -> str:
    return f"node-{number:05d}"


def _slice(number: int, suffix: str, count: int, **body: Any) -> Tree:
    pool = {"name": node_name(number), "generation": 1, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "nodeName": node_name(number), "pool": pool, **body}
    meta = {"name": f"{node_name(number)}-{suffix}"}
    return {"apiVersion": RESOURCE, "kind": "ResourceSlice", "metadata": meta, "spec": spec}


def _value(name: str, amount: str) -> Tree:
    return {name: {"value": amount}}


def _amounts(units: int) -> Tree:
    return {"units": {"value": str(units)}, "memory": {"value": f"{units * 10}Gi"}}


def _only(model: str) -> Tree:
    expression = f'device.attributes["{DRIVER}"].model == "{model}"'
    return {"selectors": [{"cel": {"expression": expression}}]}
