"""The chart on a real control plane: installed, upgraded, rolled back and uninstalled by helm.

There are no nodes: kube-controller-manager creates the pods, which kube-apiserver must admit.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.ledger.placeholders import NAMESPACE as PLACEHOLDERS
from tests.cluster.kube_apiserver import TOKEN, kubeconfig_for, run_apiserver
from tests.deploy.helm import find_helm
from tests.deploy.render import CHART
from tests.real.kubelet import Process
from tests.real.programs import ASSETS, missing
from tests.waiting import wait_until

_MISSING = missing("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(_MISSING), reason=_MISSING),
    pytest.mark.skipif(find_helm() is None, reason="no helm: install it, or put it into KUBEBUILDER_ASSETS"),
]
NAMESPACE = "kube-system"
SHOWN = ("--set", "dashboard.enabled=true,memoryDriver.enabled=true")
#: Cluster-wide objects of the chart.
KINDS = (
    "namespaces,priorityclasses,clusterroles,clusterrolebindings,deviceclasses,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings"
)


@dataclass(frozen=True)
class Operator:
    """User of helm and kubectl on one cluster."""

    kubeconfig: Path

    def helm(self, command: str, *words: str, fails: bool = False) -> str:
        return self.run(str(find_helm()), command, "plimsoll", *words, "-n", NAMESPACE, fails=fails)

    def kubectl(self, *words: str) -> str:
        return self.run(str(ASSETS / "kubectl"), *words)

    def get(self, kinds: str, *words: str) -> list[dict[str, Any]]:
        """Return the objects of the chart, sorted by name."""
        selector = "app.kubernetes.io/instance=plimsoll"
        text = self.kubectl("get", kinds, "-A", "-l", selector, "-o", "json", *words)
        found: list[dict[str, Any]] = json.loads(text)["items"]
        return found

    def run(self, *command: str, fails: bool = False) -> str:
        env = {**os.environ, "KUBECONFIG": str(self.kubeconfig), "HOME": str(self.kubeconfig.parent)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    (tmp_path / "server").mkdir()
    admin = tmp_path / "admin.kubeconfig"
    with run_apiserver(ASSETS, tmp_path / "server", gates="") as config:
        admin.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
        admin.chmod(0o600)
        own = tuple(f"--{kind}kubeconfig={admin}" for kind in ("", "authentication-", "authorization-"))
        options = ("--secure-port=0", "--leader-elect=false", "--use-service-account-credentials=false")
        program = ASSETS / "kube-controller-manager"
        controllers = Process((program, *own, *options), tmp_path / "controllers.log")
        controllers.start()
        try:
            yield Operator(admin)
        finally:
            controllers.stop()


def test_install_upgrade_rollback_uninstall(operator: Operator) -> None:
    chart = str(CHART)
    dry = operator.helm("install", chart, *SHOWN, "--dry-run=server")
    assert "kind: Deployment" in dry
    assert operator.get("deployments") == []

    notes = operator.helm("install", chart, *SHOWN)
    assert "spec: {schedulerName: plimsoll}" in notes
    assert f"kubectl get pods -n {PLACEHOLDERS}" in notes
    assert [each["metadata"]["name"] for each in operator.get("deployments")] == [
        "plimsoll-dashboard",
        "plimsoll-scheduler",
    ]

    def pods() -> dict[str, int]:
        """Return how many pods each component has; kube-apiserver has accepted them."""
        names = [pod["metadata"]["labels"]["app.kubernetes.io/name"] for pod in operator.get("pods")]
        return {name: names.count(name) for name in names}

    wait_until(lambda: pods() == {"plimsoll-dashboard": 1, "plimsoll-scheduler": 2}, context=pods)

    # The command of NOTES shows the token, which an upgrade keeps.
    (command,) = [line.strip() for line in notes.splitlines() if "get secret" in line]
    shell = command.replace("kubectl", str(ASSETS / "kubectl"), 1)
    environment = {**os.environ, "KUBECONFIG": str(operator.kubeconfig)}

    def token() -> str:
        done = subprocess.run(shell, shell=True, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    first = token()
    assert len(first) == 48
    assert first.isalnum()
    before = arguments(operator)
    operator.helm("upgrade", chart, "--reuse-values", "--set", "logging.format=json")
    assert token() == first
    after = arguments(operator)
    assert {name: "--log-format=json" in words for name, words in after.items()} == {
        "plimsoll-cpu-driver": True,
        "plimsoll-memory-driver": True,
        "plimsoll-scheduler": True,
        "plimsoll-dashboard": False,
    }
    operator.helm("rollback", "1")
    assert arguments(operator) == before
    assert token() == first
    history = json.loads(operator.helm("history", "-o", "json"))
    assert [each["status"] for each in history] == ["superseded", "superseded", "deployed"]

    operator.helm("uninstall")
    left = "deployments,daemonsets,pods,secrets,configmaps,serviceaccounts,services,roles,rolebindings"
    wait_until(lambda: not operator.get(f"{left},{KINDS}"), context=lambda: names(operator.get(KINDS)))


def test_network_policies_tls_secrets_and_another_namespace(operator: Operator) -> None:
    """Install with other values, as a tenant of a namespace of its own."""
    operator.kubectl("create", "namespace", "own")
    values = "networkPolicy.create=true,scheduler.tlsSecret=tls,image.digest=sha256:" + "0" * 64
    peer = 'networkPolicy.from=[{"podSelector":{}}]'
    helm = (str(find_helm()), "install", "plimsoll", str(CHART), "-n", "own", *SHOWN)
    operator.run(*helm, "--set", values, "--set-json", peer)
    assert len(operator.get("networkpolicies")) == 2
    (role,) = [each for each in operator.get("roles") if each["metadata"]["namespace"] == PLACEHOLDERS]
    assert role["rules"][0]["verbs"] == ["create", "delete", "get"]
    (binding,) = [
        each for each in operator.get("rolebindings") if each["metadata"]["namespace"] == PLACEHOLDERS
    ]
    assert binding["subjects"][0]["namespace"] == "own"


def test_a_server_without_dra_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    off = (
        "--runtime-config=resource.k8s.io/v1=false,resource.k8s.io/v1beta1=false,resource.k8s.io/v1beta2=false",
    )
    # The Node authorizer waits for ResourceSlices.
    settings: dict[str, Any] = {"gates": "", "options": off, "authorization": "RBAC"}
    with run_apiserver(ASSETS, tmp_path / "server", **settings) as config:
        admin = tmp_path / "admin.kubeconfig"
        admin.write_text(yaml.safe_dump(kubeconfig_for(config.server, TOKEN)))
        admin.chmod(0o600)
        refused = Operator(admin).helm("install", str(CHART), fails=True)
    assert "this cluster does not serve the API resource.k8s.io/v1" in refused


def arguments(operator: Operator) -> dict[str, list[str]]:
    """Return the arguments of every component."""
    trees = operator.get("deployments,daemonsets")
    return {
        tree["metadata"]["name"]: tree["spec"]["template"]["spec"]["containers"][0]["args"] for tree in trees
    }


def names(trees: list[dict[str, Any]]) -> list[str]:
    return [f"{tree['kind']}/{tree['metadata']['name']}" for tree in trees]
