"""Table columns of each resource.

Defines name, type and cell of every column, and which of them only `-o wide` shows. Other resources show
their name and age.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.tables import core, pods, workloads
from plimsoll.apiserver.tables.row import (
    NONE,
    UNKNOWN,
    UNSET,
    Cell,
    TableRow,
    Tree,
    format_labels,
    format_selector,
    text_of,
    texts_of,
)


class Column(NamedTuple):
    """One column and its cell function."""

    name: str
    cell: Cell
    type: str = "string"
    wide: bool = False
    format: str = ""

    def definition(self) -> Tree:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": "",
            "priority": int(self.wide),
        }


def _text(path: str, absent: str = "") -> Cell:
    parts = tuple(path.split("."))
    return lambda row: row.text(parts, absent)


def _number(path: str) -> Cell:
    parts = tuple(path.split("."))
    return lambda row: row.number(parts)


def _flag(path: str, absent: bool = False) -> Cell:
    parts = tuple(path.split("."))
    return lambda row: absent if row.get(parts) is None else row.flag(parts)


def _count(*paths: str) -> Cell:
    """Return a cell with the total number of entries of the lists or maps at these paths."""
    split = [tuple(path.split(".")) for path in paths]

    def count(row: TableRow) -> int:
        values = (row.get(parts) for parts in split)
        return sum(len(value) for value in values if isinstance(value, (list, dict)))

    return count


def _age(path: str, absent: str = UNKNOWN) -> Cell:
    parts = tuple(path.split("."))
    return lambda row: row.age(parts, absent)


def _labels(path: str) -> Cell:
    parts = tuple(path.split("."))
    return lambda row: format_labels(row.get(parts))


def _selector(path: str, absent: str = NONE) -> Cell:
    parts = tuple(path.split("."))
    return lambda row: format_selector(row.get(parts), absent)


def _either(path: str, absent: str = NONE) -> Cell:
    """Return a cell with a number or string, unchanged."""
    parts = tuple(path.split("."))

    def either(row: TableRow) -> object:
        value = row.get(parts)
        return value if isinstance(value, int) else text_of(value, absent)

    return either


def _joined(path: str) -> Cell:
    parts = tuple(path.split("."))
    return lambda row: ",".join(texts_of(row.get(parts)))


def _pool_sum(name: str) -> Cell:
    return lambda row: core.pool_request_sum(row, name)


_NAME = Column("Name", _text("metadata.name"), format="name")
_AGE = Column("Age", _age("metadata.creationTimestamp"))
_CREATED = Column("Created At", _text("metadata.creationTimestamp"), "date")
_PLAIN = (_NAME, _CREATED)


def _integer(name: str, path: str) -> Column:
    return Column(name, _number(path), "integer")


def _containers(template: str) -> tuple[Column, Column]:
    path = (*template.split("."), "spec", "containers")
    return (
        Column("Containers", workloads.container_values(path, "name"), wide=True),
        Column("Images", workloads.container_values(path, "image"), wide=True),
    )


def _wide_selector(path: str, absent: str = NONE) -> Column:
    return Column("Selector", _selector(path, absent), wide=True)


def _replicas(selector: Column) -> tuple[Column, ...]:
    return (
        _NAME,
        Column("Desired", lambda row: workloads.desired_replicas(row, ("spec", "replicas")), "integer"),
        _integer("Current", "status.replicas"),
        _integer("Ready", "status.readyReplicas"),
        _AGE,
        *_containers("spec.template"),
        selector,
    )


_EVENTS = (
    Column("Last Seen", core.event_last_seen),
    Column("Type", _text("type")),
    Column("Reason", _text("reason")),
    Column("Object", core.event_object),
    Column("Subobject", core.event_part, wide=True),
    Column("Source", core.event_source, wide=True),
    Column("Message", core.event_message),
    Column("First Seen", core.event_first_seen, wide=True),
    Column("Count", core.event_count, wide=True),
    Column("Name", _text("metadata.name"), wide=True, format="name"),
)
_BINDINGS = (
    _NAME,
    Column("Role", workloads.binding_role),
    _AGE,
    Column("Users", workloads.subjects("User"), wide=True),
    Column("Groups", workloads.subjects("Group"), wide=True),
    Column("ServiceAccounts", workloads.subjects("ServiceAccount"), wide=True),
)
_WEBHOOKS = (_NAME, Column("Webhooks", _count("webhooks"), "integer"), _AGE)
_POLICY_BINDINGS = (
    _NAME,
    Column("PolicyName", _text("spec.policyName")),
    Column("ParamRef", workloads.parameter_reference),
    _AGE,
)


def _policies(name: str, path: str) -> tuple[Column, ...]:
    parameters = Column("ParamKind", workloads.parameter_kind)
    return (_NAME, Column(name, _count(path), "integer"), parameters, _AGE)


_COLUMNS: dict[str, tuple[Column, ...]] = {
    "configmaps": (_NAME, Column("Data", _count("data", "binaryData")), _AGE),
    "endpoints": (_NAME, Column("Endpoints", core.endpoints), _AGE),
    "events": _EVENTS,
    "events.events.k8s.io": _EVENTS,
    "namespaces": (_NAME, Column("Status", _text("status.phase")), _AGE),
    "nodes": (
        _NAME,
        Column("Status", core.node_status),
        Column("Roles", core.node_roles),
        _AGE,
        Column("Version", _text("status.nodeInfo.kubeletVersion")),
        Column("Internal-IP", core.node_internal_address, wide=True),
        Column("External-IP", core.node_external_address, wide=True),
        Column("OS-Image", _text("status.nodeInfo.osImage", UNKNOWN), wide=True),
        Column("Kernel-Version", core.node_kernel, wide=True),
        Column("Container-Runtime", _text("status.nodeInfo.containerRuntimeVersion", UNKNOWN), wide=True),
    ),
    "persistentvolumeclaims": (
        _NAME,
        Column("Status", core.phase_or_terminating),
        Column("Volume", _text("spec.volumeName")),
        Column("Capacity", core.claim_size),
        Column("Access Modes", core.claim_modes),
        Column("StorageClass", core.storage_class),
        Column("VolumeAttributesClass", _text("spec.volumeAttributesClassName", UNSET)),
        _AGE,
        Column("VolumeMode", _text("spec.volumeMode", UNSET), wide=True),
    ),
    "persistentvolumes": (
        _NAME,
        Column("Capacity", core.volume_size),
        Column("Access Modes", core.volume_modes),
        Column("Reclaim Policy", _text("spec.persistentVolumeReclaimPolicy")),
        Column("Status", core.phase_or_terminating),
        Column("Claim", core.volume_claim),
        Column("StorageClass", core.storage_class),
        Column("VolumeAttributesClass", _text("spec.volumeAttributesClassName", UNSET)),
        Column("Reason", _text("status.reason")),
        _AGE,
        Column("VolumeMode", _text("spec.volumeMode", UNSET), wide=True),
    ),
    "pods": (
        _NAME,
        Column("Ready", pods.ready),
        Column("Status", pods.status),
        Column("Restarts", pods.restarts),
        _AGE,
        Column("IP", pods.address, wide=True),
        Column("Node", _text("spec.nodeName", NONE), wide=True),
        Column("Nominated Node", _text("status.nominatedNodeName", NONE), wide=True),
        Column("Readiness Gates", pods.readiness_gates, wide=True),
    ),
    "podtemplates": (
        _NAME,
        *(column._replace(wide=False) for column in _containers("template")),
        Column("Pod Labels", _labels("template.metadata.labels")),
    ),
    "replicationcontrollers": _replicas(Column("Selector", _labels("spec.selector"), wide=True)),
    "resourcequotas": (
        _NAME,
        Column("Request", core.quota_requests),
        Column("Limit", core.quota_limits),
        _AGE,
    ),
    "secrets": (_NAME, Column("Type", _text("type")), Column("Data", _count("data")), _AGE),
    "serviceaccounts": (_NAME, _AGE),
    "services": (
        _NAME,
        Column("Type", _text("spec.type", "ClusterIP")),
        Column("Cluster-IP", core.service_cluster_address),
        Column("External-IP", core.service_external_address),
        Column("Port(s)", core.service_ports),
        _AGE,
        Column("Selector", _labels("spec.selector"), wide=True),
    ),
    "controllerrevisions.apps": (
        _NAME,
        Column("Controller", workloads.revision_owner),
        Column("Revision", _number("revision")),
        _AGE,
    ),
    "daemonsets.apps": (
        _NAME,
        _integer("Desired", "status.desiredNumberScheduled"),
        _integer("Current", "status.currentNumberScheduled"),
        _integer("Ready", "status.numberReady"),
        _integer("Up-to-date", "status.updatedNumberScheduled"),
        _integer("Available", "status.numberAvailable"),
        Column("Node Selector", _labels("spec.template.spec.nodeSelector")),
        _AGE,
        *_containers("spec.template"),
        _wide_selector("spec.selector"),
    ),
    "deployments.apps": (
        _NAME,
        Column("Ready", workloads.ratio(("status", "readyReplicas"), ("spec", "replicas"))),
        Column("Up-to-date", _number("status.updatedReplicas")),
        Column("Available", _number("status.availableReplicas")),
        _AGE,
        *_containers("spec.template"),
        _wide_selector("spec.selector", ""),
    ),
    "replicasets.apps": _replicas(_wide_selector("spec.selector")),
    "statefulsets.apps": (
        _NAME,
        Column("Ready", workloads.ratio(("status", "readyReplicas"), ("spec", "replicas"))),
        _AGE,
        *_containers("spec.template"),
    ),
    "horizontalpodautoscalers.autoscaling": (
        _NAME,
        Column(
            "Reference",
            lambda row: "/".join(row.text(("spec", "scaleTargetRef", name)) for name in ("kind", "name")),
        ),
        Column("Targets", workloads.autoscaler_targets),
        Column("MinPods", _text("spec.minReplicas", UNSET)),
        Column("MaxPods", _number("spec.maxReplicas")),
        Column("Replicas", _number("status.currentReplicas")),
        _AGE,
    ),
    "cronjobs.batch": (
        _NAME,
        Column("Schedule", _text("spec.schedule")),
        Column("Timezone", _text("spec.timeZone", NONE)),
        Column("Suspend", workloads.cron_suspended, "boolean"),
        Column("Active", _count("status.active"), "integer"),
        Column("Last Schedule", _age("status.lastScheduleTime", NONE)),
        _AGE,
        *_containers("spec.jobTemplate.spec.template"),
        _wide_selector("spec.jobTemplate.spec.selector"),
    ),
    "jobs.batch": (
        _NAME,
        Column("Status", workloads.job_status),
        Column("Completions", workloads.job_completions),
        Column("Duration", workloads.job_duration),
        _AGE,
        *_containers("spec.template"),
        _wide_selector("spec.selector"),
    ),
    "ingressclasses.networking.k8s.io": (
        _NAME._replace(cell=workloads.ingress_class_name),
        Column("Controller", _text("spec.controller")),
        Column("Parameters", workloads.ingress_class_parameters),
        _AGE,
    ),
    "ingresses.networking.k8s.io": (
        _NAME,
        Column("Class", _text("spec.ingressClassName", NONE)),
        Column("Hosts", workloads.ingress_hosts),
        Column("Address", core.load_balancer_addresses),
        Column("Ports", workloads.ingress_ports),
        _AGE,
    ),
    "ipaddresses.networking.k8s.io": (_NAME, Column("ParentRef", workloads.address_parent)),
    "networkpolicies.networking.k8s.io": (_NAME, Column("Pod-Selector", _selector("spec.podSelector")), _AGE),
    "servicecidrs.networking.k8s.io": (_NAME, Column("CIDRs", _joined("spec.cidrs")), _AGE),
    "poddisruptionbudgets.policy": (
        _NAME,
        Column("Min Available", _text("spec.minAvailable", "N/A")),
        Column("Max Unavailable", _text("spec.maxUnavailable", "N/A")),
        _integer("Allowed Disruptions", "status.disruptionsAllowed"),
        _AGE,
    ),
    "clusterrolebindings.rbac.authorization.k8s.io": _BINDINGS,
    "rolebindings.rbac.authorization.k8s.io": _BINDINGS,
    "csidrivers.storage.k8s.io": (
        _NAME,
        Column("AttachRequired", _flag("spec.attachRequired", True), "boolean"),
        Column("PodInfoOnMount", _flag("spec.podInfoOnMount"), "boolean"),
        Column("StorageCapacity", _flag("spec.storageCapacity"), "boolean"),
        Column("TokenRequests", workloads.csi_tokens),
        Column("RequiresRepublish", _flag("spec.requiresRepublish"), "boolean"),
        Column("Modes", workloads.csi_modes),
        _AGE,
    ),
    "csinodes.storage.k8s.io": (_NAME, Column("Drivers", _count("spec.drivers"), "integer"), _AGE),
    "storageclasses.storage.k8s.io": (
        _NAME._replace(cell=workloads.storage_class_name),
        Column("Provisioner", _text("provisioner")),
        Column("ReclaimPolicy", _text("reclaimPolicy", "Delete")),
        Column("VolumeBindingMode", _text("volumeBindingMode", "Immediate")),
        Column("AllowVolumeExpansion", _flag("allowVolumeExpansion")),
        _AGE,
    ),
    "volumeattachments.storage.k8s.io": (
        _NAME,
        Column("Attacher", _text("spec.attacher"), format="name"),
        Column("PV", _text("spec.source.persistentVolumeName")),
        Column("Node", _text("spec.nodeName")),
        Column("Attached", _flag("status.attached"), "boolean"),
        _AGE,
    ),
    "volumeattributesclasses.storage.k8s.io": (_NAME, Column("DriverName", _text("driverName")), _AGE),
    "mutatingadmissionpolicies.admissionregistration.k8s.io": _policies("Mutations", "spec.mutations"),
    "mutatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDINGS,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingadmissionpolicies.admissionregistration.k8s.io": _policies("Validations", "spec.validations"),
    "validatingadmissionpolicybindings.admissionregistration.k8s.io": _POLICY_BINDINGS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "apiservices.apiregistration.k8s.io": (
        _NAME,
        Column("Service", workloads.service_of_api),
        Column("Available", workloads.api_available),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (
        _NAME,
        _integer("Value", "value"),
        Column("Global-Default", _flag("globalDefault"), "boolean"),
        _AGE,
        Column("PreemptionPolicy", _text("preemptionPolicy")),
    ),
    "podgroups.scheduling.k8s.io": (
        _NAME,
        Column("Policy", workloads.group_policy),
        Column("Workload", _text("spec.podGroupTemplateRef.workload.workloadName", NONE)),
        Column("Status", workloads.group_status),
        _AGE,
    ),
    "leases.coordination.k8s.io": (_NAME, Column("Holder", _text("spec.holderIdentity")), _AGE),
    "runtimeclasses.node.k8s.io": (_NAME, Column("Handler", _text("handler")), _AGE),
    "endpointslices.discovery.k8s.io": (
        _NAME,
        Column("AddressType", _text("addressType")),
        Column("Ports", core.slice_ports),
        Column("Endpoints", core.slice_endpoints),
        _AGE,
    ),
    "deviceclasses.resource.k8s.io": (_NAME, _AGE),
    "devicetaintrules.resource.k8s.io": (
        _NAME,
        Column("Key", _text("spec.taint.key")),
        Column("Value", _text("spec.taint.value")),
        Column("Effect", _text("spec.taint.effect")),
        Column("TimeAdded", _age("spec.taint.timeAdded", "")),
        _AGE,
    ),
    "resourceclaims.resource.k8s.io": (_NAME, Column("State", core.resource_claim_state), _AGE),
    "resourceclaimtemplates.resource.k8s.io": (_NAME, _AGE),
    "resourcepoolstatusrequests.resource.k8s.io": (
        _NAME,
        Column("Driver", _text("spec.driver")),
        Column("Total", _pool_sum("totalDevices")),
        Column("Available", _pool_sum("availableDevices")),
        Column("Allocated", _pool_sum("allocatedDevices")),
        Column("Unavailable", _pool_sum("unavailableDevices")),
        Column("Errors", _pool_sum("validationError")),
        _integer("Pools", "status.poolCount"),
        Column("Status", core.pool_request_status),
        Column("Completed", core.pool_request_completed),
    ),
    "resourceslices.resource.k8s.io": (
        _NAME,
        Column("Node", _text("spec.nodeName")),
        Column("Driver", _text("spec.driver")),
        Column("Pool", _text("spec.pool.name")),
        _AGE,
    ),
    "flowschemas.flowcontrol.apiserver.k8s.io": (
        _NAME,
        Column("PriorityLevel", _text("spec.priorityLevelConfiguration.name")),
        Column("MatchingPrecedence", _number("spec.matchingPrecedence")),
        Column("DistinguisherMethod", _text("spec.distinguisherMethod.type", NONE)),
        _AGE,
        Column("MissingPL", workloads.missing_level),
    ),
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io": (
        _NAME,
        Column("Type", _text("spec.type")),
        Column("NominalConcurrencyShares", _either("spec.limited.nominalConcurrencyShares")),
        Column("Queues", _either("spec.limited.limitResponse.queuing.queues")),
        Column("HandSize", _either("spec.limited.limitResponse.queuing.handSize")),
        Column("QueueLengthLimit", _either("spec.limited.limitResponse.queuing.queueLengthLimit")),
        _AGE,
    ),
}

_CONDITIONS: dict[str, Callable[[TableRow], list[Tree] | None]] = {"pods": pods.completion}


def columns_of(
    resource: Resource,
) -> tuple[tuple[Column, ...], Callable[[TableRow], list[Tree] | None] | None]:
    """Return the columns of a resource, and the function for its row conditions, if any."""
    return _COLUMNS.get(resource.key, _PLAIN), _CONDITIONS.get(resource.key)
