"""LocalCluster with nodes: pods run, and agents restart."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from plimsoll.api.gates import Gates
from plimsoll.client.endpoints import Endpoint
from plimsoll.errors import InputError
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.process.settings import NodeSettings
from plimsoll.up.local_cluster import LocalCluster
from plimsoll.up.local_nodes import node_settings
from tests.waiting import until, wait_until

pytestmark = pytest.mark.filterwarnings("error")


def pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def is_running(tree: dict[str, Any]) -> bool:
    return bool(tree["status"]["phase"] == "Running")


def has_failed(tree: dict[str, Any]) -> bool:
    return bool(tree["status"]["phase"] == "Failed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=3, scheduler=True) as running:
        yield running


def test_nodes_are_ready_when_the_cluster_is(cluster: LocalCluster) -> None:
    nodes = {node["metadata"]["name"]: node for node in cluster.client.list("nodes")}
    assert sorted(nodes) == ["node-0", "node-1", "node-2"]
    for node in nodes.values():
        ready = {c["type"]: c["status"] for c in node["status"]["conditions"]}
        assert ready == {
            "MemoryPressure": "False",
            "DiskPressure": "False",
            "PIDPressure": "False",
            "Ready": "True",
        }
        assert not node["spec"].get("taints")
        assert node["status"]["nodeInfo"]["kubeletVersion"].startswith("v1.37.0+plimsoll.")
        assert node["status"]["nodeInfo"]["containerRuntimeVersion"] == "none://1"
        assert node["status"]["declaredFeatures"] == [
            "DRANodeAllocatableResources",
            "InPlacePodLevelResourcesVerticalScaling",
        ]
    leases = cluster.client.list("leases", "kube-node-lease")
    assert sorted(lease["metadata"]["name"] for lease in leases) == sorted(nodes)


def test_nodes_report_their_properties(cluster: LocalCluster) -> None:
    """As a kubelet does, so that `kubectl describe node` has something to show."""

    def reasons() -> set[str]:
        events = cluster.client.list("events", "default")
        return {e["reason"] for e in events if e["involvedObject"]["name"] == "node-0"}

    wanted = {"NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID", "NodeReady"}
    wait_until(lambda: wanted <= reasons(), context=lambda: reasons())


def test_pods_run_and_are_removed_when_deleted(cluster: LocalCluster) -> None:
    place = cluster.new_namespace()
    cluster.apply(*(pod(f"p{number}") for number in range(6)), namespace=place)
    on = set()
    for number in range(6):
        tree = cluster.wait_for("pods", f"p{number}", place, is_running)
        on.add(tree["spec"]["nodeName"])
        assert tree["status"]["containerStatuses"][0]["ready"]
    assert on == {"node-0", "node-1", "node-2"}
    for number in range(6):
        cluster.client.delete("pods", f"p{number}", place)
    for number in range(6):
        cluster.wait_for("pods", f"p{number}", place, gone=True)
    for name in on:
        assert (
            cluster.ask_node(name, lambda agent: agent.admission_handler.ledger.requested.get("cpu", 0)) == 0
        )


def test_pods_that_do_not_fit_are_rejected_by_the_node(cluster: LocalCluster) -> None:
    place = cluster.new_namespace()
    cluster.apply(pod("big", "9", nodeName="node-0"), namespace=place)
    status = cluster.wait_for("pods", "big", place, has_failed)["status"]
    assert status["reason"] == "OutOfcpu"
    assert status["message"].endswith(
        "Node didn't have enough resource: cpu, requested: 9000, used: 0, capacity: 8000"
    )
    cluster.client.delete("pods", "big", place)
    cluster.wait_for("pods", "big", place, gone=True)


def test_a_restarted_agent_finds_its_pods(cluster: LocalCluster) -> None:
    place = cluster.new_namespace()
    cluster.apply(pod("first", "5", nodeName="node-1"), namespace=place)
    before = cluster.wait_for("pods", "first", place, is_running)
    uid = cluster.agent("node-1").status_reporter.uid
    cluster.stop_node("node-1")
    cluster.apply(pod("second", "5", nodeName="node-1"), namespace=place)
    cluster.start_node("node-1")
    assert cluster.agent("node-1").status_reporter.uid == uid
    assert cluster.wait_for("pods", "second", place, has_failed)["status"]["reason"] == "OutOfcpu"
    after = cluster.client.get("pods", "first", place)
    assert after["status"]["phase"] == "Running"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    cluster.restart_node("node-1")
    assert cluster.ask_node("node-1", lambda agent: agent.admission_handler.admitted_uids) == (
        after["metadata"]["uid"],
    )
    for name in ("first", "second"):
        cluster.client.delete("pods", name, place)
        cluster.wait_for("pods", name, place, gone=True)


def test_sockets_for_drivers_and_monitoring_agents(cluster: LocalCluster) -> None:
    root = cluster.node_root("node-2")
    assert (root / "plugins_registry").is_dir()
    sock = root / "pod-resources" / "kubelet.sock"
    assert stat.S_ISSOCK(sock.stat().st_mode)
    assert sock.stat().st_mode & 0o777 == 0o600


def test_a_deleted_node_comes_back(cluster: LocalCluster) -> None:
    uid = cluster.client.get("nodes", "node-2")["metadata"]["uid"]
    cluster.client.delete("nodes", "node-2")
    cluster.wait_for("nodes", "node-2", condition=lambda tree: bool(tree["metadata"]["uid"] != uid))


def test_critical_pods_preempt_other_pods(cluster: LocalCluster) -> None:
    place = cluster.new_namespace()
    cluster.apply(pod("plain", "6", nodeName="node-0"), namespace=place)
    cluster.wait_for("pods", "plain", place, is_running)
    critical = pod("critical", "4", nodeName="node-0", priorityClassName="system-node-critical")
    cluster.apply(critical, namespace="kube-system")
    cluster.wait_for("pods", "critical", "kube-system", is_running)
    plain = cluster.wait_for("pods", "plain", place, has_failed)
    assert (plain["status"]["reason"], plain["status"]["message"]) == (
        "Preempting",
        "Preempted in order to admit critical pod",
    )
    cluster.client.delete("pods", "critical", "kube-system")
    cluster.wait_for("pods", "critical", "kube-system", gone=True)


def test_unknown_nodes(cluster: LocalCluster) -> None:
    with pytest.raises(InputError, match="no such node"):
        cluster.agent("node-9")
    with pytest.raises(InputError, match="no such node"):
        cluster.restart_node("node-9")


def test_names_and_settings() -> None:
    gates = Gates.default()
    named = node_settings(["a", "b"], gates)
    assert [each.names for each in named] == [("a",), ("b",)]
    (many,) = node_settings(1000, gates)
    assert (many.count, many.is_bare, many.names[-1]) == (1000, True, "node-999")
    own = NodeSettings(name="x", runtime="none", machine=parse_machine({"capacity": {"cpu": 1, "memory": 1}}))
    assert node_settings(own, gates) == (own,)
    assert node_settings([own, "y"], gates)[0] is own
    with pytest.raises(InputError, match="duplicate name"):
        node_settings(["a", "a"], gates)
    with pytest.raises(InputError, match="is not a valid node name"):
        node_settings(["A B"], gates)


def test_a_cluster_whose_nodes_cannot_start_does_not_start(tmp_path: Path) -> None:
    own = NodeSettings(name="x", runtime="none", machine_file=tmp_path / "absent")
    with pytest.raises(InputError, match="absent"), LocalCluster(nodes=own):
        pass


def test_custom_settings(tmp_path: Path) -> None:
    machine = parse_machine({"capacity": {"cpu": 2, "memory": "4Gi"}})
    own = NodeSettings(name="mine", root=tmp_path, runtime="none", machine=machine)
    with LocalCluster(nodes=[own, replace(own, name="bare", bare=True, root=tmp_path / "b")]) as cluster:
        assert cluster.node_root("mine") == tmp_path
        assert not (tmp_path / "b").exists()
        assert cluster.client.get("nodes", "mine")["status"]["capacity"]["cpu"] == "2"
        cluster.apply(pod("p", nodeName="bare"))
        cluster.wait_for("pods", "p", condition=is_running)


def test_processes_do_not_outlive_the_cluster(tmp_path: Path) -> None:
    own = NodeSettings(name="real", runtime="process", cgroups="plan")
    output = tmp_path / "pid"
    script = f"echo $$$$ > {output}.new; mv {output}.new {output}; exec sleep 1000"
    tree = pod("p", "10m", nodeName="real")
    tree["spec"]["containers"][0] |= {"command": ["sh", "-c", script]}
    with LocalCluster(nodes=own) as cluster:
        cluster.apply(tree)
        cluster.wait_for("pods", "p", condition=is_running)
        wait_until(lambda: output.exists())
        process = Path("/proc") / output.read_text().strip()
        assert process.exists()
    assert not process.exists()


@pytest.mark.plimsoll(nodes=["only"])
def test_the_fixture_has_nodes_too(plimsoll_cluster: LocalCluster) -> None:
    assert plimsoll_cluster.agent().name == "only"


def test_a_node_of_processes_serves_the_kubelet_api() -> None:
    machine = parse_machine({"capacity": {"cpu": 2, "memory": "4Gi"}})
    settings = NodeSettings(name="here", runtime="process", machine=machine, listen="", cgroups="plan")
    metrics = Endpoint("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics", namespaced=False)
    with LocalCluster(nodes=settings) as running:
        (node,) = running.client.list("nodes")
        assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] > 0
        (found,) = wait_until(lambda: running.client.list(metrics), bool)
        assert found["usage"]["cpu"].endswith("n")
        talks = pod("talks", "10m", nodeName="here", restartPolicy="Never")
        talks["spec"]["containers"][0]["command"] = ["sh", "-c", "echo alive"]
        running.apply(talks)
        running.wait_for("pods", "talks", condition=lambda tree: tree["status"]["phase"] == "Succeeded")
        for protocol, text in (("binary.k8s.io", b"alive\n"), ("base64.binary.k8s.io", b"YWxpdmUK")):
            assert asyncio.run(read_over_websocket(running, "talks", protocol)) == text


async def read_over_websocket(cluster: LocalCluster, pod: str, protocol: str) -> bytes:
    """Return the log of a pod: the frames of a WebSocket until it is closed."""
    user = yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}"}
    url = f"{cluster.url}/api/v1/namespaces/default/pods/{pod}/log"
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(url, protocols=(protocol,), ssl=False) as stream,
    ):
        connection = stream.get_extra_info("socket")
        assert stream.protocol == protocol
        found = [message.data async for message in stream]
        assert stream.close_code == aiohttp.WSCloseCode.OK
    assert not found[0]
    await until(lambda: connection.fileno() < 0, context="the connection is closed")
    return b"".join(data.encode() if isinstance(data, str) else data for data in found)
