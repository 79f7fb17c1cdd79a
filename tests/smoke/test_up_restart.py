"""A restart of `plimsoll up` brings everything back: workloads, volumes, tokens and running processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.directories import short_directory
from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.smoke.up_process import Up

pytestmark = pytest.mark.skipif(not find_kubectl(), reason="no kubectl")

DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "main",
                        "image": "busybox",
                        "command": ["sh", "-c", "echo $$$$ >> /data/pids; exec sleep 1000"],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }
                ],
                "volumes": [{"name": "data", "emptyDir": {}}],
                "terminationGracePeriodSeconds": 0,
            },
        },
    },
}


def is_valid(kubectl: Kubectl, token: str) -> Any:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    return kubectl("create", "-f", "-", "-o", "jsonpath={.status.authenticated}", given=review) == "true"


def test_a_restart_keeps_processes_volumes_and_tokens() -> None:
    with short_directory() as directory:
        up = Up(directory, "--name", "here", "--no-driver", "--leave-running")
        kubectl = Kubectl(find_kubectl(), up.data / "kubeconfig", directory)
        try:
            up.start()
            assert f"plimsoll kubectl --data-dir {up.data} get nodes" in up.text()
            kubectl("create", "-f", "-", given=DEPLOYMENT)
            kubectl("rollout", "status", "deployment/web", "--timeout=60s")
            (pod,) = kubectl.get("pods")["items"]
            token = kubectl("create", "token", "default")
            (pid,) = kubectl("exec", "deployment/web", "--", "cat", "/data/pids").split()
            assert up.stop() == 0
            os.kill(int(pid), 0)  # it runs without the cluster
            up.start()
            kubectl("rollout", "status", "deployment/web", "--timeout=60s")
            (same,) = kubectl.get("pods")["items"]
            assert same["metadata"]["uid"] == pod["metadata"]["uid"]
            assert same["status"]["containerStatuses"][0]["restartCount"] == 0
            assert kubectl("exec", "deployment/web", "--", "cat", "/data/pids").split() == [pid]
            assert is_valid(kubectl, token)
            kubectl("delete", "deployment", "web", "--timeout=60s")
            kubectl("wait", "--for=delete", "pod", "--all", "--timeout=60s")
        finally:
            up.stop()
        assert not Path(f"/proc/{pid}").exists()
        assert "Traceback" not in up.text()
