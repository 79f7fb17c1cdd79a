"""Claims that take node resources without being counted: no mapping, or no recorded charge.

A driver that allocates CPUs, memory or huge pages without publishing mappings hides what its claims take from
every ledger (KEP-5517, "Motivation"; docs/spec/keps.md). All tools show these amounts as "not counted", from
here. The amounts are computed by the ledger's own rules under the policy Max, so that what pods request for
their claims is not counted twice, and equal what `--assume-mapping` adds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeAlias

from msgspec.structs import replace as with_fields

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, ResourceCharge, device_forms, read_device_class
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.claims import (
    ChargeContext,
    ChargedClaim,
    charge_claim,
    find_referring_containers,
    find_requested_class,
)
from plimsoll.ledger.device_charges import NO_CLASS
from plimsoll.ledger.entries import LedgerEntry, compute_node_amounts
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.requests import is_pod_level_resource
from plimsoll.ledger.units import is_accounted, to_unit
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.assumed_mappings import POLICY
from plimsoll.tools.cluster_state.node_resources import NodeResourceGuess, guess_node_resources, taken_by


@dataclass(frozen=True, slots=True)
class UncountedClaim:
    """Node resources that a claim takes and that neither requests nor charges account for, in ledger
    units.
    """

    node: str
    claim: ResourceClaim
    pods: tuple[Pod, ...]
    resource: str
    taken: int
    missing: int  #: what is not counted
    guess: NodeResourceGuess
    device_class: str = ""  #: class it was requested by
    driver: str = ""
    priced: bool = False  #: there is a mapping, but no recorded charge
    charged: int = 0  #: what the mapping of its class charges, which is too little

    @property
    def mirrored(self) -> int:
        """Part of the amount that its pods request."""
        return self.taken - self.missing

    @property
    def sure(self) -> bool:
        return self.guess.sure

    @property
    def why(self) -> str:
        """Evidence that the device is a node resource."""
        return self.guess.why


@dataclass(frozen=True, slots=True)
class _Taken:
    """Amount of a resource that a claim takes."""

    amount: Quantity
    guess: NodeResourceGuess
    device_class: str
    driver: str


#: What is not counted on nodes, by row and claim.
UncountedRows: TypeAlias = "dict[int, dict[tuple[str, str], list[UncountedClaim]]]"


def uncounted_claims(cluster_state: ClusterState, nodes: Iterable[str] | None = None) -> list[UncountedClaim]:
    """Return everything that is not counted, or what is not counted on some nodes, by node and claim."""
    found = []
    for name in sorted((node.metadata.name for node in cluster_state.nodes) if nodes is None else nodes):
        row = cluster_state.snapshot.row_of(name)
        if row is not None:
            found += uncounted_on(cluster_state, row)
    return found


def uncounted_of(
    cluster_state: ClusterState, claim: ResourceClaim, known: UncountedRows | None = None
) -> list[UncountedClaim]:
    """Return what is not counted of one claim, on the nodes of its pods. `known` keeps what was computed for
    nodes, for several claims of one cluster state.
    """
    snapshot = cluster_state.snapshot
    key = claim.metadata.key
    users = (snapshot.find_pod(user) for user in snapshot.claim_users(*key))
    rows = {found[0] for found in users if found is not None}
    known = {} if known is None else known
    found: list[UncountedClaim] = []
    for row in sorted(rows):
        if not _represents_resources(claim, snapshot.charge_context(row)):
            continue
        by_claim = known.get(row)
        if by_claim is None:
            by_claim = known[row] = {}
            for each in uncounted_on(cluster_state, row):
                by_claim.setdefault(each.claim.metadata.key, []).append(each)
        found += by_claim.get(key, ())
    return found


def _represents_resources(claim: ResourceClaim, context: ChargeContext) -> bool:
    """Return whether a device of a claim represents a node resource; most do not."""
    for result in claim.allocation_results:
        device = context.devices.find(result, context.node)
        if device is not None and guess_node_resources(result.driver, device):
            return True
    return False


def uncounted_on(cluster_state: ClusterState, row: int) -> list[UncountedClaim]:
    """Return what is not counted on a node, by claim."""
    snapshot = cluster_state.snapshot
    ledger = snapshot.ledger(row)
    users: dict[tuple[str, str], list[LedgerEntry]] = {}
    for entry in ledger.entries.values():
        pod = entry.pod
        if uses_claims(pod):
            for name in resolve_claim_names(pod).values():
                entries = users.setdefault((pod.metadata.namespace, name), [])
                if not entries or entries[-1] is not entry:
                    entries.append(entry)
    if not users:
        return []
    context = snapshot.charge_context(row)
    found: list[UncountedClaim] = []
    added: dict[str, list[ChargedClaim]] = {}  #: uncounted charges so far, by pod UID
    uncharged = []
    for key, entries in users.items():
        claim = snapshot.claim(*key)
        taken = {} if claim is None else _list_taken(claim, context, entries)
        if claim is not None and taken:
            uncharged.append((key, claim, taken, entries))
    for _, claim, taken, entries in sorted(uncharged, key=itemgetter(0)):
        missing = (
            _missing_of_one(claim, taken, entries[0], added)
            if len(entries) == 1
            else _missing_of_several(claim, taken, entries)
        )
        found += _describe(claim, taken, missing, entries, ledger, context)
    return found


def _describe(
    claim: ResourceClaim,
    taken: Mapping[str, _Taken],
    missing: Mapping[str, int],
    entries: Sequence[LedgerEntry],
    ledger: NodeLedger,
    context: ChargeContext,
) -> Iterator[UncountedClaim]:
    allocation = claim.status.allocation
    priced = None if allocation is None else charge_claim(claim, allocation, (), context)
    known = priced.charge.resources if isinstance(priced, ChargedClaim) else {}
    charged = _charged_resources(claim.metadata.name, entries)
    pods = tuple(entry.pod for entry in entries)
    for resource, each in taken.items():
        if missing.get(resource, 0) > 0:
            amount = to_unit(resource, each.amount)
            yield UncountedClaim(
                ledger.name, claim, pods, resource, amount, missing[resource], each.guess,
                each.device_class, each.driver, resource in known and resource not in charged,
                to_unit(resource, charged.get(resource, ZERO)),
            )  # fmt: skip


def _list_taken(
    claim: ResourceClaim, context: ChargeContext, entries: Iterable[LedgerEntry]
) -> dict[str, _Taken]:
    """Return what a claim takes of resources that it is not charged for, or too little by its class."""
    charged: Mapping[str, Quantity] | None = None
    found: dict[str, _Taken] = {}
    for result in claim.allocation_results:
        device = context.devices.find(result, context.node)
        guesses = () if device is None else guess_node_resources(result.driver, device)
        if device is None or not guesses:  # most devices represent no node resource
            continue
        if charged is None:
            charged = _charged_resources(claim.metadata.name, entries)
        is_mapped = bool(device_forms(device))
        if is_mapped and charged.keys() >= {guess.resource for guess in guesses}:
            continue
        for guess in taken_by(result, device):
            if not is_accounted(guess.resource):
                continue
            class_name = find_requested_class(claim, result.request)
            device_class = context.classes.get(class_name)
            policy = NO_CLASS if device_class is None else read_device_class(device_class)
            if guess.resource in charged:
                rule = policy.rules.get(guess.resource)
                if is_mapped or not guess.sure or rule is None or rule.capacity_key:
                    continue  # its driver or its class knows better
            if policy.manages:
                guess = with_fields(guess, sure=True)
            before = found.get(guess.resource)
            amount = (ZERO if before is None else before.amount) + guess.amount
            found[guess.resource] = _Taken(amount, guess, class_name, result.driver)
    return {name: each for name, each in found.items() if (charged or {}).get(name, ZERO) < each.amount}


def _charged_resources(claim: str, entries: Iterable[LedgerEntry]) -> dict[str, Quantity]:
    """Return what a claim is charged for."""
    return {
        resource: charge.quantity or ZERO
        for entry in entries
        for charged_claim in entry.charged_claims
        if charged_claim.claim == claim and entry.options.count_claims
        for resource, charge in charged_claim.charge.resources.items()
    }


def _missing_of_one(
    claim: ResourceClaim,
    taken: Mapping[str, _Taken],
    entry: LedgerEntry,
    added: dict[str, list[ChargedClaim]],
) -> dict[str, int]:
    """Return what a claim of one pod would add to its node under the policy Max."""
    pod, name = entry.pod, claim.metadata.name
    before = added.setdefault(pod.metadata.uid or pod.metadata.full_name, [])
    containers = find_referring_containers(pod, resolve_claim_names(pod), name, entry.profile)
    resources = {resource: ResourceCharge(each.amount, policy=POLICY) for resource, each in taken.items()}
    charged_claim = ChargedClaim(ClaimCharge(name, containers, resources), claim.metadata.uid)
    options = replace(entry.options, count_claims=True)
    known = [*entry.charged_claims, *before] if entry.options.count_claims else list(before)
    others = [each for each in known if each.claim != name]
    without = compute_node_amounts(pod, known, options, entry.profile)
    with_it = compute_node_amounts(pod, [*others, charged_claim], options, entry.profile)
    before.append(charged_claim)
    return {
        resource: to_unit(resource, with_it.get(resource, ZERO))
        - to_unit(resource, without.get(resource, ZERO))
        for resource in taken
    }


def _missing_of_several(
    claim: ResourceClaim, taken: Mapping[str, _Taken], entries: Sequence[LedgerEntry]
) -> dict[str, int]:
    """Return what a claim takes in excess of the requests of the containers of all its pods."""
    name = claim.metadata.name
    charged = _charged_resources(name, entries)
    return {
        resource: to_unit(resource, each.amount)
        - to_unit(resource, charged.get(resource, ZERO))
        - sum(requested_with_claim(entry.pod, name, resource) for entry in entries)
        for resource, each in taken.items()
    }


def requested_with_claim(pod: Pod, claim: str, resource: str) -> int:
    """Return what the containers that use a claim request of a resource; all containers if none references
    it.

    A pod-level request counts in full: it covers everything its containers use.
    """
    if pod.spec.resources is not None and is_pod_level_resource(resource):
        whole = pod.spec.resources.requests.get(resource)
        if whole is not None:
            return to_unit(resource, whole)
    return sum(to_unit(resource, amount) for _, amount in requests_with_claim(pod, claim, resource))


def requests_with_claim(pod: Pod, claim: str, resource: str) -> list[tuple[str, Quantity]]:
    """Return the containers that use a claim, or all if none references it, with their requests of a
    resource.
    """
    names = resolve_claim_names(pod)
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    using = {
        container.name
        for container in containers
        for reference in container.resources.claims
        if names.get(reference.name) == claim
    }
    found = []
    for container in containers:
        amount = container.resources.requests.get(resource)
        if amount is not None and (not using or container.name in using):
            found.append((container.name, amount))
    return found
