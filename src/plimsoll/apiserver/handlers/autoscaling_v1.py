"""Conversion of HorizontalPodAutoscaler between autoscaling/v1 and autoscaling/v2, the storage version.

Version 1 knows one metric, the utilization of CPU. As upstream, annotations of the object have what else
version 2 has: other metrics, current metrics, conditions and the behavior, so that nothing is lost when a
client of version 1 writes an object back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from plimsoll.apiserver.json_values import items, mapping

Tree = dict[str, Any]

_PREFIX = "autoscaling.alpha.kubernetes.io/"
_METRICS, _BEHAVIOR = f"{_PREFIX}metrics", f"{_PREFIX}behavior"
_CURRENT, _CONDITIONS = f"{_PREFIX}current-metrics", f"{_PREFIX}conditions"
_CPU_TARGET, _CPU_CURRENT = "targetCPUUtilizationPercentage", "currentCPUUtilizationPercentage"
_SOURCES = ("resource", "containerResource", "pods", "object", "external")
#: Names in version 1 of the values of a metric, by its source: target and current values.
_TARGETS: Mapping[str, Mapping[str, str]] = {
    "resource": {"averageUtilization": "targetAverageUtilization", "averageValue": "targetAverageValue"},
    "containerResource": {
        "averageUtilization": "targetAverageUtilization",
        "averageValue": "targetAverageValue",
    },
    "pods": {"averageValue": "targetAverageValue"},
    "object": {"value": "targetValue", "averageValue": "averageValue"},
    "external": {"value": "targetValue", "averageValue": "targetAverageValue"},
}
_CURRENTS: Mapping[str, Mapping[str, str]] = {
    source: {name: text.replace("target", "current") for name, text in names.items()}
    for source, names in _TARGETS.items()
}
_TYPES = {"averageUtilization": "Utilization", "averageValue": "AverageValue", "value": "Value"}


def to_v1(tree: Tree) -> Tree:
    spec, status = dict(mapping(tree.get("spec"))), dict(mapping(tree.get("status")))
    kept: dict[str, str] = {}
    metrics = list(items(spec.pop("metrics", None)))
    cpu = next((each for each in metrics if _cpu_value(each, "target") is not None), None)
    if cpu is not None:
        spec[_CPU_TARGET] = _cpu_value(cpu, "target")
    others = [_shorten(each, "target", _TARGETS) for each in metrics if each is not cpu]
    if others:
        kept[_METRICS] = _dump(others)
    behavior = spec.pop("behavior", None)
    if behavior:
        kept[_BEHAVIOR] = _dump(_rename(behavior, str.upper))
    current = list(items(status.pop("currentMetrics", None)))
    cpu_now = next((each for each in current if _cpu_value(each, "current") is not None), None)
    if cpu_now is not None:
        status[_CPU_CURRENT] = _cpu_value(cpu_now, "current")
    if current:
        kept[_CURRENT] = _dump([_shorten(each, "current", _CURRENTS) for each in current])
    conditions = status.pop("conditions", None)
    if conditions:
        kept[_CONDITIONS] = _dump(conditions)
    status = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    metadata = mapping(tree.get("metadata"))
    if kept:
        metadata = {**metadata, "annotations": {**mapping(metadata.get("annotations")), **kept}}
    return {**tree, "metadata": metadata, "spec": spec, "status": status}


def to_v2(tree: Tree) -> Tree:
    metadata, spec = dict(mapping(tree.get("metadata"))), dict(mapping(tree.get("spec")))
    status = dict(mapping(tree.get("status")))
    annotations = dict(mapping(metadata.pop("annotations", None)))
    kept = {name: _load(annotations.pop(name, "")) for name in (_METRICS, _BEHAVIOR, _CURRENT, _CONDITIONS)}
    metrics = [_expand(each, "target", _TARGETS) for each in items(kept[_METRICS])]
    target = spec.pop(_CPU_TARGET, None)
    if target is not None:
        amount = {"type": "Utilization", "averageUtilization": target}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": amount}})
    if metrics:
        spec["metrics"] = metrics
    if isinstance(kept[_BEHAVIOR], dict):
        spec["behavior"] = _rename(kept[_BEHAVIOR], str.lower)
    current = [_expand(each, "current", _CURRENTS) for each in items(kept[_CURRENT])]
    percentage = status.pop(_CPU_CURRENT, None)
    if percentage is not None and all(_cpu_value(each, "current") is None for each in current):
        now = {"averageUtilization": percentage}
        current.append({"type": "Resource", "resource": {"name": "cpu", "current": now}})
    if current:
        status["currentMetrics"] = current
    if isinstance(kept[_CONDITIONS], list):
        status["conditions"] = kept[_CONDITIONS]
    if annotations:
        metadata["annotations"] = annotations
    converted = {**tree, "metadata": metadata, "spec": spec}
    return {**converted, "status": status} if "status" in tree else converted


def _cpu_value(metric: Mapping[str, Any], part: str) -> Any:
    """Return the utilization of CPU if this is its metric, else None."""
    resource = mapping(metric.get("resource"))
    is_cpu = metric.get("type") == "Resource" and resource.get("name") == "cpu"
    return mapping(resource.get(part)).get("averageUtilization") if is_cpu else None


def _shorten(metric: Mapping[str, Any], part: str, names: Mapping[str, Mapping[str, str]]) -> Tree:
    """Return a metric as version 1 writes it: its names and values are fields of the source."""
    short: Tree = {"type": metric.get("type")}
    for source in _SOURCES:
        given = metric.get(source)
        if not isinstance(given, dict):
            continue
        about, values = mapping(given.get("metric")), mapping(given.get(part))
        fields = {name: value for name, value in given.items() if name not in ("metric", part)}
        if "describedObject" in fields:
            fields["target"] = fields.pop("describedObject")
        if "name" in about:
            fields["metricName"] = about["name"]
        if about.get("selector"):
            fields["metricSelector" if source == "external" else "selector"] = about["selector"]
        known = {text: values[name] for name, text in names[source].items() if name in values}
        short[source] = {**fields, **known}
    return short


def _expand(metric: Mapping[str, Any], part: str, names: Mapping[str, Mapping[str, str]]) -> Tree:
    """Return a metric of version 1 as version 2 writes it."""
    full: Tree = {"type": metric.get("type")}
    for source in _SOURCES:
        given = metric.get(source)
        if not isinstance(given, dict):
            continue
        fields = dict(given)
        values = {name: fields.pop(text) for name, text in names[source].items() if text in fields}
        kinds = [_TYPES[name] for name in _TYPES if name in values] if part == "target" else []
        expanded: Tree = {part: {**({"type": kinds[0]} if kinds else {}), **values}}
        if "metricName" in fields:
            expanded["metric"] = {"name": fields.pop("metricName")}
            selector = fields.pop("metricSelector", None) or fields.pop("selector", None)
            if selector:
                expanded["metric"]["selector"] = selector
        if source == "object" and "target" in fields:
            expanded["describedObject"] = fields.pop("target")
        full[source] = {**fields, **expanded}
    return full


def _rename(value: Any, letter: Callable[[str], str]) -> Any:
    """Return a value with the first letter of all field names changed: upstream writes Go names there."""
    if isinstance(value, list):
        return [_rename(item, letter) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        letter(name[:1]) + name[1:]: _rename(item, letter) for name, item in value.items() if item is not None
    }


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _load(text: Any) -> Any:
    try:
        return json.loads(text) if isinstance(text, str) and text else None
    except ValueError:
        return None  # a client wrote something else there
