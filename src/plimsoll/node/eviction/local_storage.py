"""Limits of local storage: pods over a limit are evicted, as by the kubelet.

In this order: `sizeLimit` of emptyDir volumes; the pod's total limit of ephemeral-storage, for its containers
and its volumes on disk; limits of single containers, for their files and logs. `find_exceeded_limit` decides,
with upstream's messages; `LocalStorageEviction` is the loop around it, which measures only pods with limits.
Critical pods are never evicted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.common.json_tree import branch, text
from plimsoll.ledger.requests import pod_limits
from plimsoll.ledger.units import EPHEMERAL_STORAGE
from plimsoll.node.cgroup_plans.oom import is_critical_pod
from plimsoll.node.containers import ContainerStorage
from plimsoll.node.eviction.manager import HARD_GRACE_SECONDS, PodEviction
from plimsoll.node.pods.volumes import volume_type
from plimsoll.node.volumes.empty_dirs import size_limit

EMPTY_DIR_LIMIT = "emptydirfs.limit"
POD_LIMIT = "ephemeralpodfs.limit"
CONTAINER_LIMIT = "ephemeralcontainerfs.limit"

_log = logging.getLogger(__name__)


def volumes_with_limits(pod: Pod) -> frozenset[str]:
    """Return the volumes whose usage decides about an eviction: those that count in a limit of the pod."""
    total = EPHEMERAL_STORAGE in pod_limits(pod)
    return frozenset(
        text(volume, "name")
        for volume in pod.spec.volumes
        if _size_limit(volume) is not None or (total and _is_on_disk(volume))
    )


def has_storage_limits(pod: Pod) -> bool:
    """Return whether containers of a pod have limits of ephemeral-storage."""
    return EPHEMERAL_STORAGE in pod_limits(pod) or bool(_container_limits(pod))


def find_exceeded_limit(
    pod: Pod, volumes: Mapping[str, int], containers: Mapping[str, ContainerStorage]
) -> PodEviction | None:
    """Return the eviction of a pod that uses more local storage than a limit; None if it does not.

    `volumes` and `containers` are measurements by name; missing ones count as zero.
    """
    if is_critical_pod(pod):
        return None
    return (
        _exceeded_empty_dir(pod, volumes)
        or _exceeded_pod_limit(pod, volumes, containers)
        or _exceeded_container_limit(pod, containers)
    )


def _exceeded_empty_dir(pod: Pod, volumes: Mapping[str, int]) -> PodEviction | None:
    for volume in pod.spec.volumes:
        limit, name = _size_limit(volume), text(volume, "name")
        if limit is not None and _bytes(volumes.get(name, 0)) > limit:
            return _eviction(
                EMPTY_DIR_LIMIT, f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
            )
    return None


def _exceeded_pod_limit(
    pod: Pod, volumes: Mapping[str, int], containers: Mapping[str, ContainerStorage]
) -> PodEviction | None:
    limit = pod_limits(pod).get(EPHEMERAL_STORAGE)
    on_disk = [text(volume, "name") for volume in pod.spec.volumes if _is_on_disk(volume)]
    used = sum(each.files + each.logs for each in containers.values())
    used += sum(volumes.get(name, 0) for name in on_disk)
    if limit is None or _bytes(used) <= limit:
        return None
    message = f"Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
    return _eviction(POD_LIMIT, message)


def _exceeded_container_limit(pod: Pod, containers: Mapping[str, ContainerStorage]) -> PodEviction | None:
    for name, limit in _container_limits(pod).items():
        measured = containers.get(name, ContainerStorage())
        # Files on a disk of images are not what the node has as ephemeral-storage.
        if _bytes(measured.logs + (0 if measured.on_image_disk else measured.files)) > limit:
            message = f'Container {name} exceeded its local ephemeral storage limit "{limit}". '
            return _eviction(CONTAINER_LIMIT, message)
    return None


def _container_limits(pod: Pod) -> dict[str, Quantity]:
    """Return the limits of ephemeral-storage of regular containers; 0 is none."""
    limits = {each.name: each.resources.limits.get(EPHEMERAL_STORAGE, ZERO) for each in pod.spec.containers}
    return {name: limit for name, limit in limits.items() if limit}


def _size_limit(volume: Mapping[str, Any]) -> Quantity | None:
    return size_limit(branch(volume, "emptyDir")) if volume_type(volume) == "emptyDir" else None


def _is_on_disk(volume: Mapping[str, Any]) -> bool:
    """Return whether a volume is part of the node's ephemeral-storage."""
    type = volume_type(volume)
    return type == "configMap" or (type == "emptyDir" and not text(branch(volume, "emptyDir"), "medium"))


def _bytes(amount: int) -> Quantity:
    return Quantity.of(amount, Format.BINARY_SI)


def _eviction(signal: str, message: str) -> PodEviction:
    return PodEviction(
        resource=EPHEMERAL_STORAGE, signal=signal, message=message, grace=HARD_GRACE_SECONDS, condition=None
    )


# -- loop


class LocalStorageEviction:
    """Eviction of a node's pods that exceed limits of local storage."""

    def __init__(
        self,
        pods: Callable[[], Sequence[Pod]],
        measure_volumes: Callable[[Pod, Collection[str]], Awaitable[Mapping[str, int]]],
        measure_containers: Callable[[str], Awaitable[Mapping[str, ContainerStorage]]],
        evict: Callable[[Pod, PodEviction], Awaitable[None]],
        *,
        interval: float,
    ) -> None:
        self._pods = pods
        self._measure_volumes = measure_volumes
        self._measure_containers = measure_containers
        self._evict = evict
        self._interval = interval

    async def run(self) -> None:
        """Run until canceled."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.step()
            except Exception:
                _log.exception("checking limits of local storage failed; retrying")

    async def step(self) -> None:
        """Measure all pods with limits once, and evict those that exceed one.

        A pod that is still terminating is evicted again, which has no effect.
        """
        for pod in self._pods():
            eviction = await self._check(pod)
            if eviction is not None:
                _log.info("evicting pod %s: %s", pod.metadata.full_name, eviction.message)
                await self._evict(pod, eviction)

    async def _check(self, pod: Pod) -> PodEviction | None:
        names, limited = volumes_with_limits(pod), has_storage_limits(pod)
        if not names and not limited:
            return None
        volumes = await self._measure_volumes(pod, names)
        containers = await self._measure_containers(pod.metadata.uid) if limited else {}
        return find_exceeded_limit(pod, volumes, containers)
