"""Doctor on running and killed agents, and their drivers."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plimsoll.client import Client
from plimsoll.client.kubeconfig import find_config
from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.cgroups.ownership import default_root, owner_of
from plimsoll.node.layout import Layout
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime import shims
from plimsoll.tools.doctor.processes import is_alive
from plimsoll.tools.findings import Severity
from plimsoll.up.local_cluster import LocalCluster
from tests.sizes import examples
from tests.unit.node.plugins.peers import Peer
from tests.waiting import wait_until

from .node_dir import CLAIM, DRIVER, GONE, NODE, POD, NodeDir, bad, of, run_command, temporary_node_dir

SOURCE = Path(__file__).parents[4] / "src"


def pod(name: str, node: str = NODE) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "command": ["sleep", "1000"]}
    spec = {
        "nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,  # no controller publishes the certificate here
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def is_running(tree: dict[str, Any]) -> bool:
    return bool(tree["status"]["phase"] == "Running")


@pytest.fixture
def node_dir() -> Iterator[NodeDir]:
    with temporary_node_dir() as found:
        yield found


# -- an agent that runs


def test_a_running_agent_has_no_findings(node_dir: NodeDir) -> None:
    own = NodeSettings(name=NODE, runtime="none", root=node_dir.layout.root, cdi=(node_dir.cdi,))
    with LocalCluster(nodes=own) as cluster:
        cluster.apply(pod("one"), pod("two"))
        for name in ("one", "two"):
            cluster.wait_for("pods", name, condition=is_running)

        async def ask(**changes: Any) -> Any:
            async with Client.connect(find_config(cluster.kubeconfig)) as client:
                return await node_dir.ask(client=client, runtime="", **changes)

        report = asyncio.run(ask())
        assert bad(report) == []
        assert report.exit_code == 0
        assert report.running
        assert of(report, "sockets.list")[0].message == "List returns 2 pods"
        assert of(report, "cluster.pods")[0].message == "2 pods bound, 2 admitted"
        assert of(report, "cluster.ready")[0].message == "Ready is True"
        assert of(report, "cluster.clock")[0].severity is Severity.OK
        node_dir.put_socket(node_dir.layout.registry / "gone-reg.sock")
        node_dir.layout.pod_resources.chmod(0o666)
        report = asyncio.run(ask())
        assert bad(report) == [("sockets.mode", "error"), ("sockets.stale", "warning")]
        for id, _ in bad(report):
            run_command(of(report, id)[0])
        assert bad(asyncio.run(ask())) == []
        cluster.stop_node(NODE)
        report = asyncio.run(ask())
        assert not report.running
        assert ("cluster.ready", "warning") in bad(report)


# -- drivers


async def test_drivers_are_queried_for_their_name(node_dir: NodeDir) -> None:
    node_dir.furnish()
    peer = await Peer(node_dir.layout, DRIVER).start()
    other = Peer(node_dir.layout, "half.example.com")
    await other.register()
    strange = Peer(node_dir.layout, "csi.example.com", type="CSIPlugin")
    await strange.register()
    report = await node_dir.ask()
    found = {Path(f.subject).name: f for f in of(report, "sockets.driver")}
    assert found[peer.socket.name].severity is Severity.OK
    assert found[other.socket.name].severity is Severity.ERROR
    assert found[strange.socket.name].severity is Severity.WARNING
    assert "CSIPlugin" in found[strange.socket.name].message
    assert of(report, "records.driver") == []  # it can be asked to release its claim
    assert peer.notified == []
    assert peer.calls == []
    peer.info_delay = 3600.0
    report = await node_dir.ask(timeout=0.1)
    found = {Path(f.subject).name: f for f in of(report, "sockets.driver")}
    assert found[peer.socket.name].severity is Severity.WARNING, "it does not answer"
    for each in (peer, other, strange):
        await each.stop()
    report = await node_dir.ask()
    assert of(report, "records.driver")[0].subject == DRIVER


# -- an agent that was killed


def can_run_processes() -> str:
    if not hasattr(os, "pidfd_open"):
        return "needs Linux with pidfd"
    if os.geteuid() != 0:
        return "needs root"
    return "" if open_cgroups("plimsoll-doctor").version else "needs cgroups that can be written"


@pytest.mark.skipif(can_run_processes() != "", reason=can_run_processes() or "it can")
def test_leftovers_of_a_killed_agent(node_dir: NodeDir) -> None:
    name = f"doctor-{os.getpid()}"
    layout = node_dir.layout
    tree = open_cgroups(default_root(name, layout.root), owner=owner_of(name, layout.root))
    runs: dict[str, dict[str, Any]] = {}
    with LocalCluster(controllers=False) as cluster:
        log = open(node_dir.directory / "log", "wb")  # noqa: SIM115
        arguments = ["node", "--kubeconfig", str(cluster.kubeconfig), "--name", name, "--listen", ""]
        arguments += ["--root", str(layout.root), "--cdi", str(node_dir.cdi)]
        agent = subprocess.Popen(
            [sys.executable, "-m", "plimsoll.cli.main", *arguments],
            env={**os.environ, "PYTHONPATH": str(SOURCE)},
            stdout=log,
            stderr=log,
        )
        try:
            cluster.wait_for("nodes", name, timeout=30)
            cluster.apply(pod("kept", name), pod("lost", name))
            uids = {}
            for each in ("kept", "lost"):
                tree_of = cluster.wait_for("pods", each, condition=is_running, timeout=30)
                uids[each] = tree_of["metadata"]["uid"]
            runs = {each: read_run(layout, uid) for each, uid in uids.items()}
            asked: dict[str, Any] = {"name": name, "runtime": "", "cgroups": "auto"}
            node_dir.mount = Path("/sys/fs/cgroup")
            report = node_dir.examine(**asked)
            assert leftovers(report) == []
            assert report.running
            agent.send_signal(signal.SIGKILL)
            agent.wait()
            # The pods are recorded; only the sockets are left behind.
            report = node_dir.examine(**asked)
            assert leftovers(report) == [("sockets.stale", "kubelet.sock"), ("sockets.stale", "nri.sock")]
            # A pod without a record.
            body = json.loads(layout.admitted.read_bytes())["body"]["pods"]
            assert {row["uid"] for row in body} == set(uids.values())
            node_dir.put_admitted(uids["kept"])
            report = node_dir.examine(**asked)
            (found,) = of(report, "pods.unknown")
            assert found.subject.endswith(f"({uids['lost']})")
            # A shim whose directory is gone.
            (layout.pods / uids["kept"]).rename(node_dir.directory / "away")
            report = node_dir.examine(**asked)
            (found,) = of(report, "pods.process")
            run_command(found)
            assert wait_until(lambda: not lives(runs["kept"]))
            assert of(node_dir.examine(**asked), "pods.process") == []
            assert lives(runs["lost"])
        finally:
            agent.kill()
            agent.wait()
            log.close()
            for run in runs.values():
                for pid, start in ((run["pid"], run["pid_start"]), (run["shim"], run["shim_start"])):
                    shims.send(pid, start, signal.SIGKILL)
            assert wait_until(tree.tear_down)


def read_run(layout: Layout, uid: str) -> dict[str, Any]:
    (path,) = (layout.pod(uid) / "containers").glob("*/0/run.json")
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def lives(run: dict[str, Any]) -> bool:
    return is_alive(run["pid"], run["pid_start"]) or is_alive(run["shim"], run["shim_start"])


def leftovers(report: Any) -> list[tuple[str, str]]:
    """Return the problems, apart from those about the machine and other clusters."""
    return sorted(
        (each.id, Path(each.subject).name)
        for each in report.findings
        if each.severity.reaches(Severity.WARNING)
        and each.id.startswith(("sockets.", "records.", "pods.", "cdi."))
    )


# -- unexpected files


ATTEMPT = f"pods/{GONE}/containers/a/0"
NAMES = st.sampled_from(
    [
        "claims.json",
        "admitted.json",
        "lock",
        "pods",
        "cdi",
        "quarantine",
        "plugins",
        "plugins_registry",
        "dra_manager_state",
        "shim.pyc",
        "pod-resources",
        "pod-resources/kubelet.sock",
        "nri",
        "nri/nri.sock",
        "cdi/x.json",
        "cdi/y.yaml",
        "cdi/spec.1.tmp",
        ".claims.json.tmp",
        "pods/..x",
        "pods/\x1b[2J",
        "plugins_registry/a.sock",
    ]
) | st.sampled_from(
    [
        f"pods/{GONE}",
        f"pods/{GONE}/sandbox.json",
        f"pods/{GONE}/containers",
        f"pods/{POD}/containers/a\n/0/exit.json",
        ATTEMPT,
        f"{ATTEMPT}/run.json",
    ]
)
THINGS = st.one_of(
    st.sampled_from(
        [
            "directory",
            "pipe",
            "socket",
            "loop",
            "nowhere",
            "root",
            "sparse",
            *(["closed"] if os.geteuid() == 0 else []),
        ]
    ),
    st.binary(max_size=50),
    st.sampled_from([b"{}", b"[]", b"null", b'{"pid":1}', b"1", b"[" * 20_000, b'{"a":' * 5_000]),
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(NAMES, THINGS), max_size=12), st.sampled_from(["none", "process"]))
def test_unknown_files_do_not_break_the_doctor(files: list[tuple[str, str | bytes]], runtime: str) -> None:
    with temporary_node_dir() as node_dir:
        node_dir.layout.root.mkdir()
        for name, content in files:
            path = node_dir.layout.root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not os.path.lexists(path):  # else it would be written through a link, or into a pipe
                    put(node_dir, path, content)
            except OSError:
                continue
        before = node_dir.snapshot()
        report = node_dir.examine(runtime=runtime)
        assert report.findings
        assert json.dumps(report.as_json())
        assert node_dir.snapshot() == before


def put(node_dir: NodeDir, path: Path, content: str | bytes) -> None:
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "directory":
        path.mkdir()
    elif content == "pipe":
        os.mkfifo(path)
    elif content == "socket":
        node_dir.put_socket(path)
    elif content == "loop":
        path.symlink_to(path)
    elif content == "nowhere":
        path.symlink_to("/nowhere")
    elif content == "root":
        path.symlink_to(node_dir.directory)
    elif content == "sparse":
        with open(path, "wb") as file:
            file.truncate(200 << 20)
    else:
        path.write_bytes(CLAIM.encode())
        path.chmod(0)
