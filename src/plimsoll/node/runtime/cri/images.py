"""Images of containers: presence by pull policy, pulls with credentials, and back-off after failures.

Reasons, messages and events are the kubelet's. One image is pulled at a time, as a kubelet does by default.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll.api.core import Container, Pod
from plimsoll.client.endpoints import SECRETS
from plimsoll.client.event_recorder import NORMAL, WARNING
from plimsoll.common.json_tree import branch
from plimsoll.errors import ApiError, RuntimeCallError
from plimsoll.node.containers import RuntimeFault
from plimsoll.node.pods.environment import ApiObjectReader
from plimsoll.node.runtime.cri.client import CriClient
from plimsoll.node.runtime.cri.registry_credentials import (
    RegistryCredential,
    parse_secret,
    select_credentials,
)
from plimsoll.node.runtime.cri.security import ImageUser
from plimsoll.node.runtime.cri.settings import CriTiming
from plimsoll.protocols.messages import cri

PULL_ERROR, PULL_BACKOFF, NEVER_PULLED = "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull"
INSPECT_ERROR, INVALID_NAME = "ImageInspectError", "InvalidImageName"

#: Emits an event: pod, reason, message, type, container.
EmitEvent = Callable[[Pod, str, str, str, str], None]


@dataclass(frozen=True, slots=True)
class PresentImage:
    """Image on the machine: its reference for containers, and its user."""

    ref: str
    user: ImageUser


@dataclass(frozen=True, slots=True)
class _FailedPull:
    seconds: float  #: back-off
    at: float
    message: str


def tagged_name(image: str) -> str:
    """Return the name of an image with the default tag, if it has neither a tag nor a digest."""
    last = image.rpartition("/")[2]
    return image if "@" in image or ":" in last else f"{image}:latest"


def pull_policy(container: Container) -> str:
    """Return the pull policy of a container, by default as the API server sets it."""
    if container.image_pull_policy:
        return container.image_pull_policy
    return "Always" if tagged_name(container.image).endswith(":latest") else "IfNotPresent"


class ImagePuller:
    """Images of one node's containers."""

    def __init__(
        self,
        client: CriClient,
        objects: ApiObjectReader,
        emit: EmitEvent,
        timing: CriTiming,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._objects = objects
        self._emit = emit
        self._timing = timing
        self._clock = clock
        self._pulling = asyncio.Lock()
        self._failed: dict[tuple[str, str], _FailedPull] = {}

    async def ensure_image(
        self, pod: Pod, container: Container, sandbox: cri.PodSandboxConfig
    ) -> PresentImage | RuntimeFault:
        """Return the image of a container, after pulling it if the policy asks for that."""
        image, policy = tagged_name(container.image), pull_policy(container)
        if not container.image or any(character.isspace() for character in image):
            message = f'Failed to apply default image tag "{container.image}": invalid reference format'
            return RuntimeFault(INVALID_NAME, message)
        if policy != "Always":
            present = await self._find(image)
            if isinstance(present, RuntimeFault):
                return present
            if present is not None:
                text = f'Container image "{container.image}" already present on machine'
                self._emit(pod, "Pulled", text, NORMAL, container.name)
                return _present(present)
            if policy == "Never":
                text = f'Container image "{container.image}" is not present with pull policy of Never'
                self._emit(pod, NEVER_PULLED, text, WARNING, container.name)
                return RuntimeFault(NEVER_PULLED, text)
        return await self._pull(pod, container, image, sandbox)

    def forget(self, uid: str) -> None:
        """Forget the failed pulls of a pod."""
        for key in [key for key in self._failed if key[0] == uid]:
            del self._failed[key]

    async def _find(self, image: str) -> cri.Image | RuntimeFault | None:
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
        try:
            response = await self._client.call("ImageStatus", request)
        except RuntimeCallError as error:
            return RuntimeFault(INSPECT_ERROR, f'Failed to inspect image "{image}": {error}')
        return response.image if response.HasField("image") and response.image.id else None

    async def _pull(
        self, pod: Pod, container: Container, image: str, sandbox: cri.PodSandboxConfig
    ) -> PresentImage | RuntimeFault:
        key = (pod.metadata.uid, image)
        failed = self._failed.get(key)
        if failed is not None and self._clock() < failed.at + failed.seconds:
            text = f'Back-off pulling image "{container.image}"'
            self._emit(pod, "BackOff", text, NORMAL, container.name)
            return RuntimeFault(PULL_BACKOFF, f"{text}: {PULL_ERROR}: {failed.message}")
        self._emit(pod, "Pulling", f'Pulling image "{container.image}"', NORMAL, container.name)
        credentials = await self._credentials(pod, image)
        waiting = self._clock()
        async with self._pulling:
            start = self._clock()
            problem = await self._try_pull(image, credentials, sandbox)
            end = self._clock()
        present = await self._find(image) if not problem else None
        if isinstance(present, RuntimeFault):
            problem = present.message
        elif present is not None:
            self._failed.pop(key, None)
            text = (
                f'Successfully pulled image "{container.image}" in {end - start:.3f}s '
                f"({end - waiting:.3f}s including waiting). Image size: {present.size} bytes."
            )
            self._emit(pod, "Pulled", text, NORMAL, container.name)
            return _present(present)
        problem = problem or "the image is not present after its pull"
        seconds = self._timing.pull_backoff_first if failed is None else failed.seconds * 2
        self._failed[key] = _FailedPull(min(seconds, self._timing.pull_backoff_max), end, problem)
        text = f'Failed to pull image "{container.image}": {problem}'
        self._emit(pod, "Failed", text, WARNING, container.name)
        return RuntimeFault(PULL_ERROR, problem)

    async def _try_pull(
        self, image: str, credentials: list[RegistryCredential], sandbox: cri.PodSandboxConfig
    ) -> str:
        """Pull an image with each credential until one works; return the problem of the last."""
        problem, auths = "", [credential.auth() for credential in credentials]
        for auth in auths or (None,):
            request = cri.PullImageRequest(
                image=cri.ImageSpec(image=image), auth=auth, sandbox_config=sandbox
            )
            try:
                await self._client.call("PullImage", request, timeout=self._timing.pull)
                return ""
            except RuntimeCallError as error:
                problem = f"rpc error: code = {error.code} desc = {error.message}"
        return problem

    async def _credentials(self, pod: Pod, image: str) -> list[RegistryCredential]:
        """Return the credentials of the pod's pull secrets; missing secrets are ignored, as by a kubelet."""
        found: list[RegistryCredential] = []
        for reference in pod.spec.image_pull_secrets:
            try:
                tree = await self._objects.get(SECRETS, reference.name, pod.metadata.namespace)
            except ApiError as error:
                text = (
                    f"Unable to retrieve some image pull secrets ({reference.name}); attempting to pull the "
                    f"image may not succeed: {error}"
                )
                self._emit(pod, "FailedToRetrieveImagePullSecret", text, WARNING, "")
                continue
            found += parse_secret(branch(tree, "data"))
        return select_credentials(found, image)


def _present(image: cri.Image) -> PresentImage:
    if image.HasField("uid"):
        user = ImageUser(image.uid.value)
    elif image.username:
        user = ImageUser(None, image.username)
    else:
        user = ImageUser()
    return PresentImage(image.id, user)
