"""Fake driver process: control files, restarts, nodes without sockets, binding conditions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.forms import Form
from plimsoll.apiserver.auth.users import driver_user
from plimsoll.cli.main import main
from plimsoll.drivers.fake.device_file import find_drivers, parse_drivers
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.drivers.fake.process import FakeDriverProcess, find_node_paths, find_plans
from plimsoll.drivers.plugin import AllocatedClaim, DevicePool, Driver, InjectedDevice, Prepared
from plimsoll.drivers.plugin.plugin_server_group import NodePaths
from plimsoll.errors import ConfigError, InputError
from plimsoll.tools.device_file_check import require_valid_plan
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, wait_until

Tree = dict[str, Any]
GPU_POD = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec: {spec: {devices: {requests: [{name: dev, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: main, image: main, resources: {claims: [{name: dev}]}}]
  resourceClaims: [{name: dev, resourceClaimTemplateName: one}]
"""


def small(**fields: Any) -> Tree:
    """Return a device file with one driver of two devices."""
    device = {"name": "gpu-{i}", "count": 2, **fields.pop("device", {})}
    return {"drivers": [{"name": "gpu.example.com", "devices": [device], **fields}]}


def is_phase(phase: str) -> Callable[[Tree], bool]:
    return lambda pod: bool(pod["status"]["phase"] == phase)


def devices_of(cluster: LocalCluster, driver: str = "gpu.example.com") -> list[str]:
    slices = cluster.client.list("resourceslices", fields=f"spec.driver={driver}")
    return sorted(device["name"] for each in slices for device in each["spec"].get("devices", ()))


class Started:
    """Driver process on the event loop of a cluster."""

    def __init__(self, cluster: LocalCluster, process: FakeDriverProcess) -> None:
        self.cluster, self.process = cluster, process

    def __enter__(self) -> FakeDriverProcess:
        self.cluster.run(self.process.start())
        self.cluster.run(self.process.wait_ready(10))
        return self.process

    def __exit__(self, *_: object) -> None:
        self.cluster.run(self.process.end())


def started(cluster: LocalCluster, tree: Tree, **more: Any) -> Started:
    server = cluster.server
    process = FakeDriverProcess(
        server.client(),
        parse_drivers(tree),
        [NodePaths("n", cluster.node_root("n"))],
        client_for=lambda name: server.client(driver_user(name)),
        validate=require_valid_plan,
        **more,
    )
    return Started(cluster, process)


def test_a_control_file_is_read_again_when_it_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    control = tmp_path / "control.yaml"
    control.write_text("drivers: [{absent: [gpu-1]}]")
    with LocalCluster(nodes=["n"]) as cluster, started(cluster, small(), control=control):
        assert devices_of(cluster) == ["gpu-0"]
        control.write_text("drivers: [{absent: nothing at all, health: 3}]")
        wait_until(lambda: "health: must be a list" in caplog.text)
        assert devices_of(cluster) == ["gpu-0"]
        control.write_text("drivers: []")
        wait_until(lambda: devices_of(cluster) == ["gpu-0", "gpu-1"])
        control.write_text("drivers: [{taints: [{key: example.com/x, devices: gpu-0}]}]")

        def is_tainted() -> bool:
            (piece,) = cluster.client.list("resourceslices")
            return [device["name"] for device in piece["spec"]["devices"] if "taints" in device] == ["gpu-0"]

        wait_until(is_tainted)
        control.unlink()
        wait_until(lambda: not is_tainted())
        assert "ignoring invalid control file" in caplog.text


def test_an_invalid_control_file_fails_the_start(tmp_path: Path) -> None:
    control = tmp_path / "control.yaml"
    control.write_text("driver: []")
    with (
        LocalCluster(nodes=["n"]) as cluster,
        pytest.raises(ConfigError, match="driver: unknown field"),
        started(cluster, small(), control=control),
    ):
        pass


def test_invalid_devices_are_reported_at_the_start() -> None:
    with (
        LocalCluster(nodes=["n"]) as cluster,
        pytest.raises(
            ConfigError, match=r"drivers\[0\]: the API server would reject .*spec.devices\[0\].attributes"
        ),
        started(cluster, small(device={"attributes": {"not a name": 1}})),
    ):
        pass


def test_a_restarted_driver_knows_its_prepared_claims() -> None:
    with LocalCluster(nodes=["n"], scheduler=True) as cluster:
        with started(cluster, small()):
            cluster.apply(GPU_POD)
            pod = cluster.wait_for("pods", "p", condition=is_phase("Running"))
            claim = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
        with started(cluster, small()) as process:
            driver = process.driver()
            tree = cluster.client.get("resourceclaims", claim, "default")
            uid = tree["metadata"]["uid"]
            assert list(driver.known()) == [uid]
            # Another claim that was given the same device is refused; a scheduler would not do that.
            device = tree["status"]["allocation"]["devices"]["results"][0]["device"]
            cluster.run(driver.load_allocations("another"))
            assert [allocated.device for allocated in driver.allocated[uid]] == [device]
            cluster.client.delete("pods", "p", "default")
            cluster.wait_for("pods", "p", gone=True)
            assert driver.allocated == {}


def test_node_resources_in_the_configured_form() -> None:
    tree = small(device={"nodeResources": {"memory": "1Gi"}})
    for form, field in (
        (Form.V1_36, "nodeAllocatableResourceMappings"),
        (Form.V1_37, "nodeAllocatableResources"),
        (None, "nodeAllocatableResources"),  # what the server knows
    ):
        with LocalCluster(nodes=["n"], scheduler=True) as cluster, started(cluster, tree, form=form):
            (piece,) = cluster.client.list("resourceslices")
            assert all(field in device for device in piece["spec"]["devices"])
            cluster.apply(GPU_POD)
            cluster.wait_for("pods", "p", condition=is_phase("Running"))
            requested = cluster.ask_node(
                "n", lambda agent: agent.admission_handler.ledger.requested.get("memory", 0)
            )
            assert requested == 1024**3


def binding(**more: Any) -> Tree:
    conditions = {"conditions": ["example.com/attached"], "failureConditions": ["example.com/failed"]}
    return small(device={"binding": {**conditions, **more}})


def test_a_pod_waits_for_its_devices_to_be_attached() -> None:
    with LocalCluster(nodes=["n"], scheduler=True, drivers=binding(after="300ms")) as cluster:
        began = time.monotonic()
        cluster.apply(GPU_POD)
        pod = cluster.wait_for("pods", "p", condition=is_phase("Running"))
        assert time.monotonic() - began >= 0.3
        claim = cluster.client.get(
            "resourceclaims", pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"], "default"
        )
        (device,) = claim["status"]["devices"]
        (condition,) = device["conditions"]
        assert (condition["type"], condition["status"]) == ("example.com/attached", "True")


@pytest.mark.parametrize(
    ("outcome", "message"),
    [
        ("fail", "device binding failed: claim=p-dev-"),
        ("never", "waiting for binding conditions for device on node n"),
    ],
)
def test_devices_that_are_not_attached_keep_their_pod_waiting(outcome: str, message: str) -> None:
    with LocalCluster(nodes=["n"], scheduler=True, drivers=binding(outcome=outcome)) as cluster:
        cluster.apply(GPU_POD)
        wait_until(
            lambda: any(message in e.get("message", "") for e in cluster.client.list("events", "default"))
        )
        pod = cluster.client.get("pods", "p", "default")
        assert not pod["spec"].get("nodeName")
        cluster.client.delete("pods", "p", "default", grace=0)  # there is nothing left to wait for


# -- LocalCluster


def test_drivers_outlast_an_agent() -> None:
    with LocalCluster(nodes=["n"], scheduler=True, drivers=small()) as cluster:
        cluster.restart_node("n")
        cluster.apply(GPU_POD)
        cluster.wait_for("pods", "p", condition=is_phase("Running"), timeout=DEADLINE)
        cluster.restart_node("n")
        cluster.client.delete("pods", "p", "default")
        cluster.wait_for("pods", "p", gone=True, timeout=DEADLINE)
        driver = cluster.driver()
        assert isinstance(driver, FakeDriver)
        wait_until(lambda: not driver.allocated)


class OneDevice(Driver):
    """Minimal driver."""

    name = "one.example.com"

    def __init__(self, node: str) -> None:
        self.node = node

    def pools(self) -> list[DevicePool]:
        return [DevicePool(self.node, [{"name": "it"}])]

    async def prepare(self, claim: AllocatedClaim) -> Prepared:
        return [InjectedDevice((result.request,), self.node, result.device) for result in claim.results]


def test_python_drivers_run_in_a_local_cluster() -> None:
    with LocalCluster(nodes=["a", "b"], drivers=[OneDevice, small()]) as cluster:
        slices = cluster.client.list("resourceslices")
        assert sorted((each["spec"]["driver"], each["spec"]["nodeName"]) for each in slices) == [
            (name, node) for name in ("gpu.example.com", "one.example.com") for node in "ab"
        ]
        assert isinstance(cluster.driver("one.example.com", "a"), OneDevice)
        assert isinstance(cluster.driver("gpu.example.com", "b"), FakeDriver)
        with pytest.raises(InputError, match="2 instances are running; specify one"):
            cluster.driver("gpu.example.com")
    with LocalCluster(nodes=["a"], drivers=OneDevice("a")) as cluster:
        assert devices_of(cluster, "one.example.com") == ["it"]
        cluster.stop()
        cluster.start()
        assert devices_of(cluster, "one.example.com") == ["it"]


def test_invalid_drivers_are_refused() -> None:
    with pytest.raises(InputError, match="set nodes="):
        LocalCluster(drivers="gpus")
    with pytest.raises(InputError, match="use a device file"):
        LocalCluster(nodes=1, drivers=[3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="creates one for each node"):
        LocalCluster(nodes=2, drivers=OneDevice("a")).start()
    with pytest.raises(ConfigError, match=r"duplicate driver name gpu\.example\.com"):
        LocalCluster(nodes=1, drivers=["gpus", small()]).start()


def test_nodes_without_sockets_have_devices_too() -> None:
    with LocalCluster(nodes=101, scheduler=True, drivers=small()) as cluster:
        assert len(cluster.client.list("resourceslices")) == 101
        (piece,) = cluster.client.list(
            "resourceslices", fields="spec.driver=gpu.example.com,spec.nodeName=node-7"
        )
        assert piece["metadata"]["ownerReferences"][0]["name"] == "node-7"
        cluster.apply(GPU_POD)
        cluster.wait_for("pods", "p", condition=lambda pod: bool(pod["spec"]["nodeName"]))
        cluster.control_drivers({"drivers": [{"nodes": "node-7", "absent": "*"}]})
        wait_until(lambda: len(devices_of(cluster)) == 200)
        (after,) = cluster.client.list(
            "resourceslices", fields="spec.driver=gpu.example.com,spec.nodeName=node-7"
        )
        assert after["spec"]["pool"]["generation"] == piece["spec"]["pool"]["generation"] + 1
        with pytest.raises(InputError, match="can only have devices from a file"):
            LocalCluster(nodes=101, drivers=OneDevice).start()


@pytest.mark.plimsoll(nodes=["n"], scheduler=True, drivers="nics")
def test_the_pytest_fixture_starts_drivers(plimsoll_cluster: LocalCluster) -> None:
    assert devices_of(plimsoll_cluster, "nic.example.com") == ["nic-0", "nic-1"]


# -- the command


def test_command_line_files_and_nodes() -> None:
    assert [plan.name for plan in find_plans(["gpus", "nics"])] == ["gpu.example.com", "nic.example.com"]
    with pytest.raises(ConfigError, match=r"duplicate driver name gpu\.example\.com"):
        find_plans(["gpus", "gpus"])
    one = find_node_paths(["a"])
    assert one == (NodePaths("a", Path("/var/lib/kubelet")),)
    assert one[0].cdi_dir == Path("/var/run/cdi")
    two = find_node_paths(["a", "b"], Path("/r"))
    assert [(paths.root, paths.cdi_dir) for paths in two] == [
        (Path("/r/a"), Path("/r/a/cdi")),
        (Path("/r/b"), Path("/r/b/cdi")),
    ]
    assert find_node_paths(["a"], sockets=False) == (NodePaths("a", None),)
    assert find_node_paths([])[0].node


def test_the_command_reports_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("drivers: [{name: x.example.com, devices: [{name: 'd-{k}'}]}]")
    with pytest.raises(SystemExit) as ended:
        main(["driver", "fake", str(bad)])
    assert ended.value.code == 2
    message = "bad.yaml: drivers[0].devices[0].name: {k}: unknown name 'k'; known names: i, node"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("root", "message"), [("/dev/null/below", "Not a directory"), ("/" + "x" * 100, "at most 107 bytes")]
)
def test_an_unusable_root_directory_is_reported(root: str, message: str) -> None:
    with LocalCluster(nodes=["n"]) as cluster:
        node_paths = [NodePaths("n", Path(root))]
        process = FakeDriverProcess(
            cluster.server.client(), parse_drivers(small()), node_paths, validate=require_valid_plan
        )
        with pytest.raises(ConfigError, match=message):
            cluster.run(process.start())


def test_the_command_serves_until_a_signal(tmp_path: Path) -> None:
    with LocalCluster(nodes=["n"], scheduler=True) as cluster:
        command = [sys.executable, "-m", "plimsoll.cli.main", "driver", "fake", "gpus", "--node", "n"]
        command += ["--kubeconfig", str(cluster.kubeconfig), "--root", str(cluster.node_root("n"))]
        log = (tmp_path / "log").open("w")
        with log, subprocess.Popen([*command, "--withdraw"], stderr=log, env={**os.environ}) as process:
            try:
                cluster.apply(GPU_POD)
                cluster.wait_for("pods", "p", condition=is_phase("Running"), timeout=30)
                cluster.client.delete("pods", "p", "default")
                cluster.wait_for("pods", "p", gone=True)
            finally:
                process.send_signal(signal.SIGTERM)
                code = process.wait(DEADLINE)
        text = (tmp_path / "log").read_text()
        assert code == 0, text
        assert "Traceback" not in text
        assert cluster.client.list("resourceslices") == []
        assert [plan.name for plan in find_drivers("gpus")] == ["gpu.example.com"]
