"""Validation of security contexts of pods and containers.

DIFF: privileged containers are permitted; upstream rejects them unless its server runs with
--allow-privileged, as clusters do (test_privileged_containers_are_allowed).
"""

from __future__ import annotations

from plimsoll.api.names import byte_length
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.apiserver.validation.file_paths import validate_local_descending_path
from plimsoll.apiserver.validation.name_formats import sysctl_name
from plimsoll.apiserver.validation.pod.windows import validate_windows_options

_CONTEXT_VIEW = view_of("core.v1.PodSecurityContext")

_ID_RULE = "must be between 0 and 2147483647, inclusive"
_ID_MAX = 2**31 - 1
_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_PATH_MAX = 4095
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_POLICIES = ("Merge", "Strict")
_CHANGE_POLICIES = ("Always", "OnRootMismatch")
_SE_LINUX_POLICIES = ("MountOption", "Recursive")

#: Sysctls of the IPC namespace, in addition to those of `fs.mqueue.`.
_IPC_SYSCTLS = frozenset(
    f"kernel.{name}"
    for name in (
        *("msg", "msgmax", "msgmnb", "msgmni", "sem"),
        *("shm", "shm_rmid_forced", "shmall", "shmmax", "shmmni"),
    )
)


def _validate_id(value: int | None, path: FieldPath) -> FieldErrors:
    if value is not None and not 0 <= value <= _ID_MAX:
        yield invalid(path, value, _ID_RULE)


def validate_pod_security(
    spec: View, path: FieldPath, *, allow_host_sysctls: bool, allow_se_linux_change_policy: bool
) -> FieldErrors:
    """Validate the security context of a pod; the flags permit what a stored pod already has."""
    context = spec.security_context or _CONTEXT_VIEW()
    yield from _validate_id(context.fs_group, path.child("fsGroup"))
    yield from _validate_id(context.run_as_user, path.child("runAsUser"))
    yield from _validate_id(context.run_as_group, path.child("runAsGroup"))
    for index, group in enumerate(context.supplemental_groups or ()):
        yield from _validate_id(group, path.child("supplementalGroups").index(index))
    if spec.share_process_namespace and spec.host_pid:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(path.child("shareProcessNamespace"), True, detail)
    yield from _validate_sysctls(spec, context, path.child("sysctls"), allow_host_sysctls)
    for name, value, allowed in (
        ("fsGroupChangePolicy", context.fs_group_change_policy, _CHANGE_POLICIES),
        ("supplementalGroupsPolicy", context.supplemental_groups_policy, _GROUP_POLICIES),
        (
            "seLinuxChangePolicy",
            context.se_linux_change_policy,
            _SE_LINUX_POLICIES if allow_se_linux_change_policy else ("Recursive",),
        ),
    ):
        if value is not None and value not in allowed:
            yield not_supported(path.child(name), value, allowed)
    yield from validate_seccomp(context.seccomp_profile, path.child("seccompProfile"))
    yield from validate_windows_options(context.windows_options, path.child("windowsOptions"))
    yield from validate_app_armor(context.app_armor_profile, path.child("appArmorProfile"))


def _validate_sysctls(spec: View, context: View, path: FieldPath, allow_host_namespaces: bool) -> FieldErrors:
    seen: set[str] = set()
    for index, sysctl in enumerate(context.sysctls):
        at = path.index(index).child("name")
        if not sysctl.name:
            yield required(at)
        elif sysctl_name(sysctl.name):
            yield invalid(at, sysctl.name, sysctl_name(sysctl.name)[0])
        elif sysctl.name in seen:
            yield duplicate(at, sysctl.name)
        if not allow_host_namespaces:
            shared = host_namespace_field(sysctl.name, spec)
            if shared:
                yield invalid(at, sysctl.name, f"may not be specified when '{shared}' is true")
        seen.add(sysctl.name)


def host_namespace_field(sysctl: str, spec: View) -> str:
    """Return the field that shares the namespace of a sysctl with the host, if it is set."""
    name = _to_dot_notation(sysctl).partition("*")[0]
    if spec.host_network and name.startswith("net."):
        return "hostNetwork"
    ipc = name in _IPC_SYSCTLS or name.startswith("fs.mqueue.")
    return "hostIPC" if spec.host_ipc and ipc else ""


def _to_dot_notation(sysctl: str) -> str:
    """Convert a sysctl name in slash notation to dot notation (and dots inside names to slashes)."""
    first = next((letter for letter in sysctl if letter in "./"), ".")
    return sysctl if first == "." else sysctl.translate(str.maketrans("./", "/."))


def validate_container_security(context: View | None, path: FieldPath, *, host_users: bool) -> FieldErrors:
    if context is None:
        return
    yield from _validate_id(context.run_as_user, path.child("runAsUser"))
    yield from _validate_id(context.run_as_group, path.child("runAsGroup"))
    if context.proc_mount is not None:
        if context.proc_mount not in _PROC_MOUNTS:
            yield not_supported(path.child("procMount"), context.proc_mount, _PROC_MOUNTS)
        if host_users and context.proc_mount == "Unmasked":
            detail = "`hostUsers` must be false to use `Unmasked`"
            yield invalid(path.child("procMount"), context.proc_mount, detail)
    yield from validate_seccomp(context.seccomp_profile, path.child("seccompProfile"))
    if context.allow_privilege_escalation is False:
        if context.privileged:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(path, None, detail)
        added = () if context.capabilities is None else context.capabilities.add
        for _ in range(added.count("CAP_SYS_ADMIN")):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(path, None, detail)
    yield from validate_windows_options(context.windows_options, path.child("windowsOptions"))
    yield from validate_app_armor(context.app_armor_profile, path.child("appArmorProfile"))


# -- profiles


def validate_seccomp(profile: View | None, path: FieldPath) -> FieldErrors:
    if profile is None:
        return
    local = path.child("localhostProfile")
    if not profile.type:
        yield required(path.child("type"), "type is required when seccompProfile is set")
    elif profile.type not in _PROFILE_TYPES:
        yield not_supported(path.child("type"), profile.type, _PROFILE_TYPES)
    if profile.type == "Localhost":
        if profile.localhost_profile is None:
            yield required(local, "must be set when seccomp type is Localhost")
        else:
            yield from validate_local_descending_path(profile.localhost_profile, local)
    elif profile.localhost_profile is not None:
        detail = "can only be set when seccomp type is Localhost"
        yield invalid(local, profile.localhost_profile, detail)


def validate_app_armor(profile: View | None, path: FieldPath) -> FieldErrors:
    if profile is None:
        return
    local = path.child("localhostProfile")
    name = profile.localhost_profile
    if not profile.type:
        yield required(path.child("type"), "type is required when appArmorProfile is set")
    elif profile.type not in _PROFILE_TYPES:
        yield not_supported(path.child("type"), profile.type, _PROFILE_TYPES)
    elif profile.type != "Localhost":
        if name is not None:
            yield invalid(local, name, "can only be set when AppArmor type is Localhost")
    elif name is None:
        yield required(local, "must be set when AppArmor type is Localhost")
    else:
        if name != name.strip():
            yield invalid(local, name, "must not be padded with whitespace")
        elif not name:
            yield required(local, "must be set when AppArmor type is Localhost")
        if byte_length(name) > _PATH_MAX:
            yield too_long(local, _PATH_MAX)


def validate_host_users(
    spec: View, path: FieldPath, *, allow_devices: bool, allow_host_network: bool
) -> FieldErrors:
    """Validate a pod in its own user namespace, which must not use host namespaces or volume devices."""
    if spec.host_users is not False:
        return
    detail = "when `hostUsers` is false"
    if spec.host_network and not allow_host_network:
        yield forbidden(path.child("hostNetwork"), detail)
    if spec.host_pid:
        yield forbidden(path.child("HostPID"), detail)
    if spec.host_ipc:
        yield forbidden(path.child("HostIPC"), detail)
    if allow_devices:
        return
    for group, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for index, container in enumerate(containers):
            if container.volume_devices:
                yield forbidden(path.child(group).index(index).child("volumeDevices"), detail)
