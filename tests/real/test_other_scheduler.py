"""A real kube-scheduler beside our scheduler: reported once if they share a name, never otherwise."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from plimsoll.client import Client, ClientConfig
from plimsoll.client.endpoints import EVENTS_V1, NODES, PODS
from plimsoll.scheduler.process.configuration import SchedulerSettings, parse_settings
from plimsoll.scheduler.process.run import SchedulerProcess
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.manifests import NODE_STATUS, node, pod
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, missing
from tests.waiting import DEADLINE, until

_MISSING = missing("etcd", "kube-apiserver", "kube-scheduler")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
NS = "default"
THEIRS, OURS = "default-scheduler", "plimsoll"
REPORT = "another scheduler handles pods with schedulerName default-scheduler"
Tree = dict[str, Any]


@contextmanager
def run_kube_scheduler(directory: Path, config: ClientConfig) -> Iterator[None]:
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
    options = [f"--{kind}kubeconfig={kubeconfig}" for kind in ("", "authentication-", "authorization-")]
    process = Process(
        (ASSETS / "kube-scheduler", *options, "--secure-port=0", "--leader-elect=false"),
        directory / "kube-scheduler.log",
    )
    process.start()
    try:
        yield
    finally:
        process.stop()


@asynccontextmanager
async def both_schedulers(directory: Path, settings: SchedulerSettings) -> AsyncIterator[Client]:
    """Run kube-scheduler and ours on a server with two nodes of eight CPUs."""
    (directory / "server").mkdir()
    with run_apiserver(ASSETS, directory / "server", "") as config, run_kube_scheduler(directory, config):
        async with Client.connect(config) as client, Client.connect(config) as own:
            for each in ("n1", "n2"):
                await client.create(NODES, node(each))
                await client.patch(NODES, each, {"status": NODE_STATUS}, subresource="status")
                # The API server taints nodes that are not ready yet.
                await client.patch(NODES, each, {"spec": {"taints": None}})
            process = SchedulerProcess(own, replace(settings, listen=""))
            task = asyncio.create_task(process.run())
            try:
                await process.ready(DEADLINE)
                yield client
            finally:
                process.stop()
                await asyncio.wait_for(task, DEADLINE)


def pod_of(name: str, scheduler: str, cpu: str = "100m") -> Tree:
    tree = pod(name, schedulerName=scheduler)
    tree["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu
    return tree


async def decided(client: Client, tree: Tree) -> None:
    """Wait until a pod is bound or has a condition."""
    name = tree["metadata"]["name"]
    await until(lambda: client.get(PODS, name, NS), lambda now: (now.get("status") or {}).get("conditions"))


async def check_report(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Check that the log and the events have one report."""
    await until(lambda: REPORT in caplog.text)
    (event,) = await until(lambda: reports(client))
    assert REPORT in event["note"]
    assert event["regarding"]["kind"] == "Lease"
    assert caplog.text.count(REPORT) == 1


async def reports(client: Client) -> list[Tree]:
    events = [json.loads(raw) for raw in (await client.list(EVENTS_V1)).items]
    return [each for each in events if each.get("reason") == "OtherScheduler"]


@pytest.mark.parametrize("burst", [False, True], ids=["one by one", "at once"])
def test_bindings_of_the_same_name_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, burst: bool
) -> None:
    async def scenario() -> None:
        async with both_schedulers(tmp_path, SchedulerSettings().named([THEIRS])) as client:
            trees = [pod_of(f"p{number}", THEIRS) for number in range(40)]
            if burst:
                await asyncio.gather(*(client.create(PODS, tree, NS) for tree in trees))
            else:
                for tree in trees:
                    await client.create(PODS, tree, NS)
                    await decided(client, tree)
            await check_report(client, caplog)
            assert "it bound pod default/p" in caplog.text

    asyncio.run(scenario())


def test_conditions_of_the_same_name_are_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pods that neither can place, for different reasons."""
    term = {"matchExpressions": [{"key": "ours", "operator": "Exists"}]}
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    arguments = {"name": "NodeAffinity", "args": {"addedAffinity": affinity}}
    settings = parse_settings(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},  # it leads once it is ready
            "profiles": [{"schedulerName": THEIRS, "pluginConfig": [arguments]}],
        }
    )

    async def scenario() -> None:
        async with both_schedulers(tmp_path, settings) as client:
            for number in range(5):
                await client.create(PODS, pod_of(f"p{number}", THEIRS, cpu="9"), NS)
            await check_report(client, caplog)
            assert "it wrote the condition of pod default/p" in caplog.text

    asyncio.run(scenario())


def test_different_names_are_not_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with both_schedulers(tmp_path, SchedulerSettings()) as client:
            names = (OURS, THEIRS)
            trees = [
                pod_of(f"{name}-{cpu}-{number}", name, cpu)
                for number in range(20)
                for name in names
                for cpu in ("100m", "9")
            ]
            for tree in trees:
                await client.create(PODS, tree, NS)
            for tree in trees:
                await decided(client, tree)
            assert await reports(client) == []
        assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []

    asyncio.run(scenario())
