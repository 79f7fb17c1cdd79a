"""Checks of pools and their slices (docs/spec/allocator.md, "Gathering pools")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import ResourceSlice
from plimsoll.tools.audit.checks.capacity import counters_of
from plimsoll.tools.audit.facts import AuditFacts, PoolFacts, subject_of
from plimsoll.tools.audit.findings import AuditSeverity, Check, CheckProblem
from plimsoll.tools.audit.identity_cache import IdentityCache
from plimsoll.tools.columns import format_count


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
                key="incomplete",
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
                severity=AuditSeverity.ERROR,
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


CHECKS = (
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
