"""Typed views of volumes: core `v1` volumes and claims, and `storage.k8s.io/v1`.

Only the fields that schedulers, controllers and nodes read. The volumes of a pod are plain trees in
`core.PodSpec`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from plimsoll.api.core import NodeSelector, ResourceRequirements
from plimsoll.api.meta import Int, LabelSelector, ObjectMeta, ObjectReference, Wire
from plimsoll.api.quantity import Quantity

#: Annotations of a PersistentVolumeClaim: binding completed, and the node selected for provisioning.
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
#: Annotation of a PersistentVolume that was bound by a controller or a scheduler, and not by a user.
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
#: Annotation of a PersistentVolume: name of the provisioner that created it.
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
#: Annotation of a StorageClass: "true" for the class of claims that name none.
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
#: Annotation for the storage class before there was a field.
BETA_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
#: Provisioner of the StorageClass that every cluster starts with.
HOST_PATH_PROVISIONER = "plimsoll.dev/host-path"

IMMEDIATE = "Immediate"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
AVAILABLE, BOUND, PENDING = "Available", "Bound", "Pending"
STORAGE = "storage"
#: Provisioner of classes whose volumes are created by other means.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
FILESYSTEM = "Filesystem"
#: Finalizers of claims and volumes that are protected while they are in use.
CLAIM_PROTECTION = "kubernetes.io/pvc-protection"
VOLUME_PROTECTION = "kubernetes.io/pv-protection"
_ZERO = Quantity.of(0)

# -- claims


class PersistentVolumeClaimSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    storage_class_name: str | None = None
    volume_attributes_class_name: str | None = None
    data_source_ref: dict[str, Any] | None = None


class PersistentVolumeClaimStatus(Wire, frozen=True):
    phase: str = ""
    access_modes: tuple[str, ...] = ()
    capacity: dict[str, Quantity] = {}
    current_volume_attributes_class_name: str | None = None


class PersistentVolumeClaim(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def storage_class(self) -> str:
        """Storage class name, or ""."""
        old = self.metadata.annotations.get(BETA_STORAGE_CLASS)
        return (self.spec.storage_class_name or "") if old is None else old

    @property
    def has_class(self) -> bool:
        """True if the claim names a storage class, which may be "" for none."""
        return self.spec.storage_class_name is not None or BETA_STORAGE_CLASS in self.metadata.annotations

    @property
    def bound(self) -> bool:
        """True if the claim is bound completely."""
        return bool(self.spec.volume_name) and BIND_COMPLETED in self.metadata.annotations

    @property
    def size(self) -> Quantity:
        """Requested size, or 0."""
        return self.spec.resources.requests.get(STORAGE, _ZERO)

    @property
    def volume_mode(self) -> str:
        return self.spec.volume_mode or FILESYSTEM

    @property
    def selected_node(self) -> str | None:
        """Node for which a volume is to be provisioned, or None."""
        return self.metadata.annotations.get(SELECTED_NODE)


# -- volumes


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class CSIVolumeSource(Wire, frozen=True):
    driver: str = ""
    volume_handle: str = ""


class HostPathVolumeSource(Wire, frozen=True):
    path: str = ""


class PersistentVolumeSpec(Wire, frozen=True):
    """A volume; for in-tree sources only their presence matters."""

    capacity: dict[str, Quantity] = {}
    access_modes: tuple[str, ...] = ()
    claim_ref: ObjectReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    persistent_volume_reclaim_policy: str = ""
    host_path: HostPathVolumeSource | None = None
    csi: CSIVolumeSource | None = None
    gce_persistent_disk: dict[str, Any] | None = msgspec.field(name="gcePersistentDisk", default=None)
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    azure_file: dict[str, Any] | None = None
    vsphere_volume: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None


class PersistentVolumeStatus(Wire, frozen=True):
    phase: str = ""


class PersistentVolume(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def storage_class(self) -> str:
        """Storage class name, or ""."""
        return self.metadata.annotations.get(BETA_STORAGE_CLASS, self.spec.storage_class_name)

    @property
    def size(self) -> Quantity:
        """Capacity, or 0."""
        return self.spec.capacity.get(STORAGE, _ZERO)

    @property
    def volume_mode(self) -> str:
        return self.spec.volume_mode or FILESYSTEM

    @property
    def required_affinity(self) -> NodeSelector | None:
        """Nodes from which the volume is reachable, or None for all."""
        return None if self.spec.node_affinity is None else self.spec.node_affinity.required

    def is_bound_to(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether the volume refers to a claim; a reference without a UID is by name."""
        reference = self.spec.claim_ref
        if reference is None or (reference.namespace, reference.name) != claim.metadata.key:
            return False
        return not reference.uid or reference.uid == claim.metadata.uid


# -- classes


class TopologySelectorLabelRequirement(Wire, frozen=True):
    """A label that must have one of several values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(Wire, frozen=True):
    """One of `allowedTopologies`: label requirements that must all match."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()
    reclaim_policy: str | None = None
    parameters: dict[str, str] = {}
    mount_options: tuple[str, ...] = ()
    allow_volume_expansion: bool | None = None


def find_default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """Return the default class; of several the newest, then the first by name, as the API server does."""
    found = [each for each in classes if each.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    newest = max((each.metadata.creation_timestamp or "" for each in found), default="")
    candidates = [each for each in found if (each.metadata.creation_timestamp or "") == newest]
    return min(candidates, key=lambda each: each.metadata.name, default=None)


# -- CSI nodes and attachments


class CSINodeAllocatable(Wire, frozen=True):
    count: Int | None = None


class CSINodeDriver(Wire, frozen=True):
    name: str = ""
    node_id: str = msgspec.field(name="nodeID", default="")
    topology_keys: tuple[str, ...] = ()
    allocatable: CSINodeAllocatable | None = None


class CSINodeSpec(Wire, frozen=True):
    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Wire, frozen=True):
    """A volume that is attached, or is to be attached, to a node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


# -- CSI drivers and their capacity


class CSIDriverSpec(Wire, frozen=True):
    storage_capacity: bool | None = None


class CSIDriver(Wire, frozen=True):
    """A CSI driver; with `storageCapacity`, it publishes where it can create volumes."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Wire, frozen=True):
    """Capacity for volumes of a class on the nodes of a topology segment."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None

    @property
    def volume_limit(self) -> Quantity | None:
        """Size of the largest volume that can be created, if known."""
        return self.capacity if self.maximum_volume_size is None else self.maximum_volume_size
