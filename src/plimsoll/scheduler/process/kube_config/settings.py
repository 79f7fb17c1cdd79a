"""START HERE: `convert_configuration`, the settings of this scheduler from a KubeSchedulerConfiguration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.config import convert_config
from plimsoll.api.gates import Gates
from plimsoll.errors import DecodeError
from plimsoll.scheduler.process.kube_config.arguments import read_arguments
from plimsoll.scheduler.process.kube_config.fields import (
    API_VERSION,
    GROUP,
    KIND,
    ClientConnectionFields,
    KubeSchedulerConfiguration,
    LeaderElectionFields,
    ProfileFields,
)
from plimsoll.scheduler.process.kube_config.plugins import GANG, Warn, read_plugins
from plimsoll.scheduler.profile import SchedulerProfile, Scoring

DEFAULT_SCHEDULER = "default-scheduler"
_PROTOBUF, _JSON = "application/vnd.kubernetes.protobuf", "application/json"
_QPS, _BURST = 50.0, 100


def is_kube_configuration(tree: object) -> bool:
    """Return whether a file is one of kube-scheduler."""
    if not isinstance(tree, Mapping):
        return False
    api_version = tree.get("apiVersion")
    return tree.get("kind") == KIND or (isinstance(api_version, str) and api_version.startswith(f"{GROUP}/"))


def convert_configuration(tree: Any, gates: Gates, warn: Warn) -> dict[str, Any]:
    """Return the fields of `SchedulerSettings` for a file, as plain values.

    Raises DecodeError with the exact field; `warn` receives the field and the text of each warning.
    """
    if tree.get("apiVersion") != API_VERSION:
        raise DecodeError(f"must be {API_VERSION}, not {tree.get('apiVersion')!r}", "apiVersion")
    if tree.get("kind") != KIND:
        raise DecodeError(f"must be {KIND}, not {tree.get('kind')!r}", "kind")
    given: KubeSchedulerConfiguration = convert_config(tree, KubeSchedulerConfiguration)
    _check(given, warn)
    profiles, gangs = _read_profiles(given, gates, warn)
    if gates.enabled(GANG) and not gangs:
        gates = Gates.of({GANG: False}, gates)
    return {
        "profiles": profiles,
        "gates": gates,
        "queue": _read_backoff(given),
        "election": _read_election(given.leader_election),
        "client": _read_connection(given.client_connection, warn),
    }


def _check(given: KubeSchedulerConfiguration, warn: Warn) -> None:
    """Check the fields that determine nothing here."""
    if given.parallelism is not None:
        if given.parallelism <= 0:
            raise DecodeError("should be an integer value greater than zero", "parallelism")
        warn("parallelism", "has no effect: each rule is evaluated for all nodes at once")
    # DIFF: extenders are refused; kube-scheduler calls them over HTTP in the middle of an attempt, which is a
    # pure function here (test_extenders_are_refused).
    if given.extenders:
        raise DecodeError(
            "scheduler extenders are not supported; remove them, or keep the pods that need them with "
            "kube-scheduler",
            "extenders",
        )
    if given.enable_profiling or given.enable_contention_profiling:
        name = "enableProfiling" if given.enable_profiling else "enableContentionProfiling"
        warn(
            name,
            "has no effect: there is no profiling endpoint; --debug serves /debug/queue and /debug/ledger",
        )
    if given.delay_cache_until_active:
        warn("delayCacheUntilActive", "has no effect: replicas that do not lead fill their caches, too")


def _read_profiles(
    given: KubeSchedulerConfiguration, gates: Gates, warn: Warn
) -> tuple[tuple[SchedulerProfile, ...], bool]:
    """Return the profiles, and whether they schedule gangs."""
    _check_percentage(given.percentage_of_nodes_to_score, "percentageOfNodesToScore")
    profiles = given.profiles or (ProfileFields(),)
    found: list[SchedulerProfile] = []
    gangs = False
    for index, profile in enumerate(profiles):
        where = f"profiles[{index}]"
        name = profile.scheduler_name
        if name is None and len(profiles) == 1:
            name = DEFAULT_SCHEDULER
        if not name:
            raise DecodeError("must not be empty", f"{where}.schedulerName")
        for other, known in enumerate(found):
            if known.name == name:
                raise DecodeError(
                    f"duplicate value: profiles[{other}].schedulerName is {name!r}, too",
                    f"{where}.schedulerName",
                )
        _check_percentage(profile.percentage_of_nodes_to_score, f"{where}.percentageOfNodesToScore")
        percentage = profile.percentage_of_nodes_to_score
        if percentage is None:
            percentage = given.percentage_of_nodes_to_score or 0
        made, schedules_gangs = _read_profile(profile, name, percentage, where, gates, warn)
        if found and schedules_gangs != gangs:
            raise DecodeError(f"{GANG} must be enabled in all profiles, or in none", f"{where}.plugins")
        gangs = schedules_gangs
        found.append(made)
    for index, profile in enumerate(profiles[1:], 1):
        if profile.plugins.queue_sort != profiles[0].plugins.queue_sort:
            raise DecodeError("must be the same for all profiles", f"profiles[{index}].plugins.queueSort")
    return tuple(found), gangs


def _read_profile(
    given: ProfileFields, name: str, percentage: int, where: str, gates: Gates, warn: Warn
) -> tuple[SchedulerProfile, bool]:
    def warn_below(part: str) -> Warn:
        return lambda field, text: warn(_join(f"{where}.{part}", field), text)

    with _Below(f"{where}.plugins"):
        plugins = read_plugins(given.plugins, gates, warn_below("plugins"))
    with _Below(f"{where}.pluginConfig"):
        arguments = read_arguments(given.plugin_config, gates, warn_below("pluginConfig"))
    profile = SchedulerProfile(
        name=name,
        weights=plugins.weights,
        disabled_filters=plugins.disabled_filters,
        preemption=plugins.preemption,
        percentage_of_nodes_to_score=percentage,
        scoring=Scoring.STOCK,
        **arguments,
    )
    return profile, plugins.gangs


class _Below:
    """Context in which errors name fields below another one."""

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DecodeError):
            raise DecodeError(error.problem, _join(self._where, error.field)) from None


def _join(where: str, field: str) -> str:
    dot = "." if field and not field.startswith("[") else ""
    return f"{where}{dot}{field}"


def _check_percentage(value: int | None, where: str) -> None:
    if value is not None and not 0 <= value <= 100:
        raise DecodeError(f"not in valid range [0-100], got {value}", where)


def _read_backoff(given: KubeSchedulerConfiguration) -> dict[str, int]:
    initial = 1 if given.pod_initial_backoff_seconds is None else given.pod_initial_backoff_seconds
    longest = 10 if given.pod_max_backoff_seconds is None else given.pod_max_backoff_seconds
    if initial <= 0:
        raise DecodeError(f"must be greater than 0, got {initial}", "podInitialBackoffSeconds")
    if longest < initial:
        raise DecodeError(
            f"must be greater than or equal to PodInitialBackoffSeconds, got {longest}",
            "podMaxBackoffSeconds",
        )
    return {"initial_backoff_ms": initial * 1000, "max_backoff_ms": longest * 1000}


def _read_election(given: LeaderElectionFields) -> dict[str, Any]:
    """Return the fields of `LeaderElection`; a value of 0 or "" is kube-scheduler's default."""
    lease = given.lease_duration or 15_000
    renew = given.renew_deadline or 10_000
    retry = given.retry_period or 2_000
    if given.leader_elect:
        for name, value in (("leaseDuration", lease), ("renewDeadline", renew), ("retryPeriod", retry)):
            if value <= 0:
                raise DecodeError("must be greater than zero", f"leaderElection.{name}")
        if lease <= renew:
            raise DecodeError("must be greater than `RenewDeadline`", "leaderElection.leaseDuration")
        if (given.resource_lock or "leases") != "leases":
            raise DecodeError('resourceLock value must be "leases"', "leaderElection.resourceLock")
    return {
        "elect": given.leader_elect,
        "lease": lease / 1000,
        "renew": renew / 1000,
        "retry": retry / 1000,
        "namespace": given.resource_namespace or "kube-system",
        "name": given.resource_name or "kube-scheduler",
    }


def _read_connection(given: ClientConnectionFields, warn: Warn) -> dict[str, Any]:
    """Return the fields of `ClientConnection`."""
    where = "clientConnection"
    if given.burst < 0:
        raise DecodeError(f"must be non-negative, got {given.burst}", f"{where}.burst")
    for name, value in (
        ("contentType", given.content_type),
        ("acceptContentTypes", given.accept_content_types),
    ):
        for each in filter(None, (part.strip() for part in value.split(","))):
            if each not in (_JSON, _PROTOBUF):
                raise DecodeError(f"must be {_JSON} or {_PROTOBUF}, not {each!r}", f"{where}.{name}")
            if each == _PROTOBUF:
                warn(f"{where}.{name}", f"has no effect: {_JSON} is used")
    return {
        "kubeconfig": given.kubeconfig,
        "qps": max(given.qps or _QPS, 0.0),
        "burst": given.burst or _BURST,
    }
