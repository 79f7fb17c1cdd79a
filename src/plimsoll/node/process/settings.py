"""Settings of node agents, and flags that override them; `settings_file.py` reads them from a file.

Guarantees that every field has a working default, and that every error names the flag and the fix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from plimsoll.api.core import NodeAddress, ResourceList, Taint
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.common.addresses import host_name, read_address
from plimsoll.common.config_file import read_flag
from plimsoll.errors import ConfigError
from plimsoll.node.cgroups.ownership import default_root, owner_of
from plimsoll.node.eviction.thresholds import Threshold, parse_thresholds
from plimsoll.node.kubelet_api.settings import AUTO, KubeletApiSettings
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file_values import parse_taint, read_amounts, read_labels
from plimsoll.node.machine.machine import Machine, Reservations, parse_cpus
from plimsoll.node.plugins import PluginTiming
from plimsoll.node.podresources import RateLimit
from plimsoll.node.pods.backoff import PodTiming
from plimsoll.node.runtime.cri.settings import EXAMPLE_ENDPOINT, CriSettings
from plimsoll.node.runtime.stages import Stage, read_stages_file
from plimsoll.node.security.policy import OnUnsupported
from plimsoll.node.status.reporter import HeartbeatTiming

ROOT = Path("/var/lib/plimsoll")
LISTEN = "127.0.0.1:10248"
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Intervals in seconds that no file sets: they are the kubelet's. Tests shorten them."""

    plugins: PluginTiming = field(default_factory=PluginTiming)
    pods: PodTiming = field(default_factory=PodTiming)
    status_first: float = 0.5  #: first back-off of a failed status write; doubles
    status_max: float = 15.0
    watch_first: float = 0.5  #: first back-off of a failed list of pods; doubles
    watch_max: float = 30.0
    housekeeping: float = 60.0  #: between two searches for orphans
    slices: float = 30.0  #: for drivers to reconnect after a start, before their slices are deleted
    slices_retry: float = 5.0
    pressure: float = 10.0  #: between two evaluations of node pressure
    cgroups: float = 5.0  #: between two checks that the cgroups still exist
    preemption: float = 120.0  #: for preemption victims to terminate


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Settings of one node, or of many simulated ones."""

    name: str = ""  #: "": the host name
    count: int = 1  #: more than one: NAME-0, NAME-1, ..., simulated in one process
    listed: tuple[str, ...] = ()  #: explicit names of simulated nodes
    root: Path = ROOT
    runtime: Literal["process", "none", "cri"] = "process"
    cri: CriSettings = field(default_factory=CriSettings)  #: for the runtime `cri`
    #: State only: no sockets for drivers and monitoring agents, no files. None: only if there are many nodes.
    bare: bool | None = None
    #: Commands of images for the process runtime: by full name, name without tag, or last part of the name.
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Policy for containers whose security context cannot be applied in full.
    on_unsupported_security: OnUnsupported = "refuse"
    stages: tuple[Stage, ...] = ()  #: of simulated pods
    machine_file: Path | None = None
    machine: Machine | None = None  #: in place of a file or the actual machine
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    max_pods: int | None = None
    reservations: Reservations = field(default_factory=Reservations)
    thresholds: tuple[Threshold, ...] = field(default_factory=parse_thresholds)
    cdi: tuple[Path, ...] = ()  #: (): below the root, and the standard directories
    nri: Path | None = None  #: None: below the root; Path(""): no NRI
    nri_config: Path | None = None
    pod_resources: RateLimit | None = field(default_factory=RateLimit)  #: rate limit; None: unlimited
    cgroup_root: str = ""  #: "": derived from the node and its directory
    cgroups: Literal["auto", "v1", "v2", "plan"] = "auto"
    cgroup_driver: Literal["cgroupfs", "systemd"] = "cgroupfs"  #: systemd: with the runtime `cri` only
    gates: Gates = field(default_factory=Gates.default)
    #: Release whose rules apply to claims; in 1.36 they do not count in cgroups.
    form: Form = Form.V1_37
    timing: HeartbeatTiming = field(default_factory=HeartbeatTiming)
    intervals: Intervals = field(default_factory=Intervals)
    leave: bool = False  #: delete the Node on exit
    stop_seconds: float = 10.0
    listen: str = ""  #: HOST:PORT of the HTTP endpoints; "" for none
    kubelet_api: KubeletApiSettings = field(default_factory=KubeletApiSettings)
    log_format: str = "text"
    verbose: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the nodes."""
        if self.listed:
            return self.listed
        name = self.name or host_name()
        return (name,) if self.count == 1 else tuple(f"{name}-{place}" for place in range(self.count))

    @property
    def is_bare(self) -> bool:
        return self.count > 1 if self.bare is None else self.bare

    def cgroups_of(self, name: str) -> tuple[str, str]:
        """Return the root cgroup of a node, and the owner it is marked with."""
        data = self.layout(name).root
        return self.cgroup_root or default_root(name, data), owner_of(name, data)

    def layout(self, name: str) -> Layout:
        """Return the paths of a node: several nodes have their own directories below the root."""
        return Layout(self.root if self.count == 1 else self.root / name)

    def checked(self) -> NodeSettings:
        """Return these settings; raise ConfigError if they contradict each other."""
        for name in self.listed or (self.names[0], self.names[-1]):
            if not _NAME.fullmatch(name) or len(name) > 253:
                raise ConfigError(
                    f"name: {name!r} is not a valid node name: use lowercase letters, digits, '-' and '.', "
                    "and set one with --name"
                )
        if self.count > 1 and self.runtime != "none":
            raise ConfigError("count: multiple nodes in one process require --runtime none")
        if self.is_bare and self.runtime != "none":
            raise ConfigError("bare: an agent that runs processes needs its files: use runtime none")
        self._check_runtime()
        if self.listen:
            read_address(self.listen, example=LISTEN)
        api = self.kubelet_api
        if api.listen not in ("", AUTO):
            read_address(api.listen, example="0.0.0.0:10250")
        if (api.certificate is None) != (api.key is None):
            raise ConfigError("kubeletAPI: --tls-cert-file and --tls-private-key-file must be given together")
        return self

    def _check_runtime(self) -> None:
        """Raise ConfigError for settings that the runtime does not use."""
        if self.runtime != "cri":
            if self.cgroup_driver != "cgroupfs":
                raise ConfigError(
                    f"cgroups: --cgroup-driver {self.cgroup_driver} requires --runtime cri: "
                    "the agent's own containers are in plain cgroups"
                )
            if self.cri != CriSettings():
                raise ConfigError("cri: these settings require --runtime cri")
            return
        if not self.cri.endpoint:
            raise ConfigError(f"--cri-endpoint: the runtime cri requires it, such as {EXAMPLE_ENDPOINT}")
        _ = self.cri.socket  # raises if it is invalid
        unused = {
            "images": (bool(self.images), "the container runtime has images of its own"),
            "nri": (
                self.nri not in (None, Path("")) or self.nri_config is not None,
                "NRI plugins connect to the container runtime",
            ),
            "cdiSpecDirs": (bool(self.cdi), "the container runtime reads CDI files: set its cdi_spec_dirs"),
            "unsupportedSecurityContext": (
                self.on_unsupported_security == "warn",
                "the container runtime applies security contexts",
            ),
        }
        for name, (is_set, why) in unused.items():
            if is_set:
                raise ConfigError(f"{name}: not with --runtime cri: {why}")


def override(
    settings: NodeSettings,
    *,
    gates: str | None = None,
    form: str | None = None,
    labels: Sequence[str] = (),
    taints: Sequence[str] = (),
    addresses: Sequence[str] = (),
    system_reserved: str | None = None,
    kube_reserved: str | None = None,
    reserved_cpus: str | None = None,
    eviction_hard: str | None = None,
    cdi: Sequence[Path] = (),
    kubelet_listen: str | None = None,
    client_ca_file: Path | None = None,
    tls_cert_file: Path | None = None,
    tls_private_key_file: Path | None = None,
    cri_endpoint: str | None = None,
    cluster_dns: Sequence[str] = (),
    cluster_domain: str | None = None,
    stages: Path | None = None,
    **given: Any,
) -> NodeSettings:
    """Return the settings with the given flags applied; None: not given."""
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if stages is not None:
        changes["stages"] = read_stages_file(stages)
    if gates is not None:
        changes["gates"] = Gates.parse(gates, settings.gates)
    if form is not None:
        changes["form"] = Form(form)
    if labels:
        pairs = dict(_pairs(",".join(labels), "--label"))
        changes["labels"] = {**settings.labels, **read_flag(pairs, read_labels, "--label")}
    if taints:
        changes["taints"] = tuple(read_flag(text, parse_taint, "--taint") for text in taints)
    if addresses:
        changes["addresses"] = tuple(NodeAddress(type="InternalIP", address=text) for text in addresses)
    if cdi:
        changes["cdi"] = tuple(cdi)
    api = {
        "listen": kubelet_listen,
        "client_ca": client_ca_file,
        "certificate": tls_cert_file,
        "key": tls_private_key_file,
    }
    api = {name: value for name, value in api.items() if value is not None}
    changes["kubelet_api"] = replace(settings.kubelet_api, **cast(Any, api))
    cri: dict[str, Any] = {
        "endpoint": cri_endpoint,
        "cluster_dns": tuple(cluster_dns),
        "cluster_domain": cluster_domain,
    }
    changes["cri"] = replace(settings.cri, **{name: value for name, value in cri.items() if value})
    reserved = settings.reservations
    if system_reserved is not None:
        reserved = replace(reserved, system=_read_reserved(system_reserved, "--system-reserved"))
    if kube_reserved is not None:
        reserved = replace(reserved, kube=_read_reserved(kube_reserved, "--kube-reserved"))
    if reserved_cpus is not None:
        reserved = replace(reserved, cpus=read_flag(reserved_cpus, parse_cpus, "--reserved-cpus"))
    if eviction_hard is not None:
        hard = dict(_pairs(eviction_hard, "--eviction-hard", "<"))
        reserved = replace(reserved, eviction_hard=hard)
        soft = [each for each in settings.thresholds if not each.is_hard]
        changes["thresholds"] = (*read_flag(hard, parse_thresholds, "--eviction-hard"), *soft)
    return replace(settings, reservations=reserved, **changes).checked()


def _pairs(text: str, where: str, separator: str = "=") -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, found, value = part.partition(separator)
        if not found or not name.strip():
            raise ConfigError(f"{where}: {part!r} is invalid: use NAME{separator}VALUE,...")
        yield name.strip(), value.strip()


def _read_reserved(text: str, flag: str) -> ResourceList:
    found: ResourceList = read_flag(dict(_pairs(text, flag)), read_amounts, flag)
    return found
