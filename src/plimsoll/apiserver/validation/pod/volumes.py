"""Validation of pod volumes and of their mounts in containers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.names import byte_length, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.file_paths import (
    is_local_non_reserved_path,
    validate_local_descending_path,
)
from plimsoll.apiserver.validation.name_formats import validate_label
from plimsoll.apiserver.validation.pod.projections import validate_projection
from plimsoll.apiserver.validation.pod.volume_sources import SOURCE_VALIDATORS

_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")
_ISCSI_NAME_MAX = 64


def validate_volumes(
    spec: View, pod_name: str, path: FieldPath, *, allow_nonlocal_token_path: bool
) -> tuple[Mapping[str, View], list[FieldError]]:
    """Return the valid volumes by name, and the errors of the others."""
    generated = {f"{pod_name}-{volume.name}" for volume in spec.volumes if volume.ephemeral is not None}
    known: dict[str, View] = {}
    errors: list[FieldError] = []
    for index, volume in enumerate(spec.volumes):
        at = path.index(index)
        found = [
            *_validate_source(volume, pod_name, at, allow_nonlocal_token_path),
            *_validate_name(volume.name, known, at.child("name")),
        ]
        if not found:
            known[volume.name] = volume
        claim = volume.persistent_volume_claim
        if claim is not None and pod_name and claim.claim_name in generated:
            detail = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(invalid(at.child("persistentVolumeClaim", "claimName"), claim.claim_name, detail))
        errors += found
    return known, errors


def _validate_name(name: str, known: Mapping[str, View], path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path)
    else:
        yield from validate_label(name, path)
    if name in known:
        yield duplicate(path, name)


def _validate_source(
    volume: View, pod_name: str, path: FieldPath, allow_nonlocal_token_path: bool
) -> FieldErrors:
    first = ""
    for field, (inside, second, validate) in SOURCE_VALIDATORS.items():
        source = getattr(volume, field)
        if source is None:
            continue
        if first:
            yield forbidden(path.child(second), "may not specify more than 1 volume type")
            continue
        first = field
        yield from validate(source, path.child(inside))
        if field == "projected":
            yield from validate_projection(
                source, path.child(inside), allow_nonlocal_token_path=allow_nonlocal_token_path
            )
        elif field == "ephemeral" and pod_name and volume.name:
            for message in dns_subdomain(f"{pod_name}-{volume.name}"):
                yield invalid(path.child("name"), volume.name, f"PVC name: {message}")
    iscsi = volume.iscsi
    if iscsi is not None and iscsi.initiator_name is not None:
        length = byte_length(volume.name) + 1 + byte_length(iscsi.target_portal)
        if length > _ISCSI_NAME_MAX:
            detail = "volume name and iscsi.targetPortal must be under 64 characters with an initiator name"
            yield invalid(path.child("name"), volume.name, detail)
    if not first:
        yield required(path, "must specify a volume type")


def has_nonlocal_token_path(spec: View) -> bool:
    """Report whether a service account token is projected to a path that is no longer permitted."""
    return any(
        source.service_account_token is not None
        and not is_local_non_reserved_path(source.service_account_token.path)
        for volume in spec.volumes
        if volume.projected is not None
        for source in volume.projected.sources
    )


# -- mounts


def validate_mounts(container: View, volumes: Mapping[str, View], path: FieldPath) -> FieldErrors:
    mounts, devices = container.volume_mounts, container.volume_devices
    yield from _validate_mounts(container, mounts, devices, volumes, path.child("volumeMounts"))
    yield from _validate_devices(devices, mounts, volumes, path.child("volumeDevices"))


def _validate_mounts(
    container: View,
    mounts: Sequence[View],
    devices: Sequence[View],
    volumes: Mapping[str, View],
    path: FieldPath,
) -> FieldErrors:
    """Validate volume mounts; some field paths have no index, as in Kubernetes 1.36."""
    device_paths = {device.name: device.device_path for device in devices}
    taken_by_devices = frozenset(device_paths.values())
    taken: set[str] = set()
    for index, mount in enumerate(mounts):
        name, target = path.index(index).child("name"), path.index(index).child("mountPath")
        if not mount.name:
            yield required(name)
        if mount.name not in volumes:
            yield not_found(name, mount.name, "must be the name of a volume of the pod")
        if not mount.mount_path:
            yield required(target)
        if mount.mount_path in taken:
            yield invalid(target, mount.mount_path, "must be unique")
        taken.add(mount.mount_path)
        if mount.name in device_paths:
            yield invalid(name, mount.name, "must not already exist in volumeDevices")
        if mount.mount_path in taken_by_devices:
            yield invalid(target, mount.mount_path, "must not already exist as a path in volumeDevices")
        if mount.sub_path:
            yield from validate_local_descending_path(mount.sub_path, path.child("subPath"))
        if mount.sub_path_expr:
            if mount.sub_path:
                detail = "subPathExpr and subPath are mutually exclusive"
                yield invalid(path.index(index).child("subPathExpr"), mount.sub_path_expr, detail)
            yield from validate_local_descending_path(mount.sub_path_expr, path.child("subPathExpr"))
        yield from _validate_propagation(mount, container, path.child("mountPropagation"))
        yield from _validate_recursion(mount, path.child("recursiveReadOnly"))


def _validate_propagation(mount: View, container: View, path: FieldPath) -> FieldErrors:
    mode = mount.mount_propagation
    if mode is None:
        return
    if mode not in _PROPAGATIONS:
        yield not_supported(path, mode, _PROPAGATIONS)
    security = container.security_context
    if mode == "Bidirectional" and (security is None or not security.privileged):
        detail = "Bidirectional mount propagation is available only to privileged containers"
        yield forbidden(path, detail)


def _validate_recursion(mount: View, path: FieldPath) -> FieldErrors:
    mode = mount.recursive_read_only
    if mode is None or mode == "Disabled":
        return
    if mode not in _RECURSIVE:
        yield not_supported(path, mode, _RECURSIVE)
        return
    if not mount.read_only:
        yield forbidden(path, "may only be specified when readOnly is true")
    if mount.mount_propagation not in (None, "None"):
        detail = "may only be specified when mountPropagation is None or not specified"
        yield forbidden(path, detail)


def _validate_devices(
    devices: Sequence[View],
    mounts: Sequence[View],
    volumes: Mapping[str, View],
    path: FieldPath,
) -> FieldErrors:
    mount_paths = {mount.name: mount.mount_path for mount in mounts}
    taken_by_mounts = frozenset(mount_paths.values())
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        name, target = path.index(index).child("name"), path.index(index).child("devicePath")
        volume = volumes.get(device.name)
        if not device.name:
            yield required(name)
        if device.name in names:
            yield invalid(name, device.name, "must be unique")
        if volume is None:
            yield not_found(name, device.name, "must be the name of a volume of the pod")
        elif volume.persistent_volume_claim is None and volume.ephemeral is None:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(name, device.name, detail)
        if not device.device_path:
            yield required(target)
        if device.device_path in paths:
            yield invalid(target, device.device_path, "must be unique")
        if ".." in device.device_path.split("/"):
            yield invalid(target, device.device_path, "can not contain backsteps ('..')")
        else:
            paths.add(device.device_path)
        if device.name in mount_paths:
            yield invalid(name, device.name, "must not already exist in volumeMounts")
        if device.device_path in taken_by_mounts:
            yield invalid(target, device.device_path, "must not already exist as a path in volumeMounts")
        if device.name:
            names.add(device.name)
