"""Random clusters as the JSON of their objects, with a pending pod `p` that may or may not fit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
V1 = "resource.k8s.io/v1"
GPU, NIC, CPU = "gpu.example.com", "nic.example.com", "cpu.example.com"
PLUGIN, SERVED = "vendor.example.com/fpga", "example.com/gpu"
MODELS = ("a100", "h100")
TAINTS = (
    ("team", "ml", "NoSchedule"),
    ("dirty", "", "NoExecute"),
    ("node.kubernetes.io/not-ready", "", "NoSchedule"),
)
OWNERS = ("ReplicaSet", "Job", "StatefulSet", "DaemonSet", "")
_TYPE = f'device.driver == "{GPU}" && device.attributes["{GPU}"].type == '


def make(version: str, kind: str, name: str, namespace: str = "", **fields: Any) -> Tree:
    metadata = {"name": name, "uid": f"uid-{kind}-{name}"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def random_cluster(seed: int) -> list[Tree]:
    """Return the objects of a cluster; the same number makes the same ones."""
    chance = random.Random(seed)
    cluster = _Cluster(chance)
    return [*cluster.classes(), *cluster.nodes(chance.randint(1, 3)), *cluster.pending()]


class _Cluster:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.shared_claim = ""

    def often(self, times: int) -> bool:
        return self.chance.randrange(times) == 0

    def classes(self) -> Iterator[Tree]:
        for name, selector in {
            "gpu": f'{_TYPE}"gpu"',
            "part": f'{_TYPE}"part"',
            "nic": f'device.driver == "{NIC}"',
            "cpu": f'device.driver == "{CPU}"',
        }.items():
            spec: Tree = {"selectors": [{"cel": {"expression": selector}}]}
            spec |= {"extendedResourceName": SERVED} if name == "gpu" else {}
            yield make(V1, "DeviceClass", name, spec=spec)

    # -- nodes and their pods

    def nodes(self, count: int) -> Iterator[Tree]:
        if self.often(4):
            devices = [{"name": f"channel-{number}"} for number in range(self.chance.randint(1, 2))]
            yield self.slice("network", NIC, devices, allNodes=True)
        for number in range(count):
            yield from self.node(f"n{number}")

    def node(self, name: str) -> Iterator[Tree]:
        line = {
            "cpu": str(self.chance.randint(2, 8)),
            "memory": "8Gi",
            "pods": str(self.chance.randint(6, 9)),
        }
        if self.often(4):
            line[PLUGIN] = "2"
        tree = make("v1", "Node", name, spec={}, status={"allocatable": line, "capacity": dict(line)})
        tree["metadata"]["labels"] = {"kubernetes.io/hostname": name, "zone": self.chance.choice("ab")}
        if self.often(6):
            tree["spec"]["unschedulable"] = True
        if self.often(3):
            key, value, effect = self.chance.choice(TAINTS)
            tree["spec"]["taints"] = [{"key": key, "effect": effect} | ({"value": value} if value else {})]
        yield tree
        for number in range(self.chance.randint(0, 3)):
            pod = self.pod(f"{name}-plain{number}", self.chance.randint(0, 3), node=name)
            if self.often(3):
                pod["spec"]["containers"][0]["ports"] = [
                    {"containerPort": 80, "hostPort": 80, "protocol": "TCP"}
                ]
            yield pod
        for make_devices in self.chance.sample((self.gpus, self.partitions, self.nics, self.cpus), 2):
            yield from make_devices(name)

    def slice(self, name: str, driver: str, devices: list[Tree], count: int = 1, **fields: Any) -> Tree:
        pool = {"name": name.partition(".")[0], "generation": 1, "resourceSliceCount": count}
        spec = {"driver": driver, "pool": pool, "devices": devices, **fields}
        return make(V1, "ResourceSlice", f"{name}-{driver}", spec=spec)

    def gpus(self, node: str) -> Iterator[Tree]:
        devices = []
        for number in range(self.chance.randint(1, 3)):
            attributes = {
                "type": "gpu",
                "model": self.chance.choice(MODELS),
                "numa": self.chance.randint(0, 1),
            }
            device: Tree = {"name": f"g{number}", "attributes": _attributes(attributes)}
            device["capacity"] = {"memory": {"value": self.chance.choice(("40Gi", "80Gi"))}}
            if self.often(5):
                device["taints"] = [{"key": "sick", "effect": "NoSchedule"}]
            if self.often(3):
                device["nodeAllocatableResourceMappings"] = {"cpu": {"allocationMultiplier": "1"}}
            devices.append(device)
            if self.often(2):
                yield from self.holder(node, GPU, f"g{number}", "gpu", number)
        count = 2 if self.often(6) else 1
        yield self.slice(node, GPU, devices, count, nodeName=node)

    def partitions(self, node: str) -> Iterator[Tree]:
        """One GPU as a whole or as four parts; its pool is another one than that of `gpus`."""
        amounts = {"whole": ("gpu", "80Gi"), **{f"part{number}": ("part", "20Gi") for number in range(4)}}
        devices = [
            {
                "name": name,
                "attributes": _attributes({"type": kind, "model": "h100", "numa": 0}),
                "capacity": {"memory": {"value": amount}},
                "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}],
            }
            for name, (kind, amount) in amounts.items()
        ]
        pool = f"{node}-mig"
        counters = [{"name": "gpu", "counters": {"memory": {"value": "80Gi"}}}]
        sets = self.slice(f"{pool}.sets", GPU, [], 2, nodeName=node, sharedCounters=counters)
        del sets["spec"]["devices"]
        yield sets
        yield self.slice(pool, GPU, devices, 2, nodeName=node)
        if self.often(2):
            held = self.chance.choice(("whole", "part0", "part1"))
            yield from self.holder(node, GPU, held, "part", 9, pool=pool)

    def nics(self, node: str) -> Iterator[Tree]:
        policy = {"default": "10G", "validRange": {"min": "10G", "step": "10G"}}
        device = {
            "name": "nic0",
            "allowMultipleAllocations": True,
            "attributes": _attributes({"numa": self.chance.randint(0, 1)}),
            "capacity": {"bandwidth": {"value": "100G", "requestPolicy": policy}},
        }
        yield self.slice(node, NIC, [device], nodeName=node)
        if self.often(2):
            used = {"bandwidth": f"{self.chance.choice((30, 60, 100))}G"}
            share = {"shareID": f"00000000-0000-4000-8000-0000000000{node[1:]:>02}", "consumedCapacity": used}
            yield from self.holder(node, NIC, "nic0", "nic", 8, **share)

    def cpus(self, node: str) -> Iterator[Tree]:
        device: Tree = {
            "name": "numa0",
            "allowMultipleAllocations": True,
            "capacity": {"cpu": {"value": "4", "requestPolicy": {"default": "1"}}},
            "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "cpu"}},
        }
        yield self.slice(node, CPU, [device], nodeName=node)

    def holder(
        self, node: str, driver: str, device: str, kind: str, number: int, **fields: Any
    ) -> Iterator[Tree]:
        """A claim that holds a device, mostly with a pod that uses it."""
        name = f"{node}-c{number}"
        result = {"request": "r", "driver": driver, "pool": node, "device": device, **fields}
        claim = self.claim(name, [{"name": "r", "exactly": self.body(kind)}])
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
        claim["status"] = {"allocation": allocation}
        yield claim
        if not self.often(5):
            pod = self.pod(f"{node}-user{number}", self.chance.randint(0, 1), node=node, claims=[name])
            user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
            claim["status"]["reservedFor"] = [user]
            yield pod
            self.shared_claim = name

    def pod(self, name: str, cpu: int, node: str = "", claims: list[str] | None = None) -> Tree:
        resources: Tree = {"requests": {"cpu": str(cpu)}} if cpu else {}
        if claims:
            resources["claims"] = [{"name": each} for each in claims]
        spec: Tree = {"containers": [{"name": "main", "image": "i", "resources": resources}]}
        if claims:
            spec["resourceClaims"] = [{"name": each, "resourceClaimName": each} for each in claims]
        if node:
            spec |= {"nodeName": node, "priority": self.chance.choice((0, 0, 1000))}
        pod = make("v1", "Pod", name, "default", spec=spec)
        owner = self.chance.choice(OWNERS)
        if node and owner:
            reference = {"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": True}
            pod["metadata"]["ownerReferences"] = [reference]
        pod["metadata"]["labels"] = {"app": self.chance.choice(("web", "db"))}
        return pod

    def claim(self, name: str, requests: list[Tree], constraints: list[Tree] | None = None) -> Tree:
        devices: Tree = {"requests": requests} | ({"constraints": constraints} if constraints else {})
        return make(V1, "ResourceClaim", name, "default", spec={"devices": devices})

    # -- the pending pod

    def pending(self) -> Iterator[Tree]:
        claims = []
        for name in ("c", "d")[: self.chance.choice((0, 1, 1, 1, 2))]:
            if self.often(20):
                claims.append("missing")
                continue
            requests = [self.request("r")] + ([self.request("s")] if self.often(4) else [])
            numa = [{"matchAttribute": f"{GPU}/numa"}] if self.often(4) else None
            yield self.claim(name, requests, numa)
            claims.append(name)
        if self.shared_claim and self.often(8):
            claims.append(self.shared_claim)
        pod = self.pod("p", self.chance.choice((0, 0, 1, 2, 4, 9)), claims=claims)
        spec, main = pod["spec"], pod["spec"]["containers"][0]
        if self.often(4):
            resource = self.chance.choice((PLUGIN, SERVED, "example.com/gpus"))
            amount = str(self.chance.randint(1, 3))
            main["resources"].setdefault("requests", {})[resource] = amount
            main["resources"]["limits"] = {resource: amount}
        if self.often(4):
            spec["nodeSelector"] = {"zone": self.chance.choice("abc")}
        if self.often(5):
            spec["affinity"] = self.affinity()
        if self.often(4):
            main["ports"] = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]
        if self.often(3):
            spec["tolerations"] = [{"key": self.chance.choice(("team", "dirty")), "operator": "Exists"}]
        if self.often(6):
            labels = {"matchLabels": {"app": pod["metadata"]["labels"]["app"]}}
            spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
            spec["topologySpreadConstraints"] = [{**spread, "labelSelector": labels}]
        if self.often(10):
            spec["schedulingGates"] = [{"name": "example.com/quota"}]
        yield pod

    def affinity(self) -> Tree:
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        if self.often(2):
            term: Tree = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
            return {self.chance.choice(("podAffinity", "podAntiAffinity")): {required: [term]}}
        wanted = [
            {"key": "zone", "operator": "In", "values": [self.chance.choice("abc")]},
            {"key": "disk", "operator": "Exists"},
        ]
        term = {"matchExpressions": wanted[: self.chance.randint(1, 2)]}
        return {"nodeAffinity": {required: {"nodeSelectorTerms": [term]}}}

    def request(self, name: str) -> Tree:
        if self.often(6):
            kinds = self.chance.sample(("gpu", "part", "nic"), 2)
            return {"name": name, "firstAvailable": [{"name": each, **self.body(each)} for each in kinds]}
        return {
            "name": name,
            "exactly": self.body(self.chance.choice(("gpu", "gpu", "part", "nic", "cpu", "gpus"))),
        }

    def body(self, kind: str) -> Tree:
        body: Tree = {"deviceClassName": kind, "allocationMode": "ExactCount", "count": 1}
        if kind in ("gpu", "part"):
            body["count"] = self.chance.choice((1, 1, 1, 2, 3))
            if self.often(3):
                attribute, value = self.chance.choice(
                    (("model", '"a100"'), ("model", '"b200"'), ("numa", "2"))
                )
                selector = f'device.attributes["{GPU}"].{attribute} == {value}'
                body["selectors"] = [{"cel": {"expression": selector}}]
        elif kind == "nic" and self.often(2):
            body["capacity"] = {"requests": {"bandwidth": f"{self.chance.choice((50, 80, 110))}G"}}
        elif kind == "cpu":
            body["capacity"] = {"requests": {"cpu": str(self.chance.choice((1, 3, 5)))}}
        return body


def _attributes(values: Tree) -> Tree:
    return {name: {"int" if isinstance(value, int) else "string": value} for name, value in values.items()}
