"""Node agent with real containers: containerd and runc, in a mount namespace of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime.cri.settings import CriSettings
from plimsoll.up.local_cluster import LocalCluster
from tests.directories import short_directory
from tests.real.cgroup_root import hierarchies
from tests.real.kubelet import IMAGE, RealNode, cannot_run
from tests.waiting import wait_until

_REASON = cannot_run()
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON)
NAME = "real"


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    with short_directory() as directory:
        started = RealNode(directory, NAME)
        try:
            if reason := started.start_runtime():
                pytest.skip(reason)
            # Drivers write CDI files below the root of their node.
            (directory / "n").mkdir()
            (directory / "n" / "cdi").symlink_to(started.cdi)
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="module")
def cluster(node: RealNode) -> Iterator[LocalCluster]:
    settings = NodeSettings(
        name=NAME,
        runtime="cri",
        root=node.directory / "n",
        cri=CriSettings(endpoint=f"unix://{node.socket}", pod_logs=node.directory / "logs", resolv_conf=None),
        cgroup_root=f"{node.cgroups.path}/n",
    )
    with LocalCluster(scheduler=True, nodes=settings) as running:
        yield running


def shell(text: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", text], **fields}


def pod(name: str, *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    own = {"containers": list(containers), "terminationGracePeriodSeconds": 2, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own}


def in_phase(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda tree: bool(tree.get("status", {}).get("phase") == phase)


def is_ready(tree: dict[str, Any]) -> bool:
    statuses = tree.get("status", {}).get("containerStatuses") or ()
    return bool(statuses) and all(status["ready"] for status in statuses)


def status_of(tree: dict[str, Any], name: str = "main") -> dict[str, Any]:
    status = tree["status"]
    every = (*status.get("initContainerStatuses", ()), *status["containerStatuses"])
    return next(dict(each) for each in every if each["name"] == name)


def log_of(node: RealNode, tree: dict[str, Any], name: str = "main", attempt: int = 0) -> list[str]:
    meta = tree["metadata"]
    path = node.directory / f"logs/default_{meta['name']}_{meta['uid']}/{name}/{attempt}.log"
    return [line.split(" ", 3)[3] for line in path.read_text().splitlines()]


def run(
    cluster: LocalCluster, tree: dict[str, Any], done: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    cluster.apply(tree)
    return cluster.wait_for("pods", tree["metadata"]["name"], condition=done, timeout=90)


def remove(cluster: LocalCluster, name: str) -> None:
    cluster.client.delete("pods", name)
    cluster.wait_for("pods", name, gone=True, timeout=60)


def test_the_node_reports_its_runtime(cluster: LocalCluster) -> None:
    tree = cluster.wait_for("nodes", NAME)
    assert tree["status"]["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    ready = next(each for each in tree["status"]["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True", ready


def test_a_pod_runs_to_its_end(cluster: LocalCluster, node: RealNode) -> None:
    main = shell(
        "echo hello $NAME; echo why > /dev/termination-log; exit 3",
        env=[{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        terminationMessagePath="/dev/termination-log",
    )
    first = shell("echo first; hostname 2>/dev/null; true", "first")
    found = run(cluster, pod("end", main, initContainers=[first], restartPolicy="Never"), in_phase("Failed"))
    ended = status_of(found)["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "why\n")
    assert status_of(found)["containerID"].startswith("containerd://")
    assert log_of(node, found) == ["hello end"]
    assert log_of(node, found, "first") == ["first"]
    remove(cluster, "end")
    # A pod that has ended is removed from the API at once.
    places = [node.directory / name for name in ("logs", "n/pods")]
    wait_until(lambda: not any(list(place.iterdir()) for place in places), context="files are left")


def test_resources_are_those_of_the_plan(cluster: LocalCluster, node: RealNode) -> None:
    resources = {"requests": {"cpu": "250m", "memory": "16Mi"}, "limits": {"cpu": "500m", "memory": "32Mi"}}
    found = run(cluster, pod("sized", shell("exec sleep 1000", resources=resources)), is_ready)
    id = status_of(found)["containerID"].partition("://")[2]
    assert len(node.processes(id)) == 1
    first, second = hierarchies()
    uid = found["metadata"]["uid"]

    def value(controller: str, v1: str, v2: str) -> tuple[str, str]:
        """Return the values of the pod's cgroup and of the container's."""
        mount = next((each for each in first if controller in each.name.split(",")), None)
        place = (mount or second[0]) / node.cgroups.path[1:] / f"n/burstable/pod{uid}"
        file = v1 if mount is not None else v2
        return (place / file).read_text().strip(), (place / id / file).read_text().strip()

    if first:
        assert value("cpu", "cpu.shares", "") == ("256", "256")
        assert value("cpu", "cpu.cfs_quota_us", "") == ("50000", "50000")
    assert value("memory", "memory.limit_in_bytes", "memory.max") == (str(32 << 20), str(32 << 20))
    (pid,) = node.processes(id)
    assert int(Path(f"/proc/{pid}/oom_score_adj").read_text()) > 0
    remove(cluster, "sized")
    assert not node.processes(id)
    assert not list((node.directory / "n/pods").iterdir())


def test_crashed_containers_restart(cluster: LocalCluster, node: RealNode) -> None:
    tree = pod("crash", shell("echo $$; exit 1"))
    found = run(cluster, tree, lambda each: status_of_or(each, "restartCount") >= 1)
    assert status_of(found)["lastState"]["terminated"]["exitCode"] == 1
    remove(cluster, "crash")


def status_of_or(tree: dict[str, Any], field: str) -> int:
    statuses: Any = tree.get("status", {}).get("containerStatuses") or ({},)
    return int(statuses[0].get(field, 0))


def test_security_contexts_are_applied(cluster: LocalCluster, node: RealNode) -> None:
    check = (
        'while read -r k v; do case $k in Uid:|Groups:|NoNewPrivs:|CapEff:) echo "$k $v";; esac; done '
        "< /proc/self/status; echo x > /file || echo read-only"
    )
    main = shell(
        check,
        securityContext={
            "runAsUser": 1234,
            "runAsGroup": 1235,
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    )
    tree = pod(
        "secure", main, restartPolicy="Never", securityContext={"supplementalGroups": [77], "fsGroup": 88}
    )
    found = run(cluster, tree, in_phase("Succeeded"))
    lines = log_of(node, found)
    assert any(line.startswith("Uid: 1234") for line in lines), lines
    assert "NoNewPrivs: 1" in lines
    assert "CapEff: 0000000000000000" in lines
    assert any(line.startswith("Groups:") and {"77", "88"} <= set(line.split()) for line in lines), lines
    assert "read-only" in lines
    remove(cluster, "secure")


def test_an_image_that_is_absent_is_reported(cluster: LocalCluster) -> None:
    absent = {"name": "main", "image": "local/absent:1", "imagePullPolicy": "Never"}

    def never_pulled(tree: dict[str, Any]) -> bool:
        statuses: Any = tree.get("status", {}).get("containerStatuses") or ({},)
        waiting = statuses[0].get("state", {}).get("waiting", {})
        return bool(waiting.get("reason") == "ErrImageNeverPull")

    run(cluster, pod("absent", absent), never_pulled)
    remove(cluster, "absent")


def test_probes_and_hooks_run_in_the_container(cluster: LocalCluster, node: RealNode) -> None:
    main = shell(
        "trap 'exit 0' TERM; while :; do sleep 0.1; done",
        readinessProbe={"exec": {"command": ["/bin/sh", "-c", "test -e /tmp/started"]}, "periodSeconds": 1},
        lifecycle={"postStart": {"exec": {"command": ["/bin/sh", "-c", "echo > /tmp/started"]}}},
    )
    found = run(cluster, pod("probed", main), is_ready)
    assert status_of(found)["restartCount"] == 0
    remove(cluster, "probed")


def test_containers_outlive_the_agent_and_the_runtime(cluster: LocalCluster, node: RealNode) -> None:
    sidecar = shell("exec sleep 1000", "side", restartPolicy="Always")
    found = run(cluster, pod("kept", shell("exec sleep 1000"), initContainers=[sidecar]), is_ready)
    before = {name: status_of(found, name)["containerID"] for name in ("main", "side")}
    cluster.stop_node(NAME)
    (victim,) = node.processes(before["side"].partition("://")[2])
    (kept,) = node.processes(before["main"].partition("://")[2])
    os.kill(victim, signal.SIGKILL)
    cluster.start_node(NAME)
    found = cluster.wait_for(
        "pods", "kept", condition=lambda tree: status_of(tree, "side")["restartCount"] == 1, timeout=60
    )
    assert status_of(found)["containerID"] == before["main"]
    assert status_of(found)["restartCount"] == 0
    assert node.processes(before["main"].partition("://")[2]) == [kept]
    node.containerd.stop()
    cluster.wait_for("nodes", NAME, condition=lambda tree: not node_ready(tree), timeout=60)
    node.start_containerd()
    cluster.wait_for("nodes", NAME, condition=node_ready, timeout=60)
    assert node.processes(before["main"].partition("://")[2]) == [kept]
    remove(cluster, "kept")


def node_ready(tree: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in tree["status"]["conditions"]}
    return conditions.get("Ready") == "True"


def test_pods_that_are_force_deleted_leave_nothing(cluster: LocalCluster, node: RealNode) -> None:
    found = run(cluster, pod("forced", shell("exec sleep 1000")), is_ready)
    id = status_of(found)["containerID"].partition("://")[2]
    cluster.stop_node(NAME)
    cluster.client.delete("pods", "forced", grace=0)
    cluster.wait_for("pods", "forced", gone=True)
    assert node.processes(id)
    cluster.start_node(NAME)
    wait_until(lambda: not node.processes(id), context="the containers of a deleted pod are not stopped")


def test_a_container_over_its_limit_of_ephemeral_storage_is_evicted(cluster: LocalCluster) -> None:
    text = (
        "x=0123456789abcdef; while [ ${#x} -lt 3000000 ]; do x=$x$x; done; echo $x > /file; exec sleep 1000"
    )

    def limit(amount: str) -> dict[str, Any]:
        return {"limits": {"ephemeral-storage": amount}}

    large = shell(text, resources=limit("2Mi"))
    other = shell("exec sleep 1000", "other", resources=limit("1Gi"))
    found = run(cluster, pod("large", large, other), in_phase("Failed"))
    assert found["status"]["reason"] == "Evicted"
    assert found["status"]["message"] == 'Container main exceeded its local ephemeral storage limit "2Mi". '
    remove(cluster, "large")
