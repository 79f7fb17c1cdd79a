"""Containers as NRI tells of them, and changes as NRI wants them. Pure."""

from __future__ import annotations

from plimsoll.drivers.cpu.pinning.container_table import Change
from plimsoll.drivers.cpu.pinning.plan import ContainerView, PinFault, Told, Wanted, read_env
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.edits import update

#: The state of a container that has ended.
STOPPED = 4
_POD_LABEL = "io.kubernetes.pod"


def read_container(
    container: nri.Container, pod: nri.PodSandbox | None = None, *, running: bool = True
) -> ContainerView:
    """A container; its labels say whose it is where the runtime does not tell of the pod."""
    told = read_env(container.env)
    malformed = told.detail if isinstance(told, PinFault) else ""
    if isinstance(told, PinFault):
        told = Told()
    if pod is None or not pod.uid:
        labels = container.labels
        pod = nri.PodSandbox(
            uid=labels.get(f"{_POD_LABEL}.uid", ""),
            namespace=labels.get(f"{_POD_LABEL}.namespace", ""),
            name=labels.get(f"{_POD_LABEL}.name", ""),
        )
    cpu = container.linux.resources.cpu
    return ContainerView(
        id=container.id,
        pod_uid=pod.uid,
        namespace=pod.namespace,
        pod=pod.name,
        name=container.name,
        claims=told.claims,
        running=running,
        cpus=cpu.cpus,
        mems=cpu.mems,
        quota=cpu.quota.value if cpu.HasField("quota") else 0,
        requests=told.requests,
        malformed=malformed,
        sandbox=container.pod_sandbox_id,
        pid=container.pid,
    )


def write_wanted(wanted: Wanted) -> nri.LinuxResources:
    """What is wanted; fields that are not set change nothing."""
    cpu = nri.LinuxCPU(cpus=str(wanted.cpus), mems=wanted.mems)
    if wanted.lift_quota:
        cpu.quota.value = -1
    return nri.LinuxResources(cpu=cpu)


def write_change(change: Change, *, tell: bool = True) -> nri.ContainerUpdate:
    """A change of another container; whether a failure of it matters, or is to be told of."""
    return update(change.view.id, write_wanted(change.wanted), ignore_failure=not tell)
