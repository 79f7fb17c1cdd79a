"""Checks of consumption: counters of partitions, consumable capacity, request policies.

See docs/spec/allocator.md, "Consumable capacity" and "Shared counters"; KEP-5075 (docs/spec/keps.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.allocator.devices.capacity import CapacityRefusal, capacity_value, check_policy
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device
from plimsoll.tools.amounts import format_quantity
from plimsoll.tools.audit.facts import AuditFacts, PoolFacts, shared, subject_of
from plimsoll.tools.audit.findings import MAX_LISTED, CheckProblem, list_first
from plimsoll.tools.audit.remedies import allocate_again


def find_incompatible_partitions(facts: AuditFacts) -> Iterator[CheckProblem]:
    held = _held_by_pool(facts)
    for id, pool in facts.pools.items():
        if not pool.has_partitions:
            continue
        groups: dict[str, dict[str, frozenset[str]]] = {}
        for name in sorted(held.get((id.driver, id.pool), ())):
            published = pool.devices.get(name)
            for consumption in published[1].consumes_counters if published is not None else ():
                own = frozenset(consumption.compatibility_groups)
                groups.setdefault(consumption.counter_set, {})[name] = own
        for counter_set, parts in groups.items():
            if not any(parts.values()) or frozenset.intersection(*parts.values()):
                continue
            evidence = []
            for name, own in list(parts.items())[:MAX_LISTED]:
                of = f"in {', '.join(sorted(own))}" if own else "in no group"
                evidence.append(f"device {name} is {of}: {_describe_holders(facts, pool, name)}")
            message = f"counter set {counter_set}: the {len(parts)} allocated devices have no group in common"
            yield CheckProblem(f"Pool/{pool.id}", message, tuple(evidence), key=counter_set)


@shared
def _held_by_pool(facts: AuditFacts) -> dict[tuple[str, str], set[str]]:
    """Return the allocated devices of each pool with counters, without those of admin access."""
    held: dict[tuple[str, str], set[str]] = {}
    for id, pool in facts.pools.items():
        if pool.has_partitions or any(each.spec.shared_counters for each in pool.slices):
            for name in pool.devices:
                found = facts.held.get(DeviceId(*id, name), ())
                if any(not each.result.admin_access for each in found):
                    held.setdefault(id, set()).add(name)
    return held


def find_counters_overdrawn(facts: AuditFacts) -> Iterator[CheckProblem]:
    held = _held_by_pool(facts)
    for id, pool in facts.pools.items():
        if not any(each.spec.shared_counters for each in pool.slices) or id not in held:
            continue
        counters = counters_of(pool)
        drawn: dict[tuple[str, str], list[tuple[str, Quantity]]] = {}
        for name in sorted(held[id.driver, id.pool]):
            published = pool.devices.get(name)
            for counter, amount in draws(published[1]) if published is not None else ():
                drawn.setdefault(counter, []).append((name, amount))
        for counter, available in counters.items():
            parts = drawn.get(counter, [])
            total = sum((amount for _, amount in parts), ZERO)
            if total > available:
                yield _overdrawn(facts, pool, counter, available, total, parts)


def counters_of(pool: PoolFacts) -> dict[tuple[str, str], Quantity]:
    return {
        (counter_set.name, name): counter.value or ZERO
        for each in pool.slices
        for counter_set in each.spec.shared_counters or ()
        for name, counter in counter_set.counters.items()
    }


def draws(device: Device) -> Iterator[tuple[tuple[str, str], Quantity]]:
    """Yield the counters that a partition consumes, by counter set and name."""
    for consumption in device.consumes_counters:
        for name, counter in consumption.counters.items():
            yield (consumption.counter_set, name), counter.value or ZERO


def _overdrawn(
    facts: AuditFacts,
    pool: PoolFacts,
    counter: tuple[str, str],
    available: Quantity,
    total: Quantity,
    parts: list[tuple[str, Quantity]],
) -> CheckProblem:
    largest = sorted(parts, key=lambda part: (-part[1].nano, part[0]))
    evidence = (
        f"device {name} consumes {format_quantity(amount)}: {_describe_holders(facts, pool, name)}"
        for name, amount in largest
    )
    return CheckProblem(
        f"Pool/{pool.id}",
        f"counter {'/'.join(counter)}: {_describe_excess(total, available)}",
        list_first(evidence, " devices"),
        key="/".join(counter),
    )


def _describe_holders(facts: AuditFacts, pool: PoolFacts, name: str) -> str:
    """List the claims that hold a device."""
    claims = sorted({each.name for each in facts.held[DeviceId(*pool.id, name)]})
    return ", ".join(f"ResourceClaim/{claim}" for claim in claims)


def find_capacity_overdrawn(facts: AuditFacts) -> Iterator[CheckProblem]:
    for id, held in facts.held.items():
        device = held[0].device
        if device is None:
            continue
        consumed: dict[str, Quantity] = {}
        for each in held:
            if each.result.share_id is not None and not each.result.admin_access:
                for name, amount in each.result.consumed_capacity.items():
                    consumed[name] = consumed.get(name, ZERO) + amount
        for name, total in sorted(consumed.items()):
            entry = device.capacity.get(name)
            if entry is None or total <= (available := capacity_value(entry)):
                continue
            amounts = [(each.result.consumed_capacity.get(name, ZERO), each.name) for each in held]
            evidence = (
                f"ResourceClaim/{claim} consumes {format_quantity(amount)}"
                for amount, claim in sorted(amounts, key=lambda part: (-part[0].nano, part[1]))
            )
            yield CheckProblem(
                f"Device/{id}",
                f"capacity {name}: {_describe_excess(total, available)}",
                list_first(evidence),
                key=name,
            )


def _describe_excess(total: Quantity, available: Quantity) -> str:
    over = format_quantity(total - available)
    return f"{format_quantity(total)} consumed of {format_quantity(available)}, {over} over"


def find_capacity_off_policy(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in (each for held in facts.allocated.values() for each in held):
        claim, result, device = each.claim, each.result, each.device
        if device is None or result.admin_access or not result.consumed_capacity:
            continue
        for name, amount in sorted(result.consumed_capacity.items()):
            entry = device.capacity.get(name)
            refusal = None if entry is None else check_policy(name, amount, entry.request_policy)
            if entry is not None and refusal is None:
                continue
            message = f"consumes {format_quantity(amount)} of capacity {name}"
            if refusal is None:
                message += f", which device {result.device} does not have"
            else:
                message += f" of {result.device}: {_describe_refusal(refusal)}"
            key = f"{each.id}/{name}/{result.share_id}"
            evidence = (f"device {each.id}",)
            yield CheckProblem(subject_of(claim), message, evidence, allocate_again(facts, claim), key)


def _describe_refusal(refusal: CapacityRefusal) -> str:
    had = format_quantity(refusal.had)
    match refusal.rule:
        case "above-max":
            return f"at most {had} is allowed"
        case "off-step":
            return f"not a multiple of the step {had}"
    return f"not a valid value; the largest is {had}"


CHECKS = {
    "PLM022": find_counters_overdrawn,
    "PLM029": find_incompatible_partitions,
    "PLM023": find_capacity_overdrawn,
    "PLM024": find_capacity_off_policy,
}
