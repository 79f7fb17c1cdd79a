"""Claim rows: state, devices, and what each claim charges to its node by which rule.

Charges are those recorded in the ledgers. A claim that no scheduled pod uses charges nothing; its row shows
what it would charge, priced as the scheduler does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from plimsoll.api.core import NodeSelector
from plimsoll.api.identity import DeviceId
from plimsoll.api.node_selection import NAME_FIELD
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.claims import charge_claim, effective_policy, find_requested_class
from plimsoll.ledger.entries import ChargeRule
from plimsoll.ledger.messages import format_reason
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.units import is_accounted, to_unit
from plimsoll.ledger.verdict import Reason
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.top.device_holders import DeviceHolder, holder_of
from plimsoll.tools.top.nodes import entry_holders
from plimsoll.tools.uncounted import UncountedRows, uncounted_of

#: States as kubectl get prints them.
PENDING, DELETED = "pending", "deleted"
_HELD = ("allocated", "allocated,reserved")
STATES = (PENDING, *_HELD, DELETED, *(f"{DELETED},{state}" for state in _HELD))
_ADDED = ChargeRule.ADD_PER_CLAIM


class ClaimChargeRow(Struct, frozen=True):
    """Amount of a resource that a claim charges by one rule. `drawn` is the amount pods draw from it if it
    is a pool.
    """

    resource: str
    amount: int  #: in ledger units; charged, or to be charged
    rule: str
    drawn: int | None = None

    def as_json(self) -> dict[str, Any]:
        tree = {
            "resource": self.resource,
            "amount": format_amount(self.resource, self.amount),
            "rule": self.rule,
        }
        if self.drawn is not None:
            tree["drawn"] = format_amount(self.resource, self.drawn)
        return tree


class ClaimRow(Struct, frozen=True):
    """State, devices and charges of one claim."""

    namespace: str
    claim: str
    state: str  #: one of `STATES`
    node: str  #: "" if it is pending, or usable on several nodes
    devices: tuple[tuple[DeviceId, DeviceHolder], ...] = ()
    classes: tuple[str, ...] = ()
    charges: tuple[ClaimChargeRow, ...] = ()
    booked: bool = False  #: True if the amounts are charged; else they would be charged
    problem: Reason | None = None  #: reason why it cannot be priced
    inside: tuple[str, ...] = ()  #: resources covered by pod-level requests of its pods
    reserved_for: tuple[str, ...] = ()
    cpus: Mapping[DeviceId, str] = field(default_factory=dict)  #: CPUs that drivers report as pinned
    uncounted: tuple[tuple[str, int], ...] = ()  #: resources it takes without being charged, in ledger units

    def as_json(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "name": self.claim,
            "state": self.state,
            "node": self.node or None,
            "classes": list(self.classes),
            "devices": [
                {"device": str(device), **holder.usage_json(), "cpus": self.cpus.get(device)}
                for device, holder in self.devices
            ],
            "charges": [charge.as_json() for charge in self.charges],
            "booked": self.booked,
            "problem": None if self.problem is None else format_reason(self.problem),
            "insidePodLevelRequests": list(self.inside),
            "reservedFor": list(self.reserved_for),
            "notCounted": {name: format_amount(name, amount) for name, amount in self.uncounted},
        }


def claim_rows(cluster_state: ClusterState, namespace: str = "") -> list[ClaimRow]:
    """Return the rows of all claims, or of one namespace, by name."""
    claims = [
        claim
        for claim in cluster_state.objects.all(ResourceClaim)
        if namespace in ("", claim.metadata.namespace)
    ]
    claims.sort(key=lambda claim: claim.metadata.key)
    uncounted: UncountedRows = {}
    return [claim_row(cluster_state, claim, uncounted) for claim in claims]


def claim_row(
    cluster_state: ClusterState, claim: ResourceClaim, uncounted: UncountedRows | None = None
) -> ClaimRow:
    """Return the row of one claim. `uncounted` keeps what is not counted, for several claims."""
    meta = claim.metadata
    node, charges, inside = _find_charges(cluster_state, claim)
    problem: Reason | None = None
    booked = bool(charges or inside)
    node = node or _node_of(cluster_state, claim)
    if not booked:
        charges, problem = _price(cluster_state, claim, node)
    results = claim.allocation_results
    return ClaimRow(
        meta.namespace,
        meta.name,
        claim_state(claim),
        node,
        tuple((DeviceId.of(result), holder_of(claim, result)) for result in results),
        tuple(dict.fromkeys(_classes(claim))),
        charges,
        booked,
        problem,
        inside,
        tuple(user.name for user in claim.status.reserved_for),
        _cpus(claim),
        ()
        if booked
        else tuple((e.resource, e.missing) for e in uncounted_of(cluster_state, claim, uncounted)),
    )


def claim_state(claim: ResourceClaim) -> str:
    """Return the state of a claim as kubectl get prints it."""
    is_deleted = claim.metadata.deletion_timestamp is not None
    if claim.status.allocation is None:
        return DELETED if is_deleted else PENDING
    held = _HELD[bool(claim.status.reserved_for)]
    return f"{DELETED},{held}" if is_deleted else held


def _classes(claim: ResourceClaim) -> Iterator[str]:
    """Yield the classes of the allocated devices, else of the requests."""
    results = claim.allocation_results
    if results:
        yield from (find_requested_class(claim, result.request) for result in results)
        return
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        yield from (each.device_class_name for each in request.first_available)


def _find_charges(
    cluster_state: ClusterState, claim: ResourceClaim
) -> tuple[str, tuple[ClaimChargeRow, ...], tuple[str, ...]]:
    """Return the node where pods use the claim, its charges there, and the resources covered by pod-level
    requests.
    """
    snapshot = cluster_state.snapshot
    namespace, name = claim.metadata.namespace, claim.metadata.name
    places: dict[int, list[str]] = {}
    for key in sorted(snapshot.claim_users(namespace, name)):
        found = snapshot.find_pod(key)
        if found is not None:
            places.setdefault(found[0], []).append(key)
    total: dict[tuple[str, str], int] = {}
    drawn: dict[str, int] = {}
    inside: set[str] = set()
    nodes = []
    for place in sorted(places):
        ledger = snapshot.ledger(place)
        nodes.append(ledger.name)
        for resource, rule, amount in _by_pods(ledger, name, places[place]):
            total[resource, rule] = total.get((resource, rule), 0) + amount
        for key, units in ledger.repeated_charges.items():
            if (ledger.claims[key].namespace, ledger.claims[key].name) == (namespace, name):
                for resource, amount in units.items():
                    is_max = (resource, ChargeRule.MAX.value) in total
                    total[resource, (ChargeRule.MAX if is_max else _ADDED).value] -= amount
        state = ledger.claim_state(namespace, name, claim.metadata.uid)
        for resource, holding in state.claim_level_charges.items() if state is not None else ():
            if is_accounted(resource):
                kind = (resource, effective_policy(holding.policy).value)
                total[kind] = total.get(kind, 0) + holding.units(resource)
                drawn[resource] = drawn.get(resource, 0) + to_unit(resource, holding.pool.consumed)
        for pod in places[place]:
            if ledger.entries[pod].pod.spec.resources is not None:
                lines = ledger.entries[pod].lines
                inside |= {line.resource for line in lines if line.claim == name and not line.counted}
    charges = tuple(
        ClaimChargeRow(
            resource, amount, rule, drawn.get(resource) if rule == ChargeRule.CONSUME_FROM.value else None
        )
        for (resource, rule), amount in sorted(total.items(), key=_in_order)
        if amount or rule == ChargeRule.MAX.value
    )
    return nodes[0] if len(nodes) == 1 else "", charges, tuple(sorted(inside))


def _in_order(item: tuple[tuple[str, str], int]) -> tuple[object, ...]:
    (resource, rule), _ = item
    return resource_order(resource), rule


def _by_pods(ledger: NodeLedger, claim: str, pods: list[str]) -> Iterator[tuple[str, str, int]]:
    """Yield what pods are charged for a claim, without what they draw from its pool."""
    for pod in pods:
        entry = ledger.entries[pod]
        if all(charged_claim.claim != claim for charged_claim in entry.charged_claims):
            continue
        for holder in entry_holders(entry):
            if holder.claim == claim and holder.rule != ChargeRule.CONSUME_FROM.value:
                yield holder.resource, holder.rule, holder.amount


def _price(
    cluster_state: ClusterState, claim: ResourceClaim, node: str
) -> tuple[tuple[ClaimChargeRow, ...], Reason | None]:
    """Return what an unused claim would charge for one pod, or the reason why it cannot be priced."""
    allocation = claim.status.allocation
    if allocation is None:
        return (), None
    place = cluster_state.snapshot.row_of(node) if node else None
    priced = charge_claim(claim, allocation, (), cluster_state.snapshot.charge_context(place))
    if isinstance(priced, Reason):
        return (), priced
    charges = []
    for resource, charge in sorted(priced.charge.resources.items()) if priced is not None else ():
        if not is_accounted(resource):
            continue
        if charge.quantity is not None:
            rule = effective_policy(charge.policy).value
            charges.append(ClaimChargeRow(resource, to_unit(resource, charge.quantity), rule))
        if charge.per_pod is not None:
            charges.append(
                ClaimChargeRow(resource, to_unit(resource, charge.per_pod), ChargeRule.PER_POD.value)
            )
        if charge.per_container is not None:
            amount = to_unit(resource, charge.per_container)
            charges.append(ClaimChargeRow(resource, amount, ChargeRule.PER_CONTAINER.value))
    return tuple(charges), None


def _node_of(cluster_state: ClusterState, claim: ResourceClaim) -> str:
    """Return the only node of the claim's devices, according to its allocation."""
    allocation = claim.status.allocation
    if allocation is None:
        return ""
    named = _named_node(allocation.node_selector)
    if named:
        return named
    nodes = {
        view.slice.spec.node_name or ""
        for result in allocation.devices.results
        for view in cluster_state.snapshot.inventory.slices_of(DeviceId.of(result).pool_id)
    }
    return nodes.pop() if len(nodes) == 1 else ""


def _named_node(selector: NodeSelector | None) -> str:
    """Return the node that a selector names, if it selects exactly one by name."""
    for term in selector.node_selector_terms if selector is not None else ():
        for field_ in term.match_fields:
            if field_.key == NAME_FIELD and field_.operator == "In" and len(field_.values) == 1:
                return field_.values[0]
    return ""


def _cpus(claim: ResourceClaim) -> dict[DeviceId, str]:
    """Return the CPUs that drivers report in `status.devices[].data.cpuset`."""
    found: dict[DeviceId, str] = {}
    for status in claim.status.devices:
        cpus = status.data.get("cpuset") if isinstance(status.data, dict) else None
        if isinstance(cpus, str) and cpus:
            id = DeviceId(status.driver, status.pool, status.device)
            found[id] = f"{found[id]},{cpus}" if id in found else cpus
    return found
