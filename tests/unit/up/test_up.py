"""`plimsoll up`: refused options, and the components it starts."""

from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Taint
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_SLICES,
)
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.errors import ConfigError, InputError
from plimsoll.up.console import Console
from plimsoll.up.serve import UpLogFile
from plimsoll.up.settings import UpSettings
from plimsoll.up.up import Up, ensure_class, protect_data_dir
from tests.unit.drivers.cpu.machines import make_machine, write_sysfs
from tests.waiting import DEADLINE, until


@pytest.fixture
def settings() -> Iterator[UpSettings]:
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as name:
        directory = Path(name)
        write_sysfs(make_machine(cores=4), directory / "host")
        cpu = CpuSettings(node="", host_root=directory / "host")
        yield UpSettings(data=directory / "data", port=0, name="here", runtime="none", cpu=cpu)


def test_invalid_options_are_refused_before_files_are_made(settings: UpSettings) -> None:
    for wrong, output in (
        (replace(settings, data=settings.data / ("x" * 60)), "path too long for Unix sockets"),
        (replace(settings, name="No Name"), "'No Name' is not a valid node name"),
    ):
        with pytest.raises(ConfigError, match=output):
            asyncio.run(Up(wrong).run())
        assert not wrong.data.exists()


@pytest.mark.parametrize("existing", [0, 0o755], ids=["new", "of an earlier version"])
def test_the_data_directory_is_readable_by_its_owner_only(settings: UpSettings, existing: int) -> None:
    data = settings.data
    if existing:
        data.mkdir(mode=existing)
        (data / "lock").touch()
    protect_data_dir(data)
    assert not data.stat().st_mode & 0o066
    foreign = data.with_name("foreign")
    foreign.mkdir(mode=0o755)
    protect_data_dir(foreign)
    assert foreign.stat().st_mode & 0o777 == 0o755


def test_the_log_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    (tmp_path / "log").touch(0o644)
    UpLogFile(tmp_path / "log").close()
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


def test_an_address_in_use(settings: UpSettings) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigError, match=r"cannot listen on 127\.0\.0\.1:\d+: .*--listen"),
    ):
        asyncio.run(Up(replace(settings, port=taken.getsockname()[1])).run())


def test_components_start_and_stop(settings: UpSettings) -> None:
    seen: list[str] = []

    async def scenario() -> None:
        up = Up(replace(settings, nodes=1))

        def ready(cluster: Up) -> None:
            seen.extend(cluster.lines())
            asyncio.get_running_loop().create_task(look(cluster))

        async def look(cluster: Up) -> None:
            try:
                assert cluster.server is not None
                client = cluster.server.client()
                for name in ("here", "sim-0"):
                    assert await client.get(NODES, name)
                assert cluster.driver is not None
                assert cluster.driver.problems() == ()
                tree = await client.get(DEVICE_CLASSES, "dra.cpu")
                await ensure_class(cluster.server)  # once is enough
                assert await client.get(DEVICE_CLASSES, "dra.cpu") == tree
                seen.append("looked")
            finally:
                cluster.stop()

        await asyncio.wait_for(up.run(ready), DEADLINE)

    asyncio.run(scenario())
    assert seen[-1] == "looked"
    assert f"  kubeconfig   {settings.data}/kubeconfig" in seen
    assert f"  export KUBECONFIG={settings.data}/kubeconfig" in seen


def test_a_failing_component_stops_the_cluster(settings: UpSettings) -> None:
    lost = replace(settings, cpu=replace(settings.cpu, host_root=settings.data / "nowhere"))
    with pytest.raises(InputError, match="nowhere"):
        asyncio.run(asyncio.wait_for(Up(lost).run(), DEADLINE))
    # Nothing is held: the next one can begin.
    asyncio.run(asyncio.wait_for(Up(settings).run(lambda cluster: cluster.stop()), DEADLINE))


async def test_one_cluster_for_each_directory(settings: UpSettings) -> None:
    first = Up(settings)
    task = asyncio.create_task(first.run())
    try:
        await until(lambda: first.driver is not None and not first.driver.problems())
        with pytest.raises(ConfigError, match=r"the cluster with PID \d+ uses this directory; .*--data"):
            await asyncio.wait_for(Up(settings).run(), DEADLINE)
    finally:
        first.stop()
        await asyncio.wait_for(task, DEADLINE)


def test_without_a_driver(settings: UpSettings) -> None:
    async def scenario() -> None:
        up = Up(replace(settings, driver=False))
        await asyncio.wait_for(up.run(lambda cluster: cluster.stop()), DEADLINE)
        assert up.driver is None

    asyncio.run(scenario())
    assert not (settings.root / "plugins" / "dra.cpu").exists()


def test_devices_of_files(settings: UpSettings) -> None:
    with pytest.raises(ConfigError, match="gpu: no such file"):
        asyncio.run(Up(replace(settings, devices=("gpu",))).run())
    seen: list[str] = []
    output = StringIO()

    async def look(cluster: Up) -> None:
        assert cluster.server is not None
        listing = await cluster.server.client().list(RESOURCE_SLICES)
        seen.extend(codec.decode_tree(raw)["spec"]["nodeName"] for raw in listing.items)
        cluster.stop()

    async def scenario() -> None:
        up = Up(replace(settings, nodes=2, driver=False, devices=("nics",)), Console(output))
        async with asyncio.timeout(DEADLINE):
            await up.run(look)

    asyncio.run(scenario())
    assert "  drivers      nic.example.com: simulated devices on all nodes\n" in output.getvalue()
    assert "  simulated    sim-0 to sim-1\n" in output.getvalue()
    assert sorted(seen) == ["here", "sim-0", "sim-1"]


DUMP = """
apiVersion: v1
kind: Pod
metadata: {name: too-much, namespace: x, uid: "1"}
spec: {nodeName: full, containers: [{name: a, image: a, resources: {requests: {cpu: "3"}}}]}
status: {phase: Running}
---
apiVersion: v1
kind: Pod
metadata: {name: more, namespace: x}
spec: {nodeName: full, containers: [{name: a, image: a, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Node
metadata: {name: full, uid: "2"}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "10"}, allocatable: {cpu: "2", memory: 4Gi, pods: "10"}}
---
apiVersion: v1
kind: Node
metadata: {name: lost, uid: "3"}
status:
  allocatable: {cpu: "2", memory: 4Gi, pods: "10"}
  conditions: [{type: Ready, status: "False"}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: x, uid: "4", annotations: {pv.kubernetes.io/bind-completed: "yes"}}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
  storageClassName: manual
  volumeName: disk
status: {phase: Bound, accessModes: [ReadWriteOnce], capacity: {storage: 1Gi}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk, uid: "5", annotations: {pv.kubernetes.io/bound-by-controller: "yes"}}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  claimRef: {kind: PersistentVolumeClaim, namespace: x, name: data, uid: "4", resourceVersion: "77"}
  hostPath: {path: /disk}
  persistentVolumeReclaimPolicy: Delete
  storageClassName: manual
status: {phase: Bound}
"""


async def is_bound(client: Client) -> bool:
    claim = await client.get(PERSISTENT_VOLUME_CLAIMS, "data", "x")
    volume = await client.get(PERSISTENT_VOLUMES, "disk")
    phases = {each["status"].get("phase") for each in (claim, volume)}
    return phases == {"Bound"} and volume["spec"]["claimRef"].get("uid") == claim["metadata"]["uid"]


def test_a_dump_is_simulated_and_keeps_its_ledgers(settings: UpSettings) -> None:
    """A node past its line in a dump is past it here; later pods are checked."""
    file = settings.data.parent / "dump.yaml"
    file.write_text(DUMP)

    async def look(cluster: Up) -> None:
        assert cluster.server is not None
        client = cluster.server.client()
        try:
            pod = await until(
                lambda: client.get(PODS, "too-much", "x"),
                lambda found: (
                    found["status"].get("containerStatuses") and found["status"]["phase"] != "Pending"
                ),
            )
            assert pod["status"]["phase"] == "Running", pod["status"]
            full, lost = await client.get(NODES, "full"), await client.get(NODES, "lost")
            assert full["status"]["allocatable"] == {"cpu": "2", "memory": "4Gi", "pods": "10"}
            assert full["status"]["capacity"] == {"cpu": "4", "memory": "8Gi", "pods": "10"}
            assert {each["type"]: each["status"] for each in full["status"]["conditions"]}["Ready"] == "True"
            assert [each["status"] for each in lost["status"]["conditions"]] == ["False"]
            await until(lambda: is_bound(client), context="the claim and its volume are bound to each other")
        finally:
            cluster.stop()

    async def scenario(files: tuple[str, ...]) -> Up:
        up = Up(replace(settings, driver=False, files=files))
        async with asyncio.timeout(DEADLINE):
            await up.run(look)
        return up

    first = asyncio.run(scenario((str(file),)))
    assert (first.loaded.new, first.problems) == (6, [])
    again = asyncio.run(scenario((str(file),)))
    assert (again.loaded.new, again.loaded.known, again.problems) == (0, 6, [])
    asyncio.run(scenario(()))  # it is there without the file, and still played


def test_files_are_read_before_the_cluster_starts(settings: UpSettings) -> None:
    file = settings.data.parent / "broken.yaml"
    file.write_text("kind: [")
    with pytest.raises(InputError, match=r"broken\.yaml, document 1: line 1: not YAML"):
        asyncio.run(Up(replace(settings, files=(str(file),))).run())
    assert not settings.data.exists()


def test_the_port_stays(settings: UpSettings) -> None:
    ports: list[int] = []

    def ready(cluster: Up) -> None:
        assert cluster.server is not None
        ports.append(cluster.server.port)
        cluster.stop()

    for _ in range(2):
        asyncio.run(Up(replace(settings, driver=False)).run(ready))
    assert ports[0] == ports[1]
    with socket.create_server(("127.0.0.1", ports[0])):
        asyncio.run(Up(replace(settings, driver=False)).run(ready))
    assert ports[2] != ports[0]


async def test_simulated_nodes_have_the_labels_and_taints_of_the_settings(settings: UpSettings) -> None:
    taint = Taint(key="example.com/x", effect="NoSchedule")
    up = Up(replace(settings, nodes=1, simulated_labels={"zone": "a"}, simulated_taints=(taint,)))
    found: list[dict[str, Any]] = []

    async def look(running: Up) -> None:
        assert running.server is not None
        found.append(await running.server.client().get(NODES, "sim-0"))
        running.stop()

    await up.run(look)
    (node,) = found
    assert {"plimsoll.dev/simulated": "true", "zone": "a"}.items() <= node["metadata"]["labels"].items()
    assert [(each["key"], each["effect"]) for each in node["spec"]["taints"]] == [
        ("example.com/x", "NoSchedule")
    ]
