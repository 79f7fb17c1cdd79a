"""A client in a pod: the official library, configured by the mounted service account alone."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from plimsoll.client.endpoints import PODS
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime.mount_support import can_mount
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE

#: Writes the names of the pods of its namespace, and who it is, to its termination message.
PROGRAM = """
import kubernetes
kubernetes.config.load_incluster_config()
namespace = open("/var/run/secrets/kubernetes.io/serviceaccount/namespace").read()
pods = kubernetes.client.CoreV1Api().list_namespaced_pod(namespace)
review = kubernetes.client.AuthenticationV1Api().create_self_subject_review({})
with open("/dev/termination-log", "w") as file:
    print(*[pod.metadata.name for pod in pods.items], review.status.user_info.username, file=file)
"""
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "RoleBinding",
    "metadata": {"name": "readers"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
    "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": "NAMESPACE"}],
}


def pod(name: str, namespace: str, *command: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "command": list(command)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


@pytest.mark.skipif(not can_mount(), reason="mounts are not permitted")
def test_a_client_in_a_pod_uses_its_service_account() -> None:
    node = NodeSettings(name="real", runtime="process", cgroups="plan")
    with LocalCluster(nodes=node, scheduler=True) as cluster:
        namespace = cluster.new_namespace()
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}}
        binding = {**BINDING, "subjects": [{**BINDING["subjects"][0], "namespace": namespace}]}  # type: ignore[index]
        cluster.apply(account, binding, namespace=namespace)
        reader = pod("client", namespace, sys.executable, "-c", PROGRAM, serviceAccountName="reader")
        without = pod(
            "without",
            namespace,
            "sh",
            "-c",
            "test ! -e /var/run/secrets/kubernetes.io",
            automountServiceAccountToken=False,
        )
        cluster.apply(reader, without)

        def state(name: str) -> Any:
            def has_ended(tree: Any) -> bool:
                return bool(tree["status"]["containerStatuses"][0]["state"].get("terminated"))

            tree = cluster.wait_for(PODS, name, namespace, condition=has_ended, timeout=DEADLINE)
            return tree["status"]["containerStatuses"][0]["state"]["terminated"]

        ended = state("client")
        assert ended["exitCode"] == 0, ended
        names = ended["message"].split()
        assert set(names) == {"client", "without", f"system:serviceaccount:{namespace}:reader"}
        assert state("without")["exitCode"] == 0
