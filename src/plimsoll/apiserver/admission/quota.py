"""ResourceQuota admission.

`charge_quotas` checks a write against the quotas of its namespace and returns those that have to be stored
along with it. As in Kubernetes, the status of a quota counts (`hard`, `used`), so one whose usage was never
computed limits nothing.

With the gate DRANodeAllocatableResourcesQuota the charges of claims count too. They are known when a
scheduler writes them to a pod's status, before it binds the pod: that write is refused if it exceeds a quota,
so that the pod stays pending. A new pod is refused if its claims are allocated already and their charges
would exceed one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.meta import Object, Wire
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.quota import ResourceQuota
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.charges import has_same_charges
from plimsoll.apiserver.validation.write_context import decode_view
from plimsoll.controllers.quota.scopes import (
    UNCOUNTED,
    filter_usage,
    is_terminating,
    matches_scopes,
    matching_resources,
    scope_requirements,
)
from plimsoll.controllers.quota.usage import (
    PODS,
    VIEW_TYPES,
    VOLUME_CLAIMS,
    QuotaContext,
    compute_usage,
    pod_usage_with_claims,
)
from plimsoll.ledger.amounts import add_amounts
from plimsoll.ledger.requests import has_pod_level_resources

_REQUIRED_RESOURCES = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")


@dataclass(frozen=True, slots=True)
class QuotaCharge:
    """Quotas with increased usage, to be stored with the object; or the reason of a refusal (HTTP 403)."""

    quotas: tuple[Tree, ...] = ()
    refusal: str = ""


def charge_quotas(
    quotas: Sequence[Tree],
    resource: str,
    tree: Tree,
    old: Tree | None,
    context: QuotaContext,
    *,
    subresource: str = "",
) -> QuotaCharge:
    """Charge a write to the quotas of its namespace; `tree` and `old` are prepared objects.

    Kinds are named as in storage (`pods`, `resourceclaims.resource.k8s.io`).
    """
    if not quotas or resource in UNCOUNTED:
        return QuotaCharge()
    charges_written = (resource, subresource) == (PODS, "status")
    if charges_written and (not context.counts_claims or old is None or has_same_charges(tree, old)):
        return QuotaCharge()
    item, before = _measured_view(resource, tree), None if old is None else _measured_view(resource, old)
    if not _is_charged(resource, item, before, subresource):
        return QuotaCharge()
    views = ((quota, decode_view(quota, ResourceQuota)) for quota in quotas)
    found = [(stored, quota) for stored, quota in views if _applies(quota, resource, item, context)]
    for _, quota in () if charges_written else found:
        refusal = _check_chargeable(quota, resource, item, context)
        if refusal:
            return QuotaCharge((), refusal)
    usage = compute_usage(resource, item, context)
    negative = sorted(name for name, amount in usage.items() if amount.sign() < 0)
    if negative:
        return QuotaCharge((), f"quota usage is negative for resource(s): {','.join(negative)}")
    last = {} if before is None else compute_usage(resource, before, context)
    growth = {name: amount - last.get(name, ZERO) for name, amount in usage.items()}
    expected = _expected_usage(item, context) if before is None else {}
    # A status reports facts and is not rejected. Charges are no facts before their pod is bound.
    is_bound = isinstance(item, Pod) and bool(item.spec.node_name)
    reports_facts = subresource == "status" and (is_bound or not charges_written)
    charged = []
    for stored, quota in found:
        is_known = before is not None and _applies(quota, resource, before, context)
        hard, used = quota.status.hard or {}, quota.status.used or {}
        amounts = filter_usage(growth if is_known else usage, hard)
        requested = {name: amount for name, amount in amounts.items() if amount.sign() > 0}
        asked = requested | filter_usage(expected, hard)
        over = [name for name in asked if used.get(name, ZERO) + asked[name] > hard[name]]
        if over and not reports_facts:
            text = (
                f"exceeded quota: {quota.metadata.name}, requested: {_list(asked, over)}, "
                f"used: {_list(used, over)}, limited: {_list(hard, over)}"
            )
            return QuotaCharge((), text)
        if requested:
            total = dict(used)
            add_amounts(total, requested)
            texts = {name: str(amount) for name, amount in total.items()}
            charged.append({**stored, "status": {**subtree(stored, "status"), "used": texts}})
    return QuotaCharge(tuple(charged))


def _expected_usage(item: Wire, context: QuotaContext) -> dict[str, Quantity]:
    """Return what a new pod will count for once its charges are written, as far as its claims are allocated.

    Only compared with the quota: the write of the charges is what counts.
    """
    if not isinstance(item, Pod) or not context.counts_claims:
        return {}
    charged_claims = context.expected_claims(item)
    found = pod_usage_with_claims(item, context, charged_claims) if charged_claims else {}
    return {name: amount for name, amount in found.items() if amount.sign() > 0}


def _measured_view(resource: str, tree: Tree) -> Wire:
    """Return the parts of an object that quotas measure; of most kinds only the object counts."""
    view = VIEW_TYPES.get(resource)
    return Object() if view is None else decode_view(tree, view)


def _is_charged(resource: str, item: Wire, before: Wire | None, subresource: str) -> bool:
    """Return whether this kind of write can increase usage."""
    if subresource:
        return (resource, subresource) in ((PODS, "resize"), (PODS, "status"), (VOLUME_CLAIMS, "status"))
    if before is None:
        return True
    if isinstance(item, Pod) and isinstance(before, Pod):
        return is_terminating(item) != is_terminating(before)
    return resource in VIEW_TYPES


def _applies(quota: ResourceQuota, resource: str, item: Wire, context: QuotaContext) -> bool:
    if not matching_resources(resource, quota.status.hard or (), context):
        return False
    return matches_scopes(item, scope_requirements(quota.spec), context.gates)


def _check_chargeable(quota: ResourceQuota, resource: str, item: Wire, context: QuotaContext) -> str:
    """Return the reason why a quota cannot be charged: the object or the quota lacks values."""
    names = matching_resources(resource, quota.status.hard or (), context)
    missing = _find_unspecified(names, item, context.gates)
    if missing:
        return f"failed quota: {quota.metadata.name}: must specify {missing}"
    if any(name not in (quota.status.used or {}) for name in names):
        return f"status unknown for quota: {quota.metadata.name}, resources: {','.join(sorted(names))}"
    return ""


def _find_unspecified(names: Iterable[str], pod: Wire, gates: Gates) -> str:
    """Return the limited resources that a container does not specify, unless the pod does."""
    if not isinstance(pod, Pod):
        return ""
    if gates.enabled("PodLevelResources") and has_pod_level_resources(pod):
        return ""
    wanted = sorted(set(names) & set(_REQUIRED_RESOURCES))
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
