"""`KINDS`: the kinds that tools read from a cluster, with their views and endpoints.

A kind that is not served, or that the user may not list, becomes a `Gap` unless it is required.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.quota import LimitRange, ResourceQuota
from plimsoll.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from plimsoll.api.resource_versions import GROUP
from plimsoll.api.scheduling import PodGroup, PriorityClass
from plimsoll.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.api.workloads import ReplicaSet, ReplicationController, Service, StatefulSet
from plimsoll.client import endpoints as at
from plimsoll.client.endpoints import Endpoint


@dataclass(frozen=True, slots=True)
class StateKind:
    """Kind that is part of a cluster state."""

    view: type[Any]
    endpoint: Endpoint
    needed: bool = False  #: required by all tools

    @property
    def versioned(self) -> bool:
        """True if older API versions of the kind have another schema (see `versions.py`)."""
        return self.endpoint.group == GROUP


KINDS: tuple[StateKind, ...] = (
    StateKind(Node, at.NODES, needed=True),
    StateKind(Namespace, at.NAMESPACES),
    StateKind(PriorityClass, at.PRIORITY_CLASSES),
    StateKind(ResourceQuota, at.RESOURCE_QUOTAS),
    StateKind(LimitRange, at.LIMIT_RANGES),
    StateKind(DeviceClass, at.DEVICE_CLASSES),
    StateKind(ResourceSlice, at.RESOURCE_SLICES),
    StateKind(DeviceTaintRule, at.DEVICE_TAINT_RULES),
    StateKind(ResourceClaimTemplate, at.RESOURCE_CLAIM_TEMPLATES),
    StateKind(ResourceClaim, at.RESOURCE_CLAIMS),
    StateKind(PersistentVolumeClaim, at.PERSISTENT_VOLUME_CLAIMS),
    StateKind(PersistentVolume, at.PERSISTENT_VOLUMES),
    StateKind(StorageClass, at.STORAGE_CLASSES),
    StateKind(CSINode, at.CSI_NODES),
    StateKind(CSIDriver, at.CSI_DRIVERS),
    StateKind(CSIStorageCapacity, at.CSI_STORAGE_CAPACITIES),
    StateKind(VolumeAttachment, at.VOLUME_ATTACHMENTS),
    StateKind(PodDisruptionBudget, at.POD_DISRUPTION_BUDGETS),
    StateKind(PodGroup, at.POD_GROUPS),
    StateKind(Service, at.SERVICES),
    StateKind(ReplicationController, at.REPLICATION_CONTROLLERS),
    StateKind(ReplicaSet, at.REPLICA_SETS),
    StateKind(StatefulSet, at.STATEFUL_SETS),
    StateKind(Pod, at.PODS, needed=True),
)
BY_NAME: dict[str, StateKind] = {kind.endpoint.kind: kind for kind in KINDS}
