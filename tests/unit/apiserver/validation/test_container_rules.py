"""Validation of containers and volumes, one table for each topic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.full_objects import make_pod
from tests.unit.apiserver.validation.objects import Tree, edit, field_errors

MAIN = "spec.containers[0]"


def _container(**fields: Any) -> Tree:
    return make_pod(containers=[{"name": "main", "image": "x", **fields}])


def _volume(**source: Any) -> Tree:
    return make_pod(volumes=[{"name": "v", **source}])


def _check(pod: Tree, *errors: str) -> None:
    assert field_errors(pod) == sorted(errors)


@pytest.mark.parametrize(
    ("fields", "errors"),
    [
        ({"name": ""}, ["name Required"]),
        ({"name": "A.b"}, ["name Invalid"]),
        ({"image": ""}, ["image Required"]),
        ({"image": " x"}, ["image Invalid"]),
        ({"imagePullPolicy": "Often"}, ["imagePullPolicy NotSupported"]),
        ({"terminationMessagePolicy": "x"}, ["terminationMessagePolicy NotSupported"]),
        ({"ports": [{}]}, ["ports[0].containerPort Required"]),
        ({"ports": [{"containerPort": 70000}]}, ["ports[0].containerPort Invalid"]),
        ({"ports": [{"containerPort": 1, "hostPort": -1}]}, ["ports[0].hostPort Invalid"]),
        ({"ports": [{"containerPort": 1, "protocol": "x"}]}, ["ports[0].protocol NotSupported"]),
        ({"ports": [{"containerPort": 1, "name": "A--b-"}]}, ["ports[0].name Invalid"] * 3),
        ({"ports": [{"containerPort": 1, "name": "a"}] * 2}, ["ports[1].name Duplicate"]),
        ({"ports": [{"containerPort": 1, "hostPort": 5}] * 2}, ["ports[1].hostPort Duplicate"]),
        ({"env": [{"name": ""}]}, ["env[0].name Required"]),
        ({"env": [{"name": "a=b"}]}, ["env[0].name Invalid"]),
        ({"env": [{"name": "a b"}]}, []),
        ({"env": [{"name": "A", "valueFrom": {}}]}, ["env[0].valueFrom Invalid"]),
        (
            {"env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]},
            ["env[0].valueFrom Invalid"],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}]},
            ["env[0].valueFrom.fieldRef.fieldPath NotSupported"],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}]},
            ["env[0].valueFrom.fieldRef.fieldPath Invalid"],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a b']"}}}]},
            ["env[0].valueFrom.fieldRef Invalid"],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "x"}}}]},
            ["env[0].valueFrom.resourceFieldRef.resource NotSupported"],
        ),
        (
            {
                "env": [
                    {
                        "name": "A",
                        "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}},
                    }
                ]
            },
            ["env[0].valueFrom.resourceFieldRef.divisor Invalid"],
        ),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "A", "key": ".."}}}]},
            ["env[0].valueFrom.secretKeyRef.key Invalid", "env[0].valueFrom.secretKeyRef.name Invalid"],
        ),
        (
            {
                "env": [
                    {"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "..", "key": "k"}}}
                ]
            },
            [
                "env[0].valueFrom.fileKeyRef.path Invalid",
                "env[0].valueFrom.fileKeyRef.volumeName NotFound",
            ],
        ),
        ({"envFrom": [{}]}, ["envFrom Invalid"]),
        ({"envFrom": [{"secretRef": {}}]}, ["envFrom[0].secretRef.name Required"]),
        (
            {"volumeMounts": [{"name": "v"}]},
            ["volumeMounts[0].mountPath Required", "volumeMounts[0].name NotFound"],
        ),
        (
            {"resizePolicy": [{"resourceName": "x", "restartPolicy": ""}]},
            ["resizePolicy NotSupported", "resizePolicy Required"],
        ),
        ({"restartPolicy": "x"}, ["restartPolicy NotSupported"]),
        (
            {"restartPolicyRules": [{"action": "x"}]},
            [
                "restartPolicy Required",
                "restartPolicyRules[0].action NotSupported",
                "restartPolicyRules[0].exitCodes Required",
            ],
        ),
        ({"livenessProbe": {}}, ["livenessProbe Required"]),
        (
            {"livenessProbe": {"exec": {"command": []}, "tcpSocket": {"port": 1}}},
            ["livenessProbe.exec.command Required", "livenessProbe.tcpSocket Forbidden"],
        ),
        (
            {"livenessProbe": {"tcpSocket": {"port": 0}, "successThreshold": 2}},
            ["livenessProbe.successThreshold Invalid", "livenessProbe.tcpSocket.port Invalid"],
        ),
        ({"readinessProbe": {"tcpSocket": {"port": 1}, "successThreshold": 2}}, []),
        (
            {"readinessProbe": {"tcpSocket": {"port": 1}, "terminationGracePeriodSeconds": 1}},
            ["readinessProbe.terminationGracePeriodSeconds Invalid"],
        ),
        (
            {"startupProbe": {"httpGet": {"port": "", "scheme": "x"}, "periodSeconds": -1}},
            [
                "startupProbe.httpGet.port Invalid",
                "startupProbe.httpGet.port Invalid",
                "startupProbe.httpGet.scheme NotSupported",
                "startupProbe.periodSeconds Invalid",
            ],
        ),
        ({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}, ["lifecycle.preStop.sleep Invalid"]),
        ({"securityContext": {"runAsUser": -1}}, ["securityContext.runAsUser Invalid"]),
        ({"securityContext": {"procMount": "Unmasked"}}, ["securityContext.procMount Invalid"]),
        ({"securityContext": {"seccompProfile": {}}}, ["securityContext.seccompProfile.type Required"]),
        (
            {"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "/x"}}},
            ["securityContext.seccompProfile.localhostProfile Invalid"],
        ),
        (
            {"securityContext": {"appArmorProfile": {"type": "Localhost"}}},
            ["securityContext.appArmorProfile.localhostProfile Required"],
        ),
        (
            {"securityContext": {"privileged": True, "allowPrivilegeEscalation": False}},
            ["securityContext Invalid"],
        ),
        (
            {"securityContext": {"windowsOptions": {"runAsUserName": "a\\b\\c"}}},
            ["securityContext.windowsOptions.runAsUserName Invalid"],
        ),
    ],
)
def test_containers(fields: Tree, errors: list[str]) -> None:
    _check(_container(**fields), *(f"{MAIN}.{error}" for error in errors))


@pytest.mark.parametrize(
    ("requests", "limits", "errors"),
    [
        ({"cpu": "1"}, {"cpu": "2"}, []),
        ({"cpu": "3"}, {"cpu": "2"}, ["requests Invalid"]),
        ({"cpu": "-1"}, {}, ["requests[cpu] Invalid"]),
        ({"foo": "1"}, {}, ["requests[foo] Invalid", "requests[foo] Invalid"]),
        ({"pods": "1"}, {}, ["requests[pods] Invalid"]),
        ({"kubernetes.io/x": "1"}, {}, []),
        ({"example.com/x": "1"}, {}, ["limits Required"]),
        ({"example.com/x": "1"}, {"example.com/x": "2"}, ["requests Invalid"]),
        ({}, {"example.com/x": "1.5"}, ["limits[example.com/x] Invalid", "requests[example.com/x] Invalid"]),
        ({}, {"requests.x/y": "1"}, ["limits[requests.x/y] Invalid", "requests[requests.x/y] Invalid"]),
        (
            {"cpu": "1"},
            {"hugepages-2Mi": "3Mi"},
            ["limits[hugepages-2Mi] Invalid", "requests[hugepages-2Mi] Invalid"],
        ),
        ({}, {"hugepages-2Mi": "2Mi"}, [" Forbidden"]),
        (
            {"cpu": "1"},
            {"hugepages-x": "2Mi"},
            ["limits[hugepages-x] Invalid", "requests[hugepages-x] Invalid"],
        ),
    ],
)
def test_resources(requests: Tree, limits: Tree, errors: list[str]) -> None:
    pod = _container(resources={"requests": requests, "limits": limits})
    _check(pod, *(f"{MAIN}.resources{error if error[0] == ' ' else '.' + error}" for error in errors))


@pytest.mark.parametrize(
    ("resources", "errors"),
    [
        ({"requests": {"cpu": "1"}}, ["requests[cpu] Invalid"]),
        ({"limits": {"cpu": "2"}}, ["containers[0][cpu].limits Invalid"]),
        ({"limits": {"example.com/x": "2"}}, ["limits[example.com/x] NotSupported"]),
        (
            {"limits": {"cpu": "4", "hugepages-2Mi": "3Mi"}},
            ["limits[hugepages-2Mi] Invalid", "requests[hugepages-2Mi] Invalid"],
        ),
    ],
)
def test_resources_of_the_pod(resources: Tree, errors: list[str]) -> None:
    container = {
        "name": "main",
        "image": "x",
        "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}},
    }
    pod = make_pod(containers=[container], resources=resources)
    _check(pod, *(f"spec.resources.{error}" for error in errors))


@pytest.mark.parametrize(
    ("source", "errors"),
    [
        ({"emptyDir": {"sizeLimit": "-1"}}, [".emptyDir.sizeLimit Forbidden"]),
        ({"emptyDir": {}, "nfs": {}}, [".nfs Forbidden"]),
        (
            {"hostPath": {"path": "/a/../b", "type": "x"}},
            [".hostPath.path Invalid", ".hostPath.type NotSupported"],
        ),
        ({"hostPath": {}}, [".hostPath.path Required"]),
        ({"secret": {}}, [".secret.secretName Required"]),
        ({"secret": {"secretName": "s", "defaultMode": 512}}, [".secret.defaultMode Invalid"]),
        (
            {"configMap": {"name": "c", "items": [{}]}},
            [".configMap.items[0].key Required", ".configMap.items[0].path Required"],
        ),
        (
            {"downwardAPI": {"items": [{"path": "..x"}]}},
            [".downwardAPI Required", ".downwardAPI.path Invalid"],
        ),
        (
            {"projected": {"sources": [{"secret": {}, "configMap": {"name": "c"}}]}},
            [".projected.sources[0] Forbidden", ".projected.sources[0].secret.name Required"],
        ),
        (
            {"projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}] * 2}}]}},
            [".projected Invalid"],
        ),
        (
            {"projected": {"sources": [{"serviceAccountToken": {"path": "/t", "expirationSeconds": 5}}]}},
            [
                ".projected.path Invalid",
                ".projected.sources[0].serviceAccountToken Forbidden",
                ".projected.sources[0].serviceAccountToken.expirationSeconds Invalid",
            ],
        ),
        ({"persistentVolumeClaim": {}}, [".persistentVolumeClaim.claimName Required"]),
        ({"ephemeral": {}}, [".ephemeral.volumeClaimTemplate Required"]),
        (
            {"ephemeral": {"volumeClaimTemplate": {"metadata": {"name": "x"}, "spec": {}}}},
            [
                ".ephemeral.volumeClaimTemplate.metadata.name Forbidden",
                ".ephemeral.volumeClaimTemplate.spec.accessModes Required",
                ".ephemeral.volumeClaimTemplate.spec.resources[storage] Required",
            ],
        ),
        ({"csi": {"driver": "A_b"}}, [".csi.driver Invalid"]),
        (
            {"image": {"reference": "", "pullPolicy": "x"}},
            [".image.pullPolicy NotSupported", ".image.reference Required"],
        ),
        (
            {"iscsi": {"targetPortal": "x", "iqn": "y", "lun": 300}},
            [".iscsi.iqn Invalid", ".iscsi.lun Invalid"],
        ),
        ({"fc": {}}, [".fc.targetWWNs Required"]),
        (
            {"flexVolume": {"driver": "d", "options": {"kubernetes.io/x": "y"}}},
            [".flexVolume.options[kubernetes.io/x] Invalid"],
        ),
        ({"quobyte": {"registry": "x", "volume": "v"}}, [".quobyte.registry Invalid"]),
        (
            {"azureDisk": {"diskName": "d", "diskURI": "x", "kind": "Managed"}},
            [".azureDisk.diskURI NotSupported"],
        ),
        (
            {"gcePersistentDisk": {"partition": 256}},
            [".persistentDisk.partition Invalid", ".persistentDisk.pdName Required"],
        ),
    ],
)
def test_volumes(source: Tree, errors: list[str]) -> None:
    _check(_volume(**source), *(f"spec.volumes[0]{error}" for error in errors))


def test_names_of_volumes() -> None:
    pod = make_pod(volumes=[{"name": "v"}, {"name": "v"}, {"name": ""}, {"name": "A"}])
    _check(
        pod, "spec.volumes[1].name Duplicate", "spec.volumes[2].name Required", "spec.volumes[3].name Invalid"
    )
    claim = {"persistentVolumeClaim": {"claimName": "p-e"}}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    created = {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    pod = make_pod(volumes=[created, {"name": "v", **claim}])
    _check(pod, "spec.volumes[1].persistentVolumeClaim.claimName Invalid")


def test_mounts() -> None:
    mounts = [
        {"name": "v", "mountPath": "/a", "subPath": "/s", "subPathExpr": "t"},
        {"name": "v", "mountPath": "/a", "mountPropagation": "Bidirectional"},
        {"name": "v", "mountPath": "/b", "recursiveReadOnly": "Enabled"},
    ]
    pod = edit(_volume(), {"spec.containers.0.volumeMounts": mounts})
    at = f"{MAIN}.volumeMounts"
    _check(
        pod,
        f"{at}.mountPropagation Forbidden",
        f"{at}.recursiveReadOnly Forbidden",
        f"{at}.subPath Invalid",
        f"{at}[0].subPathExpr Invalid",
        f"{at}[1].mountPath Invalid",
    )
    pod = edit(_volume(), {"spec.containers.0.volumeDevices": [{"name": "v", "devicePath": "/dev/.."}]})
    at = f"{MAIN}.volumeDevices[0]"
    _check(pod, f"{at}.devicePath Invalid", f"{at}.name Invalid")
