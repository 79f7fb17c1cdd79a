"""kubectl with `plimsoll up`: logs, exec, cp, attach and port-forward of pods that are processes."""

from __future__ import annotations

import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.directories import short_directory
from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.smoke.up_process import Up
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not find_kubectl(), reason="no kubectl")


@pytest.fixture(scope="module")
def kubectl() -> Iterator[Kubectl]:
    with short_directory() as directory:
        up = Up(directory, "--name", "here", "--nodes", "1", "--no-driver")
        up.start()
        try:
            yield Kubectl(find_kubectl(), up.data / "kubeconfig", directory)
        finally:
            up.stop()
        assert "Traceback" not in up.text()


def a_pod(name: str, script: str, node: str = "here", **container: Any) -> dict[str, Any]:
    main = {"name": "main", "image": "any", "command": ["sh", "-c", script], **container}
    spec = {"nodeName": node, "containers": [main], "terminationGracePeriodSeconds": 0}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def start(kubectl: Kubectl, pod: dict[str, Any]) -> None:
    kubectl("create", "-f", "-", given=pod)
    kubectl("wait", "--for=condition=Ready", f"pod/{pod['metadata']['name']}", "--timeout=60s")


def test_logs(kubectl: Kubectl) -> None:
    start(kubectl, a_pod("talks", "echo one; echo two >&2; sleep 1; echo three; sleep 1000"))
    wait_until(lambda: kubectl("logs", "talks"), lambda text: "three" in text)
    assert sorted(kubectl("logs", "talks").split()) == ["one", "three", "two"]
    assert kubectl("logs", "talks", "--tail=1") == "three\n"
    assert kubectl("logs", "talks", "--limit-bytes=3") == "one"
    assert kubectl("logs", "talks", "--timestamps", "--tail=1").split()[0].endswith("Z")
    refusal = kubectl.refused("logs", "talks", "--previous")
    assert 'previous terminated container "main" in pod "talks" not found' in refusal
    assert "container nope is not valid for pod talks" in kubectl.refused("logs", "talks", "-c", "nope")


def test_logs_are_followed_and_kept_of_the_previous_container(kubectl: Kubectl) -> None:
    start(kubectl, a_pod("again", "echo attempt; sleep 1; exit 1"))
    assert kubectl("logs", "-f", "again") == "attempt\n"
    wait_until(lambda: kubectl.run("logs", "--previous", "again"), lambda found: found.out == "attempt\n")


def test_exec_and_cp(kubectl: Kubectl, tmp_path: Path) -> None:
    start(kubectl, a_pod("runs", "sleep 1000", env=[{"name": "A", "value": "x"}]))
    assert kubectl("exec", "runs", "--", "sh", "-c", "echo $A") == "x\n"
    assert kubectl.run("exec", "runs", "--", "sh", "-c", "exit 5").code == 5
    assert kubectl("exec", "-i", "runs", "--", "cat", given={"a": 1}) == '{"a": 1}'
    assert "executable file not found" in kubectl.refused("exec", "runs", "--", "no-such-command")
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1000)
    kubectl("cp", str(tmp_path / "file"), f"runs:{tmp_path}/there")
    kubectl("cp", f"runs:{tmp_path}/there", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_spdy_is_spoken_as_well(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
    start(kubectl, a_pod("older", "sleep 1000"))
    assert kubectl("exec", "-i", "older", "--", "cat", given={"a": 1}) == '{"a": 1}'
    assert kubectl.run("exec", "older", "--", "sh", "-c", "exit 6").code == 6


def test_run_attaches_to_the_input(kubectl: Kubectl) -> None:
    options = ("--image=any", "--restart=Never", '--overrides={"spec":{"nodeName":"here"}}', "--command")
    assert '{"a": 1}' in kubectl("run", "-i", "reads", *options, "--", "cat", given={"a": 1})


def test_a_mounted_config_map_is_updated(kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "settings", "--from-literal=key=old")
    pod = a_pod("mounts", "sleep 1000", volumeMounts=[{"name": "v", "mountPath": "/no-such-place/in"}])
    pod["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "settings"}}]
    start(kubectl, pod)
    key = "/no-such-place/in/key"
    assert kubectl("exec", "mounts", "--", "cat", key) == "old"
    kubectl("patch", "configmap", "settings", "-p", '{"data":{"key":"new"}}')
    kubectl("exec", "mounts", "--", "sh", "-c", f"until [ $(cat {key}) = new ]; do sleep 0.1; done")
    assert not Path("/no-such-place").exists()


def is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("websockets", ["true", "false"])
def test_port_forward(kubectl: Kubectl, monkeypatch: pytest.MonkeyPatch, websockets: str) -> None:
    monkeypatch.setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    name = f"serves-{websockets}"
    start(kubectl, a_pod(name, f"exec python3 -m http.server --bind 127.0.0.1 {port}"))
    # kubectl ends at the first connection that the pod refuses.
    wait_until(lambda: is_listening(port))
    process = kubectl.start("port-forward", f"pod/{name}", f":{port}", "--address=127.0.0.1")
    try:
        assert process.stdout is not None
        own = process.stdout.readline().split(" -> ")[0].rpartition(":")[2]

        def fetch() -> bytes:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{own}/", timeout=5) as response:
                    found: bytes = response.read()
                    return found
            except OSError:
                return b""

        assert b"Directory listing" in wait_until(fetch, bool)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    "arguments", [("logs", "imagined"), ("exec", "imagined", "--", "ls"), ("port-forward", "imagined", ":80")]
)
def test_simulated_pods_refuse_in_one_line(kubectl: Kubectl, arguments: tuple[str, ...]) -> None:
    kubectl.run("create", "-f", "-", given=a_pod("imagined", "true", "sim-0"))
    kubectl("wait", "--for=condition=Ready", "pod/imagined", "--timeout=60s")
    refusal = kubectl.refused(*arguments)
    assert "node sim-0 is simulated: its pods have no processes" in refusal
    assert len(refusal.strip().splitlines()) == 1


def test_kubectl_is_stopped_with_its_command(kubectl: Kubectl) -> None:
    start(kubectl, a_pod("long", "sleep 1000"))
    process = kubectl.start("exec", "long", "--", "sleep", "987654")
    found = ["pgrep", "-f", "^sleep 987654"]
    wait_until(lambda: subprocess.run(found, capture_output=True, check=False).stdout, bool)
    process.kill()
    process.communicate()
    wait_until(lambda: subprocess.run(found, capture_output=True, check=False).stdout, lambda out: not out)
