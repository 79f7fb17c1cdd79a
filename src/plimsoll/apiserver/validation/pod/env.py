"""Validation of environment variables of containers."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.containers import EnvFromSource, EnvVar, FileKeySelector, KeySelector
from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid, not_found, required
from plimsoll.apiserver.validation.file_paths import validate_path_no_backsteps
from plimsoll.apiserver.validation.metadata import mask_trailing_dash
from plimsoll.apiserver.validation.name_formats import (
    data_key,
    validate_format,
    validate_label,
    variable_name,
)
from plimsoll.apiserver.validation.pod.downward_api import validate_object_field, validate_resource_field

_SOURCES = ("field_ref", "resource_field_ref", "config_map_key_ref", "secret_key_ref", "file_key_ref")
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)


def validate_environment(container: View, path: FieldPath) -> FieldErrors:
    for index, variable in enumerate(container.env):
        at = path.child("env").index(index)
        if not variable.name:
            yield required(at.child("name"))
        else:
            yield from validate_format(variable.name, at.child("name"), variable_name)
        yield from _validate_value(variable, at.child("valueFrom"))
    for index, source in enumerate(container.env_from):
        yield from _validate_source(source, path.child("envFrom"), path.child("envFrom").index(index))


def _validate_value(variable: EnvVar, path: FieldPath) -> FieldErrors:
    source = variable.value_from
    if source is None:
        return
    if source.field_ref is not None:
        yield from validate_object_field(source.field_ref, _FIELDS, path.child("fieldRef"))
    if source.resource_field_ref is not None:
        at = path.child("resourceFieldRef")
        yield from validate_resource_field(source.resource_field_ref, at, of_volume=False)
    if source.config_map_key_ref is not None:
        yield from _validate_key(source.config_map_key_ref, path.child("configMapKeyRef"))
    if source.secret_key_ref is not None:
        yield from _validate_key(source.secret_key_ref, path.child("secretKeyRef"))
    if source.file_key_ref is not None:
        yield from _validate_file_key(source.file_key_ref, path.child("fileKeyRef"))
    sources = sum(getattr(source, name) is not None for name in _SOURCES)
    if not sources:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` "
            "or `fileKeyRef`"
        )
        yield invalid(path, "", detail)
    elif variable.value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif sources > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _validate_key(selector: KeySelector, path: FieldPath) -> FieldErrors:
    yield from validate_format(selector.name, path.child("name"), dns_subdomain)
    if not selector.key:
        yield required(path.child("key"))
    else:
        yield from validate_format(selector.key, path.child("key"), data_key)


def _validate_file_key(selector: FileKeySelector, path: FieldPath) -> FieldErrors:
    if not selector.key:
        yield required(path.child("key"))
    else:
        yield from validate_format(selector.key, path.child("key"), variable_name)
    if not selector.volume_name:
        yield required(path.child("volumeName"))
    else:
        yield from validate_label(selector.volume_name, path.child("volumeName"))
    if not selector.path:
        yield required(path.child("path"))
    else:
        yield from validate_path_no_backsteps(selector.path, path.child("path"))


def _validate_source(source: EnvFromSource, path: FieldPath, item: FieldPath) -> FieldErrors:
    if source.prefix:
        yield from validate_format(source.prefix, item.child("prefix"), variable_name)
    for name, reference in (("configMapRef", source.config_map_ref), ("secretRef", source.secret_ref)):
        if reference is None:
            continue
        at = item.child(name, "name")
        if not reference.name:
            yield required(at)
        else:
            # Validated as a name prefix, as in Kubernetes 1.36.
            yield from validate_format(mask_trailing_dash(reference.name), at, dns_subdomain)
    if source.config_map_ref is None and source.secret_ref is None:
        yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
    elif source.config_map_ref is not None and source.secret_ref is not None:
        yield invalid(path, "", "may not have more than one field specified at a time")


def validate_env_file_volumes(spec: View, path: FieldPath) -> FieldErrors:
    """Validate that variables read from a file name an emptyDir volume of the pod."""
    volumes: Mapping[str, View] = {volume.name: volume for volume in spec.volumes}
    for group, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            for position, variable in enumerate(container.env):
                source = variable.value_from
                if source is None or source.file_key_ref is None:
                    continue
                name = source.file_key_ref.volume_name
                at = path.child(group).index(index).child("env").index(position)
                at = at.child("valueFrom", "fileKeyRef", "volumeName")
                if name not in volumes:
                    yield not_found(at, name, "must be the name of a volume of the pod")
                elif volumes[name].empty_dir is None:
                    yield invalid(at, name, "referenced volume must be of type emptyDir")
