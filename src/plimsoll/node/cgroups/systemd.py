"""Slices of systemd: created, changed and stopped through its D-Bus interface, by `busctl`.

`busctl` is part of systemd, so no D-Bus library is needed. Slices are transient: they exist until they are
stopped or the machine restarts.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import Protocol

#: Type and value of a property, as `busctl` reads them.
Property = tuple[str, str]

_MANAGER = (
    "org.freedesktop.systemd1",
    "/org/freedesktop/systemd1",
    "org.freedesktop.systemd1.Manager",
)
_CALL_SECONDS = 30
_INFINITY = str(2**64 - 1)
#: systemd counts quotas in whole percents of a CPU: microseconds of a second, in steps of 10 ms.
_QUOTA_STEP = 10_000
_SECOND = 1_000_000
_AMOUNTS = {
    "cpu.weight": "CPUWeight",
    "memory.max": "MemoryMax",
    "memory.high": "MemoryHigh",
    "memory.min": "MemoryMin",
    "memory.low": "MemoryLow",
    "pids.max": "TasksMax",
}
#: Properties of every slice: controllers are enabled in it, and it does not wait for other units.
_NEW_SLICE: Mapping[str, Property] = {
    "Description": ("s", "Plimsoll pods"),
    "DefaultDependencies": ("b", "false"),
    "CPUAccounting": ("b", "true"),
    "CPUWeight": ("t", "100"),  # the kernel's default: accounting alone does not enable the controller
    "MemoryAccounting": ("b", "true"),
    "TasksAccounting": ("b", "true"),
    "IOAccounting": ("b", "true"),
}


class SystemdBus(Protocol):
    """Calls of systemd's manager; they return the error, "" for success."""

    def start_slice(self, unit: str) -> str: ...
    def stop_unit(self, unit: str) -> str: ...
    def set_properties(self, unit: str, properties: Mapping[str, Property]) -> str: ...


def slice_properties(values: Mapping[str, str]) -> dict[str, Property]:
    """Convert values of cgroup v2 files to properties of a unit; files without a property are left out."""
    found: dict[str, Property] = {}
    for file, value in values.items():
        if file in _AMOUNTS:
            found[_AMOUNTS[file]] = ("t", _INFINITY if value == "max" else value)
        elif file == "cpu.max":
            quota, _, period = value.partition(" ")
            found["CPUQuotaPeriodUSec"] = ("t", period)
            found["CPUQuotaPerSecUSec"] = ("t", _INFINITY if quota == "max" else _per_second(quota, period))
    return found


def _per_second(quota: str, period: str) -> str:
    """Return a quota for one second, rounded up as runc does; the exact one is written to the cgroup."""
    steps = -(-int(quota) * _SECOND // (int(period) * _QUOTA_STEP))
    return str(steps * _QUOTA_STEP)


class Busctl:
    """systemd of this machine."""

    def start_slice(self, unit: str) -> str:
        """Start a transient slice; one that runs already is not an error."""
        problem = self._call(
            "StartTransientUnit", "ssa(sv)a(sa(sv))", unit, "replace", *_arguments(_NEW_SLICE), "0"
        )
        return "" if problem and self._is_active(unit) else problem

    def stop_unit(self, unit: str) -> str:
        """Stop a unit; one that is not loaded is not an error."""
        problem = self._call("StopUnit", "ss", unit, "replace")
        return problem if problem and self._is_active(unit) else ""

    def set_properties(self, unit: str, properties: Mapping[str, Property]) -> str:
        return self._call("SetUnitProperties", "sba(sv)", unit, "true", *_arguments(properties))

    def _is_active(self, unit: str) -> bool:
        done = _run(["systemctl", "is-active", "--quiet", "--", unit])
        return done is not None and done.returncode == 0

    def _call(self, method: str, signature: str, *arguments: str) -> str:
        command = ["busctl", f"--timeout={_CALL_SECONDS}", "--", "call", *_MANAGER, method, signature]
        done = _run([*command, *arguments])
        if done is None:
            return "systemd does not respond: busctl cannot be run"
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            return f"systemd: {method}: {lines[-1] if lines else f'exit code {done.returncode}'}"
        return ""


def _arguments(properties: Mapping[str, Property]) -> list[str]:
    """Return an array of properties in the form of `busctl`."""
    words = [str(len(properties))]
    for name, (kind, value) in properties.items():
        words += [name, kind, value]
    return words


def _run(command: list[str]) -> subprocess.CompletedProcess[bytes] | None:
    try:
        return subprocess.run(command, capture_output=True, timeout=_CALL_SECONDS + 5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
