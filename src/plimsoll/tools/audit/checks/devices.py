"""Checks of devices: double allocation, overconsumption, missing or unusable devices.

See docs/spec/allocator.md, "Gathering pools", "Consumable capacity", "Shared counters" and "Taints, admin
access, binding"; KEP-5075 (docs/spec/keps.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from plimsoll.allocator.devices.capacity import CapacityRefusal, capacity_value, check_policy
from plimsoll.allocator.devices.taints import tolerates
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import Device, DeviceTaint, ResourceClaim, ResourceSlice
from plimsoll.tools.amounts import format_quantity
from plimsoll.tools.audit.facts import AuditFacts, HeldDevice, PoolFacts, subject_of
from plimsoll.tools.audit.findings import AuditSeverity, Check, CheckProblem
from plimsoll.tools.columns import format_count

#: Claims or devices listed by name.
MAX_LISTED = 6


# -- double allocation


def find_devices_allocated_twice(facts: AuditFacts) -> Iterator[CheckProblem]:
    for device, held in facts.held.items():
        exclusive = [each for each in held if each.result.share_id is None and not each.result.admin_access]
        shares = [each for each in held if each.result.share_id is not None and not each.result.admin_access]
        if len(exclusive) > 1:
            message = f"is allocated exclusively {len(exclusive)} times"
        elif exclusive and shares:
            message = f"is allocated exclusively and also has {format_count(len(shares), 'allocated share')}"
        else:
            continue
        message += f", to {format_count(len({each.name for each in held}), 'claim')}"
        evidence = _describe_claims(facts, [*exclusive, *shares])
        yield CheckProblem(f"Device/{device}", message, evidence, _release(exclusive[-1].claim))


def find_shares_allocated_twice(facts: AuditFacts) -> Iterator[CheckProblem]:
    for device, held in facts.held.items():
        shares = Counter(each.result.share_id for each in held if each.result.share_id is not None)
        for share, count in sorted(shares.items(), key=lambda item: str(item[0])):
            if count > 1:
                found = [each for each in held if each.result.share_id == share]
                yield CheckProblem(
                    f"Device/{device}",
                    f"share {share} is allocated {count} times",
                    _describe_claims(facts, found),
                    _release(found[-1].claim),
                    str(share),
                )


def _describe_claims(facts: AuditFacts, held: Iterable[HeldDevice]) -> tuple[str, ...]:
    parts = []
    for each in dict.fromkeys((each.name, each.result.request) for each in held):
        claim = next(one.claim for one in held if one.name == each[0])
        parts.append(f"ResourceClaim/{each[0]}, request {each[1]}{_describe_users(facts, claim)}")
    return tuple(parts[:MAX_LISTED]) + (
        (f"and {len(parts) - MAX_LISTED} more",) if len(parts) > MAX_LISTED else ()
    )


def _describe_users(facts: AuditFacts, claim: ResourceClaim) -> str:
    pods = facts.users.get(claim.metadata.key, [])
    if not pods:
        return ", used by no pod"
    where = {pod.spec.node_name for pod in pods if pod.spec.node_name}
    names = ", ".join(pod.metadata.name for pod in pods[:3]) + (" and others" if len(pods) > 3 else "")
    return f", used by {names}" + (f" on {', '.join(sorted(where))}" if where else "")


def _release(claim: ResourceClaim) -> str:
    meta = claim.metadata
    return (
        f"delete the pods of one of the claims to release the device. Its pods: "
        f"kubectl describe resourceclaim -n {meta.namespace} {meta.name}"
    )


# -- overconsumption


def find_incompatible_partitions(facts: AuditFacts) -> Iterator[CheckProblem]:
    held = _held_by_pool(facts)
    for id, pool in facts.pools.items():
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
                claims = sorted({each.name for each in facts.held[DeviceId(*pool.id, name)]})
                of = f"in {', '.join(sorted(own))}" if own else "in no group"
                evidence.append(f"device {name} is {of}: {', '.join(f'ResourceClaim/{c}' for c in claims)}")
            message = f"counter set {counter_set}: the {len(parts)} allocated devices have no group in common"
            yield CheckProblem(f"Pool/{pool.id}", message, tuple(evidence), key=counter_set)


def _held_by_pool(facts: AuditFacts) -> dict[tuple[str, str], set[str]]:
    """Return the allocated devices of each pool, without those of admin access."""
    held: dict[tuple[str, str], set[str]] = {}
    for device, found in facts.held.items():
        if any(not each.result.admin_access for each in found):
            held.setdefault((device.driver, device.pool), set()).add(device.device)
    return held


def find_counters_overdrawn(facts: AuditFacts) -> Iterator[CheckProblem]:
    held = _held_by_pool(facts)
    for id, pool in facts.pools.items():
        counters = _counters(pool)
        if not counters or (id.driver, id.pool) not in held:
            continue
        drawn: dict[tuple[str, str], list[tuple[str, Quantity]]] = {}
        for name in sorted(held[id.driver, id.pool]):
            published = pool.devices.get(name)
            for counter, amount in _draws(published[1]) if published is not None else ():
                drawn.setdefault(counter, []).append((name, amount))
        for counter, available in counters.items():
            parts = drawn.get(counter, [])
            total = sum((amount for _, amount in parts), ZERO)
            if total > available:
                yield _overdrawn(facts, pool, counter, available, total, parts)


def _counters(pool: PoolFacts) -> dict[tuple[str, str], Quantity]:
    return {
        (counter_set.name, name): counter.value or ZERO
        for each in pool.slices
        for counter_set in each.spec.shared_counters or ()
        for name, counter in counter_set.counters.items()
    }


def _draws(device: Device) -> Iterator[tuple[tuple[str, str], Quantity]]:
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
    evidence = []
    for name, amount in sorted(parts, key=lambda part: (-part[1].nano, part[0]))[:MAX_LISTED]:
        claims = sorted({each.name for each in facts.held[DeviceId(*pool.id, name)]})
        holders = ", ".join(f"ResourceClaim/{claim}" for claim in claims)
        evidence.append(f"device {name} consumes {format_quantity(amount)}: {holders}")
    if len(parts) > MAX_LISTED:
        evidence.append(f"and {len(parts) - MAX_LISTED} more devices")
    return CheckProblem(
        f"Pool/{pool.id}",
        f"counter {'/'.join(counter)}: {_describe_excess(total, available)}",
        tuple(evidence),
        key="/".join(counter),
    )


def find_capacity_overdrawn(facts: AuditFacts) -> Iterator[CheckProblem]:
    for id, held in facts.held.items():
        device = facts.device(id)
        if device is None:
            continue
        consumed: dict[str, Quantity] = {}
        for each in held:
            if each.result.share_id is not None and not each.result.admin_access:
                for name, amount in each.result.consumed_capacity.items():
                    consumed[name] = consumed.get(name, ZERO) + amount
        for name, total in sorted(consumed.items()):
            entry = device.capacity.get(name)
            if entry is None or total <= capacity_value(entry):
                continue
            available = capacity_value(entry)
            parts = sorted(held, key=lambda each: _by_amount(each, name))
            yield CheckProblem(
                f"Device/{id}",
                f"capacity {name}: {_describe_excess(total, available)}",
                tuple(
                    f"ResourceClaim/{each.name} consumes "
                    + format_quantity(each.result.consumed_capacity.get(name, ZERO))
                    for each in parts[:MAX_LISTED]
                )
                + ((f"and {len(parts) - MAX_LISTED} more",) if len(parts) > MAX_LISTED else ()),
                key=name,
            )


def _describe_excess(total: Quantity, available: Quantity) -> str:
    over = format_quantity(total - available)
    return f"{format_quantity(total)} consumed of {format_quantity(available)}, {over} over"


def _by_amount(each: HeldDevice, name: str) -> tuple[int, str]:
    return -each.result.consumed_capacity.get(name, ZERO).nano, each.name


def find_capacity_off_policy(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim in facts.claims.values():
        for result in claim.allocation_results:
            device = facts.device(DeviceId.of(result))
            if device is None or result.admin_access:
                continue
            for name, amount in sorted(result.consumed_capacity.items()):
                entry = device.capacity.get(name)
                consumed = f"consumes {format_quantity(amount)} of capacity {name}"
                if entry is None:
                    message = f"{consumed}, which device {result.device} does not have"
                else:
                    refusal = check_policy(name, amount, entry.request_policy)
                    if refusal is None:
                        continue
                    why = _describe_refusal(refusal)
                    message = f"{consumed} of {result.device}: {why}"
                where = str(DeviceId.of(result))
                yield CheckProblem(
                    subject_of(claim), message, (f"device {where}",), key=f"{where}/{name}/{result.share_id}"
                )


def _describe_refusal(refusal: CapacityRefusal) -> str:
    had = format_quantity(refusal.had)
    match refusal.rule:
        case "above-max":
            return f"at most {had} is allowed"
        case "off-step":
            return f"not a multiple of the step {had}"
    return f"not a valid value; the largest is {had}"


# -- missing and tainted devices


def find_devices_gone(facts: AuditFacts) -> Iterator[CheckProblem]:
    drivers = {id.driver for id in facts.pools}
    for claim in facts.claims.values():
        missing: dict[DeviceId, str] = {}
        for result in claim.allocation_results:
            id = DeviceId.of(result)
            if facts.device(id) is None:
                missing[id] = _why_gone(facts, id, drivers)
        if not missing:
            continue
        names = ", ".join(sorted({id.device for id in missing}))
        message = f"holds {format_count(len(missing), 'device')} that no slice publishes: {names}"
        evidence = [f"{id}: {why}" for id, why in sorted(missing.items())][:MAX_LISTED]
        pods = facts.users.get(claim.metadata.key, [])
        evidence += [
            f"used by Pod/{pod.metadata.full_name} on {pod.spec.node_name or 'no node'}" for pod in pods[:3]
        ]
        driver = next(iter(sorted(missing))).driver
        fix = f"check that the driver publishes its slices: kubectl get resourceslices | grep {driver}"
        yield CheckProblem(subject_of(claim), message, tuple(evidence), fix)


def _why_gone(facts: AuditFacts, id: DeviceId, drivers: set[str]) -> str:
    if id.driver not in drivers:
        return f"driver {id.driver} publishes no slices"
    pool = facts.pools.get(id.pool_id)
    if pool is None:
        return f"driver {id.driver} has no pool {id.pool}"
    for each in pool.old:
        if any(device.name == id.device for device in each.spec.devices or ()):
            return (
                f"only slice {each.metadata.name} of generation {each.spec.pool.generation} contains it; "
                f"the pool is at {pool.generation}"
            )
    return f"the pool has {format_count(len(pool.devices), 'device')}, but not this one"


def find_devices_tainted(facts: AuditFacts) -> Iterator[CheckProblem]:
    rules = [rule for rule in facts.rules if rule.spec.device_selector is not None]
    for claim in facts.claims.values():
        for result in claim.allocation_results:
            id = DeviceId.of(result)
            device = facts.device(id)
            if device is None:
                continue
            taints: list[tuple[str, DeviceTaint]] = [("its slice", taint) for taint in device.taints]
            for rule in rules:
                selector = rule.spec.device_selector
                assert selector is not None
                wanted = (selector.driver, selector.pool, selector.device)
                if all(one in (None, other) for one, other in zip(wanted, id, strict=True)):
                    taints.append((f"DeviceTaintRule/{rule.metadata.name}", rule.spec.taint))
            for source, taint in taints:
                if taint.effect != "NoExecute":
                    continue
                if any(tolerates(toleration, taint) for toleration in result.tolerations):
                    continue
                since = f" since {taint.time_added}" if taint.time_added else ""
                text = taint.key + (f"={taint.value}" if taint.value else "")
                yield CheckProblem(
                    subject_of(claim),
                    f"holds device {id.device}, which is tainted {text}:NoExecute, and does not tolerate it",
                    (f"device {id}", f"the taint comes from {source}{since}", *_pods_of(facts, claim)),
                    key=f"{id}/{text}",
                )


def _pods_of(facts: AuditFacts, claim: ResourceClaim) -> list[str]:
    pods = facts.users.get(claim.metadata.key, [])
    return [f"Pod/{pod.metadata.full_name} will be evicted" for pod in pods[:3]]


# -- pools


def find_pools_unusable(facts: AuditFacts) -> Iterator[CheckProblem]:
    for id, pool in facts.pools.items():
        expected = sorted({each.spec.pool.resource_slice_count for each in pool.slices})
        have = len(pool.slices)
        held = sum(1 for name in pool.devices if DeviceId(*id, name) in facts.held)
        evidence = [f"{format_count(len(pool.devices), 'device')}, {held} allocated now"]
        if pool.node:
            evidence.append(f"on node {pool.node}")
        if expected != [have]:
            counts = " or ".join(map(str, expected))
            yield CheckProblem(
                f"Pool/{id}",
                f"has {have} of {counts} slices of generation {pool.generation}: "
                "none of its devices is allocated",
                tuple(evidence),
                key="incomplete",
            )
        problem = _contradiction(pool)
        if problem:
            yield CheckProblem(
                f"Pool/{id}",
                f"is inconsistent: {problem}: none of its devices is allocated",
                tuple(evidence),
                key="invalid",
                severity=AuditSeverity.ERROR,
            )


def _contradiction(pool: PoolFacts) -> str:
    names: Counter[str] = Counter(device.name for each in pool.slices for device in each.spec.devices or ())
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        return f"device {twice[0]} is published {names[twice[0]]} times"
    sets = Counter(
        counter_set.name for each in pool.slices for counter_set in each.spec.shared_counters or ()
    )
    for name, count in sorted(sets.items()):
        if count > 1:
            return f"counter set {name} is defined {count} times"
    counters = _counters(pool)
    complete = len(pool.slices) == pool.slices[0].spec.pool.resource_slice_count
    for _, device in pool.devices.values() if complete else ():
        for consumption in device.consumes_counters:
            for name in consumption.counters:
                if (consumption.counter_set, name) not in counters:
                    counter = f"{consumption.counter_set}/{name}"
                    return f"device {device.name} consumes {counter}, which is not defined"
    return ""


def find_slices_left_behind(facts: AuditFacts) -> Iterator[CheckProblem]:
    for id, pool in facts.pools.items():
        for each in pool.old:
            yield CheckProblem(
                subject_of(each),
                f"has generation {each.spec.pool.generation} of pool {id}, the newest is {pool.generation}",
                (f"{format_count(len(each.spec.devices or ()), 'device')} not used",),
                f"kubectl delete resourceslice {each.metadata.name}",
            )
    yield from _without_node(facts, facts.slices)


def _without_node(facts: AuditFacts, slices: Iterable[ResourceSlice]) -> Iterator[CheckProblem]:
    """Yield slices of nodes that do not exist, if nodes are known at all."""
    if facts.lacks(("nodes",)):
        return
    for each in slices:
        node = each.spec.node_name
        if node and node not in facts.nodes:
            yield CheckProblem(
                subject_of(each),
                f"belongs to node {node}, which does not exist",
                (f"driver {each.spec.driver}, pool {each.spec.pool.name}",),
                f"kubectl delete resourceslice {each.metadata.name}",
                "node",
            )


_NEEDS = ("resourceclaims", "resourceslices")
CHECKS = (
    Check(
        "PLM020",
        "device-allocated-twice",
        AuditSeverity.ERROR,
        "a device that is not shared is allocated more than once",
        "Two allocations contain the same device exclusively, or one exclusively and another a share of it. "
        "The containers of both get it. Known causes are races between schedulers, force-deleted pods whose "
        "containers keep running, and manual changes. Admin access does not count: it holds nothing.",
        "delete the pods of one of the claims to release the device",
        find_devices_allocated_twice,
        ("resourceclaims",),
    ),
    Check(
        "PLM021",
        "share-allocated-twice",
        AuditSeverity.ERROR,
        "one share of a device is allocated more than once",
        "Shares are identified by their shareID in claims, in CDI names and on the node. The driver treats "
        "two with the same ID as one: releasing one claim removes the share of the other.",
        "delete the pods of one of the claims; the scheduler assigns a new ID to the next one",
        find_shares_allocated_twice,
        ("resourceclaims",),
    ),
    Check(
        "PLM022",
        "counters-overdrawn",
        AuditSeverity.ERROR,
        "the allocated partitions of a pool consume more than its counters provide",
        "Partitions of one device consume the same counters. The allocated ones consume more than "
        "available, so at least one cannot exist as allocated. Until some are released, nothing more of "
        "the pool is allocated.",
        "delete the pods of the partitions that were allocated last",
        find_counters_overdrawn,
        _NEEDS,
    ),
    Check(
        "PLM029",
        "partitions-incompatible",
        AuditSeverity.ERROR,
        "allocated partitions have no compatibility group in common",
        "A driver declares groups of partitions that can exist at the same time. The allocated partitions of "
        "one counter set must have a group in common, or none of them any group. Usually the groups were "
        "changed after the allocation, or a scheduler did not know them. Until some are released, nothing "
        "more of the counter set is allocated.",
        "delete the pods of the partitions that were allocated last",
        find_incompatible_partitions,
        _NEEDS,
    ),
    Check(
        "PLM023",
        "capacity-overdrawn",
        AuditSeverity.ERROR,
        "the shares of a device consume more than it has",
        "The consumed capacities of the shares of a device exceed what the device publishes. Either it was "
        "allocated twice, or the driver publishes less than before.",
        "delete the pods of the shares that were allocated last, or correct the capacity in the slice",
        find_capacity_overdrawn,
        _NEEDS,
    ),
    Check(
        "PLM024",
        "capacity-off-policy",
        AuditSeverity.WARNING,
        "a share consumes an amount that the device's request policy does not allow",
        "The request policy of a capacity defines valid amounts: a range with a step, or a list of values. "
        "This share has another amount. Usually the policy was changed after the allocation; the driver may "
        "not be able to handle such a share after a restart.",
        "delete the pods of the claim, so that it is allocated again",
        find_capacity_off_policy,
        _NEEDS,
    ),
    Check(
        "PLM025",
        "device-gone",
        AuditSeverity.WARNING,
        "a claim holds a device that is no longer published",
        "The claim is allocated, but no slice of the pool's newest generation contains the device. Its "
        "charge cannot be computed, new pods with the claim cannot start, and the driver may not be able "
        "to release it. Drivers remove devices when hardware fails or when their configuration changes.",
        "check that the driver is running and publishes its slices; otherwise delete the pods that use the "
        "claim",
        find_devices_gone,
        _NEEDS,
    ),
    Check(
        "PLM026",
        "device-tainted",
        AuditSeverity.WARNING,
        "a claim holds a device that is tainted NoExecute",
        "The claim does not tolerate the taint. The device taint eviction controller deletes its pods; if "
        "they remain, the controller is not running or lacks permission.",
        "let the pods be evicted, or repair the device and remove the taint",
        find_devices_tainted,
        _NEEDS,
    ),
    Check(
        "PLM027",
        "pool-unusable",
        AuditSeverity.WARNING,
        "a pool is incomplete or invalid: none of its devices is allocated",
        "A pool is used only if its newest generation is complete. Slices are missing (the driver is "
        "updating or was interrupted), there are too many, or they define a device or counter set twice. "
        "Pods that need the pool stay pending.",
        "see the driver's log; restarting the driver publishes its pools again",
        find_pools_unusable,
        ("resourceslices",),
    ),
    Check(
        "PLM028",
        "slice-left-behind",
        AuditSeverity.INFO,
        "a slice has an outdated generation, or its node does not exist",
        "It is not used: only the newest generation of a pool counts, and only on existing nodes. Drivers "
        "delete such slices while they run; if it remains, its driver is gone.",
        "delete the slice",
        find_slices_left_behind,
        ("resourceslices",),
    ),
)
