"""Example driver of docs/drivers.md end to end: server, scheduler, node, driver, container."""

from __future__ import annotations

import importlib.util
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, TypeVar

import pytest

from plimsoll import LocalCluster, node_rows
from plimsoll.drivers.plugin import DevicePool
from plimsoll.node.process.settings import NodeSettings
from tests.waiting import DEADLINE, wait_until

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "widgets.py"
T = TypeVar("T")

MANIFESTS = """
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: widgets}
spec: {selectors: [{cel: {expression: device.driver == "widgets.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: large}
spec:
  spec:
    devices:
      requests:
      - name: it
        exactly:
          deviceClassName: widgets
          selectors: [{cel: {expression: 'device.attributes["widgets.example.com"].size > 3'}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: widget, resourceClaimTemplateName: large}]
  containers:
  - name: main
    image: main
    command: [sh, -c, "echo $WIDGET > STATUS_FILE.new; mv STATUS_FILE.new STATUS_FILE; exec sleep 1000"]
    resources: {claims: [{name: widget}]}
"""


def load() -> Any:
    spec = importlib.util.spec_from_file_location("widgets", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_running(pod: Any) -> bool:
    return bool(pod["status"]["phase"] == "Running")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "widgets"
    found.mkdir()
    (found / "small").write_text("x")
    (found / "large").write_text("x" * 10)
    return found


def test_the_example_has_about_fifty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 55


def test_the_document_shows_the_example() -> None:
    text = (ROOT / "docs" / "drivers.md").read_text()
    body = EXAMPLE.read_text()
    assert body[body.index("import asyncio") :].rstrip() in text


def test_the_tests_in_the_document_pass(tmp_path: Path) -> None:
    section = (ROOT / "docs" / "drivers.md").read_text().partition("## Tests without hardware")[2]
    blocks = re.findall(r"^```python\n(.*?)^```$", section.partition("\n## ")[0], re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"Widgets": load().Widgets}
    for block in blocks:
        exec(block, names)
    tests = [name for name in names if name.startswith("test_")]
    assert len(tests) == 3
    for name in tests:
        (tmp_path / name).mkdir()
        names[name](tmp_path / name)


def test_node_resources_in_the_document_are_charged(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "drivers.md").read_text().partition("## Node resources of a device")[2]
    block = re.search(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    names: dict[str, Any] = {"DevicePool": DevicePool}
    exec(block[1], names)

    class Charging(load().Widgets):  # type: ignore[misc]
        pools = names["pools"]

    with LocalCluster(nodes=["worker"], drivers=[lambda node: Charging(tmp_path, node)]) as cluster:
        cluster_state = cluster.cluster_state()
        (before,) = node_rows(cluster_state)
        with cluster.whatif() as w:
            w.add(MANIFESTS.partition("selectors: [{cel: {expression: 'device.attr")[0], POD)
            assert w.schedule().all_placed
            (after,) = node_rows(w.cluster_state)
    assert {row.resource: row.claims for row in before.rows if row.claims} == {}
    assert {row.resource: row.claims for row in after.rows if row.claims} == {"cpu": 500, "memory": 1 << 30}


def test_a_pod_allocates_and_releases_a_widget(directory: Path, tmp_path: Path) -> None:
    widgets = load()
    node = NodeSettings(name="worker", runtime="process", cgroups="plan", listen="")
    device_status = tmp_path / "device-status"
    make = lambda name: widgets.Widgets(directory, name)  # noqa: E731
    with LocalCluster(nodes=node, scheduler=True, drivers=[make]) as cluster:
        cluster.apply(MANIFESTS, POD.replace("STATUS_FILE", str(device_status)))
        pod = cluster.wait_for("pods", "user", condition=is_running, timeout=DEADLINE)
        wait_until(device_status.exists)
        assert device_status.read_text() == "large\n"
        name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        claim = cluster.client.get("resourceclaims", name, "default")
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert (result["pool"], result["device"]) == ("worker", "large")
        cdi = cluster.node_root("worker") / "cdi"
        uid = claim["metadata"]["uid"]
        assert [path.name for path in cdi.iterdir()] == [f"widgets.example.com-claim_{uid}.json"]

        def health() -> list[Any]:
            found = cluster.client.get("pods", "user", "default")["status"]["containerStatuses"][0]
            device_status = found.get("allocatedResourcesStatus", ())
            return [each["health"] for status in device_status for each in status["resources"]]

        # The widget breaks, and its pod is notified; another one is added and published.
        (directory / "large").write_text("")
        (directory / "new").write_text("new one")
        wait_until(lambda: "Unhealthy" in health())
        wait_until(
            lambda: (
                [
                    device["name"]
                    for tree in cluster.client.list("resourceslices")
                    for device in tree["spec"]["devices"]
                ]
                == ["large", "new", "small"]
            )
        )
        cluster.client.delete("pods", "user", "default")
        cluster.wait_for("pods", "user", gone=True, timeout=DEADLINE)
        wait_until(lambda: not list(cdi.iterdir()))


def test_the_example_runs_as_a_program(directory: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r}); from pathlib import Path; import widgets;"
        f"sys.exit(widgets.plugin.run_driver(lambda node: widgets.Widgets(Path({str(directory)!r}), node)))"
    )
    with LocalCluster(nodes=["worker"]) as cluster:
        root = cluster.node_root("worker")
        flags = ["--node", "worker", "--kubeconfig", str(cluster.kubeconfig), "--root", str(root)]
        command = [sys.executable, "-c", code, *flags, "--cdi", str(root / "cdi"), "--withdraw"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            (tree,) = wait_until(lambda: cluster.client.list("resourceslices"))
            assert [device["name"] for device in tree["spec"]["devices"]] == ["large", "small"]
            wait_until((root / "plugins_registry" / "widgets.example.com-reg.sock").exists)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
            process.communicate()
        assert process.returncode == 0, log
        assert "Traceback" not in log
        assert cluster.client.list("resourceslices") == []


def test_startup_failure_is_logged(directory: Path, tmp_path: Path, capsys: Any) -> None:
    widgets = load()
    flags = ["--kubeconfig", str(tmp_path / "absent")]
    assert widgets.plugin.run_driver(lambda node: widgets.Widgets(directory, node), flags) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"\S+ ERROR plimsoll\.driver \S+/absent: no such file", line)
