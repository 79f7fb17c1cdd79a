"""Volumes of pods in full, for the writes that have to check all of them."""

from __future__ import annotations

import msgspec

from plimsoll.api.containers import ObjectField, ResourceField
from plimsoll.api.meta import Int, Int32, LabelSelector, Wire
from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.validation.metadata_view import WholeObjectMeta


class LocalReference(Wire, frozen=True):
    """The name of an object in the same namespace."""

    name: str = ""


class KeyToPath(Wire, frozen=True):
    key: str = ""
    path: str = ""
    mode: Int32 | None = None


class DownwardFile(Wire, frozen=True):
    path: str = ""
    field_ref: ObjectField | None = None
    resource_field_ref: ResourceField | None = None
    mode: Int32 | None = None


# -- sources that a projected volume has too


class SecretProjection(Wire, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    optional: bool | None = None


class DownwardProjection(Wire, frozen=True):
    items: tuple[DownwardFile, ...] = ()


class TokenProjection(Wire, frozen=True):
    audience: str = ""
    expiration_seconds: Int | None = None
    path: str = ""


class TrustBundleProjection(Wire, frozen=True):
    name: str | None = None
    signer_name: str | None = None
    label_selector: LabelSelector | None = None
    optional: bool | None = None
    path: str = ""


class CertificateProjection(Wire, frozen=True):
    signer_name: str = ""
    key_type: str = ""
    max_expiration_seconds: Int32 | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: dict[str, str] = {}


class VolumeProjection(Wire, frozen=True):
    secret: SecretProjection | None = None
    downward_api: DownwardProjection | None = msgspec.field(name="downwardAPI", default=None)
    config_map: SecretProjection | None = None
    service_account_token: TokenProjection | None = None
    cluster_trust_bundle: TrustBundleProjection | None = None
    pod_certificate: CertificateProjection | None = None


class Projected(Wire, frozen=True):
    sources: tuple[VolumeProjection, ...] = ()
    default_mode: Int32 | None = None


# -- sources inside of the cluster


class HostPath(Wire, frozen=True):
    path: str = ""
    type: str | None = None


class EmptyDir(Wire, frozen=True):
    medium: str = ""
    size_limit: Quantity | None = None


class SecretVolume(Wire, frozen=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class ConfigMapVolume(Wire, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] = ()
    default_mode: Int32 | None = None
    optional: bool | None = None


class DownwardVolume(Wire, frozen=True):
    items: tuple[DownwardFile, ...] = ()
    default_mode: Int32 | None = None


class ClaimVolume(Wire, frozen=True):
    claim_name: str = ""
    read_only: bool = False


class TypedReference(Wire, frozen=True):
    api_group: str | None = None
    kind: str = ""
    name: str = ""
    namespace: str | None = None


class VolumeResources(Wire, frozen=True):
    limits: dict[str, Quantity] = {}
    requests: dict[str, Quantity] = {}


class VolumeClaimSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: VolumeResources = VolumeResources()
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: TypedReference | None = None
    data_source_ref: TypedReference | None = None
    volume_attributes_class_name: str | None = None


class VolumeClaimTemplate(Wire, frozen=True):
    metadata: WholeObjectMeta = WholeObjectMeta()
    spec: VolumeClaimSpec = VolumeClaimSpec()


class EphemeralVolume(Wire, frozen=True):
    volume_claim_template: VolumeClaimTemplate | None = None


class ImageVolume(Wire, frozen=True):
    reference: str = ""
    pull_policy: str = ""


class CsiVolume(Wire, frozen=True):
    driver: str = ""
    read_only: bool | None = None
    fs_type: str | None = None
    volume_attributes: dict[str, str] = {}
    node_publish_secret_ref: LocalReference | None = None


# -- storage systems


class DiskVolume(Wire, frozen=True):
    """A disk of a cloud: each kind has a name for it of its own."""

    pd_name: str = ""
    volume_id: str = msgspec.field(name="volumeID", default="")
    pd_id: str = msgspec.field(name="pdID", default="")
    volume_path: str = ""
    fs_type: str = ""
    partition: Int32 = 0
    read_only: bool = False
    secret_ref: LocalReference | None = None
    storage_policy_name: str = ""
    storage_policy_id: str = msgspec.field(name="storagePolicyID", default="")


class GitRepo(Wire, frozen=True):
    repository: str = ""
    revision: str = ""
    directory: str = ""


class Nfs(Wire, frozen=True):
    server: str = ""
    path: str = ""
    read_only: bool = False


class Iscsi(Wire, frozen=True):
    target_portal: str = ""
    iqn: str = ""
    lun: Int32 = 0
    iscsi_interface: str = ""
    fs_type: str = ""
    read_only: bool = False
    portals: tuple[str, ...] = ()
    chap_auth_discovery: bool = msgspec.field(name="chapAuthDiscovery", default=False)
    chap_auth_session: bool = msgspec.field(name="chapAuthSession", default=False)
    secret_ref: LocalReference | None = None
    initiator_name: str | None = None


class Glusterfs(Wire, frozen=True):
    endpoints: str = ""
    path: str = ""
    read_only: bool = False


class Rbd(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    image: str = ""
    fs_type: str = ""
    pool: str = ""
    user: str = ""
    keyring: str = ""
    secret_ref: LocalReference | None = None
    read_only: bool = False


class Cephfs(Wire, frozen=True):
    monitors: tuple[str, ...] = ()
    path: str = ""
    user: str = ""
    secret_file: str = ""
    secret_ref: LocalReference | None = None
    read_only: bool = False


class Flocker(Wire, frozen=True):
    dataset_name: str = ""
    dataset_uuid: str = msgspec.field(name="datasetUUID", default="")


class FibreChannel(Wire, frozen=True):
    target_wwns: tuple[str, ...] = msgspec.field(name="targetWWNs", default=())
    lun: Int32 | None = None
    fs_type: str = ""
    read_only: bool = False
    wwids: tuple[str, ...] = ()


class FlexVolume(Wire, frozen=True):
    driver: str = ""
    fs_type: str = ""
    secret_ref: LocalReference | None = None
    read_only: bool = False
    options: dict[str, str] = {}


class AzureFile(Wire, frozen=True):
    secret_name: str = ""
    share_name: str = ""
    read_only: bool = False


class AzureDisk(Wire, frozen=True):
    disk_name: str = ""
    disk_uri: str = msgspec.field(name="diskURI", default="")
    caching_mode: str | None = None
    fs_type: str | None = None
    read_only: bool | None = None
    kind: str | None = None


class Quobyte(Wire, frozen=True):
    registry: str = ""
    volume: str = ""
    read_only: bool = False
    user: str = ""
    group: str = ""
    tenant: str = ""


class ScaleIo(Wire, frozen=True):
    gateway: str = ""
    system: str = ""
    secret_ref: LocalReference | None = None
    ssl_enabled: bool = False
    protection_domain: str = ""
    storage_pool: str = ""
    storage_mode: str = ""
    volume_name: str = ""
    fs_type: str = ""
    read_only: bool = False


class StorageOs(Wire, frozen=True):
    volume_name: str = ""
    volume_namespace: str = ""
    fs_type: str = ""
    read_only: bool = False
    secret_ref: LocalReference | None = None


class Volume(Wire, frozen=True):
    """A volume and its one source; the order of the fields is the order in which they are looked at."""

    name: str = ""
    empty_dir: EmptyDir | None = None
    host_path: HostPath | None = None
    git_repo: GitRepo | None = None
    gce_persistent_disk: DiskVolume | None = None
    aws_elastic_block_store: DiskVolume | None = None
    secret: SecretVolume | None = None
    nfs: Nfs | None = None
    iscsi: Iscsi | None = None
    glusterfs: Glusterfs | None = None
    flocker: Flocker | None = None
    persistent_volume_claim: ClaimVolume | None = None
    rbd: Rbd | None = None
    cinder: DiskVolume | None = None
    cephfs: Cephfs | None = None
    quobyte: Quobyte | None = None
    downward_api: DownwardVolume | None = msgspec.field(name="downwardAPI", default=None)
    fc: FibreChannel | None = None
    flex_volume: FlexVolume | None = None
    config_map: ConfigMapVolume | None = None
    azure_file: AzureFile | None = None
    vsphere_volume: DiskVolume | None = None
    photon_persistent_disk: DiskVolume | None = None
    portworx_volume: DiskVolume | None = None
    azure_disk: AzureDisk | None = None
    storageos: StorageOs | None = None
    projected: Projected | None = None
    scale_io: ScaleIo | None = msgspec.field(name="scaleIO", default=None)
    csi: CsiVolume | None = None
    ephemeral: EphemeralVolume | None = None
    image: ImageVolume | None = None
