"""Security contexts and volumes of pods: statuses and events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client.endpoints import EVENTS
from plimsoll.node.pods.volumes import MissingVolume, missing_volumes
from plimsoll.node.security.capabilities import NAMES, mask_of
from plimsoll.node.security.policy import OnUnsupported, SecurityPolicy
from plimsoll.node.security.rights import AgentRights
from tests.coroutines import run_by
from tests.unit.node.pods.worker_harness import Node
from tests.unit.node.pods.worker_helpers import PLAIN, gone, is_phase, run_scenario
from tests.waiting import until

ROOT = AgentRights(capabilities=mask_of(NAMES))
TOKEN: dict[str, Any] = {
    "name": "kube-api-access-x7k2p",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        ]
    },
}


def mounting(*names: str, **rest: Any) -> dict[str, Any]:
    mounts = [{"name": name, "mountPath": f"/v/{name}"} for name in names]
    return {**PLAIN, "containers": [{"name": "c", "image": "i", "volumeMounts": mounts, **rest}]}


async def events_of(node: Node, reason: str) -> list[dict[str, Any]]:
    listed = await node.admin.list(EVENTS, "default")
    every = [codec.decode(raw, dict) for raw in listed.items]
    return [e for e in every if e["reason"] == reason and e["involvedObject"]["name"] == node.name]


async def waiting(node: Node) -> dict[str, Any]:
    (own,) = (await node.status()).get("containerStatuses") or [{}]
    found: dict[str, Any] = own.get("state", {}).get("waiting", {})
    return found


async def waits_for(node: Node, reason: str) -> bool:
    return bool((await waiting(node)).get("reason") == reason)


def use(node: Node, mode: OnUnsupported = "refuse") -> None:
    """Let the node's simulated runtime check security contexts as the process runtime does."""
    node.deps.security = SecurityPolicy(mode, ROOT)
    node.machine.volume_types = frozenset()


@run_by(run_scenario, "cluster")
async def test_an_unsupported_security_context_prevents_the_start(node: Node) -> None:
    use(node)
    options = {
        "securityContext": {
            "seLinuxOptions": {"level": "s0"},
            "appArmorProfile": {"type": "RuntimeDefault"},
        }
    }
    container = {"name": "c", "image": "i", **options}
    await node.begin(await node.create({**PLAIN, "containers": [container]}))
    await until(lambda: waits_for(node, "CreateContainerConfigError"))
    text = (await waiting(node))["message"]
    for field in ("seLinuxOptions", "appArmorProfile"):
        assert f"spec.containers[0].securityContext.{field}: " in text
    assert "remove the field" in text
    await until(lambda: events_of(node, "Failed"))
    (event, *_) = await events_of(node, "Failed")
    assert (event["type"], event["message"]) == ("Warning", f"Error: {text}")
    assert node.log.count("create") == 0
    await node.delete()
    await gone(node)


@pytest.mark.parametrize(
    ("context", "text"),
    [
        ({"runAsNonRoot": True}, "container has runAsNonRoot and image will run as root (pod: "),
        ({"runAsNonRoot": True, "runAsUser": 0}, "container's runAsUser breaks non-root policy (pod: "),
    ],
)
@pytest.mark.parametrize("mode", ["refuse", "warn"])
@run_by(run_scenario, "cluster")
async def test_run_as_non_root_refuses_root_with_the_kubelets_message(
    node: Node, *, context: dict[str, Any], text: str, mode: OnUnsupported
) -> None:
    use(node, mode)
    pod = await node.create({**PLAIN, "securityContext": context})
    await node.begin(pod)
    await until(lambda: waits_for(node, "CreateContainerConfigError"))
    where = f'"{node.name}_default({pod.metadata.uid})", container: c)'
    assert (await waiting(node))["message"] == text + where
    assert node.log.count("create") == 0


@run_by(run_scenario, "cluster")
async def test_unsupported_fields_can_be_a_warning(node: Node) -> None:
    use(node, "warn")
    context = {"runAsUser": 5, "seLinuxOptions": {"level": "s0"}}
    await node.begin(await node.create({**PLAIN, "hostUsers": False, "securityContext": context}))
    await until(lambda: is_phase(node, "Running"))
    await until(lambda: events_of(node, "UnsupportedSecurityContext"))
    (event,) = await events_of(node, "UnsupportedSecurityContext")
    assert event["type"] == "Warning"
    assert "started without spec.hostUsers: " in event["message"]
    assert "spec.securityContext.seLinuxOptions: " in event["message"]
    (held,) = node.machine.inventory().containers
    assert held.spec.credentials is not None
    assert held.spec.credentials.uid == 5


@run_by(run_scenario, "cluster")
async def test_init_containers_and_sidecars_are_checked(node: Node) -> None:
    use(node)
    one = {"name": "a", "image": "i", "securityContext": {"runAsUser": 1}, "restartPolicy": "Always"}
    two = {"name": "b", "image": "i", "securityContext": {"procMount": "Default"}}
    spec = {**PLAIN, "initContainers": [one, two], "securityContext": {"runAsUser": 9}}
    await node.begin(await node.create(spec))
    await until(lambda: events_of(node, "Failed"))
    (event, *_) = await events_of(node, "Failed")
    assert event["involvedObject"]["fieldPath"] == "spec.initContainers{b}"
    assert "spec.initContainers[1].securityContext.procMount: " in event["message"]
    (held,) = node.machine.inventory().containers
    assert held.spec.credentials is not None
    assert (held.spec.name, held.spec.credentials.uid) == ("a", 1)


@run_by(run_scenario, "cluster")
async def test_a_simulated_node_accepts_every_context_and_volume(node: Node) -> None:
    context = {"seLinuxOptions": {"level": "s0"}, "procMount": "Default"}
    spec = mounting("data", securityContext=context)
    await node.begin(await node.create({**spec, "volumes": [{"name": "data", "emptyDir": {}}]}))
    await until(lambda: is_phase(node, "Running"))
    (held,) = node.machine.inventory().containers
    assert held.spec.credentials is None


@run_by(run_scenario, "cluster")
async def test_a_volume_that_cannot_be_provided_keeps_the_pod_creating(node: Node) -> None:
    use(node)
    volumes = [
        {"name": "data", "emptyDir": {}},
        {"name": "unused", "hostPath": {"path": "/"}},
        TOKEN,
    ]
    await node.begin(await node.create({**mounting("data", TOKEN["name"]), "volumes": volumes}))
    await until(lambda: events_of(node, "FailedMount"))
    (event, *_) = await events_of(node, "FailedMount")
    assert event["type"] == "Warning"
    assert event["message"].startswith('MountVolume.SetUp failed for volume "data" : ')
    assert "no volumes of type emptyDir; remove the volume" in event["message"]
    assert "unused" not in event["message"]
    assert await waits_for(node, "ContainerCreating")
    await asyncio.sleep(0.2)  # it is tried again, and nothing was made meanwhile
    assert await is_phase(node, "Pending")
    assert node.log.count("sandbox") == 0
    await node.delete()
    await gone(node)


@run_by(run_scenario, "cluster")
async def test_a_pod_is_started_without_the_token_that_admission_added(node: Node) -> None:
    use(node)
    await node.begin(await node.create({**mounting(TOKEN["name"]), "volumes": [TOKEN]}))
    await until(lambda: is_phase(node, "Running"))
    await until(lambda: events_of(node, "ServiceAccountTokenNotMounted"))
    (event,) = await events_of(node, "ServiceAccountTokenNotMounted")
    assert event["type"] == "Warning"
    assert TOKEN["name"] in event["message"]
    assert "automountServiceAccountToken: false" in event["message"]


def test_missing_volumes_are_named() -> None:
    volumes: list[dict[str, Any]] = [
        TOKEN,
        {"name": "kube-api-access-mine", "configMap": {"name": "x"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        {"name": "disk", "persistentVolumeClaim": {"claimName": "x"}},
        {"name": "plain"},
        {"name": "unused", "emptyDir": {}},
    ]
    mounts = [{"name": volume["name"], "mountPath": "/v"} for volume in volumes[:3]]
    first = {"name": "i", "image": "i", "volumeMounts": [{"name": "plain", "mountPath": "/v"}]}
    second: dict[str, Any] = {"name": "c", "image": "i", "volumeMounts": mounts}
    second["volumeDevices"] = [{"name": "disk", "devicePath": "/dev/x"}]
    tree = {"spec": {"volumes": volumes, "initContainers": [first], "containers": [second]}}
    pod = codec.decode(codec.encode(tree), Pod)
    assert missing_volumes(pod, frozenset()) == (
        MissingVolume("kube-api-access-x7k2p", "projected", added=True),
        MissingVolume("kube-api-access-mine", "configMap"),
        MissingVolume("token", "projected"),
        MissingVolume("disk", "persistentVolumeClaim"),
        MissingVolume("plain", "emptyDir"),
    )
    assert [each.name for each in missing_volumes(pod, {"projected", "emptyDir"})] == [
        "kube-api-access-mine",
        "disk",
    ]
    assert missing_volumes(pod, None) == ()
