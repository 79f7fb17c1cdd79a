"""Conversion between NRI messages and pinning values. Pure."""

from __future__ import annotations

from plimsoll.drivers.cpu.pinning.container_table import ContainerChange
from plimsoll.drivers.cpu.pinning.plan import ContainerEnv, ContainerView, DesiredCpuset, PinFault, read_env
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.edits import update

#: State of a stopped container.
STOPPED = 4
_POD_LABEL = "io.kubernetes.pod"


def decode_container(
    container: nri.Container, pod: nri.PodSandbox | None = None, *, running: bool = True
) -> ContainerView:
    """Decode a container; without a pod in the message its labels identify the pod."""
    env_claims = read_env(container.env)
    malformed = env_claims.detail if isinstance(env_claims, PinFault) else ""
    if isinstance(env_claims, PinFault):
        env_claims = ContainerEnv()
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
        claims=env_claims.claims,
        running=running,
        cpus=cpu.cpus,
        mems=cpu.mems,
        quota=cpu.quota.value if cpu.HasField("quota") else 0,
        requests=env_claims.requests,
        malformed=malformed,
        sandbox=container.pod_sandbox_id,
        pid=container.pid,
    )


def encode_cpuset(desired: DesiredCpuset) -> nri.LinuxResources:
    """Encode a desired cpuset; unset fields change nothing."""
    cpu = nri.LinuxCPU(cpus=str(desired.cpus), mems=desired.mems)
    if desired.lift_quota:
        cpu.quota.value = -1
    return nri.LinuxResources(cpu=cpu)


def encode_update(change: ContainerChange, *, report_failure: bool = True) -> nri.ContainerUpdate:
    """Encode an update of another container; `report_failure` makes its failure matter to the runtime."""
    return update(change.view.id, encode_cpuset(change.desired), ignore_failure=not report_failure)
