"""Construction of an agent from its settings.

A bare node only keeps state: no sockets, no files, and planned cgroups. A node with runtime `none` has
sockets for drivers and monitoring agents, so that drivers can be tested without containers; those with
runtimes `process` and `cri` run everything for real.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TypeAlias

from plimsoll.api.core import Node, NodeAddress, Pod
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.api.meta import ObjectReference
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import OPTIONAL_NODE_OPERATIONS
from plimsoll.client import Client
from plimsoll.common.checkpoint import RecordFile
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.node.admission.admission_handler import KIND, AdmissionHandler
from plimsoll.node.admission.resize_manager import ResizeManager
from plimsoll.node.agent import Agent
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans.conversions import format_page_size
from plimsoll.node.cgroup_plans.settings import CgroupSettings
from plimsoll.node.cgroups import Cgroups, open_cgroups
from plimsoll.node.cgroups.ownership import RootMark
from plimsoll.node.cgroups.watch import CgroupWatch
from plimsoll.node.claim_info import ClaimRef, Devices, DriverFault
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.components import Components
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.device_plugins import DeviceManager
from plimsoll.node.eviction.local_storage import LocalStorageEviction
from plimsoll.node.eviction.manager import EvictionManager, EvictionSettings, NodeStats
from plimsoll.node.eviction.usage import measure_node
from plimsoll.node.exclusive_cpus import containers_with_claimed_cpus
from plimsoll.node.kubelet_api.service import KubeletApi
from plimsoll.node.layout import Layout
from plimsoll.node.machine.machine import Machine
from plimsoll.node.nri import NriServer
from plimsoll.node.plugins import PluginManager
from plimsoll.node.plugins.metrics import DraMetrics
from plimsoll.node.podresources import PodResourcesServer
from plimsoll.node.podresources.provider import PodResourcesProvider
from plimsoll.node.pods.command_runner import HostCommandRunner, RuntimeCommandRunner
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.downward_fields import DownwardNodeInfo
from plimsoll.node.pods.service_reader import ServiceReader
from plimsoll.node.pods.writer import PodEvents, StatusWriter
from plimsoll.node.process.metrics import NodeMetrics
from plimsoll.node.process.settings import NodeSettings
from plimsoll.node.runtime.cri.runtime import CriRuntime
from plimsoll.node.runtime.process import ProcessRuntime, ProcessSettings
from plimsoll.node.runtime.simulated import SimulatedRuntime
from plimsoll.node.security.policy import SecurityPolicy
from plimsoll.node.slice_cleaner import SliceCleaner
from plimsoll.node.status.readiness import Readiness
from plimsoll.node.status.reporter import NodeStatusReporter
from plimsoll.node.volumes.manager import VolumeManager
from plimsoll.protocols.cdi import CdiCache

AnyRuntime: TypeAlias = SimulatedRuntime | ProcessRuntime | CriRuntime
#: CDI directories of the machine, lowest priority first.
CDI_SPEC_DIRS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_FORM_GATES = {
    # Features a kubelet of this version declares, by the gate each depends on.
    Form.V1_36: ("InPlacePodLevelResourcesVerticalScaling",),
    Form.V1_37: (
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "InPlacePodLevelResourcesVerticalScaling",
    ),
}


def make_agent(
    client: Client,
    settings: NodeSettings,
    name: str,
    machine: Machine,
    metrics: NodeMetrics,
    *,
    runtime: SimulatedRuntime | None = None,
    available: Callable[[], NodeStats] | None = None,
) -> Agent:
    """Build the agent of a node, ready to be started.

    A simulated `runtime` that outlives its agents stands for a machine that does; `available` can simulate
    the resource usage of a simulated machine.
    """
    return _AgentBuilder(client, settings, name, machine, metrics).build(runtime, available)


def declared_features(gates: Gates, form: Form) -> tuple[str, ...]:
    """Return the features a node declares."""
    return tuple(name for name in _FORM_GATES.get(form, ()) if gates.enabled(name))


def reported_version(form: Form) -> str:
    """Return the kubelet version a node reports: the Kubernetes release it follows, and Plimsoll's."""
    return f"v{form.value}.0+plimsoll.{version('plimsoll').replace('+', '.')}"


class _NoDrivers:
    """Drivers of a bare node, which has no sockets for drivers."""

    async def prepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, Devices | DriverFault]:
        return {claim.uid: () for claim in claims}

    async def unprepare(self, driver: str, claims: Sequence[ClaimRef]) -> Mapping[str, DriverFault | None]:
        return dict.fromkeys(claim.uid for claim in claims)


class _AgentBuilder:
    """Builder of one agent."""

    def __init__(
        self, client: Client, settings: NodeSettings, name: str, machine: Machine, metrics: NodeMetrics
    ) -> None:
        self.client = client
        self.settings = settings
        self.name = name
        self.metrics = metrics
        #: Socket metrics are registered for a single node only: they have no node label.
        self.registry = metrics.registry if settings.count == 1 else None
        self.bare = settings.is_bare
        self.layout: Layout = settings.layout(name)
        self.agent: Agent | None = None
        self.events = PodEvents(client, name)
        addresses = settings.addresses or machine.addresses
        if not any(address.type == "InternalIP" for address in addresses):
            addresses = (NodeAddress(type="InternalIP", address="127.0.0.1"), *addresses)
        self.status_reporter = NodeStatusReporter(
            client,
            name,
            machine,
            reservations=settings.reservations,
            labels=settings.labels,
            taints=settings.taints,
            addresses=addresses,
            version=reported_version(settings.form),
            features=declared_features(settings.gates, settings.form),
            timing=settings.timing,
            changed=self._node_changed,
            emit_event=None if self.bare else self._node_event,
            watched=True,
        )
        self.readiness = Readiness(self.status_reporter.set_ready)
        record = None
        if not self.bare:
            record = RecordFile(self.layout.admitted, KIND, self.layout.quarantine)
        self.admission_handler = AdmissionHandler(
            self.status_reporter.node, gates=settings.gates, profile=choose_profile(settings), record=record
        )

    def build(
        self, kept_runtime: SimulatedRuntime | None = None, available: Callable[[], NodeStats] | None = None
    ) -> Agent:
        settings, machine, intervals = self.settings, self.status_reporter.machine, self.settings.intervals
        cgroups = self._cgroups()
        mark = RootMark(self.layout.root)
        cdi = CdiCache(settings.cdi or (*CDI_SPEC_DIRS, self.layout.cdi))
        runtime = kept_runtime or self._runtime(cgroups, cdi)
        self.status_reporter.set_runtime(f"{runtime.name}://{runtime.version}")
        plugins = None
        dra_metrics = DraMetrics()
        if self.registry is not None:
            self.registry.register(dra_metrics)
        if not self.bare:
            plugins = PluginManager(self.layout, times=intervals.plugins, metrics=dra_metrics)
        device_manager = None if self.bare else DeviceManager(self.layout)
        claim_cache = ClaimInfoCache.open(
            self.layout,
            plugins or _NoDrivers(),
            save=not self.bare,
            optional_operations=OPTIONAL_NODE_OPERATIONS in declared_features(settings.gates, settings.form),
            metrics=dra_metrics,
        )
        cgroup_planner = CgroupPlanner(
            CgroupSettings(
                memory_capacity=max(1, machine.memory),
                form=settings.form,
                count_claims=settings.gates.enabled("DRANodeAllocatableResources"),
                claims_in_qos=settings.gates.enabled("DRANodeAllocatableResourcesQoS"),
                pod_level=settings.gates.enabled("PodLevelResources"),
                allocatable_memory=self.status_reporter.facts.allocatable_amounts["memory"].value(),
                cgroup_version=cgroups.version or 2,
                huge_page_sizes=_page_sizes(machine),
            ),
            exclusive=lambda pod: containers_with_claimed_cpus(pod, runtime.containers()),
        )
        pod_resources_provider = PodResourcesProvider(
            lambda: self._agent().pods(),
            lambda pod: self._agent().is_active(pod),
            claim_cache,
            runtime,
            lambda: self.status_reporter.machine,
            settings.reservations,
            devices=device_manager,
            memory_nodes=lambda: _memory_nodes(runtime),
        )
        worker_deps = WorkerDependencies(
            runtime=runtime,
            claim_cache=claim_cache,
            plans=cgroup_planner,
            objects=self.client,
            writer=StatusWriter(
                self.client, retry_first=intervals.status_first, retry_max=intervals.status_max
            ),
            events=self.events,
            timing=intervals.pods,
            facts=self._facts,
            resizer=ResizeManager(self.admission_handler),
            devices=device_manager,
            usage=cgroups.usage,
            skip_probes=settings.runtime == "none",
        )
        volumes: VolumeManager | None = None
        if isinstance(runtime, ProcessRuntime):
            own = runtime
            worker_deps.commands = HostCommandRunner(own.exec_spec, lambda: own.exec_program)
            worker_deps.security = SecurityPolicy(settings.on_unsupported_security)
        if isinstance(runtime, CriRuntime):
            worker_deps.commands = RuntimeCommandRunner(runtime.execute)
        if runtime.runs_processes:
            volumes = VolumeManager(self.layout, self.client, self._facts)
            worker_deps.volumes = volumes
            direct = isinstance(runtime, ProcessRuntime)
            worker_deps.services = ServiceReader(self.client, direct=direct)
        if plugins is not None:
            worker_deps.health = plugins.health
            worker_deps.observe = plugins.metrics.operation
        self.agent = Agent(
            Components(
                status_reporter=self.status_reporter,
                admission_handler=self.admission_handler,
                claim_cache=claim_cache,
                runtime=runtime,
                cgroups=cgroups,
                cgroup_planner=cgroup_planner,
                worker_deps=worker_deps,
                pod_resources_provider=pod_resources_provider,
                plugins=plugins,
                device_manager=device_manager,
                slice_cleaner=self._slice_cleaner() if plugins is not None else None,
                nri=self._nri(runtime),
                pod_resources=self._pod_resources(pod_resources_provider),
                eviction_manager=self._eviction_manager(cgroups, available),
                local_storage=self._local_storage(runtime, volumes),
                mark=mark,
                cgroup_watch=self._cgroup_watch(cgroups, runtime, mark),
                kubelet_api=self._kubelet_api(runtime, cgroups),
                volumes=volumes,
            ),
            housekeeping_seconds=intervals.housekeeping,
            preemption_seconds=intervals.preemption,
        )
        return self.agent

    # -- components

    def _cgroups(self) -> Cgroups:
        want = "plan" if self.settings.runtime == "none" else self.settings.cgroups
        root, owner = self.settings.cgroups_of(self.name)
        return open_cgroups(root, want=want, owner=owner, driver=self.settings.cgroup_driver)

    def _cgroup_watch(self, cgroups: Cgroups, runtime: AnyRuntime, mark: RootMark) -> CgroupWatch | None:
        if isinstance(runtime, SimulatedRuntime) or not cgroups.version:
            return None
        return CgroupWatch(
            self.name,
            cgroups,
            mark,
            restore_root=lambda: self._agent().restore_root(),
            restore=runtime.restore_cgroups,
            set_ready=self.readiness.source("cgroups"),
            emit=self._node_event,
            interval=self.settings.intervals.cgroups,
        )

    def _runtime(self, cgroups: Cgroups, cdi: CdiCache) -> AnyRuntime:
        ip = self.status_reporter.address or "127.0.0.1"
        if self.settings.runtime == "none":
            stages = self.settings.stages
            return SimulatedRuntime(cdi=None if self.bare else cdi, ip=ip, stages=stages)
        if self.settings.runtime == "cri":
            return CriRuntime(
                self.settings.cri,
                self.layout,
                cgroups,
                owner=self.settings.cgroups_of(self.name)[1],
                objects=self.client,
                find_pod=lambda uid: self._agent().find_pod(uid),
                plan=lambda pod: self._agent().components.cgroup_planner.plan(pod),
                node_ip=lambda: self.status_reporter.address,
                emit=self._pod_event,
                set_ready=self.readiness.source("runtime"),
            )
        images = {name: tuple(command) for name, command in self.settings.images.items()}
        return ProcessRuntime(
            self.layout, cgroups, cdi, settings=ProcessSettings(images=images, ip=ip, volumes=True)
        )

    def _nri(self, runtime: AnyRuntime) -> NriServer | None:
        socket = self.settings.nri if self.settings.nri is not None else self.layout.nri
        if self.bare or socket == Path("") or isinstance(runtime, CriRuntime):
            return None
        server = NriServer(
            socket,
            "plimsoll",
            version("plimsoll"),
            runtime.inventory,
            runtime.apply,
            config=self.settings.nri_config,
        )
        runtime.hooks = server
        return server

    def _kubelet_api(self, runtime: AnyRuntime, cgroups: Cgroups) -> KubeletApi | None:
        """Create the kubelet API; simulated pods have no logs and no processes."""
        settings = self.settings.kubelet_api
        if not settings.listen or isinstance(runtime, SimulatedRuntime):
            return None
        address = self.status_reporter.address
        return KubeletApi(
            settings, self.name, address, self.layout.pki, self.client, runtime, cgroups, self.metrics.expose
        )

    def _slice_cleaner(self) -> SliceCleaner:
        intervals = self.settings.intervals
        return SliceCleaner(
            self.client, self.name, grace_seconds=intervals.slices, retry_seconds=intervals.slices_retry
        )

    def _pod_resources(self, pod_resources_provider: PodResourcesProvider) -> PodResourcesServer | None:
        if self.bare:
            return None
        return PodResourcesServer(
            self.layout.pod_resources,
            pod_resources_provider,
            self.settings.gates,
            self.registry,
            self.settings.pod_resources,
        )

    def _eviction_manager(
        self, cgroups: Cgroups, available: Callable[[], NodeStats] | None
    ) -> EvictionManager | None:
        """Create the eviction manager; simulated pods use nothing that could run short."""
        if self.settings.runtime == "none" and available is None:
            return None
        gates = self.settings.gates
        return EvictionManager(
            available or (lambda: self._measure(cgroups)),
            lambda: self._agent().running(),
            lambda pod, eviction: self._agent().evict(pod, eviction),
            self.status_reporter.set_condition,
            settings=EvictionSettings(
                thresholds=self.settings.thresholds,
                interval=self.settings.intervals.pressure,
                count_claims=gates.enabled("DRANodeAllocatableResources"),
                pod_level=gates.enabled("PodLevelResources"),
            ),
            clock=time.time,
            reclaiming=lambda text: self._node_event("Warning", "EvictionThresholdMet", text),
        )

    def _local_storage(
        self, runtime: AnyRuntime, volumes: VolumeManager | None
    ) -> LocalStorageEviction | None:
        """Create the eviction for local storage; pods without processes have no files."""
        if volumes is None:
            return None
        return LocalStorageEviction(
            lambda: self._agent().running(),
            volumes.measure,
            runtime.container_storage,
            lambda pod, eviction: self._agent().evict(pod, eviction),
            interval=self.settings.intervals.pressure,
        )

    async def _measure(self, cgroups: Cgroups) -> NodeStats:
        """Measure the resource usage of the node and its pods, in a thread."""
        agent, machine = self._agent(), self.status_reporter.machine
        uids = [pod.metadata.uid for pod in agent.running()]
        running = {uid: tuple(agent.components.runtime.containers(uid)) for uid in uids}
        rest = machine.memory - self.settings.reservations.of("memory").value()
        return await asyncio.to_thread(
            measure_node, cgroups, running, directory=self.layout.root, pods_memory=max(0, rest)
        )

    # -- callbacks between components

    def _agent(self) -> Agent:
        assert self.agent is not None, "the agent is not built yet"
        return self.agent

    def _node_changed(self, node: Node) -> None:
        self.admission_handler.set_node(node)

    def _node_event(self, type: str, reason: str, message: str) -> None:
        # In events the UID of a node is its name, as with a kubelet.
        regarding = ObjectReference(api_version="v1", kind="Node", name=self.name, uid=self.name)
        self.events.emit_for(regarding, reason, message, type=type)

    def _pod_event(self, pod: Pod, reason: str, message: str, type: str, container: str) -> None:
        self.events.emit(pod, reason, message, type=type, container=container)

    def _facts(self) -> DownwardNodeInfo:
        address = self.status_reporter.address
        return DownwardNodeInfo(
            self.name, (address,) if address else (), self.status_reporter.facts.allocatable_amounts
        )


def choose_profile(settings: NodeSettings) -> AccountingProfile:
    """Return the accounting rules of the gates, with the form's rules for resized pods."""
    return replace(AccountingProfile.for_gates(settings.gates), form=settings.form)


def _memory_nodes(runtime: AnyRuntime) -> dict[tuple[str, str], str]:
    """Return the NUMA nodes that containers get their memory from, by pod and name, where hooks set them."""
    if isinstance(runtime, CriRuntime):
        return runtime.memory_nodes()
    return {
        (container.state.pod, container.state.name): container.resources.mems
        for container in runtime.inventory().containers
        if container.resources.mems and container.state.phase is not ContainerPhase.EXITED
    }


def _page_sizes(machine: Machine) -> tuple[str, ...]:
    sizes = (format_page_size(Quantity.parse(size).value()) for size in machine.huge_pages)
    return tuple(size for size in sizes if size is not None)
