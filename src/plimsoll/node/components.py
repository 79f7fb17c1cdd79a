"""Components of a node agent."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.node.admission.admission_handler import AdmissionHandler
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroups import Cgroups
from plimsoll.node.cgroups.ownership import RootMark
from plimsoll.node.cgroups.watch import CgroupWatch
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.containers import Runtime
from plimsoll.node.device_plugins import DeviceManager
from plimsoll.node.eviction.local_storage import LocalStorageEviction
from plimsoll.node.eviction.manager import EvictionManager
from plimsoll.node.kubelet_api.service import KubeletApi
from plimsoll.node.nri import NriServer
from plimsoll.node.plugins import PluginManager
from plimsoll.node.podresources import PodResourcesServer
from plimsoll.node.podresources.provider import PodResourcesProvider
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.slice_cleaner import SliceCleaner
from plimsoll.node.status.reporter import NodeStatusReporter
from plimsoll.node.volumes.manager import VolumeManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """Components of one agent; None for those that are disabled."""

    status_reporter: NodeStatusReporter
    admission_handler: AdmissionHandler
    claim_cache: ClaimInfoCache
    runtime: Runtime
    cgroups: Cgroups
    cgroup_planner: CgroupPlanner
    worker_deps: WorkerDependencies  #: dependencies shared by the pod workers
    pod_resources_provider: PodResourcesProvider
    mark: RootMark  #: ownership mark on the root cgroup
    plugins: PluginManager | None = None
    device_manager: DeviceManager | None = None
    slice_cleaner: SliceCleaner | None = None
    nri: NriServer | None = None
    pod_resources: PodResourcesServer | None = None
    eviction_manager: EvictionManager | None = None
    local_storage: LocalStorageEviction | None = None
    cgroup_watch: CgroupWatch | None = None
    kubelet_api: KubeletApi | None = None
    volumes: VolumeManager | None = None
