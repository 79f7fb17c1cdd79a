"""Security contexts of pods on a node that runs processes, from the API to the kernel."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.security.capabilities import mask_of
from plimsoll.node.security.rights import read_rights
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import wait_until

pytestmark = pytest.mark.filterwarnings("error")
RIGHTS = read_rights()
NODE = NodeSettings(name="real", runtime="process", cgroups="plan", listen="")
#: Writes what it runs as, again and again, to a file of its own name; whole at any time.
_REPORT = "id -u > {0}/.$NAME.$$$$; mv {0}/.$NAME.$$$$ {0}/$NAME"


def container(name: str, command: list[str], **rest: Any) -> dict[str, Any]:
    env = [{"name": "NAME", "value": name}]
    return {"name": name, "image": "x", "command": command, "env": env, **rest}


def pod(name: str, containers: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    spec = {"nodeName": "real", "terminationGracePeriodSeconds": 1, "containers": containers, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def is_ready(tree: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in tree["status"].get("conditions", ())}
    return conditions.get("Ready") == "True"


def waits(tree: dict[str, Any]) -> bool:
    return any("reason" in each["state"].get("waiting", {}) for each in statuses(tree))


def statuses(tree: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tree["status"].get("containerStatuses", [])
    return found


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


@pytest.fixture
def reports() -> Iterator[Path]:
    """Return a world-writable directory."""
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as directory:
        os.chmod(directory, 0o777)
        yield Path(directory)


@pytest.mark.skipif(
    not RIGHTS.can_switch_user or not RIGHTS.capabilities & mask_of(("SYS_ADMIN",)), reason="needs root"
)
def test_containers_probes_and_hooks_have_the_same_credentials(reports: Path) -> None:
    report = _REPORT.format(reports)
    locked = "test $(id -u) = 1234 && ! touch ./probe 2>/dev/null && grep -q NoNewPrivs:.1 /proc/self/status"
    first = container("init", shell(report), securityContext={"runAsUser": 1235})
    sidecar = container("side", shell(f"{report}; sleep 1000"), restartPolicy="Always")
    hooks = {
        kind: {"exec": {"command": shell("id -u > /dev/shm/$NAME-" + kind)}}
        for kind in ("postStart", "preStop")
    }
    main = container(
        "main",
        ["sleep", "1000"],
        securityContext={"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
        readinessProbe={"exec": {"command": shell(locked)}, "periodSeconds": 1},
        lifecycle=hooks,
    )
    main["env"] = [{"name": "NAME", "value": f"plimsoll-test-{os.getpid()}"}]
    notes = [Path(f"/dev/shm/plimsoll-test-{os.getpid()}-{kind}") for kind in hooks]
    context = {"runAsUser": 1234, "runAsNonRoot": True, "fsGroup": 2000}
    tree = pod("p", [main], initContainers=[first, sidecar], securityContext=context)
    try:
        with LocalCluster(nodes=NODE) as cluster:
            cluster.apply(tree)
            cluster.wait_for("pods", "p", condition=is_ready, timeout=60)
            assert {path.name: path.read_text() for path in reports.iterdir()} == {
                "init": "1235\n",
                "side": "1234\n",
            }
            before = pids(cluster)
            # The next agent finds everything as it was, and its probes run as those before.
            cluster.restart_node("real")
            assert pids(cluster) == before
            (status,) = statuses(cluster.wait_for("pods", "p", condition=is_ready, timeout=60))
            assert status["restartCount"] == 0
            for pid in before.values():
                text = Path(f"/proc/{pid}/status").read_text()
                assert "Uid:\t1234\t1234\t1234\t1234\n" in text
                assert "Groups:\t0 2000 \n" in text
            cluster.client.delete("pods", "p")
            cluster.wait_for("pods", "p", gone=True, timeout=60)
        assert [path.read_text() for path in notes] == ["1234\n", "1234\n"]
        assert [path.stat().st_uid for path in notes] == [1234, 1234]
    finally:
        for path in notes:
            path.unlink(missing_ok=True)


def pids(cluster: LocalCluster) -> dict[str, int]:
    found = cluster.ask_node("real", lambda agent: agent.components.runtime.containers())  # type: ignore[attr-defined]
    return {state.name: state.pid for state in found if state.pid}


def test_unsupported_security_contexts_are_refused(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    touch = container("c", ["touch", str(ran)])
    context = {"seLinuxOptions": {"level": "s0"}}
    with LocalCluster(nodes=NODE) as cluster:
        cluster.apply(
            pod("refused", [{**touch, "securityContext": context}]),
            pod(
                "mounting",
                [{**touch, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
                volumes=[{"name": "v", "nfs": {"server": "nowhere", "path": "/"}}],
            ),
        )

        def is_refused(tree: dict[str, Any]) -> bool:
            return [each["state"]["waiting"]["reason"] for each in statuses(tree) if waits(tree)] == [
                "CreateContainerConfigError"
            ]

        found = cluster.wait_for("pods", "refused", condition=is_refused, timeout=60)
        (status,) = statuses(found)
        assert "spec.containers[0].securityContext.seLinuxOptions: " in status["state"]["waiting"]["message"]

        wait_until(
            lambda: any(
                each["reason"] == "FailedMount" and each["involvedObject"]["name"] == "mounting"
                for each in cluster.client.list("events", "default")
            )
        )
        found = cluster.client.get("pods", "mounting")
        assert found["status"]["phase"] == "Pending"
        assert not ran.exists()


def test_a_node_set_to_warn_starts_the_pod() -> None:
    node = NodeSettings(
        name="real", runtime="process", cgroups="plan", listen="", on_unsupported_security="warn"
    )
    context = {"seLinuxOptions": {"level": "s0"}}
    with LocalCluster(nodes=node) as cluster:
        cluster.apply(pod("p", [container("c", ["sleep", "1000"], securityContext=context)]))
        cluster.wait_for("pods", "p", condition=is_ready, timeout=60)
