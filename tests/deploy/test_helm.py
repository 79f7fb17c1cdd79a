"""The chart with a real helm: linted, and rendered with many values as the tests render it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from plimsoll.ledger.placeholders import NAMESPACE
from tests.deploy.helm import find_helm, run_helm, run_helm_version
from tests.deploy.render import RELEASE, objects

pytestmark = pytest.mark.skipif(
    find_helm() is None, reason="no helm: install it, or put it into KUBEBUILDER_ASSETS"
)
VERSION = ("--kube-version", "1.36.0")
ALL = {"dashboard": {"enabled": True}, "memoryDriver": {"enabled": True}}
VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything": ALL,
    "scheduler only": {"driver": {"enabled": False}},
    "driver only": {"scheduler": {"enabled": False}},
    "one replica, no rights": {
        "scheduler": {"replicas": 1, "rbac": {"create": False}},
        "driver": {"rbac": {"create": False}, "admissionPolicy": {"create": False}},
    },
    "scheduler": {
        "nameOverride": "own",
        "image": {"repository": "r.example.com/plimsoll", "digest": "sha256:" + "0" * 64},
        "imagePullSecrets": [{"name": "pull"}],
        "logging": {"format": "json", "verbose": True},
        "scheduler": {
            "schedulerName": "default-scheduler",
            "config": {"bindsInFlight": 7, "profiles": [{"schedulerName": "default-scheduler"}]},
            "featureGates": {"DRAPartitionableDevices": False},
            "tlsSecret": "tls",
            "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
            "affinity": {"nodeAffinity": {}},
            "tolerations": [{"operator": "Exists"}],
            "podLabels": {"team": "a"},
            "podAnnotations": {"note": "b: c"},
            "serviceAccount": {"annotations": {"role": "a"}},
            "resources": {},
        },
        "placeholders": {"mode": "Off", "hostNetwork": True},
        "networkPolicy": {"create": True, "from": [{"podSelector": {}}]},
    },
    "drivers": {
        "driver": {
            "config": {"enforcement": "cgroups", "reportCPUs": False, "reservedCPUs": "0-1"},
            "exposePCIeRoots": True,
            "kubeletRootDir": "/data/kubelet",
            "requiredPlugin": {"install": True},
            "http": {"address": "127.0.0.1", "port": 9000, "tlsSecret": "tls"},
            "deviceClass": {"config": [{"opaque": {"driver": "dra.cpu", "parameters": {}}}]},
            "seLinuxOptions": {"type": "spc_t"},
            "extraVolumes": [{"name": "overlay", "configMap": {"name": "overlay"}}],
            "extraVolumeMounts": [{"name": "overlay", "mountPath": "/etc/overlay"}],
            "updateStrategy": {},
            "tolerations": [],
        },
        "memoryDriver": {
            "enabled": True,
            "reservedMemory": "0:memory=1Gi;1:memory=1Gi",
            "requiredPlugin": {"install": True},
        },
    },
    "dashboard": {
        "dashboard": {"enabled": True, "host": "a.example.com", "tokenSecret": "t", "historyClaim": "h"},
        "networkPolicy": {"create": True},
    },
}
NAMES = [name.replace(" ", "-") for name in VALUES]


def by_name(trees: list[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return objects by kind, namespace and name, without what differs between engines."""
    named: dict[tuple[str, ...], dict[str, Any]] = {}
    for tree in trees:
        metadata = tree["metadata"]
        named[tree["kind"], metadata.get("namespace", ""), metadata["name"]] = tree
        if tree["kind"] == "Secret":
            tree["data"] = dict.fromkeys(tree["data"], "random")
        if tree["kind"] == "ConfigMap":
            tree["data"]["config.yaml"] = yaml.safe_load(tree["data"].get("config.yaml", ""))
        template = tree.get("spec", {}).get("template", {})
        for part in (metadata, template.get("metadata", {})):
            if "labels" in part:
                part["labels"]["app.kubernetes.io/managed-by"] = ""
        annotations = template.get("metadata", {}).get("annotations", {})
        for key in [key for key in annotations if "checksum" in key]:
            annotations[key] = ""
    assert len(named) == len(trees)
    return named


@pytest.mark.parametrize("values", VALUES.values(), ids=NAMES)
def test_helm_lints_the_chart(values: dict[str, Any]) -> None:
    done = run_helm("lint", "--strict", *VERSION, values=values)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("values", VALUES.values(), ids=NAMES)
def test_helm_renders_what_the_tests_render(values: dict[str, Any]) -> None:
    done = run_helm("template", RELEASE["Name"], *VERSION, values=values)
    assert done.returncode == 0, done.stderr
    rendered = [tree for tree in yaml.safe_load_all(done.stdout) if tree]
    assert by_name(rendered) == by_name(objects(values))
    places = {tree["metadata"].get("namespace", "") for tree in rendered}
    assert places <= {"", RELEASE["Namespace"], NAMESPACE}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"dashbord": {}}, "dashbord"),
        ({"scheduler": {"featureGates": {"DRAPartitionableDevice": True}}}, "DRAPartitionableDevice"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"logging": {"format": "xml"}}, "format"),
        ({"memoryDriver": {"http": {"port": 0}}}, "port"),
    ],
)
def test_helm_refuses_values_that_the_schema_refuses(values: dict[str, Any], problem: str) -> None:
    for words in (("template", RELEASE["Name"]), ("lint",)):
        done = run_helm(*words, *VERSION, values=values)
        assert done.returncode != 0
        assert problem in done.stdout + done.stderr


def test_a_cluster_without_dra_is_refused_with_the_reason() -> None:
    served = ("--api-versions", "v1/Pod")
    done = run_helm("template", RELEASE["Name"], *VERSION, *served)
    if "v3." in run_helm_version():  # helm 4 assumes DRA without a cluster
        assert done.returncode != 0
        assert "this cluster does not serve the API resource.k8s.io/v1" in done.stderr
    both = ("--api-versions", "v1/Pod,resource.k8s.io/v1")
    assert run_helm("template", RELEASE["Name"], *VERSION, *both).returncode == 0
    old = run_helm("template", RELEASE["Name"], "--kube-version", "1.33.0")
    assert old.returncode != 0
    assert "chart requires kubeVersion: >= 1.34.0-0" in old.stderr
