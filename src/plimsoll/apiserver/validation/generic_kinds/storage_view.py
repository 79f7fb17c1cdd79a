"""Views of PersistentVolumeClaim, PersistentVolume, StorageClass, CSIDriver and CSIStorageCapacity, for
validation.

They have the fields that a default, a rule or a stored form depends on; all other fields are preserved
unchanged.
"""

from __future__ import annotations

from plimsoll.api.core import NodeSelector
from plimsoll.api.meta import ObjectMeta, Wire
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.pod.volume_view import FullPersistentVolumeClaimSpec, Volume


class FullPersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""
    capacity: dict[str, Quantity] = {}
    allocated_resources: dict[str, Quantity] = {}


class FullPersistentVolumeClaim(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullPersistentVolumeClaimSpec = FullPersistentVolumeClaimSpec()
    status: FullPersistentVolumeClaimStatus = FullPersistentVolumeClaimStatus()


class FullVolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class FullPersistentVolumeSpec(Volume, frozen=True):
    """Has the sources of a pod's volume, and some of its own that need no default."""

    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    persistent_volume_reclaim_policy: str = ""
    volume_mode: str | None = None
    node_affinity: FullVolumeNodeAffinity | None = None


class FullPersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""
    last_phase_transition_time: str | None = None


class FullPersistentVolume(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullPersistentVolumeSpec = FullPersistentVolumeSpec()
    status: FullPersistentVolumeStatus = FullPersistentVolumeStatus()


class FullStorageClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    parameters: dict[str, str] = {}
    reclaim_policy: str | None = None
    volume_binding_mode: str | None = None


class CSIDriverSpec(Wire, frozen=True):
    attach_required: bool | None = None
    pod_info_on_mount: bool | None = None
    storage_capacity: bool | None = None
    fs_group_policy: str | None = None
    volume_lifecycle_modes: tuple[str, ...] = ()
    requires_republish: bool | None = None
    se_linux_mount: bool | None = None
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None
