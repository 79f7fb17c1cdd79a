"""Amounts that claims add to a pod and to each of its containers.

docs/spec/accounting.md, "Changes in 1.37" for plain charges and "Accounting policies" for charges with a
policy:

    AddPerClaim, none, unknown   like a 1.37 mapping: once for the pod, in full for each referring container
    AddPerReference              like 1.37 overhead per container: once for each referring container
    Max                          like a mapping of the excess of the claims over their containers' requests
    ConsumeFrom                  nothing: the containers draw their requests from the claim's pool

Under Max the claims that share containers are one group, and its excess is the sum of the claims minus the
sum of the containers' requests. It is computed for each phase of the pod's life: an init container gets the
excess of its own phase, sidecars and regular containers that of the last phase, and the pod the largest of
all phases.

A claim that no container refers to still counts for the pod. A container that refers to a claim twice counts
once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy, ClaimCharge, ResourceCharge
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.amounts import Amounts, add_amounts
from plimsoll.ledger.charges import sum_container_charges, sum_pod_charges
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.policy import POLICY_RULES, ClaimAmount, Phase, list_spec_requests, split_phases
from plimsoll.ledger.requests import DEFAULTS

_EXCESS = POLICY_RULES[AccountingPolicy.MAX]


@dataclass(frozen=True, slots=True)
class ClaimShares:
    """Amounts that claims add, for the pod, its containers, and the OOM score."""

    pod: Amounts = field(default_factory=dict)  #: once for the pod
    containers: Mapping[str, Amounts] = field(default_factory=dict)  #: on top of a container's own limit
    memory: Mapping[str, int] = field(default_factory=dict)  #: bytes of each container's fair part

    def charges(self) -> tuple[ClaimCharge, ...]:
        """Return the amounts for the pod as charges, for `pod_requests` and `pod_limits`."""
        resources = {name: ResourceCharge(amount) for name, amount in self.pod.items()}
        return (ClaimCharge("", (), resources),)

    def of(self, container: str) -> Amounts:
        return self.containers.get(container, {})


NO_SHARES = ClaimShares()


def compute_claim_shares(pod: Pod, charges: Iterable[ClaimCharge]) -> ClaimShares:
    """Compute the amounts that these charges add to a pod and its containers."""
    charges = tuple(charges)
    plain = [_without_policies(charge) for charge in charges]
    names = [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]
    total = sum_pod_charges(plain)
    containers = {name: sum_container_charges(plain, name) for name in names}
    memory = {name: _fair_memory(plain, name) for name in names}
    _add_excess(pod, charges, total, containers, memory)
    return ClaimShares(total, containers, memory)


def _without_policies(charge: ClaimCharge) -> ClaimCharge:
    """Return the charge in 1.37 terms, except under Max, which depends on the requests."""
    if not any(resource.policy for resource in charge.resources.values()):
        return charge
    containers = tuple(dict.fromkeys(charge.containers))
    resources = {
        name: _plain_charge(resource, bool(containers)) for name, resource in charge.resources.items()
    }
    return ClaimCharge(charge.claim, containers, resources)


def _plain_charge(resource: ResourceCharge, referenced: bool) -> ResourceCharge:
    quantity, per_container = resource.quantity, resource.per_container
    policy = effective_policy(resource.policy)
    if policy in (AccountingPolicy.MAX, AccountingPolicy.CONSUME_FROM):
        quantity = None
    elif policy is AccountingPolicy.ADD_PER_REFERENCE and referenced and quantity is not None:
        per_container = quantity if per_container is None else per_container + quantity
        quantity = None
    return replace(resource, quantity=quantity, per_container=per_container, policy="", drawn=None)


def _fair_memory(charges: Sequence[ClaimCharge], container: str) -> int:
    """Return a container's part of the memory of each claim it shares with other containers."""
    total = 0
    for charge in charges:
        resource = charge.resources.get("memory")
        if resource is None or container not in charge.containers:
            continue
        for part in (resource.quantity, resource.per_pod):
            if part is not None:
                total += divide_toward_zero(part.value(), len(charge.containers))
        if resource.per_container is not None:
            total += resource.per_container.value()
    return total


def divide_toward_zero(amount: int, by: int) -> int:
    """Divide integers, rounding toward zero."""
    return amount // by if amount >= 0 else -(-amount // by)


# -- Max


def _add_excess(
    pod: Pod,
    charges: Sequence[ClaimCharge],
    total: dict[str, Quantity],
    containers: Mapping[str, dict[str, Quantity]],
    memory: dict[str, int],
) -> None:
    """Add the excess of Max charges over the requests to the last three arguments."""
    passing = [container.name for container in pod.spec.init_containers if not is_sidecar(container)]
    for name in dict.fromkeys(name for charge in charges for name in charge.resources):
        shares = [
            ClaimAmount(resource.quantity.nano, frozenset(charge.containers))
            for charge in charges
            if (resource := charge.resources.get(name)) is not None
            and effective_policy(resource.policy) is AccountingPolicy.MAX
            and resource.quantity is not None
        ]
        if not shares:
            continue
        running, *before = split_phases(list_spec_requests(pod, DEFAULTS), name)
        excess = max(_EXCESS(phase, shares) for phase in (running, *before))
        if excess:
            add_amounts(total, {name: Quantity(excess)})
        # A container belongs to the phase in which it does its work: its own, or the last one.
        places = [*((container, running) for container in running), *zip(passing, before, strict=True)]
        for container, phase in places:
            joined, group = _join(container, phase, shares)
            if joined:
                excess = _EXCESS(phase, joined)
                add_amounts(containers[container], {name: Quantity(excess)})
                if name == "memory":
                    memory[container] += divide_toward_zero(Quantity(excess).value(), len(group))


def _join(container: str, phase: Phase, shares: Sequence[ClaimAmount]) -> tuple[list[ClaimAmount], set[str]]:
    """Return the claims connected to a container in a phase, directly or through others, and their
    containers.
    """
    joined: list[ClaimAmount] = []
    group = {container}
    # Claims that are equal refer to the same containers, so that they are always found together.
    while more := [s for s in shares if s not in joined and s.containers & group & phase.keys()]:
        joined += more
        group |= {name for share in more for name in share.containers & phase.keys()}
    return joined, group
