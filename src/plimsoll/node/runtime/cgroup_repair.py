"""Repair of the cgroups of pods and containers: after a start, and after they were removed."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping

from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.containers import ContainerPhase
from plimsoll.node.runtime import shims
from plimsoll.node.runtime.container_process import ContainerProcess
from plimsoll.node.runtime.state_dir import PodRecord
from plimsoll.node.runtime.tasks import RuntimeTasks

_log = logging.getLogger("plimsoll.node")


def set_up_cgroups(
    cgroups: Cgroups, pods: Mapping[str, PodRecord], containers: Container[str]
) -> Iterator[str]:
    """Create the cgroups of known pods, also after a reboot; yield the problems.

    Cgroups of unknown pods and containers are removed with their processes.
    """
    for uid, pod in pods.items():
        if pod.running:
            for fault in cgroups.make_pod(uid, pod.spec.qos, pod.spec.plan):
                if not fault.absent:
                    yield f"pod {uid}: {fault}"
    for uid in cgroups.pods():
        if uid not in pods:
            cgroups.remove_pod(uid)
            continue
        for id in cgroups.containers(uid):
            if id not in containers:
                cgroups.remove_container(uid, id)


async def restore_cgroups(
    cgroups: Cgroups,
    pods: Mapping[str, PodRecord],
    containers: Mapping[str, ContainerProcess],
    tasks: RuntimeTasks,
) -> tuple[str, ...]:
    """Create removed cgroups of pods and containers again; return what was missing."""
    lost = []
    for uid, pod in list(pods.items()):
        # Changes of cgroups are serialized: if the pod is removed now, that follows this.
        known = pods.get(uid) is pod and pod.running
        if known and await tasks.call(restore_pod, cgroups, pod):
            lost.append(f"pod {uid}")
    for container in list(containers.values()):
        if container.busy.locked():
            continue  # it is being started or has exited; if needed, at the next check
        async with container.busy:
            exited = container.state.phase is ContainerPhase.EXITED
            if not exited and await tasks.call(restore_container, cgroups, container):
                lost.append(f"container {container.state.id}")
    return tuple(lost)


def restore_pod(cgroups: Cgroups, pod: PodRecord) -> bool:
    """Create the cgroup of a pod again if it was removed; return whether it was missing."""
    spec = pod.spec
    if not cgroups.is_lost(spec.uid):
        return False
    for fault in cgroups.make_pod(spec.uid, spec.qos, spec.plan):
        if not fault.absent:
            _log.warning("pod %s: %s", spec.uid, fault)
    return True


def restore_container(cgroups: Cgroups, container: ContainerProcess) -> bool:
    """Create the cgroup of a container again if it was removed; return whether it was missing.

    A running process is moved back. If that fails the container is killed, because nothing limits it any
    more, and restarted according to its restart policy.
    """
    pod, id = container.state.pod, container.state.id
    if not cgroups.is_lost(pod, id):
        return False
    problem = ""
    for fault in cgroups.make_container(pod, id, container.record.resources):
        if not fault.absent:
            problem = problem or str(fault)
    if container.run is not None and container.state.phase is ContainerPhase.RUNNING:
        problem = problem or shims.join(container.run.pid, cgroups.join_files(pod, id))
        if problem:
            _log.warning("killing container %s: its cgroup was removed: %s", id, problem)
            container.kill()
    return True
