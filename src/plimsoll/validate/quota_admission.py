"""Quotas: charging an object to them.

`charge_quotas` judges a write by the quotas of its namespace and gives back those that have to be stored
along with it. As in Kubernetes a quota limits what its status says (`hard`, `used`), so one that was never
measured limits nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.amounts import add_to
from plimsoll.ledger.requests import pod_level_resources_set
from plimsoll.validate.job import look
from plimsoll.validate.quota_usage import (
    CLAIMS,
    PODS,
    SERVICES,
    UNCOUNTED,
    VOLUME_CLAIMS,
    concerns,
    in_scopes,
    usage_of,
)
from plimsoll.validate.trees import Tree, part
from plimsoll.validate.views import ResourceQuota, ScopeRequirement

_ALL_ON = Gates.all_on()
_MUST_BE_SAID = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


@dataclass(frozen=True, slots=True)
class Charged:
    """The quotas whose usage grew, to be stored with the object; or why it is refused (HTTP 403)."""

    quotas: tuple[Tree, ...] = ()
    refusal: str = ""


def charge_quotas(
    quotas: Sequence[Tree],
    resource: str,
    tree: Tree,
    old: Tree | None,
    now: datetime,
    *,
    subresource: str = "",
    gates: Gates = _ALL_ON,
    extended: Mapping[str, str] | None = None,
) -> Charged:
    """Charge a write to the quotas of its namespace; `tree` and `old` are settled.

    `extended` are the extended resources by which devices of a class can be asked for, by class.
    """
    if not quotas or not _is_charged(resource, tree, old, subresource):
        return Charged()
    views = [(quota, look(quota, ResourceQuota)) for quota in quotas]
    known = extended or {}
    charged = []
    usage = usage_of(resource, tree, now, gates, known)
    before = {} if old is None else usage_of(resource, old, now, gates, known)
    for quota, view in views:
        if not _applies(view, resource, tree, known):
            continue
        names = [name for name in view.status.hard if concerns(resource, name, known)]
        name = view.metadata.name
        missing = _find_unsaid(names, resource, tree, gates)
        if missing:
            return Charged((), f"failed quota: {name}: must specify {missing}")
        if any(each not in view.status.used for each in names):
            listed = ",".join(sorted(names))
            return Charged((), f"status unknown for quota: {name}, resources: {listed}")
        negative = sorted(each for each, amount in usage.items() if amount.sign() < 0)
        if negative:
            return Charged((), f"quota usage is negative for resource(s): {','.join(negative)}")
        delta = usage
        if old is not None and _applies(view, resource, old, known):
            delta = {each: amount - before.get(each, ZERO) for each, amount in usage.items()}
        asked = {
            each: amount for each, amount in delta.items() if amount.sign() > 0 and each in view.status.hard
        }
        if not asked:
            continue
        used, hard = view.status.used, view.status.hard
        over = [each for each in asked if used.get(each, ZERO) + asked[each] > hard[each]]
        if over:
            text = (
                f"exceeded quota: {name}, requested: {_list(asked, over)}, used: {_list(used, over)}, "
                f"limited: {_list(hard, over)}"
            )
            return Charged((), text)
        total = dict(used)
        add_to(total, asked)
        status = {**part(quota, "status"), "used": {each: str(amount) for each, amount in total.items()}}
        charged.append({**quota, "status": status})
    return Charged(tuple(charged))


def _is_charged(resource: str, tree: Tree, old: Tree | None, subresource: str) -> bool:
    """Whether this kind of write can use more of anything."""
    if resource in UNCOUNTED:
        return False
    if subresource == "resize":
        return resource == PODS
    if subresource:
        return False
    if old is None:
        return True
    if resource == PODS:
        deadlines = [part(each, "spec").get("activeDeadlineSeconds") is None for each in (tree, old)]
        return deadlines[0] != deadlines[1]
    return resource in (CLAIMS, VOLUME_CLAIMS, SERVICES)


def _requirements(quota: ResourceQuota) -> list[ScopeRequirement]:
    spec = quota.spec
    listed = [ScopeRequirement(scope_name=scope, operator="Exists") for scope in spec.scopes]
    return listed + list(() if spec.scope_selector is None else spec.scope_selector.match_expressions)


def _applies(quota: ResourceQuota, resource: str, tree: Tree, extended: Mapping[str, str]) -> bool:
    if not any(concerns(resource, name, extended) for name in quota.status.hard):
        return False
    return in_scopes(resource, tree, _requirements(quota))


def _find_unsaid(names: Iterable[str], resource: str, tree: Tree, gates: Gates) -> str:
    """What a quota limits every container must say, or the pod as a whole."""
    wanted = sorted(set(names) & set(_MUST_BE_SAID)) if resource == PODS else []
    if not wanted:
        return ""
    pod = look(tree, Pod)
    if gates.enabled("PodLevelResources") and pod_level_resources_set(pod):
        return ""
    missing: dict[str, set[str]] = {}
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        for name in wanted:
            side, _, plain = name.rpartition(".")
            amounts = container.resources.limits if side == "limits" else container.resources.requests
            if plain not in amounts:
                missing.setdefault(name, set()).add(container.name)
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def _list(amounts: Mapping[str, Quantity], names: Iterable[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in sorted(names) if name in amounts)
