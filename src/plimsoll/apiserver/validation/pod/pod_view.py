"""Pods in full, for the writes that have to check all of them.

Owns the fields of a pod that nothing but validation reads; the everyday view (`api.core.Pod`) leaves them out
to stay small.
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
from plimsoll.apiserver.validation.pod.volume_view import LocalReference, Volume

# -- security


class Profile(Wire, frozen=True):
    """A seccomp or AppArmor profile."""

    type: str = ""
    localhost_profile: str | None = None


class WindowsOptions(Wire, frozen=True):
    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class Sysctl(Wire, frozen=True):
    name: str = ""
    value: str = ""


class SeLinuxOptions(Wire, frozen=True):
    user: str = ""
    role: str = ""
    type: str = ""
    level: str = ""


class Capabilities(Wire, frozen=True):
    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class PodSecurity(Wire, frozen=True):
    se_linux_options: SeLinuxOptions | None = None
    windows_options: WindowsOptions | None = None
    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[Int, ...] | None = None
    supplemental_groups_policy: str | None = None
    fs_group: Int | None = None
    fs_group_change_policy: str | None = None
    sysctls: tuple[Sysctl, ...] = ()
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None
    se_linux_change_policy: str | None = None


class ContainerSecurity(Wire, frozen=True):
    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SeLinuxOptions | None = None
    windows_options: WindowsOptions | None = None
    run_as_user: Int | None = None
    run_as_group: Int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: Profile | None = None
    app_armor_profile: Profile | None = None


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


class WholeContainerPort(ContainerPort, frozen=True):
    container_port: Int32 = 0
    host_port: Int32 = 0


class WholeContainer(Container, frozen=True):
    ports: tuple[WholeContainerPort, ...] = ()
    volume_mounts: tuple[VolumeMount, ...] = ()
    volume_devices: tuple[VolumeDevice, ...] = ()
    termination_message_path: str = ""
    termination_message_policy: str = ""
    image_pull_policy: str = ""
    security_context: ContainerSecurity | None = None  # type: ignore[assignment]  # in full here, as JSON there
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""  #: of ephemeral containers only


# -- the pod


class DnsOption(Wire, frozen=True):
    name: str = ""
    value: str | None = None


class DnsConfig(Wire, frozen=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[DnsOption, ...] = ()


class HostAlias(Wire, frozen=True):
    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodOs(Wire, frozen=True):
    name: str = ""


class WholePodSpec(PodSpec, frozen=True):
    containers: tuple[WholeContainer, ...] = ()
    init_containers: tuple[WholeContainer, ...] = ()
    ephemeral_containers: tuple[WholeContainer, ...] = ()
    resources: ResourceRequirements | None = None
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()  # type: ignore[assignment]  # seen in full here, as JSON there
    active_deadline_seconds: Int | None = None
    dns_policy: str = ""
    dns_config: DnsConfig | None = None
    service_account_name: str = ""
    service_account: str = ""
    automount_service_account_token: bool | None = None
    security_context: PodSecurity | None = None  # type: ignore[assignment]  # in full here, as JSON there
    image_pull_secrets: tuple[LocalReference, ...] = ()
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
    os: PodOs | None = None


# -- its status


class Running(Wire, frozen=True):
    started_at: str | None = None


class Terminated(Wire, frozen=True):
    exit_code: Int32 = 0
    signal: Int32 = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class ContainerState(Wire, frozen=True):
    running: Running | None = None
    terminated: Terminated | None = None


class ResourceHealth(Wire, frozen=True):
    resource_id: str = msgspec.field(name="resourceID", default="")
    health: str = ""
    message: str | None = None


class ResourceStatus(Wire, frozen=True):
    name: str = ""
    resources: tuple[ResourceHealth, ...] = ()


class LinuxUser(Wire, frozen=True):
    uid: Int = 0
    gid: Int = 0
    supplemental_groups: tuple[Int, ...] = ()


class ContainerUser(Wire, frozen=True):
    linux: LinuxUser | None = None


class WholeContainerStatus(ContainerStatus, frozen=True):
    state: ContainerState = ContainerState()  # type: ignore[assignment]  # seen in full here, as JSON there
    last_state: ContainerState = ContainerState()  # type: ignore[assignment]
    allocated_resources_status: tuple[ResourceStatus, ...] = ()
    user: ContainerUser | None = None


class Address(Wire, frozen=True):
    ip: str = ""


class WholePodStatus(PodStatus, frozen=True):
    observed_generation: Int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    host_ips: tuple[Address, ...] = msgspec.field(name="hostIPs", default=())
    pod_ips: tuple[Address, ...] = msgspec.field(name="podIPs", default=())
    container_statuses: tuple[WholeContainerStatus, ...] = ()
    init_container_statuses: tuple[WholeContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[WholeContainerStatus, ...] = ()


class WholePod(Pod, frozen=True):
    spec: WholePodSpec = WholePodSpec()
    status: WholePodStatus = WholePodStatus()
