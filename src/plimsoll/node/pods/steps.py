"""Steps of a pod's lifecycle with side effects: claims, sandbox, containers.

Performs the steps; `worker.py` decides when. A failed step returns a RuntimeFault with the reason and message
shown in statuses and events; nothing here raises for responses of drivers, runtimes or the API.
"""

from __future__ import annotations

import asyncio
import time
from functools import reduce

from plimsoll.api import codec
from plimsoll.api.core import Container, Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import RESOURCE_CLAIMS
from plimsoll.errors import InputError
from plimsoll.node.cgroup_planner import PodCgroupPlans
from plimsoll.node.containers import ContainerSpec, RuntimeFault, SandboxSpec, VolumeMount
from plimsoll.node.pods.dependencies import WorkerDependencies
from plimsoll.node.pods.environment import CONFIG_ERROR, build_environment
from plimsoll.node.pods.pod_state import CreateContainer
from plimsoll.node.pods.volumes import (
    FAILED_MOUNT,
    TOKEN_NOT_MOUNTED,
    describe_missing,
    describe_token,
    missing_volumes,
)
from plimsoll.node.pods.writer import WARNING
from plimsoll.node.security.credentials import ProcessCredentials
from plimsoll.protocols.cdi import Edits

#: Reason of the event for an ephemeral container on a simulated node.
UNSUPPORTED_EPHEMERAL = "UnsupportedEphemeralContainer"
#: Reason of the event for a container started without unsupported fields of its security context.
UNSUPPORTED_SECURITY = "UnsupportedSecurityContext"
PREPARE_FAILED = "FailedPrepareDynamicResources"
SANDBOX_FAILED = "FailedCreatePodSandBox"
#: The kubelet's reason for a pod whose devices cannot be allocated.
DEVICES_FAILED = "UnexpectedAdmissionError"


async def read_claims(pod: Pod, deps: WorkerDependencies) -> dict[str, ResourceClaim] | RuntimeFault:
    """Read the claims of a pod by pod-local name, as far as they have been created."""
    claims: dict[str, ResourceClaim] = {}
    for local_name, name in resolve_claim_names(pod).items():
        try:
            async with asyncio.timeout(deps.timing.reading):
                tree = await deps.objects.get(RESOURCE_CLAIMS, name, pod.metadata.namespace)
            claims[local_name] = codec.decode(codec.encode(tree), ResourceClaim)
        except TimeoutError:
            return _prepare_fault(f"fetch ResourceClaim {name}: the API server does not respond")
        except InputError as error:
            return _prepare_fault(f"fetch ResourceClaim {name}: {error}")
    return claims


async def set_up_volumes(pod: Pod, deps: WorkerDependencies) -> RuntimeFault | None:
    """Set up the volumes of a pod; retried like any other mount."""
    fault = check_volumes(pod, deps)
    if fault is not None or deps.volumes is None or not deps.runtime.volume_types:
        return fault
    problem = await deps.volumes.set_up(pod)
    return RuntimeFault(FAILED_MOUNT, problem) if problem else None


def check_volumes(pod: Pod, deps: WorkerDependencies) -> RuntimeFault | None:
    """Return a fault for a pod with volumes that the runtime cannot provide; retried like any other mount."""
    missing = missing_volumes(pod, deps.runtime.volume_types)
    unsupported = [volume for volume in missing if not volume.added]
    if unsupported:
        return RuntimeFault(FAILED_MOUNT, describe_missing(unsupported, deps.runtime.name))
    for volume in missing:
        text = describe_token(volume, deps.runtime.name)
        deps.events.emit(pod, TOKEN_NOT_MOUNTED, text, type=WARNING)
    return None


async def prepare_claims(pod: Pod, deps: WorkerDependencies) -> RuntimeFault | None:
    """Prepare a pod's claims; drivers that have responded before are not called."""
    start = time.monotonic()
    fault = await _prepare_claims(pod, deps)
    deps.observe("PrepareResources", time.monotonic() - start, fault is not None)
    return fault


async def _prepare_claims(pod: Pod, deps: WorkerDependencies) -> RuntimeFault | None:
    claims = await read_claims(pod, deps)
    if isinstance(claims, RuntimeFault):
        return claims
    # The cache knows which claims the pod requires, including those that are not created yet.
    faults = await deps.claim_cache.prepare(pod, claims)
    if faults:
        holders = frozenset(fault.holder for fault in faults if fault.holder)
        return _prepare_fault("; ".join(dict.fromkeys(fault.message for fault in faults)), holders)
    return None


def _prepare_fault(message: str, waits_for: frozenset[str] = frozenset()) -> RuntimeFault:
    text = f"Failed to prepare dynamic resources: prepare dynamic resources: {message}"
    return RuntimeFault(PREPARE_FAILED, text, waits_for)


async def allocate_devices(pod: Pod, deps: WorkerDependencies) -> RuntimeFault | None:
    """Allocate the devices of device plugins that a pod has not yet got."""
    problem = await deps.devices.allocate(pod) if deps.devices is not None else ""
    return RuntimeFault(DEVICES_FAILED, problem) if problem else None


async def announce_start(uid: str, container: str, deps: WorkerDependencies) -> RuntimeFault | None:
    """Announce the start of a container to the device plugins that require it."""
    problem = await deps.devices.announce_start(uid, container) if deps.devices is not None else ""
    return RuntimeFault(CONFIG_ERROR, problem) if problem else None


async def release_claims(pod: Pod, deps: WorkerDependencies) -> RuntimeFault | None:
    """Release a pod's devices and claims, after its containers are gone."""
    if deps.devices is not None:
        await deps.devices.release(pod.metadata.uid)
    start, uid = time.monotonic(), pod.metadata.uid
    if (
        deps.claim_cache.needs_rebuild
        and resolve_claim_names(pod)
        and not deps.claim_cache.claims_of_pod(uid)
    ):
        # The checkpoint was lost, and this pod ends before the cache is rebuilt. Once the pod is gone,
        # its claims are unknown, and drivers would hold them forever.
        claims = await read_claims(pod, deps)
        if not isinstance(claims, RuntimeFault):
            await deps.claim_cache.prepare(pod, claims)
    faults = await deps.claim_cache.unprepare(uid)
    deps.observe("UnprepareResources", time.monotonic() - start, bool(faults))
    if not faults:
        return None
    text = "; ".join(dict.fromkeys(fault.message for fault in faults))
    return RuntimeFault("FailedUnprepareDynamicResources", f"unprepare dynamic resources: {text}")


def sandbox_spec(pod: Pod, plans: PodCgroupPlans) -> SandboxSpec:
    meta = pod.metadata
    return SandboxSpec(
        uid=meta.uid,
        name=meta.name,
        namespace=meta.namespace,
        qos=plans.qos,
        labels=meta.labels,
        annotations=meta.annotations,
        plan=plans.pod,
        sandbox=plans.sandbox,
    )


async def make_sandbox(pod: Pod, deps: WorkerDependencies, *, stale: bool) -> RuntimeFault | None:
    """Create a pod's sandbox, replacing a stale one."""
    if stale:
        await deps.runtime.stop_sandbox(pod.metadata.uid)
    fault = await deps.runtime.run_sandbox(sandbox_spec(pod, deps.plans.plan(pod)))
    if fault is None:
        return None
    return RuntimeFault(SANDBOX_FAILED, f"Failed to create pod sandbox: {fault.message}")


async def build_container_spec(
    pod: Pod, action: CreateContainer, deps: WorkerDependencies
) -> ContainerSpec | RuntimeFault:
    """Build the specification of a container to create."""
    container = action.container
    uid = pod.metadata.uid
    if container in pod.spec.ephemeral_containers and not deps.runtime.runs_processes:
        text = f"ephemeral container {container.name} runs no process: the node is simulated"
        deps.events.emit(pod, UNSUPPORTED_EPHEMERAL, text, type=WARNING, container=container.name)
    credentials = check_security(pod, container, deps)
    if isinstance(credentials, RuntimeFault):
        return credentials
    ips = tuple(s.ip for s in deps.runtime.sandboxes() if s.uid == uid and s.ip)
    facts = deps.facts()
    try:
        async with asyncio.timeout(deps.timing.reading):
            environment = await build_environment(
                pod,
                container,
                deps.objects,
                facts,
                facts.host_ips if pod.spec.host_network else ips,
                deps.services,
            )
    except TimeoutError:
        return RuntimeFault(CONFIG_ERROR, "the API server does not respond")
    if isinstance(environment, RuntimeFault):
        return environment
    volumes: tuple[VolumeMount, ...] = ()
    if deps.volumes is not None and deps.runtime.volume_types:
        fault = await set_up_volumes(pod, deps)
        if fault is not None:
            return fault
        try:
            volumes = tuple(await asyncio.to_thread(deps.volumes.mounts, pod, container, environment.env))
        except (InputError, OSError) as error:
            return RuntimeFault(CONFIG_ERROR, f"failed to prepare volumes of {container.name}: {error}")
    if not _is_prepared(pod, container, deps):
        # The sandbox is older than the claim checkpoint, which was lost or written by a kubelet.
        fault = await prepare_claims(pod, deps)
        if fault is not None:
            return fault
        if not _is_prepared(pod, container, deps):
            return RuntimeFault(CONFIG_ERROR, _format_unknown_claim(pod, container))
    fault = await allocate_devices(pod, deps)  # again, if the sandbox is older than their checkpoint
    if fault is not None:
        return fault
    devices = deps.devices.of_container(uid, container.name) if deps.devices is not None else ()
    plan = deps.plans.plan(pod).containers.get(container.name)
    if plan is None:
        return RuntimeFault(CONFIG_ERROR, f"container {container.name} has no plan")
    fault = await announce_start(uid, container.name, deps)
    if fault is not None:
        return fault
    return ContainerSpec(
        id=deps.new_id(),
        pod=uid,
        name=container.name,
        attempt=action.attempt,
        image=container.image,
        command=environment.command,
        working_dir=container.working_dir,
        # The pod's own variables win, as with a kubelet.
        env={**{k: v for each in devices for k, v in each.env.items()}, **environment.env},
        cdi=(*deps.claim_cache.cdi_ids(pod, container), *(id for each in devices for id in each.cdi)),
        edits=reduce(Edits.plus, (each.edits for each in devices), Edits()),
        annotations={k: v for each in devices for k, v in each.annotations.items()},
        volumes=volumes,
        message_path=container.termination_message_path if deps.runtime.volume_types else "",
        message_from_log=container.termination_message_policy == "FallbackToLogsOnError",
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        credentials=credentials,
        plan=plan,
    )


async def lift_cpu_quota(pod: Pod, spec: ContainerSpec, deps: WorkerDependencies) -> RuntimeFault | None:
    """Remove the CPU quota of a created container and its pod if hooks gave the container exclusive CPUs.

    Hooks assign CPUs while a container is created, and its plan is older.
    """
    plans = deps.plans.plan(pod)
    plan = plans.containers[spec.name]
    if plan.cpu_quota == spec.plan.cpu_quota:
        return None
    fault = await deps.runtime.update_sandbox(sandbox_spec(pod, plans))  # first: no child may have more
    return fault or await deps.runtime.update(spec.id, plan)


def check_security(
    pod: Pod, container: Container, deps: WorkerDependencies
) -> ProcessCredentials | RuntimeFault | None:
    """Return the credentials of a container, or why it must not start; None if nothing runs in it."""
    if deps.security is None:
        return None
    verdict = deps.security.check(pod, container)
    if verdict.credentials is None:
        return RuntimeFault(CONFIG_ERROR, verdict.refusal)
    if verdict.warning:
        emit = deps.events.emit
        emit(pod, UNSUPPORTED_SECURITY, verdict.warning, type=WARNING, container=container.name)
    return verdict.credentials


def _is_prepared(pod: Pod, container: Container, deps: WorkerDependencies) -> bool:
    claims = deps.claim_cache.claims_of_container(pod, container)
    return claims is not None and all(claim.ready for claim in claims)


def _format_unknown_claim(pod: Pod, container: Container) -> str:
    names = resolve_claim_names(pod)
    claims = ", ".join(names.get(claim.name, claim.name) for claim in container.resources.claims)
    return f"unable to get claim info for claim {claims} in namespace {pod.metadata.namespace}"
