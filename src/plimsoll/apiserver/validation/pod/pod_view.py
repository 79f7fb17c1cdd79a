"""Full view of pods, for validation.

Has the fields of a pod that only validation reads; the everyday view (`api.core.Pod`) omits them to stay
small.
"""

from __future__ import annotations

import msgspec

from plimsoll.api.core import (
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TopologySpreadConstraint,
    VolumeReference,
)
from plimsoll.api.meta import Int, Int32, Wire
from plimsoll.apiserver.validation.pod.volume_view import LocalObjectReference, Volume

# -- security


class SecurityProfile(Wire, frozen=True):
    """A seccomp or AppArmor profile."""

    type: str = ""
    localhost_profile: str | None = None


class WindowsSecurityContextOptions(Wire, frozen=True):
    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class Sysctl(Wire, frozen=True):
    name: str = ""
    value: str = ""


class SELinuxOptions(Wire, frozen=True):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class Capabilities(Wire, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class PodSecurityContext(Wire, frozen=True):
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[Int, ...] | None = None
    supplemental_groups_policy: str | None = None
    fs_group: Int | None = None
    fs_group_change_policy: str | None = None
    sysctls: tuple[Sysctl, ...] = ()
    seccomp_profile: SecurityProfile | None = None
    app_armor_profile: SecurityProfile | None = None
    se_linux_change_policy: str | None = None


class SecurityContext(Wire, frozen=True):
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SecurityProfile | None = None
    app_armor_profile: SecurityProfile | None = None


# -- containers


class VolumeMount(VolumeReference, frozen=True):
    read_only: bool = False
    recursive_read_only: str | None = None
    mount_path: str = ""
    sub_path: str = ""
    mount_propagation: str | None = None
    sub_path_expr: str = ""


class VolumeDevice(VolumeReference, frozen=True):
    device_path: str = ""


class FullContainerPort(ContainerPort, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0


class FullContainer(Container, frozen=True):
    ports: tuple[FullContainerPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: SecurityContext | None = None  # type: ignore[assignment]  # typed here, JSON there
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""  #: ephemeral containers only


# -- pod


class PodDNSConfigOption(Wire, frozen=True):
    name: str = ""
    value: str | None = None


class PodDNSConfig(Wire, frozen=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class HostAlias(Wire, frozen=True):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodOS(Wire, frozen=True):
    name: str = ""


class FullPodSpec(PodSpec, frozen=True):
    containers: tuple[FullContainer, ...] = ()
    init_containers: tuple[FullContainer, ...] = ()
    ephemeral_containers: tuple[FullContainer, ...] = ()
    resources: ResourceRequirements | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()  # type: ignore[assignment]  # typed here, JSON there
    active_deadline_seconds: Int | None = None
    dns_policy: str = ""
    dns_config: PodDNSConfig | None = None
    service_account_name: str = ""
    service_account: str = ""
    automount_service_account_token: bool | None = None
    security_context: PodSecurityContext | None = None  # type: ignore[assignment]  # typed here, JSON there
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool | None = msgspec.field(name="setHostnameAsFQDN", default=None)
    hostname_override: str | None = None
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    host_users: bool | None = None
    share_process_namespace: bool | None = None
    host_aliases: tuple[HostAlias, ...] = ()
    runtime_class_name: str | None = None
    enable_service_links: bool | None = None
    os: PodOS | None = None


# -- status


class ContainerStateRunning(Wire, frozen=True):
    started_at: str | None = None


class ContainerStateTerminated(Wire, frozen=True):
    exit_code: Int32 = 0
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(Wire, frozen=True):
    running: ContainerStateRunning | None = None
    terminated: ContainerStateTerminated | None = None


class ResourceHealth(Wire, frozen=True):
    resource_id: str = msgspec.field(name="resourceID", default="")
    health: str = ""
    message: str | None = None


class ResourceStatus(Wire, frozen=True):
    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class LinuxContainerUser(Wire, frozen=True):
    uid: Int = 0
    gid: Int = 0
    supplemental_groups: tuple[Int, ...] = ()


class ContainerUser(Wire, frozen=True):
    linux: LinuxContainerUser | None = None


class FullContainerStatus(ContainerStatus, frozen=True):
    state: ContainerState = ContainerState()  # type: ignore[assignment]  # typed here, JSON there
    last_state: ContainerState = ContainerState()  # type: ignore[assignment]
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    user: ContainerUser | None = None


class PodIP(Wire, frozen=True):
    ip: str = ""


class FullPodStatus(PodStatus, frozen=True):
    observed_generation: Int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    host_ips: tuple[PodIP, ...] = msgspec.field(name="hostIPs", default=())
    pod_ips: tuple[PodIP, ...] = msgspec.field(name="podIPs", default=())
    container_statuses: tuple[FullContainerStatus, ...] = ()
    init_container_statuses: tuple[FullContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[FullContainerStatus, ...] = ()


class FullPod(Pod, frozen=True):
    spec: FullPodSpec = FullPodSpec()
    status: FullPodStatus = FullPodStatus()
