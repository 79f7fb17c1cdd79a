"""Volume manager: directories of pods' volumes, their contents and their updates. START HERE.

Volumes are below the directory of their pod, in the kubelet's layout:

   pods/UID/volumes/kubernetes.io~configmap/NAME

Before the first container of a pod starts, all its volumes are set up; configMap, secret, downwardAPI and
projected volumes are written again whenever what they are made from has changed, at the latest after the
refresh interval, and tokens are renewed at 80 % of their lifetime. Containers see a volume by a bind mount in
their own mount namespace (runtime/confinement.py).

DIFF: secrets are files in a directory that only the agent can enter, not in memory
(test_secrets_are_not_readable_by_others).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from plimsoll.api import codec
from plimsoll.api.containers import ResourceFieldSelector
from plimsoll.api.core import Container, Pod, VolumeReference
from plimsoll.api.pod_volumes import CLAIM_VOLUMES
from plimsoll.api.timestamps import parse_time
from plimsoll.client.endpoints import CONFIG_MAPS, SECRETS, SERVICE_ACCOUNTS, Endpoint
from plimsoll.common.disk_usage import disk_usage
from plimsoll.common.json_tree import branch, items, text
from plimsoll.errors import ApiError, InputError
from plimsoll.node.containers import VolumeMount
from plimsoll.node.layout import Layout, path_component
from plimsoll.node.pods.downward_fields import DownwardFields, DownwardNodeInfo
from plimsoll.node.pods.environment import expand
from plimsoll.node.pods.volumes import volume_type
from plimsoll.node.volumes.atomic_writer import write_files
from plimsoll.node.volumes.empty_dirs import MEMORY, MemoryVolumes
from plimsoll.node.volumes.host_paths import check_host_path
from plimsoll.node.volumes.payload import (
    Files,
    VolumeFile,
    check_path,
    default_mode,
    item_mode,
    merge,
    object_files,
)
from plimsoll.node.volumes.persistent_volumes import find_claim_path, link_volume

_log = logging.getLogger("plimsoll.node")

_WRITTEN = ("configMap", "secret", "downwardAPI", "projected")
REFRESH_SECONDS = 10.0
#: Lifetime of tokens, the kubelet's default and minimum (seconds).
_TOKEN_SECONDS, _TOKEN_MIN = 3600, 600


class VolumeClient(Protocol):
    """Client of the API server."""

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]: ...

    async def post(
        self, endpoint: Endpoint, name: str, subresource: str, tree: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]: ...


#: Reads an object by endpoint, name and namespace; None if it does not exist.
_Read = Callable[[Endpoint, str, str], Awaitable[dict[str, Any] | None]]


@dataclass(slots=True)
class _Token:
    value: str
    renew_at: float


@dataclass(slots=True)
class _PodVolumes:
    pod: Pod
    tokens: dict[tuple[str, int, str], _Token] = field(default_factory=dict)


class VolumeManager:
    """Volumes of all pods of one node."""

    def __init__(
        self,
        layout: Layout,
        client: VolumeClient,
        facts: Callable[[], DownwardNodeInfo],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._memory = MemoryVolumes(layout)
        self._layout = layout
        self._client = client
        self._facts = facts
        self._clock = clock
        self._pods: dict[str, _PodVolumes] = {}

    # -- lifecycle of a pod

    async def set_up(self, pod: Pod) -> str:
        """Set up the volumes that containers of a pod mount; return the problem, or ""."""
        known = self._pods.setdefault(pod.metadata.uid, _PodVolumes(pod))
        known.pod = pod
        for volume in _mounted_volumes(pod):
            problem = await self._set_up_one(known, volume, self._get)
            if problem:
                return f'MountVolume.SetUp failed for volume "{text(volume, "name")}" : {problem}'
        return ""

    def update(self, pod: Pod) -> None:
        """Use the changed labels and annotations of a pod at the next refresh."""
        known = self._pods.get(pod.metadata.uid)
        if known is not None:
            known.pod = pod

    def adopt(self, pod: Pod) -> None:
        """Update the volumes of a pod that an earlier agent has set up."""
        self._pods.setdefault(pod.metadata.uid, _PodVolumes(pod))

    def forget(self, uid: str) -> None:
        """Stop updating the volumes of a pod; its directory is removed with its sandbox."""
        self._pods.pop(uid, None)
        self._memory.remove(uid)

    async def measure(self, pod: Pod, names: Collection[str]) -> dict[str, int]:
        """Return the bytes that these volumes of a pod occupy, by name, of those that were set up."""
        found: dict[str, int] = {}
        for volume in _mounted_volumes(pod):
            if text(volume, "name") in names and pod.metadata.uid in self._pods:
                found[text(volume, "name")] = await asyncio.to_thread(disk_usage, self._path_of(pod, volume))
        return found

    async def refresh(self) -> None:
        """Write the volumes whose contents have changed. An object is read once, however many pods use it."""
        read = _read_once(self._get)
        for known in list(self._pods.values()):
            for volume in _mounted_volumes(known.pod):
                if volume_type(volume) in _WRITTEN and known.pod.metadata.uid in self._pods:
                    problem = await self._set_up_one(known, volume, read)
                    if problem:  # as with a kubelet the last contents stay
                        _log.debug("pod %s: volume %s: %s", known.pod.metadata.full_name, volume, problem)

    async def run(self, interval: float = REFRESH_SECONDS) -> None:
        """Refresh volumes until canceled."""
        await asyncio.to_thread(self._memory.remove_orphans)
        while True:
            await asyncio.sleep(interval)
            try:
                await self.refresh()
            except Exception:
                _log.exception("volumes were not refreshed")

    # -- mounts of a container

    def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> list[VolumeMount]:
        """Return the mounts of a container; InputError names a mount that cannot be made."""
        volumes = {text(volume, "name"): volume for volume in pod.spec.volumes}
        found = []
        for mount in container.volume_mounts:
            volume = volumes.get(mount.name)
            if volume is None:
                raise InputError(f'volume "{mount.name}" of container {container.name} does not exist')
            if not mount.mount_path.startswith("/"):
                raise InputError(f"mountPath: {mount.mount_path!r} is not an absolute path")
            source = self._path_of(pod, volume)
            if volume_type(volume) in ("emptyDir", *CLAIM_VOLUMES):
                source = Path(os.path.realpath(source))
            inner = expand(mount.sub_path_expr, env) if mount.sub_path_expr else mount.sub_path
            if inner:
                source = self._sub_path(source, inner, volume)
            type = volume_type(volume)
            read_only = mount.read_only or type in _WRITTEN or branch(volume, type).get("readOnly") is True
            target, propagation = os.path.normpath(mount.mount_path), mount.mount_propagation or ""
            found.append(VolumeMount(str(source), target, read_only, propagation))
        return found

    def _sub_path(self, source: Path, inner: str, volume: Mapping[str, Any]) -> Path:
        path = source / check_path(inner)
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(source)):
            raise InputError(f"subPath {inner!r} leads out of the volume")
        if not real.exists():
            if volume_type(volume) in _WRITTEN:
                raise InputError(f"subPath {inner!r} does not exist in the volume")
            real.mkdir(parents=True, mode=0o750)
            real.chmod(0o777 if volume_type(volume) in ("emptyDir", *CLAIM_VOLUMES) else 0o750)
        return real

    def _path_of(self, pod: Pod, volume: Mapping[str, Any]) -> Path:
        type, name = volume_type(volume), text(volume, "name")
        if type == "hostPath":
            return Path(text(branch(volume, "hostPath"), "path"))
        kind = {"emptyDir": "empty-dir", "downwardAPI": "downward-api"}.get(type, type.lower())
        directory = self._layout.pod(pod.metadata.uid) / "volumes" / f"kubernetes.io~{kind}"
        return directory / path_component(name)

    # -- contents

    async def _set_up_one(self, known: _PodVolumes, volume: Mapping[str, Any], read: _Read) -> str:
        pod, type = known.pod, volume_type(volume)
        try:
            if type == "hostPath":
                found = await asyncio.to_thread(check_host_path, branch(volume, "hostPath"))
                return found if isinstance(found, str) else ""
            path, group = self._path_of(pod, volume), _fs_group(pod)
            if type in CLAIM_VOLUMES:
                found = await find_claim_path(pod, volume, read)
                await asyncio.to_thread(link_volume, path, found)
                return ""
            if type == "emptyDir":
                medium = text(branch(volume, "emptyDir"), "medium")
                if medium not in ("", MEMORY):
                    return f"emptyDir.medium {medium!r} is not supported by this runtime"
                if medium and not path.is_dir():
                    made = self._memory.make(pod.metadata.uid, text(volume, "name"))
                    await asyncio.to_thread(_open_empty_dir, made, group)
                    await asyncio.to_thread(link_volume, path, made)
                elif not medium:
                    await asyncio.to_thread(_make_empty_dir, path, group)
                return ""
            files = await self._files(known, type, branch(volume, type), read)
            await asyncio.to_thread(_write, path, files, group)
        except ApiError as error:
            return error.message
        except (InputError, TimeoutError) as error:
            return str(error) or "the API server does not respond"
        except OSError as error:
            return f"{error.filename or ''}: {error.strerror}"
        return ""

    async def _files(self, known: _PodVolumes, type: str, source: Mapping[str, Any], read: _Read) -> Files:
        mode = default_mode(source)
        if type != "projected":
            return await self._source_files(known, type, source, mode, read)
        parts = []
        for entry in items(source, "sources"):
            kind = next((key for key, value in entry.items() if value is not None), "")
            parts.append(await self._source_files(known, kind, branch(entry, kind), mode, read))
        return merge(parts)

    async def _source_files(
        self, known: _PodVolumes, type: str, source: Mapping[str, Any], mode: int, read: _Read
    ) -> Files:
        namespace = known.pod.metadata.namespace
        if type == "configMap":
            name = text(source, "name")
            tree = await read(CONFIG_MAPS, name, namespace)
            return object_files(tree, source, "ConfigMap", name, mode)
        if type == "secret":
            name = text(source, "secretName") or text(source, "name")
            tree = await read(SECRETS, name, namespace)
            return object_files(tree, source, "Secret", name, mode)
        if type == "downwardAPI":
            return self._downward_files(known.pod, source, mode)
        if type == "serviceAccountToken":
            token, user, group = (
                await self._token(known, source),
                common_user(known.pod),
                _fs_group(known.pod),
            )
            if user is not None or group is not None:
                mode = 0o600  # as a kubelet: others need not read it
            owner = user if os.geteuid() == 0 else None
            return {check_path(text(source, "path")): VolumeFile(token.encode(), mode, owner)}
        raise InputError(f"projected source {type!r} is not supported by this runtime")

    def _downward_files(self, pod: Pod, source: Mapping[str, Any], mode: int) -> Files:
        fields = DownwardFields(pod, self._facts(), tuple(self._facts().host_ips))
        found: Files = {}
        for item in items(source, "items"):
            if branch(item, "fieldRef"):
                value = fields.field(text(branch(item, "fieldRef"), "fieldPath"))
            else:
                reference = codec.convert(branch(item, "resourceFieldRef"), ResourceFieldSelector)
                value = fields.resource(reference, Container())
            found[check_path(text(item, "path"))] = VolumeFile(value.encode(), item_mode(item, mode))
        return found

    async def _get(self, endpoint: Endpoint, name: str, namespace: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(10):
                return await self._client.get(endpoint, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def _token(self, known: _PodVolumes, source: Mapping[str, Any]) -> str:
        """Return the token of a pod's service account, renewed at 80 % of its lifetime."""
        pod, meta = known.pod, known.pod.metadata
        audience, wanted = text(source, "audience"), source.get("expirationSeconds")
        seconds = max(wanted if isinstance(wanted, int) else _TOKEN_SECONDS, _TOKEN_MIN)
        account = pod.spec.service_account_name or "default"
        key = (audience, seconds, account)
        token = known.tokens.get(key)
        if token is None or token.renew_at <= self._clock():
            reference = {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid}
            spec: dict[str, Any] = {"expirationSeconds": seconds, "boundObjectRef": reference}
            spec["audiences"] = [audience] if audience else []
            request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            async with asyncio.timeout(10):
                tree = await self._client.post(SERVICE_ACCOUNTS, account, "token", request, meta.namespace)
            status, now = branch(tree, "status"), self._clock()
            ends = parse_time(status.get("expirationTimestamp")) or now + seconds
            token = _Token(text(status, "token"), now + (ends - now) * 0.8)
            known.tokens[key] = token
        return token.value


def _read_once(read: _Read) -> _Read:
    """Return a function that reads every object once."""
    known: dict[tuple[Endpoint, str, str], dict[str, Any] | None] = {}

    async def read_known(endpoint: Endpoint, name: str, namespace: str) -> dict[str, Any] | None:
        key = (endpoint, name, namespace)
        if key not in known:
            known[key] = await read(endpoint, name, namespace)
        return known[key]

    return read_known


def common_user(pod: Pod) -> int | None:
    """Return the user that all containers of a pod run as, if they specify the same one."""
    users = set()
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        contexts = (container.security_context or {}, pod.spec.security_context or {})
        users.add(next((each["runAsUser"] for each in contexts if each.get("runAsUser") is not None), None))
    user = users.pop() if len(users) == 1 else None
    return user if isinstance(user, int) else None


def _mounted_volumes(pod: Pod) -> list[Mapping[str, Any]]:
    spec = pod.spec
    containers: Sequence[Container] = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    mounts: list[VolumeReference] = [mount for each in containers for mount in each.volume_mounts]
    used = {mount.name for mount in mounts}
    return [volume for volume in spec.volumes if text(volume, "name") in used]


def _fs_group(pod: Pod) -> int | None:
    group = (pod.spec.security_context or {}).get("fsGroup")
    return group if isinstance(group, int) and os.geteuid() == 0 else None


def _make_empty_dir(path: Path, group: int | None) -> None:
    if not path.is_dir():
        _make_private(path)
        _open_empty_dir(path, group)


def _open_empty_dir(path: Path, group: int | None) -> None:
    """Let every user of a pod write in a directory."""
    if group is not None:
        os.chown(path, -1, group)
    path.chmod(0o777 if group is None else 0o2777)


def _write(path: Path, files: Files, group: int | None) -> None:
    if not path.is_dir():
        _make_private(path)
        path.chmod(0o755)
    write_files(path, files, group)


def _make_private(path: Path) -> None:
    """Create a volume's directory; only the agent can enter the directories above, down from the pod's."""
    for directory in (*reversed(path.parents[:3]), path):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
