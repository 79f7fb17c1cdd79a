"""Resource usage of namespaces, in terms of ResourceQuota.

Sums the ledger lines per namespace. Kubernetes counts pod specs only (`count_claims=False`); counting claims
as well shows the actual usage of nodes, including pools. docs/spec/accounting.md, "PodRequests and PodLimits"
and "Accounting policies"; KEP-5517, "Kube-Scheduler Scoring and Resource Quota".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.controllers.quota.claim_charges import limits_with_claims
from plimsoll.controllers.quota.usage import COUNT_PODS, ONE, PODS, claim_usage
from plimsoll.ledger.amounts import Amounts, add_amounts, is_huge_page
from plimsoll.ledger.entries import ChargeRule, LedgerEntry, LedgerLine
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.requests import pod_limits
from plimsoll.ledger.units import STANDARD_RESOURCES, is_extended_resource

_IN_SPEC = (ChargeRule.REQUESTS, ChargeRule.POD_LEVEL, ChargeRule.OVERHEAD)


def usage_by_namespace(
    ledgers: Iterable[NodeLedger], claims: Iterable[ResourceClaim] = (), *, count_claims: bool = True
) -> dict[str, dict[str, Quantity]]:
    """Return usage by namespace and quota resource, over the pods in these ledgers and these claims."""
    usage: dict[str, dict[str, Quantity]] = {}

    def add(namespace: str, amounts: Amounts) -> None:
        add_amounts(usage.setdefault(namespace, {}), amounts)

    for ledger in ledgers:
        for entry in ledger.entries.values():
            namespace = entry.pod.metadata.namespace
            add(namespace, {PODS: ONE, COUNT_PODS: ONE})
            add(namespace, _limits(entry, count_claims))
        for line in ledger.lines():
            if line.rule in _IN_SPEC or (count_claims and line.counted):
                add(line.namespace, dict(_requests(line)))
    for claim in claims:
        add(claim.metadata.namespace, claim_usage(claim))
    return {namespace: dict(sorted(amounts.items())) for namespace, amounts in sorted(usage.items())}


def _requests(line: LedgerLine) -> Iterator[tuple[str, Quantity]]:
    name = line.resource
    if name in STANDARD_RESOURCES or is_huge_page(name):
        yield name, line.amount
        yield f"requests.{name}", line.amount
    elif is_extended_resource(name):
        yield f"requests.{name}", line.amount


def _limits(entry: LedgerEntry, count_claims: bool) -> dict[str, Quantity]:
    limits = (
        limits_with_claims(entry)
        if count_claims
        else pod_limits(entry.pod, replace(entry.options, count_claims=False))
    )
    return {f"limits.{name}": limits[name] for name in STANDARD_RESOURCES if name in limits}
