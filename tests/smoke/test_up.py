"""`plimsoll up` as a process: a cluster on this machine whose pods run on the CPUs they claim."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from plimsoll.api import codec
from plimsoll.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    EVENTS,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
from plimsoll.errors import ApiError
from plimsoll.node.cgroups.detect import detect
from plimsoll.node.cgroups.kernel import LinuxKernel
from plimsoll.node.cgroups.ownership import default_root
from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.smoke.up_process import TEMPLATE, Up, cannot_pin, pod, running
from tests.waiting import DEADLINE, until, wait_until


def pids(data: Path, uid: str) -> list[int]:
    """Return the processes of a pod's containers, by their cgroups."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if uid in (entry / "cgroup").read_text() and b"sleep" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


def allowed(pid: int) -> str:
    """Return the CPUs that a process may run on."""
    found = re.search(r"(?m)^Cpus_allowed_list:\s*(\S+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return found[1]


def test_a_cluster_starts_with_devices_and_survives_a_restart(root: Path) -> None:
    up = Up(root, "--name", "here", "--nodes", "2", "--runtime", "none")

    async def look(client: Client) -> None:
        for name in ("here", "sim-0", "sim-1"):
            assert (await client.get(NODES, name))["metadata"]["name"] == name
        slices = [codec.decode_tree(raw) for raw in (await client.list(RESOURCE_SLICES)).items]
        assert {(each["spec"]["driver"], each["spec"]["nodeName"]) for each in slices} == {
            ("dra.cpu", "here")
        }
        assert await client.get(DEVICE_CLASSES, "dra.cpu")

    async def write(client: Client) -> None:
        await look(client)
        await client.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE, "default")
        await client.create(PODS, pod("pinned", claim=True))
        bound = await running(client, "pinned")
        assert bound["spec"]["nodeName"] == "here"
        assert bound["status"]["resourceClaimStatuses"][0]["resourceClaimName"]

    async def find(client: Client) -> None:
        await look(client)
        await running(client, "pinned")

    try:
        up.start()
        text = up.text()
        assert f"export KUBECONFIG={up.data}/kubeconfig" in text
        address = re.search(r"--address ([\d.:]+)", text)
        assert address is not None
        with urllib.request.urlopen(f"http://{address[1]}/healthz", timeout=DEADLINE) as answer:
            assert answer.read() == b"ok"
        up.run_scenario(write)
        assert up.stop() == 0
        up.start()
        up.run_scenario(find)
    finally:
        code = up.stop(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in up.text(), up.text()


def cannot_limit() -> str:
    """Return why there are no cgroups for pods here, or an empty string."""
    if os.geteuid() != 0:
        return "needs root"
    return "" if detect(Path("/sys/fs/cgroup"), LinuxKernel()).version else "needs cgroups to write"


def find_cgroups(start: str) -> list[Path]:
    """Return the cgroups whose names start so; others come and go meanwhile, which `os.walk` ignores."""
    found = os.walk("/sys/fs/cgroup")
    return [Path(where, name) for where, names, _ in found for name in names if name.startswith(start)]


def root_of(up: Up, name: str) -> list[Path]:
    """Return the root of a cluster's cgroups, in every hierarchy."""
    return find_cgroups(default_root(name, up.data / "node"))


def remove_root(up: Up, name: str) -> None:
    """Kill everything in a cluster's cgroups and remove them, as if they were leftovers.

    The cluster is stopped meanwhile: otherwise it would start the killed containers again in these cgroups.
    """

    def removed(directory: str) -> bool:
        with suppress(OSError):
            for pid in Path(directory, "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with suppress(OSError):
            os.rmdir(directory)
        return not os.path.isdir(directory)

    with up.paused():
        for root in root_of(up, name):
            for directory, _, _ in os.walk(root, topdown=False):
                wait_until(partial(removed, directory))


@pytest.mark.skipif(bool(cannot_limit()), reason=cannot_limit() or "-")
def test_two_clusters_on_one_machine_do_not_touch_each_others_cgroups(root: Path) -> None:
    name = f"up-{os.getpid()}"
    (root / "1").mkdir()
    (root / "2").mkdir()
    first, second = (Up(root / each, "--name", name, "--no-driver") for each in "12")

    async def begin(client: Client) -> None:
        await client.create(PODS, pod("old"))
        await running(client, "old")

    async def go_on(client: Client) -> None:
        old = (await client.get(PODS, "old", "default"))["status"]["containerStatuses"][0]
        assert old["restartCount"] == 0
        assert old["state"]["running"]
        await client.create(PODS, pod("new"))
        await running(client, "new")

    async def recover(client: Client) -> None:
        async def restarted() -> bool:
            statuses = [(await client.get(PODS, each, "default"))["status"] for each in ("old", "new")]
            return all(
                each["containerStatuses"][0]["restartCount"] >= 1
                and each["containerStatuses"][0]["state"].get("running")
                for each in statuses
            )

        async def reported() -> bool:
            events = [codec.decode_tree(raw) for raw in (await client.list(EVENTS)).items]
            return {"CgroupsLost", "CgroupsRestored"} <= {each["reason"] for each in events}

        await until(restarted, ignore=(ApiError, KeyError, IndexError))
        await until(reported, ignore=(ApiError, KeyError, IndexError))
        await client.create(PODS, pod("newest"))
        await running(client, "newest")
        node = await client.get(NODES, name)
        ready = next(each for each in node["status"]["conditions"] if each["type"] == "Ready")
        assert ready["status"] == "True"

    try:
        for up in (first, second):
            up.start()
            up.run_scenario(begin)
        for up in (first, second):
            if find_kubectl():  # each pod is asked at its own node, of the same name
                kubectl = Kubectl(find_kubectl(), up.data / "kubeconfig", root)
                assert str(up.data) in kubectl("exec", "old", "--", "readlink", "/proc/self/cwd")
        assert root_of(first, name)
        assert second.stop() == 0
        assert not root_of(second, name), "its own cgroups are removed"
        first.run_scenario(go_on)
        remove_root(first, name)
        first.run_scenario(recover)
    finally:
        codes = [up.stop() for up in (first, second)]
    assert codes == [0, 0]
    assert not find_cgroups(f"plimsoll-{name}")
    for up in (first, second):
        assert "Traceback" not in up.text(), up.text()


@pytest.mark.skipif(bool(cannot_pin()), reason=cannot_pin() or "-")
def test_only_the_claiming_pod_runs_on_its_cpu(root: Path) -> None:
    up = Up(root, "--name", f"up-{os.getpid()}")
    every = allowed(os.getpid())

    async def scenario(client: Client) -> None:
        await client.create(RESOURCE_CLAIM_TEMPLATES, TEMPLATE, "default")
        await client.create(PODS, pod("neighbour"))
        neighbour = await running(client, "neighbour")
        (other,) = pids(up.data, neighbour["metadata"]["uid"])
        assert allowed(other) == every
        await client.create(PODS, pod("pinned", claim=True))
        pinned = await running(client, "pinned")
        (own,) = pids(up.data, pinned["metadata"]["uid"])
        mine, theirs = allowed(own), allowed(other)
        assert mine.isdigit()
        assert set(os.sched_getaffinity(own)) == {int(mine)}
        assert set(os.sched_getaffinity(other)) == set(os.sched_getaffinity(0)) - {int(mine)}, theirs
        await client.delete(PODS, "pinned", "default")

        async def grown() -> bool:
            return allowed(other) == every

        await until(grown, ignore=(ApiError, KeyError, IndexError))

    try:
        up.start()
        up.run_scenario(scenario)
    finally:
        code = up.stop()
    assert code == 0
    # Nothing runs on when all has ended.
    assert not find_cgroups(f"plimsoll-up-{os.getpid()}")
    assert "Traceback" not in up.text(), up.text()
