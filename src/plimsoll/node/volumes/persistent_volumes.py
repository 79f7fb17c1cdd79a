"""Volumes by PersistentVolumeClaims: the directory of the machine that a bound claim stands for.

PersistentVolumes with the sources `hostPath` and `local` are provided; others need a driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import is_owned_by
from plimsoll.api.pod_volumes import volume_claim
from plimsoll.api.storage import FILESYSTEM, PersistentVolume, PersistentVolumeClaim
from plimsoll.client.endpoints import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, Endpoint
from plimsoll.common.json_tree import branch, text
from plimsoll.errors import InputError
from plimsoll.node.volumes.host_paths import check_host_path

#: Reads an object; None if it does not exist.
ReadObject = Callable[[Endpoint, str, str], Awaitable[dict[str, Any] | None]]


async def find_claim_path(pod: Pod, volume: Mapping[str, Any], read: ReadObject) -> Path:
    """Return the directory of a volume with a claim; InputError if there is none, with the reason."""
    claim = await _read_claim(pod, volume, read)
    name = claim.metadata.full_name
    if claim.metadata.deletion_timestamp is not None:
        raise InputError(f"PVC {name} is being deleted")
    if not claim.bound:
        raise InputError(f"PVC {name} is not bound")
    if claim.volume_mode != FILESYSTEM:
        raise InputError(f"PVC {name} has volumeMode {claim.volume_mode}, but is mounted as a file system")
    tree = await read(PERSISTENT_VOLUMES, claim.spec.volume_name, "")
    if tree is None:
        raise InputError(f'persistentvolume "{claim.spec.volume_name}" not found')
    if not codec.convert(tree, PersistentVolume).is_bound_to(claim):
        raise InputError(f"PV {claim.spec.volume_name} is not bound to PVC {name}")
    return await _volume_path(tree)


async def _read_claim(pod: Pod, volume: Mapping[str, Any], read: ReadObject) -> PersistentVolumeClaim:
    used = volume_claim(pod, volume)
    name = used.name if used is not None else ""
    tree = await read(PERSISTENT_VOLUME_CLAIMS, name, pod.metadata.namespace)
    if tree is None:
        raise InputError(f'persistentvolumeclaim "{name}" not found')
    claim = codec.convert(tree, PersistentVolumeClaim)
    if used is not None and used.generated and not is_owned_by(claim, pod):
        raise InputError(f"PVC {claim.metadata.full_name} was not created for this pod (pod is not owner)")
    return claim


async def _volume_path(tree: Mapping[str, Any]) -> Path:
    spec, name = branch(tree, "spec"), text(branch(tree, "metadata"), "name")
    if branch(spec, "hostPath"):
        source = branch(spec, "hostPath")
    elif branch(spec, "local"):
        source = {"path": text(branch(spec, "local"), "path"), "type": "Directory"}
    else:
        raise InputError(
            f"PV {name}: only the sources hostPath and local are supported by this runtime; run the pod on a "
            "node with a driver of the volume"
        )
    found = await asyncio.to_thread(check_host_path, source)
    if isinstance(found, str):
        raise InputError(f"PV {name}: {found}")
    return found


def link_volume(link: Path, target: Path) -> None:
    """Record the directory of a volume for later containers of the pod."""
    link.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = link.with_name(f"..{link.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(link)
