"""Fault injection for simulated drivers: delays, failing calls, health, absent devices, taints.

Reads it from the device file and from a control file, which overrides the device file while the driver runs,
and answers a driver's queries as pure functions of the injected faults and the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from plimsoll.common.config_file import ConfigSection
from plimsoll.drivers.fake.field_readers import read_entries, read_strings
from plimsoll.drivers.fake.plan import CallPlan, FaultInjection, HealthRule, TaintRule
from plimsoll.drivers.plugin import Health

CONTROL_KIND = "FakeDriverControl"
_STATES = tuple(state.value for state in Health)
EFFECTS = ("NoSchedule", "NoExecute", "None")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlEntry:
    """Entry of a control file for some drivers on some nodes; () means all."""

    drivers: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    faults: FaultInjection = field(default_factory=FaultInjection)


@dataclass(frozen=True, slots=True)
class Control:
    """Control file."""

    orders: tuple[ControlEntry, ...] = ()

    def faults(self, driver: str, node: str) -> FaultInjection:
        """Return the faults for a driver on a node; later entries override earlier ones, field by field."""
        found = FaultInjection()
        for order in self.orders:
            if matches_any(driver, order.drivers or ("*",)) and matches_any(node, order.nodes or ("*",)):
                found = order.faults.merge_over(found)
        return found


def parse_control(tree: Any, where: str = "control") -> Control:
    """Parse a decoded control file; raises ConfigError if it is invalid."""
    top = ConfigSection(tree, where)
    top.text("kind", CONTROL_KIND, choices=(CONTROL_KIND,))
    top.text("apiVersion", "")
    orders = []
    value = top.take("drivers")
    for section in read_entries([] if value is None else value, top, "drivers"):
        order = ControlEntry(
            drivers=read_strings(section, "name"),
            nodes=read_strings(section, "nodes"),
            faults=read_fault_injection(section),
        )
        section.end()
        orders.append(order)
    top.end()
    return Control(tuple(orders))


def read_fault_injection(section: ConfigSection) -> FaultInjection:
    return FaultInjection(
        prepare=_read_call(section, "prepare"),
        unprepare=_read_call(section, "unprepare"),
        health=_read_health(section),
        absent=_read_absent(section),
        taints=_read_taints(section),
    )


def _read_call(section: ConfigSection, name: str) -> CallPlan | None:
    value = section.take(name)
    if value is None:
        return None
    call = ConfigSection(value, f"{section.where}.{name}")
    found = CallPlan(
        delay=call.seconds("delay", 0.0),
        fail_first=call.number("failFirst", 0, least=0),
        fail_claims=read_strings(call, "failClaims"),
        message=call.text("message", ""),
    )
    call.end()
    return found


def _read_health(section: ConfigSection) -> tuple[HealthRule, ...] | None:
    value = section.take("health")
    if value is None:
        return None
    found = []
    for each in read_entries(value, section, "health"):
        state = each.text("state", Health.UNHEALTHY.value, choices=_STATES)
        found.append(
            HealthRule(
                devices=read_strings(each, "devices") or ("*",),
                state=Health(state),
                after=each.seconds("after", 0.0),
                message=each.text("message", ""),
            )
        )
        each.end()
    return tuple(found)


def _read_absent(section: ConfigSection) -> tuple[str, ...] | None:
    value = section.take("absent")
    if value is None:
        return None
    return read_strings(ConfigSection({"absent": value}, section.where), "absent")


def _read_taints(section: ConfigSection) -> tuple[TaintRule, ...] | None:
    value = section.take("taints")
    if value is None:
        return None
    found = []
    for each in read_entries(value, section, "taints"):
        devices = read_strings(each, "devices") or ("*",)
        found.append(TaintRule(devices=devices, taint=read_taint(each)))
    return tuple(found)


def read_taint(section: ConfigSection) -> dict[str, str]:
    """Read a taint, up to the end of its section."""
    key = section.text("key", "")
    if not key:
        raise section.bad("key", "must be given, such as example.com/maintenance")
    taint = {"key": key, "effect": section.text("effect", "NoSchedule", choices=EFFECTS)}
    value = section.text("value", "")
    section.end()
    return {**taint, "value": value} if value else taint


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
    return [rule.taint for rule in rules if matches_any(device, rule.devices)]
