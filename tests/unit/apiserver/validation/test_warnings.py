"""Warnings about accepted objects: deprecated fields, and settings that do not have their apparent effect."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from plimsoll.apiserver.validation import KindTraits
from tests.unit.apiserver.validation.full_objects import make_pod
from tests.unit.apiserver.validation.objects import edit, run

TEMPLATE = "spec.template."
TRAITS = KindTraits(namespaced=True, has_status=True)


def spec_warnings(changes: dict[str, Any]) -> list[str]:
    """Return the warnings about a pod with these changes, after checking that its template has the same."""
    pod = edit(make_pod(), changes)
    found = list(run(pod).warnings)
    template = {"metadata": {**pod["metadata"], "labels": {"a": "b"}}, "spec": copy.deepcopy(pod["spec"])}
    del template["metadata"]["name"], template["metadata"]["namespace"]
    template["spec"]["restartPolicy"] = "Always"
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    prepared = run(deployment, traits=TRAITS)
    assert prepared.errors == ()
    assert sorted(prepared.warnings) == sorted(
        TEMPLATE + text if not text.startswith("volume ") else text
        for text in (each.replace(" with spec.", f" with {TEMPLATE}spec.") for each in found)
    )
    return found


TERM = {"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "In", "values": ["linux"]}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"spec.nodeSelector": {"beta.kubernetes.io/arch": "amd64"}},
            "spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; "
            'use "kubernetes.io/arch" instead',
        ),
        (
            {"spec.affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [TERM]}}}},
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].key: "
            'beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead',
        ),
        (
            {"spec.affinity": {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": TERM}]}}},
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].preference.matchExpressions[0].key: "
            'beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead',
        ),
        (
            {"spec.affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "kubernetes.io/hostname"}]}}},
            f"spec.affinity.podAntiAffinity.{REQUIRED}[0].labelSelector: "
            "a null labelSelector results in matching no pod",
        ),
        (
            {"spec.imagePullSecrets": [{"name": "a"}, {"name": "a"}]},
            'spec.imagePullSecrets[1].name: duplicate name "a"',
        ),
        (
            {"spec.hostAliases": [{"ip": "2001:DB8::1", "hostnames": ["a"]}]},
            'spec.hostAliases[0].ip: IPv6 address "2001:DB8::1" should be in RFC 5952 canonical format '
            '("2001:db8::1")',
        ),
        (
            {"metadata.annotations": {"scheduler.alpha.kubernetes.io/critical-pod": ""}},
            "metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; "
            'use the "priorityClassName" field instead',
        ),
        (
            {"metadata.annotations": {"container.seccomp.security.alpha.kubernetes.io/main": "unconfined"}},
            "metadata.annotations[container.seccomp.security.alpha.kubernetes.io/main]: non-functional in "
            'v1.27+; use the "seccompProfile" field instead',
        ),
        (
            {"metadata.annotations": {"container.apparmor.security.beta.kubernetes.io/main": "unconfined"}},
            "metadata.annotations[container.apparmor.security.beta.kubernetes.io/main]: deprecated since "
            'v1.30; use the "appArmorProfile" field instead',
        ),
        (
            {"spec.volumes": [{"name": "v", "gitRepo": {"repository": "https://example.com"}}]},
            "spec.volumes[0].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
        ),
        (
            {
                "spec.volumes": [
                    {
                        "name": "v",
                        "configMap": {
                            "name": "m",
                            "items": [{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}],
                        },
                    }
                ]
            },
            'volume "v" (ConfigMap "m"): overlapping paths: "x/y" with "x"',
        ),
        (
            {"spec.containers.0.resources": {"limits": {"memory": "1500m"}, "requests": {"memory": "1"}}},
            'spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, '
            "must be an integer",
        ),
        (
            {"spec.containers.0.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
            'spec.containers[0].env[1]: hides previous definition of "A", '
            "which may be dropped when using apply",
        ),
        (
            {"spec.containers.0.ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 81}]},
            "spec.containers[0].ports[1]: overlapping port definition with spec.containers[0].ports[0]",
        ),
        (
            {"spec.containers.0.ports": [{"containerPort": 80, "hostIP": "10.0.0.1"}]},
            "spec.containers[0].ports[0]: hostIP set without hostPort: "
            "{Name: HostPort:0 ContainerPort:80 Protocol:TCP HostIP:10.0.0.1}",
        ),
    ],
)
def test_pods_and_templates_get_the_warnings_of_kubernetes(changes: dict[str, Any], warning: str) -> None:
    assert warning in spec_warnings(changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"spec.nodeSelector": {"kubernetes.io/arch": "amd64"}},
        {"spec.containers.0.resources": {"limits": {"memory": "1500M", "cpu": "1500m"}}},
        {"spec.containers.0.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]},
        {"spec.containers.0.ports": [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP"}]},
    ],
)
def test_pods_without_surprises_get_none(changes: dict[str, Any]) -> None:
    assert spec_warnings(changes) == []


def service(**spec: Any) -> dict[str, Any]:
    ports = [{"port": 80}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"ports": ports, **spec},
    }


@pytest.mark.parametrize(
    ("spec", "warnings"),
    [
        ({}, []),
        (
            {"externalIPs": ["192.0.2.1"]},
            ["spec.externalIPs is deprecated and may no longer be implemented in some clusters"],
        ),
        (
            {"clusterIP": "None", "externalIPs": ["192.0.2.1"], "sessionAffinity": "ClientIP"},
            [
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        ),
        (
            {"trafficDistribution": "PreferClose"},
            ['spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'],
        ),
    ],
)
def test_services(spec: dict[str, Any], warnings: list[str]) -> None:
    assert list(run(service(**spec), traits=TRAITS).warnings) == warnings


def test_updates_of_workloads_warn_only_if_they_change_the_spec() -> None:
    job: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "a.b", "namespace": "default"},
        "spec": {
            "schedule": "@daily",
            "jobTemplate": {"spec": {"template": {"spec": make_pod()["spec"]}}},
        },
    }
    job["spec"]["jobTemplate"]["spec"]["template"]["spec"].update(
        {"restartPolicy": "Never", "nodeSelector": {"beta.kubernetes.io/os": "linux"}}
    )
    created = run(job, traits=TRAITS)
    assert [text.partition(":")[0] for text in created.warnings] == [
        "metadata.name",
        "spec.jobTemplate.spec.template.spec.nodeSelector[beta.kubernetes.io/os]",
    ]
    meta = {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2025-01-01T00:00:00Z"}
    old = {**created.tree, "metadata": {**created.tree["metadata"], **meta}}
    assert run(old, old, traits=TRAITS).warnings == ()
    changed = edit(old, {"spec.suspend": True})
    assert len(run(changed, old, traits=TRAITS).warnings) == 1


def test_tls_secrets_are_not_opened() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": "default"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": "eA==", "tls.key": "eA=="},
    }
    prepared = run(secret, traits=TRAITS)
    assert (prepared.errors, prepared.warnings) == ((), ())
