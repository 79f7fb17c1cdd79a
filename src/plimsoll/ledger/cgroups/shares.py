"""What claims give to a pod and to each of its containers beside what the spec says.

Owns the formulas of section 6 of the accounting semantics for plain charges, and P28 of section 7 for charges
with an accounting policy:

    AddPerClaim, none, unknown   like a 1.37 mapping: the pod gets it once, each referring container in full
    AddPerReference              like 1.37 overhead per container: once for each referring container
    Max                          like a mapping of what claims have beyond the requests of their containers
    ConsumeFrom                  nothing: the containers draw what they request out of the claim's pool

Under Max the claims that share containers are one group (P11): its excess is what the claims have together
beyond what its regular containers and sidecars request together. An init container that has ended before the
others start has its own excess (P12), and the pod gets the greater of the two kinds.

A claim that no container refers to still counts for the pod. References count once per container, whatever
the list says twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import ClaimCharge, Policy, ResourceCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.amounts import Amounts, add_to, raise_to
from plimsoll.ledger.charges import container_charge, pod_charge
from plimsoll.ledger.containers import is_sidecar


@dataclass(frozen=True, slots=True)
class ClaimShares:
    """What claims give, in the three ways a node needs it."""

    pod: Amounts = field(default_factory=dict)  #: once for the pod
    containers: Mapping[str, Amounts] = field(default_factory=dict)  #: on top of a container's own limit
    memory: Mapping[str, int] = field(default_factory=dict)  #: bytes of each container's fair part

    def charges(self) -> tuple[ClaimCharge, ...]:
        """What the pod gets, as charges that `pod_requests` and `pod_limits` take."""
        resources = {name: ResourceCharge(amount) for name, amount in self.pod.items()}
        return (ClaimCharge("", (), resources),)

    def of(self, container: str) -> Amounts:
        return self.containers.get(container, {})


NOTHING = ClaimShares()


def share_claims(pod: Pod, charges: Iterable[ClaimCharge]) -> ClaimShares:
    """What these charges give to a pod and its containers."""
    charges = tuple(charges)
    plain = [_without_policies(charge) for charge in charges]
    names = [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]
    total = pod_charge(plain)
    containers = {name: container_charge(plain, name) for name in names}
    memory = {name: _fair_memory(plain, name) for name in names}
    _add_excess(pod, charges, total, containers, memory)
    return ClaimShares(total, containers, memory)


def _without_policies(charge: ClaimCharge) -> ClaimCharge:
    """The same charge in 1.37 terms, save for Max, which depends on the requests."""
    if not any(resource.policy for resource in charge.resources.values()):
        return charge
    containers = tuple(dict.fromkeys(charge.containers))
    resources = {
        name: _plain_charge(resource, bool(containers)) for name, resource in charge.resources.items()
    }
    return ClaimCharge(charge.claim, containers, resources)


def _plain_charge(resource: ResourceCharge, referenced: bool) -> ResourceCharge:
    quantity, per_container = resource.quantity, resource.per_container
    if resource.policy in (Policy.MAX.value, Policy.CONSUME_FROM.value):
        quantity = None
    elif resource.policy == Policy.ADD_PER_REFERENCE.value and referenced and quantity is not None:
        per_container = quantity if per_container is None else per_container + quantity
        quantity = None
    return replace(resource, quantity=quantity, per_container=per_container, policy="", drawn=None)


def _fair_memory(charges: Sequence[ClaimCharge], container: str) -> int:
    """A container's part of the memory it shares with the others of each claim."""
    total = 0
    for charge in charges:
        resource = charge.resources.get("memory")
        if resource is None or container not in charge.containers:
            continue
        for part in (resource.quantity, resource.per_pod):
            if part is not None:
                total += divide(part.value(), len(charge.containers))
        if resource.per_container is not None:
            total += resource.per_container.value()
    return total


def divide(amount: int, by: int) -> int:
    """Whole division towards zero."""
    return amount // by if amount >= 0 else -(-amount // by)


# -- Max


@dataclass(slots=True)
class _Group:
    """Claims that share containers under Max, for one resource."""

    containers: set[str]
    quantity: Quantity


def _add_excess(
    pod: Pod,
    charges: Sequence[ClaimCharge],
    total: dict[str, Quantity],
    containers: Mapping[str, dict[str, Quantity]],
    memory: dict[str, int],
) -> None:
    """Add what Max leaves beyond the requests; changes the last three."""
    running = {c.name: c for c in (*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers)}
    passing = [c for c in pod.spec.init_containers if not is_sidecar(c)]
    together: dict[str, Quantity] = {}
    alone: dict[str, Quantity] = {}
    for name in dict.fromkeys(n for charge in charges for n in charge.resources):
        held = [
            (set(charge.containers), resource.quantity)
            for charge in charges
            if (resource := charge.resources.get(name)) is not None
            and resource.policy == Policy.MAX.value
            and resource.quantity is not None
        ]
        for group in _groups(
            (names & running.keys(), q) for names, q in held if _counts_here(names, running)
        ):
            excess = _beyond(group.quantity, (running[c] for c in group.containers), name)
            add_to(together, {name: excess})
            for container in group.containers:
                add_to(containers[container], {name: excess})
                if name == "memory":
                    memory[container] += divide(excess.value(), len(group.containers))
        for init in passing:
            own = [quantity for names, quantity in held if init.name in names]
            if own:
                excess = _beyond(sum(own, ZERO), (init,), name)
                raise_to(alone, {name: excess})
                add_to(containers[init.name], {name: excess})
                if name == "memory":
                    memory[init.name] += excess.value()
    raise_to(together, alone)
    add_to(total, {name: amount for name, amount in together.items() if amount})


def _counts_here(names: set[str], running: Mapping[str, Container]) -> bool:
    """Claims of containers that run on, and claims nobody refers to: these are held all the time."""
    return not names or not names.isdisjoint(running)


def _groups(claims: Iterable[tuple[set[str], Quantity]]) -> list[_Group]:
    """Claims joined where they share a container; one without containers stands alone."""
    groups: list[_Group] = []
    for names, quantity in claims:
        joined = _Group(set(names), quantity)
        apart = []
        for group in groups:
            if group.containers.isdisjoint(joined.containers):
                apart.append(group)
            else:
                joined.containers |= group.containers
                joined.quantity = group.quantity + joined.quantity
        groups = [*apart, joined]
    return groups


def _beyond(quantity: Quantity, containers: Iterable[Container], name: str) -> Quantity:
    requested = sum((c.resources.requests.get(name, ZERO) for c in containers), ZERO)
    return max(quantity - requested, ZERO)
