"""Arguments of plugins (`pluginConfig`) as settings of a profile, with the defaults and checks of
kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from plimsoll.api.codec import convert_strictly
from plimsoll.api.config import convert_field
from plimsoll.api.core import NodeAffinity, TopologySpreadConstraint
from plimsoll.api.gates import Gates
from plimsoll.errors import DecodeError
from plimsoll.ledger.units import is_accounted
from plimsoll.scheduler.plugin_args import (
    ShapePoint,
    check_added_affinity,
    check_default_constraints,
    check_ignored,
    check_shape,
)
from plimsoll.scheduler.process.kube_config import fields
from plimsoll.scheduler.process.kube_config.plugins import POINTS, REMOVED, Warn
from plimsoll.scheduler.profile import BINDING_TIMEOUT_MS, RESOURCES_MAX, SchedulerProfile, Strategy

_DEFAULT_RESOURCES = (fields.ResourceSpec(name="cpu"), fields.ResourceSpec(name="memory"))
SYSTEM, LIST = "System", "List"
#: Time limit of kube-scheduler's device search on a node. DIFF: here the number of search steps is limited,
#: in proportion to this, so that equal clusters get equal results on every machine
#: (test_a_filter_timeout_is_a_number_of_steps).
FILTER_TIMEOUT_MS = 10_000
_MAX_STEPS = 1_000_000_000


def read_arguments(given: Sequence[fields.PluginConfigFields], gates: Gates, warn: Warn) -> dict[str, Any]:
    """Return the settings of a profile that arguments of plugins determine; errors name the field below
    `pluginConfig`.
    """
    settings: dict[str, Any] = {}
    seen: set[str] = set()
    for index, entry in enumerate(given):
        where = f"[{index}]"
        if entry.name in seen:
            raise DecodeError(f"duplicate value: {entry.name!r}", where)
        seen.add(entry.name)
        kind = fields.ARGUMENTS.get(entry.name)
        if kind is None:
            _refuse_unknown(entry, where)
            continue
        args = convert_field(entry.args or {}, kind, f"{where}.args")
        at = f"{where}.args."
        _check_type(args, entry.name, at)
        settings |= _READERS[entry.name](args, at, gates, warn)
    for name, read in _READERS.items():
        if name not in seen:
            settings |= read(fields.ARGUMENTS[name](), "", gates, _ignore)
    return settings


def _ignore(where: str, text: str) -> None:
    """Drop a warning about a default."""


def _refuse_unknown(entry: fields.PluginConfigFields, where: str) -> None:
    if entry.name in POINTS:
        if entry.args:
            raise DecodeError(f"plugin {entry.name!r} has no arguments", f"{where}.args")
        return
    if entry.name in REMOVED:
        raise DecodeError(f"plugin {entry.name!r} was removed from kube-scheduler; remove it here", where)
    raise DecodeError(
        f"plugin {entry.name!r} is not built in, and plugins cannot be loaded; remove it", f"{where}.name"
    )


def _check_type(args: Any, name: str, at: str) -> None:
    if args.kind not in ("", f"{name}Args"):
        raise DecodeError(f"must be {name}Args, not {args.kind!r}", f"{at}kind")
    if args.api_version != fields.API_VERSION:
        raise DecodeError(f"must be {fields.API_VERSION}, not {args.api_version!r}", f"{at}apiVersion")


def _check_range(value: int, least: int, most: int, where: str) -> None:
    if not least <= value <= most:
        raise DecodeError(f"not in valid range [{least}, {most}], got {value}", where)


# -- one function per plugin: arguments to settings


def _default_preemption(
    args: fields.DefaultPreemptionArgs, at: str, gates: Gates, warn: Warn
) -> dict[str, Any]:
    percentage, absolute = args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    _check_range(percentage, 0, 100, f"{at}minCandidateNodesPercentage")
    if absolute < 0:
        raise DecodeError(f"not in valid range [0, inf), got {absolute}", f"{at}minCandidateNodesAbsolute")
    if not percentage and not absolute:
        raise DecodeError(
            "cannot be zero at the same time as minCandidateNodesAbsolute", f"{at}minCandidateNodesPercentage"
        )
    return {"min_candidate_nodes_percentage": percentage, "min_candidate_nodes_absolute": absolute}


def _inter_pod_affinity(
    args: fields.InterPodAffinityArgs, at: str, gates: Gates, warn: Warn
) -> dict[str, Any]:
    _check_range(args.hard_pod_affinity_weight, 0, 100, f"{at}hardPodAffinityWeight")
    return {
        "hard_pod_affinity_weight": args.hard_pod_affinity_weight,
        "ignore_preferred_terms": args.ignore_preferred_terms_of_existing_pods,
    }


def _node_affinity(args: fields.NodeAffinityArgs, at: str, gates: Gates, warn: Warn) -> dict[str, Any]:
    if args.added_affinity is None:
        return {"added_affinity": None}
    where = f"{at}addedAffinity"
    affinity = convert_field(args.added_affinity, _reader(NodeAffinity), where)
    check_added_affinity(affinity, where)
    return {"added_affinity": affinity}


def _reader(view: type[Any]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        return convert_strictly(value, view)

    return read


def _node_resources_fit(
    args: fields.NodeResourcesFitArgs, at: str, gates: Gates, warn: Warn
) -> dict[str, Any]:
    check_ignored(args.ignored_resources, args.ignored_resource_groups, at)
    strategy, where = args.scoring_strategy, f"{at}scoringStrategy"
    words = sorted(each.value for each in Strategy)
    if strategy.type not in words:
        raise DecodeError(f"must be one of {', '.join(words)}, not {strategy.type!r}", f"{where}.type")
    ratio = strategy.requested_to_capacity_ratio
    shape: tuple[ShapePoint, ...] = ()
    if strategy.type == Strategy.REQUESTED_TO_CAPACITY_RATIO.value:
        if ratio is None:
            raise DecodeError(
                "must be specified when type is RequestedToCapacityRatio",
                f"{where}.requestedToCapacityRatio",
            )
        shape = tuple(ShapePoint(utilization=each.utilization, score=each.score) for each in ratio.shape)
        check_shape(shape, f"{where}.requestedToCapacityRatio.shape")
    elif ratio is not None:
        raise DecodeError(
            "must be nil when type is not RequestedToCapacityRatio", f"{where}.requestedToCapacityRatio"
        )
    weights: dict[str, int] = {}
    for index, each in enumerate(strategy.resources or _DEFAULT_RESOURCES):
        place = f"{where}.resources[{index}]"
        weight = each.weight or 1
        if not 0 < weight <= 100:
            raise DecodeError(
                f"resource weight of {each.name} not in valid range (0, 100], got {weight}", f"{place}.weight"
            )
        if _is_counted(each.name, place, warn):
            weights[each.name] = weights.get(each.name, 0) + weight
    if not weights or len(weights) > RESOURCES_MAX:
        raise DecodeError(f"must have 1 to {RESOURCES_MAX} node resources", f"{where}.resources")
    return {
        "ignored_resources": args.ignored_resources,
        "ignored_resource_groups": args.ignored_resource_groups,
        "strategy": Strategy(strategy.type),
        "shape": shape,
        "resources": weights,
    }


def _is_counted(name: str, place: str, warn: Warn) -> bool:
    """Return whether nodes have an amount of this resource; warn if they have not."""
    if not is_accounted(name):
        warn(f"{place}.name", f"has no effect: {name!r} is not a resource of nodes")
        return False
    return True


def _balanced_allocation(
    args: fields.NodeResourcesBalancedAllocationArgs, at: str, gates: Gates, warn: Warn
) -> dict[str, Any]:
    names: list[str] = []
    for index, each in enumerate(args.resources or _DEFAULT_RESOURCES):
        place = f"{at}resources[{index}]"
        if each.name in names:
            raise DecodeError(f"duplicate value: {each.name!r}", f"{place}.name")
        if (each.weight or 1) != 1:
            raise DecodeError(f"must be 1, got {each.weight}", f"{place}.weight")
        if _is_counted(each.name, place, warn):
            names.append(each.name)
    if len(names) > RESOURCES_MAX:
        raise DecodeError(f"must have at most {RESOURCES_MAX} node resources", f"{at}resources")
    return {"balanced": tuple(names)}


def _pod_topology_spread(
    args: fields.PodTopologySpreadArgs, at: str, gates: Gates, warn: Warn
) -> dict[str, Any]:
    defaulting = args.defaulting_type or SYSTEM
    where = f"{at}defaultConstraints"
    if defaulting not in (SYSTEM, LIST):
        raise DecodeError(f"must be one of {LIST}, {SYSTEM}, not {defaulting!r}", f"{at}defaultingType")
    if defaulting == SYSTEM and args.default_constraints:
        raise DecodeError("must be List when .defaultConstraints are not empty", f"{at}defaultingType")
    read = _reader(TopologySpreadConstraint)
    constraints = tuple(
        convert_field(each, read, f"{where}[{index}]") for index, each in enumerate(args.default_constraints)
    )
    check_default_constraints(constraints, where)
    return {"default_constraints": None if defaulting == SYSTEM else constraints}


def _volume_binding(args: fields.VolumeBindingArgs, at: str, gates: Gates, warn: Warn) -> dict[str, Any]:
    if args.bind_timeout_seconds < 0:
        raise DecodeError(
            "invalid BindTimeoutSeconds, should not be a negative value", f"{at}bindTimeoutSeconds"
        )
    found: dict[str, Any] = {"volume_timeout_ms": min(args.bind_timeout_seconds * 1000, 2**53)}
    if args.shape:
        if not gates.enabled("StorageCapacityScoring"):
            raise DecodeError(
                "unexpected field `shape`, remove it or turn on the feature gate StorageCapacityScoring",
                f"{at}shape",
            )
        shape = tuple(ShapePoint(utilization=each.utilization, score=each.score) for each in args.shape)
        check_shape(shape, f"{at}shape")
        found["volume_shape"] = shape
    return found


def _dynamic_resources(
    args: fields.DynamicResourcesArgs, at: str, gates: Gates, warn: Warn
) -> dict[str, Any]:
    limit = FILTER_TIMEOUT_MS if args.filter_timeout is None else args.filter_timeout
    if limit < 0:
        raise DecodeError("must be zero or positive", f"{at}filterTimeout")
    timeout = BINDING_TIMEOUT_MS if args.binding_timeout is None else args.binding_timeout
    if args.binding_timeout is not None and not gates.enabled("DRADeviceBindingConditions"):
        raise DecodeError(
            "DRADeviceBindingConditions or DRAResourceClaimDeviceStatus feature gate is disabled",
            f"{at}bindingTimeout",
        )
    if timeout < 1000:
        raise DecodeError("must be at least 1 second", f"{at}bindingTimeout")
    steps = SchedulerProfile.default().search_steps
    if limit:
        steps = min(max(steps * limit // FILTER_TIMEOUT_MS, 1), _MAX_STEPS)
    else:
        steps = _MAX_STEPS
    return {"search_steps": steps, "binding_timeout_ms": timeout}


_READERS: Mapping[str, Callable[[Any, str, Gates, Warn], dict[str, Any]]] = {
    "DefaultPreemption": _default_preemption,
    "InterPodAffinity": _inter_pod_affinity,
    "NodeAffinity": _node_affinity,
    "NodeResourcesFit": _node_resources_fit,
    "NodeResourcesBalancedAllocation": _balanced_allocation,
    "PodTopologySpread": _pod_topology_spread,
    "VolumeBinding": _volume_binding,
    "DynamicResources": _dynamic_resources,
}
