"""What the pods and claims of a namespace use, in the terms of a ResourceQuota.

Owns the totals per namespace, from the same lines the nodes are booked by. Kubernetes counts only what pod
specs say (`count_claims=False`); counting claims as well shows what the namespace really takes from its
nodes, pools included. Section 2 of the accounting semantics (callers), point P28, and document 000,
"Kube-Scheduler Scoring and Resource Quota".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import ALL, EXACT_COUNT, RESULTS_MAX, DeviceRequest, ResourceClaim
from plimsoll.ledger.amounts import Amounts, add_to, is_huge_page
from plimsoll.ledger.cgroups.shares import share_claims
from plimsoll.ledger.lines import Entry, Line, Rule
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.requests import Options, pod_limits, pod_requests
from plimsoll.ledger.units import PLAIN, is_extended

COUNT_CLAIMS = "count/resourceclaims.resource.k8s.io"
COUNT_PODS = "count/pods"
DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
_ONE = Quantity.of(1)
_IN_SPEC = (Rule.REQUESTS, Rule.POD_LEVEL, Rule.OVERHEAD)


def usage_by_namespace(
    ledgers: Iterable[NodeLedger], claims: Iterable[ResourceClaim] = (), *, count_claims: bool = True
) -> dict[str, dict[str, Quantity]]:
    """Namespace -> quota resource -> what is used, over the pods on these books and these claims."""
    usage: dict[str, dict[str, Quantity]] = {}

    def book(namespace: str, amounts: Amounts) -> None:
        add_to(usage.setdefault(namespace, {}), amounts)

    for ledger in ledgers:
        for entry in ledger.entries.values():
            namespace = entry.pod.metadata.namespace
            book(namespace, {"pods": _ONE, COUNT_PODS: _ONE})
            book(namespace, _limits(entry, count_claims))
        for line in ledger.lines():
            if line.rule in _IN_SPEC or (count_claims and line.counted):
                book(line.namespace, dict(_requests(line)))
    for claim in claims:
        book(claim.metadata.namespace, claim_usage(claim))
    return {namespace: dict(sorted(amounts.items())) for namespace, amounts in sorted(usage.items())}


def _requests(line: Line) -> Iterator[tuple[str, Quantity]]:
    name = line.resource
    if name in PLAIN or is_huge_page(name):
        yield name, line.amount
        yield f"requests.{name}", line.amount
    elif is_extended(name):
        yield f"requests.{name}", line.amount


def _limits(entry: Entry, count_claims: bool) -> dict[str, Quantity]:
    if count_claims:
        options = replace(entry.options, form=Form.V1_37)
        shares = share_claims(entry.pod, (bill.charge for bill in entry.bills))
        limits = pod_limits(entry.pod, options, shares.charges())
    else:
        limits = pod_limits(entry.pod, replace(entry.options, count_claims=False))
    return {f"limits.{name}": limits[name] for name in PLAIN if name in limits}


def pod_usage(pod: Pod, *, pod_level: bool = True, over: bool = False) -> dict[str, Quantity]:
    """What one pod counts for, by its spec and what its node reports; `over` says that it has ended.

    A pod that has ended still is an object, and nothing more. Claims are not counted, as in Kubernetes.
    """
    usage = {COUNT_PODS: _ONE}
    if over or pod.status.phase in ("Failed", "Succeeded"):
        return usage
    options = Options(use_status=True, skip_pod_level=not pod_level)
    usage["pods"] = _ONE
    for name, amount in pod_requests(pod, options).items():
        if name in PLAIN or is_huge_page(name):
            usage[name] = amount
        if name in PLAIN or is_huge_page(name) or is_extended(name) or name.startswith(DEVICE_CLASS):
            usage[f"requests.{name}"] = amount
    limits = pod_limits(pod, options)
    return usage | {f"limits.{name}": limits[name] for name in PLAIN if name in limits}


def claim_usage(claim: ResourceClaim) -> dict[str, Quantity]:
    """What a claim counts for: one claim, and of each class the most devices it may get."""
    usage = {COUNT_CLAIMS: _ONE}
    for request in claim.spec.devices.requests:
        for name, count in _devices(request).items():
            add_to(usage, {name + DEVICES_OF_CLASS: Quantity.of(count)})
    return usage


def _devices(request: DeviceRequest) -> dict[str, int]:
    """Class -> the most devices a request may get of it; alternatives are not taken together."""
    most: dict[str, int] = {}
    if request.first_available:
        for sub in request.first_available:
            count = _count(sub.allocation_mode, sub.count)
            most[sub.device_class_name] = max(most.get(sub.device_class_name, 0), count)
    elif request.exactly is not None:
        exactly = request.exactly
        most[exactly.device_class_name] = _count(exactly.allocation_mode, exactly.count)
    return most


def _count(mode: str, count: int) -> int:
    """A request for all devices counts for the most that a claim can have."""
    return {EXACT_COUNT: count, ALL: RESULTS_MAX}.get(mode, 0)


def exceeded(used: Amounts, hard: Amounts) -> dict[str, Quantity]:
    """What is used beyond a quota's hard limits, by how much."""
    return {
        name: used.get(name, ZERO) - limit for name, limit in hard.items() if used.get(name, ZERO) > limit
    }
