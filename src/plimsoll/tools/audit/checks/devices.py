"""Checks of allocated devices: double allocation, missing and tainted devices.

See docs/spec/allocator.md, "Taints, admin access, binding".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from plimsoll.api.device_taints import tolerates
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import DeviceTaint, ResourceClaim
from plimsoll.api.timestamps import parse_time
from plimsoll.tools.audit.facts import GRACE_SECONDS, AuditFacts, HeldDevice, subject_of
from plimsoll.tools.audit.findings import MAX_LISTED, CheckProblem, list_first
from plimsoll.tools.audit.remedies import delete_pods, release_claims
from plimsoll.tools.columns import format_count
from plimsoll.tools.facts import join_names
from plimsoll.tools.node_terms import taint_text

# -- double allocation


def find_devices_allocated_twice(facts: AuditFacts) -> Iterator[CheckProblem]:
    for device, held in facts.held.items():
        if len(held) < 2:
            continue
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
        fix = _release_all_but_one(facts, exclusive, shares)
        yield CheckProblem(f"Device/{device}", message, evidence, fix, proven=True)


def find_shares_allocated_twice(facts: AuditFacts) -> Iterator[CheckProblem]:
    for device, held in facts.held.items():
        if len(held) < 2:
            continue
        shares = Counter(each.result.share_id for each in held if each.result.share_id is not None)
        for share, count in sorted(shares.items(), key=lambda item: str(item[0])):
            if count > 1:
                found = [each for each in held if each.result.share_id == share]
                yield CheckProblem(
                    f"Device/{device}",
                    f"share {share} is allocated {count} times",
                    _describe_claims(facts, found),
                    _release_all_but_one(facts, found, ()),
                    str(share),
                    proven=True,
                )


def _describe_claims(facts: AuditFacts, held: Iterable[HeldDevice]) -> tuple[str, ...]:
    parts = []
    for each in dict.fromkeys((each.name, each.result.request) for each in held):
        claim = next(one.claim for one in held if one.name == each[0])
        parts.append(f"ResourceClaim/{each[0]}, request {each[1]}{_describe_users(facts, claim)}")
    return list_first(parts)


def _describe_users(facts: AuditFacts, claim: ResourceClaim) -> str:
    pods = facts.users.get(claim.metadata.key, [])
    if not pods:
        return ", used by no pod"
    where = {pod.spec.node_name for pod in pods if pod.spec.node_name}
    names = join_names([pod.metadata.name for pod in pods], 3)
    return f", used by {names}" + (f" on {', '.join(sorted(where))}" if where else "")


def _release_all_but_one(
    facts: AuditFacts, exclusive: Iterable[HeldDevice], shares: Iterable[HeldDevice]
) -> str:
    """Return how to leave a device to one claim, or to its shares."""
    owners, sharers = (
        list({each.name: each.claim for each in held}.values()) for held in (exclusive, shares)
    )
    choices = [[claim for claim in [*owners, *sharers] if claim is not kept] for kept in owners]
    return release_claims(facts, [*choices, owners] if sharers else choices)


# -- missing and tainted devices


def find_devices_gone(facts: AuditFacts) -> Iterator[CheckProblem]:
    drivers = {id.driver for id in facts.pools}
    for held in facts.allocated.values():
        gone = [each.id for each in held if each.device is None]
        if not gone:
            continue
        claim = held[0].claim
        missing = {id: _why_gone(facts, id, drivers) for id in gone}
        names = ", ".join(sorted({id.device for id in missing}))
        pools = [facts.pools.get(id.pool_id) for id in missing]
        message = f"holds {format_count(len(missing), 'device')} that no slice publishes: {names}"
        if any(pool is not None and pool.old for pool in pools):
            message = f"holds {format_count(len(missing), 'device')} not in the newest generation: {names}"
        evidence = [f"{id}: {why}" for id, why in sorted(missing.items())][:MAX_LISTED]
        evidence += facts.describe_users(claim)
        yield CheckProblem(subject_of(claim), message, tuple(evidence), _publish(facts, min(missing)))


def _publish(facts: AuditFacts, id: DeviceId) -> str:
    pool = facts.pools.get(id.pool_id)
    if pool is None:
        return f"check that the driver publishes its slices: kubectl get resourceslices | grep {id.driver}"
    if not pool.is_complete:
        return f"{pool.describe_completion()}; until then keep the slices of earlier generations"
    return f"restart the driver {pool.on_node}, or delete the pods of the claim if the device was removed"


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
    for each in (each for held in facts.allocated.values() for each in held):
        claim, result, id, device = each.claim, each.result, each.id, each.device
        if device is None or not (device.taints or rules):
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
            text = taint_text(taint)
            yield CheckProblem(
                subject_of(claim),
                f"holds device {id.device}, which is tainted {text}, and does not tolerate it",
                (f"device {id}", f"the taint comes from {source}{since}", *_pods_of(facts, claim)),
                _evict(facts, claim, taint),
                f"{id}/{text.rpartition(':')[0]}",
            )


def _pods_of(facts: AuditFacts, claim: ResourceClaim) -> list[str]:
    pods = facts.users.get(claim.metadata.key, [])
    return [f"Pod/{pod.metadata.full_name} is to be evicted" for pod in pods[:3]]


def _evict(facts: AuditFacts, claim: ResourceClaim, taint: DeviceTaint) -> str:
    """Return the commands for an eviction that is overdue; "" if it is not known to be."""
    pods, since = facts.users.get(claim.metadata.key, ()), parse_time(taint.time_added)
    if not pods or since is None or facts.latest - since < GRACE_SECONDS:
        return ""
    return (
        "the eviction is overdue: see whether the device taint eviction controller runs "
        f"(kube-controller-manager), or delete the pods: {delete_pods(pods)}"
    )


CHECKS = {
    "PLM020": find_devices_allocated_twice,
    "PLM021": find_shares_allocated_twice,
    "PLM025": find_devices_gone,
    "PLM026": find_devices_tainted,
}
