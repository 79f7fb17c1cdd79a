"""Container types of core `v1`: environment, probes, lifecycle hooks, restart rules, resize policies.

`api.core` composes them.
"""

from __future__ import annotations

from typing import ClassVar

from plimsoll.api.meta import Int, Int32, IntOrString, Wire
from plimsoll.api.quantity import Quantity

# -- environment


class ObjectFieldSelector(Wire, frozen=True):
    """A field of the pod."""

    api_version: str = ""
    field_path: str = ""


class ResourceFieldSelector(Wire, frozen=True):
    """A request or limit of a container."""

    container_name: str = ""
    resource: str = ""
    divisor: Quantity | None = None


class KeySelector(Wire, frozen=True):
    """A key of a ConfigMap or Secret, or the entire object if no key is set."""

    name: str = ""
    key: str = ""
    optional: bool | None = None


class FileKeySelector(Wire, frozen=True):
    volume_name: str = ""
    path: str = ""
    key: str = ""
    optional: bool | None = None


class EnvVarSource(Wire, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None
    file_key_ref: FileKeySelector | None = None


class EnvVar(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("name",)
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class EnvFromSource(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: KeySelector | None = None
    secret_ref: KeySelector | None = None


# -- probes and hooks


class HTTPHeader(Wire, frozen=True):
    name: str = ""
    value: str = ""


class ExecAction(Wire, frozen=True):
    command: tuple[str, ...] = ()


class HTTPGetAction(Wire, frozen=True):
    path: str = ""
    port: IntOrString = 0
    host: str = ""
    scheme: str = ""
    http_headers: tuple[HTTPHeader, ...] = ()


class TCPSocketAction(Wire, frozen=True):
    port: IntOrString = 0
    host: str = ""


class GRPCAction(Wire, frozen=True):
    port: Int32 = 0
    service: str | None = None


class SleepAction(Wire, frozen=True):
    seconds: Int = 0


class ProbeHandler(Wire, frozen=True):
    """Action of a probe or lifecycle hook."""

    exec: ExecAction | None = None
    http_get: HTTPGetAction | None = None
    tcp_socket: TCPSocketAction | None = None


class LifecycleHandler(ProbeHandler, frozen=True):
    sleep: SleepAction | None = None


class Probe(ProbeHandler, frozen=True):
    grpc: GRPCAction | None = None
    initial_delay_seconds: Int32 = 0
    timeout_seconds: Int32 = 0
    period_seconds: Int32 = 0
    success_threshold: Int32 = 0
    failure_threshold: Int32 = 0
    termination_grace_period_seconds: Int | None = None


class Lifecycle(Wire, frozen=True):
    post_start: LifecycleHandler | None = None
    pre_stop: LifecycleHandler | None = None
    stop_signal: str | None = None


# -- restarts and resizes


class ContainerRestartRuleOnExitCodes(Wire, frozen=True):
    operator: str = ""
    values: tuple[Int32, ...] = ()


class ContainerRestartRule(Wire, frozen=True):
    action: str = ""
    exit_codes: ContainerRestartRuleOnExitCodes | None = None


class ContainerResizePolicy(Wire, frozen=True):
    item_key: ClassVar[tuple[str, ...]] = ("resource_name",)
    resource_name: str = ""
    restart_policy: str = ""
