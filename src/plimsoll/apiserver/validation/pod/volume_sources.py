"""Validation of volume sources, one function for each source, in a table.

Field names in error paths are those of Kubernetes 1.36, including the odd ones (`persistentDisk`,
`downwarAPI`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plimsoll.api.names import byte_length, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View, attribute_name
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.file_paths import (
    validate_local_descending_path,
    validate_local_non_reserved_path,
    validate_path_no_backsteps,
)
from plimsoll.apiserver.validation.name_formats import validate_driver, validate_format, validate_label
from plimsoll.apiserver.validation.pod.downward_api import validate_object_field, validate_resource_field
from plimsoll.apiserver.validation.pod.volume_claims import validate_claim_template

_MODE_RULE = "must be a number between 0 and 0777 (octal), both inclusive"
_PARTITION_RULE = "must be between 1 and 255, inclusive"
_LUN_RULE = "must be between 0 and 255, inclusive"
_HOST_PATHS = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_CACHING_MODES = ("None", "ReadOnly", "ReadWrite")
_DISK_KINDS = ("Dedicated", "Managed", "Shared")
_QUALIFIED_NAMES = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+$"),
    "eui": re.compile(r"^eui.[A-Za-z0-9]{16}$"),
    "naa": re.compile(r"^naa.[A-Za-z0-9]{32}$"),
}
_VOLUME_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)


def validate_mode(mode: int | None, path: FieldPath) -> FieldErrors:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, _MODE_RULE)


def validate_key_to_path(item: View, path: FieldPath) -> FieldErrors:
    if not item.key:
        yield required(path.child("key"))
    if not item.path:
        yield required(path.child("path"))
    yield from validate_local_non_reserved_path(item.path, path.child("path"))
    yield from validate_mode(item.mode, path.child("mode"))


def validate_downward_file(file: View, path: FieldPath) -> FieldErrors:
    """Validate a file of a downward API volume; its field path has no index."""
    if not file.path:
        yield required(path.child("path"))
    yield from validate_local_non_reserved_path(file.path, path.child("path"))
    if file.field_ref is not None:
        yield from validate_object_field(file.field_ref, _VOLUME_FIELDS, path.child("fieldRef"))
        if file.resource_field_ref is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            yield invalid(path, "resource", detail)
    elif file.resource_field_ref is not None:
        at = path.child("resourceFieldRef")
        yield from validate_resource_field(file.resource_field_ref, at, of_volume=True)
    else:
        yield required(path, "one of fieldRef and resourceFieldRef is required")
    yield from validate_mode(file.mode, path.child("mode"))


def validate_pull_policy(policy: str, path: FieldPath) -> FieldErrors:
    if not policy:
        yield required(path)
    elif policy not in _PULL_POLICIES:
        yield not_supported(path, policy, _PULL_POLICIES)


# -- one function for each source


def _validate_empty_dir(source: View, path: FieldPath) -> FieldErrors:
    if source.size_limit is not None and source.size_limit.sign() < 0:
        yield forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")


def _validate_host_path(source: View, path: FieldPath) -> FieldErrors:
    if not source.path:
        yield required(path.child("path"))
        return
    yield from validate_path_no_backsteps(source.path, path.child("path"))
    if source.type is not None and source.type not in _HOST_PATHS:
        yield not_supported(path.child("type"), source.type, _HOST_PATHS)


def _validate_git_repo(source: View, path: FieldPath) -> FieldErrors:
    if not source.repository:
        yield required(path.child("repository"))
    yield from validate_local_descending_path(source.directory, path.child("directory"))


def _validate_files(source: Any, path: FieldPath) -> FieldErrors:
    """Validate the items of a Secret or ConfigMap volume."""
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    for index, item in enumerate(source.items):
        yield from validate_key_to_path(item, path.child("items").index(index))


def _validate_secret(source: Any, path: FieldPath) -> FieldErrors:
    if not source.secret_name:
        yield required(path.child("secretName"))
    yield from _validate_files(source, path)


def _validate_config_map(source: Any, path: FieldPath) -> FieldErrors:
    if not source.name:
        yield required(path.child("name"))
    yield from _validate_files(source, path)


def _validate_downward(source: View, path: FieldPath) -> FieldErrors:
    yield from validate_mode(source.default_mode, path.child("defaultMode"))
    for file in source.items:
        yield from validate_downward_file(file, path)


def _validate_nfs(source: View, path: FieldPath) -> FieldErrors:
    yield from _need(source, path, ("server", "path"))
    if not source.path.startswith("/"):
        yield invalid(path.child("path"), source.path, "must be an absolute path")


def _need(source: Any, path: FieldPath, names: Sequence[str]) -> FieldErrors:
    for name in names:
        if not getattr(source, attribute_name(name)):
            yield required(path.child(name))


def _needs(*names: str) -> Callable[[Any, FieldPath], FieldErrors]:
    """Return the validation of a source with required fields only."""
    return lambda source, path: _need(source, path, names)


def _validate_cloud_disk(name: str) -> Callable[[Any, FieldPath], FieldErrors]:
    def validate(source: Any, path: FieldPath) -> FieldErrors:
        yield from _need(source, path, (name,))
        if not 0 <= source.partition <= 255:
            yield invalid(path.child("partition"), source.partition, _PARTITION_RULE)

    return validate


def _validate_cinder(source: Any, path: FieldPath) -> FieldErrors:
    yield from _need(source, path, ("volumeID",))
    yield from _validate_secret_ref(source, path)


def _validate_secret_ref(source: Any, path: FieldPath) -> FieldErrors:
    if source.secret_ref is not None and not source.secret_ref.name:
        yield required(path.child("secretRef", "name"))


def _validate_iscsi(source: View, path: FieldPath) -> FieldErrors:
    if not source.target_portal:
        yield required(path.child("targetPortal"))
    if not source.iqn:
        yield required(path.child("iqn"))
    else:
        yield from _validate_qualified_name(source.iqn, path.child("iqn"))
    if not 0 <= source.lun <= 255:
        yield invalid(path.child("lun"), source.lun, _LUN_RULE)
    if (source.chap_auth_discovery or source.chap_auth_session) and source.secret_ref is None:
        yield required(path.child("secretRef"))
    if source.initiator_name is not None:
        yield from _validate_qualified_name(source.initiator_name, path.child("initiatorname"))


def _validate_qualified_name(name: str, path: FieldPath) -> FieldErrors:
    pattern = _QUALIFIED_NAMES.get(name[:3])
    if pattern is None:
        yield invalid(path, name, "must be valid format starting with iqn, eui, or naa")
    elif not pattern.search(name[:4096]):
        yield invalid(path, name, "must be valid format")


def _validate_flocker(source: View, path: FieldPath) -> FieldErrors:
    if not source.dataset_name and not source.dataset_uuid:
        yield required(path, "one of datasetName and datasetUUID is required")
    if source.dataset_name and source.dataset_uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        yield invalid(path, "resource", detail)
    if "/" in source.dataset_name:
        yield invalid(path.child("datasetName"), source.dataset_name, "must not contain '/'")


def _validate_quobyte(source: View, path: FieldPath) -> FieldErrors:
    detail = "must be a host:port pair or multiple pairs separated by commas"
    if not source.registry:
        yield required(path.child("registry"), detail)
    elif byte_length(source.tenant) > 64:
        yield required(path.child("tenant"), "must be a UUID and may not exceed a length of 64 characters")
    else:
        for pair in source.registry.split(","):
            if not _is_host_and_port(pair):
                yield invalid(path.child("registry"), source.registry, detail)
    if not source.volume:
        yield required(path.child("volume"))


def _is_host_and_port(pair: str) -> bool:
    host, colon, port = pair.rpartition(":")
    if not colon or any(letter in port for letter in "[]"):
        return False
    if host.startswith("["):
        return host.endswith("]") and not any(letter in host[1:-1] for letter in "[]")
    return not any(letter in host for letter in ":[]")


def _validate_fibre_channel(source: View, path: FieldPath) -> FieldErrors:
    names = path.child("targetWWNs")
    if not source.target_wwns and not source.wwids:
        yield required(names, "must specify either targetWWNs or wwids, but not both")
    if source.target_wwns and source.wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        yield invalid(names, ", ".join(source.target_wwns), detail)
    if source.target_wwns:
        if source.lun is None:
            yield required(path.child("lun"), "lun is required if targetWWNs is specified")
        elif not 0 <= source.lun <= 255:
            yield invalid(path.child("lun"), source.lun, _LUN_RULE)


def _validate_flex(source: View, path: FieldPath) -> FieldErrors:
    if not source.driver:
        yield required(path.child("driver"))
    for name in source.options:
        domain = "." + name.partition("/")[0].lower()
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            detail = "kubernetes.io and k8s.io namespaces are reserved"
            yield invalid(path.child("options").key(name), name, detail)


def _validate_azure_disk(source: View, path: FieldPath) -> FieldErrors:
    yield from _need(source, path, ("diskName", "diskURI"))
    if source.caching_mode is not None and source.caching_mode not in _CACHING_MODES:
        yield not_supported(path.child("cachingMode"), source.caching_mode, _CACHING_MODES)
    if source.kind is None:
        return
    if source.kind not in _DISK_KINDS:
        yield not_supported(path.child("kind"), source.kind, _DISK_KINDS)
    start = "/subscriptions/" if source.kind == "Managed" else "https://"
    if not source.disk_uri.startswith(start):
        yield not_supported(path.child("diskURI"), source.disk_uri, (f"{start}...",))


def _validate_storage_os(source: View, path: FieldPath) -> FieldErrors:
    if not source.volume_name:
        yield required(path.child("volumeName"))
    else:
        yield from validate_label(source.volume_name, path.child("volumeName"))
    if source.volume_namespace:
        yield from validate_label(source.volume_namespace, path.child("volumeNamespace"))
    yield from _validate_secret_ref(source, path)


def _validate_csi(source: View, path: FieldPath) -> FieldErrors:
    yield from validate_driver(source.driver, path.child("driver"))
    secret = source.node_publish_secret_ref
    if secret is not None:
        if not secret.name:
            yield required(path.child("nodePublishSecretRef", "name"))
        else:
            yield from validate_format(secret.name, path.child("name"), dns_subdomain)


def _validate_ephemeral(source: View, path: FieldPath) -> FieldErrors:
    if source.volume_claim_template is None:
        yield required(path.child("volumeClaimTemplate"))
    else:
        yield from validate_claim_template(source.volume_claim_template, path.child("volumeClaimTemplate"))


def _validate_image(source: View, path: FieldPath) -> FieldErrors:
    if not source.reference:
        yield required(path.child("reference"))
    yield from validate_pull_policy(source.pull_policy, path.child("pullPolicy"))


#: Field of the view -> the names in paths (of errors inside, of a second source) and the validator, in the
#: order of validation. Projected volumes have their own module.
SOURCE_VALIDATORS: Mapping[str, tuple[str, str, Callable[[Any, FieldPath], FieldErrors]]] = {
    "empty_dir": ("emptyDir", "emptyDir", _validate_empty_dir),
    "host_path": ("hostPath", "hostPath", _validate_host_path),
    "git_repo": ("gitRepo", "gitRepo", _validate_git_repo),
    "gce_persistent_disk": ("persistentDisk", "gcePersistentDisk", _validate_cloud_disk("pdName")),
    "aws_elastic_block_store": (
        "awsElasticBlockStore",
        "awsElasticBlockStore",
        _validate_cloud_disk("volumeID"),
    ),
    "secret": ("secret", "secret", _validate_secret),
    "nfs": ("nfs", "nfs", _validate_nfs),
    "iscsi": ("iscsi", "iscsi", _validate_iscsi),
    "glusterfs": ("glusterfs", "glusterfs", _needs("endpoints", "path")),
    "flocker": ("flocker", "flocker", _validate_flocker),
    "persistent_volume_claim": ("persistentVolumeClaim", "persistentVolumeClaim", _needs("claimName")),
    "rbd": ("rbd", "rbd", _needs("monitors", "image")),
    "cinder": ("cinder", "cinder", _validate_cinder),
    "cephfs": ("cephfs", "cephFS", _needs("monitors")),
    "quobyte": ("quobyte", "quobyte", _validate_quobyte),
    "downward_api": ("downwardAPI", "downwarAPI", _validate_downward),
    "fc": ("fc", "fc", _validate_fibre_channel),
    "flex_volume": ("flexVolume", "flexVolume", _validate_flex),
    "config_map": ("configMap", "configMap", _validate_config_map),
    "azure_file": ("azureFile", "azureFile", _needs("secretName", "shareName")),
    "vsphere_volume": ("vsphereVolume", "vsphereVolume", _needs("volumePath")),
    "photon_persistent_disk": ("photonPersistentDisk", "photonPersistentDisk", _needs("pdID")),
    "portworx_volume": ("portworxVolume", "portworxVolume", _needs("volumeID")),
    "azure_disk": ("azureDisk", "azureDisk", _validate_azure_disk),
    "storageos": ("storageos", "storageos", _validate_storage_os),
    "projected": ("projected", "projected", lambda source, path: iter(())),
    "scale_io": ("scaleIO", "scaleIO", _needs("gateway", "system", "volumeName")),
    "csi": ("csi", "csi", _validate_csi),
    "ephemeral": ("ephemeral", "ephemeral", _validate_ephemeral),
    "image": ("image", "image", _validate_image),
}
