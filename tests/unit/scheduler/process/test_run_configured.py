"""The scheduler on a server in the same process: kube-scheduler's configuration, failing selectors."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from plimsoll.client.endpoints import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, SERVICES
from plimsoll.scheduler.process.configuration import SchedulerSettings, parse_settings
from tests.manifests import DRIVER, claim, device_class, pod, resource_slice
from tests.unit.scheduler.process.scheduler_cluster import NS, scheduler_cluster

POOL = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}]
    }
}


def configured(**fields: Any) -> SchedulerSettings:
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": -1},
        **fields,
    }
    return replace(parse_settings(tree), listen="")


async def test_profiles_of_kube_schedulers_file_act_in_one_process() -> None:
    settings = configured(
        profiles=[
            {"schedulerName": "default-scheduler"},
            {
                "schedulerName": "batch",
                "plugins": {"multiPoint": {"disabled": [{"name": "TaintToleration"}]}},
                "pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": POOL}}],
            },
        ]
    )
    async with scheduler_cluster() as row:
        await row.node("web", "64")
        await row.node("batch", "4", pool="batch")
        await row.start(settings)
        await row.pod("p1")
        await row.pod("p2", schedulerName="batch")
        assert (await row.bound("p1"), await row.bound("p2")) == ("web", "batch")
        await row.pod("big", "5", schedulerName="batch")
        condition = await row.condition_of("big")
        assert condition["message"].startswith(
            "0/2 nodes are available: 1 Insufficient cpu, "
            "1 node(s) didn't match scheduler-enforced node affinity."
        )


async def test_pods_of_a_service_are_spread() -> None:
    async with scheduler_cluster() as row:
        for name in ("a", "b", "c"):
            await row.node(name, **{"kubernetes.io/hostname": name})
        service = {
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }
        await row.admin.create(SERVICES, service, NS)
        await row.start(configured())
        for number in range(3):
            await row.admin.create(PODS, pod(f"p{number}", labels={"app": "web"}), NS)
            await row.bound(f"p{number}")
        assert sorted([await row.bound(f"p{number}") for number in range(3)]) == ["a", "b", "c"]


async def test_a_pod_waits_for_the_correction_of_a_device_on_which_its_selector_fails() -> None:
    async with scheduler_cluster() as row:
        await row.node("bad")
        await row.node("good")
        await row.admin.create(DEVICE_CLASSES, device_class(DRIVER))
        await row.devices("bad", "good")
        broken = await row.admin.get(RESOURCE_SLICES, "bad-gpu")
        broken["spec"]["devices"][0]["attributes"] = {"size": {"int": 1}}
        broken["spec"]["pool"]["generation"] = 2
        await row.admin.update(RESOURCE_SLICES, broken)
        wanted = claim("c")
        expression = f'device.attributes["{DRIVER}"].model == "small"'
        wanted["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
            {"cel": {"expression": expression}}
        ]
        await row.admin.create(RESOURCE_CLAIMS, wanted, NS)
        await row.start()
        tree = pod("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}])
        tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
        await row.admin.create(PODS, tree, NS)
        condition = await row.condition_of("p")
        assert condition["reason"] == "SchedulerError"
        assert "selector #0 on device" in condition["message"]
        assert "no such key: model" in condition["message"]
        corrected = await row.admin.get(RESOURCE_SLICES, "bad-gpu")
        corrected["spec"]["devices"] = resource_slice("bad-gpu", "bad")["spec"]["devices"]
        corrected["spec"]["pool"]["generation"] = 3
        await row.admin.update(RESOURCE_SLICES, corrected)
        assert await row.bound("p") in ("bad", "good")
