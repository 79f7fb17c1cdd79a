"""Security contexts of sandboxes and containers in the form of CRI, merged as by the kubelet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll.api.core import Container, Pod
from plimsoll.common.json_tree import branch, text
from plimsoll.errors import InputError
from plimsoll.node.pods.pod_actions import format_pod
from plimsoll.node.security.context import effective_fields
from plimsoll.node.security.policy import security_request
from plimsoll.protocols.messages import cri

#: What the kubelet hides in /proc and /sys, unless `procMount` is Unmasked.
MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
READ_ONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
#: Sysctls that affect the pod alone; the kubelet allows no others by default.
SAFE_SYSCTLS = frozenset(
    (
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_wmem",
    )
)
_MAX_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ImageUser:
    """User that an image specifies: a number, or a name; by default root."""

    uid: int | None = 0
    name: str = ""


def namespaces(pod: Pod, target: str = "") -> cri.NamespaceOption:
    """Return the namespaces of a pod's containers; `target` is the ID of one whose processes are shared."""
    spec = pod.spec
    pid = cri.NODE if spec.host_pid else cri.POD if spec.share_process_namespace else cri.CONTAINER
    return cri.NamespaceOption(
        network=cri.NODE if spec.host_network else cri.POD,
        pid=cri.TARGET if target else pid,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
        target_id=target,
    )


def sandbox_security(pod: Pod) -> cri.LinuxSandboxSecurityContext:
    """Return the security context of a pod's sandbox; raises InputError for what is not supported."""
    if pod.spec.host_users is False:
        raise InputError("spec.hostUsers: user namespaces are not supported; remove the field or set true")
    fields: Mapping[str, Any] = pod.spec.security_context or {}
    context = cri.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod),
        privileged=any(
            (container.security_context or {}).get("privileged") is True
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        # The sandbox always has the default profile, so that pods may have a stricter one.
        seccomp=cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault),
        selinux_options=_selinux(fields.get("seLinuxOptions")),
    )
    _set_ids(context, fields)
    _set_groups(context, fields)
    return context


def sysctls(pod: Pod) -> dict[str, str]:
    """Return the sysctls of a pod; raises InputError for one that affects the whole machine."""
    found = {}
    for sysctl in (pod.spec.security_context or {}).get("sysctls") or ():
        name = text(sysctl, "name").replace("/", ".")
        if name not in SAFE_SYSCTLS:
            raise InputError(f'forbidden sysctl: "{name}" not allowlisted')
        found[name] = text(sysctl, "value")
    return found


def container_security(
    pod: Pod, container: Container, user: ImageUser, seccomp_root: Path, target: str = ""
) -> cri.LinuxContainerSecurityContext:
    """Return the security context of a container; raises InputError if it must not start."""
    fields = {name: each.value for name, each in effective_fields(security_request(pod, container)).items()}
    _check_non_root(pod, container, fields, user)
    context = cri.LinuxContainerSecurityContext(
        capabilities=_capabilities(fields.get("capabilities")),
        privileged=fields.get("privileged") is True,
        namespace_options=namespaces(pod, target),
        selinux_options=_selinux(fields.get("seLinuxOptions")),
        readonly_rootfs=fields.get("readOnlyRootFilesystem") is True,
        no_new_privs=fields.get("allowPrivilegeEscalation") is False,
        seccomp=_seccomp(fields.get("seccompProfile"), seccomp_root),
        apparmor=_apparmor(fields.get("appArmorProfile")),
    )
    if fields.get("procMount") != "Unmasked":
        context.masked_paths.extend(MASKED_PATHS)
        context.readonly_paths.extend(READ_ONLY_PATHS)
    _set_ids(context, fields)
    if not context.HasField("run_as_user"):
        if user.uid is not None:
            context.run_as_user.value = user.uid
        context.run_as_username = user.name
    _set_groups(context, fields)
    return context


def _check_non_root(pod: Pod, container: Container, fields: Mapping[str, Any], user: ImageUser) -> None:
    if fields.get("runAsNonRoot") is not True:
        return
    where = f'(pod: "{format_pod(pod)}", container: {container.name})'
    if "runAsUser" in fields:
        if fields["runAsUser"] == 0:
            raise InputError(f"container's runAsUser breaks non-root policy {where}")
    elif user.uid is None:
        raise InputError(
            f"container has runAsNonRoot and image has non-numeric user ({user.name}), "
            f"cannot verify user is non-root {where}"
        )
    elif user.uid == 0:
        raise InputError(f"container has runAsNonRoot and image will run as root {where}")
    elif not 0 < user.uid <= _MAX_ID:
        raise InputError(f"container has runAsNonRoot and image has an invalid user id ({user.uid}). {where}")


def _set_ids(context: Any, fields: Mapping[str, Any]) -> None:
    for name, target in (("runAsUser", "run_as_user"), ("runAsGroup", "run_as_group")):
        if isinstance(fields.get(name), int):
            getattr(context, target).value = fields[name]


def _set_groups(context: Any, fields: Mapping[str, Any]) -> None:
    groups = [fields.get("fsGroup"), *(fields.get("supplementalGroups") or ())]
    context.supplemental_groups.extend(group for group in groups if isinstance(group, int))
    if fields.get("supplementalGroupsPolicy") == "Strict":
        context.supplemental_groups_policy = cri.Strict


def _capabilities(tree: Any) -> cri.Capability | None:
    if not isinstance(tree, Mapping):
        return None
    return cri.Capability(add_capabilities=tree.get("add") or (), drop_capabilities=tree.get("drop") or ())


def _selinux(tree: Any) -> cri.SELinuxOption | None:
    if not isinstance(tree, Mapping):
        return None
    return cri.SELinuxOption(**{name: text(tree, name) for name in ("user", "role", "type", "level")})


def _seccomp(profile: Any, root: Path) -> cri.SecurityProfile:
    kind = text(branch({"profile": profile}, "profile"), "type")
    if kind == "RuntimeDefault":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.RuntimeDefault)
    if kind != "Localhost":
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.Unconfined)
    name = text(profile, "localhostProfile")
    if not name or name.startswith("/") or ".." in Path(name).parts:
        raise InputError("localhostProfile must be a relative path if seccompProfile type is Localhost.")
    return cri.SecurityProfile(profile_type=cri.SecurityProfile.Localhost, localhost_ref=str(root / name))


def _apparmor(profile: Any) -> cri.SecurityProfile | None:
    if not isinstance(profile, Mapping):
        return None
    kinds = {"RuntimeDefault": cri.SecurityProfile.RuntimeDefault, "Localhost": cri.SecurityProfile.Localhost}
    kind = kinds.get(text(profile, "type"), cri.SecurityProfile.Unconfined)
    return cri.SecurityProfile(profile_type=kind, localhost_ref=text(profile, "localhostProfile"))
