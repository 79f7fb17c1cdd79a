"""Validation of probes and lifecycle hooks."""

from __future__ import annotations

from typing import Any

from plimsoll.api.containers import (
    ExecAction,
    GRPCAction,
    HTTPGetAction,
    Lifecycle,
    Probe,
    ProbeHandler,
    SleepAction,
    TCPSocketAction,
)
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.name_formats import header_name, port_name, port_number, validate_format
from plimsoll.apiserver.validation.resource_names import NOT_NEGATIVE

_SCHEMES = ("HTTP", "HTTPS")
_LINUX_SIGNALS = frozenset(
    f"SIG{name}"
    for name in (
        *("ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL"),
        *("PIPE", "POLL", "PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP"),
        *("TTIN", "TTOU", "URG", "USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ", "RTMIN", "RTMAX"),
        *(f"RTMIN+{number}" for number in range(1, 16)),
        *(f"RTMAX-{number}" for number in range(1, 15)),
    )
)
_WINDOWS_SIGNALS = frozenset(("SIGKILL", "SIGTERM"))


def validate_probes(
    liveness: Probe | None, readiness: Probe | None, startup: Probe | None, grace: int | None, path: FieldPath
) -> FieldErrors:
    for name, probe in (("livenessProbe", liveness), ("startupProbe", startup)):
        if probe is not None:
            at = path.child(name)
            yield from _validate_probe(probe, grace, at)
            if probe.success_threshold != 1:
                yield invalid(at.child("successThreshold"), probe.success_threshold, "must be 1")
    if readiness is not None:
        at = path.child("readinessProbe")
        yield from _validate_probe(readiness, grace, at)
        seconds = readiness.termination_grace_period_seconds
        if seconds is not None:
            detail = "must not be set for readinessProbes"
            yield invalid(at.child("terminationGracePeriodSeconds"), seconds, detail)


def _validate_probe(probe: Probe, grace: int | None, path: FieldPath) -> FieldErrors:
    yield from _validate_handler(probe, grace, path)
    for name, value in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        if value < 0:
            yield invalid(path.child(name), value, NOT_NEGATIVE)
    seconds = probe.termination_grace_period_seconds
    if seconds is not None and seconds <= 0:
        yield invalid(path.child("terminationGracePeriodSeconds"), seconds, "must be greater than 0")


def validate_lifecycle(
    lifecycle: Lifecycle, grace: int | None, os: str | None, path: FieldPath
) -> FieldErrors:
    for name, hook in (("postStart", lifecycle.post_start), ("preStop", lifecycle.pre_stop)):
        if hook is not None:
            yield from _validate_handler(hook, grace, path.child(name))
    signal, at = lifecycle.stop_signal, path.child("stopSignal")
    if signal is None:
        return
    if os is None:
        yield forbidden(at, "may not be set for containers with empty `spec.os.name`")
    elif os in ("linux", "windows"):
        signals = _LINUX_SIGNALS if os == "linux" else _WINDOWS_SIGNALS
        if signal not in signals:
            yield not_supported(at, signal, sorted(signals))


def _validate_handler(handler: ProbeHandler, grace: int | None, path: FieldPath) -> FieldErrors:
    """Validate that a probe or hook has exactly one action."""
    first = True
    for name, field in (
        ("exec", "exec"),
        ("httpGet", "http_get"),
        ("tcpSocket", "tcp_socket"),
        ("grpc", "grpc"),
        ("sleep", "sleep"),
    ):
        action = getattr(handler, field, None)
        if action is None:
            continue
        if not first:
            yield forbidden(path.child(name), "may not specify more than 1 handler type")
            continue
        first = False
        yield from _validate_action(action, grace, path.child(name))
    if first:
        yield required(path, "must specify a handler type")


def _validate_action(action: Any, grace: int | None, path: FieldPath) -> FieldErrors:
    if isinstance(action, ExecAction):
        if not action.command:
            yield required(path.child("command"))
    elif isinstance(action, HTTPGetAction):
        yield from _validate_request(action, path)
    elif isinstance(action, (TCPSocketAction, GRPCAction)):
        yield from _validate_port(action.port, path.child("port"))
    elif isinstance(action, SleepAction) and grace is not None and not 0 <= action.seconds <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(path, action.seconds, detail)


def _validate_request(action: HTTPGetAction, path: FieldPath) -> FieldErrors:
    if not action.path:
        yield required(path.child("path"))
    yield from _validate_port(action.port, path.child("port"))
    if action.scheme not in _SCHEMES:
        yield not_supported(path.child("scheme"), action.scheme, _SCHEMES)
    for header in action.http_headers:
        yield from validate_format(header.name, path.child("httpHeaders"), header_name)


def _validate_port(port: int | str, path: FieldPath) -> FieldErrors:
    for message in port_name(port) if isinstance(port, str) else port_number(port):
        yield invalid(path, port, message)
