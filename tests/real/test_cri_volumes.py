"""Volumes, streams, ephemeral containers and CDI devices with real containers: containerd and runc."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime.cri.settings import CriSettings
from plimsoll.up.local_cluster import LocalCluster
from tests.directories import short_directory
from tests.real.images import with_busybox
from tests.real.kubelet import RealNode, cannot_run
from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.waiting import wait_until

_REASON = cannot_run() or ("" if find_kubectl() else "no kubectl")
pytestmark = pytest.mark.skipif(bool(_REASON), reason=_REASON)
NAME = "real"
IMAGE = "local/busybox:1"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with short_directory() as directory:
        node = RealNode(directory, NAME, {f"docker.io/{IMAGE}": with_busybox(("/bin/sh",))})
        try:
            if reason := node.start_runtime():
                pytest.skip(reason)
            # Drivers write CDI files below the root of their node.
            (directory / "n").mkdir()
            (directory / "n" / "cdi").symlink_to(node.cdi)
            settings = NodeSettings(
                name=NAME,
                runtime="cri",
                root=directory / "n",
                cri=CriSettings(
                    endpoint=f"unix://{node.socket}", pod_logs=directory / "logs", resolv_conf=None
                ),
                cgroup_root=f"{node.cgroups.path}/n",
            )
            with LocalCluster(scheduler=True, nodes=settings, drivers="gpus") as running:
                yield running
        finally:
            node.stop()


@pytest.fixture(scope="module")
def kubectl(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(find_kubectl(), cluster.kubeconfig, tmp_path_factory.mktemp("kubectl"))


def shell(text: str, name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": IMAGE, "command": ["/bin/sh", "-c", text], **fields}


def start(kubectl: Kubectl, name: str, *containers: dict[str, Any], **spec: Any) -> None:
    own = {"containers": list(containers), "terminationGracePeriodSeconds": 0, **spec}
    kubectl(
        "create",
        "-f",
        "-",
        given={"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": own},
    )


def finish(kubectl: Kubectl, name: str) -> str:
    """Wait until a pod has succeeded; return its log."""
    kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout=90s")
    return kubectl("logs", name)


def test_volumes_of_every_type(kubectl: Kubectl, tmp_path: Any) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=key=from-config-map")
    kubectl("create", "secret", "generic", "token", "--from-literal=value=from-secret")
    (tmp_path / "file").write_text("from-host\n")
    mounts = [
        {"name": name, "mountPath": f"/v/{name}", **({"readOnly": True} if name == "host" else {})}
        for name in ("config", "secret", "empty", "down", "all", "host")
    ]
    mounts.append({"name": "config", "mountPath": "/v/one", "subPath": "key"})
    name = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
    volumes = [
        {"name": "config", "configMap": {"name": "settings"}},
        {"name": "secret", "secret": {"secretName": "token", "defaultMode": 0o400}},
        {"name": "empty", "emptyDir": {}},
        {"name": "down", "downwardAPI": {"items": [name]}},
        {"name": "host", "hostPath": {"path": str(tmp_path), "type": "Directory"}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"configMap": {"name": "settings"}},
                    {"downwardAPI": {"items": [name]}},
                    {"serviceAccountToken": {"path": "token"}},
                ]
            },
        },
    ]
    script = (
        "cat /v/config/key /v/one; echo; cat /v/secret/value; stat -Lc ' %a' /v/secret/value;"
        "cat /v/empty/file /v/down/name; echo; cat /v/all/key /v/all/name; echo; cut -c1-2 /v/all/token;"
        "cat /v/host/file; touch /v/host/new 2>/dev/null || echo read-only"
    )
    writer = shell("echo from-init > /v/empty/file", "writer", volumeMounts=mounts[2:3])
    start(
        kubectl,
        "volumes",
        shell(script, volumeMounts=mounts),
        initContainers=[writer],
        volumes=volumes,
        restartPolicy="Never",
    )
    assert finish(kubectl, "volumes").split() == [
        "from-config-mapfrom-config-map",
        *("from-secret", "400", "from-init", "volumes", "from-config-mapvolumes", "ey"),
        *("from-host", "read-only"),
    ]


def test_a_mounted_config_map_is_updated(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "changing", "--from-literal=key=old")
    mount = {"name": "v", "mountPath": "/v"}
    volume = {"name": "v", "configMap": {"name": "changing"}}
    start(kubectl, "updated", shell("sleep 1000", volumeMounts=[mount]), volumes=[volume])
    kubectl("wait", "--for=condition=Ready", "pod/updated", "--timeout=90s")
    read = ("exec", "updated", "--", "cat", "/v/key")
    assert kubectl(*read) == "old"
    kubectl("patch", "configmap", "changing", "-p", '{"data":{"key":"new"}}')
    wait_until(lambda: kubectl(*read), lambda text: text == "new")


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_streams(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, websockets: str) -> None:
    for variable in ("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"):
        monkeypatch.setenv(variable, websockets)
    pod = f"streams-{websockets}"
    script = "mkdir /www; echo page > /www/index.html; echo ready; exec httpd -f -p 8080 -h /www"
    start(kubectl, pod, shell(script), {**shell("cat", "cat"), "stdin": True, "stdinOnce": True})
    kubectl("wait", "--for=condition=Ready", f"pod/{pod}", "--timeout=90s")
    assert kubectl("logs", pod, "-c", "main") == "ready\n"
    assert kubectl("exec", "-c", "main", pod, "--", "cat", "/www/index.html") == "page\n"
    assert kubectl.run("exec", "-c", "main", pod, "--", "sh", "-c", "echo no >&2; exit 5")[::2] == (
        5,
        "no\ncommand terminated with exit code 5\n",
    )
    assert kubectl("exec", "-i", "-c", "main", pod, "--", "cat", given="typed") == '"typed"'
    assert "not found" in kubectl.refused("exec", "-c", "main", pod, "--", "no-such-command")
    assert '"typed"' in kubectl("attach", "-i", "-c", "cat", pod, given="typed")
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1000)
    kubectl("cp", "-c", "main", str(tmp_path / "file"), f"{pod}:/file")
    kubectl("cp", "-c", "main", f"{pod}:/file", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    process = kubectl.start("port-forward", pod, f"{port}:8080", "--address=127.0.0.1")
    try:
        assert process.stdout is not None
        process.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as response:
            assert response.read() == b"page\n"
    finally:
        process.kill()
        process.communicate()


def test_an_ephemeral_container_sees_the_processes_of_its_target(kubectl: Kubectl) -> None:
    start(kubectl, "debugged", shell("sleep 98765"))
    kubectl("wait", "--for=condition=Ready", "pod/debugged", "--timeout=90s")
    words = ("--image", IMAGE, "--profile=general", "--quiet", "-c", "debugger", "--target=main")
    kubectl("debug", "debugged", *words, "--", "sh", "-c", "cat /proc/1/cmdline")
    wait_until(lambda: kubectl.run("logs", "debugged", "-c", "debugger").out, lambda out: "98765" in out)
    assert "main" in kubectl("top", "pod", "debugged", "--containers")


def test_devices_of_a_claim_are_injected(kubectl: Kubectl) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu"},
        "spec": {"devices": {"requests": [request]}},
    }
    kubectl("create", "-f", "-", given=claim)
    main = shell("env | grep -i gpu | grep -v KUBERNETES | sort", resources={"claims": [{"name": "gpu"}]})
    start(
        kubectl,
        "device",
        main,
        resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}],
        restartPolicy="Never",
    )
    assert "EXAMPLE_GPU_GPU=gpu" in finish(kubectl, "device")
