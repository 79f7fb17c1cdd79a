"""What the pods and claims of a namespace use, in the terms of a ResourceQuota.

Owns the totals per namespace, from the same lines the nodes are booked by. Kubernetes counts only what pod
specs say (`count_claims=False`); counting claims as well shows what the namespace really takes from its
nodes, pools included. Section 2 of the accounting semantics (callers), point P28, and document 000,
"Kube-Scheduler Scoring and Resource Quota".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.amounts import Amounts, add_to, is_huge_page
from plimsoll.ledger.cgroups.shares import share_claims
from plimsoll.ledger.lines import Entry, Line, Rule
from plimsoll.ledger.node import NodeLedger
from plimsoll.ledger.quota_usage import COUNT_PODS, ONE, PODS, claim_usage
from plimsoll.ledger.requests import pod_limits
from plimsoll.ledger.units import PLAIN, is_extended

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
            book(namespace, {PODS: ONE, COUNT_PODS: ONE})
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


def exceeded(used: Amounts, hard: Amounts) -> dict[str, Quantity]:
    """What is used beyond a quota's hard limits, by how much."""
    return {
        name: used.get(name, ZERO) - limit for name, limit in hard.items() if used.get(name, ZERO) > limit
    }
