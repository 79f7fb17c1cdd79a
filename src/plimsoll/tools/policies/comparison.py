"""`compare_policies`: the cluster charged under each of the four accounting policies, side by side.

Every claim of a bound pod is priced from its allocation and the currently published devices, and charged
under one policy for all resources on a copy of the node's ledger; nothing is written. Recorded charges are
used only where a claim can no longer be priced. A further column shows the cluster as it is.

See KEP-5517, "Accounting Policies" and "Accounting Policy Compatibility and Validation" (docs/spec/keps.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec.structs import replace as with_fields

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.entries import make_entry
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import assume_placeholders, charge_claims, check_charged_claims, is_shareable
from plimsoll.ledger.policy_conflicts import find_policy_conflicts
from plimsoll.ledger.units import PODS, Units, add_units, is_accounted, to_unit
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.tools.amounts import resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.policies.report import (
    AS_IS,
    COLUMNS,
    POLICIES,
    SHOWN,
    NodeCharges,
    PodCharges,
    PoliciesReport,
    PolicyRefusal,
)
from plimsoll.tools.policies.shapes import shape_of

#: Shortages are shown by the node rows.
_SHORTAGES = (Cause.INSUFFICIENT, Cause.TOO_MANY_PODS)


def compare_policies(
    cluster_state: ClusterState,
    *,
    namespace: str = "",
    limit: int = SHOWN,
    tick: ProgressCallback = no_progress,
) -> PoliciesReport:
    """Charge every claim of the bound pods under each policy; report the pods of a namespace."""
    snapshot = cluster_state.snapshot
    found = _Collected()
    rows = sorted(snapshot.rows(), key=lambda index: snapshot.node(index).metadata.name)
    for number, index in enumerate(rows):
        tick("comparing nodes", number, len(rows))
        _compare_node(cluster_state, index, found)
    pods = sorted(
        (row for row in found.pods if namespace in ("", row.namespace)),
        key=lambda row: (row.namespace, not row.pod, row.name, resource_order(row.resource)),
    )
    refusals = sorted(
        (each for each in found.refusals if namespace in ("", each.namespace)),
        key=lambda each: (COLUMNS.index(each.column), each.namespace, each.pod),
    )
    return PoliciesReport(
        tuple(found.nodes), tuple(pods), tuple(refusals), tuple(sorted(found.believed)), limit
    )


class _Collected:
    """Rows collected node by node."""

    def __init__(self) -> None:
        self.nodes: list[NodeCharges] = []
        self.pods: list[PodCharges] = []
        self.refusals: list[PolicyRefusal] = []
        self.believed: set[tuple[str, str]] = set()
        self.alike: dict[Hashable, _ShapeCosts] = {}


@dataclass(frozen=True, slots=True)
class _ShapeCosts:
    """Costs of every pod of one shape whose claims are not shared."""

    own: Units  #: without claims
    costs: Mapping[str, Units]  #: by column
    refused: bool  #: a rule is violated under some policy: evaluate each pod on its own


def _compare_node(cluster_state: ClusterState, index: int, found: _Collected) -> None:
    ledger = cluster_state.snapshot.ledger(index)
    charged_claims = _price_pods(cluster_state, index, ledger, found.believed)
    shapes = _shapes(ledger, charged_claims)
    known = [found.alike.get(shape) for shape in shapes.values() if shape is not None]
    is_known = all(each is not None and not each.refused for each in known)
    if len(known) == len(charged_claims) and is_known and not ledger.has_placeholders:
        _compare_known(
            ledger, charged_claims, {key: found.alike[shape] for key, shape in shapes.items()}, found
        )
        return
    ledgers = {AS_IS: ledger}
    for policy in POLICIES:
        ledgers[policy.value] = recharge(ledger, charged_claims, policy) if charged_claims else ledger
    names = {
        *ledger.allocatable,
        *(name for column_ledger in ledgers.values() for name, n in column_ledger.charged().items() if n),
    }
    for name in sorted(names - {PODS}, key=resource_order):
        charged = {column: column_ledger.charged().get(name, 0) for column, column_ledger in ledgers.items()}
        found.nodes.append(NodeCharges(ledger.name, name, ledger.allocatable.get(name, 0), charged))
    for key, priced in charged_claims.items():
        entry = ledger.entries[key]
        own = make_entry(entry.pod, (), entry.options, entry.profile).units
        costs = {column: cost_in(column_ledger, key) for column, column_ledger in ledgers.items()}
        found.pods += _pod_rows(ledger, key, priced, own, costs)
        refused = [
            each
            for column, column_ledger in ledgers.items()
            for each in _refusals(column, column_ledger, key)
        ]
        found.refusals += refused
        if (shape := shapes[key]) is not None:
            found.alike[shape] = _ShapeCosts(own, costs, bool(refused))
    found.pods += _pool_rows(ledger, ledgers)


def _shapes(
    ledger: NodeLedger, charged_claims: Mapping[str, Sequence[ChargedClaim]]
) -> dict[str, Hashable | None]:
    """Return the shapes of pods with charges; None for those that share a claim or are exceptional."""
    users = Counter(
        (ledger.entries[key].pod.metadata.namespace, charged_claim.claim)
        for key, priced in charged_claims.items()
        for charged_claim in priced
    )
    shapes: dict[str, Hashable | None] = {}
    for key, priced in charged_claims.items():
        entry = ledger.entries[key]
        namespace = entry.pod.metadata.namespace
        alone = all(users[namespace, charged_claim.claim] == 1 for charged_claim in priced)
        alone = alone and all(len(ledger.claims[claim].consumers) == 1 for claim in entry.claims)
        shapes[key] = shape_of(entry.pod, priced, entry.charged_claims) if alone else None
    return shapes


def _compare_known(
    ledger: NodeLedger,
    charged_claims: Mapping[str, Sequence[ChargedClaim]],
    alike: Mapping[str, _ShapeCosts],
    found: _Collected,
) -> None:
    """Compare a node whose pod shapes are all known, without rebuilding ledgers."""
    totals = {column: dict(ledger.charged()) for column in COLUMNS}
    for each in alike.values():
        for column in COLUMNS[1:]:
            add_units(totals[column], each.costs[column])
            add_units(totals[column], each.costs[AS_IS], -1)
    names = {*ledger.allocatable, *(name for total in totals.values() for name, n in total.items() if n)}
    for name in sorted(names - {PODS}, key=resource_order):
        charged = {column: total.get(name, 0) for column, total in totals.items()}
        found.nodes.append(NodeCharges(ledger.name, name, ledger.allocatable.get(name, 0), charged))
    for key, each in alike.items():
        found.pods += _pod_rows(ledger, key, charged_claims[key], each.own, each.costs)


def _price_pods(
    cluster_state: ClusterState, index: int, ledger: NodeLedger, believed: set[tuple[str, str]]
) -> dict[str, tuple[ChargedClaim, ...]]:
    """Return the charges of the pods whose claims charge the node, without any policy."""
    snapshot = cluster_state.snapshot
    known = snapshot.charge_context(index)
    profile = replace(cluster_state.profile, policies=False, charge_preallocated=True)
    charge_context = ChargeContext(known.devices, known.node, known.classes, profile)
    found: dict[str, tuple[ChargedClaim, ...]] = {}
    for key, entry in ledger.entries.items():
        pod = entry.pod
        if not entry.charged_claims and not uses_claims(pod):
            continue
        claims = {}
        for name in resolve_claim_names(pod).values():
            claim = snapshot.claim(pod.metadata.namespace, name)
            if claim is not None:
                claims[name] = claim
        priced = {
            charged_claim.claim: charged_claim
            for charged_claim in charge_claims(pod, claims, {}, charge_context)
            if isinstance(charged_claim, ChargedClaim)
        }
        for charged_claim in entry.charged_claims:
            if charged_claim.claim not in priced:
                believed.add((pod.metadata.full_name, charged_claim.claim))
                priced[charged_claim.claim] = charged_claim
        if priced:
            found[key] = tuple(priced[name] for name in sorted(priced))
    return found


def recharge(
    ledger: NodeLedger, charged_claims: Mapping[str, Sequence[ChargedClaim]], policy: AccountingPolicy
) -> NodeLedger:
    """Return a copy of a ledger with the pods charged again, every claim under one policy."""
    rebooked = ledger.clone()
    anew = []
    for key, priced in charged_claims.items():
        entry = ledger.entries[key]
        wanted = [forced(charged_claim, policy) for charged_claim in priced]
        if (
            policy is not AccountingPolicy.ADD_PER_CLAIM
            or entry.holds
            or not _same_charges(wanted, entry.charged_claims)
        ):
            anew.append((entry.pod, wanted))
    for pod, _ in anew:
        rebooked.remove_with_placeholders(pod)
    for pod, wanted in anew:
        rebooked.add(pod, wanted)
        if ledger.profile.placeholders:
            assume_placeholders(rebooked, pod, wanted)
    return rebooked


def _same_charges(some: Sequence[ChargedClaim], others: Sequence[ChargedClaim]) -> bool:
    """Return whether charges have equal amounts."""
    return [*map(_charged, some)] == [*map(_charged, others)]


def _charged(charged_claim: ChargedClaim) -> tuple[object, ...]:
    resources = {
        name: (charge.quantity, charge.per_pod, charge.per_container, charged_claim.policy(name))
        for name, charge in charged_claim.charge.resources.items()
    }
    return charged_claim.claim, charged_claim.charge.containers, resources


def forced(charged_claim: ChargedClaim, policy: AccountingPolicy) -> ChargedClaim:
    """Return a charge with all amounts under a policy and nothing drawn."""
    resources = {
        name: charge if charge.quantity is None else with_fields(charge, policy=policy.value, drawn=None)
        for name, charge in charged_claim.charge.resources.items()
    }
    return with_fields(charged_claim, charge=with_fields(charged_claim.charge, resources=resources))


def cost_in(ledger: NodeLedger, key: str) -> dict[str, int]:
    """Return what a pod costs its node, including pools that only it draws from."""
    entry = ledger.entries[key]
    total = dict(entry.units)
    for claim in dict.fromkeys(entry.claims):
        state = ledger.claims[claim]
        if state.consumers == {key}:
            for resource, holding in state.claim_level_charges.items():
                if is_accounted(resource):
                    total[resource] = total.get(resource, 0) + holding.units(resource)
    return total


def _pod_rows(
    ledger: NodeLedger,
    key: str,
    charged_claims: Sequence[ChargedClaim],
    own: Units,
    costs: Mapping[str, Units],
) -> Iterator[PodCharges]:
    pod = ledger.entries[key].pod
    resources = {
        name
        for charged_claim in charged_claims
        for name in charged_claim.charge.resources
        if is_accounted(name)
    }
    for name in sorted(resources, key=resource_order):
        parts = [
            charged_claim.charge.resources[name].quantity
            for charged_claim in charged_claims
            if name in charged_claim.charge.resources
        ]
        referring = {
            c
            for charged_claim in charged_claims
            if name in charged_claim.charge.resources
            for c in charged_claim.charge.containers
        }
        yield PodCharges(
            pod.metadata.namespace,
            pod.metadata.name,
            ledger.name,
            name,
            tuple(
                charged_claim.claim
                for charged_claim in charged_claims
                if name in charged_claim.charge.resources
            ),
            own.get(name, 0),
            to_unit(name, sum((part for part in parts if part is not None), ZERO)),
            len(referring),
            {column: cost.get(name, 0) for column, cost in costs.items()},
        )


def _pool_rows(ledger: NodeLedger, ledgers: Mapping[str, NodeLedger]) -> Iterator[PodCharges]:
    """Yield rows for claims of several pods: pools they draw from, and (negative) charges they repeat."""
    totals: dict[tuple[str, str, str], dict[str, int]] = {}
    for column, column_ledger in ledgers.items():
        for state in column_ledger.claims.values():
            for resource, holding in state.claim_level_charges.items() if len(state.consumers) > 1 else ():
                if is_accounted(resource):
                    key = (state.namespace, state.name, resource)
                    totals.setdefault(key, {})[column] = holding.units(resource)
        for claim, units in column_ledger.repeated_charges.items():
            state = column_ledger.claims[claim]
            for resource, amount in units.items():
                totals.setdefault((state.namespace, state.name, resource), {})[column] = -amount
    for (namespace, claim, resource), held in totals.items():
        charged = {column: held.get(column, 0) for column in ledgers}
        total = max(held.values())
        yield PodCharges(namespace, "", ledger.name, resource, (claim,), 0, total, 0, charged)


def _refusals(column: str, ledger: NodeLedger, key: str) -> Iterable[PolicyRefusal]:
    """Yield the rules a pod violates on its node; shortages are shown by the node rows."""
    entry = ledger.entries[key]
    pod: Pod = entry.pod
    found: list[Reason] = []
    for charged_claim, claim in zip(entry.charged_claims, entry.claims, strict=True):
        shared = len(ledger.claims[claim].consumers) > 1
        if shared and not is_shareable(charged_claim, ledger.profile):
            meta = pod.metadata
            found.append(
                Reason(cause=Cause.SHARED_BY_SEVERAL, namespace=meta.namespace, claim=charged_claim.claim)
            )
    if _may_break(ledger, key):
        verdict = check_charged_claims(
            ledger, pod, [_without_draws(charged_claim) for charged_claim in entry.charged_claims], True
        ).verdict
        found += [reason for reason in verdict.reasons if reason.cause not in _SHORTAGES]
    for reason in found:
        meta = pod.metadata
        yield PolicyRefusal(column, meta.namespace, meta.name, ledger.name, reason)


def _may_break(ledger: NodeLedger, key: str) -> bool:
    """Return whether a pod must be evaluated in full: most cannot violate any rule."""
    entry = ledger.entries[key]
    if entry.pod.spec.resources is not None or not ledger.profile.charge_unreferenced:
        return True
    if any(True for _ in find_policy_conflicts(entry.pod, entry.charged_claims)):
        return True
    pools = (
        holding.pool
        for claim in entry.claims
        for holding in ledger.claims[claim].claim_level_charges.values()
    )
    return any(pool.rest < ZERO for pool in pools)


def _without_draws(charged_claim: ChargedClaim) -> ChargedClaim:
    resources = {
        name: with_fields(charge, drawn=None) for name, charge in charged_claim.charge.resources.items()
    }
    return with_fields(charged_claim, charge=with_fields(charged_claim.charge, resources=resources))
