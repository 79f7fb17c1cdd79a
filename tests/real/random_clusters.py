"""Random small clusters and batches of pods that an API server accepts, reproducible by seed.

Owns `random_story`. Nodes differ in size, labels and taints; devices are CPU pools that are shared by
capacity, cores and GPUs that charge their node by the device, partitions that draw on counters, NICs with
request policies, pools of the whole cluster; pods ask for them by one or two claims, with prioritized lists,
constraints and selectors, beside requests of their own. Amounts are such that about half of the pods fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

Tree = dict[str, Any]
T = TypeVar("T")
NS = "default"
REQUIRED, WISHED = (f"{what}DuringSchedulingIgnoredDuringExecution" for what in ("required", "preferred"))
DRA = "resource.k8s.io/v1"
POOL, CORES, GPU, PARTS, NIC, FABRIC = (
    *("pool.example.com", "cores.example.com", "gpu.example.com"),
    *("parts.example.com", "nic.example.com", "fabric.example.com"),
)
DRIVERS = (POOL, CORES, GPU, PARTS, NIC, FABRIC)


@dataclass
class RandomCluster:
    """Objects before any pod, the pods created first, and those to be predicted."""

    seed: int
    cluster: list[Tree] = field(default_factory=list)
    first: list[Tree] = field(default_factory=list)
    batch: list[Tree] = field(default_factory=list)


def random_story(seed: int) -> RandomCluster:
    return _Generator(seed).write()


class _Generator:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.random_cluster = RandomCluster(seed)
        #: Drivers that devices were published for.
        self.drivers: list[str] = []
        self.claims: list[str] = []  # that pods share

    def write(self) -> RandomCluster:
        pick = self.chance
        names = [f"n{number}" for number in range(pick.randint(2, 6))]
        wanted = [driver for driver in DRIVERS if pick.random() < 0.55] or [POOL]
        for name in names:
            self._node(name)
            for driver in wanted:
                if driver != FABRIC and pick.random() < 0.75:
                    self._slices(driver, name)
        if FABRIC in wanted:
            self._fabric()
        self.drivers = wanted
        for driver in wanted:
            self._put("DeviceClass", driver.replace(".", "-"), spec=_class_of(driver))
        for number in range(pick.choice((0, 0, 1, 2))):
            self.claims.append(f"shared-{number}")
            self._put("ResourceClaim", f"shared-{number}", NS, spec={"devices": self._devices()})
        pods: list[Tree] = []
        for number in range(pick.randint(5, 25)):
            alike = pods and self.often(0.25)
            pods.append(_again(pods[-1], f"p{number}") if alike else self._pod(f"p{number}"))
        cut = pick.randint(0, len(pods) // 2)
        self.random_cluster.first, self.random_cluster.batch = pods[:cut], pods[cut:]
        return self.random_cluster

    def often(self, part: float) -> bool:
        return self.chance.random() < part

    def some(self, things: Sequence[T], most: int = 99) -> list[T]:
        return self.chance.sample(list(things), self.chance.randint(1, min(most, len(things))))

    def _put(self, kind: str, name: str, namespace: str = "", **rest: Any) -> None:
        version = "v1" if kind == "Node" else DRA
        metadata: Tree = {"name": name, **({"namespace": namespace} if namespace else {})}
        metadata |= rest.pop("metadata", {})
        self.random_cluster.cluster.append(
            {"apiVersion": version, "kind": kind, "metadata": metadata, **rest}
        )

    # -- nodes

    def _node(self, name: str) -> None:
        pick = self.chance
        cpu, memory = pick.choice((2, 4, 8, 8, 16)), pick.choice((4, 8, 16, 32, 64))
        line = {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": str(pick.choice((3, 8, 110, 110, 110)))}
        line["ephemeral-storage"] = "100Gi"
        if self.often(0.2):
            line["example.com/widget"] = str(pick.randint(1, 3))
        if self.often(0.15):
            line["hugepages-2Mi"] = pick.choice(("64Mi", "1Gi"))
        labels = {"kubernetes.io/hostname": name, "zone": pick.choice("abc")}
        if self.often(0.5):
            labels["disk"] = pick.choice(("ssd", "hdd"))
        spec: Tree = {}
        taints = []
        if self.often(0.25):
            effect = pick.choice(("NoSchedule", "PreferNoSchedule", "NoSchedule"))
            taints.append({"key": "dedicated", "value": pick.choice(("ml", "web")), "effect": effect})
        if self.often(0.1):
            spec["unschedulable"] = True
            taints.append({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"})
        if taints:
            spec["taints"] = taints
        status = {
            "capacity": line,
            "allocatable": line,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "ready"}],
        }
        self._put("Node", name, metadata={"labels": labels}, spec=spec, status=status)

    # -- devices

    def _slices(self, driver: str, node: str) -> None:
        makers: dict[str, Callable[[], list[Tree]]] = {
            POOL: self._pool,
            CORES: self._cores,
            GPU: self._gpus,
            NIC: self._nics,
        }
        where = {"nodeName": node}
        if driver == PARTS:
            self._partitions(node)
            return
        devices = makers[driver]()
        for device in devices:
            if self.often(0.06):
                effect = self.chance.choice(("NoSchedule", "NoExecute"))
                device["taints"] = [{"key": "sick", "value": "yes", "effect": effect}]
        self._publish(driver, node, where, devices)

    def _publish(self, driver: str, pool: str, where: Tree, devices: list[Tree]) -> None:
        """Return the devices in one slice or two; sometimes the second one is missing."""
        cut = self.chance.randint(1, len(devices) - 1) if len(devices) > 1 and self.often(0.25) else 0
        parts = [devices[:cut], devices[cut:]] if cut else [devices]
        count = len(parts) + self.often(0.04)
        for number, part in enumerate(parts):
            self._slice(driver, pool, where, count, number, devices=part)

    def _slice(self, driver: str, pool: str, where: Tree, count: int, number: int, **rest: Any) -> None:
        head = {"name": pool, "generation": 1, "resourceSliceCount": int(count)}
        name = f"{pool}-{driver.partition('.')[0]}-{number}"
        self._put("ResourceSlice", name, spec={"driver": driver, "pool": head, **where, **rest})

    def _charge(self, *amounts: str) -> Tree:
        """Return the charges of a device to its node."""
        mapping: Tree = {"cpu": {"allocationMultiplier": self.chance.choice(amounts or ("1", "2", "4"))}}
        if self.often(0.3):
            mapping["memory"] = {"allocationMultiplier": self.chance.choice(("1Gi", "2Gi", "4Gi"))}
        return {"nodeAllocatableResourceMappings": mapping}

    def _pool(self) -> list[Tree]:
        pick = self.chance
        devices = []
        for number in range(pick.choice((1, 1, 2))):
            whole = pick.choice((4, 4, 8, 16))
            policy: Tree = {}
            if self.often(0.5):
                step = pick.choice(("1", "2", "500m"))
                policy = {"requestPolicy": {"default": step, "validRange": {"min": step, "step": step}}}
            mapping: Tree = {"cpu": {"capacityKey": "cpu"}}
            if self.often(0.25):
                mapping["cpu"]["allocationMultiplier"] = pick.choice(("2", "500m", "1"))
            if self.often(0.25):
                mapping["memory"] = {"allocationMultiplier": "1Gi"}
            device: Tree = {
                "name": f"numa-{number}",
                "attributes": {"numa": {"int": number}},
                "allowMultipleAllocations": True,
                "capacity": {"cpu": {"value": str(whole), **policy}},
                "nodeAllocatableResourceMappings": mapping,
            }
            devices.append(device)
        return devices

    def _cores(self) -> list[Tree]:
        same = self._charge("1", "2")
        return [
            {
                "name": f"core-{number}",
                "attributes": {"numa": {"int": number % 2}, "kind": {"string": self.chance.choice("ep")}},
                "capacity": {"cpu": {"value": "2"}},
                **(same if self.often(0.8) else self._charge()),
            }
            for number in range(self.chance.randint(1, 6))
        ]

    def _gpus(self) -> list[Tree]:
        return [
            {
                "name": f"gpu-{number}",
                "attributes": {
                    "model": {"string": self.chance.choice(("a100", "h100"))},
                    "numa": {"int": number % 2},
                    "driverVersion": {"version": self.chance.choice(("1.0.0", "2.1.0"))},
                },
                "capacity": {"memory": {"value": self.chance.choice(("40Gi", "80Gi"))}},
                **(self._charge("1", "2", "500m") if self.often(0.5) else {}),
            }
            for number in range(self.chance.randint(1, 4))
        ]

    def _nics(self) -> list[Tree]:
        pick = self.chance
        policies: list[Tree] = [
            {"default": "1G", "validValues": ["1G", "2G", "5G"]},
            {"default": "1G", "validRange": {"min": "1G", "max": "4G", "step": "1G"}},
            {"default": "2G", "validRange": {"min": "1G"}},
        ]
        devices: list[Tree] = []
        for number in range(pick.randint(1, 2)):
            bandwidth: Tree = {"value": pick.choice(("5G", "10G"))}
            shared = self.often(0.85)
            if shared and self.often(0.7):
                bandwidth["requestPolicy"] = pick.choice(policies)
            device: Tree = {
                "name": f"nic-{number}",
                "attributes": {"numa": {"int": number}, "rail": {"string": f"r{number}"}},
                "capacity": {"bandwidth": bandwidth},
            }
            if shared:
                device["allowMultipleAllocations"] = True
            if self.often(0.3):
                device |= self._charge("100m", "500m")
            devices.append(device)
        return devices

    def _partitions(self, node: str) -> None:
        where = {"nodeName": node}
        devices: list[Tree] = []
        counters = [{"name": "whole", "counters": {"slices": {"value": "8"}}}]
        for size in (8, 4, 4, 2, 2, 1):
            if not self.often(0.75):
                continue
            device: Tree = {
                "name": f"part-{size}-{len(devices)}",
                "attributes": {"profile": {"string": f"{size}g"}},
                "capacity": {"memory": {"value": f"{size * 10}Gi"}},
                "consumesCounters": [{"counterSet": "whole", "counters": {"slices": {"value": str(size)}}}],
            }
            if self.often(0.6):
                device |= self._charge(str(size), f"{size * 500}m")
            devices.append(device)
        if not devices:
            return
        self._slice(PARTS, node, where, 2, 0, sharedCounters=counters)
        self._slice(PARTS, node, where, 2, 1, devices=devices)

    def _fabric(self) -> None:
        """Return devices that are not local to a node."""
        where: Tree = {"allNodes": True}
        if self.often(0.5):
            wanted = [{"key": "zone", "operator": "In", "values": self.some("abc", 2)}]
            where = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": wanted}]}}
        devices = [
            {
                "name": f"box-{number}",
                "attributes": {"rail": {"string": f"r{number % 2}"}},
                **(self._charge("1", "500m") if self.often(0.5) else {}),
            }
            for number in range(self.chance.randint(1, 5))
        ]
        self._publish(FABRIC, "fabric", where, devices)

    # -- claims

    def _exactly(self, driver: str) -> Tree:
        pick = self.chance
        request: Tree = {"deviceClassName": driver.replace(".", "-")}
        if driver == POOL and self.often(0.85):
            amount = pick.choice(("1", "1500m", "2", "3", "4", "6"))
            request["capacity"] = {"requests": {"cpu": amount}}
        if driver == NIC and self.often(0.7):
            request["capacity"] = {"requests": {"bandwidth": pick.choice(("1G", "1500M", "2G", "4G"))}}
        if driver in (CORES, GPU, FABRIC, PARTS) and self.often(0.4):
            request["count"] = pick.choice((1, 2, 2, 3))
        if self.often(0.06):
            request.pop("count", None)
            request["allocationMode"] = "All"
        if self.often(0.35) and (text := self._selector(driver)):
            request["selectors"] = [{"cel": {"expression": text}}]
        if self.often(0.15):
            request["tolerations"] = [{"key": "sick", "operator": "Exists"}]
        return request

    def _selector(self, driver: str) -> str:
        own = f'device.attributes["{driver}"]'
        known = {
            GPU: (
                f'{own}.model == "h100"',
                f'device.capacity["{driver}"].memory.isGreaterThan(quantity("50Gi"))',
                f'{own}.driverVersion.isGreaterThan(semver("1.5.0"))',
                f"{own}.numa == 0",
            ),
            PARTS: (f'{own}.profile == "2g"', f'{own}.profile in ["4g", "1g"]'),
            CORES: (f'{own}.kind == "p"', f"{own}.numa == 1"),
            NIC: (f'{own}.rail == "r0"',),
            POOL: (f"{own}.numa == 0",),
            FABRIC: (f'{own}.rail == "r1"', f'{own}.?rail.orValue("none") != "r0"'),
        }
        return self.chance.choice(known[driver])

    def _devices(self) -> Tree:
        pick = self.chance
        requests: list[Tree] = []
        for number in range(pick.choice((1, 1, 1, 2))):
            name = f"r{number}"
            if self.often(0.25):
                ways = [pick.choice(self.drivers) for _ in range(pick.choice((2, 2, 3)))]
                listed = [{"name": f"way-{n}", **self._exactly(way)} for n, way in enumerate(ways)]
                requests.append({"name": name, "firstAvailable": listed})
            else:
                requests.append({"name": name, "exactly": self._exactly(pick.choice(self.drivers))})
        found: Tree = {"requests": requests}
        if self.often(0.2):
            rule = pick.choice(("matchAttribute", "distinctAttribute"))
            driver = pick.choice(self.drivers)
            attribute = {GPU: "model", CORES: "numa", NIC: "rail", FABRIC: "rail", PARTS: "profile"}
            found["constraints"] = [{rule: f"{driver}/{attribute.get(driver, 'numa')}"}]
        return found

    # -- pods

    def _pod(self, name: str) -> Tree:
        pick = self.chance
        containers = [self._container(f"c{number}") for number in range(pick.choice((1, 1, 2)))]
        spec: Tree = {"containers": containers}
        if self.often(0.12):
            first = self._container("init")
            if self.often(0.5):
                first["restartPolicy"] = "Always"
            spec["initContainers"] = [first]
        if self.often(0.18):
            spec["resources"] = {"requests": {"cpu": pick.choice(("1", "2", "4", "6"))}}
            if self.often(0.5):
                spec["resources"]["requests"]["memory"] = pick.choice(("2Gi", "4Gi", "8Gi"))
            _keep_within(spec)
        self._place(spec)
        if self.drivers and self.often(0.6):
            self._claim(name, spec)
        labels = {"app": pick.choice(("web", "db"))}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}

    def _container(self, name: str) -> Tree:
        pick = self.chance
        requests: Tree = {}
        if self.often(0.8):
            requests["cpu"] = pick.choice(("100m", "250m", "500m", "1", "1", "2", "3"))
        if self.often(0.6):
            requests["memory"] = pick.choice(("64Mi", "500M", "1Gi", "2Gi", "5Gi"))
        resources: Tree = {"requests": requests} if requests else {}
        if requests and self.often(0.2):
            resources["limits"] = dict(requests)
        if self.often(0.05):
            widgets = {"example.com/widget": "1"}
            resources["limits"] = resources.get("limits", {}) | widgets
        if self.often(0.04) and "cpu" in requests:
            pages = {"hugepages-2Mi": "32Mi"}
            resources["requests"] = requests | pages
            resources["limits"] = resources.get("limits", {}) | pages
        found: Tree = {"name": name, "image": "example.org/app:1", "resources": resources}
        if name == "c0" and self.often(0.06):
            found["ports"] = [{"containerPort": 80, "hostPort": 8080}]
        return found

    def _place(self, spec: Tree) -> None:
        pick = self.chance
        if self.often(0.25):
            spec["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if self.often(0.12):
            spec["nodeSelector"] = pick.choice(({"zone": "a"}, {"disk": "ssd"}, {"zone": "b"}))
        affinity: Tree = {}
        if self.often(0.1):
            wanted = [{"key": "zone", "operator": pick.choice(("In", "NotIn")), "values": ["a", "b"]}]
            affinity["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": wanted}]}}
        if self.often(0.1):
            liked = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            wishes = [{"weight": pick.choice((1, 50, 100)), "preference": liked}]
            affinity.setdefault("nodeAffinity", {})[WISHED] = wishes
        if self.often(0.08):
            term = {
                "labelSelector": {"matchLabels": {"app": pick.choice(("web", "db"))}},
                "topologyKey": pick.choice(("kubernetes.io/hostname", "zone")),
            }
            kind = pick.choice(("podAntiAffinity", "podAffinity", "podAntiAffinity"))
            if self.often(0.6):
                affinity[kind] = {REQUIRED: [term]}
            else:
                affinity[kind] = {WISHED: [{"weight": pick.randint(1, 100), "podAffinityTerm": term}]}
        if affinity:
            spec["affinity"] = affinity
        if self.often(0.08):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 1,
                    "topologyKey": pick.choice(("zone", "kubernetes.io/hostname")),
                    "whenUnsatisfiable": pick.choice(("DoNotSchedule", "ScheduleAnyway")),
                    "labelSelector": {"matchLabels": {"app": "web"}},
                }
            ]

    def _claim(self, name: str, spec: Tree) -> None:
        entries = []
        for number in range(self.chance.choice((1, 1, 1, 2))):
            entry: Tree = {"name": f"claim-{number}"}
            if number < len(self.claims) and self.often(0.2):
                entry["resourceClaimName"] = self.claims[number]
            else:
                template = f"{name}-{number}"
                self._put("ResourceClaimTemplate", template, NS, spec={"spec": {"devices": self._devices()}})
                entry["resourceClaimTemplateName"] = template
            entries.append(entry)
            users = [] if self.often(0.05) else self.some(spec["containers"])
            if "initContainers" in spec and self.often(0.3):
                users.append(spec["initContainers"][0])
            for container in users:
                container["resources"].setdefault("claims", []).append({"name": entry["name"]})
        spec["resourceClaims"] = entries


def _keep_within(spec: Tree) -> None:
    """Limit container requests to the pod-level resources, as the API requires."""
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        resources = container["resources"]
        resources.pop("limits", None)
        if "requests" in resources:
            resources["requests"] = {"cpu": "250m", "memory": "256Mi"}


def _again(pod: Tree, name: str) -> Tree:
    """Return another pod like one; templates can be shared."""
    return {**pod, "metadata": {**pod["metadata"], "name": name}}


def _class_of(driver: str) -> Tree:
    return {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
