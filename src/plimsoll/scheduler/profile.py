"""Scheduler profile: score weights and search limits, from a file or from code.

The defaults are those of kube-scheduler's default profile; a file lists only what differs. An invalid file
raises an `InputError` that names the field and the fix.

    schedulerName: plimsoll
    weights: {NodeResourcesFit: 1, TaintToleration: 3, DeviceWaste: 2}
    strategy: MostAllocated
    resources: {cpu: 1, memory: 1, example.com/gpu: 5}
    balanced: [cpu, memory]
    searchSteps: 200000
    explore: 8
    devicePreference: least-waste
    deviceOrder: joint
    scoring: whole-numbers
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from plimsoll.allocator import Preference, SearchLimits
from plimsoll.errors import InputError
from plimsoll.ledger.units import CPU, MEMORY, is_accounted

RANK = "DevicePreference"  #: score of the alternatives chosen from prioritized lists
WASTE = "DeviceWaste"  #: score that prefers small devices
#: kube-scheduler's name for it.
ALIASES: Mapping[str, str] = MappingProxyType({"DynamicResources": RANK})
#: All scorers with their default weights.
WEIGHTS: Mapping[str, int] = MappingProxyType(
    {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        RANK: 2,
        WASTE: 0,
    }
)
WEIGHT_MAX = 1000
RESOURCES_MAX = 16
STEPS_MAX = 1_000_000_000
EXPLORE_MAX = 10_000
#: Number of nodes from which kube-scheduler samples them.
SAMPLED_FROM = 100
_RESOURCES: Mapping[str, int] = MappingProxyType({CPU: 1, MEMORY: 1})


class Strategy(Enum):
    """Scoring strategy of `NodeResourcesFit`: prefer nodes with the most or the least free capacity."""

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"


class DeviceOrder(Enum):
    """Order of device allocation and ledger check: joint, or devices first.

    DIFF: kube-scheduler chooses devices first and checks only that choice against the ledger, so that it
    rejects nodes where other devices would fit, and preemption does not help against a shortage of devices.
    `devices-first` does the same, for predictions; the default is joint
    (test_devices_first_refuses_what_joint_allocation_finds).

    DIFF: an error on one node ends kube-scheduler's attempt on all of them; jointly, that node is refused
    (test_an_error_on_one_node_ends_the_attempt).
    """

    JOINT = "joint"
    FIRST = "devices-first"


class Scoring(Enum):
    """Score arithmetic: integers, or the floating-point formulas of kube-scheduler 1.36.

    DIFF: kube-scheduler's NodeResourcesFit ignores pod-level requests when it scores nodes; here they count.
    `as-kube-scheduler` does as upstream does, for predictions
    (test_pod_level_requests_are_scored).
    """

    WHOLE = "whole-numbers"
    STOCK = "as-kube-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerProfile:
    """AccountingProfile of a scheduler; unset fields are as in kube-scheduler's default profile."""

    name: str = "plimsoll"  #: `schedulerName` of the pods it schedules
    weights: Mapping[str, int] = field(default_factory=dict)  #: overrides of `WEIGHTS`; 0: disabled
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    resources: Mapping[str, int] = field(
        default_factory=lambda: _RESOURCES
    )  #: resources of the strategy, with weights
    balanced: tuple[str, ...] = (CPU, MEMORY)  #: resources of balanced allocation
    search_steps: int = SearchLimits().steps  #: maximum number of steps of one device search
    explore: int = 5  #: number of nodes to search if alternatives or waste matter
    device_preference: Preference = Preference.FIRST
    device_order: DeviceOrder = DeviceOrder.JOINT
    scoring: Scoring = Scoring.WHOLE

    def __post_init__(self) -> None:
        whole = dict(WEIGHTS)
        whole.update(_weights("weights", self.weights, WEIGHTS, ALIASES))
        object.__setattr__(self, "weights", MappingProxyType(whole))
        resources = _weights("resources", self.resources)
        for where, names in (("resources", tuple(resources)), ("balanced", self.balanced)):
            _check_names(where, names)
        if not any(resources.values()):
            raise InputError("resources: give at least one resource a weight above 0")
        object.__setattr__(self, "resources", MappingProxyType(resources))
        _number("searchSteps", self.search_steps, 1, STEPS_MAX)
        _number("explore", self.explore, 1, EXPLORE_MAX)
        if not self.name:
            raise InputError("schedulerName: must not be empty; leave it out for plimsoll")

    @staticmethod
    def default() -> SchedulerProfile:
        return _DEFAULT

    @property
    def rank_weight(self) -> int:
        """Weight of the rank of alternatives chosen from prioritized lists."""
        return self.weights[RANK]

    @property
    def waste_weight(self) -> int:
        """Weight of device waste."""
        return self.weights[WASTE]

    def searches_all_nodes(self, nodes: int) -> bool:
        """Return whether devices are searched on every node before scoring, as kube-scheduler does.

        It does so below 100 nodes; above, it samples nodes, which cannot be predicted.
        """
        return self.device_order is DeviceOrder.FIRST and nodes < SAMPLED_FROM

    @staticmethod
    def read(tree: Any) -> SchedulerProfile:
        """Read a profile from parsed YAML or JSON; None (an empty file) is the default profile."""
        if tree is None:
            return _DEFAULT
        if not isinstance(tree, Mapping):
            raise InputError(f"a profile is a mapping of settings, not {_kind(tree)}")
        found: dict[str, Any] = {}
        for key, value in tree.items():
            if key not in _FIELDS:
                raise InputError(f"{key}: unknown setting; known are {', '.join(_FIELDS)}")
            name, read = _FIELDS[key]
            found[name] = read(key, value)
        return SchedulerProfile(**found)


# -- fields


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"{where}: must be a text, not {_kind(value)}")
    return value


def _number(where: str, value: Any, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(
            f"{where}: must be a whole number from {least} to {most}, not {_format_value(value)}"
        )
    return value


def _mapping(where: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{where}: must be a mapping of names to weights, not {_kind(value)}")
    return value


def _names(where: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        raise InputError(f"{where}: must be a list of resource names, not {_kind(value)}")
    return tuple(_text(f"{where}[{row}]", each) for row, each in enumerate(value))


def _check_names(where: str, names: tuple[str, ...]) -> None:
    if len(names) > RESOURCES_MAX:
        raise InputError(f"{where}: name at most {RESOURCES_MAX} resources, not {len(names)}")
    for name in names:
        if not is_accounted(name):
            raise InputError(
                f"{where}: {name!r} is not a resource nodes are booked in: "
                "use cpu, memory, ephemeral-storage, hugepages-SIZE or a name such as example.com/gpu"
            )
    if len({*names}) < len(names):
        raise InputError(f"{where}: name each resource once, not {', '.join(names)}")


def _strategy(where: str, value: Any) -> Strategy:
    known = {each.value: each for each in Strategy}
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{where}: must be {' or '.join(known)}, not {_format_value(value)}")
    return known[value]


def _preference(where: str, value: Any) -> Preference:
    known = {each.value: each for each in Preference}
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{where}: must be {' or '.join(known)}, not {_format_value(value)}")
    return known[value]


def _order(where: str, value: Any) -> DeviceOrder:
    known = {each.value: each for each in DeviceOrder}
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{where}: must be {' or '.join(known)}, not {_format_value(value)}")
    return known[value]


def _scoring(where: str, value: Any) -> Scoring:
    known = {each.value: each for each in Scoring}
    if not isinstance(value, str) or value not in known:
        raise InputError(f"{where}: must be {' or '.join(known)}, not {_format_value(value)}")
    return known[value]


def _integer(least: int, most: int) -> Callable[[str, Any], int]:
    return lambda where, value: _number(where, value, least, most)


def _weights(
    where: str,
    given: Mapping[str, Any],
    known: Mapping[str, int] | None = None,
    aliases: Mapping[str, str] | None = None,
) -> dict[str, int]:
    """Validate weights and resolve aliases; with `known`, only those names are allowed."""
    found: dict[str, int] = {}
    for name, weight in given.items():
        _text(f"{where}: the name {_format_value(name)}", name)
        proper = (aliases or {}).get(name, name)
        if known is not None and proper not in known:
            raise InputError(f"{where}.{name}: no such scorer; known are {', '.join(known)}")
        if proper in found:
            raise InputError(f"{where}.{name}: is given as {proper} too; keep one of them")
        found[proper] = _number(f"{where}.{name}", weight, 0, WEIGHT_MAX)
    return found


def _kind(value: Any) -> str:
    names = {type(None): "null", bool: "a boolean", str: "a text", list: "a list", tuple: "a list"}
    return names.get(type(value), "a mapping" if isinstance(value, Mapping) else "a number")


def _format_value(value: Any) -> str:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        text = repr(value) if isinstance(value, str) else str(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return _kind(value)


#: Name of a field in a file -> name of the attribute and its parser.
_FIELDS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "schedulerName": ("name", _text),
    "weights": ("weights", _mapping),
    "strategy": ("strategy", _strategy),
    "resources": ("resources", _mapping),
    "balanced": ("balanced", _names),
    "searchSteps": ("search_steps", _integer(1, STEPS_MAX)),
    "explore": ("explore", _integer(1, EXPLORE_MAX)),
    "devicePreference": ("device_preference", _preference),
    "deviceOrder": ("device_order", _order),
    "scoring": ("scoring", _scoring),
}
_DEFAULT = SchedulerProfile()
