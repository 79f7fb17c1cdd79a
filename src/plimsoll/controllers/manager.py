"""Controller manager: all controllers in one process.

No controller acts before the caches of all of them have synced. Stopping at any time and starting again ends
in the same state as never having stopped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from plimsoll.client.client import Client
from plimsoll.client.discovery import Served, discover
from plimsoll.client.endpoints import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_POOL_STATUS_REQUESTS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICE_ACCOUNTS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    Endpoint,
)
from plimsoll.client.informer import Informer
from plimsoll.client.leader_election import Election
from plimsoll.common.clock import Clock, SystemClock
from plimsoll.controllers.context import ControllerContext, ControllerSettings
from plimsoll.controllers.controller import Controller, run_controller
from plimsoll.controllers.cron_job.controller import CronJobController
from plimsoll.controllers.daemon_set.controller import DaemonSetController
from plimsoll.controllers.deployment.controller import DeploymentController
from plimsoll.controllers.device_taint_eviction.controller import DeviceTaintEvictionController
from plimsoll.controllers.disruption import DisruptionController
from plimsoll.controllers.endpoint_slice import EndpointSliceController
from plimsoll.controllers.ephemeral_volume import EphemeralVolumeController
from plimsoll.controllers.garbage_collector.controller import GarbageCollector
from plimsoll.controllers.job.controller import JobController
from plimsoll.controllers.namespace import NamespaceController
from plimsoll.controllers.node_lifecycle import NodeLifecycleController
from plimsoll.controllers.persistent_volume.controller import PersistentVolumeController
from plimsoll.controllers.persistent_volume.host_path import HostPathProvisioner
from plimsoll.controllers.persistent_volume.protection import (
    ClaimProtectionController,
    VolumeProtectionController,
)
from plimsoll.controllers.pod_gc import PodGCController
from plimsoll.controllers.pod_group_protection import PodGroupProtectionController
from plimsoll.controllers.replica_set import ReplicaSetController, ReplicationControllerController
from plimsoll.controllers.resource_claim.controller import ResourceClaimController
from plimsoll.controllers.resource_pool_status import ResourcePoolStatusController
from plimsoll.controllers.resource_quota import ResourceQuotaController
from plimsoll.controllers.root_ca_publisher import RootCAPublisher
from plimsoll.controllers.service_account import ServiceAccountController
from plimsoll.controllers.shared_informers import VIEWS, SharedInformers
from plimsoll.controllers.stateful_set.controller import StatefulSetController
from plimsoll.controllers.taint_eviction import TaintEvictionController
from plimsoll.controllers.ttl_after_finished import TTLAfterFinishedController
from plimsoll.errors import ApiError, InputError

_log = logging.getLogger("plimsoll.controllers")
#: Longest delay between two attempts at API discovery.
_LONGEST_DELAY = 30.0


#: Controllers by their names in kube-controller-manager (except the last), with the kinds they require.
KINDS: Mapping[str, tuple[Callable[[ControllerContext], Controller], tuple[Endpoint, ...]]] = {
    ResourceClaimController.name: (
        ResourceClaimController,
        (PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES),
    ),
    DeviceTaintEvictionController.name: (
        DeviceTaintEvictionController,
        (PODS, RESOURCE_CLAIMS, RESOURCE_SLICES),
    ),
    GarbageCollector.name: (GarbageCollector, ()),
    NamespaceController.name: (NamespaceController, (NAMESPACES,)),
    NodeLifecycleController.name: (NodeLifecycleController, (NODES, PODS, LEASES)),
    PodGCController.name: (PodGCController, (NODES, PODS)),
    PodGroupProtectionController.name: (PodGroupProtectionController, (PODS, POD_GROUPS)),
    ResourcePoolStatusController.name: (
        ResourcePoolStatusController,
        (RESOURCE_POOL_STATUS_REQUESTS, RESOURCE_SLICES, RESOURCE_CLAIMS),
    ),
    ResourceQuotaController.name: (ResourceQuotaController, (RESOURCE_QUOTAS,)),
    RootCAPublisher.name: (RootCAPublisher, (NAMESPACES, CONFIG_MAPS)),
    ServiceAccountController.name: (ServiceAccountController, (NAMESPACES, SERVICE_ACCOUNTS)),
    TaintEvictionController.name: (TaintEvictionController, (NODES, PODS)),
    ReplicaSetController.name: (ReplicaSetController, (PODS, REPLICA_SETS)),
    ReplicationControllerController.name: (
        ReplicationControllerController,
        (PODS, REPLICATION_CONTROLLERS),
    ),
    DeploymentController.name: (DeploymentController, (PODS, REPLICA_SETS, DEPLOYMENTS)),
    StatefulSetController.name: (
        StatefulSetController,
        (PODS, STATEFUL_SETS, CONTROLLER_REVISIONS, PERSISTENT_VOLUME_CLAIMS),
    ),
    DaemonSetController.name: (DaemonSetController, (NODES, PODS, DAEMON_SETS, CONTROLLER_REVISIONS)),
    JobController.name: (JobController, (PODS, JOBS)),
    CronJobController.name: (CronJobController, (JOBS, CRON_JOBS)),
    TTLAfterFinishedController.name: (TTLAfterFinishedController, (JOBS,)),
    DisruptionController.name: (
        DisruptionController,
        (
            PODS,
            POD_DISRUPTION_BUDGETS,
            REPLICA_SETS,
            REPLICATION_CONTROLLERS,
            STATEFUL_SETS,
            DEPLOYMENTS,
        ),
    ),
    EndpointSliceController.name: (EndpointSliceController, (NODES, PODS, SERVICES, ENDPOINT_SLICES)),
    PersistentVolumeController.name: (
        PersistentVolumeController,
        (PODS, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES),
    ),
    ClaimProtectionController.name: (ClaimProtectionController, (PODS, PERSISTENT_VOLUME_CLAIMS)),
    VolumeProtectionController.name: (VolumeProtectionController, (PERSISTENT_VOLUMES,)),
    EphemeralVolumeController.name: (EphemeralVolumeController, (PODS, PERSISTENT_VOLUME_CLAIMS)),
    HostPathProvisioner.name: (
        HostPathProvisioner,
        (NODES, PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS, STORAGE_CLASSES),
    ),
}
NAMES: tuple[str, ...] = tuple(KINDS)


class ControllerManager:
    """Runner of controllers against one API server, embedded or kube-apiserver.

    With an `election` the controllers run only while it is won, so that several processes can stand by.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock | None = None,
        only: Iterable[str] | None = None,
        settings: ControllerSettings | None = None,
        served: Iterable[Served] | None = None,
        election: Election | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._settings = settings or ControllerSettings()
        self._served = None if served is None else tuple(served)
        self._names = list(NAMES) if only is None else choose_controllers(only)
        self._election = election
        self._ready = asyncio.Event()
        #: Running controllers, once started.
        self.controllers: list[Controller] = []
        self.informers = SharedInformers(client, self._clock.sleep)

    async def start(self) -> None:
        """Create the controllers with empty caches; `run` calls this first."""
        served = self._served if self._served is not None else tuple(await self._discover())
        self.informers = SharedInformers(self._client, self._clock.sleep)
        context = ControllerContext(
            client=self._client,
            clock=self._clock,
            informers=self.informers,
            settings=self._settings,
            served=served,
            rediscover=self._rediscover,
            watches_all=GarbageCollector.name in self._names or ResourceQuotaController.name in self._names,
        )
        self.controllers = []
        for name in self._names:
            make, needs = KINDS[name]
            missing = [endpoint.plural for endpoint in needs if not context.serves(endpoint)]
            if missing:
                _log.warning("%s is disabled: the API server does not serve %s", name, ", ".join(missing))
            else:
                self.controllers.append(make(context))

    async def run(self) -> None:
        """Run all controllers until cancelled."""
        if self._election is None:
            await self._lead()
        else:
            await self._election.run(self._lead)

    async def ready(self) -> None:
        """Wait until all caches have synced and all controllers run."""
        await self._ready.wait()

    async def _lead(self) -> None:
        await self.start()
        try:
            async with asyncio.TaskGroup() as group:
                for informer in self.informers.all():
                    group.create_task(informer.run())
                await asyncio.gather(*map(self._await_synced, self.informers.all()))
                for controller in self.controllers:
                    group.create_task(run_controller(controller))
                self._ready.set()
        finally:
            self._ready.clear()

    async def _await_synced(self, informer: Informer[Any]) -> None:
        """Wait for a cache to sync; for kinds that are only counted and collected, with a timeout."""
        endpoint = informer.endpoint
        if (endpoint.group, endpoint.plural) in VIEWS:
            await informer.synced()
            return
        try:
            await informer.synced(self._settings.sync_timeout)
        except ApiError as error:
            _log.warning("continuing without %s, which cannot be listed: %s", endpoint.plural, error)

    async def _rediscover(self) -> Sequence[Served]:
        return await discover(self._client) if self._served is None else self._served

    async def _discover(self) -> list[Served]:
        failures = 0
        while True:
            try:
                return await discover(self._client)
            except ApiError as error:
                failures += 1
                delay = min(_LONGEST_DELAY, 0.1 * 2 ** min(failures, 16))
                _log.warning("API discovery failed: %s; retrying in %.1f s", error, delay)
                await self._clock.sleep(delay)


def choose_controllers(wanted: Iterable[str]) -> list[str]:
    """Return the controllers that a list selects: `*` for all, NAME, and -NAME to leave one out."""
    entries = [entry.strip() for entry in wanted]
    added = {entry for entry in entries if entry != "*" and not entry.startswith("-")}
    removed = {entry[1:] for entry in entries if entry.startswith("-")}
    for name in (*added, *removed):
        if name not in KINDS:
            raise InputError(f"unknown controller {name!r}; valid controllers: {', '.join(NAMES)}")
    return [name for name in NAMES if name in added or ("*" in entries and name not in removed)]
