"""Fault injection for simulated drivers: delays, failing calls, health, absent devices, taints.

Faults are set in the device file, and in a control file that overrides it while the driver runs. The queries
of a driver are pure functions of the injected faults and the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from msgspec import Meta

from plimsoll.common.config_file import read_config
from plimsoll.drivers.fake.plan import CallPlan, FaultInjection, HealthRule, TaintRule
from plimsoll.drivers.fake.values import Strings
from plimsoll.drivers.plugin import Health


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEntry(FaultInjection):
    """Entry of a control file for some drivers on some nodes; () means all."""

    drivers: Strings = field(default=(), metadata={"name": "name"})
    nodes: Strings = ()


@dataclass(frozen=True, slots=True)
class Control:
    """Control file."""

    kind: Literal["FakeDriverControl"] = "FakeDriverControl"
    api_version: str = ""
    drivers: Annotated[tuple[ControlEntry, ...], Meta(max_length=1000)] = ()

    def faults(self, driver: str, node: str) -> FaultInjection:
        """Return the faults for a driver on a node; later entries override earlier ones, field by field."""
        found = FaultInjection()
        for entry in self.drivers:
            if matches_any(driver, entry.drivers or ("*",)) and matches_any(node, entry.nodes or ("*",)):
                found = entry.merge_over(found)
        return found


def parse_control(tree: Any, where: str = "control") -> Control:
    """Parse a decoded control file; raises ConfigError if it is invalid."""
    return read_config(tree, Control, where)


# -- queries


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    """Report whether a name matches one of the patterns (wildcards `*` and `?`)."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def find_failure(plan: CallPlan | None, claim: str, calls: int) -> str:
    """Return the injected error for the nth call (from 1) for a claim, or ""."""
    if plan is None:
        return ""
    if matches_any(claim, plan.fail_claims):
        return plan.message or f"claim {claim} is set to fail"
    if calls <= plan.fail_first:
        return plan.message or f"call {calls} of the {plan.fail_first} that are set to fail"
    return ""


def get_health(rules: Iterable[HealthRule], device: str, elapsed: float) -> tuple[Health, str]:
    """Return the health of a device at a time after the start."""
    found = (Health.HEALTHY, "")
    for rule in rules:
        if rule.after <= elapsed and matches_any(device, rule.devices):
            found = (rule.state, rule.message)
    return found


def find_next_change(rules: Iterable[HealthRule], elapsed: float) -> float | None:
    """Return the time of the next health change, in seconds after the start."""
    return min((rule.after for rule in rules if rule.after > elapsed), default=None)


def get_taints(rules: Iterable[TaintRule], device: str) -> list[Mapping[str, str]]:
    return [rule.tree for rule in rules if matches_any(device, rule.devices)]
