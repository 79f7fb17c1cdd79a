"""Minimal valid objects of the generic kinds, and helpers that write them."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.validation import PreparedObject, Write, prepare_generic
from tests.unit.apiserver.validation.objects import NOW, Tree, edit

__all__ = ["LABELS", "created", "edit", "field_errors", "minimal", "write"]

UID = "8f0b1a3e-3f9a-4d1f-8a55-3b8d2b1e9c10"
LABELS = {"app": "web"}
_POD = {"containers": [{"name": "c", "image": "img"}]}
_TEMPLATE = {"metadata": {"labels": LABELS}, "spec": _POD}
_JOB_TEMPLATE = {"spec": {**_POD, "restartPolicy": "Never"}}
_APP = {"selector": {"matchLabels": LABELS}, "template": _TEMPLATE}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
_WEBHOOKS = {
    "webhooks": [{"name": "a.b.c", "clientConfig": {"service": {"name": "s"}}, "rules": [_RULE]}],
}

#: Kind -> what an object of it cannot be without.
_LEAST: dict[str, Tree] = {
    "Deployment": {"spec": _APP},
    "ReplicaSet": {"spec": _APP},
    "DaemonSet": {"spec": _APP},
    "StatefulSet": {"spec": _APP},
    "ReplicationController": {"spec": {"template": _TEMPLATE}},
    "PodTemplate": {"template": _TEMPLATE},
    "Job": {"spec": {"template": _JOB_TEMPLATE}},
    "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _JOB_TEMPLATE}}}},
    "Service": {"spec": {"ports": [{"port": 80}], "selector": LABELS}},
    "Endpoints": {"subsets": [{"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80}]}]},
    "EndpointSlice": {
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"port": 80}],
    },
    "IngressClass": {"spec": {"controller": "a/b", "parameters": {"kind": "K", "name": "n"}}},
    "NetworkPolicy": {"spec": {"ingress": [{"ports": [{"port": 80}]}]}},
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
    },
    "PersistentVolumeClaim": {"spec": _CLAIM},
    "StorageClass": {"provisioner": "p"},
    "CSIDriver": {"spec": {}},
    "CSIStorageCapacity": {"storageClassName": "s", "capacity": "1Gi"},
    "VolumeAttachment": {"spec": {"attacher": "a", "nodeName": "n"}},
    "ConfigMap": {"data": {"a": "b"}},
    "Secret": {"data": {"a": "eA=="}},
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {"matchLabels": LABELS}}},
    "HorizontalPodAutoscaler": {"spec": {"maxReplicas": 3, "behavior": {}}},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
    "RuntimeClass": {"handler": "h", "overhead": {"podFixed": {"cpu": "100m"}}},
    "Role": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    "ClusterRole": {
        "rules": [{"verbs": ["get"], "nonResourceURLs": ["/healthz"]}],
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
    },
    "RoleBinding": {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u"}]},
    "ClusterRoleBinding": {"roleRef": {"kind": "ClusterRole", "name": "r"}},
    "ServiceAccount": {"secrets": [{"name": "s"}]},
    "ValidatingWebhookConfiguration": _WEBHOOKS,
    "MutatingWebhookConfiguration": _WEBHOOKS,
    "ValidatingAdmissionPolicy": {
        "spec": {"matchConstraints": {"resourceRules": [_RULE]}, "validations": [{"expression": "true"}]}
    },
    "MutatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {"resourceRules": [_RULE]},
            "reinvocationPolicy": "Never",
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
            ],
        }
    },
    "ValidatingAdmissionPolicyBinding": {
        "spec": {"policyName": "p", "matchResources": {}, "validationActions": ["Deny"]}
    },
    "MutatingAdmissionPolicyBinding": {
        "spec": {"policyName": "p", "matchResources": {"resourceRules": [_RULE]}}
    },
    "FlowSchema": {
        "spec": {
            "priorityLevelConfiguration": {"name": "p"},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [
                {
                    "subjects": [
                        {"kind": "User", "user": {"name": "u"}},
                        {"kind": "ServiceAccount", "serviceAccount": {"namespace": "n", "name": "*"}},
                    ],
                    "resourceRules": [
                        {"verbs": ["*"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["n"]}
                    ],
                    "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/x/*"]}],
                }
            ],
        }
    },
    "PriorityLevelConfiguration": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Queue", "queuing": {"queues": 9}}}}
    },
}
KINDS = tuple(_LEAST)
_WITHOUT_STATUS = {"ConfigMap", "Secret", "PodTemplate", "Endpoints", "EndpointSlice", "StorageClass"}


def minimal(kind: str, changes: dict[str, Any] | None = None) -> Tree:
    """Return the minimal object of a kind, with fields set as by `edit`."""
    metadata = {"name": "x", "namespace": "lab", "uid": UID, "resourceVersion": "1"}
    return edit({"kind": kind, "metadata": metadata, **_LEAST[kind]}, changes or {})


def write(tree: Tree, old: Tree | None = None, subresource: str = "") -> PreparedObject:
    operation: Any = "create" if old is None else "update"
    kind = tree["kind"]
    request = Write(kind, operation, tree, NOW, old, subresource)
    return prepare_generic(request, namespaced=True, has_status=kind not in _WITHOUT_STATUS)


def created(kind: str, changes: dict[str, Any] | None = None) -> Tree:
    """Return the object as stored after it was created."""
    prepared = write(minimal(kind, changes))
    assert prepared.errors == ()
    return prepared.tree


def field_errors(tree: Tree, old: Tree | None = None, subresource: str = "") -> list[str]:
    """Return the errors of a write, each as `field Type`, sorted."""
    errors = write(tree, old, subresource).errors
    return sorted(f"{p.field} {p.type.value.removeprefix('FieldValue')}" for p in errors)
