"""Conversion of pods and containers to NRI messages, and back. Pure.

`read_resources` expects messages that `checks` has validated.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.node.containers import ContainerInfo, ContainerPhase, ContainerSpec, SandboxSpec
from plimsoll.node.hooks import DeviceEdit, MountEdit
from plimsoll.node.resources import LinuxResources, resources_from_plan
from plimsoll.protocols.messages import nri

_PHASES = {
    ContainerPhase.CREATED: nri.CONTAINER_CREATED,
    ContainerPhase.RUNNING: nri.CONTAINER_RUNNING,
    ContainerPhase.EXITED: nri.CONTAINER_STOPPED,
}

# Labels and annotations of other runtimes' containers, which plugins read.
_CONTAINER_NAME = "io.kubernetes.container.name"
_POD_NAME = "io.kubernetes.pod.name"
_POD_NAMESPACE = "io.kubernetes.pod.namespace"
_POD_UID = "io.kubernetes.pod.uid"
_RESTARTS = "io.kubernetes.container.restartCount"


def write_resources(resources: LinuxResources) -> nri.LinuxResources:
    message = nri.LinuxResources(unified=dict(resources.unified))
    for wrapper, value in (
        (message.cpu.shares, resources.cpu_shares),
        (message.cpu.quota, resources.cpu_quota),
        (message.cpu.period, resources.cpu_period),
        (message.memory.limit, resources.memory_limit),
    ):
        if value is not None:
            wrapper.SetInParent()  # protobuf omits zero, which is a value here
            wrapper.value = value
    if resources.cpus:
        message.cpu.cpus = resources.cpus
    if resources.mems:
        message.cpu.mems = resources.mems
    if resources.pids is not None:
        message.pids.SetInParent()
        message.pids.limit = resources.pids
    for size, limit in sorted(resources.huge_pages.items()):
        message.hugepage_limits.add(page_size=size, limit=limit)
    return message


def read_resources(message: nri.LinuxResources) -> LinuxResources:
    cpu, memory = message.cpu, message.memory
    return LinuxResources(
        cpu_shares=cpu.shares.value if cpu.HasField("shares") else None,
        cpu_quota=cpu.quota.value if cpu.HasField("quota") else None,
        cpu_period=cpu.period.value if cpu.HasField("period") else None,
        cpus=cpu.cpus,
        mems=cpu.mems,
        memory_limit=memory.limit.value if memory.HasField("limit") else None,
        huge_pages={limit.page_size: limit.limit for limit in message.hugepage_limits},
        unified=dict(message.unified),
        pids=message.pids.limit if message.HasField("pids") else None,
    )


def write_pod(pod: SandboxSpec) -> nri.PodSandbox:
    """Build the message of a pod; its UID is also the ID of its sandbox."""
    resources = write_resources(resources_from_plan(pod.sandbox.resources))
    linux = nri.LinuxPodSandbox(resources=resources, pod_resources=resources)
    if pod.sandbox.overhead is not None:
        linux.pod_overhead.CopyFrom(write_resources(resources_from_plan(pod.sandbox.overhead)))
    return nri.PodSandbox(
        id=pod.uid,
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        linux=linux,
    )


def write_container(pod: SandboxSpec | None, spec: ContainerSpec, resources: LinuxResources) -> nri.Container:
    """Build the message of a container that is about to be created."""
    labels = {_CONTAINER_NAME: spec.name, _POD_UID: spec.pod}
    if pod is not None:
        labels |= {_POD_NAME: pod.name, _POD_NAMESPACE: pod.namespace}
    message = nri.Container(
        id=spec.id,
        pod_sandbox_id=spec.pod,
        name=spec.name,
        labels=labels,
        annotations={_RESTARTS: str(spec.attempt)},
        args=list(spec.command),
        env=[f"{key}={value}" for key, value in spec.env.items()],
        linux=nri.LinuxContainer(resources=write_resources(resources)),
        CDI_devices=[nri.CDIDevice(name=name) for name in spec.cdi],
        image=nri.Image(name=spec.image),
    )
    message.linux.oom_score_adj.SetInParent()
    message.linux.oom_score_adj.value = spec.plan.oom_score_adj
    return message


def write_state(message: nri.Container, state: ContainerInfo) -> nri.Container:
    """Set the current state in the message of a container."""
    message.state = _PHASES[state.phase]
    message.pid = max(0, state.pid)
    message.created_at = int(state.created_at * 1e9)
    message.started_at = int(state.started_at * 1e9)
    message.finished_at = int(state.finished_at * 1e9)
    message.exit_code = state.exit_code
    message.status_reason = state.reason
    message.status_message = state.message
    return message


def bare_container(state: ContainerInfo) -> nri.Container:
    """Build the message of a container of which only the state is known."""
    message = nri.Container(
        id=state.id,
        pod_sandbox_id=state.pod,
        name=state.name,
        labels={_CONTAINER_NAME: state.name, _POD_UID: state.pod},
        annotations={_RESTARTS: str(state.attempt)},
    )
    return write_state(message, state)


def read_env(message: nri.ContainerAdjustment) -> tuple[dict[str, str], frozenset[str]]:
    """Return the variables to set, and the variables to remove."""
    values: dict[str, str] = {}
    removed: set[str] = set()
    for variable in message.env:
        if variable.key.startswith("-"):
            removed.add(variable.key[1:])
        else:
            values[variable.key] = variable.value
    return values, frozenset(removed - values.keys())


def read_mounts(message: nri.ContainerAdjustment) -> tuple[MountEdit, ...]:
    return tuple(
        MountEdit(mount.source, mount.destination, mount.type, tuple(mount.options))
        for mount in message.mounts
        if not mount.destination.startswith("-")
    )


def read_devices(message: nri.ContainerAdjustment) -> tuple[DeviceEdit, ...]:
    return tuple(
        DeviceEdit(
            path=device.path,
            type=device.type,
            major=device.major,
            minor=device.minor,
            mode=device.file_mode.value if device.HasField("file_mode") else None,
            uid=device.uid.value if device.HasField("uid") else None,
            gid=device.gid.value if device.HasField("gid") else None,
        )
        for device in message.linux.devices
        if not device.path.startswith("-")
    )


def read_annotations(message: nri.ContainerAdjustment) -> Mapping[str, str]:
    return {key: value for key, value in message.annotations.items() if not key.startswith("-")}
