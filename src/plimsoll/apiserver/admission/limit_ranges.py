"""LimitRanger: defaults of container resources, and the limits of containers, pods and volume claims.

Pure functions on trees: `apply_defaults` runs before an object is prepared, `find_violations` after it, as in
upstream's plugin. Amounts are compared in thousandths, rounded up, unless one is too large for that.

- DIFF: all violations of all limit ranges are reported; upstream stops at the first limit range with one
  (test_violations_of_all_limit_ranges_are_reported).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from plimsoll.api.quantity import Quantity
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.validation.generic_kinds.limit_range_rules import format_ratio
from plimsoll.apiserver.validation.object_trees import Tree

ANNOTATION = "kubernetes.io/limit-ranger"
#: Resources that pods can request as a whole.
_POD_LEVEL = ("cpu", "memory")
_MAX_MILLI_VALUE = (2**63 - 1) // 1000
_CONTAINER, _POD, _CLAIM = "Container", "Pod", "PersistentVolumeClaim"

Amounts = Mapping[str, Quantity]


def has_limits(info: RequestInfo, old: Tree | None) -> bool:
    """Return whether limit ranges apply to a write: of new and resized pods and of volume claims, unless
    they are being deleted.
    """
    if old is not None and old["metadata"].get("deletionTimestamp"):
        return False
    if info.resource.kind == _POD:
        return info.subresource == "resize" if old is not None else not info.subresource
    return not info.subresource


def apply_defaults(pod: Tree, limit_ranges: Iterable[Tree]) -> Tree:
    """Return a pod with the default requests and limits of its containers, and an annotation about them."""
    for limit_range in limit_ranges:
        limits, requests = _container_defaults(limit_range)
        if limits or requests:
            pod = _with_defaults(pod, limits, requests)
    return pod


def find_violations(kind: str, tree: Tree, limit_ranges: Iterable[Tree]) -> str:
    """Return how a pod or volume claim violates limit ranges, as the reason of a 403; "" if it does not."""
    find = _pod_violations if kind == _POD else _claim_violations
    found = list(dict.fromkeys(text for limit_range in limit_ranges for text in find(tree, limit_range)))
    return found[0] if len(found) == 1 else f"[{', '.join(found)}]" if found else ""


# -- defaults


def _container_defaults(limit_range: Tree) -> tuple[Tree, Tree]:
    limits: Tree = {}
    requests: Tree = {}
    for item in _items(limit_range, _CONTAINER):
        limits |= item.get("default") or {}
        requests |= item.get("defaultRequest") or {}
    return limits, requests


def _with_defaults(pod: Tree, limits: Tree, requests: Tree) -> Tree:
    spec, notes = dict(pod["spec"]), list[str]()
    for field, what in (("containers", "container"), ("initContainers", "init container")):
        if spec.get(field):
            spec[field] = [
                _container_with_defaults(one, limits, requests, what, notes) for one in spec[field]
            ]
    if not notes:
        return pod
    metadata = dict(pod["metadata"])
    metadata["annotations"] = {
        **(metadata.get("annotations") or {}),
        ANNOTATION: f"LimitRanger plugin set: {'; '.join(notes)}",
    }
    return {**pod, "metadata": metadata, "spec": spec}


def _container_with_defaults(
    container: Tree, limits: Tree, requests: Tree, what: str, notes: list[str]
) -> Tree:
    resources = dict(container.get("resources") or {})
    for field, defaults, name in (("requests", requests, "request"), ("limits", limits, "limit")):
        given = resources.get(field) or {}
        added = sorted(resource for resource in defaults if resource not in given)
        if added:
            resources[field] = {**given, **{resource: defaults[resource] for resource in added}}
            notes.append(f"{', '.join(added)} {name} for {what} {container.get('name', '')}")
    return {**container, "resources": resources}


# -- limits


class _Usage(NamedTuple):
    """Requests and limits of a container or pod."""

    requests: Amounts
    limits: Amounts

    @classmethod
    def of(cls, resources: Any) -> _Usage:
        given = resources if isinstance(resources, dict) else {}
        return cls(_amounts(given.get("requests")), _amounts(given.get("limits")))


def _pod_violations(pod: Tree, limit_range: Tree) -> Iterator[str]:
    spec = pod["spec"]
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    for item in _items(limit_range):
        if item.get("type") == _CONTAINER:
            for container in containers:
                yield from _violations(item, _Usage.of(container.get("resources")))
        elif item.get("type") == _POD:
            yield from _violations(item, _pod_usage(spec))


def _claim_violations(claim: Tree, limit_range: Tree) -> Iterator[str]:
    """Yield the violations of a volume claim; only its requests count."""
    requests = _Usage.of((claim.get("spec") or {}).get("resources")).requests
    for item in _items(limit_range, _CLAIM):
        for name, bound in _sorted_amounts(item.get("min")):
            yield from _below_minimum(_CLAIM, name, bound, _Usage(requests, {}))
        for name, bound in _sorted_amounts(item.get("max")):
            head = f"maximum {name} usage per {_CLAIM} is {bound.canonical()}"
            request = requests.get(name)
            if request is None:
                yield f"{head}.  No request is specified"
            elif _exceeds(request, bound):
                yield f"{head}, but request is {request.canonical()}"


def _violations(item: Tree, usage: _Usage) -> Iterator[str]:
    kind = item["type"]
    for name, bound in _sorted_amounts(item.get("min")):
        yield from _below_minimum(kind, name, bound, usage)
    for name, bound in _sorted_amounts(item.get("max")):
        head = f"maximum {name} usage per {kind} is {bound.canonical()}"
        request, limit = usage.requests.get(name), usage.limits.get(name)
        if limit is None:
            yield f"{head}.  No limit is specified"
        elif _exceeds(limit, bound):
            yield f"{head}, but limit is {limit.canonical()}"
        elif request is not None and _exceeds(request, bound):
            yield f"{head}, but request is {request.canonical()}"
    for name, bound in _sorted_amounts(item.get("maxLimitRequestRatio")):
        yield from _above_ratio(kind, name, bound, usage)


def _below_minimum(kind: str, name: str, bound: Quantity, usage: _Usage) -> Iterator[str]:
    head = f"minimum {name} usage per {kind} is {bound.canonical()}"
    request, limit = usage.requests.get(name), usage.limits.get(name)
    if request is None:
        yield f"{head}.  No request is specified"
    elif _exceeds(bound, request):
        yield f"{head}, but request is {request.canonical()}"
    elif limit is not None and _exceeds(bound, limit):
        yield f"{head}, but limit is {limit.canonical()}"


def _above_ratio(kind: str, name: str, bound: Quantity, usage: _Usage) -> Iterator[str]:
    head = f"{name} max limit to request ratio per {kind} is {bound.canonical()}"
    request, limit = usage.requests.get(name), usage.limits.get(name)
    if request is None or not request:
        yield f"{head}, but no request is specified or request is 0"
    elif limit is None or not limit:
        yield f"{head}, but no limit is specified or limit is 0"
    else:
        share, whole = _comparable(limit, request)
        if share * 1000 > bound.milli() * whole:
            yield f"{head}, but provided ratio is {format_ratio(share, whole)}"


def _exceeds(amount: Quantity, bound: Quantity) -> bool:
    left, right = _comparable(amount, bound)
    return left > right


def _comparable(*amounts: Quantity) -> tuple[int, ...]:
    """Return amounts in thousandths, or in whole units if one of them is too large."""
    if all(amount.value() <= _MAX_MILLI_VALUE for amount in amounts):
        return tuple(amount.milli() for amount in amounts)
    return tuple(amount.value() for amount in amounts)


# -- sums of a pod


def _pod_usage(spec: Tree) -> _Usage:
    """Return requests and limits of a pod: sidecars count with the containers, other init containers by
    their maximum; amounts of the pod itself take precedence.
    """
    whole = _Usage.of(spec.get("resources"))
    return _Usage(_pod_sum(spec, "requests", whole.requests), _pod_sum(spec, "limits", whole.limits))


def _pod_sum(spec: Tree, field: str, whole: Amounts) -> Amounts:
    total: dict[str, Quantity] = {}
    for container in spec.get("containers") or ():
        _add(total, _container_amounts(container, field))
    sidecars: dict[str, Quantity] = {}
    start: dict[str, Quantity] = {}
    for container in spec.get("initContainers") or ():
        amounts = _container_amounts(container, field)
        if container.get("restartPolicy") == "Always":
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise_to(start, sidecars)
        else:
            needed = dict(amounts)
            _add(needed, sidecars)
            _raise_to(start, needed)
    _raise_to(total, start)
    return total | {name: whole[name] for name in _POD_LEVEL if name in whole}


def _container_amounts(container: Tree, field: str) -> Amounts:
    return _amounts((container.get("resources") or {}).get(field))


def _add(total: dict[str, Quantity], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        total[name] = total[name] + amount if name in total else amount


def _raise_to(total: dict[str, Quantity], amounts: Amounts) -> None:
    for name, amount in amounts.items():
        if name not in total or amount > total[name]:
            total[name] = amount


# -- reading


def _items(limit_range: Tree, kind: str = "") -> Iterator[Tree]:
    for item in (limit_range.get("spec") or {}).get("limits") or ():
        if not kind or item.get("type") == kind:
            yield item


def _amounts(tree: Any) -> Amounts:
    return {name: Quantity.from_json(value) for name, value in (tree or {}).items()}


def _sorted_amounts(tree: Any) -> list[tuple[str, Quantity]]:
    return sorted(_amounts(tree).items())
