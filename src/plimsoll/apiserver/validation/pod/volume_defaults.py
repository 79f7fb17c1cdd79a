"""Defaulting of volumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.coercion import wire_types
from plimsoll.apiserver.registry.schema_view import view_of
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.images import default_pull_policy
from plimsoll.apiserver.validation.quantities import round_resource_list

_MODE = 0o644
_HOUR = 3600

SOURCES = frozenset(wire_types(view_of("core.v1.Volume"))) - {"name"}

#: Source -> defaults of fields that are missing.
_IF_MISSING: Mapping[str, Mapping[str, Any]] = {
    "hostPath": {"type": ""},
    "secret": {"defaultMode": _MODE},
    "configMap": {"defaultMode": _MODE},
    "downwardAPI": {"defaultMode": _MODE},
    "projected": {"defaultMode": _MODE},
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "readOnly": False, "kind": "Shared"},
}

#: Source -> defaults of fields that are missing or empty.
_IF_EMPTY: Mapping[str, Mapping[str, str]] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def set_volume_defaults(volume: Tree) -> None:
    """Set the defaults of a volume; without a source it is an emptyDir."""
    kinds = SOURCES & volume.keys()
    if not kinds:
        volume["emptyDir"] = {}
    for kind in kinds:
        set_source_defaults(kind, volume[kind])
    if "image" in volume and not volume["image"].get("pullPolicy"):
        volume["image"]["pullPolicy"] = default_pull_policy(volume["image"].get("reference", ""))
    _set_files_defaults(subtree(volume, "downwardAPI"))
    for projection in subtree(volume, "projected").get("sources", ()):
        _set_files_defaults(subtree(projection, "downwardAPI"))
        if "serviceAccountToken" in projection:
            projection["serviceAccountToken"].setdefault("expirationSeconds", _HOUR)
    template = subtree(volume, "ephemeral").get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("metadata", {})
        set_claim_spec_defaults(template.setdefault("spec", {}))


def set_claim_spec_defaults(spec: Tree) -> None:
    """Set the defaults of a PersistentVolumeClaim spec."""
    spec.setdefault("volumeMode", "Filesystem")
    for name in ("limits", "requests"):
        round_resource_list(subtree(spec, "resources").get(name))


def set_source_defaults(kind: str, source: Tree) -> None:
    """Set the defaults of a volume source, in a pod or in a PersistentVolume."""
    for name, value in _IF_MISSING.get(kind, {}).items():
        source.setdefault(name, value)
    for name, value in _IF_EMPTY.get(kind, {}).items():
        if not source.get(name):
            source[name] = value


def _set_files_defaults(source: Tree) -> None:
    for file in source.get("items", ()):
        if "fieldRef" in file and not file["fieldRef"].get("apiVersion"):
            file["fieldRef"]["apiVersion"] = "v1"
        if "resourceFieldRef" in file:
            file["resourceFieldRef"].setdefault("divisor", "0")
