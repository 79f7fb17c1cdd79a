"""Full views of pod volumes, for validation."""

from __future__ import annotations

import msgspec

from plimsoll.api.containers import ObjectFieldSelector, ResourceFieldSelector
from plimsoll.api.meta import Int, Int32, LabelSelector, Wire
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.metadata_view import FullObjectMeta


class LocalObjectReference(Wire, frozen=True):
    """Reference to an object in the same namespace."""

    name: str = ""


class KeyToPath(Wire, frozen=True):
    key: str = ""
    path: str = ""
    mode: Int32 | None = None


class DownwardAPIVolumeFile(Wire, frozen=True):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: Int32 | None = None


# -- sources shared with projected volumes


class SecretProjection(Wire, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardAPIProjection(Wire, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()


class ServiceAccountTokenProjection(Wire, frozen=True):
    audience: str = ""
    expiration_seconds: Int | None = None
    path: str = ""


class ClusterTrustBundleProjection(Wire, frozen=True):
    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = ""


class PodCertificateProjection(Wire, frozen=True):
    signer_name: str = ""
    key_type: str = ""
    max_expiration_seconds: Int32 | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: dict[str, str] = {}


class VolumeProjection(Wire, frozen=True):
    secret: SecretProjection | None = None
    downward_api: DownwardAPIProjection | None = msgspec.field(name="downwardAPI", default=None)
    config_map: SecretProjection | None = None
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(Wire, frozen=True):
    sources: tuple[VolumeProjection, ...] = ()
    default_mode: Int32 | None = None


# -- sources inside the cluster


class HostPathVolumeSource(Wire, frozen=True):
    path: str = ""
    type: str | None = None


class EmptyDirVolumeSource(Wire, frozen=True):
    medium: str = ""
    size_limit: Quantity | None = None


class SecretVolumeSource(Wire, frozen=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class ConfigMapVolumeSource(Wire, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class DownwardAPIVolumeSource(Wire, frozen=True):
    items: tuple[DownwardAPIVolumeFile, ...] = ()
    default_mode: Int32 | None = None


class PersistentVolumeClaimVolumeSource(Wire, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class TypedObjectReference(Wire, frozen=True):
    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class VolumeResourceRequirements(Wire, frozen=True):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class FullPersistentVolumeClaimSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResourceRequirements = VolumeResourceRequirements()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedObjectReference | None = None
    data_source_ref: TypedObjectReference | None = None
    volume_attributes_class_name: str | None = None


class PersistentVolumeClaimTemplate(Wire, frozen=True):
    metadata: FullObjectMeta = FullObjectMeta()
    spec: FullPersistentVolumeClaimSpec = FullPersistentVolumeClaimSpec()


class EphemeralVolumeSource(Wire, frozen=True):
    volume_claim_template: PersistentVolumeClaimTemplate | None = None


class ImageVolumeSource(Wire, frozen=True):
    reference: str = ""
    pull_policy: str = ""


class FullCSIVolumeSource(Wire, frozen=True):
    driver: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] = {}
    node_publish_secret_ref: LocalObjectReference | None = None


# -- storage systems


class CloudDiskVolumeSource(Wire, frozen=True):
    """A cloud disk: the union of the fields of all cloud disk sources."""

    pd_name: str = ""
    volume_id: str = msgspec.field(name="volumeID", default="")
    pd_id: str = msgspec.field(name="pdID", default="")
    volume_path: str = ""
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None
    storage_policy_name: str = ""
    storage_policy_id: str = msgspec.field(name="storagePolicyID", default="")


class GitRepoVolumeSource(Wire, frozen=True):
    repository: str = ""
    revision: str = ""
    directory: str = ""


class NFSVolumeSource(Wire, frozen=True):
    server: str = ""
    path: str = ""
    read_only: bool = False


class ISCSIVolumeSource(Wire, frozen=True):
    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool = msgspec.field(name="chapAuthDiscovery", default=False)
    chap_auth_session: bool = msgspec.field(name="chapAuthSession", default=False)
    secret_ref: LocalObjectReference | None = None
    initiator_name: str | None = None


class GlusterfsVolumeSource(Wire, frozen=True):
    endpoints: str = ""
    path: str = ""
    read_only: bool = False


class RBDVolumeSource(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    fs_type: str = ""
    pool: str = ""
    user: str = ""
    keyring: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class CephFSVolumeSource(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    path: str = ""
    user: str = ""
    secret_file: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False


class FlockerVolumeSource(Wire, frozen=True):
    dataset_name: str = ""
    dataset_uuid: str = msgspec.field(name="datasetUUID", default="")


class FCVolumeSource(Wire, frozen=True):
    target_wwns: tuple[str, ...] = msgspec.field(name="targetWWNs", default=())
    lun: Int32 | None = None
    fs_type: str = ""
    read_only: bool = False
    wwids: tuple[str, ...] = ()


class FlexVolumeSource(Wire, frozen=True):
    driver: str = ""
    fs_type: str = ""
    secret_ref: LocalObjectReference | None = None
    read_only: bool = False
    options: dict[str, str] = {}


class AzureFileVolumeSource(Wire, frozen=True):
    secret_name: str = ""
    share_name: str = ""
    read_only: bool = False


class AzureDiskVolumeSource(Wire, frozen=True):
    disk_name: str = ""
    disk_uri: str = msgspec.field(name="diskURI", default="")
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    kind: str | None = None


class QuobyteVolumeSource(Wire, frozen=True):
    registry: str = ""
    volume: str = ""
    read_only: bool = False
    user: str = ""
    group: str = ""
    tenant: str = ""


class ScaleIOVolumeSource(Wire, frozen=True):
    gateway: str = ""
    system: str = ""
    secret_ref: LocalObjectReference | None = None
    ssl_enabled: bool = False
    protection_domain: str = ""
    storage_pool: str = ""
    storage_mode: str = ""
    volume_name: str = ""
    fs_type: str = ""
    read_only: bool = False


class StorageOSVolumeSource(Wire, frozen=True):
    volume_name: str = ""
    volume_namespace: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalObjectReference | None = None


class Volume(Wire, frozen=True):
    """A volume and its source; the order of the fields is the order of validation."""

    name: str = ""
    empty_dir: EmptyDirVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    git_repo: GitRepoVolumeSource | None = None
    gce_persistent_disk: CloudDiskVolumeSource | None = None
    aws_elastic_block_store: CloudDiskVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    nfs: NFSVolumeSource | None = None
    iscsi: ISCSIVolumeSource | None = None
    glusterfs: GlusterfsVolumeSource | None = None
    flocker: FlockerVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    rbd: RBDVolumeSource | None = None
    cinder: CloudDiskVolumeSource | None = None
    cephfs: CephFSVolumeSource | None = None
    quobyte: QuobyteVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(name="downwardAPI", default=None)
    fc: FCVolumeSource | None = None
    flex_volume: FlexVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    azure_file: AzureFileVolumeSource | None = None
    vsphere_volume: CloudDiskVolumeSource | None = None
    photon_persistent_disk: CloudDiskVolumeSource | None = None
    portworx_volume: CloudDiskVolumeSource | None = None
    azure_disk: AzureDiskVolumeSource | None = None
    storageos: StorageOSVolumeSource | None = None
    projected: ProjectedVolumeSource | None = None
    scale_io: ScaleIOVolumeSource | None = msgspec.field(name="scaleIO", default=None)
    csi: FullCSIVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    image: ImageVolumeSource | None = None
