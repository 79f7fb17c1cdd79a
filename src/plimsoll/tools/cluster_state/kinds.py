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
class Pictured:
    """A kind that is read."""

    view: type[Any]
    endpoint: Endpoint
    needed: bool = False  #: without it there is nothing to say

    @property
    def versioned(self) -> bool:
        """Whether older versions of it have another shape (see `versions.py`)."""
        return self.endpoint.group == GROUP


KINDS: tuple[Pictured, ...] = (
    Pictured(Node, at.NODES, needed=True),
    Pictured(Namespace, at.NAMESPACES),
    Pictured(DeviceClass, at.DEVICE_CLASSES),
    Pictured(ResourceSlice, at.RESOURCE_SLICES),
    Pictured(DeviceTaintRule, at.DEVICE_TAINT_RULES),
    Pictured(ResourceClaimTemplate, at.RESOURCE_CLAIM_TEMPLATES),
    Pictured(ResourceClaim, at.RESOURCE_CLAIMS),
    Pictured(PersistentVolumeClaim, at.PERSISTENT_VOLUME_CLAIMS),
    Pictured(PersistentVolume, at.PERSISTENT_VOLUMES),
    Pictured(StorageClass, at.STORAGE_CLASSES),
    Pictured(CSINode, at.CSI_NODES),
    Pictured(VolumeAttachment, at.VOLUME_ATTACHMENTS),
    Pictured(PodDisruptionBudget, at.POD_DISRUPTION_BUDGETS),
    Pictured(Pod, at.PODS, needed=True),
)
BY_NAME: dict[str, Pictured] = {kind.endpoint.kind: kind for kind in KINDS}
