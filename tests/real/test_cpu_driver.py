"""CPU driver under a real kubelet with containerd and runc: processes run on the CPUs of their claims.

In a cluster that is all ours, and in one that is all Kubernetes' own.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client.endpoints import PODS
from plimsoll.drivers.cpu.state.cdi import SHELL_ENV
from plimsoll.drivers.plugin.metadata import CONTAINER_DIR, container_path
from plimsoll.protocols import rpc
from plimsoll.protocols.dra import ClaimRef
from plimsoll.protocols.messages import podresources_v1
from tests.real import clusters, kubelet
from tests.real.clusters import CLUSTERS, run_cluster
from tests.real.driver_harness import DriverHarness, DriverSession, container, neighbour, pinned, pod
from tests.real.kubelet import RealNode
from tests.real.programs import missing
from tests.unit.drivers.cpu.machines import make_machine, switch_off, write_sysfs
from tests.waiting import DEADLINE, until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(kubelet.cannot_run()), reason=kubelet.cannot_run()),
]


@pytest.fixture(scope="module", params=CLUSTERS)
def harness(request: pytest.FixtureRequest) -> Iterator[DriverHarness]:
    if reason := clusters.cannot_run(request.param):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as place:
        directory = Path(place)
        node = RealNode(directory / "n")
        for each in (node.directory, directory / "w"):
            each.mkdir()
        with run_cluster(request.param, directory / "w", node.name) as cluster:
            try:
                if reason := node.start(cluster.node):
                    pytest.skip(reason)
                harness = DriverHarness(cluster, node)
                asyncio.run(harness.furnish())
                yield harness
            finally:
                node.stop()


async def test_a_claim_is_exclusive_and_released(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(neighbour())
        assert await session.cpus("neighbour") == session.online
        await session.run(pinned())
        one = await session.claimed("pinned")
        assert len(one) == 1
        rest = session.online - one
        wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
        await session.stays(wanted)
        await session.delete("pinned")
        await session.settles({("neighbour", "app"): session.online})
        assert session.files() == []


async def test_the_scheduler_rounds_half_a_cpu_up(harness: DriverHarness) -> None:
    """With the Go driver such a claim is allocated as it is, and never prepared."""
    async with harness.session() as session:
        await session.run(neighbour(), pod("half", container("app", claim="cpus"), template="half"))
        _, result = await session.claim("half")
        assert result["consumedCapacity"] == {"dra.cpu/cpu": "1"}
        one = await session.claimed("half")
        assert len(one) == 1
        await session.stays({("half", "app"): one, ("neighbour", "app"): session.online - one})


async def test_init_containers_and_sidecars_share_the_claim(harness: DriverHarness) -> None:
    """The Go driver refuses the second container."""
    wait = ["/bin/sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.1; done"]
    first = [
        container("init", claim="cpus", command=wait),
        container("sidecar", claim="cpus", restartPolicy="Always"),
    ]
    parts = (container("app", claim="cpus"), container("side"))
    async with harness.session() as session:
        await session.run(neighbour())
        await session.create(pod("several", *parts, template="one", first=first))
        (process, *_) = await until(lambda: session.processes("several", "init"), context="no init container")
        one = await session.claimed("several", "init")
        rest = session.online - one
        await session.stays({("several", "init"): one, ("neighbour", "app"): rest})
        Path(f"/proc/{process}/root/tmp/go").touch()
        await session.runs("several")
        of_claim = {("several", part): one for part in ("sidecar", "app")}
        await session.stays(of_claim | {("several", "side"): rest, ("neighbour", "app"): rest})
        assert await session.claimed("several", "sidecar") == await session.claimed("several") == one
        await session.delete("several")
        await session.settles({("neighbour", "app"): session.online})


async def test_the_kubelet_reports_devices_and_their_health(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(pinned())
        claim, result = await session.claim("pinned")
        (reported,) = [each for each in await listed(harness.node.root) if each.name == "pinned"]
        parts = {each.name: list(each.dynamic_resources) for each in reported.containers}
        assert parts["side"] == []
        (resource,) = parts["app"]
        assert (resource.claim_namespace, resource.claim_name) == ("default", claim["metadata"]["name"])
        (device,) = resource.claim_resources
        assert device.driver_name == "dra.cpu"
        assert (device.pool_name, device.device_name) == (result["pool"], result["device"])
        assert device.share_id == result["shareID"]
        uid = claim["metadata"]["uid"]
        names = [each.name for each in device.cdi_devices]
        assert f"dra.k8s.io/cpu=claim-{uid}" in names

        async def healthy() -> bool:
            status = (await session.get("pinned"))["status"]
            (app,) = [each for each in status["containerStatuses"] if each["name"] == "app"]
            return [
                (each["name"], one["resourceID"], one["health"])
                for each in app.get("allocatedResourcesStatus", ())
                for one in each["resources"]
                if one["health"] != "Unknown"
            ] == [("claim:cpus", f"dra.k8s.io/cpu=claim-{uid}", "Healthy")]

        await until(healthy, context="the health of the device is not in the pod's status")


async def test_containers_have_device_metadata(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(pinned())
        claim, result = await session.claim("pinned")
        (process, *_) = await session.processes("pinned", "app")
        ref = ClaimRef("default", claim["metadata"]["name"], claim["metadata"]["uid"])
        path = container_path("dra.cpu", ref, "cpu", "cpus")
        reported = json.loads(Path(f"/proc/{process}/root{path}").read_text())
        assert reported["metadata"]["uid"] == ref.uid
        (request,) = reported["requests"]
        (device,) = request["devices"]
        place = (device["driver"], device["pool"], device["name"])
        assert place == ("dra.cpu", result["pool"], result["device"])
        assert device["attributes"]["dra.cpu/allocatedNumCPUs"] == {"int": 1}
        (other, *_) = await session.processes("pinned", "side")
        assert not Path(f"/proc/{other}/root{path}").exists()


async def test_the_driver_is_killed_and_comes_back(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(neighbour(), pinned())
        one = await session.claimed("pinned")
        rest = session.online - one
        wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
        assert await harness.leave(signal.SIGKILL) == -signal.SIGKILL
        await session.stays(wanted)
        await session.run(neighbour("meanwhile"))  # no CPUs are assigned to it
        assert await session.cpus("meanwhile") == session.online
        await harness.drive()
        await session.settles(wanted | {("meanwhile", "app"): rest})
        # A claim deleted while no driver runs is released by the next one.
        await harness.leave(signal.SIGKILL)
        await session.client.delete(PODS, "pinned", "default")
        await asyncio.sleep(2)
        await harness.drive()
        everywhere = {(name, "app"): session.online for name in ("neighbour", "meanwhile")}
        await session.settles(everywhere, seconds=DEADLINE)  # kubelets ask again after a while


async def test_a_pod_that_requires_the_driver_waits_for_it(harness: DriverHarness) -> None:
    """As docs/deploy.md says."""
    careful = pinned("careful")
    careful["metadata"]["annotations"] = {"required-plugins.noderesource.dev": '["dra.cpu"]'}
    async with harness.session() as session:
        await session.run(neighbour())
        await session.run(careful)
        one = await session.claimed("careful")
        wanted = {("careful", "app"): one, ("careful", "side"): session.online - one}
        await harness.leave(signal.SIGKILL)
        before = await session.processes("careful", "side")
        for process in before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

        async def refused() -> bool:
            return any(
                'required plugin "dra.cpu" not present' in text for text in await session.events("careful")
            )

        await until(refused, context="the container may start")
        assert await session.processes("careful", "side") == []
        await harness.drive()
        await session.settles(wanted, seconds=DEADLINE)  # kubelets try again after a while


async def test_containers_and_the_kubelet_are_started_again(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(neighbour(), pinned())
        one = await session.claimed("pinned")
        rest = session.online - one
        wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
        for part in ("app", "side"):
            before = await session.processes("pinned", part)
            for process in before:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

            async def another(part: str = part, before: list[int] = before) -> bool:
                now = await session.processes("pinned", part)
                return bool(now) and not set(now) & set(before)

            await until(another, context="the container is not started again")
        await session.stays(wanted)
        assert await session.claimed("pinned") == one
        await asyncio.to_thread(harness.node.kubelet.stop, signal.SIGKILL)
        await session.stays(wanted)
        harness.node.kubelet.start()
        await session.run(neighbour("later"))
        await session.settles(wanted | {("later", "app"): rest})
        await harness.well()
        await session.delete("pinned")
        await session.settles({("neighbour", "app"): session.online, ("later", "app"): session.online})


async def test_the_runtime_is_restarted(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(neighbour(), pinned())
        one = await session.claimed("pinned")
        rest = session.online - one
        wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
        await asyncio.to_thread(harness.node.containerd.stop)
        await session.stays(wanted)
        await asyncio.to_thread(harness.node.start_containerd)
        await harness.well()
        await session.stays(wanted)
        await session.run(neighbour("later"))
        assert await session.cpus("later") == rest
        await session.delete("pinned")
        await session.settles({(name, "app"): session.online for name in ("neighbour", "later")})
        assert harness.driver is not None
        assert harness.driver.alive


async def test_a_resize_keeps_the_cpus_of_a_container(harness: DriverHarness) -> None:
    """Pods with claims cannot be resized in this version; their neighbours can."""
    small = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}
    async with harness.session() as session:
        await session.run(pinned(), pod("resized", container("app", resources=small)))
        one = await session.claimed("pinned")
        wanted = {("pinned", "app"): one, ("resized", "app"): session.online - one}
        await session.stays(wanted)
        patch = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "200m"}}}]}}
        await session.client.patch(PODS, "resized", patch, "default", subresource="resize", type="strategic")

        async def resized() -> bool:
            status = (await session.get("resized"))["status"]
            return bool(status["containerStatuses"][0]["resources"]["requests"]["cpu"] == "200m")

        await until(resized, context="the pod is not resized")
        await session.stays(wanted)


async def test_cgroups_instead_of_nri(harness: DriverHarness) -> None:
    async with harness.session("--enforcement", "cgroups") as session:
        await session.run(neighbour(), pinned())
        one = await session.claimed("pinned")
        rest = session.online - one
        wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
        await session.settles(wanted)
        await session.stays(wanted)
        await harness.leave(signal.SIGKILL)
        await session.run(neighbour("meanwhile"))
        await harness.drive("--enforcement", "cgroups")
        await session.settles(wanted | {("meanwhile", "app"): rest})
        await session.delete("pinned")
        await session.settles({(name, "app"): session.online for name in ("neighbour", "meanwhile")})


async def test_every_container_keeps_a_cpu(harness: DriverHarness) -> None:
    """Without a minimum all CPUs are published, and a claim of all of them is refused when it is prepared."""
    async with harness.session("--min-shared-cpus", "0") as session:
        if len(await session.devices()) != 1:
            pytest.skip("this machine has several devices")
        await session.run(neighbour())
        await session.create(pod("greedy", container("app", claim="cpus"), template="all"))

        async def refused() -> bool:
            return any("and leave no CPU to" in text for text in await session.events("greedy"))

        await until(refused, context="no event explains why the pod does not run")
        assert await session.cpus("neighbour") == session.online
        # Without other claims it may have all of them.
        await session.delete("neighbour")
        await session.runs("greedy")
        await session.stays({("greedy", "app"): session.online})
        await session.create(neighbour())

        async def not_started() -> bool:
            return any("no shared CPUs are left" in text for text in await session.events("neighbour"))

        await until(not_started, context="no event explains why the container is not started")
        assert await session.processes("neighbour", "app") == []
        await session.delete("greedy")
        await session.runs("neighbour")
        await session.settles({("neighbour", "app"): session.online})


@pytest.mark.skipif(bool(missing("dracpu")), reason=missing("dracpu"))
async def test_the_go_driver_takes_over_and_hands_back(harness: DriverHarness) -> None:
    async with harness.session() as session:
        await session.run(neighbour(), pinned())
        one = await session.claimed("pinned")
        rest = session.online - one
        wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
        ours = await given(session, "pinned")
        await harness.leave()
        await harness.drive(go=True)
        await session.settles(wanted)
        await session.run(neighbour("later"))
        assert await session.cpus("later") == rest
        await session.delete("pinned")  # by the Go driver, which lets the others where they are
        await session.run(pinned("second"))
        one = await session.claimed("second")
        assert await given(session, "second") == ours
        await harness.leave()
        await harness.drive()
        rest = session.online - one
        others = {(name, "app"): rest for name in ("neighbour", "later")}
        await session.settles({("second", "app"): one, ("second", "side"): rest} | others)
        await session.delete("second")
        await session.settles({(name, "app"): session.online for name in ("neighbour", "later")})
        assert session.files() == []


async def test_cpus_that_go_make_the_device_unhealthy(harness: DriverHarness, tmp_path: Path) -> None:
    """The driver is shown a machine of two CPUs, of which one is switched off."""
    machine = make_machine(cores=2)
    write_sysfs(machine, tmp_path)

    async def health(session: DriverSession) -> str:
        status = (await session.get("pinned"))["status"]
        (app,) = [each for each in status["containerStatuses"] if each["name"] == "app"]
        found = [one["health"] for each in app["allocatedResourcesStatus"] for one in each["resources"]]
        return str(found[0]) if found else ""

    async with harness.session("--host-root", tmp_path) as session:
        await session.run(pinned())
        one = await session.claimed("pinned")
        for now, wanted in ((switch_off(machine, one), "Unhealthy"), (machine, "Healthy")):
            write_sysfs(now, tmp_path)

            async def reported(wanted: str = wanted) -> bool:
                return await health(session) == wanted

            await until(reported, context="the health of the device is not in the pod's status")


async def given(session: DriverSession, name: str) -> dict[str, Any]:
    """Return the CDI files, environment and metadata of a container's claim, without names."""
    claim, _ = await session.claim(name)
    words = {claim["metadata"]["uid"]: "UID", claim["metadata"]["name"]: "CLAIM"}
    words[str(session.harness.node.root)] = "ROOT"

    def read(text: str) -> str:
        for word, instead in words.items():
            text = text.replace(word, instead)
        return text

    directory = session.harness.node.cdi
    found = {read(path): json.loads(read((directory / path).read_text())) for path in session.files()}
    for spec in found.values():  # edits for all devices, of which there are none
        assert spec.pop("containerEdits", {}) == {}
        for device in spec["devices"]:
            edits = device["containerEdits"]
            if "env" in edits:  # the second name of the CPUs, for shells, is only ours
                edits["env"] = [each for each in edits["env"] if not each.startswith(SHELL_ENV)]
        if spec["kind"] == "dra.cpu/metadata":  # names of its devices begin with the UID
            assert spec.pop("cdiVersion") == ("0.5.0" if claim["metadata"]["uid"][0].isdigit() else "0.3.0")
    (process, *_) = await session.processes(name, "app")
    inside = Path(f"/proc/{process}/root/{CONTAINER_DIR}")
    for path in sorted(each for each in inside.rglob("*") if each.is_file()):
        found[read(str(path.relative_to(inside)))] = json.loads(read(path.read_text()))
    return found


async def listed(root: Path) -> list[Any]:
    """Return the kubelet's PodResources of all pods."""
    method = rpc.find_method(podresources_v1.DESCRIPTOR, "PodResourcesLister", "List")
    channel = rpc.dial(root / "pod-resources/kubelet.sock")
    try:
        answer = await rpc.call(channel, method, podresources_v1.ListPodResourcesRequest(), timeout=10)
        return list(answer.pod_resources)
    finally:
        await rpc.close(channel)
