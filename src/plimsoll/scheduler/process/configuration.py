"""Configuration of the scheduler process: file and flags.

The file is our own, or a KubeSchedulerConfiguration (`kube_config`).

docs/scheduler.md lists the fields. Every field has a default; errors are ConfigErrors that name the file, the
field and the fix.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from plimsoll.api.config import Config, convert_config, format_value
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import INT32_MAX, Number
from plimsoll.client import ClientConfig
from plimsoll.client.leader_election import LeaseTiming
from plimsoll.common.addresses import read_address
from plimsoll.common.config_file import (
    FeatureGates,
    LogConfig,
    OptionalPath,
    Seconds,
    read_config,
    read_document,
    read_seconds,
)
from plimsoll.errors import ConfigError, DecodeError, InputError
from plimsoll.scheduler.process.kube_config.settings import convert_configuration, is_kube_configuration
from plimsoll.scheduler.process.placeholder_writer import PlaceholderSettings
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.queue import QueueSettings

NAME = "plimsoll"
DEFAULT_NAME = "default-scheduler"
LISTEN = "127.0.0.1:10259"
_TIMES, _QUEUE = LeaseTiming(), QueueSettings()


def _read_qps(value: Any) -> float:
    text = value.text if isinstance(value, Number) else value
    if (
        isinstance(text, bool)
        or not isinstance(text, int | str)
        or not str(text).replace(".", "", 1).isdigit()
    ):
        raise DecodeError(f"must be a number, 0 for no limit, not {format_value(value)}")
    return float(text)


class LeaderElection(Config, frozen=True, kw_only=True):
    """Leader election settings."""

    lease: Seconds = field(default=_TIMES.lease, name="leaseDuration")
    renew: Seconds = field(default=_TIMES.renew, name="renewDeadline")
    retry: Seconds = field(default=_TIMES.retry, name="retryPeriod")
    elect: bool = field(default=False, name="leaderElect")
    namespace: str = field(default="kube-system", name="resourceNamespace")
    name: str = field(default="plimsoll-scheduler", name="resourceName")

    def __post_init__(self) -> None:
        self.timing.check()

    @property
    def timing(self) -> LeaseTiming:
        return LeaseTiming(self.lease, self.renew, self.retry)


class ClientConnection(Config, frozen=True, kw_only=True):
    """Connection to the API server."""

    kubeconfig: str = ""  #: file, if `--kubeconfig` is not given
    qps: Annotated[float, _read_qps] = 0.0  #: requests per second; 0: no limit
    burst: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0

    def apply(self, config: ClientConfig) -> ClientConfig:
        """Return a client configuration with these limits."""
        return dataclasses.replace(config, qps=self.qps, burst=self.burst) if self.qps else config


def _read_ms(value: Any) -> int:
    return max(1, round(read_seconds(value) * 1000))


class _QueueFile(Config, frozen=True, kw_only=True):
    initial_backoff: Annotated[int, _read_ms] = _QUEUE.initial_backoff_ms
    max_backoff: Annotated[int, _read_ms] = _QUEUE.max_backoff_ms
    flush: Annotated[int, _read_ms] = _QUEUE.flush_ms


def _read_queue(value: Any) -> QueueSettings:
    file: _QueueFile = convert_config(value, _QueueFile)
    if file.max_backoff < file.initial_backoff:
        raise DecodeError("must not be shorter than initialBackoff", "maxBackoff")
    return QueueSettings(file.initial_backoff, file.max_backoff, file.flush)


class SchedulerSettings(Config, frozen=True, kw_only=True):
    """Settings of the scheduler process, and the fields of its file."""

    kind: Literal["SchedulerConfiguration"] = "SchedulerConfiguration"
    api_version: str = ""
    profiles: Annotated[tuple[SchedulerProfile, ...], Meta(min_length=1)] = (SchedulerProfile(name=NAME),)
    queue: Annotated[QueueSettings, _read_queue] = _QUEUE
    gates: FeatureGates = field(default=Gates.default(), name="featureGates")
    #: Form in which charges are written: detected (auto), or fixed.
    wire_form: Literal["auto", "1.36", "1.37", "draft", "annotation"] = "auto"
    #: Concurrent bindings, and how long they may take after a stop request.
    binds: Annotated[int, Meta(ge=1, le=10_000)] = field(default=128, name="bindsInFlight")
    stop_seconds: Seconds = field(default=10.0, name="stopTimeout")
    #: Delay before a pod that waits for a generated claim, or for a named one, is reported. Controllers take
    #: longer for many new pods, and two more writes for each of them would delay them further.
    generated_seconds: Seconds = field(default=30.0, name="generatedClaimGrace")
    named_seconds: Seconds = field(default=2.0, name="namedClaimGrace")
    placeholders: PlaceholderSettings = PlaceholderSettings()
    election: LeaderElection = field(default=LeaderElection(), name="leaderElection")
    client: ClientConnection = field(default=ClientConnection(), name="clientConnection")
    listen: str = ""  #: HOST:PORT of the health endpoints; "" for none
    #: Directory of tls.crt and tls.key, to serve them by HTTPS.
    cert_dir: OptionalPath = field(default=None, name="certDir")
    debug: bool = False
    log: LogConfig = LogConfig()
    dry_run: bool = False
    shadow: bool = False  #: decide about pods of another scheduler, and write nothing
    report: OptionalPath = None  #: file of the results of `shadow`

    def __post_init__(self) -> None:
        names = [profile.name for profile in self.profiles]
        for index, name in enumerate(names):
            where = f"profiles[{index}].schedulerName"
            _check_name(name, where)
            if name in names[:index]:
                raise DecodeError(f"duplicate name {name!r}; each profile needs its own name", where)

    @property
    def profile_set(self) -> ProfileSet:
        return ProfileSet(self.profiles)

    @property
    def by_name(self) -> Mapping[str, SchedulerProfile]:
        """Profiles by scheduler name."""
        return {profile.name: profile for profile in self.profiles}

    def shadowing(self) -> SchedulerSettings:
        """Return the settings of a shadow: without other names, it follows the default scheduler."""
        if self.dry_run:
            raise ConfigError("--shadow and --dry-run cannot be combined")
        return self if [*self.by_name] != [NAME] else self.named([DEFAULT_NAME])

    def named(self, names: Sequence[str]) -> SchedulerSettings:
        """Return the settings with profiles for these scheduler names; existing profiles are kept."""
        if not names:
            return self
        known, first = self.by_name, self.profiles[0]
        for name in names:
            _check_name(name, "--scheduler-name")
        return replace(
            self,
            profiles=tuple(
                known.get(name) or dataclasses.replace(first, name=name) for name in dict.fromkeys(names)
            ),
        )


def override(
    settings: SchedulerSettings,
    *,
    names: Sequence[str] = (),
    leader_elect: bool | None = None,
    lease: str | None = None,
    gates: str | None = None,
    log_format: str | None = None,
    verbose: bool | None = None,
    **given: object,
) -> SchedulerSettings:
    """Return the settings with flags applied; None means not given."""
    election = settings.election
    if leader_elect is not None:
        election = replace(election, elect=leader_elect)
    if lease is not None:
        namespace, slash, name = lease.rpartition("/")
        if not name or (slash and not namespace) or "/" in namespace:
            raise ConfigError(f"--lease: invalid lease {lease!r}: use [NAMESPACE/]NAME")
        election = replace(election, name=name, namespace=namespace or election.namespace)
    changes = {name: value for name, value in given.items() if value is not None}
    if gates is not None:
        changes["gates"] = Gates.parse(gates, settings.gates)
    log = LogConfig(
        format=log_format or settings.log.format,  # type: ignore[arg-type]
        verbose=settings.log.verbose if verbose is None else verbose,
    )
    changed = replace(settings, election=election, log=log, **changes)
    if changed.listen:
        read_address(changed.listen, example=LISTEN)
    return changed.named(names)


def read_settings(
    path: Path | None, gates: str | None = None, warn: Callable[[str], None] = lambda text: None
) -> SchedulerSettings:
    """Read settings from a file; defaults where fields are missing.

    `gates` are those of the flag, which determine what a KubeSchedulerConfiguration may contain. `warn`
    receives a line for each setting that has no effect.
    """
    if path is None:
        return parse_settings({})
    return parse_settings(read_document(path, "configuration"), str(path), gates, warn)


def parse_settings(
    tree: object,
    where: str = "configuration",
    gates: str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> SchedulerSettings:
    """Parse settings from a tree; unlike in code, health endpoints are served by default."""
    if is_kube_configuration(tree):
        return replace(_parse_kube_settings(tree, where, gates, warn), listen=LISTEN)
    found = read_config(tree, SchedulerSettings, where)
    if not isinstance(tree, Mapping) or tree.get("listen") is None:
        return replace(found, listen=LISTEN)
    if found.listen:
        read_address(found.listen, f"{where}: listen", LISTEN)
    return found


def _parse_kube_settings(
    tree: object, where: str, gates: str | None, warn: Callable[[str], None]
) -> SchedulerSettings:
    known = Gates.default() if gates is None else Gates.parse(gates)
    try:
        found = convert_configuration(tree, known, lambda field, text: warn(f"{where}: {field}: {text}"))
        return SchedulerSettings(
            profiles=found["profiles"],
            queue=dataclasses.replace(_QUEUE, **found["queue"]),
            election=LeaderElection(**found["election"]),
            client=ClientConnection(**found["client"]),
            gates=found["gates"],
        )
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _check_name(name: str, where: str) -> None:
    if not name or len(name) > 253 or any(char.isspace() for char in name):
        raise DecodeError(f"invalid scheduler name {name!r}; use a name such as {NAME}", where)
