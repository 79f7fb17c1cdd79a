"""Devices of a device file end to end: published, allocated, injected and released."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.drivers.fake.conflicts import DeviceAllocation, find_conflict
from plimsoll.drivers.fake.device_file import find_drivers
from plimsoll.drivers.fake.devices import make_devices
from plimsoll.drivers.fake.driver import FakeDriver
from plimsoll.protocols.dra import ClaimRef
from plimsoll.up.local_cluster import LocalCluster

Tree = dict[str, Any]
NODE = "worker"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(nodes=[NODE], scheduler=True, drivers=["gpus", "nics", "accelerators"]) as running:
        yield running


@pytest.fixture
def space(cluster: LocalCluster) -> Iterator[str]:
    """Yield a namespace and delete its pods at the end."""
    name = cluster.new_namespace()
    yield name
    cluster.control_drivers({})
    for pod in cluster.client.list("pods", name):
        cluster.client.delete("pods", pod["metadata"]["name"], name)
    for pod in cluster.client.list("pods", name):
        cluster.wait_for("pods", pod["metadata"]["name"], name, gone=True)
    for claim in cluster.client.list("resourceclaims", name):
        cluster.wait_for("resourceclaims", claim["metadata"]["name"], name, gone=True)


def request(device_class: str, name: str = "dev", expression: str = "", **more: Any) -> Tree:
    exactly: Tree = {"deviceClassName": device_class, **more}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}


def pod_with(cluster: LocalCluster, space: str, name: str, *requests: Tree) -> None:
    """Return a pod with its own claim."""
    cluster.apply(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": name},
            "spec": {"spec": {"devices": {"requests": list(requests)}}},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [
                    {"name": "main", "image": "main", "resources": {"claims": [{"name": "devices"}]}}
                ],
                "resourceClaims": [{"name": "devices", "resourceClaimTemplateName": name}],
            },
        },
        namespace=space,
    )


def running(cluster: LocalCluster, space: str, name: str) -> Tree:
    return cluster.wait_for(
        "pods", name, space, lambda pod: bool(pod["status"]["phase"] == "Running"), timeout=30
    )


def claim_of(cluster: LocalCluster, space: str, pod: Tree) -> Tree:
    name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    return cluster.client.get("resourceclaims", name, space)


def results(claim: Tree) -> list[Tree]:
    found: list[Tree] = claim["status"]["allocation"]["devices"]["results"]
    return found


def cdi_files(cluster: LocalCluster, uid: str) -> list[Path]:
    directory = cluster.node_root(NODE) / "cdi"
    return sorted(directory.glob(f"*{uid}*"))


def test_a_partition_is_allocated_and_released(cluster: LocalCluster, space: str) -> None:
    profile = 'device.attributes["gpu.example.com"].profile == "2g.10gb"'
    pod_with(cluster, space, "p", request("partition.gpu.example.com", expression=profile))
    claim = claim_of(cluster, space, running(cluster, space, "p"))
    (result,) = results(claim)
    assert "-2g-10gb-" in result["device"]
    (file,) = cdi_files(cluster, claim["metadata"]["uid"])
    (device,) = json.loads(file.read_text())["devices"]
    assert sorted(device["containerEdits"]["env"]) == [
        f"EXAMPLE_GPU_DEV={result['device']}",
        "EXAMPLE_GPU_MEMORY=10Gi",
    ]
    driver = cluster.driver("gpu.example.com")
    assert isinstance(driver, FakeDriver)
    assert [allocated.device for allocated in driver.allocated[claim["metadata"]["uid"]]] == [
        result["device"]
    ]
    cluster.client.delete("pods", "p", space)
    cluster.wait_for("resourceclaims", claim["metadata"]["name"], space, gone=True)
    assert not cdi_files(cluster, claim["metadata"]["uid"])
    assert claim["metadata"]["uid"] not in driver.allocated


def test_overlapping_partitions_are_never_allocated_together(cluster: LocalCluster, space: str) -> None:
    """More is requested than available; allocated devices do not overlap, and the other pods stay pending."""
    profiles = [
        "1g.5gb",
        "2g.10gb",
        "3g.20gb",
        "1g.5gb",
        "7g.40gb",
        "2g.10gb",
        "3g.20gb",
        "1g.5gb",
        "2g.10gb",
    ]
    for number, profile in enumerate(profiles):
        expression = f'device.attributes["gpu.example.com"].profile == "{profile}"'
        pod_with(cluster, space, f"p{number}", request("partition.gpu.example.com", expression=expression))

    def settled(number: int) -> Tree:
        return cluster.wait_for(
            "pods",
            f"p{number}",
            space,
            lambda pod: bool(
                pod["status"]["phase"] == "Running"
                or any(each["reason"] == "Unschedulable" for each in pod["status"]["conditions"])
            ),
            timeout=30,
        )

    pods = [settled(number) for number in range(len(profiles))]
    inventory = make_devices(find_drivers("gpus")[0], NODE)
    given = [
        DeviceAllocation(
            ClaimRef(space, claim["metadata"]["name"], claim["metadata"]["uid"]), result["device"]
        )
        for claim in cluster.client.list("resourceclaims", space)
        if claim.get("status", {}).get("allocation")
        for result in results(claim)
    ]
    assert find_conflict(inventory, [], given) is None
    assert 4 <= len(given) < len(profiles)
    waiting = [pod for pod in pods if pod["status"]["phase"] == "Pending"]
    assert len(waiting) == len(profiles) - len(given)
    # What waits gets its turn when others go.
    for pod in pods:
        if pod not in waiting:
            cluster.client.delete("pods", pod["metadata"]["name"], space)
    running(cluster, space, waiting[0]["metadata"]["name"])


def test_shares_of_a_network_card(cluster: LocalCluster, space: str) -> None:
    def desired(amount: str) -> Tree:
        return request("nic.example.com", capacity={"requests": {"bandwidth": amount}})

    for name, amount in (("a", "60G"), ("b", "60G"), ("c", "39500M")):
        pod_with(cluster, space, name, desired(amount))
    claims = [claim_of(cluster, space, running(cluster, space, name)) for name in "abc"]
    found = [results(claim)[0] for claim in claims]
    assert found[0]["device"] != found[1]["device"]
    assert all(each["shareID"] for each in found)
    assert found[2]["consumedCapacity"]["bandwidth"] == "40G"  # rounded up to a step
    (file,) = cdi_files(cluster, claims[2]["metadata"]["uid"])
    assert "EXAMPLE_NIC_DEV_BANDWIDTH=40G" in file.read_text()
    name = claims[2]["metadata"]["name"]
    claim = cluster.wait_for("resourceclaims", name, space, lambda tree: "devices" in tree["status"])
    (device_status,) = claim["status"]["devices"]
    assert (device_status["shareID"], device_status["data"]["bandwidth"]) == (found[2]["shareID"], "40G")
    pod_with(cluster, space, "d", desired("41G"))
    cluster.wait_for(
        "pods",
        "d",
        space,
        lambda pod: any(each["reason"] == "Unschedulable" for each in pod["status"]["conditions"]),
    )


def test_host_memory_of_an_accelerator_is_charged_to_the_pod(cluster: LocalCluster, space: str) -> None:
    pod_with(
        cluster,
        space,
        "p",
        request("accelerator.example.com", "acc"),
        request("engine.accelerator.example.com", "eng", capacity={"requests": {"buffers": "1Gi"}}),
    )
    pod = running(cluster, space, "p")
    (entry,) = pod["status"]["nodeAllocatableResourceClaimStatuses"]
    charged = {item["name"]: item["quantity"] for item in entry["mapping"]}
    assert charged == {"cpu": "500m", "memory": "3Gi"}
    ledger = cluster.ask_node(NODE, lambda agent: dict(agent.admission_handler.ledger.requested))
    assert ledger["cpu"] == 500
    assert ledger["memory"] == (3 * 1024 + 64) * 1024**2  # the pod's overhead is part of it


def test_a_failed_prepare_is_reported_and_retried(cluster: LocalCluster, space: str) -> None:
    cluster.control_drivers(
        "drivers: [{name: gpu.example.com, prepare: {failFirst: 1, message: warming up}}]"
    )
    pod_with(cluster, space, "p", request("gpu.example.com"))
    running(cluster, space, "p")
    messages = [event["message"] for event in cluster.client.list("events", space)]
    assert any("warming up" in message for message in messages), messages


def test_health_is_in_the_status_of_the_pod(cluster: LocalCluster, space: str) -> None:
    pod_with(cluster, space, "p", request("gpu.example.com"))
    pod = running(cluster, space, "p")
    (result,) = results(claim_of(cluster, space, pod))

    def is_health(desired: str) -> Any:
        def check(pod: Tree) -> bool:
            (status,) = pod["status"]["containerStatuses"]
            (entry,) = status["allocatedResourcesStatus"]
            return bool(entry["resources"][0]["health"] == desired)

        return check

    cluster.wait_for("pods", "p", space, is_health("Healthy"))
    rule = {"devices": [result["device"]], "message": "too hot"}
    cluster.control_drivers({"drivers": [{"name": "gpu.example.com", "health": [rule]}]})
    cluster.wait_for("pods", "p", space, is_health("Unhealthy"))
    cluster.control_drivers({})
    cluster.wait_for("pods", "p", space, is_health("Healthy"))


def test_devices_disappear_and_return(cluster: LocalCluster, space: str) -> None:
    def devices() -> int:
        slices = cluster.client.list("resourceslices", fields="spec.driver=gpu.example.com")
        return sum(len(each["spec"].get("devices", ())) for each in slices)

    name = next(
        each["metadata"]["name"]
        for each in cluster.client.list("resourceslices", fields="spec.driver=gpu.example.com")
        if "devices" in each["spec"]
    )
    assert devices() == 28
    cluster.control_drivers("drivers: [{name: gpu.example.com, absent: ['gpu-1*']}]")
    cluster.wait_for("resourceslices", name, condition=lambda each: len(each["spec"]["devices"]) == 14)
    cluster.control_drivers({})
    cluster.wait_for("resourceslices", name, condition=lambda each: len(each["spec"]["devices"]) == 28)
