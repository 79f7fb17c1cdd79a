"""Load for a node whose agent is killed repeatedly: its process, its pods and their files."""

from __future__ import annotations

import json
import os
import shlex
import signal
import zlib
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

from plimsoll.client.endpoints import PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError
from plimsoll.up.local_cluster import LocalCluster
from tests.fork_server import ForkedProcess, start_forked
from tests.node_peers import DriverProcess
from tests.waiting import DEADLINE, wait_until

NODE = "chaotic"


class NodeAgent:
    """`plimsoll node` with real processes, in its own directory."""

    def __init__(self, kubeconfig: Path, root: Path, log: Path, *options: str) -> None:
        self.root = root
        self.log = log
        self._process: ForkedProcess | None = None
        self._command = [
            *("node", "--kubeconfig", str(kubeconfig)),
            *("--name", NODE, "--root", str(root), "--listen", "", "--cdi", str(root / "cdi")),
            *("--cgroup-root", f"plimsoll-{root.name}-x", *options),
        ]

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        self.log.write_bytes(b"")
        with self.log.open("ab") as log:
            self._process = start_forked(self._command, stdout=log, stderr=log)

    def await_ready(self) -> None:
        wait_until(lambda: b" ready nodes=1" in self.log.read_bytes(), context=self.log.read_text)

    def end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(DEADLINE)
            self._process = None


class Load:
    """Pods that are created and deleted, some with claims; each records its starts."""

    def __init__(self, cluster: LocalCluster, driver: DriverProcess, marks: Path, dice: Random) -> None:
        self.cluster = cluster
        self.driver = driver
        self.marks = marks
        self.dice = dice
        self.alive: dict[str, str | None] = {}  #: pods that are to run, with the UID of their claim
        self.gone: list[str] = []
        self._count = 0

    def add(self) -> None:
        """Add a pod; every other one has a claim."""
        self._count += 1
        name = f"pod-{self._count}"
        claim = self._claim(name) if self._count % 2 else None
        # Two dollars in a command stand for one.
        # Two dollars in a command stand for one.
        script = f"echo $$$$ >> {shlex.quote(str(self.marks / name))}; exec sleep 1000"
        container: dict[str, Any] = {"name": "c", "image": "none", "command": ["/bin/sh", "-c", script]}
        spec: dict[str, Any] = {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        if claim is not None:
            container["resources"] = {"claims": [{"name": "x"}]}
            spec["resourceClaims"] = [{"name": "x", "resourceClaimName": name}]
        pod = self.cluster.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}, "default"
        )
        if claim is not None:
            user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
            self._patch(name, {"reservedFor": [user]})
        self.alive[name] = claim

    def remove(self) -> None:
        """Remove a pod, at times by force."""
        if not self.alive:
            return
        name = self.dice.choice(sorted(self.alive))
        del self.alive[name]
        self.gone.append(name)
        try:
            self.cluster.client.delete(PODS, name, "default", grace=0 if self.dice.random() < 0.3 else None)
        except ApiError as error:
            if error.code != 404:
                raise

    def remove_all(self) -> None:
        while self.alive:
            self.remove()

    def _claim(self, name: str) -> str:
        tree = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        }
        uid = str(self.cluster.client.create(RESOURCE_CLAIMS, tree, "default")["metadata"]["uid"])
        device = f"dev-{zlib.crc32(uid.encode())}"  # the driver's own choice, one for each claim
        result = {"request": "r", "driver": self.driver.name, "pool": "pool", "device": device}
        self._patch(name, {"allocation": {"devices": {"results": [result]}}})
        return uid

    def _patch(self, claim: str, status: dict[str, Any]) -> None:
        self.cluster.client.patch(RESOURCE_CLAIMS, claim, {"status": status}, "default", subresource="status")

    # -- state

    def statuses(self) -> dict[str, tuple[str, int]]:
        """Return phase and restarts of all pods in the API."""
        found = {}
        for pod in self.cluster.client.list(PODS, "default"):
            containers = pod["status"].get("containerStatuses") or [{}]
            ready = "Ready" if containers[0].get("ready") else pod["status"].get("phase", "")
            found[pod["metadata"]["name"]] = (ready, int(containers[0].get("restartCount", 0)))
        return found

    def starts(self, name: str) -> list[int]:
        """Return the process IDs with which a pod was started."""
        path = self.marks / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def kill_all(self) -> None:
        """Kill the processes left by a failed test."""
        for path in self.marks.iterdir():
            for pid in self.starts(path.name):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def is_settled(self) -> bool:
        return self.statuses() == dict.fromkeys(self.alive, ("Ready", 0))

    def await_settled(self) -> None:
        def missing() -> object:
            found = self.statuses()
            return {n: found.get(n) for n in {*found, *self.alive} if found.get(n) != ("Ready", 0)}

        wait_until(self.is_settled, context=missing)


def calls_for(driver: DriverProcess, event: str) -> list[str]:
    """Return the UIDs of the claims in calls to a driver, in order."""
    return [str(claim["uid"]) for each in driver.events(event) for claim in each["claims"]]


def prepared_on_record(root: Path) -> set[str]:
    path = root / "claims.json"
    if not path.exists():
        return set()
    body = json.loads(path.read_text())["body"]
    return {str(claim["uid"]) for claim in body["claims"]}


def runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
