"""How drivers of a file behave: delays, failures, health, devices that come and go.

Owns the reading of it, from the file itself and from a control file, which is read again whenever it changes
and goes before the file; and the questions that a driver asks of it. Those are functions of the conduct and
of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from plimsoll.common.config_file import Section
from plimsoll.drivers.fake.fields import entries, texts
from plimsoll.drivers.fake.plan import CallPlan, Conduct, HealthRule, TaintRule
from plimsoll.drivers.plugin import Health

CONTROL_KIND = "FakeDriverControl"
_STATES = tuple(state.value for state in Health)
EFFECTS = ("NoSchedule", "NoExecute", "None")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What a control file says to some drivers on some nodes; () means all."""

    drivers: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    conduct: Conduct = field(default_factory=Conduct)


@dataclass(frozen=True, slots=True)
class Control:
    """A control file."""

    orders: tuple[Order, ...] = ()

    def conduct(self, driver: str, node: str) -> Conduct:
        """What a driver on a node is told; of several orders the later one counts, field by field."""
        found = Conduct()
        for order in self.orders:
            if fits(driver, order.drivers or ("*",)) and fits(node, order.nodes or ("*",)):
                found = order.conduct.over(found)
        return found


def parse_control(tree: Any, where: str = "control") -> Control:
    """The orders in a tree; ConfigError if it cannot be used."""
    top = Section(tree, where)
    top.text("kind", CONTROL_KIND, choices=(CONTROL_KIND,))
    top.text("apiVersion", "")
    orders = []
    value = top.take("drivers")
    for section in entries([] if value is None else value, top, "drivers"):
        order = Order(
            drivers=texts(section, "name"), nodes=texts(section, "nodes"), conduct=read_conduct(section)
        )
        section.end()
        orders.append(order)
    top.end()
    return Control(tuple(orders))


def read_conduct(section: Section) -> Conduct:
    return Conduct(
        prepare=_call(section, "prepare"),
        unprepare=_call(section, "unprepare"),
        health=_health(section),
        absent=_absent(section),
        taints=_taints(section),
    )


def _call(section: Section, name: str) -> CallPlan | None:
    value = section.take(name)
    if value is None:
        return None
    call = Section(value, f"{section.where}.{name}")
    found = CallPlan(
        delay=call.seconds("delay", 0.0),
        fail_first=call.number("failFirst", 0, least=0),
        fail_claims=texts(call, "failClaims"),
        message=call.text("message", ""),
    )
    call.end()
    return found


def _health(section: Section) -> tuple[HealthRule, ...] | None:
    value = section.take("health")
    if value is None:
        return None
    found = []
    for each in entries(value, section, "health"):
        state = each.text("state", Health.UNHEALTHY.value, choices=_STATES)
        found.append(
            HealthRule(
                devices=texts(each, "devices") or ("*",),
                state=Health(state),
                after=each.seconds("after", 0.0),
                message=each.text("message", ""),
            )
        )
        each.end()
    return tuple(found)


def _absent(section: Section) -> tuple[str, ...] | None:
    value = section.take("absent")
    if value is None:
        return None
    return texts(Section({"absent": value}, section.where), "absent")


def _taints(section: Section) -> tuple[TaintRule, ...] | None:
    value = section.take("taints")
    if value is None:
        return None
    found = []
    for each in entries(value, section, "taints"):
        devices = texts(each, "devices") or ("*",)
        found.append(TaintRule(devices=devices, taint=read_taint(each)))
    return tuple(found)


def read_taint(section: Section) -> dict[str, str]:
    """A taint, to the end of its section."""
    key = section.text("key", "")
    if not key:
        raise section.bad("key", "must be given, such as example.com/maintenance")
    taint = {"key": key, "effect": section.text("effect", "NoSchedule", choices=EFFECTS)}
    value = section.text("value", "")
    section.end()
    return {**taint, "value": value} if value else taint


# -- questions


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name is one of these, or like one with `*` and `?` in it."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def failure(plan: CallPlan | None, claim: str, calls: int) -> str:
    """Why the call of this number (from 1) for a claim fails; "" if it does not."""
    if plan is None:
        return ""
    if fits(claim, plan.fail_claims):
        return plan.message or f"claim {claim} is set to fail"
    if calls <= plan.fail_first:
        return plan.message or f"call {calls} of the {plan.fail_first} that are set to fail"
    return ""


def health_of(rules: Iterable[HealthRule], device: str, elapsed: float) -> tuple[Health, str]:
    """How a device is so long after the start."""
    found = (Health.HEALTHY, "")
    for rule in rules:
        if rule.after <= elapsed and fits(device, rule.devices):
            found = (rule.state, rule.message)
    return found


def next_change(rules: Iterable[HealthRule], elapsed: float) -> float | None:
    """When the health of some device changes next, in seconds after the start."""
    return min((rule.after for rule in rules if rule.after > elapsed), default=None)


def taints_of(rules: Iterable[TaintRule], device: str) -> list[Mapping[str, str]]:
    return [rule.taint for rule in rules if fits(device, rule.devices)]
