"""What containers are given and what is done to them: environment, probes, hooks, rules of restarts.

Owns the parts of core `v1` containers that have types of their own; `api.core` puts them together.
"""

from __future__ import annotations

from typing import ClassVar

from plimsoll.api.meta import Int, Int32, IntOrString, Wire
from plimsoll.api.quantity import Quantity

# -- environment


class ObjectField(Wire, frozen=True):
    """A field of the pod itself."""

    api_version: str = ""
    field_path: str = ""


class ResourceField(Wire, frozen=True):
    """A request or limit of a container."""

    container_name: str = ""
    resource: str = ""
    divisor: Quantity | None = None


class KeySelector(Wire, frozen=True):
    """A key of a ConfigMap or a Secret; without a key, the whole of it."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKey(Wire, frozen=True):
    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvSource(Wire, frozen=True):
    field_ref: ObjectField | None = None
    resource_field_ref: ResourceField | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    file_key_ref: FileKey | None = None


class EnvVar(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    value: str = ""
    value_from: EnvSource | None = None


class EnvFrom(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: KeySelector | None = None
    secret_ref: KeySelector | None = None


# -- probes and hooks


class Header(Wire, frozen=True):
    name: str = ""
    value: str = ""


class Exec(Wire, frozen=True):
    command: tuple[str, ...] = ()


class HttpGet(Wire, frozen=True):
    path: str = ""
    port: IntOrString = 0
    host: str = ""
    scheme: str = ""
    http_headers: tuple[Header, ...] = ()


class TcpSocket(Wire, frozen=True):
    port: IntOrString = 0
    host: str = ""


class Grpc(Wire, frozen=True):
    port: Int32 = 0
    service: str | None = None


class Sleep(Wire, frozen=True):
    seconds: Int = 0


class Handler(Wire, frozen=True):
    """What a probe or a hook does."""

    exec: Exec | None = None
    http_get: HttpGet | None = None
    tcp_socket: TcpSocket | None = None


class Hook(Handler, frozen=True):
    sleep: Sleep | None = None


class Probe(Handler, frozen=True):
    grpc: Grpc | None = None
    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = 0
    period_seconds: Int32 = 0
    success_threshold: Int32 = 0
    failure_threshold: Int32 = 0
    termination_grace_period_seconds: Int | None = None


class Lifecycle(Wire, frozen=True):
    post_start: Hook | None = None
    pre_stop: Hook | None = None
    stop_signal: str | None = None


# -- restarts and resizes


class ExitCodes(Wire, frozen=True):
    operator: str = ""
    values: tuple[Int32, ...] = ()


class ContainerRestartRule(Wire, frozen=True):
    action: str = ""
    exit_codes: ExitCodes | None = None


class ResizePolicy(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("resource_name",)
    resource_name: str = ""
    restart_policy: str = ""
