"""Validation of Windows pods, and of fields that are specific to one operating system."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
from plimsoll.apiserver.validation.name_formats import validate_format

_CREDENTIALS_MAX = 64 * 1024
_DOMAIN_MAX = 256
_USER_MAX = 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NET_BIOS = re.compile(r"[^\\/:*?\"<>|.][^\\/:*?\"<>|]{0,14}")
_DNS_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_BAD_LETTERS = re.compile(r"[\"/\\:;|=,+*?<>@\[\]]")
_DOTS = re.compile(r"[. ]+")
_SYSTEMS = ("linux", "windows")
_NOT_ON_WINDOWS = "cannot be set for a windows pod"

#: Linux-only fields of a security context.
_POD_FIELDS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_FIELDS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def containers_with_paths(spec: View, path: FieldPath) -> Iterator[tuple[View, FieldPath]]:
    for group, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            yield container, path.child(group).index(index)


def validate_os(spec: View, path: FieldPath) -> FieldErrors:
    """Validate the OS of a pod, and that no field belongs to another OS."""
    if spec.os is None:
        return
    if not spec.os.name:
        yield required(path.child("os", "name"))
    elif spec.os.name == "linux":
        yield from _validate_linux(spec, path)
    elif spec.os.name == "windows":
        yield from _validate_windows(spec, path)
    else:
        yield not_supported(path.child("os"), spec.os.name, _SYSTEMS)


def _validate_linux(spec: View, path: FieldPath) -> FieldErrors:
    detail = "windows options cannot be set for a linux pod"
    context = spec.security_context
    if context is not None and context.windows_options is not None:
        yield forbidden(path.child("securityContext", "windowsOptions"), detail)
    for container, at in containers_with_paths(spec, path):
        inner = container.security_context
        if inner is not None and inner.windows_options is not None:
            yield forbidden(at.child("securityContext", "windowsOptions"), detail)


def _validate_windows(spec: View, path: FieldPath) -> FieldErrors:
    for name, is_set in (
        ("hostUsers", spec.host_users is not None),
        ("hostPID", spec.host_pid),
        ("hostIPC", spec.host_ipc),
        ("shareProcessNamespace", spec.share_process_namespace is not None),
    ):
        if is_set:
            yield forbidden(path.child(name), _NOT_ON_WINDOWS)
    context = spec.security_context
    if context is not None:
        for name in _POD_FIELDS:
            if getattr(context, attribute_name(name)) is not None:
                yield forbidden(path.child("securityContext", name), _NOT_ON_WINDOWS)
        if context.sysctls:
            yield forbidden(path.child("securityContext", "sysctls"), _NOT_ON_WINDOWS)
    for container, at in containers_with_paths(spec, path):
        if container.security_context is not None:
            for name in _CONTAINER_FIELDS:
                if getattr(container.security_context, attribute_name(name)) is not None:
                    yield forbidden(at.child("securityContext", name), _NOT_ON_WINDOWS)


def validate_host_process(spec: View, path: FieldPath) -> FieldErrors:
    """Validate HostProcess containers: all or none, and on the host network."""
    context = spec.security_context
    options = None if context is None else context.windows_options
    of_pod = None if options is None else options.host_process
    hosted, count = 0, 0
    for container, at in containers_with_paths(spec, path):
        count += 1
        inner = container.security_context
        own = None
        if inner is not None and inner.windows_options is not None:
            own = inner.windows_options.host_process
        if of_pod is not None and own is not None and of_pod != own:
            detail = "pod hostProcess value must be identical if both are specified"
            yield invalid(at.child("securityContext", "windowsOptions", "hostProcess"), own, detail)
        hosted += bool(of_pod if own is None else own)
    if hosted:
        if hosted != count:
            detail = "if one container is a hostProcess container all must be"
            yield invalid(path, "", detail)
        if not spec.host_network:
            detail = "hostNetwork must be true if pod contains any hostProcess containers"
            yield invalid(path.child("hostNetwork"), False, detail)


def validate_windows_options(options: View | None, path: FieldPath) -> FieldErrors:
    if options is None:
        return
    if options.gmsa_credential_spec_name is not None:
        at = path.child("gmsaCredentialSpecName")
        yield from validate_format(options.gmsa_credential_spec_name, at, dns_subdomain)
    credentials = options.gmsa_credential_spec
    if credentials is not None and not 0 < byte_length(credentials) <= _CREDENTIALS_MAX:
        detail = "must not be empty, and under 64 KiB"
        yield invalid(path.child("gmsaCredentialSpec"), credentials, detail)
    if options.run_as_user_name is not None:
        at = path.child("runAsUserName")
        for message in _user_name(options.run_as_user_name):
            yield invalid(at, options.run_as_user_name, message)


def _user_name(name: str) -> Iterator[str]:
    """Yield the violations of a user name of the form `DOMAIN\\user` or `user`."""
    domain, backslash, user = name.rpartition("\\")
    if not name:
        yield "runAsUserName cannot be an empty string"
    elif _CONTROL.search(name):
        yield "runAsUserName cannot contain control characters"
    elif "\\" in domain:
        yield "runAsUserName cannot contain more than one backslash"
    else:
        if byte_length(domain) >= _DOMAIN_MAX:
            yield f"runAsUserName's Domain length must be under {_DOMAIN_MAX} characters"
        if backslash and not _NET_BIOS.fullmatch(domain) and not _DNS.fullmatch(domain):
            yield "runAsUserName's Domain doesn't match the NetBios nor the DNS format"
        if not user:
            yield "runAsUserName's User cannot be empty"
        elif byte_length(user) > _USER_MAX:
            yield f"runAsUserName's User length must not be longer than {_USER_MAX} characters"
        if _DOTS.fullmatch(user):
            yield "runAsUserName's User cannot contain only periods or spaces"
        if _BAD_LETTERS.search(user):
            yield "runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"
