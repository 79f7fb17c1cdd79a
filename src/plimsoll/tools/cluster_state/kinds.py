"""What is read of a cluster.

Owns `KINDS`: the kinds that any of the questions needs, how they are decoded and where they are served. A
cluster that does not serve one of them, or a reader who may not see it, has a gap there, not an error, unless
the kind is needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from plimsoll.api.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.client import endpoints as at
from plimsoll.client.endpoints import Endpoint
from plimsoll.tools.cluster_state.versions import GROUP


@dataclass(frozen=True, slots=True)
class StateKind:
    """A kind that is read."""

    view: type[Any]
    endpoint: Endpoint
    needed: bool = False  #: without it there is nothing to say

    @property
    def versioned(self) -> bool:
        """Whether older versions of it have another shape (see `versions.py`)."""
        return self.endpoint.group == GROUP


KINDS: tuple[StateKind, ...] = (
    StateKind(Node, at.NODES, needed=True),
    StateKind(Namespace, at.NAMESPACES),
    StateKind(DeviceClass, at.DEVICE_CLASSES),
    StateKind(ResourceSlice, at.RESOURCE_SLICES),
    StateKind(DeviceTaintRule, at.DEVICE_TAINT_RULES),
    StateKind(ResourceClaimTemplate, at.RESOURCE_CLAIM_TEMPLATES),
    StateKind(ResourceClaim, at.RESOURCE_CLAIMS),
    StateKind(PersistentVolumeClaim, at.PERSISTENT_VOLUME_CLAIMS),
    StateKind(PersistentVolume, at.PERSISTENT_VOLUMES),
    StateKind(StorageClass, at.STORAGE_CLASSES),
    StateKind(CSINode, at.CSI_NODES),
    StateKind(VolumeAttachment, at.VOLUME_ATTACHMENTS),
    StateKind(PodDisruptionBudget, at.POD_DISRUPTION_BUDGETS),
    StateKind(Pod, at.PODS, needed=True),
)
BY_NAME: dict[str, StateKind] = {kind.endpoint.kind: kind for kind in KINDS}
