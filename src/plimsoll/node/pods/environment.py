"""Environment and command of a container.

Expands `$(VAR)` and resolves the downward API, ConfigMaps, Secrets and Services. Failures carry the kubelet's
reason and message. Files (volumes, tokens) are not handled here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plimsoll.api.containers import EnvVarSource, KeySelector
from plimsoll.api.core import Container, Pod
from plimsoll.client.endpoints import CONFIG_MAPS, SECRETS, Endpoint
from plimsoll.common.json_tree import branch
from plimsoll.errors import ApiError, InputError
from plimsoll.node.containers import RuntimeFault
from plimsoll.node.pods.downward_fields import DownwardFields, DownwardNodeInfo
from plimsoll.node.pods.service_reader import ServiceReader

CONFIG_ERROR = "CreateContainerConfigError"


class ApiObjectReader(Protocol):
    """Reader of API objects: the client."""

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class ContainerEnvironment:
    """Environment and command line of a container."""

    env: Mapping[str, str]
    command: tuple[str, ...]


async def build_environment(
    pod: Pod,
    container: Container,
    objects: ApiObjectReader,
    facts: DownwardNodeInfo,
    pod_ips: Sequence[str] = (),
    services: ServiceReader | None = None,
) -> ContainerEnvironment | RuntimeFault:
    """Build the environment and the command of a container, or return why that failed.

    Without `services` there are no variables of Services.
    """
    try:
        known: dict[str, str] = {}
        if services is not None:
            links = pod.spec.enable_service_links is not False
            known = await services.variables(pod.metadata.namespace, links=links)
        env = await _Reader(pod, container, objects, facts, tuple(pod_ips)).read(known)
        command = tuple(expand(part, env) for part in (*container.command, *container.args))
        for name, value in (*env.items(), *(("command", part) for part in command)):
            if "\0" in name or "\0" in value:
                raise InputError(f"{name!r} contains a NUL character, which a process cannot receive")
    except ApiError as error:
        return RuntimeFault(CONFIG_ERROR, error.message)
    except InputError as error:
        return RuntimeFault(CONFIG_ERROR, str(error))
    return ContainerEnvironment(env, command)


def expand(value: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` where the variable is defined; `$$` stands for one `$`."""
    parts: list[str] = []
    at = 0
    while True:
        found = value.find("$", at)
        if found < 0 or found + 1 == len(value):
            return "".join((*parts, value[at:]))
        parts.append(value[at:found])
        following = value[found + 1]
        end = value.find(")", found + 2) if following == "(" else -1
        if end >= 0:
            name = value[found + 2 : end]
            parts.append(variables.get(name, f"$({name})"))
            at = end + 1
        else:
            parts.append("$" if following == "$" else f"${following}")
            at = found + 2


@dataclass(slots=True)
class _Reader:
    pod: Pod
    container: Container
    objects: ApiObjectReader
    facts: DownwardNodeInfo
    pod_ips: tuple[str, ...]
    known: dict[tuple[str, str], dict[str, str] | None] = field(default_factory=dict)

    async def read(self, services: Mapping[str, str]) -> dict[str, str]:
        """Return the variables; the container's own come after those of Services, and can refer to them."""
        env: dict[str, str] = {**services}
        for source in self.container.env_from:
            for endpoint, reference in ((CONFIG_MAPS, source.config_map_ref), (SECRETS, source.secret_ref)):
                if reference is None:
                    continue
                data = await self._data(endpoint, reference)
                env.update({f"{source.prefix}{key}": value for key, value in (data or {}).items()})
        for variable in self.container.env:
            if variable.value:
                env[variable.name] = expand(variable.value, env)
            elif variable.value_from is not None:
                value = await self._value(variable.value_from)
                if value is not None:
                    env[variable.name] = value
            else:
                env[variable.name] = ""
        return env

    async def _value(self, source: EnvVarSource) -> str | None:
        if source.field_ref is not None:
            return self._downward().field(source.field_ref.field_path)
        if source.resource_field_ref is not None:
            return self._downward().resource(source.resource_field_ref, self.container)
        if source.config_map_key_ref is not None:
            return await self._key(CONFIG_MAPS, source.config_map_key_ref)
        if source.secret_key_ref is not None:
            return await self._key(SECRETS, source.secret_key_ref)
        if source.file_key_ref is not None:
            volume = source.file_key_ref.volume_name
            raise InputError(f'cannot find the volume "{volume}" referenced by FileKeyRef')
        return ""

    def _downward(self) -> DownwardFields:
        return DownwardFields(self.pod, self.facts, self.pod_ips)

    async def _key(self, endpoint: Endpoint, reference: KeySelector) -> str | None:
        data = await self._data(endpoint, reference)
        if data is None:
            return None
        if reference.key not in data:
            if reference.optional:
                return None
            place = f"{endpoint.kind} {self.pod.metadata.namespace}/{reference.name}"
            raise InputError(f"couldn't find key {reference.key} in {place}")
        return data[reference.key]

    async def _data(self, endpoint: Endpoint, reference: KeySelector) -> dict[str, str] | None:
        """Return the data of an object; None if it does not exist and is optional."""
        place = (endpoint.kind, reference.name)
        if place not in self.known:
            try:
                tree = await self.objects.get(endpoint, reference.name, self.pod.metadata.namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
                self.known[place] = None
            else:
                self.known[place] = _texts(branch(tree, "data"), secret=endpoint is SECRETS)
        data = self.known[place]
        if data is None and not reference.optional:
            raise InputError(f'{endpoint.kind.lower()} "{reference.name}" not found')
        return data


def _texts(data: dict[str, Any], *, secret: bool) -> dict[str, str]:
    found = {}
    for key, value in data.items():
        if not isinstance(value, str):
            continue
        if secret:
            try:
                value = base64.b64decode(value, validate=True).decode(errors="surrogateescape")
            except (binascii.Error, ValueError):
                raise InputError(f"the value of {key} is not valid base64") from None
        found[key] = value
    return found
