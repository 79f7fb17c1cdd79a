"""Plugins that a profile of a KubeSchedulerConfiguration enables, by extension point.

`expand_plugins` merges the default plugins with those of the file as kube-scheduler does: a plugin is enabled
for all of its extension points (multiPoint), a set of one point takes precedence, and enabled takes
precedence over disabled. `read_plugins` turns the result into settings of a profile, and refuses what cannot
be had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from plimsoll.api.gates import Gates
from plimsoll.errors import DecodeError
from plimsoll.scheduler.process.kube_config.fields import PluginField, PluginSetFields, PluginsFields
from plimsoll.scheduler.profile import OPTIONAL_FILTERS, WEIGHTS

ALL = "*"
Warn = Callable[[str, str], None]
#: Extension points of each built-in plugin, in the order of kube-scheduler's default plugins.
POINTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "SchedulingGates": ("preEnqueue",),
        "PrioritySort": ("queueSort",),
        "NodeUnschedulable": ("filter",),
        "NodeName": ("filter",),
        "TaintToleration": ("filter", "preScore", "score"),
        "NodeAffinity": ("preFilter", "filter", "preScore", "score"),
        "NodePorts": ("preFilter", "filter"),
        "NodeResourcesFit": ("preFilter", "filter", "preScore", "score", "placementScore"),
        "VolumeRestrictions": ("preFilter", "filter"),
        "NodeVolumeLimits": ("preFilter", "filter"),
        "VolumeBinding": ("preFilter", "filter", "reserve", "preBind", "preScore", "score"),
        "VolumeZone": ("preFilter", "filter"),
        "PodTopologySpread": ("preFilter", "filter", "preScore", "score"),
        "InterPodAffinity": ("preFilter", "filter", "preScore", "score"),
        "DynamicResources": (
            "preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind",
        ),
        "DefaultPreemption": ("postFilter", "preEnqueue"),
        "NodeResourcesBalancedAllocation": ("preScore", "score"),
        "ImageLocality": ("score",),
        "DefaultBinder": ("bind",),
        "NodeDeclaredFeatures": ("preFilter", "filter"),
    }
)  # fmt: skip
#: Plugins of kube-scheduler behind feature gates that are off by default.
GATED = ("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
#: Plugins of feature gates that are supported here: they are enabled with their gate.
GANG = "GangScheduling"
GATED_POINTS: Mapping[str, tuple[str, ...]] = MappingProxyType({GANG: ("preEnqueue", "permit")})
#: Plugins that kube-scheduler no longer has.
REMOVED = ("AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits")
#: Names of plugins' scores in a profile.
_SCORES = {name: name for name in WEIGHTS} | {"DynamicResources": "DevicePreference"}
_DEFAULT_WEIGHTS = {"TaintToleration": 3, "NodeAffinity": 2, "PodTopologySpread": 2, "InterPodAffinity": 2}
#: Scores that kube-scheduler cannot compute without preScore; the others fall back.
_NEEDS_PRE_SCORE = ("PodTopologySpread", "InterPodAffinity")
#: Filters that work without preFilter.
_NO_PRE_FILTER = ("NodeAffinity",)


def default_weight(name: str) -> int:
    """Return the weight of a plugin in kube-scheduler's default profile."""
    return 2 if name == "DynamicResources" else _DEFAULT_WEIGHTS.get(name, 1)


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Settings of a profile that plugin sets determine."""

    weights: Mapping[str, int]
    disabled_filters: tuple[str, ...]
    preemption: bool
    gangs: bool


def available_plugins(gates: Gates) -> Mapping[str, tuple[str, ...]]:
    """Return the extension points of the built-in plugins whose feature gates are enabled."""
    return {**POINTS, **{name: at for name, at in GATED_POINTS.items() if gates.enabled(name)}}


def expand_plugins(
    given: PluginsFields, available: Mapping[str, tuple[str, ...]] = POINTS
) -> dict[str, dict[str, int]]:
    """Return the enabled plugins of each extension point with their weights (0: not given).

    Raises DecodeError for plugins that do not exist, or do not implement the extension point.
    """
    multi = _merge_multi_point(given.multi_point, available)
    found: dict[str, dict[str, int]] = {}
    for point, attribute in _ATTRIBUTES.items():
        own: PluginSetFields = getattr(given, attribute)
        disabled = {plugin.name for plugin in own.disabled}
        enabled: dict[str, int] = {}
        for index, plugin in enumerate(own.enabled):
            where = f"{point}.enabled[{index}].name"
            _check_name(plugin, where, available)
            if point not in available[plugin.name]:
                raise DecodeError(f"plugin {plugin.name!r} does not extend {point}", where)
            if plugin.name in enabled:
                raise DecodeError(f"plugin {plugin.name!r} already registered", where)
            enabled[plugin.name] = plugin.weight
        if ALL not in disabled:
            for name, weight in multi.items():
                if point in available[name] and name not in disabled and name not in enabled:
                    enabled[name] = weight
        found[point] = enabled
    return found


#: Extension points of a file, and their attributes in `PluginsFields`.
_ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "preEnqueue": "pre_enqueue",
        "queueSort": "queue_sort",
        "preFilter": "pre_filter",
        "filter": "filter",
        "postFilter": "post_filter",
        "preScore": "pre_score",
        "score": "score",
        "reserve": "reserve",
        "permit": "permit",
        "preBind": "pre_bind",
        "bind": "bind",
        "postBind": "post_bind",
        "placementGenerate": "placement_generate",
        "placementScore": "placement_score",
    }
)


def _merge_multi_point(own: PluginSetFields, available: Mapping[str, tuple[str, ...]]) -> dict[str, int]:
    """Return the plugins that are enabled for all of their extension points, with their weights."""
    disabled = {plugin.name for plugin in own.disabled}
    enabled: dict[str, int] = {}
    for index, plugin in enumerate(own.enabled):
        where = f"multiPoint.enabled[{index}].name"
        _check_name(plugin, where, available)
        if plugin.name in enabled:
            raise DecodeError(f"plugin {plugin.name!r} already registered", where)
        enabled[plugin.name] = plugin.weight
    merged = {
        name: enabled.get(name, default_weight(name))
        for name in available
        if ALL not in disabled and name not in disabled
    }
    return merged | {name: weight for name, weight in enabled.items() if name not in merged}


def _check_name(plugin: PluginField, where: str, available: Mapping[str, tuple[str, ...]]) -> None:
    if plugin.name in available:
        return
    if plugin.name in REMOVED:
        raise DecodeError(f"plugin {plugin.name!r} was removed from kube-scheduler; remove it here", where)
    if plugin.name in GATED:
        raise DecodeError(
            f"plugin {plugin.name!r} is not supported, or its feature gate is off; remove it", where
        )
    raise DecodeError(
        f"plugin {plugin.name!r} is not built in, and plugins cannot be loaded; remove it, or keep the pods "
        "of this profile with the scheduler that has it",
        where,
    )


def read_plugins(given: PluginsFields, gates: Gates, warn: Warn) -> PluginSettings:
    """Return the settings for the plugins of a profile; errors and warnings name fields below `plugins`."""
    for where, plugin in _disabled(given):
        if plugin.name not in (ALL, *POINTS, *GATED):
            warn(f"{where}.name", f"has no effect: there is no plugin {plugin.name!r}")
    points = expand_plugins(given, available_plugins(gates))
    _check_required(points, given)
    disabled = [name for name in OPTIONAL_FILTERS if not _is_filter_enabled(name, points, given)]
    for name in _NEEDS_PRE_SCORE:
        if name in points["score"] and name not in points["preScore"]:
            raise DecodeError(
                f"{name} cannot score without preScore; disable both, or none",
                _where_disabled(given, "preScore", name),
            )
    weights = dict.fromkeys(_SCORES.values(), 0)
    for name, weight in points["score"].items():
        if weight < 0:
            raise DecodeError(f"the weight of {name} must not be negative, got {weight}", "score.enabled")
        if name in _SCORES:
            weights[_SCORES[name]] = weight or 1
    return PluginSettings(
        {name: weight for name, weight in weights.items() if name in WEIGHTS},
        tuple(disabled),
        "DefaultPreemption" in points["postFilter"],
        GANG in points["preEnqueue"] or GANG in points["permit"],
    )


def _disabled(given: PluginsFields) -> Iterator[tuple[str, PluginField]]:
    for point, attribute in {**_ATTRIBUTES, "multiPoint": "multi_point"}.items():
        own: PluginSetFields = getattr(given, attribute)
        for index, plugin in enumerate(own.disabled):
            yield f"{point}.disabled[{index}]", plugin


#: Plugins that must stay enabled at these points, and why.
_REQUIRED: tuple[tuple[str, str, str], ...] = (
    ("PrioritySort", "queueSort", "pods are always ordered by priority"),
    ("SchedulingGates", "preEnqueue", "scheduling gates always hold a pod back"),
    ("DefaultBinder", "bind", "pods are always bound through the API"),
    *(
        (
            "DynamicResources",
            point,
            "pods would be bound without their devices; turn off the feature gate DynamicResourceAllocation "
            "instead",
        )
        for point in ("preEnqueue", "preFilter", "filter", "reserve", "preBind")
    ),
    ("DynamicResources", "postFilter", "claims that keep a pod from running are always released"),
)


def _check_required(points: Mapping[str, Mapping[str, int]], given: PluginsFields) -> None:
    for name, point, why in _REQUIRED:
        if name not in points[point]:
            raise DecodeError(f"{name} cannot be disabled: {why}", _where_disabled(given, point, name))
    if len(points["queueSort"]) > 1:
        raise DecodeError("only one queue sort plugin can be enabled", "queueSort.enabled")


def _where_disabled(given: PluginsFields, point: str, name: str) -> str:
    """Return the field that disables a plugin for an extension point."""
    for at in (point, "multiPoint"):
        own: PluginSetFields = getattr(given, _ATTRIBUTES.get(at, "multi_point"))
        for index, plugin in enumerate(own.disabled):
            if plugin.name in (name, ALL):
                return f"{at}.disabled[{index}].name"
    return f"{point}.disabled"


def _is_filter_enabled(name: str, points: Mapping[str, Mapping[str, int]], given: PluginsFields) -> bool:
    """Return whether a filter is enabled; raises DecodeError if only a part of its plugin is."""
    needed = [point for point in POINTS[name] if point in ("preFilter", "filter", "reserve", "preBind")]
    missing = [point for point in needed if name not in points[point]]
    if missing == ["preFilter"] and name in _NO_PRE_FILTER:
        return True
    if missing and len(missing) < len(needed):
        both = " and ".join(needed)
        raise DecodeError(
            f"{name} is disabled here, but not completely; disable it for {both}, or for none of them",
            _where_disabled(given, missing[0], name),
        )
    return not missing
