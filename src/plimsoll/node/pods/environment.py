"""Environment and command of a container.

Expands `$(VAR)` and resolves the downward API, ConfigMaps and Secrets. Failures carry the kubelet's reason
and message. Files (volumes, tokens) are not handled here.

DIFF: no variables for services (test_no_variables_for_services).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from plimsoll.api.containers import EnvVarSource, KeySelector, ResourceFieldSelector
from plimsoll.api.core import Container, Pod, ResourceList
from plimsoll.api.quantity import ZERO, Quantity, divide_up
from plimsoll.client.endpoints import CONFIG_MAPS, SECRETS, Endpoint
from plimsoll.common.json_tree import branch
from plimsoll.errors import ApiError, InputError
from plimsoll.node.containers import RuntimeFault

CONFIG_ERROR = "CreateContainerConfigError"
_ONE = Quantity.parse("1")


class ApiObjectReader(Protocol):
    """Reader of API objects: the client."""

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class DownwardNodeInfo:
    """Node information available through the downward API."""

    name: str = ""
    host_ips: tuple[str, ...] = ()
    allocatable: ResourceList = field(default_factory=dict)


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
) -> ContainerEnvironment | RuntimeFault:
    """Build the environment and the command of a container, or return why that failed."""
    try:
        env = await _Reader(pod, container, objects, facts, tuple(pod_ips)).read()
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

    async def read(self) -> dict[str, str]:
        env: dict[str, str] = {}
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
            return self._field(source.field_ref.field_path)
        if source.resource_field_ref is not None:
            return self._resource(source.resource_field_ref)
        if source.config_map_key_ref is not None:
            return await self._key(CONFIG_MAPS, source.config_map_key_ref)
        if source.secret_key_ref is not None:
            return await self._key(SECRETS, source.secret_key_ref)
        if source.file_key_ref is not None:
            volume = source.file_key_ref.volume_name
            raise InputError(f'cannot find the volume "{volume}" referenced by FileKeyRef')
        return ""

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

    def _field(self, path: str) -> str:
        meta, spec = self.pod.metadata, self.pod.spec
        plain = {
            "metadata.name": meta.name,
            "metadata.namespace": meta.namespace,
            "metadata.uid": meta.uid,
            "metadata.labels": _lines(meta.labels),
            "metadata.annotations": _lines(meta.annotations),
            "spec.nodeName": spec.node_name,
            "spec.serviceAccountName": spec.service_account_name,
            "status.hostIP": self.facts.host_ips[0] if self.facts.host_ips else "",
            "status.hostIPs": ",".join(self.facts.host_ips),
            "status.podIP": self.pod_ips[0] if self.pod_ips else "",
            "status.podIPs": ",".join(self.pod_ips),
        }
        if path in plain:
            return plain[path]
        for prefix, values in (("metadata.labels", meta.labels), ("metadata.annotations", meta.annotations)):
            if path.startswith(f"{prefix}['") and path.endswith("']"):
                return values.get(path[len(prefix) + 2 : -2], "")
        raise InputError(f"field label not supported: {path}")

    def _resource(self, reference: ResourceFieldSelector) -> str:
        container = self.container
        if reference.container_name:
            spec = self.pod.spec
            named = [
                c for c in (*spec.init_containers, *spec.containers) if c.name == reference.container_name
            ]
            if not named:
                raise InputError(f"container {reference.container_name} not found")
            container = named[0]
        kind, _, name = reference.resource.partition(".")
        if kind == "limits":
            # Without a limit the container may use the entire node.
            amount = container.resources.limits.get(name) or self.facts.allocatable.get(name, ZERO)
        elif kind == "requests":
            amount = container.resources.requests.get(name, ZERO)
        else:
            raise InputError(f"unsupported container resource : {reference.resource}")
        return _divide(amount, reference.divisor, milli=name == "cpu")


def _divide(amount: Quantity, divisor: Quantity | None, *, milli: bool) -> str:
    by = divisor if divisor is not None and divisor > ZERO else _ONE
    if milli:
        return str(divide_up(amount.milli(), max(1, by.milli())))
    return str(divide_up(amount.value(), max(1, by.value())))


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


def _lines(values: Mapping[str, str]) -> str:
    """Format labels or annotations as lines of key="value"."""
    return "\n".join(f'{key}="{_escape(value)}"' for key, value in sorted(values.items()))


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
