"""Pods and containers of a node as requests of the kubelet API name them.

Messages and status codes are the kubelet's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from plimsoll.api.core import Pod
from plimsoll.common.json_tree import branch, text
from plimsoll.node.containers import ContainerInfo, ContainerPhase


@dataclass(frozen=True, slots=True)
class HttpRefusal:
    """Refusal of a request: the status code and the text."""

    code: int
    message: str


class LocalPods(Protocol):
    """Pods of the node: the agent."""

    def pods(self) -> Sequence[Pod]: ...

    def status_of(self, pod: Pod) -> Mapping[str, Any]:
        """Return the status of a pod as the node last reported it."""
        ...

    def containers_of(self, uid: str) -> Sequence[ContainerInfo]: ...


def find_pod(source: LocalPods, namespace: str, name: str, uid: str = "") -> Pod | HttpRefusal:
    """Find a pod by name, and by UID if the request has one."""
    for pod in source.pods():
        meta = pod.metadata
        if (meta.namespace, meta.name) == (namespace, name) and uid in ("", meta.uid):
            return pod
    return HttpRefusal(404, f'pod "{name}" does not exist')


def find_log(source: LocalPods, pod: Pod, container: str, *, previous: bool) -> ContainerInfo | HttpRefusal:
    """Find the container whose log a request asks for, by the status of the pod."""
    if not _has_container(pod, container):
        return HttpRefusal(404, f'container "{container}" not found in pod "{pod.metadata.name}"')
    id = find_container_id(source.status_of(pod), pod.metadata.name, container, previous=previous)
    if isinstance(id, HttpRefusal):
        return id
    for found in source.containers_of(pod.metadata.uid):
        if found.id == id:
            return found
    which = "previous terminated container" if previous else "container"
    return HttpRefusal(400, f'{which} "{container}" in pod "{pod.metadata.name}" is not available')


def find_running(source: LocalPods, pod: Pod, container: str) -> ContainerInfo | HttpRefusal:
    """Find the running container of a pod with this name, by default its first one."""
    name = container or (pod.spec.containers[0].name if pod.spec.containers else "")
    for found in reversed(source.containers_of(pod.metadata.uid)):
        if found.name == name and found.phase is ContainerPhase.RUNNING:
            return found
    full = f"{pod.metadata.name}_{pod.metadata.namespace}"
    return HttpRefusal(404, f'container not found ("{name}") in pod "{full}", or it is not running')


def find_container_id(
    status: Mapping[str, Any], pod: str, container: str, *, previous: bool
) -> str | HttpRefusal:
    """Return the ID of the container that has the requested log, without its scheme."""
    entries = [
        branch(entry)
        for name in ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for entry in status.get(name) or ()
        if text(branch(entry), "name") == container
    ]
    where = f'container "{container}" in pod "{pod}"'
    if not entries:
        return HttpRefusal(400, f"{where} is not available")
    entry = entries[0]
    state, last = branch(entry, "state"), branch(entry, "lastState", "terminated")
    last_id = text(last, "containerID")
    if previous:
        if last_id:
            return _without_scheme(last_id)
        return HttpRefusal(400, f"previous terminated {where} not found")
    if "running" in state:
        return _without_scheme(text(entry, "containerID"))
    if "terminated" in state:
        id = text(branch(state, "terminated"), "containerID") or last_id
        return _without_scheme(id) if id else HttpRefusal(400, f"{where} is terminated")
    if last:
        return _without_scheme(last_id) if last_id else HttpRefusal(400, f"{where} is terminated")
    if "waiting" in state:
        reason = text(branch(state, "waiting"), "reason")
        return HttpRefusal(400, f"{where} is waiting to start: {reason}")
    return HttpRefusal(400, f"{where} is waiting to start - no logs yet")


def _without_scheme(id: str) -> str:
    return id.rpartition("://")[2]


def _has_container(pod: Pod, name: str) -> bool:
    spec = pod.spec
    return any(
        each.name == name for each in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    )
