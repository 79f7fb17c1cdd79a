"""Security contexts of pods and containers.

DIFF: privileged containers are allowed; upstream refuses them unless its server was started with
--allow-privileged, as clusters do (test_privileged_containers_are_allowed).
"""

from __future__ import annotations

from plimsoll.api.names import byte_length
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.apiserver.validation.file_paths import check_descending
from plimsoll.apiserver.validation.name_formats import sysctl_name
from plimsoll.apiserver.validation.pod.pod_view import ContainerSecurity, PodSecurity, Profile, WholePodSpec
from plimsoll.apiserver.validation.pod.windows import check_windows_options

_ID_RULE = "must be between 0 and 2147483647, inclusive"
_ID_MAX = 2**31 - 1
_PROFILE_TYPES = ("Localhost", "RuntimeDefault", "Unconfined")
_PATH_MAX = 4095
_PROC_MOUNTS = ("Default", "Unmasked")
_GROUP_POLICIES = ("Merge", "Strict")
_CHANGE_POLICIES = ("Always", "OnRootMismatch")
_SE_LINUX_POLICIES = ("MountOption", "Recursive")

#: Kernel parameters for talking between processes, beside those of `fs.mqueue.`.
_IPC_SYSCTLS = frozenset(
    f"kernel.{name}"
    for name in (
        *("msg", "msgmax", "msgmnb", "msgmni", "sem"),
        *("shm", "shm_rmid_forced", "shmall", "shmmax", "shmmni"),
    )
)


def _check_id(value: int | None, path: Path) -> Problems:
    if value is not None and not 0 <= value <= _ID_MAX:
        yield invalid(path, value, _ID_RULE)


def check_pod_security(
    spec: WholePodSpec, path: Path, *, any_sysctls: bool, any_se_linux_policy: bool
) -> Problems:
    """The security context of a pod; the switches are for what a stored pod already has."""
    context = spec.security_context or PodSecurity()
    yield from _check_id(context.fs_group, path.child("fsGroup"))
    yield from _check_id(context.run_as_user, path.child("runAsUser"))
    yield from _check_id(context.run_as_group, path.child("runAsGroup"))
    for place, group in enumerate(context.supplemental_groups or ()):
        yield from _check_id(group, path.child("supplementalGroups").index(place))
    if spec.share_process_namespace and spec.host_pid:
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(path.child("shareProcessNamespace"), True, detail)
    yield from _check_sysctls(spec, context, path.child("sysctls"), any_sysctls)
    for name, value, allowed in (
        ("fsGroupChangePolicy", context.fs_group_change_policy, _CHANGE_POLICIES),
        ("supplementalGroupsPolicy", context.supplemental_groups_policy, _GROUP_POLICIES),
        (
            "seLinuxChangePolicy",
            context.se_linux_change_policy,
            _SE_LINUX_POLICIES if any_se_linux_policy else ("Recursive",),
        ),
    ):
        if value is not None and value not in allowed:
            yield not_supported(path.child(name), value, allowed)
    yield from check_seccomp(context.seccomp_profile, path.child("seccompProfile"))
    yield from check_windows_options(context.windows_options, path.child("windowsOptions"))
    yield from check_app_armor(context.app_armor_profile, path.child("appArmorProfile"))


def _check_sysctls(spec: WholePodSpec, context: PodSecurity, path: Path, any_namespace: bool) -> Problems:
    seen: set[str] = set()
    for place, sysctl in enumerate(context.sysctls):
        at = path.index(place).child("name")
        if not sysctl.name:
            yield required(at)
        elif sysctl_name(sysctl.name):
            yield invalid(at, sysctl.name, sysctl_name(sysctl.name)[0])
        elif sysctl.name in seen:
            yield duplicate(at, sysctl.name)
        if not any_namespace:
            shared = shared_namespace(sysctl.name, spec)
            if shared:
                yield invalid(at, sysctl.name, f"may not be specified when '{shared}' is true")
        seen.add(sysctl.name)


def shared_namespace(sysctl: str, spec: WholePodSpec) -> str:
    """The field by which the pod shares the namespace that a kernel parameter belongs to with its node."""
    name = _dotted(sysctl).partition("*")[0]
    if spec.host_network and name.startswith("net."):
        return "hostNetwork"
    ipc = name in _IPC_SYSCTLS or name.startswith("fs.mqueue.")
    return "hostIPC" if spec.host_ipc and ipc else ""


def _dotted(sysctl: str) -> str:
    """Where the first separator is a slash, slashes separate and dots are part of names."""
    first = next((letter for letter in sysctl if letter in "./"), ".")
    return sysctl if first == "." else sysctl.translate(str.maketrans("./", "/."))


def check_container_security(context: ContainerSecurity | None, path: Path, *, host_users: bool) -> Problems:
    if context is None:
        return
    yield from _check_id(context.run_as_user, path.child("runAsUser"))
    yield from _check_id(context.run_as_group, path.child("runAsGroup"))
    if context.proc_mount is not None:
        if context.proc_mount not in _PROC_MOUNTS:
            yield not_supported(path.child("procMount"), context.proc_mount, _PROC_MOUNTS)
        if host_users and context.proc_mount == "Unmasked":
            detail = "`hostUsers` must be false to use `Unmasked`"
            yield invalid(path.child("procMount"), context.proc_mount, detail)
    yield from check_seccomp(context.seccomp_profile, path.child("seccompProfile"))
    if context.allow_privilege_escalation is False:
        if context.privileged:
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(path, None, detail)
        added = () if context.capabilities is None else context.capabilities.add
        for _ in range(added.count("CAP_SYS_ADMIN")):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            yield invalid(path, None, detail)
    yield from check_windows_options(context.windows_options, path.child("windowsOptions"))
    yield from check_app_armor(context.app_armor_profile, path.child("appArmorProfile"))


# -- profiles


def check_seccomp(profile: Profile | None, path: Path) -> Problems:
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
            yield from check_descending(profile.localhost_profile, local)
    elif profile.localhost_profile is not None:
        detail = "can only be set when seccomp type is Localhost"
        yield invalid(local, profile.localhost_profile, detail)


def check_app_armor(profile: Profile | None, path: Path) -> Problems:
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


def check_host_users(
    spec: WholePodSpec, path: Path, *, with_devices: bool, with_host_network: bool
) -> Problems:
    """A pod in a user namespace of its own has little to share with its node."""
    if spec.host_users is not False:
        return
    detail = "when `hostUsers` is false"
    if spec.host_network and not with_host_network:
        yield forbidden(path.child("hostNetwork"), detail)
    if spec.host_pid:
        yield forbidden(path.child("HostPID"), detail)
    if spec.host_ipc:
        yield forbidden(path.child("HostIPC"), detail)
    if with_devices:
        return
    for group, containers in (
        ("initContainers", spec.init_containers),
        ("containers", spec.containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    ):
        for place, container in enumerate(containers):
            if container.volume_devices:
                yield forbidden(path.child(group).index(place).child("volumeDevices"), detail)
