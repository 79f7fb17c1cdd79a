"""A messy cluster: 50 nodes, 726 pods, 367 claims and 1,368 devices, always the same.

GPUs with partitions, whole GPUs of another driver, NICs with shared bandwidth, virtual functions, CPU devices
by NUMA node (mapped) and one by one (not mapped, so their claims are not counted), fabric-attached devices;
taints, an incomplete pool, a node past its line, nodes that are NotReady or cordoned, and many kinds of
pending pods. `messy_cluster` returns the objects as `kubectl get -o yaml` writes them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.dumps import V1

Tree = dict[str, Any]
#: Driver, pool, device and further fields of an allocation result.
Result = tuple[str, str, str, Tree]
NODES, PODS, CLAIMS, DEVICES = 50, 726, 367, 1368
#: Time of the dump.
NOW = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
GPU, ACCELERATOR, NIC, CPU, VF, FABRIC = (
    "gpu.example.com",
    "accelerator.example.net",
    "nic.example.com",
    "dra.cpu",
    "sriov.example.com",
    "fabric.example.com",
)
#: Profile -> (partitions of a GPU, memory in Gi, compute).
PROFILES = {"7g.80gb": (1, 80, 7), "3g.40gb": (2, 40, 3), "1g.10gb": (7, 10, 1)}
#: Ways in which a GPU is used: the indexes of the partitions that are allocated.
USES: tuple[dict[str, int], ...] = (
    {"7g.80gb": 1},
    {"3g.40gb": 2},
    {"3g.40gb": 1, "1g.10gb": 2},
    {"1g.10gb": 5},
    {"1g.10gb": 1},
    {"7g.80gb": 1},
    {},
    {"3g.40gb": 1},
)
#: Node -> (prefix, number, cpu, memory, taint).
POOLS = (
    ("gpu", 12, 96, 768, "nvidia.com/gpu=present:NoSchedule"),
    ("numa", 8, 64, 256, ""),
    ("pinned", 6, 34, 128, ""),
    ("infer", 4, 48, 384, "dedicated=inference:NoSchedule"),
    ("web", 20, 16, 64, ""),
)
_WORDS = "bcdfghjklmnpqrstvwxz2456789"


def messy_cluster() -> list[Tree]:
    """Return all objects."""
    return _Builder().build()


def when(**ago: float) -> str:
    return (NOW - timedelta(**ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


class _Builder:
    def __init__(self) -> None:
        self._random = random.Random(26)
        self._trees: list[Tree] = []
        self._pods = 0
        self._claims = 0
        #: Node -> cores left for plain pods.
        self._room: dict[str, int] = {}

    def build(self) -> list[Tree]:
        for name in ("kube-system", "training", "inference", "web", "payments", "batch", "monitoring"):
            self._add("v1", "Namespace", name, status={"phase": "Active"})
        for name, value in (("production", 100000), ("batch-low", -10)):
            self._add("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
        self._classes()
        for prefix, count, cpu, memory, taint in POOLS:
            for number in range(1, count + 1):
                self._node(prefix, number, cpu, memory, taint)
        fabric = [{"name": f"memory-{n}", "capacity": {"size": {"value": "512Gi"}}} for n in range(8)]
        self._slice(FABRIC, "rack-1", fabric, node="")
        self._accelerated()
        self._pending()
        while self._claims < CLAIMS:  # virtual functions of web pods
            number = self._claims % 20
            node, device = f"web-{number + 1:02d}", f"vf-{(CLAIMS - self._claims) // 20}"
            claim = self._claim(
                "web", f"edge-{self._claims:03d}", "virtual-function", [(VF, node, device, {})]
            )
            self._pod("web", f"edge-{number}", node, "250m", "256Mi", [claim])
        self._plain()
        return self._trees

    # -- objects

    def _add(self, version: str, kind: str, name: str, namespace: str = "", **body: Any) -> Tree:
        meta: Tree = {"name": name, "uid": f"{kind}-{namespace}-{name}".lower(), "resourceVersion": "1"}
        meta["creationTimestamp"] = body.pop("created", when(days=90))
        if namespace:
            meta["namespace"] = namespace
        tree = {"apiVersion": version, "kind": kind, "metadata": meta, **body}
        self._trees.append(tree)
        return tree

    def _classes(self) -> None:
        def profile(text: str) -> str:
            return f'device.driver == "{GPU}" && device.attributes["{GPU}"].profile == "{text}"'

        expressions = {
            "gpu": profile("7g.80gb"),
            "gpu-half": profile("3g.40gb"),
            "gpu-slice": profile("1g.10gb"),
            "accelerator": f'device.driver == "{ACCELERATOR}"',
            "nic": f'device.driver == "{NIC}"',
            "cpu": f'device.driver == "{CPU}" && device.allowMultipleAllocations == true',
            "exclusive-cpu": f'device.driver == "{CPU}" && device.allowMultipleAllocations != true',
            "virtual-function": f'device.driver == "{VF}"',
            "fabric-memory": f'device.driver == "{FABRIC}"',
        }
        for name, text in expressions.items():
            self._add(V1, "DeviceClass", name, spec={"selectors": [{"cel": {"expression": text}}]})

    def _node(self, prefix: str, number: int, cpu: int, memory: int, taint: str) -> None:
        name = f"{prefix}-{number:02d}"
        line = {"cpu": str(cpu), "memory": f"{memory}Gi", "ephemeral-storage": "400Gi", "pods": "110"}
        if prefix == "numa":
            line |= {"hugepages-2Mi": "8Gi", "hugepages-1Gi": "0"}
        if prefix == "infer":
            line["example.com/fpga"] = "2"
        ready = name != "web-07"
        spec: Tree = {"providerID": f"example:///{name}"}
        if taint:
            key, _, rest = taint.partition("=")
            value, _, effect = rest.partition(":")
            spec["taints"] = [{"key": key, "value": value, "effect": effect}]
        if name in ("gpu-12", "web-19"):
            spec["unschedulable"] = True
            cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
            spec["taints"] = [*spec.get("taints", []), cordon]
        version = "v1.36.2" if number % 5 == 0 else "v1.36.4"
        tree = self._add("v1", "Node", name, spec=spec, created=when(days=30 + 3 * number, hours=number))
        tree["metadata"]["labels"] = {
            "kubernetes.io/hostname": name,
            "node.kubernetes.io/instance-type": f"{prefix}.{cpu}",
            "topology.kubernetes.io/region": "north",
            "topology.kubernetes.io/zone": f"north-{'abc'[number % 3]}",
        }
        conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
        conditions.append({"type": "DiskPressure", "status": "True" if name == "web-11" else "False"})
        tree["status"] = {
            "allocatable": line,
            "capacity": {**line, "cpu": str(cpu + 2)},
            "conditions": conditions,
            "nodeInfo": {
                "kubeletVersion": version,
                "osImage": "Debian GNU/Linux 13",
                "kernelVersion": "6.12.9",
                "containerRuntimeVersion": "containerd://2.1.4",
                "architecture": "amd64",
            },
        }
        self._room[name] = cpu - (6 if name == "web-07" else 2)
        self._devices_of(prefix, name)

    def _devices_of(self, prefix: str, name: str) -> None:
        if prefix == "gpu":
            self._gpus(name)
            speed = {"bandwidth": {"value": "100G"}}
            card = {"allowMultipleAllocations": True, "capacity": speed}
            self._slice(NIC, name, [{"name": f"eth{n}", **card} for n in (0, 1)])
        elif prefix == "numa":
            self._slice(CPU, name, [_numa_cpus(n) for n in range(4)])
        elif prefix == "pinned":
            self._slice(CPU, name, [_one_cpu(n) for n in range(32)])
        elif prefix == "infer":
            self._slice(ACCELERATOR, name, [_accelerator(n) for n in range(8)])
        else:
            expected = 2 if name == "web-13" else 1  # an incomplete pool
            self._slice(VF, name, [{"name": f"vf-{n}"} for n in range(6)], expected=expected)

    def _slice(
        self, driver: str, pool: str, devices: list[Tree], *, node: str | None = None, **more: Any
    ) -> None:
        body: Tree = {"driver": driver, "devices": devices}
        generation = 3 if driver == NIC else 1
        expected = more.pop("expected", 1)
        body["pool"] = {"name": pool, "generation": generation, "resourceSliceCount": expected}
        body |= {"allNodes": True} if node == "" else {"nodeName": pool}
        suffix = more.pop("suffix", "")
        body |= more
        if not devices:
            del body["devices"]
        self._add(V1, "ResourceSlice", f"{pool}-{driver.partition('.')[0]}{suffix}", spec=body)

    def _gpus(self, name: str) -> None:
        counters = [
            {"name": f"gpu-{n}", "counters": {"memory": {"value": "80Gi"}, "compute": {"value": "7"}}}
            for n in range(8)
        ]
        self._slice(GPU, name, [], sharedCounters=counters, expected=3, suffix="-counters")
        for half in (0, 1):
            devices = [device for n in range(4 * half, 4 * half + 4) for device in _partitions(name, n)]
            self._slice(GPU, name, devices, expected=3, suffix=f"-{half}")

    def _claim(
        self,
        namespace: str,
        name: str,
        device_class: str,
        results: list[Result],
        **ask: Any,
    ) -> str:
        self._claims += 1
        wanted = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": len(results) or 1}
        request = {"name": "devices", "exactly": {**wanted, **ask}}
        spec = {"devices": {"requests": [request]}}
        tree = self._add(V1, "ResourceClaim", name, namespace, spec=spec, status={}, created=when(hours=30))
        if results:
            found = [
                {"request": "devices", "driver": driver, "pool": pool, "device": device, **more}
                for driver, pool, device, more in results
            ]
            fields = [{"key": "metadata.name", "operator": "In", "values": [results[0][1]]}]
            allocation: Tree = {"devices": {"results": found}}
            if results[0][0] != FABRIC:
                allocation["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": fields}]}
            tree["status"] = {"allocation": allocation}
            if name.endswith("13"):
                tree["metadata"]["deletionTimestamp"] = when(minutes=4)
                tree["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
        return name

    def _pod(
        self,
        namespace: str,
        workload: str,
        node: str,
        cpu: str,
        memory: str,
        claims: list[str] | None = None,
        **more: Any,
    ) -> Tree:
        name = more.pop("name", "") or f"{workload}-{''.join(self._random.choices(_WORDS, k=5))}"
        self._pods += 1
        claims = claims or []
        container: Tree = {"name": "main", "image": f"registry.example/{workload}:1"}
        container["resources"] = {"requests": {"cpu": cpu, "memory": memory}}
        if claims:
            container["resources"]["claims"] = [{"name": f"c{n}"} for n in range(len(claims))]
        spec: Tree = {"containers": [container], "priority": more.pop("priority", 0)}
        if claims:
            spec["resourceClaims"] = [
                {"name": f"c{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)
            ]
        spec["tolerations"] = [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "dedicated", "operator": "Exists"},
        ]
        created = more.pop(
            "created", when(hours=self._random.randint(1, 900), minutes=self._random.randint(0, 59))
        )
        spec |= more
        status: Tree = {"phase": "Pending"}
        if node:
            spec["nodeName"] = node
            ready = {"type": "Ready", "status": "True"}
            status = {"phase": "Running", "conditions": [ready], "startTime": created}
        tree = self._add("v1", "Pod", name, namespace, spec=spec, status=status, created=created)
        kind = "ReplicaSet" if not workload.startswith("node-") else "DaemonSet"
        owner = {"apiVersion": "apps/v1", "kind": kind, "name": workload, "uid": f"owner-{workload}"}
        tree["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        if node:
            for claim in self._trees:
                if claim["kind"] == "ResourceClaim" and claim["metadata"]["name"] in claims:
                    users = claim["status"].setdefault("reservedFor", [])
                    users.append({"resource": "pods", "name": name, "uid": tree["metadata"]["uid"]})
        return tree

    # -- pods

    def _accelerated(self) -> None:
        for number in range(1, 13):
            self._gpu_pods(f"gpu-{number:02d}", number)
        for number in range(1, 9):
            self._numa_pods(f"numa-{number:02d}", number)
        for number in range(1, 7):
            for part in range(4 if number != 2 else 3):
                cpus: list[Result] = [
                    (CPU, f"pinned-{number:02d}", f"cpu-{6 * part + n:02d}", {}) for n in range(6)
                ]
                claim = self._claim("payments", f"ledger-{number}-{part}", "exclusive-cpu", cpus)
                self._pod("payments", "ledger", f"pinned-{number:02d}", "1", "4Gi", [claim], priority=100000)
            self._room[f"pinned-{number:02d}"] -= 28
        for number in range(1, 5):
            for index in range(8 if number == 1 else 6):
                device: list[Result] = [(ACCELERATOR, f"infer-{number:02d}", f"acc-{index}", {})]
                claim = self._claim("inference", f"serve-{number}-{index}", "accelerator", device)
                self._pod("inference", "serve", f"infer-{number:02d}", "4", "32Gi", [claim])
            self._room[f"infer-{number:02d}"] -= 32

    def _gpu_pods(self, node: str, number: int) -> None:
        shares: list[Tree] = []
        for index in range(8):
            use = USES[(index + 3 * number) % len(USES)]
            for profile, count in use.items():
                kind = {"7g.80gb": "gpu", "3g.40gb": "gpu-half", "1g.10gb": "gpu-slice"}[profile]
                for part in range(count):
                    device = _partition_name(index, profile, part)
                    label = f"{kind}-{number:02d}-{index}-{part}"
                    claims = [self._claim("training", label, kind, [(GPU, node, device, {})])]
                    if profile != "1g.10gb" and len(shares) < 4:
                        speed = {"bandwidth": ("40G", "25G", "10G", "20G")[len(shares)]}
                        got = {"consumedCapacity": speed, "shareID": f"share-{label}"}
                        shares.append(got)
                        card = [(NIC, node, f"eth{len(shares) % 2}", got)]
                        ask = {"capacity": {"requests": speed}}
                        claims.append(
                            self._claim("training", f"net-{number:02d}-{index}-{part}", "nic", card, **ask)
                        )
                    cpu = {"gpu": "8", "gpu-half": "4", "gpu-slice": "1"}[kind]
                    workload = {"gpu": "pretrain", "gpu-half": "finetune", "gpu-slice": "notebook"}[kind]
                    self._pod("training", workload, node, cpu, f"{8 * int(cpu)}Gi", claims)
        self._room[node] -= 44

    def _numa_pods(self, node: str, number: int) -> None:
        for numa in range(4):
            for part, amount in enumerate((4, 6) if numa % 2 else (3,)):
                cores = {"dra.cpu/cpu": str(amount)}
                got = {"consumedCapacity": cores, "shareID": f"s-{number}-{numa}-{part}"}
                ask = {"capacity": {"requests": cores}}
                claim = self._claim(
                    "batch", f"cores-{number}-{numa}-{part}", "cpu", [(CPU, node, f"numa-{numa}", got)], **ask
                )
                self._pod("batch", "simulate", node, "0", "6Gi", [claim])
        self._room[node] -= 26

    def _pending(self) -> None:
        def wait(
            namespace: str, workload: str, ago: float, claims: list[str] | None = None, **more: Any
        ) -> None:
            cpu, memory = more.pop("cpu", "2"), more.pop("memory", "8Gi")
            created = when(minutes=ago)
            self._pod(namespace, workload, "", cpu, memory, claims, created=created, **more)

        for number in range(6):  # more GPUs on one node than there are free
            claim = self._claim("training", f"wide-{number}", "gpu", [], count=6)
            wait("training", "pretrain-wide", 190 - 30 * number, [claim], cpu="24", priority=100000)
        for number in range(4):
            claim = self._claim("inference", f"wanted-{number}", "accelerator", [], count=3)
            wait("inference", "serve-large", 45 + number, [claim], cpu="12", memory="96Gi")
        for number in range(5):
            wait("batch", "crunch", 3000 + number, cpu="90", memory="64Gi", priority=-10)
        for number in range(3):
            zone = {"topology.kubernetes.io/zone": "south-a"}
            wait("web", "frontend-south", 12 + number, nodeSelector=zone)
        for number in range(3):
            speed = {"bandwidth": "90G"}
            claim = self._claim("training", f"line-rate-{number}", "nic", [], capacity={"requests": speed})
            wait("training", "reduce", 7 + number, [claim])
        for number in range(2):
            wait(
                "payments",
                "report",
                1500,
                schedulingGates=[{"name": "example.com/quota"}],
                name=f"report-{number}",
            )
        wait("payments", "settle", 0.7, ["settle-claim"])  # the claim does not exist
        wait("monitoring", "archive", 61, cpu="1", memory="900Gi")

    def _plain(self) -> None:
        names = list(self._room)
        for node in names:
            for agent, cpu in (("node-agent", "100m"), ("node-network", "200m"), ("node-log", "50m")):
                self._pod("kube-system", agent, node, cpu, "128Mi", priority=2000001000)
        kinds = (
            ("web", "frontend", "1500m", "3Gi"),
            ("web", "search", "3", "12Gi"),
            ("payments", "gateway", "750m", "2Gi"),
            ("batch", "etl", "4", "10Gi"),
            ("monitoring", "metrics", "300m", "1200Mi"),
        )
        self._pod("batch", "import", "numa-04", "38500m", "90Gi")  # past its line, by two ledgers
        for node, cpu in (("pinned-03", "14"), ("pinned-05", "12")):  # past it with claims not counted
            self._pod("payments", "replay", node, cpu, "40Gi")
        turn = 0
        while self._pods < PODS:
            namespace, workload, cpu, memory = kinds[turn % len(kinds)]
            node = names[(turn * 7) % len(names)]
            cores = -(-int(cpu[:-1]) // 1000) if cpu.endswith("m") else int(cpu)
            turn += 1
            if self._room[node] < cores and turn < 20 * PODS:
                continue
            self._room[node] -= cores
            self._pod(namespace, workload, node, cpu, memory)


def _partition_name(gpu: int, profile: str, part: int) -> str:
    return f"gpu-{gpu}" if profile == "7g.80gb" else f"gpu-{gpu}-{profile.partition('.')[0]}-{part}"


def _partitions(node: str, gpu: int) -> Iterator[Tree]:
    for profile, (count, memory, compute) in PROFILES.items():
        for part in range(count):
            counters = {"memory": {"value": f"{memory}Gi"}, "compute": {"value": str(compute)}}
            device: Tree = {
                "name": _partition_name(gpu, profile, part),
                "attributes": {
                    f"{GPU}/profile": {"string": profile},
                    f"{GPU}/model": {"string": "Example H80"},
                    "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{gpu:02x}"},
                },
                "capacity": {f"{GPU}/memory": {"value": f"{memory}Gi"}},
                "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": counters}],
            }
            if node == "gpu-05" and gpu == 6:
                device["taints"] = [{"key": f"{GPU}/xid", "value": "79", "effect": "NoSchedule"}]
            yield device


def _numa_cpus(numa: int) -> Tree:
    return {
        "name": f"numa-{numa}",
        "allowMultipleAllocations": True,
        "attributes": {"dra.cpu/numaNode": {"int": numa}, "dra.cpu/socket": {"int": numa // 2}},
        "capacity": {"dra.cpu/cpu": {"value": "15"}},
        "nodeAllocatableResourceMappings": {
            "cpu": {"capacityKey": "dra.cpu/cpu", "allocationMultiplier": "1"}
        },
    }


def _one_cpu(number: int) -> Tree:
    return {
        "name": f"cpu-{number:02d}",
        "attributes": {
            "dra.cpu/cpuID": {"int": number},
            "dra.cpu/coreID": {"int": number // 2},
            "dra.cpu/numaNodeID": {"int": number // 16},
            "dra.cpu/socketID": {"int": 0},
        },
    }


def _accelerator(number: int) -> Tree:
    return {
        "name": f"acc-{number}",
        "attributes": {f"{ACCELERATOR}/index": {"int": number}},
        "capacity": {f"{ACCELERATOR}/memory": {"value": "48Gi"}},
    }
