"""Builders of stored volumes, claims and classes."""

from __future__ import annotations

from typing import Any

from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from tests.unit.controllers.makers import metadata, view

Tree = dict[str, Any]


def claim_tree(name: str = "c", size: str = "1Gi", *, meta: Tree | None = None, **spec: Any) -> Tree:
    fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": metadata(name, **(meta or {})), "spec": fields, "status": {"phase": "Pending"}}


def claim(name: str = "c", size: str = "1Gi", **fields: Any) -> PersistentVolumeClaim:
    return view(claim_tree(name, size, **fields), PersistentVolumeClaim)


def volume_tree(
    name: str = "v", size: str = "1Gi", *, phase: str = "Available", meta: Tree | None = None, **spec: Any
) -> Tree:
    fields = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "hostPath": {"path": f"/tmp/{name}"},
        **spec,
    }
    return {
        "metadata": metadata(name, "", **(meta or {})),
        "spec": fields,
        "status": {"phase": phase},
    }


def volume(name: str = "v", size: str = "1Gi", **fields: Any) -> PersistentVolume:
    return view(volume_tree(name, size, **fields), PersistentVolume)


def reference(name: str = "c", uid: str | None = None) -> Tree:
    return {
        "kind": "PersistentVolumeClaim", "namespace": "n", "name": name,
        **({"uid": f"uid-{name}"} if uid is None else {"uid": uid} if uid else {}),
    }  # fmt: skip


def storage_class(name: str = "s", mode: str = "Immediate", **fields: Any) -> StorageClass:
    tree = {
        "metadata": metadata(name, "", annotations=fields.pop("annotations", {})),
        "provisioner": "p.example.com", "volumeBindingMode": mode, **fields,
    }  # fmt: skip
    return view(tree, StorageClass)
