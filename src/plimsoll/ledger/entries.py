"""Ledger entries: the charges of a pod and their reasons.

An entry has one line per charge, naming pod, claim, device and rule, and the integer totals of the lines. It
is computed once, when a pod is added to a ledger, from immutable objects; removing the pod subtracts exactly
this entry, regardless of later changes of slices, classes or policies (docs/spec/accounting.md, "Accounting
policies").
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace as with_fields

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy, ClaimCharge
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.amounts import add_amounts
from plimsoll.ledger.charges import sum_pod_charges
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.equal_pods import find_key
from plimsoll.ledger.policy import is_claim_level, resolve_policies
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import (
    NON_ZERO_CPU,
    NON_ZERO_MEMORY,
    PodResourcesOptions,
    aggregate_container_requests,
    has_pod_level_requests,
    is_pod_level_resource,
    pod_requests,
)
from plimsoll.ledger.units import CPU, MEMORY, Units, to_unit, to_units


class ChargeRule(Enum):
    """Reason for a charge."""

    REQUESTS = "requests"  #: of the containers
    POD_LEVEL = "pod-level requests"
    OVERHEAD = "overhead"  #: of the pod, from its runtime class
    ADD_PER_CLAIM = AccountingPolicy.ADD_PER_CLAIM.value
    ADD_PER_REFERENCE = AccountingPolicy.ADD_PER_REFERENCE.value
    MAX = AccountingPolicy.MAX.value  #: the excess of the claim over the requests
    CONSUME_FROM = AccountingPolicy.CONSUME_FROM.value  #: an entire pool, or (negative) a pod's draw from it
    PER_POD = "perPod"
    PER_CONTAINER = "perContainer"
    SHARED = "shared"  #: negative: the repeated charges of a claim that several pods use
    PLACEHOLDER = "placeholder"  #: negative: the requests of a placeholder that its pod or claim is charged
    HELD = "held by the claim"  #: negative: the part of a pod-level request that is charged at claim level


class LedgerLine(Struct, frozen=True):
    """One charge. The line of a pool belongs to no single pod.

    `counted` is False for a claim within a pod-level request, which covers it.
    """

    resource: str
    amount: Quantity
    rule: ChargeRule
    namespace: str = ""
    pod: str = ""
    claim: str = ""
    devices: tuple[DeviceId, ...] = ()
    counted: bool = True


class ClaimLevelShare(Struct, frozen=True):
    """A pod's share in a claim-level charge."""

    claim: str  #: the ledger's key of the claim
    resource: str
    total: Quantity
    drawn: Quantity


class LedgerEntry(Struct, frozen=True):
    """Charges of one pod: the objects it was computed from, and the totals."""

    pod: Pod
    charged_claims: tuple[ChargedClaim, ...]
    options: PodResourcesOptions
    profile: AccountingProfile
    units: Units
    non_zero: Units
    claims: tuple[str, ...] = ()  #: the ledger's key of the claim of each charge
    holds: tuple[ClaimLevelShare, ...] = ()
    assumed: bool = False

    @property
    def lines(self) -> tuple[LedgerLine, ...]:
        """Charges one by one; the counted ones add up to `units`."""
        return tuple(_lines(self.pod, self.charged_claims, self.options, self.profile))

    def amounts_of_claim(self, claim: str) -> dict[str, Quantity]:
        """Return what a claim adds to this pod by AddPerClaim or Max, beyond a pod-level request."""
        found: dict[str, Quantity] = {}
        for line in self.lines:
            if line.claim == claim and line.counted and line.rule in _ONCE_PER_CLAIM:
                add_amounts(found, {line.resource: line.amount})
        return found


#: Rules that count a claim once, however many containers of a pod refer to it.
_ONCE_PER_CLAIM = (ChargeRule.ADD_PER_CLAIM, ChargeRule.MAX)


def compute_node_amounts(
    pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions, profile: AccountingProfile
) -> dict[str, Quantity]:
    """Compute a pod's own amounts on its node, excluding claim-level charges."""
    charges = _charges(charged_claims, options)
    if not charges:
        return pod_requests(pod, options, ())
    plain = resolve_policies(pod, charges, options)
    own = tuple(_without_held(p, c, profile) for p, c in zip(plain, charges, strict=True))
    total = pod_requests(pod, options, own)
    for name, amount in _held_under_pod_level(pod, charges, options, profile).items():
        total[name] = total.get(name, ZERO) - amount
    return total


def compute_non_zero_amounts(
    pod: Pod,
    charged_claims: Sequence[ChargedClaim],
    options: PodResourcesOptions,
    profile: AccountingProfile,
    amounts: Mapping[str, Quantity],
) -> Mapping[str, Quantity]:
    """Compute the amounts with 100m CPU and 200Mi memory for each container without a request.

    Returns `amounts` itself if every container has requests.
    """
    fill = {CPU: NON_ZERO_CPU, MEMORY: NON_ZERO_MEMORY}
    if not options.skip_pod_level and has_pod_level_requests(pod):
        fill = {name: amount for name, amount in fill.items() if name not in amounts}
    if not fill or _all_request(pod, fill):
        return amounts
    return compute_node_amounts(pod, charged_claims, replace(options, non_missing=fill), profile)


def _all_request(pod: Pod, names: Iterable[str]) -> bool:
    """Return whether every container requests these resources."""
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers:
            for name in names:
                if name not in container.resources.requests:
                    return False
    return True


def make_entry(
    pod: Pod,
    charged_claims: Sequence[ChargedClaim],
    options: PodResourcesOptions,
    profile: AccountingProfile,
    assumed: bool = False,
) -> LedgerEntry:
    """Make the entry of a pod with these charges, before its claims are looked up in a ledger."""
    key = find_key(pod, charged_claims, options, profile)
    totals = None if key is None else _known_totals.get(key)
    if totals is None:
        totals = compute_totals(pod, charged_claims, options, profile)
        if key is not None:
            if len(_known_totals) >= _MOST_TOTALS:
                _known_totals.clear()
            _known_totals[key] = totals
    return LedgerEntry(pod, tuple(charged_claims), options, profile, *totals, assumed=assumed)


#: Totals of pods, by what they are computed from (`equal_pods.py`).
_known_totals: dict[Hashable, tuple[Units, Units]] = {}
_MOST_TOTALS = 4096


def compute_totals(
    pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions, profile: AccountingProfile
) -> tuple[Units, Units]:
    """Compute the totals of a pod: its own amounts on its node, and CPU and memory for scoring."""
    amounts = compute_node_amounts(pod, charged_claims, options, profile)
    units = to_units(amounts)
    non_zero = compute_non_zero_amounts(pod, charged_claims, options, profile, amounts)
    if non_zero is amounts:
        return units, {CPU: units.get(CPU, 0), MEMORY: units.get(MEMORY, 0)}
    return units, {name: to_unit(name, non_zero.get(name, ZERO)) for name in (CPU, MEMORY)}


def _charges(charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions) -> tuple[ClaimCharge, ...]:
    if not charged_claims or not options.count_claims:
        return ()
    return tuple([charged_claim.charge for charged_claim in charged_claims])


def _without_held(plain: ClaimCharge, charge: ClaimCharge, profile: AccountingProfile) -> ClaimCharge:
    """Return the additive charge without claim-level amounts; draws from pools remain."""
    if not profile.share_per_claim:
        return plain
    resources = {
        name: with_fields(plain.resources[name], quantity=ZERO)
        if is_claim_level(resource, profile) and resource.policy != AccountingPolicy.CONSUME_FROM.value
        else plain.resources[name]
        for name, resource in charge.resources.items()
    }
    return with_fields(plain, resources=resources)


def _held_under_pod_level(
    pod: Pod, charges: Sequence[ClaimCharge], options: PodResourcesOptions, profile: AccountingProfile
) -> dict[str, Quantity]:
    """Return the part of pod-level requests that is charged at claim level; at most all of it."""
    held: dict[str, Quantity] = {}
    if profile.share_per_claim and not options.skip_pod_level and pod.spec.resources is not None:
        for name, budget in pod.spec.resources.requests.items():
            parts = [c.resources[name] for c in charges if name in c.resources]
            inside = sum((p.quantity for p in parts if p.quantity and is_claim_level(p, profile)), ZERO)
            if inside and is_pod_level_resource(name):
                held[name] = min(inside, budget)
    return held


# -- lines


def _lines(
    pod: Pod, charged_claims: Sequence[ChargedClaim], options: PodResourcesOptions, profile: AccountingProfile
) -> Iterator[LedgerLine]:
    namespace, name = pod.metadata.namespace, pod.metadata.name
    charges = _charges(charged_claims, options)
    plain = resolve_policies(pod, charges, options) if charges else ()
    covered: dict[str, Quantity] = {}
    if not options.skip_pod_level and has_pod_level_requests(pod):
        whole = pod_requests(pod, replace(options, exclude_overhead=True), plain)
        resources = pod.spec.resources
        assert resources is not None
        covered = {r: whole[r] for r in whole if r in resources.requests and is_pod_level_resource(r)}
    for resource, amount in sorted(covered.items()) if covered else ():
        yield LedgerLine(resource, amount, ChargeRule.POD_LEVEL, namespace, name)
    by_claims = sum_pod_charges(plain) if plain else {}
    for resource, amount in sorted(aggregate_container_requests(pod, options, plain).items()):
        by_claim = by_claims.get(resource)
        own = amount if by_claim is None else amount - by_claim
        if own and resource not in covered:
            yield LedgerLine(resource, own, ChargeRule.REQUESTS, namespace, name)
    for charged_claim, worked in zip(charged_claims, plain, strict=False):
        for resource, amount, rule, devices in _claim_charges(charged_claim, worked, profile):
            yield LedgerLine(
                resource, amount, rule, namespace, name, charged_claim.claim, devices, resource not in covered
            )
    held = _held_under_pod_level(pod, charges, options, profile) if charges else {}
    for resource, amount in sorted(held.items()) if held else ():
        yield LedgerLine(resource, -amount, ChargeRule.HELD, namespace, name)
    for resource, amount in sorted(pod.spec.overhead.items()) if pod.spec.overhead else ():
        yield LedgerLine(resource, amount, ChargeRule.OVERHEAD, namespace, name)


def _claim_charges(
    charged_claim: ChargedClaim, worked: ClaimCharge, profile: AccountingProfile
) -> Iterator[tuple[str, Quantity, ChargeRule, tuple[DeviceId, ...]]]:
    for resource, charge in charged_claim.charge.resources.items():
        rule = ChargeRule(charged_claim.policy(resource).value)
        devices = charged_claim.devices(resource)
        quantity = worked.resources[resource].quantity
        if quantity is None or (is_claim_level(charge, profile) and rule is not ChargeRule.CONSUME_FROM):
            pass  # overhead only, or recorded once at claim level
        elif rule is ChargeRule.ADD_PER_CLAIM and charged_claim.parts:
            for part in charged_claim.parts:
                if part.resource == resource and part.quantity is not None:
                    yield resource, part.quantity, rule, (part.device,)
        else:
            yield resource, quantity, rule, devices
        if charge.per_pod is not None:
            yield resource, charge.per_pod, ChargeRule.PER_POD, devices
        if charge.per_container is not None:
            amount = charge.per_container.times(len(charged_claim.charge.containers))
            yield resource, amount, ChargeRule.PER_CONTAINER, devices


def sum_lines(lines: Sequence[LedgerLine]) -> dict[str, Quantity]:
    """Sum the counted lines by resource, before rounding."""
    total: dict[str, Quantity] = {}
    for line in lines:
        if line.counted:
            before = total.get(line.resource)
            total[line.resource] = line.amount if before is None else before + line.amount
    return total
