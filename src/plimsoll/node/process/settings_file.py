"""Configuration file of node agents; docs/node.md lists the fields.

Guarantees that every field has a working default, and that every error is a ConfigError that names the file,
the field and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field
from msgspec.structs import asdict

from plimsoll.api.config import Config, convert_config, format_value
from plimsoll.api.core import NodeAddress
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.common.config_file import (
    FeatureGates,
    LogConfig,
    OptionalPath,
    Seconds,
    read_config,
    read_document,
)
from plimsoll.errors import DecodeError, InputError
from plimsoll.node.eviction.thresholds import DEFAULTS, Threshold, parse_thresholds
from plimsoll.node.kubelet_api.settings import AUTO, KubeletApiSettings
from plimsoll.node.machine.file_values import Amounts, Labels, Taints
from plimsoll.node.machine.machine import EVICTION_HARD, Reservations, parse_cpus
from plimsoll.node.podresources import RateLimit
from plimsoll.node.process.settings import LISTEN, ROOT, NodeSettings
from plimsoll.node.runtime.cri.settings import CriSettings
from plimsoll.node.runtime.stages import Stage, read_stages_file
from plimsoll.node.security.policy import OnUnsupported
from plimsoll.node.status.reporter import HeartbeatTiming

_HEARTBEAT, _RATE_LIMIT, _NODE, _CRI = HeartbeatTiming(), RateLimit(), NodeSettings(), CriSettings()


def read_settings(path: Path | None) -> NodeSettings:
    """Read the settings of a file, with defaults for omitted fields."""
    if path is None:
        return parse_settings({})
    return parse_settings(read_document(path, "configuration"), str(path))


def parse_settings(tree: object, where: str = "configuration") -> NodeSettings:
    """Parse the settings of a tree, as `read_settings` does for a file."""
    return read_config(tree, _read_settings, where)


def _read_text(value: Any) -> str:
    """Convert a string, or a whole number, which needs no quotes."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InputError(f"must be a string, not {format_value(value)}")
    return str(value)


def _read_command(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(part, str) for part in value):
        raise InputError("must be a command as a list of strings, such as [sleep, inf]")
    return tuple(value)


def _read_cpus(value: Any) -> tuple[int, ...]:
    return parse_cpus(convert_config(value, str))


_Texts: TypeAlias = Mapping[str, Annotated[str, _read_text]]
_Name: TypeAlias = Annotated[str, Meta(min_length=1)]
_Calls: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]


class _EvictionFile(Config, frozen=True, kw_only=True):
    hard: _Texts = field(default_factory=dict)
    soft: _Texts = field(default_factory=dict)
    minimum_reclaim: _Texts = field(default_factory=dict)
    soft_grace_period: Mapping[str, Seconds] = field(default_factory=dict)

    def thresholds(self) -> tuple[Threshold, ...]:
        for name in self.soft_grace_period:
            if name not in self.soft:
                known = ", ".join(self.soft)
                raise DecodeError(f"unknown field; valid fields: {known}", f"eviction.softGracePeriod.{name}")
        try:
            return parse_thresholds(
                self.hard or DEFAULTS, self.soft, self.soft_grace_period, self.minimum_reclaim
            )
        except InputError as error:
            raise DecodeError(str(error), "eviction") from None


class _NriFile(Config, frozen=True, kw_only=True):
    enabled: bool = True
    socket: OptionalPath = None
    config: OptionalPath = None


class _RateLimitFile(Config, frozen=True, kw_only=True):
    unlimited: bool = False
    calls_per_second: _Calls = int(_RATE_LIMIT.per_second)
    burst: _Calls = _RATE_LIMIT.burst


class _CriFile(Config, frozen=True, kw_only=True):
    endpoint: str = ""
    cluster_dns: tuple[_Name, ...] = field(default=(), name="clusterDNS")
    cluster_domain: str = _CRI.cluster_domain
    resolv_conf: str = str(_CRI.resolv_conf)
    pod_logs: str = field(default=str(_CRI.pod_logs), name="podLogsDir")
    request_timeout: Seconds = _CRI.timing.request

    def settings(self) -> CriSettings:
        return CriSettings(
            endpoint=self.endpoint,
            cluster_dns=self.cluster_dns,
            cluster_domain=self.cluster_domain,
            resolv_conf=Path(self.resolv_conf) if self.resolv_conf else None,
            pod_logs=Path(self.pod_logs),
            timing=replace(_CRI.timing, request=self.request_timeout),
        )


class _CgroupsFile(Config, frozen=True, kw_only=True):
    root: str = ""
    mode: Literal["auto", "v1", "v2", "plan"] = "auto"
    driver: Literal["cgroupfs", "systemd"] = "cgroupfs"


class _HeartbeatFile(Config, frozen=True, kw_only=True):
    lease: Annotated[int, Meta(ge=1, le=3600)] = field(default=_HEARTBEAT.lease, name="leaseSeconds")
    renew: Seconds = _HEARTBEAT.renew
    check: Seconds = field(default=_HEARTBEAT.check, name="statusCheck")
    report: Seconds = field(default=_HEARTBEAT.report, name="statusReport")

    def __post_init__(self) -> None:
        if self.renew >= self.lease:
            raise DecodeError(f"must be shorter than the lease ({self.lease} s)", "renew")


class _KubeletApiFile(Config, frozen=True, kw_only=True):
    listen: str = AUTO
    client_ca: OptionalPath = field(default=None, name="clientCAFile")
    certificate: OptionalPath = field(default=None, name="tlsCertFile")
    key: OptionalPath = field(default=None, name="tlsPrivateKeyFile")


def _read_stages(value: Any) -> tuple[Stage, ...]:
    """Read the file of stages."""
    if not isinstance(value, str):
        raise InputError("must be the path of a file")
    return read_stages_file(Path(value))


class _NodeFile(Config, frozen=True, kw_only=True):
    kind: Literal["NodeConfiguration"] = "NodeConfiguration"
    api_version: str = ""
    name: str = ""
    count: Annotated[int, Meta(ge=1, le=10_000)] = 1
    root: str = str(ROOT)
    runtime: Literal["process", "none", "cri"] = "process"
    cri: _CriFile = _CriFile()
    bare: bool | None = None
    images: Mapping[str, Annotated[tuple[str, ...], _read_command]] = field(default_factory=dict)
    on_unsupported_security: OnUnsupported = field(default="refuse", name="unsupportedSecurityContext")
    stages: Annotated[tuple[Stage, ...], _read_stages] = ()
    machine_file: OptionalPath = field(default=None, name="machine")
    labels: Labels = field(default_factory=dict)
    taints: Taints = ()
    addresses: tuple[_Name, ...] = ()
    max_pods: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    system_reserved: Amounts = field(default_factory=dict)
    kube_reserved: Amounts = field(default_factory=dict)
    reserved_cpus: Annotated[tuple[int, ...], _read_cpus] = field(default=(), name="reservedCPUs")
    eviction: _EvictionFile = _EvictionFile()
    cdi_spec_dirs: tuple[_Name, ...] = ()
    cdi_folders: tuple[_Name, ...] = ()  #: the former name of cdiSpecDirs
    nri: _NriFile = _NriFile()
    pod_resources: _RateLimitFile = _RateLimitFile()
    cgroups: _CgroupsFile = _CgroupsFile()
    gates: FeatureGates = field(default=Gates.default(), name="featureGates")
    form: Literal["1.36", "1.37"] = "1.37"
    heartbeat: _HeartbeatFile = _HeartbeatFile()
    leave: bool = False
    stop_seconds: Seconds = field(default=_NODE.stop_seconds, name="stopTimeout")
    listen: str = LISTEN
    kubelet_api: _KubeletApiFile = field(default=_KubeletApiFile(), name="kubeletAPI")
    log: LogConfig = LogConfig()


def _read_settings(tree: Any) -> NodeSettings:
    file: _NodeFile = convert_config(tree, _NodeFile)
    limit = file.pod_resources
    same = {name: value for name, value in asdict(file).items() if name in NodeSettings.__slots__}
    changed: dict[str, Any] = {
        "root": Path(file.root),
        "addresses": tuple(NodeAddress(type="InternalIP", address=text) for text in file.addresses),
        "reservations": Reservations(
            system=file.system_reserved,
            kube=file.kube_reserved,
            eviction_hard=file.eviction.hard or EVICTION_HARD,
            cpus=file.reserved_cpus,
        ),
        "thresholds": file.eviction.thresholds(),
        "cri": file.cri.settings(),
        "cdi": tuple(map(Path, file.cdi_spec_dirs or file.cdi_folders)),
        "nri": file.nri.socket if file.nri.enabled else Path(""),
        "nri_config": file.nri.config,
        "pod_resources": None if limit.unlimited else RateLimit(limit.calls_per_second, limit.burst),
        "cgroup_root": file.cgroups.root,
        "cgroups": file.cgroups.mode,
        "cgroup_driver": file.cgroups.driver,
        "form": Form(file.form),
        "timing": HeartbeatTiming(**asdict(file.heartbeat)),
        "kubelet_api": KubeletApiSettings(**asdict(file.kubelet_api)),
        "log_format": file.log.format,
        "verbose": file.log.verbose,
    }
    return NodeSettings(**same | changed)
