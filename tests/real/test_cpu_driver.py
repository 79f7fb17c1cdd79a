"""The CPU driver under a real kubelet with containerd and runc: processes run where their claims say.

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
from plimsoll.drivers.plugin.metadata import CONTAINER_DIR, container_path
from plimsoll.protocols import rpc
from plimsoll.protocols.dra import ClaimRef
from plimsoll.protocols.messages import podresources_v1
from tests.real import kubelet, worlds
from tests.real.kubelet import RealNode
from tests.real.programs import missing
from tests.real.stage import SECONDS, Play, Stage, container, neighbour, pinned, pod, until
from tests.real.worlds import WORLDS, run_world
from tests.unit.drivers.cpu.machines import make_machine, switch_off, write_sysfs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(kubelet.cannot_run()), reason=kubelet.cannot_run()),
]


@pytest.fixture(scope="module", params=WORLDS)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if reason := worlds.cannot_run(request.param):
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="p-", dir="/tmp") as place:
        folder = Path(place)
        node = RealNode(folder / "n")
        for each in (node.folder, folder / "w"):
            each.mkdir()
        with run_world(request.param, folder / "w", node.name) as world:
            try:
                if reason := node.start(world.node):
                    pytest.skip(reason)
                stage = Stage(world, node)
                asyncio.run(stage.furnish())
                yield stage
            finally:
                node.stop()


def test_a_claim_is_for_one_container_and_comes_back(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour())
            assert await play.cpus("neighbour") == play.online
            await play.run(pinned())
            one = await play.claimed("pinned")
            assert len(one) == 1
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            await play.stays(wanted)
            await play.delete("pinned")
            await play.settles({("neighbour", "app"): play.online})
            assert play.files() == []

    asyncio.run(story())


def test_the_scheduler_rounds_half_a_cpu_up(stage: Stage) -> None:
    """With the Go driver such a claim is allocated as it is, and never prepared."""

    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour(), pod("half", container("app", claim="cpus"), template="half"))
            _, result = await play.claim("half")
            assert result["consumedCapacity"] == {"dra.cpu/cpu": "1"}
            one = await play.claimed("half")
            assert len(one) == 1
            await play.stays({("half", "app"): one, ("neighbour", "app"): play.online - one})

    asyncio.run(story())


def test_init_containers_and_sidecars_share_the_claim(stage: Stage) -> None:
    """The Go driver refuses the second container."""
    wait = ["/bin/sh", "-c", "while [ ! -e /tmp/go ]; do sleep 0.1; done"]
    first = [
        container("init", claim="cpus", command=wait),
        container("sidecar", claim="cpus", restartPolicy="Always"),
    ]
    parts = (container("app", claim="cpus"), container("side"))

    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour())
            await play.create(pod("several", *parts, template="one", first=first))
            (process, *_) = await until(
                lambda: play.processes("several", "init"), lambda: "no init container"
            )
            one = await play.claimed("several", "init")
            rest = play.online - one
            await play.stays({("several", "init"): one, ("neighbour", "app"): rest})
            Path(f"/proc/{process}/root/tmp/go").touch()
            await play.runs("several")
            of_claim = {("several", part): one for part in ("sidecar", "app")}
            await play.stays(of_claim | {("several", "side"): rest, ("neighbour", "app"): rest})
            assert await play.claimed("several", "sidecar") == await play.claimed("several") == one
            await play.delete("several")
            await play.settles({("neighbour", "app"): play.online})

    asyncio.run(story())


def test_the_kubelet_reports_of_devices_and_their_health(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(pinned())
            claim, result = await play.claim("pinned")
            (told,) = [each for each in await listed(stage.node.root) if each.name == "pinned"]
            parts = {each.name: list(each.dynamic_resources) for each in told.containers}
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
                status = (await play.get("pinned"))["status"]
                (app,) = [each for each in status["containerStatuses"] if each["name"] == "app"]
                return [
                    (each["name"], one["resourceID"], one["health"])
                    for each in app.get("allocatedResourcesStatus", ())
                    for one in each["resources"]
                    if one["health"] != "Unknown"
                ] == [("claim:cpus", f"dra.k8s.io/cpu=claim-{uid}", "Healthy")]

            await until(healthy, lambda: "the health of the device is not in the pod's status")

    asyncio.run(story())


def test_containers_read_about_their_devices(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(pinned())
            claim, result = await play.claim("pinned")
            (process, *_) = await play.processes("pinned", "app")
            ref = ClaimRef("default", claim["metadata"]["name"], claim["metadata"]["uid"])
            path = container_path("dra.cpu", ref, "cpu", "cpus")
            told = json.loads(Path(f"/proc/{process}/root{path}").read_text())
            assert told["metadata"]["uid"] == ref.uid
            (request,) = told["requests"]
            (device,) = request["devices"]
            place = (device["driver"], device["pool"], device["name"])
            assert place == ("dra.cpu", result["pool"], result["device"])
            assert device["attributes"]["dra.cpu/allocatedNumCPUs"] == {"int": 1}
            (other, *_) = await play.processes("pinned", "side")
            assert not Path(f"/proc/{other}/root{path}").exists()

    asyncio.run(story())


def test_the_driver_is_killed_and_comes_back(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour(), pinned())
            one = await play.claimed("pinned")
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            assert await stage.leave(signal.SIGKILL) == -signal.SIGKILL
            await play.stays(wanted)
            await play.run(neighbour("meanwhile"))  # nobody tells it where to run
            assert await play.cpus("meanwhile") == play.online
            await stage.drive()
            await play.settles(wanted | {("meanwhile", "app"): rest})
            # A claim that is to be released while nobody is there is released by whoever comes.
            await stage.leave(signal.SIGKILL)
            await play.client.delete(PODS, "pinned", "default")
            await asyncio.sleep(2)
            await stage.drive()
            everywhere = {(name, "app"): play.online for name in ("neighbour", "meanwhile")}
            await play.settles(everywhere, seconds=SECONDS)  # kubelets ask again after a while

    asyncio.run(story())


def test_a_pod_that_demands_the_driver_does_not_start_without(stage: Stage) -> None:
    """As docs/deploy.md says."""
    careful = pinned("careful")
    careful["metadata"]["annotations"] = {"required-plugins.noderesource.dev": '["dra.cpu"]'}

    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour())
            await play.run(careful)
            one = await play.claimed("careful")
            wanted = {("careful", "app"): one, ("careful", "side"): play.online - one}
            await stage.leave(signal.SIGKILL)
            before = await play.processes("careful", "side")
            for process in before:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)

            async def refused() -> bool:
                return any(
                    'required plugin "dra.cpu" not present' in text for text in await play.events("careful")
                )

            await until(refused, lambda: "the container may start")
            assert await play.processes("careful", "side") == []
            await stage.drive()
            await play.settles(wanted, seconds=SECONDS)  # kubelets try again after a while

    asyncio.run(story())


def test_containers_and_the_kubelet_are_started_again(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour(), pinned())
            one = await play.claimed("pinned")
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            for part in ("app", "side"):
                before = await play.processes("pinned", part)
                for process in before:
                    with suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)

                async def another(part: str = part, before: list[int] = before) -> bool:
                    now = await play.processes("pinned", part)
                    return bool(now) and not set(now) & set(before)

                await until(another, lambda: "the container is not started again")
            await play.stays(wanted)
            assert await play.claimed("pinned") == one
            await asyncio.to_thread(stage.node.kubelet.stop, signal.SIGKILL)
            await play.stays(wanted)
            stage.node.kubelet.start()
            await play.run(neighbour("later"))
            await play.settles(wanted | {("later", "app"): rest})
            await stage.well()
            await play.delete("pinned")
            await play.settles({("neighbour", "app"): play.online, ("later", "app"): play.online})

    asyncio.run(story())


def test_the_runtime_is_restarted(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour(), pinned())
            one = await play.claimed("pinned")
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            await asyncio.to_thread(stage.node.containerd.stop)
            await play.stays(wanted)
            await asyncio.to_thread(stage.node.start_containerd)
            await stage.well()
            await play.stays(wanted)
            await play.run(neighbour("later"))
            assert await play.cpus("later") == rest
            await play.delete("pinned")
            await play.settles({(name, "app"): play.online for name in ("neighbour", "later")})
            assert stage.driver is not None
            assert stage.driver.alive

    asyncio.run(story())


def test_a_kubelet_that_resizes_a_container_leaves_it_where_it_is(stage: Stage) -> None:
    """Pods with claims cannot be resized in this version; their neighbours can."""
    small = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}}

    async def story() -> None:
        async with stage.playing() as play:
            await play.run(pinned(), pod("resized", container("app", resources=small)))
            one = await play.claimed("pinned")
            wanted = {("pinned", "app"): one, ("resized", "app"): play.online - one}
            await play.stays(wanted)
            patch = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "200m"}}}]}}
            await play.client.patch(PODS, "resized", patch, "default", subresource="resize", type="strategic")

            async def resized() -> bool:
                status = (await play.get("resized"))["status"]
                return bool(status["containerStatuses"][0]["resources"]["requests"]["cpu"] == "200m")

            await until(resized, lambda: "the pod is not resized")
            await play.stays(wanted)

    asyncio.run(story())


def test_cgroups_instead_of_nri(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing("--enforcement", "cgroups") as play:
            await play.run(neighbour(), pinned())
            one = await play.claimed("pinned")
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            await play.settles(wanted)
            await play.stays(wanted)
            await stage.leave(signal.SIGKILL)
            await play.run(neighbour("meanwhile"))
            await stage.drive("--enforcement", "cgroups")
            await play.settles(wanted | {("meanwhile", "app"): rest})
            await play.delete("pinned")
            await play.settles({(name, "app"): play.online for name in ("neighbour", "meanwhile")})

    asyncio.run(story())


def test_every_container_keeps_a_cpu(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            if len(await play.devices()) != 1:
                pytest.skip("this machine has several devices")
            await play.run(neighbour())
            await play.create(pod("greedy", container("app", claim="cpus"), template="all"))

            async def refused() -> bool:
                return any("and leave no CPU to" in text for text in await play.events("greedy"))

            await until(refused, lambda: "nobody says why the pod does not run")
            assert await play.cpus("neighbour") == play.online
            # Once nobody else is there it may have all of them.
            await play.delete("neighbour")
            await play.runs("greedy")
            await play.stays({("greedy", "app"): play.online})
            await play.create(neighbour())

            async def not_started() -> bool:
                return any("no shared CPUs are left" in text for text in await play.events("neighbour"))

            await until(not_started, lambda: "nobody says why the container is not started")
            assert await play.processes("neighbour", "app") == []
            await play.delete("greedy")
            await play.runs("neighbour")
            await play.settles({("neighbour", "app"): play.online})

    asyncio.run(story())


@pytest.mark.skipif(bool(missing("dracpu")), reason=missing("dracpu"))
def test_the_go_driver_takes_over_and_gives_back(stage: Stage) -> None:
    async def story() -> None:
        async with stage.playing() as play:
            await play.run(neighbour(), pinned())
            one = await play.claimed("pinned")
            rest = play.online - one
            wanted = {("pinned", "app"): one, ("pinned", "side"): rest, ("neighbour", "app"): rest}
            ours = await given(play, "pinned")
            await stage.leave()
            await stage.drive(go=True)
            await play.settles(wanted)
            await play.run(neighbour("later"))
            assert await play.cpus("later") == rest
            await play.delete("pinned")  # by the Go driver, which lets the others where they are
            await play.run(pinned("second"))
            one = await play.claimed("second")
            assert await given(play, "second") == ours
            await stage.leave()
            await stage.drive()
            rest = play.online - one
            others = {(name, "app"): rest for name in ("neighbour", "later")}
            await play.settles({("second", "app"): one, ("second", "side"): rest} | others)
            await play.delete("second")
            await play.settles({(name, "app"): play.online for name in ("neighbour", "later")})
            assert play.files() == []

    asyncio.run(story())


def test_cpus_that_go_make_the_device_unhealthy(stage: Stage, tmp_path: Path) -> None:
    """The driver is shown a machine of two CPUs, of which one is switched off."""
    machine = make_machine(cores=2)
    write_sysfs(machine, tmp_path)

    async def health(play: Play) -> str:
        status = (await play.get("pinned"))["status"]
        (app,) = [each for each in status["containerStatuses"] if each["name"] == "app"]
        found = [one["health"] for each in app["allocatedResourcesStatus"] for one in each["resources"]]
        return str(found[0]) if found else ""

    async def story() -> None:
        async with stage.playing("--host-root", tmp_path) as play:
            await play.run(pinned())
            one = await play.claimed("pinned")
            for now, wanted in ((switch_off(machine, one), "Unhealthy"), (machine, "Healthy")):
                write_sysfs(now, tmp_path)

                async def told(wanted: str = wanted) -> bool:
                    return await health(play) == wanted

                await until(told, lambda: "the health of the device is not in the pod's status")

    asyncio.run(story())


async def given(play: Play, name: str) -> dict[str, Any]:
    """What a container has got from its claim: CDI files, environment and metadata, without names."""
    claim, _ = await play.claim(name)
    words = {claim["metadata"]["uid"]: "UID", claim["metadata"]["name"]: "CLAIM"}
    words[str(play.stage.node.root)] = "ROOT"

    def read(text: str) -> str:
        for word, instead in words.items():
            text = text.replace(word, instead)
        return text

    folder = play.stage.node.cdi
    found = {read(path): json.loads(read((folder / path).read_text())) for path in play.files()}
    for spec in found.values():  # edits for all devices, of which there are none
        assert spec.pop("containerEdits", {}) == {}
        if spec["kind"] == "dra.cpu/metadata":  # names of its devices begin with the UID
            assert spec.pop("cdiVersion") == ("0.5.0" if claim["metadata"]["uid"][0].isdigit() else "0.3.0")
    (process, *_) = await play.processes(name, "app")
    inside = Path(f"/proc/{process}/root/{CONTAINER_DIR}")
    for path in sorted(each for each in inside.rglob("*") if each.is_file()):
        found[read(str(path.relative_to(inside)))] = json.loads(read(path.read_text()))
    return found


async def listed(root: Path) -> list[Any]:
    """What the kubelet says that pods have."""
    method = rpc.method_of(podresources_v1.DESCRIPTOR, "PodResourcesLister", "List")
    channel = rpc.dial(root / "pod-resources/kubelet.sock")
    try:
        answer = await rpc.call(channel, method, podresources_v1.ListPodResourcesRequest(), timeout=10)
        return list(answer.pod_resources)
    finally:
        await rpc.close(channel)
