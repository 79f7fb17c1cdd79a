"""Configuration of the scheduler process: file and flags.

docs/scheduler.md lists the fields. Every field has a default; errors are ConfigErrors that name the file, the
field and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from plimsoll.api.gates import Gates
from plimsoll.client.leader_election import LeaseTiming
from plimsoll.common.addresses import read_address
from plimsoll.common.config_file import ConfigSection, read_document
from plimsoll.common.structured_log import FORMATS
from plimsoll.errors import ConfigError, InputError
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.queue import QueueSettings

KIND = "SchedulerConfiguration"
#: Form in which charges are written: detected (auto), or fixed.
WIRE_FORMS = ("auto", "1.36", "1.37", "draft", "annotation")
NAME = "plimsoll"
DEFAULT_NAME = "default-scheduler"
LISTEN = "127.0.0.1:10259"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """Leader election settings."""

    elect: bool = False
    namespace: str = "kube-system"
    name: str = "plimsoll-scheduler"
    timing: LeaseTiming = field(default_factory=LeaseTiming)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """Settings of the scheduler process."""

    profiles: tuple[SchedulerProfile, ...] = (replace(SchedulerProfile.default(), name=NAME),)
    queue: QueueSettings = field(default_factory=QueueSettings)
    gates: Gates = field(default_factory=Gates.all_on)
    wire_form: str = "auto"
    #: Concurrent bindings, and how long they may take after a stop request.
    binds: int = 128
    stop_seconds: float = 10.0
    #: Delay before a pod that waits for a generated claim, or for a named one, is reported.
    generated_seconds: float = 10.0
    named_seconds: float = 2.0
    election: LeaderElection = field(default_factory=LeaderElection)
    listen: str = ""  #: HOST:PORT of the health endpoints; "" for none
    debug: bool = False
    log_format: str = "text"
    verbose: bool = False
    dry_run: bool = False

    @property
    def by_name(self) -> Mapping[str, SchedulerProfile]:
        """Profiles by scheduler name."""
        return {profile.name: profile for profile in self.profiles}

    def named(self, names: Sequence[str]) -> SchedulerSettings:
        """Return the settings with profiles for these scheduler names; existing profiles are kept."""
        if not names:
            return self
        known, first = self.by_name, self.profiles[0]
        return replace(
            self,
            profiles=tuple(
                known.get(name) or replace(first, name=_scheduler_name(name, "--scheduler-name"))
                for name in dict.fromkeys(names)
            ),
        )


def override(
    settings: SchedulerSettings,
    *,
    names: Sequence[str] = (),
    leader_elect: bool | None = None,
    lease: str | None = None,
    gates: str | None = None,
    **given: object,
) -> SchedulerSettings:
    """Return the settings with flags applied; None means not given."""
    election = settings.election
    if leader_elect is not None:
        election = replace(election, elect=leader_elect)
    if lease is not None:
        namespace, slash, name = lease.rpartition("/")
        if not name or (slash and not namespace) or "/" in namespace:
            raise ConfigError(f"--lease: {lease!r} is no lease: give [NAMESPACE/]NAME")
        election = replace(election, name=name, namespace=namespace or election.namespace)
    changes = {name: value for name, value in given.items() if value is not None}
    if gates is not None:
        changes["gates"] = Gates.parse(gates, settings.gates)
    changed: SchedulerSettings = replace(settings, election=election, **changes)  # type: ignore[arg-type]
    if changed.listen:
        read_address(changed.listen, example=LISTEN)
    return changed.named(names)


def read_settings(path: Path | None) -> SchedulerSettings:
    """Read settings from a file; defaults where fields are missing."""
    if path is None:
        return parse_settings({})
    return parse_settings(read_document(path, "configuration"), str(path))


def parse_settings(tree: object, where: str = "configuration") -> SchedulerSettings:
    """Parse settings from a tree."""
    top = ConfigSection(tree, where)
    top.text("kind", KIND, choices=(KIND,))
    top.text("apiVersion", "")
    default = SchedulerSettings()
    log = top.section("log")
    found = SchedulerSettings(
        profiles=_profiles(top.sections("profiles")) or default.profiles,
        queue=_queue(top.section("queue")),
        gates=_gates(top.section("featureGates")),
        wire_form=top.text("wireForm", default.wire_form, choices=WIRE_FORMS),
        binds=top.number("bindsInFlight", default.binds, most=10_000),
        stop_seconds=top.seconds("stopTimeout", default.stop_seconds),
        generated_seconds=top.seconds("generatedClaimGrace", default.generated_seconds),
        named_seconds=top.seconds("namedClaimGrace", default.named_seconds),
        election=_election(top.section("leaderElection")),
        listen=top.text("listen", LISTEN),
        debug=top.flag("debug", default.debug),
        log_format=log.text("format", default.log_format, choices=FORMATS),
        verbose=log.flag("verbose", default.verbose),
        dry_run=top.flag("dryRun", default.dry_run),
    )
    log.end()
    top.end()
    if found.listen:
        read_address(found.listen, f"{where}: listen", LISTEN)
    return found


def _profiles(sections: list[ConfigSection]) -> tuple[SchedulerProfile, ...]:
    found: dict[str, SchedulerProfile] = {}
    for section in sections:
        name = _scheduler_name(section.text("schedulerName", NAME), f"{section.where}.schedulerName")
        if name in found:
            raise section.bad("schedulerName", f"{name!r} is given twice; a name has one profile")
        try:
            profile = SchedulerProfile.read(section.rest())
        except InputError as error:
            raise ConfigError(f"{section.where}.{error}") from None
        found[name] = replace(profile, name=name)
    return tuple(found.values())


def _queue(section: ConfigSection) -> QueueSettings:
    default = QueueSettings()
    settings = QueueSettings(
        initial_backoff_ms=_ms(section, "initialBackoff", default.initial_backoff_ms),
        max_backoff_ms=_ms(section, "maxBackoff", default.max_backoff_ms),
        flush_ms=_ms(section, "flush", default.flush_ms),
    )
    section.end()
    if settings.max_backoff_ms < settings.initial_backoff_ms:
        raise section.bad("maxBackoff", "must not be shorter than initialBackoff")
    return settings


def _ms(section: ConfigSection, name: str, default: int) -> int:
    return max(1, round(section.seconds(name, default / 1000) * 1000))


def _gates(section: ConfigSection) -> Gates:
    switches = section.rest()
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise section.bad(name, f"must be true or false, not {value!r}")
    try:
        return Gates.of(switches)
    except InputError as error:
        raise ConfigError(f"{section.where}: {error}") from None


def _election(section: ConfigSection) -> LeaderElection:
    default, times = LeaderElection(), LeaseTiming()
    timing = LeaseTiming(
        lease=section.seconds("leaseDuration", times.lease),
        renew=section.seconds("renewDeadline", times.renew),
        retry=section.seconds("retryPeriod", times.retry),
    )
    found = LeaderElection(
        elect=section.flag("leaderElect", default.elect),
        namespace=section.text("resourceNamespace", default.namespace),
        name=section.text("resourceName", default.name),
        timing=timing,
    )
    section.end()
    try:
        timing.check()
    except ConfigError as error:
        raise ConfigError(f"{section.where}: {error}") from None
    return found


def _scheduler_name(name: str, where: str) -> str:
    if not name or len(name) > 253 or any(char.isspace() for char in name):
        raise ConfigError(f"{where}: {name!r} is no name of a scheduler; write one such as {NAME}")
    return name
