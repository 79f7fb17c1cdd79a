"""One valid object of every kind that the server validates, and of some it only stores."""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]

_CLAIM: Tree = {
    "devices": {
        "requests": [
            {
                "name": "one",
                "exactly": {
                    "deviceClassName": "gpu.example.com",
                    "selectors": [
                        {"cel": {"expression": 'device.attributes["gpu.example.com"].model == "a"'}}
                    ],
                    "allocationMode": "ExactCount",
                    "count": 2,
                    "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
                    "capacity": {"requests": {"memory": "1Gi"}},
                },
            },
            {
                "name": "two",
                "firstAvailable": [
                    {"name": "big", "deviceClassName": "gpu.example.com"},
                    {"name": "small", "deviceClassName": "gpu.example.com", "allocationMode": "All"},
                ],
            },
        ],
        "constraints": [{"requests": ["one"], "matchAttribute": "gpu.example.com/model"}],
        "config": [
            {
                "requests": ["one"],
                "opaque": {"driver": "gpu.example.com", "parameters": {"a": [1, {"b": None}]}},
            }
        ],
    }
}

_POD: Tree = {
    "initContainers": [{"name": "init", "image": "i", "restartPolicy": "Always"}],
    "containers": [
        {
            "name": "main",
            "image": "example.org/main:1",
            "command": ["run"],
            "ports": [
                {"containerPort": 80, "name": "http", "protocol": "TCP"},
                {"containerPort": 53, "protocol": "UDP"},
            ],
            "env": [
                {"name": "A", "value": "b"},
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": True}}},
            ],
            "resources": {
                "requests": {"cpu": "100m", "memory": "16Mi"},
                "limits": {"cpu": "1", "example.com/thing": "1"},
                "claims": [{"name": "gpu", "request": "one"}],
            },
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 5},
            "readinessProbe": {"exec": {"command": ["true"]}},
            "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            "securityContext": {"runAsUser": 1, "capabilities": {"add": ["NET_ADMIN"]}},
        }
    ],
    "volumes": [
        {"name": "v", "emptyDir": {"sizeLimit": "1Gi"}},
        {"name": "c", "configMap": {"name": "c", "items": [{"key": "a", "path": "b"}]}},
        {
            "name": "p",
            "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]},
        },
    ],
    "resourceClaims": [
        {"name": "gpu", "resourceClaimTemplateName": "t"},
        {"name": "own", "resourceClaimName": "c"},
    ],
    "serviceAccountName": "default",
    "nodeSelector": {"a": "b"},
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
            }
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {
                        "topologyKey": "kubernetes.io/hostname",
                        "labelSelector": {"matchLabels": {"a": "b"}},
                    },
                }
            ]
        },
    },
    "tolerations": [
        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}
    ],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "terminationGracePeriodSeconds": 30,
    "priorityClassName": "",
    "schedulingGates": [{"name": "example.com/gate"}],
    "readinessGates": [{"conditionType": "example.com/ready"}],
}

#: Plural and group -> (apiVersion, kind, namespaced, everything but metadata).
_DRA = "resource.k8s.io/v1"
TEMPLATES: dict[str, tuple[str, str, bool, Tree]] = {
    "pods": ("v1", "Pod", True, {"spec": _POD}),
    "nodes": (
        "v1",
        "Node",
        False,
        {
            "spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "k", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                "conditions": [
                    {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
                ],
                "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "images": [{"names": ["a"], "sizeBytes": 5}],
            },
        },
    ),
    "namespaces": ("v1", "Namespace", False, {"spec": {"finalizers": ["kubernetes"]}}),
    "events": (
        "v1",
        "Event",
        True,
        {
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "R",
            "message": "m",
            "type": "Normal",
            "count": 1,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
            "source": {"component": "c"},
        },
    ),
    "events.events.k8s.io": (
        "events.k8s.io/v1",
        "Event",
        True,
        {
            "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
            "reason": "R",
            "note": "n",
            "type": "Normal",
            "action": "A",
            "eventTime": "2026-01-01T00:00:00.000001Z",
            "reportingController": "example.com/c",
            "reportingInstance": "i",
            "series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:00.000001Z"},
        },
    ),
    "leases.coordination.k8s.io": (
        "coordination.k8s.io/v1",
        "Lease",
        True,
        {
            "spec": {
                "holderIdentity": "a",
                "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-01T00:00:00.000001Z",
                "renewTime": "2026-01-01T00:00:00.000001Z",
                "leaseTransitions": 1,
            }
        },
    ),
    "priorityclasses.scheduling.k8s.io": (
        "scheduling.k8s.io/v1",
        "PriorityClass",
        False,
        {"value": 5, "description": "d", "preemptionPolicy": "Never"},
    ),
    "resourcequotas": (
        "v1",
        "ResourceQuota",
        True,
        {
            "spec": {
                "hard": {"pods": "1000", "requests.cpu": "1k", "count/configmaps": "1000"},
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]
                },
            }
        },
    ),
    "resourceslices.resource.k8s.io": (
        _DRA,
        "ResourceSlice",
        False,
        {
            "spec": {
                "driver": "gpu.example.com",
                "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [
                    {
                        "name": "gpu-0",
                        "attributes": {
                            "model": {"string": "a"},
                            "n": {"int": 5},
                            "b": {"bool": True},
                            "v": {"version": "1.2.3"},
                        },
                        "capacity": {
                            "memory": {
                                "value": "16Gi",
                                "requestPolicy": {
                                    "default": "1Gi",
                                    "validRange": {"min": "1Gi", "max": "16Gi", "step": "1Gi"},
                                },
                            }
                        },
                        "allowMultipleAllocations": True,
                        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                    }
                ],
            }
        },
    ),
    "resourceclaims.resource.k8s.io": (_DRA, "ResourceClaim", True, {"spec": _CLAIM}),
    "resourceclaimtemplates.resource.k8s.io": (
        _DRA,
        "ResourceClaimTemplate",
        True,
        {"spec": {"metadata": {"labels": {"a": "b"}}, "spec": _CLAIM}},
    ),
    "deviceclasses.resource.k8s.io": (
        _DRA,
        "DeviceClass",
        False,
        {
            "spec": {
                "selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}],
                "config": [{"opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}],
                "extendedResourceName": "example.com/gpu",
            }
        },
    ),
    "devicetaintrules.resource.k8s.io": (
        "resource.k8s.io/v1beta2",
        "DeviceTaintRule",
        False,
        {
            "spec": {
                "deviceSelector": {"driver": "gpu.example.com", "pool": "n", "device": "gpu-0"},
                "taint": {"key": "k", "value": "v", "effect": "NoExecute"},
            }
        },
    ),
    "configmaps": ("v1", "ConfigMap", True, {"data": {"a": "b"}, "binaryData": {"c": "AA=="}}),
    "secrets": ("v1", "Secret", True, {"type": "Opaque", "data": {"a": "AA=="}, "stringData": {"b": "c"}}),
    "serviceaccounts": ("v1", "ServiceAccount", True, {"automountServiceAccountToken": False}),
    "services": (
        "v1",
        "Service",
        True,
        {"spec": {"selector": {"a": "b"}, "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}]}},
    ),
    "deployments.apps": (
        "apps/v1",
        "Deployment",
        True,
        {
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": {
                    "metadata": {"labels": {"a": "b"}},
                    "spec": {"containers": [{"name": "main", "image": "i"}]},
                },
            }
        },
    ),
    "poddisruptionbudgets.policy": (
        "policy/v1",
        "PodDisruptionBudget",
        True,
        {"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"a": "b"}}}},
    ),
    "clusterroles.rbac.authorization.k8s.io": (
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        False,
        {
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
                {"nonResourceURLs": ["/x"], "verbs": ["*"]},
            ]
        },
    ),
    "rolebindings.rbac.authorization.k8s.io": (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        True,
        {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
        },
    ),
}
