"""Containers of the node's pods and the claims they use, from the API, for runtimes without NRI.

Claims of a pod are matched by name with the allocated claims; others have no CPUs of this driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from plimsoll.api import codec
from plimsoll.api.core import Container, ContainerStatus, Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.informer import EventHandler, Informer
from plimsoll.common.tasks import cancel_tasks
from plimsoll.drivers.cpu.pinning.plan import ContainerView
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation

#: Annotation with the UID that static pods have on their node.
STATIC_UID = "kubernetes.io/config.hash"


class PodSource(Protocol):
    """Source of the node's pods. `error` is the reason why they are not known."""

    on_change: Callable[[], None]

    @property
    def error(self) -> str: ...
    def pods(self) -> Iterable[Pod]: ...
    async def start(self) -> None: ...
    async def stop(self) -> None: ...


class NodePods(EventHandler[Pod]):
    """Pods of a node, from the API server."""

    def __init__(self, client: Client, node: str) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._informer: Informer[Pod] = Informer(
            client, PODS, partial(codec.decode, view=Pod), fields=f"spec.nodeName={node}"
        )
        self._informer.add_handler(self)
        self._following: asyncio.Task[None] | None = None

    @property
    def error(self) -> str:
        """Reason why pods are not known; pods once listed stay known during an API outage."""
        if self._informer.listings:
            return ""
        return str(self._informer.error or "the pods of this node are not listed yet")

    def pods(self) -> Iterable[Pod]:
        return self._informer.items()

    async def start(self) -> None:
        if self._following is None:
            self._following = asyncio.create_task(self._informer.run(), name="node-pods")

    async def stop(self) -> None:
        task, self._following = self._following, None
        if task is not None:
            await cancel_tasks((task,))

    def on_added(self, new: Pod) -> None:
        self.on_change()

    def on_changed(self, old: Pod, new: Pod) -> None:
        self.on_change()

    def on_removed(self, old: Pod) -> None:
        self.on_change()


@dataclass(frozen=True, slots=True)
class PodContainers:
    """Pod with the UID in the name of its cgroup and its containers by ID.

    `claims`: whether it uses any claims.
    """

    uid: str
    cgroup: str
    namespace: str
    pod: str
    claims: bool = False
    containers: Mapping[str, ContainerView] = field(default_factory=dict)

    def unknown_container(self, id: str) -> ContainerView:
        """Return a view without claims for a container unknown to the API (yet), or a pause container."""
        return ContainerView(id, self.uid, self.namespace, self.pod, sandbox=id)


def read_pod_containers(pod: Pod, allocations: Mapping[str, ClaimAllocation]) -> PodContainers:
    """Read the containers of a pod with their allocated claims."""
    metadata = pod.metadata
    held = {(allocation.ref.namespace, allocation.ref.name): uid for uid, allocation in allocations.items()}
    names = claim_names(pod)
    statuses: dict[str, ContainerStatus] = {
        status.name: status
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    }
    containers = {}
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        status = statuses.get(container.name)
        id = status.container_id.partition("://")[2] if status is not None else ""
        if status is None or not id or "terminated" in status.state:
            continue
        requests = requests_of(pod, container, names)
        claims = {
            held[metadata.namespace, name]: frozenset(named)
            for name, named in requests.items()
            if (metadata.namespace, name) in held
        }
        containers[id] = ContainerView(
            id=id,
            pod_uid=metadata.uid,
            namespace=metadata.namespace,
            pod=metadata.name,
            name=container.name,
            claims={uid: allocations[uid].assigned for uid in claims},
            requests={uid: named for uid, named in claims.items() if named},
        )
    cgroup = metadata.annotations.get(STATIC_UID) or metadata.uid
    return PodContainers(metadata.uid, cgroup, metadata.namespace, metadata.name, bool(names), containers)


def claim_names(pod: Pod) -> dict[str, str]:
    """Return claim names by their names in the pod."""
    return {entry: name for entry, name in resolve_claim_names(pod).items() if entry}


def requests_of(pod: Pod, container: Container, names: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the claims that a container uses with the requests it names; none means the full claim."""
    found: dict[str, set[str]] = {}
    whole: set[str] = set()
    for use in container.resources.claims:
        name = names.get(use.name)
        if name is None:
            continue
        picked = found.setdefault(name, set())
        if use.request:
            picked.add(use.request)
        else:
            whole.add(name)
    extended = pod.status.extended_resource_claim_status
    if extended is not None and extended.resource_claim_name:
        for mapping in extended.request_mappings:
            if mapping.container_name == container.name and mapping.request_name:
                found.setdefault(extended.resource_claim_name, set()).add(mapping.request_name)
    for name in whole:
        found[name] = set()
    return found
