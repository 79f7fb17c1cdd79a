"""StatefulSets with volumes on a node with processes: server, controllers, scheduler and agent together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, STATEFUL_SETS
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime.mount_support import can_mount
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, wait_until

LABELS = {"app": "a"}
STANDARD = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "s", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": "plimsoll.dev/host-path",
    "volumeBindingMode": "WaitForFirstConsumer",
}
#: Each start adds a line to the file in the volume.
SCRIPT = "echo started >> /plimsoll-test-data/starts; exec sleep 1000"


def stateful_set() -> dict[str, Any]:
    mounts = [{"name": "data", "mountPath": "/plimsoll-test-data"}]
    container = {"name": "c", "image": "i", "command": ["sh", "-c", SCRIPT], "volumeMounts": mounts}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    storage = {"resources": {"requests": {"storage": "1Mi"}}, "accessModes": ["ReadWriteOnce"]}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "w"},
        "spec": {
            "replicas": 2,
            "serviceName": "w",
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": storage}],
        },
    }


@pytest.mark.skipif(not can_mount(), reason="mounts are not permitted")
def test_a_stateful_set_keeps_its_volumes() -> None:
    node = NodeSettings(name="real", runtime="process", cgroups="plan")
    with LocalCluster(nodes=node, scheduler=True) as cluster:
        cluster.apply(STANDARD, stateful_set())

        def wait_ready() -> None:
            ready = lambda tree: tree["status"]["readyReplicas"] == 2  # noqa: E731
            cluster.wait_for(STATEFUL_SETS, "w", condition=ready, timeout=DEADLINE)

        wait_ready()
        claim = cluster.client.get(PERSISTENT_VOLUME_CLAIMS, "data-w-0", "default")
        volume = cluster.client.get(PERSISTENT_VOLUMES, claim["spec"]["volumeName"])
        starts = Path(volume["spec"]["hostPath"]["path"]) / "starts"
        wait_until(lambda: starts.read_text() == "started\n")
        old = cluster.client.get(PODS, "w-0", "default")["metadata"]["uid"]
        cluster.client.delete(PODS, "w-0", "default")
        renewed = lambda tree: tree["metadata"]["uid"] != old  # noqa: E731
        cluster.wait_for(PODS, "w-0", condition=renewed, timeout=DEADLINE)
        wait_ready()
        wait_until(lambda: starts.read_text() == "started\nstarted\n")
        cluster.client.delete(STATEFUL_SETS, "w", "default")
        cluster.wait_for(PODS, "w-0", gone=True, timeout=DEADLINE)
        cluster.client.delete(PERSISTENT_VOLUME_CLAIMS, "data-w-0", "default")
        cluster.wait_for(PERSISTENT_VOLUMES, volume["metadata"]["name"], "", gone=True, timeout=DEADLINE)
        assert not starts.exists()
