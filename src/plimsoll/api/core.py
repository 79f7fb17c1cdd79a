"""Typed views of core `v1` kinds: Pod, Node, Namespace.

Includes the DRA fields of Pod in all three wire forms (KEP-5517, "Pod API Changes", and its earlier draft;
docs/spec/keps.md). `api.forms` converts them to one internal form.
"""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec

from plimsoll.api.containers import (
    ContainerResizePolicy,
    ContainerRestartRule,
    EnvFromSource,
    EnvVar,
    Lifecycle,
    Probe,
)
from plimsoll.api.meta import Condition, Int, LabelSelector, ObjectMeta, ObjectReference, Wire
from plimsoll.api.quantity import Quantity

ResourceList: TypeAlias = "dict[str, Quantity]"

# -- node selection


class NodeSelectorRequirement(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Wire, frozen=True):
    weight: Int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class PodAffinityTerm(Wire, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Wire, frozen=True):
    weight: Int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Wire, frozen=True):
    """Pod affinity or anti-affinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=()
    )
    preferred: tuple[WeightedPodAffinityTerm, ...] = msgspec.field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default=()
    )


class Affinity(Wire, frozen=True):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Wire, frozen=True):
    max_skew: Int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class Taint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class Toleration(Wire, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int | None = None


# -- containers


class ContainerClaim(Wire, frozen=True):
    """One element of `resources.claims`: a pod claim, or one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Wire, frozen=True):
    limits: ResourceList = {}
    requests: ResourceList = {}
    claims: tuple[ContainerClaim, ...] = ()


class ContainerPort(Wire, frozen=True):
    name: str = ""
    container_port: Int = 0
    host_port: Int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = ""


class VolumeReference(Wire, frozen=True):
    """A volume of the pod that a container mounts or uses as a block device."""

    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""
    mount_propagation: str | None = None


class Container(Wire, frozen=True):
    """A container, an init container, a sidecar or an ephemeral one."""

    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    image: str = ""
    image_pull_policy: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[EnvVar, ...] = ()
    env_from: tuple[EnvFromSource, ...] = ()
    ports: tuple[ContainerPort, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    resize_policy: tuple[ContainerResizePolicy, ...] = ()
    restart_policy: str | None = None
    restart_policy_rules: tuple[ContainerRestartRule, ...] = ()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None
    lifecycle: Lifecycle | None = None
    volume_mounts: tuple[VolumeReference, ...] = ()
    volume_devices: tuple[VolumeReference, ...] = ()
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    target_container_name: str = ""  #: of an ephemeral container
    termination_message_path: str = ""
    termination_message_policy: str = ""
    #: Plain JSON, so that fields of newer versions are kept.
    security_context: dict[str, Any] | None = None


class PodResourceClaim(Wire, frozen=True):
    """`spec.resourceClaims[]`: a name inside the pod for a claim or a template."""

    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSchedulingGate(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""


class PodSchedulingGroup(Wire, frozen=True):
    """Pod group that a pod is scheduled with."""

    pod_group_name: str | None = None


class WorkloadReference(Wire, frozen=True):
    """Pod group reference of 1.35."""

    name: str = ""
    pod_group: str = ""


class ReadinessGate(Wire, frozen=True):
    condition_type: str = ""


class LocalObjectReference(Wire, frozen=True):
    """An object in the namespace of the pod."""

    name: str = ""


class HostAlias(Wire, frozen=True):
    """An entry of the hosts file."""

    ip: str = ""
    hostnames: tuple[str, ...] = ()


class PodDNSConfigOption(Wire, frozen=True):
    name: str = ""
    value: str | None = None


class PodDNSConfig(Wire, frozen=True):
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[PodDNSConfigOption, ...] = ()


class PodSpec(Wire, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    ephemeral_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()
    overhead: ResourceList = {}
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    priority: Int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    scheduling_group: PodSchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None
    host_network: bool = False
    enable_service_links: bool | None = None
    host_users: bool | None = None
    host_pid: bool = msgspec.field(name="hostPID", default=False)
    host_ipc: bool = msgspec.field(name="hostIPC", default=False)
    share_process_namespace: bool | None = None
    hostname: str = ""
    subdomain: str = ""
    set_hostname_as_fqdn: bool | None = msgspec.field(name="setHostnameAsFQDN", default=None)
    hostname_override: str | None = None
    host_aliases: tuple[HostAlias, ...] = ()
    dns_policy: str = ""
    dns_config: PodDNSConfig | None = None
    image_pull_secrets: tuple[LocalObjectReference, ...] = ()
    runtime_class_name: str | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: Int | None = None
    active_deadline_seconds: Int | None = None
    readiness_gates: tuple[ReadinessGate, ...] = ()
    service_account_name: str = ""
    volumes: tuple[dict[str, Any], ...] = ()
    #: Plain JSON, so that fields of newer versions are kept.
    security_context: dict[str, Any] | None = None


# -- pod status


class ContainerStatus(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    ready: bool = False
    restart_count: Int = 0
    state: dict[str, Any] = {}
    last_state: dict[str, Any] = {}
    started: bool | None = None
    image: str = ""
    image_id: str = msgspec.field(name="imageID", default="")
    allocated_resources: ResourceList = {}
    resources: ResourceRequirements | None = None
    container_id: str = msgspec.field(name="containerID", default="")


class PodResourceClaimStatus(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    resource_claim_name: str | None = None


class ExtendedResourceRequest(Wire, frozen=True):
    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class ExtendedResourceClaimStatus(Wire, frozen=True):
    request_mappings: tuple[ExtendedResourceRequest, ...] = ()
    resource_claim_name: str = ""


class MappedQuantity(Wire, frozen=True):
    """1.37: charge of a claim's mapping to one resource."""

    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    quantity: Quantity | None = None
    accounting_policy: str = ""
    drawn: Quantity | None = None


class OverheadQuantity(Wire, frozen=True):
    """1.37: charges of a claim in addition to its mapping, per pod and per referring container."""

    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    per_pod: Quantity | None = None
    per_container: Quantity | None = None


class NodeAllocatableClaimStatus(Wire, frozen=True):
    """One claim's charge to its pod: `resources` in 1.36, `mapping` and `overhead` in 1.37."""

    item_key: ClassVar[tuple[str, ...]] = ("resource_claim_name",)
    resource_claim_name: str = ""
    containers: tuple[str, ...] = ()
    resources: ResourceList = {}
    accounting_policies: dict[str, str] = {}
    drawn: ResourceList = {}
    mapping: tuple[MappedQuantity, ...] = ()
    overhead: tuple[OverheadQuantity, ...] = ()


class NativeResourceAllocation(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("resource_name",)
    resource_name: str = ""
    quantity: Quantity | None = None
    accounting_policy: str = ""
    drawn: Quantity | None = None


class NativeResourceClaimStatus(Wire, frozen=True):
    """Charge of one claim in the draft's form."""

    claim_info: ObjectReference = ObjectReference()
    containers: tuple[str, ...] = ()
    resources: tuple[NativeResourceAllocation, ...] = ()


class PodStatus(Wire, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    qos_class: str = ""
    start_time: str | None = None
    pod_ip: str = msgspec.field(name="podIP", default="")
    host_ip: str = msgspec.field(name="hostIP", default="")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    ephemeral_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList = {}
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    node_allocatable_resource_claim_statuses: tuple[NodeAllocatableClaimStatus, ...] = ()
    native_resource_claim_status: tuple[NativeResourceClaimStatus, ...] = ()


class Pod(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def priority(self) -> int:
        """Priority for scheduling and preemption; 0 if it is not set."""
        return self.spec.priority or 0

    @property
    def has_terminated(self) -> bool:
        """True if the pod no longer uses resources (phase Succeeded or Failed)."""
        return self.status.phase in TERMINAL_PHASES


#: Phases of pods that no longer use resources.
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})


# -- nodes


class NodeSpec(Wire, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class ContainerImage(Wire, frozen=True):
    """An image on a node, by all of its names."""

    names: tuple[str, ...] = ()
    size_bytes: Int = 0


class NodeSystemInfo(Wire, frozen=True):
    """Software of a node; only for display."""

    kubelet_version: str = ""
    os_image: str = ""
    kernel_version: str = ""
    container_runtime_version: str = ""
    architecture: str = ""


class NodeStatus(Wire, frozen=True):
    capacity: ResourceList = {}
    allocatable: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo | None = None


class Node(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


# -- namespaces


class NamespaceStatus(Wire, frozen=True):
    phase: str = ""


class Namespace(Wire, frozen=True):
    """A namespace; affinity selects namespaces by its labels."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    status: NamespaceStatus = NamespaceStatus()
