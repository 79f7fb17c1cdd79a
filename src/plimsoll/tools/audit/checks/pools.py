"""Checks of pools and their slices (docs/spec/allocator.md, "Gathering pools")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import ResourceSlice
from plimsoll.tools.audit.checks.capacity import counters_of
from plimsoll.tools.audit.facts import AuditFacts, PoolFacts, subject_of
from plimsoll.tools.audit.findings import MAX_LISTED, CheckProblem
from plimsoll.tools.audit.identity_cache import IdentityCache
from plimsoll.tools.columns import format_count
from plimsoll.tools.findings import Severity


def find_pools_unusable(facts: AuditFacts) -> Iterator[CheckProblem]:
    contradictions: IdentityCache[str] = IdentityCache()
    for id, pool in facts.pools.items():
        have = len(pool.slices)
        if any(each.spec.pool.resource_slice_count != have for each in pool.slices):
            expected = sorted({each.spec.pool.resource_slice_count for each in pool.slices})
            counts = " or ".join(map(str, expected))
            yield CheckProblem(
                f"Pool/{id}",
                f"has {have} of {counts} slices of generation {pool.generation}: "
                "none of its devices is allocated",
                _describe_pool(facts, pool),
                pool.describe_completion() if have < max(expected) else "",
                "incomplete",
            )
        if have == 1 and not pool.slices[0].spec.shared_counters:  # most pools
            spec = pool.slices[0].spec
            count = spec.pool.resource_slice_count
            problem = contradictions.get(spec.devices, partial(_find_contradiction, pool), count)
        else:
            problem = _find_contradiction(pool)
        if problem:
            yield CheckProblem(
                f"Pool/{id}",
                f"is inconsistent: {problem}: none of its devices is allocated",
                _describe_pool(facts, pool),
                key="invalid",
                severity=Severity.ERROR,
            )


def _describe_pool(facts: AuditFacts, pool: PoolFacts) -> tuple[str, ...]:
    held = sum(1 for name in pool.devices if DeviceId(*pool.id, name) in facts.held)
    size = f"{format_count(len(pool.devices), 'device')}, {held} allocated now"
    return (size, f"on node {pool.node}") if pool.node else (size,)


def _find_contradiction(pool: PoolFacts) -> str:
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
    counters = counters_of(pool)
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
                _describe_old(facts, pool, each),
                *_delete_old(facts, pool, each),
            )
    yield from _without_node(facts, facts.slices)


def _describe_old(facts: AuditFacts, pool: PoolFacts, slice: ResourceSlice) -> tuple[str, ...]:
    names = [device.name for device in slice.spec.devices or ()]
    held = [name for name in names if DeviceId(*pool.id, name) in facts.held]
    text = f"{format_count(len(names), 'device')}, not available to new pods"
    return (text, f"allocated from it: {', '.join(held[:MAX_LISTED])}") if held else (text,)


def _delete_old(facts: AuditFacts, pool: PoolFacts, slice: ResourceSlice) -> tuple[str, str, None, bool]:
    """Return the fix, key, severity, and whether the fix is proven: nothing must depend on the slice."""
    delete = f"kubectl delete resourceslice {slice.metadata.name}"
    if not pool.is_complete:
        return f"{pool.describe_completion()}; only then: {delete}", "", None, False
    gone = [name for device in slice.spec.devices or () if (name := device.name) not in pool.devices]
    held = [name for name in gone if DeviceId(*pool.id, name) in facts.held]
    if held:
        return f"delete the pods that hold {', '.join(held[:MAX_LISTED])}; then: {delete}", "", None, False
    return delete, "", None, True


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
                f"if the node does not come back: kubectl delete resourceslice {each.metadata.name}",
                "node",
            )


CHECKS = {
    "PLM027": find_pools_unusable,
    "PLM028": find_slices_left_behind,
}
