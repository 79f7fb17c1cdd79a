"""Valid objects that use nearly every field, as input for fuzz tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Tree: TypeAlias = "dict[str, Any]"

MOMENT = "2025-01-01T00:00:00.123456Z"
SELECTOR: Tree = {
    "matchLabels": {"a": "b"},
    "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}, {"key": "e", "operator": "Exists"}],
}
NODE_TERM: Tree = {
    "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
}
POD_TERM: Tree = {
    "labelSelector": SELECTOR,
    "namespaces": ["n"],
    "namespaceSelector": {},
    "topologyKey": "zone",
    "matchLabelKeys": ["app"],
    "mismatchLabelKeys": ["version"],
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def make_pod(**fields: Any) -> Tree:
    spec = {"containers": [{"name": "main", "image": "example.com/app:1"}], **fields}
    meta = {"name": "p", "namespace": "d", "uid": "u", "labels": {"app": "x", "version": "1"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def busy_container() -> Tree:
    probe: Tree = {
        "httpGet": {
            "path": "/",
            "port": 80,
            "scheme": "HTTPS",
            "httpHeaders": [{"name": "X-A", "value": "b"}],
        },
        "initialDelaySeconds": 1,
        "timeoutSeconds": 2,
    }
    return {
        "name": "main",
        "image": "example.com/app:1",
        "command": ["run"],
        "args": ["fast"],
        "workingDir": "/work",
        "ports": [
            {"name": "http", "containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"},
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        ],
        "env": [
            {"name": "A", "value": "b"},
            {"name": "F", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
            {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "K", "valueFrom": {"fileKeyRef": {"volumeName": "cache", "path": "a", "key": "K"}}},
        ],
        "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c"}}, {"secretRef": {"name": "s"}}],
        "resources": {
            "requests": {"cpu": "100m", "memory": "1Gi", "ephemeral-storage": "1G"},
            "limits": {"cpu": "1", "memory": "2Gi", "hugepages-2Mi": "4Mi", "example.com/gpu": "1"},
        },
        "volumeMounts": [
            {"name": "cache", "mountPath": "/c", "readOnly": True, "subPath": "s"},
            {"name": "host", "mountPath": "/h", "mountPropagation": "HostToContainer"},
        ],
        "volumeDevices": [{"name": "disk", "devicePath": "/dev/x"}],
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        "restartPolicy": "OnFailure",
        "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}],
        "livenessProbe": probe,
        "readinessProbe": {"tcpSocket": {"port": "http"}},
        "startupProbe": {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 5},
        "lifecycle": {"preStop": {"exec": {"command": ["a"]}}, "postStart": {"sleep": {"seconds": 3}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "imagePullPolicy": "Never",
        "securityContext": {
            "privileged": True,
            "runAsUser": 0,
            "capabilities": {"add": ["NET_ADMIN"]},
            "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b"},
            "appArmorProfile": {"type": "RuntimeDefault"},
        },
    }


def busy_pod() -> Tree:
    return make_pod(
        containers=[busy_container()],
        volumes=[
            {"name": "cache", "emptyDir": {"sizeLimit": "1Gi", "medium": "Memory"}},
            {"name": "host", "hostPath": {"path": "/x", "type": "Directory"}},
            {"name": "disk", "persistentVolumeClaim": {"claimName": "c"}},
        ],
        overhead={"cpu": "10m"},
        runtimeClassName="rc",
    )


def placed_pod() -> Tree:
    return make_pod(
        initContainers=[
            {"name": "side", "image": "x", "restartPolicy": "Always", "ports": [{"containerPort": 1}]},
            {"name": "first", "image": "x"},
        ],
        nodeSelector={"a": "b"},
        affinity={
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [NODE_TERM]},
                PREFERRED: [{"weight": 5, "preference": NODE_TERM}],
            },
            "podAffinity": {REQUIRED: [POD_TERM], PREFERRED: [{"weight": 9, "podAffinityTerm": POD_TERM}]},
            "podAntiAffinity": {REQUIRED: [{"labelSelector": SELECTOR, "topologyKey": "host"}]},
        },
        tolerations=[
            {"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5},
            {"operator": "Exists"},
        ],
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": SELECTOR,
                "minDomains": 2,
                "nodeAffinityPolicy": "Honor",
                "matchLabelKeys": ["app"],
            }
        ],
        schedulingGates=[{"name": "g"}],
        priorityClassName="high",
        preemptionPolicy="Never",
        readinessGates=[{"conditionType": "x/y"}],
        hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a", "b.c"]}],
        hostname="h",
        subdomain="s",
        dnsPolicy="None",
        dnsConfig={"nameservers": ["10.0.0.1"], "searches": ["a.b"], "options": [{"name": "ndots"}]},
        activeDeadlineSeconds=50,
        serviceAccountName="robot",
        os={"name": "linux"},
        securityContext={
            "runAsUser": 5,
            "fsGroup": 6,
            "supplementalGroups": [1, 2],
            "fsGroupChangePolicy": "Always",
            "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
            "seccompProfile": {"type": "RuntimeDefault"},
            "supplementalGroupsPolicy": "Strict",
            "seLinuxChangePolicy": "Recursive",
        },
        resources={"requests": {"cpu": "2"}, "limits": {"cpu": "4", "memory": "4Gi"}},
    )


VOLUMES: list[Tree] = [
    {"name": "a"},
    {"name": "b", "secret": {"secretName": "s", "items": [{"key": "k", "path": "p", "mode": 256}]}},
    {"name": "c", "configMap": {"name": "c", "items": [{"key": "k", "path": "p/q"}]}},
    {
        "name": "d",
        "downwardAPI": {
            "items": [
                {"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}},
                {"path": "m", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory"}},
            ]
        },
    },
    {
        "name": "e",
        "projected": {
            "sources": [
                {"secret": {"name": "s", "items": [{"key": "k", "path": "z"}]}},
                {"configMap": {"name": "x"}},
                {
                    "downwardAPI": {
                        "items": [{"path": "y", "fieldRef": {"fieldPath": "metadata.labels['x']"}}]
                    }
                },
                {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}},
            ]
        },
    },
    {"name": "f", "nfs": {"server": "s", "path": "/p"}},
    {"name": "g", "csi": {"driver": "d.example.com", "nodePublishSecretRef": {"name": "x"}}},
    {"name": "h", "image": {"reference": "x:1", "pullPolicy": "Always"}},
    {"name": "i", "iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2015-02.example.com:test", "lun": 3}},
    {"name": "j", "gitRepo": {"repository": "r", "directory": "d"}},
    {"name": "k", "fc": {"targetWWNs": ["x"], "lun": 1}},
    {"name": "l", "rbd": {"monitors": ["m"], "image": "i"}},
    {"name": "m", "cephfs": {"monitors": ["m"]}},
    {"name": "n", "azureDisk": {"diskName": "d", "diskURI": "https://x"}},
    {"name": "o", "gcePersistentDisk": {"pdName": "p", "partition": 3}},
    {"name": "p", "flexVolume": {"driver": "d", "options": {"k": "v"}}},
    {"name": "q", "quobyte": {"registry": "h:1,[::1]:2", "volume": "v"}},
    {"name": "r", "glusterfs": {"endpoints": "e", "path": "p"}},
    {"name": "s", "flocker": {"datasetName": "x"}},
    {"name": "t", "scaleIO": {"gateway": "g", "system": "s", "volumeName": "v"}},
    {"name": "u", "storageos": {"volumeName": "v"}},
    {"name": "v", "cinder": {"volumeID": "x", "secretRef": {"name": "q"}}},
    {"name": "w", "awsElasticBlockStore": {"volumeID": "x"}},
    {"name": "x", "azureFile": {"secretName": "x", "shareName": "y"}},
    {"name": "y", "vsphereVolume": {"volumePath": "x"}},
    {"name": "z", "photonPersistentDisk": {"pdID": "x"}},
    {"name": "aa", "portworxVolume": {"volumeID": "x"}},
    {
        "name": "bb",
        "ephemeral": {
            "volumeClaimTemplate": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "selector": SELECTOR,
                    "dataSource": {"kind": "PersistentVolumeClaim", "name": "q"},
                },
            }
        },
    },
]


def stuffed_pod() -> Tree:
    return make_pod(volumes=VOLUMES, serviceAccount="robot")


def windows_pod() -> Tree:
    options = {"hostProcess": True, "runAsUserName": "NT\\x", "gmsaCredentialSpecName": "g"}
    return make_pod(os={"name": "windows"}, hostNetwork=True, securityContext={"windowsOptions": options})


def live_pod() -> Tree:
    pod = make_pod(
        ephemeralContainers=[{"name": "look", "image": "x", "targetContainerName": "main", "stdin": True}],
        nodeName="n",
        restartPolicy="OnFailure",
    )
    running = {"running": {"startedAt": "2025-01-01T00:00:00Z"}}
    pod["status"] = {
        "phase": "Running",
        "qosClass": "BestEffort",
        "observedGeneration": 3,
        "conditions": [{"type": "Ready", "status": "True", "observedGeneration": 2}],
        "hostIP": "10.0.0.1",
        "hostIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        "podIP": "10.0.0.2",
        "podIPs": [{"ip": "10.0.0.2"}, {"ip": "fd00::2"}],
        "startTime": "2025-01-01T00:00:00Z",
        "containerStatuses": [
            {
                "name": "main",
                "state": running,
                "lastState": {"terminated": {"exitCode": 1, "finishedAt": "2025-01-01T00:00:00Z"}},
                "allocatedResources": {"cpu": "1"},
                "resources": {"requests": {"cpu": "1"}},
                "user": {"linux": {"uid": 1, "gid": 2, "supplementalGroups": [3]}},
            }
        ],
        "ephemeralContainerStatuses": [{"name": "look", "state": {"terminated": {"exitCode": 3}}}],
    }
    return pod


def node() -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "spec": {
            "podCIDRs": ["10.0.0.0/24", "fd00::/64"],
            "providerID": "x",
            "taints": [{"key": "a", "effect": "NoSchedule", "timeAdded": "2025-01-01T00:00:00Z"}],
        },
        "status": {
            "capacity": {"cpu": "4", "memory": "1Gi", "pods": "110", "example.com/x": "2"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "2025-01-01T00:00:00Z"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"swap": {"capacity": 5}},
            "declaredFeatures": ["A", "B/c"],
        },
    }


def event() -> Tree:
    about = {"kind": "Pod", "namespace": "d", "name": "p"}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "d"},
        "regarding": about,
        "related": about,
        "reason": "r",
        "note": "m",
        "type": "Warning",
        "eventTime": MOMENT,
        "action": "Bind",
        "reportingController": "example.com/c",
        "reportingInstance": "i",
        "series": {"count": 2, "lastObservedTime": MOMENT},
    }


def quota() -> Tree:
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "q", "namespace": "d"},
        "spec": {
            "hard": {"pods": "10", "requests.cpu": "4", "requests.example.com/x": "1"},
            "scopes": ["NotBestEffort"],
            "scopeSelector": {"matchExpressions": [expression]},
        },
        "status": {"hard": {"pods": "10"}, "used": {"pods": "1"}},
    }


def namespace() -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "d"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def lease() -> Tree:
    spec = {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": MOMENT, "leaseTransitions": 2}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l", "namespace": "d"},
        "spec": spec,
    }


def priority_class() -> Tree:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 5,
        "globalDefault": True,
        "preemptionPolicy": "Never",
    }


#: What to damage, and the endpoints it goes to.
OBJECT_ROOT: tuple[tuple[Callable[[], Tree], tuple[str, ...]], ...] = (
    *((make, ("", "status", "resize", "ephemeralcontainers")) for make in (busy_pod, placed_pod, live_pod)),
    (stuffed_pod, ("",)),
    (windows_pod, ("",)),
    (node, ("", "status")),
    (event, ("",)),
    (quota, ("", "status")),
    (namespace, ("", "status", "finalize")),
    (lease, ("",)),
    (priority_class, ("",)),
)
