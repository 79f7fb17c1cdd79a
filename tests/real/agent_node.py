"""Node agent with containerd, the CPU driver and the memory driver, as processes on this machine.

The API server and the scheduler are those of a LocalCluster. Containers are observed from outside: by their
cgroups and by `/proc`.
"""

from __future__ import annotations

import re
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from plimsoll.api.cpuset import CpuSet
from plimsoll.up.local_cluster import LocalCluster
from tests.cluster.kube_apiserver import free_ports
from tests.real.cgroup_root import hierarchies
from tests.real.kubelet import IMAGE, Process, RealNode
from tests.waiting import DEADLINE, PATIENCE, wait_until

NAME = "real"
Tree = dict[str, Any]
_SYSTEM = Path("/sys/devices/system")
_CLASSES = {
    "dra.cpu": 'device.driver == "dra.cpu"',
    "dra.memory": 'device.driver == "dra.memory" && device.attributes["dra.memory"].resource == "memory"',
}


@dataclass(frozen=True)
class MachineTopology:
    """CPUs of this machine as the kernel describes them: NUMA nodes by number, full cores, L3 caches."""

    online: CpuSet
    nodes: Mapping[int, CpuSet]
    cores: frozenset[CpuSet]
    caches: frozenset[CpuSet]


def read_topology() -> MachineTopology:
    online = CpuSet.parse((_SYSTEM / "cpu/online").read_text().strip())
    nodes = {
        int(path.name.removeprefix("node")): CpuSet.parse((path / "cpulist").read_text().strip())
        for path in _SYSTEM.glob("node/node[0-9]*")
    }
    cores, caches = set(), set()
    for cpu in online:
        directory = _SYSTEM / f"cpu/cpu{cpu}"
        cores.add(CpuSet.parse((directory / "topology/thread_siblings_list").read_text().strip()))
        for cache in directory.glob("cache/index*"):
            if (cache / "level").read_text().strip() == "3":
                caches.add(CpuSet.parse((cache / "shared_cpu_list").read_text().strip()))
    return MachineTopology(online, nodes or {0: online}, frozenset(cores), frozenset(caches))


def container(name: str, *, claim: str = "", **more: Any) -> Tree:
    """Return a container; it may use a claim of its pod."""
    tree: Tree = {"name": name, "image": IMAGE, "command": ["/bin/sleep", "1000000"], **more}
    if claim:
        tree["resources"] = {**tree.get("resources", {}), "claims": [{"name": claim}]}
    return tree


def pod(name: str, *containers: Tree, templates: Sequence[str] = ()) -> Tree:
    """Return a pod with a claim of each template, and of the same name."""
    spec: Tree = {"containers": list(containers), "terminationGracePeriodSeconds": 0}
    spec["resourceClaims"] = [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def template(name: str, *requests: Tree, **devices: Any) -> Tree:
    """Return a claim template with requests, and with `constraints` or `config`."""
    spec = {"devices": {"requests": list(requests), **devices}}
    kind: Tree = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return {**kind, "metadata": {"name": name}, "spec": {"spec": spec}}


def request(name: str, class_name: str, amounts: Mapping[str, str], *expressions: str) -> Tree:
    exactly: Tree = {"deviceClassName": class_name, "capacity": {"requests": dict(amounts)}}
    if expressions:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in expressions]
    return {"name": name, "exactly": exactly}


@dataclass(frozen=True)
class RunningContainer:
    """Main process of a container, seen from outside."""

    pid: int
    id: str
    pod_uid: str
    qos: str

    @property
    def cgroup(self) -> str:
        """Path of its cgroup, in the hierarchy of cpusets."""
        for line in Path(f"/proc/{self.pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" and not hierarchies()[0]:
                return path
            if "cpuset" in controllers.split(","):
                return path
        raise AssertionError("the process has no cpuset")

    def _directory(self, controller: str) -> Path:
        first, second = hierarchies()
        mount = next((each for each in first if controller in each.name.split(",")), None)
        return (mount or second[0]) / self.cgroup[1:]

    def effective(self, what: str) -> CpuSet:
        """Return the effective `cpus` or `mems` of its cgroup."""
        directory = self._directory("cpuset")
        names = (f"cpuset.{what}.effective", f"cpuset.effective_{what}")
        found = [(directory / name).read_text().strip() for name in names if (directory / name).exists()]
        return CpuSet.parse(found[0])

    def pod_value(self, controller: str, v2: str, v1: str) -> str:
        """Return a value of the pod's cgroup."""
        file = v1 if hierarchies()[0] else v2
        return (self._directory(controller).parent / file).read_text().strip()

    def allowed(self, what: str) -> CpuSet:
        """Return the `Cpus` or `Mems` that the kernel allows the process."""
        found = re.search(
            rf"^{what}_allowed_list:\s*(\S+)", Path(f"/proc/{self.pid}/status").read_text(), re.M
        )
        assert found
        return CpuSet.parse(found[1])

    def environment(self, prefix: str) -> str:
        """Return the value of the only variable whose name begins so."""
        words = Path(f"/proc/{self.pid}/environ").read_text().split("\0")
        (value,) = {word.partition("=")[2] for word in words if word.startswith(prefix)}
        return value


class AgentNode:
    """Cluster with one node; `drive` starts drivers."""

    def __init__(self, node: RealNode, cluster: LocalCluster, cgroup_driver: str) -> None:
        self.node, self.cluster = node, cluster
        self.root = node.directory / "n"
        self.cgroup_root = f"{node.cgroups.path}/kubepods"
        self._cgroup_driver = cgroup_driver
        self._processes: dict[str, Process] = {}
        self._options: dict[str, tuple[object, ...]] = {}

    # -- processes

    def start_agent(self) -> None:
        settings = {
            "name": NAME,
            "root": str(self.root),
            "runtime": "cri",
            "listen": "",
            "cri": {
                "endpoint": f"unix://{self.node.socket}",
                "podLogsDir": str(self.node.directory / "logs"),
                "resolvConf": "",
                "requestTimeout": 120 * PATIENCE,
            },
            "cgroups": {"root": self.cgroup_root, "driver": self._cgroup_driver},
            "eviction": {"hard": {"memory.available": "1Mi"}},
        }
        path = self.node.directory / "node.yaml"
        path.write_text(yaml.safe_dump(settings))
        self._start("agent", "node", "--config", path)

        def is_ready() -> bool:
            assert self._processes["agent"].alive, self.log("agent")
            for tree in self.cluster.client.list("nodes"):
                conditions = {each["type"]: each["status"] for each in tree["status"]["conditions"]}
                return conditions.get("Ready") == "True" and not tree["spec"].get("taints")
            return False

        wait_until(is_ready, context=lambda: self.log("agent"))

    def drive(self, kind: str, *options: object) -> None:
        """Run the driver `cpu` or `memory` with these options, and wait until it is healthy."""
        if self._options.get(kind) == options:
            return
        if kind in self._processes:
            self._processes.pop(kind).stop(seconds=DEADLINE)
        self._options[kind] = options
        (port,) = free_ports(1)
        self._start(
            kind,
            *("driver", kind, "--hostname-override", NAME, "--kubelet-root-dir", self.root),
            *("--cdi-dir", self.node.cdi, "--nri-socket", self.node.nri),
            *("--bind-address", f"127.0.0.1:{port}", *options),
        )

        def is_healthy() -> bool:
            assert self._processes[kind].alive, self.log(kind)
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer,
            ):
                return bool(answer.status == 200)
            return False

        wait_until(is_healthy, context=lambda: self.log(kind))

    def _start(self, name: str, *words: object) -> None:
        command = (sys.executable, "-m", "plimsoll.cli.main", *words, "--kubeconfig", self.cluster.kubeconfig)
        self._processes[name] = Process(command, self.node.directory / f"{name}.log")
        self._processes[name].start()

    def log(self, name: str) -> str:
        return self._processes[name].text()[-3000:]

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.stop(seconds=DEADLINE)

    # -- objects

    def run(self, *trees: Tree) -> None:
        """Create pods and wait until they run."""
        for tree in trees:
            self.cluster.apply(tree)
        for tree in trees:
            name = tree["metadata"]["name"]

            def runs(found: Tree) -> bool:
                return all("running" in each["state"] for each in found["status"]["containerStatuses"])

            try:
                self.cluster.wait_for("pods", name, condition=runs, timeout=DEADLINE)
            except AssertionError as error:
                events = [each.get("note") for each in self.cluster.client.list("events.events.k8s.io")]
                logs = "\n".join(f"{each}: {self.log(each)}" for each in self._processes)
                raise AssertionError(f"{error}; events: {events}; {logs}") from None

    def delete(self, *names: str) -> None:
        for name in names:
            self.cluster.client.delete("pods", name)
        for name in names:
            self.cluster.wait_for("pods", name, gone=True, timeout=DEADLINE)

    def clear(self) -> None:
        """Delete all pods, and wait until their claims are released."""
        self.delete(*(tree["metadata"]["name"] for tree in self.cluster.client.list("pods")))
        wait_until(lambda: not list(self.node.cdi.iterdir()), context="CDI files remain")

    def look(self, name: str, part: str = "app") -> RunningContainer:
        """Return a running container of a pod."""
        tree = self.cluster.client.get("pods", name)
        (status,) = [each for each in tree["status"]["containerStatuses"] if each["name"] == part]
        id = status["containerID"].rpartition("/")[2]
        (pid,) = self.node.processes(id)
        return RunningContainer(pid, id, tree["metadata"]["uid"], tree["status"]["qosClass"].lower())

    def devices(self, driver: str) -> dict[str, Tree]:
        """Return the published devices of a driver by name."""
        slices = [each["spec"] for each in self.cluster.client.list("resourceslices")]
        return {
            device["name"]: device
            for each in slices
            if each["driver"] == driver
            for device in each["devices"]
        }

    def settles(self, wanted: Mapping[tuple[str, str], CpuSet]) -> None:
        """Wait until containers may use exactly these CPUs, in their cgroups and in the kernel's opinion."""

        def look() -> dict[tuple[str, str], tuple[CpuSet, CpuSet]]:
            found = {key: self.look(*key) for key in wanted}
            return {key: (each.effective("cpus"), each.allowed("Cpus")) for key, each in found.items()}

        accepted = {key: (cpus, cpus) for key, cpus in wanted.items()}
        wait_until(look, lambda seen: seen == accepted, context=lambda: f"{accepted}; {self.log('cpu')}")


@contextmanager
def run_agent_node(directory: Path, cgroup_driver: str) -> Iterator[AgentNode | str]:
    """Run a node; yield the reason if it cannot run here."""
    node = RealNode(directory, NAME, systemd=cgroup_driver == "systemd")
    try:
        reason = node.start_runtime()
        if reason:
            yield reason
            return
        with LocalCluster(scheduler=True) as cluster:
            running = AgentNode(node, cluster, cgroup_driver)
            try:
                running.start_agent()
                for name, expression in _CLASSES.items():
                    spec = {"selectors": [{"cel": {"expression": expression}}]}
                    kind: Tree = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
                    cluster.apply({**kind, "metadata": {"name": name}, "spec": spec})
                yield running
            finally:
                running.stop()
    finally:
        node.stop()
