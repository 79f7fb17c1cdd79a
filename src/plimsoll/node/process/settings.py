"""Settings of node agents: a configuration file, and flags that take precedence.

docs/node.md lists the fields. Guarantees that every field has a working default, and that every error is a
ConfigError that names the file or flag, the field and the fix.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from plimsoll.api.core import NodeAddress, ResourceList, Taint
from plimsoll.api.forms import Form
from plimsoll.api.gates import Gates
from plimsoll.common.addresses import host_name, read_address
from plimsoll.common.config_file import ConfigSection, read_document
from plimsoll.common.structured_log import FORMATS
from plimsoll.errors import ConfigError, InputError
from plimsoll.node.cgroups.ownership import default_root, owner_of
from plimsoll.node.eviction.thresholds import DEFAULTS, Threshold, parse_thresholds
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_taint, read_amounts, read_labels, read_taints
from plimsoll.node.machine.machine import MAX_PODS, Machine, Reservations, parse_cpus
from plimsoll.node.plugins import PluginTiming
from plimsoll.node.podresources.rate_limit import RateLimit
from plimsoll.node.pods.backoff import PodTiming
from plimsoll.node.security.policy import OnUnsupported
from plimsoll.node.status.reporter import HeartbeatTiming

KIND = "NodeConfiguration"
RUNTIMES = ("process", "none")
UNSUPPORTED_SECURITY = ("refuse", "warn")
CGROUPS = ("auto", "v1", "v2", "plan")
FORMS = ("1.36", "1.37")
ROOT = Path("/var/lib/plimsoll")
LISTEN = "127.0.0.1:10248"
MAX_NODES = 10_000
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
    runtime: Literal["process", "none"] = "process"
    #: State only: no sockets for drivers and monitoring agents, no files. None: only if there are many nodes.
    bare: bool | None = None
    #: Commands of images for the process runtime: by full name, name without tag, or last part of the name.
    images: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Policy for containers whose security context cannot be applied in full.
    on_unsupported_security: OnUnsupported = "refuse"
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
    gates: Gates = field(default_factory=Gates.all_on)
    #: Release whose rules apply to claims; in 1.36 they do not count in cgroups.
    form: Form = Form.V1_37
    timing: HeartbeatTiming = field(default_factory=HeartbeatTiming)
    intervals: Intervals = field(default_factory=Intervals)
    leave: bool = False  #: delete the Node on exit
    stop_seconds: float = 10.0
    listen: str = ""  #: HOST:PORT of the HTTP endpoints; "" for none
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
        if self.listen:
            read_address(self.listen, example=LISTEN)
        return self


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
    **given: Any,
) -> NodeSettings:
    """Return the settings with the given flags applied; None: not given."""
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if gates is not None:
        changes["gates"] = Gates.parse(gates, settings.gates)
    if form is not None:
        changes["form"] = Form(form)
    if labels:
        pairs = dict(_pairs(",".join(labels), "--label"))
        changes["labels"] = {**settings.labels, **read_labels(pairs, "--label")}
    if taints:
        changes["taints"] = tuple(_taint(text) for text in taints)
    if addresses:
        changes["addresses"] = tuple(NodeAddress(type="InternalIP", address=text) for text in addresses)
    if cdi:
        changes["cdi"] = tuple(cdi)
    reserved = settings.reservations
    if system_reserved is not None:
        reserved = replace(reserved, system=_reserved(system_reserved, "--system-reserved"))
    if kube_reserved is not None:
        reserved = replace(reserved, kube=_reserved(kube_reserved, "--kube-reserved"))
    if reserved_cpus is not None:
        reserved = replace(reserved, cpus=_cpus(reserved_cpus, "--reserved-cpus"))
    if eviction_hard is not None:
        hard = dict(_pairs(eviction_hard, "--eviction-hard", "<"))
        reserved = replace(reserved, eviction_hard=hard)
        soft = [each for each in settings.thresholds if not each.is_hard]
        changes["thresholds"] = (*_thresholds(hard, "--eviction-hard"), *soft)
    return replace(settings, reservations=reserved, **changes).checked()


def read_settings(path: Path | None) -> NodeSettings:
    """Read the settings of a file, with defaults for omitted fields."""
    if path is None:
        return parse_settings({})
    return parse_settings(read_document(path, "configuration"), str(path))


def parse_settings(tree: object, where: str = "configuration") -> NodeSettings:
    """Parse the settings of a tree, as `read_settings` does for a file."""
    top = ConfigSection(tree, where)
    top.text("kind", KIND, choices=(KIND,))
    top.text("apiVersion", "")
    default = NodeSettings()
    log, cgroups, nri = top.section("log"), top.section("cgroups"), top.section("nri")
    eviction = top.section("eviction")
    given = _texts(eviction.section("hard"))
    hard = given or dict(default.reservations.eviction_hard)
    found = NodeSettings(
        name=top.text("name", ""),
        count=top.number("count", 1, most=MAX_NODES),
        root=Path(top.text("root", str(ROOT))),
        runtime=_choice(top, "runtime", "process", RUNTIMES),
        bare=top.flag("bare", False) if _given(tree, "bare") else None,
        images=_images(top.section("images")),
        on_unsupported_security=_choice(top, "unsupportedSecurityContext", "refuse", UNSUPPORTED_SECURITY),
        machine_file=_path(top, "machine"),
        labels=read_labels(top.take("labels"), f"{where}: labels"),
        taints=read_taints(top.sections("taints")),
        addresses=tuple(NodeAddress(type="InternalIP", address=text) for text in _list(top, "addresses")),
        max_pods=top.number("maxPods", MAX_PODS, most=100_000) if _given(tree, "maxPods") else None,
        reservations=Reservations(
            system=read_amounts(top.take("systemReserved"), f"{where}: systemReserved"),
            kube=read_amounts(top.take("kubeReserved"), f"{where}: kubeReserved"),
            eviction_hard=hard,
            cpus=_cpus(top.text("reservedCPUs", ""), f"{where}: reservedCPUs"),
        ),
        thresholds=_eviction(eviction, given or DEFAULTS),
        cdi=tuple(map(Path, _list(top, "cdiSpecDirs") or _list(top, "cdiFolders"))),
        nri=_nri(nri),
        nri_config=_path(nri, "config"),
        pod_resources=_limit(top.section("podResources")),
        cgroup_root=cgroups.text("root", ""),
        cgroups=_choice(cgroups, "mode", "auto", CGROUPS),
        gates=_gates(top.section("featureGates")),
        form=Form(top.text("form", Form.V1_37.value, choices=FORMS)),
        timing=_timing(top.section("heartbeat")),
        leave=top.flag("leave", False),
        stop_seconds=top.seconds("stopTimeout", default.stop_seconds),
        listen=top.text("listen", LISTEN),
        log_format=log.text("format", default.log_format, choices=FORMATS),
        verbose=log.flag("verbose", False),
    )
    for section in (log, cgroups, nri, eviction, top):
        section.end()
    return found


def _given(tree: object, name: str) -> bool:
    return isinstance(tree, Mapping) and tree.get(name) is not None


def _choice(section: ConfigSection, name: str, default: str, choices: Sequence[str]) -> Any:
    return section.text(name, default, choices=choices)


def _path(section: ConfigSection, name: str) -> Path | None:
    text = section.text(name, "")
    return Path(text) if text else None


def _images(section: ConfigSection) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, command in section.rest().items():
        if not isinstance(command, list) or not command or not all(isinstance(p, str) for p in command):
            raise section.bad(name, "must be a command as a list of strings, such as [sleep, inf]")
        found[name] = tuple(command)
    return found


def _nri(section: ConfigSection) -> Path | None:
    """Return the path of the NRI socket; the empty path if NRI is disabled."""
    enabled = section.flag("enabled", True)
    path = _path(section, "socket")
    return path if enabled else Path("")


def _list(section: ConfigSection, name: str) -> tuple[str, ...]:
    value = section.take(name)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise section.bad(name, f"must be a list of strings, not {value!r}")
    return tuple(value)


def _texts(section: ConfigSection) -> dict[str, str]:
    found = {}
    for name, value in section.rest().items():
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise section.bad(name, f"must be a string, not {value!r}")
        found[name] = str(value)
    return found


def _eviction(section: ConfigSection, hard: Mapping[str, str]) -> tuple[Threshold, ...]:
    soft, reclaim = _texts(section.section("soft")), _texts(section.section("minimumReclaim"))
    graces = section.section("softGracePeriod")
    seconds = {name: graces.seconds(name, 0.0) for name in soft}
    graces.end()
    try:
        return parse_thresholds(hard, soft, {k: v for k, v in seconds.items() if v}, reclaim)
    except InputError as error:
        raise ConfigError(f"{section.where}: {error}") from None


def _thresholds(hard: Mapping[str, str], where: str) -> tuple[Threshold, ...]:
    try:
        return parse_thresholds(hard)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _limit(section: ConfigSection) -> RateLimit | None:
    unlimited = section.flag("unlimited", False)
    default = RateLimit()
    found = RateLimit(
        section.number("callsPerSecond", int(default.per_second)), section.number("burst", default.burst)
    )
    section.end()
    return None if unlimited else found


def _gates(section: ConfigSection) -> Gates:
    switches = section.rest()
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise section.bad(name, f"must be true or false, not {value!r}")
    try:
        return Gates.of(switches)
    except InputError as error:
        raise ConfigError(f"{section.where}: {error}") from None


def _timing(section: ConfigSection) -> HeartbeatTiming:
    default = HeartbeatTiming()
    found = HeartbeatTiming(
        lease=section.number("leaseSeconds", default.lease, least=1, most=3600),
        renew=section.seconds("renew", default.renew),
        check=section.seconds("statusCheck", default.check),
        report=section.seconds("statusReport", default.report),
    )
    section.end()
    if found.renew >= found.lease:
        raise section.bad("renew", f"must be shorter than the lease ({found.lease} s)")
    return found


def _pairs(text: str, where: str, separator: str = "=") -> Iterator[tuple[str, str]]:
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, found, value = part.partition(separator)
        if not found or not name.strip():
            raise ConfigError(f"{where}: {part!r} is invalid: use NAME{separator}VALUE,...")
        yield name.strip(), value.strip()


def _reserved(text: str, where: str) -> ResourceList:
    return read_amounts(dict(_pairs(text, where)), where)


def _cpus(text: str, where: str) -> tuple[int, ...]:
    try:
        return parse_cpus(text)
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _taint(text: str) -> Taint:
    try:
        return parse_taint(text)
    except InputError as error:
        raise ConfigError(f"--taint: {error}") from None
