"""Builders of JSON objects as clients send them; `tests.build` has typed ones as servers return them."""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]
DRIVER = "gpu.example.com"


def config_map(name: str, labels: dict[str, str] | None = None, **data: str) -> Tree:
    metadata: Tree = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def pod(name: str, *, node: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Tree:
    metadata: Tree = {"name": name}
    if labels:
        metadata["labels"] = labels
    container: Tree = {"name": "main", "image": "example.org/main:1", "ports": [{"containerPort": 80}]}
    container["resources"] = {"requests": {"cpu": "100m", "memory": "16Mi"}}
    full: Tree = {"containers": [container], **spec}
    if node:
        full["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": full}


def node(name: str) -> Tree:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


#: What a node agent reports: a node without it is not scheduled to.
NODE_STATUS: Tree = {
    "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"},
    "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110", "ephemeral-storage": "100Gi"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "ready"}],
    "nodeInfo": {
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
        "kernelVersion": "6.1",
        "osImage": "Linux",
        "containerRuntimeVersion": "",
        "kubeletVersion": "v1.36.4",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    },
}


def device_class(name: str) -> Tree:
    expression = f'device.driver == "{DRIVER}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def resource_slice(name: str, node: str, devices: int = 1) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{number}",
                    "attributes": {"model": {"string": "small"}},
                    "capacity": {"memory": {"value": "16Gi"}},
                }
                for number in range(devices)
            ],
        },
    }


def _claim_spec(device_class: str) -> Tree:
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": device_class}}]}}


def claim(name: str, device_class: str = DRIVER) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": _claim_spec(device_class),
    }


def claim_template(name: str, device_class: str) -> Tree:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": _claim_spec(device_class)},
    }


def claiming_pod(name: str, template: str) -> Tree:
    """Return a pod with its own claim."""
    tree = pod(name, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}])
    tree["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return tree


def owned_config_map(name: str, owner: Tree) -> Tree:
    """Return a ConfigMap owned by another one."""
    tree = config_map(name)
    tree["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    return tree
