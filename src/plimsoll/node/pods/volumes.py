"""Volumes that a pod needs and its runtime cannot provide. Pure.

Only volumes that a container mounts count, as in the kubelet. The service account token that an API server's
admission adds to pods is treated separately: the user did not request it, and most pods never read it.

DIFF: a pod whose only missing volume is the token that admission added is started without it, and an event
reports it (test_a_pod_is_started_without_the_token_that_admission_added).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from plimsoll.api.core import Pod

FAILED_MOUNT = "FailedMount"
TOKEN_NOT_MOUNTED = "ServiceAccountTokenNotMounted"
#: Prefix of the volume that the admission of an API server adds.
_TOKEN_PREFIX = "kube-api-access-"


@dataclass(frozen=True, slots=True)
class MissingVolume:
    """Volume that cannot be provided; `added`: by the API server, for the service account token."""

    name: str
    type: str
    added: bool = False


def missing_volumes(pod: Pod, provided: Collection[str] | None) -> tuple[MissingVolume, ...]:
    """Return the volumes that containers mount and whose type is not provided; None: all types are."""
    if provided is None:
        return ()
    spec = pod.spec
    used = {
        reference.name
        for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
        for reference in (*container.volume_mounts, *container.volume_devices)
    }
    found = []
    for volume in spec.volumes:
        name, type = volume.get("name"), volume_type(volume)
        if isinstance(name, str) and name in used and type not in provided:
            found.append(MissingVolume(name, type, _is_added_token(name, volume)))
    return tuple(found)


def volume_type(volume: Mapping[str, Any]) -> str:
    """Return the type of a volume, as its source is named; a volume without a source is an emptyDir."""
    return next((key for key, value in volume.items() if key != "name" and value is not None), "emptyDir")


def _is_added_token(name: str, volume: Mapping[str, Any]) -> bool:
    projected = volume.get("projected")
    sources = projected.get("sources") if isinstance(projected, Mapping) else None
    if not name.startswith(_TOKEN_PREFIX) or not isinstance(sources, list):
        return False
    return any(isinstance(each, Mapping) and each.get("serviceAccountToken") for each in sources)


def describe_missing(volumes: Collection[MissingVolume], runtime: str) -> str:
    """Format volumes that keep a pod from starting, in the kubelet's form."""
    return "; ".join(
        f'MountVolume.SetUp failed for volume "{each.name}" : the {runtime} runtime provides no volumes of '
        f"type {each.type}; remove the volume and its volumeMounts, or run the pod on a node with a "
        "container runtime"
        for each in volumes
    )


def describe_token(volume: MissingVolume, runtime: str) -> str:
    """Format the warning for a token that a pod is started without."""
    return (
        f'volume "{volume.name}" with the service account token is not mounted: the {runtime} runtime '
        "provides no volumes; set automountServiceAccountToken: false if the pod does not need it"
    )
