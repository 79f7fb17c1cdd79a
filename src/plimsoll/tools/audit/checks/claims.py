"""Checks of claims and their pods: reservations, leftovers, and pods without valid claims.

The rules are those of the resource claim controller (`controllers` package) and of the kubelet, which starts
a pod only with claims that are allocated, reserved for it, and usable on its node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId
from plimsoll.api.node_selection import selector_matches
from plimsoll.api.pod_claims import is_generated_for, is_reserved_for, owner_pod
from plimsoll.api.resource import ResourceClaim, ResourceClaimConsumerReference
from plimsoll.api.timestamps import parse_time
from plimsoll.controllers.pod_utils import find_condition, is_done, is_finished, is_pod
from plimsoll.tools.audit.facts import GRACE_SECONDS, AuditFacts, PodClaims, subject_of
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.audit.remedies import delete_claim, delete_pods
from plimsoll.tools.columns import format_count
from plimsoll.tools.findings import Severity

#: A pod bound less than this many seconds ago may be newer than the claims that were read.
SETTLE_SECONDS = 30.0


# -- reservations


def find_stale_reservations(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim in facts.claims.values():
        stale = []
        reasons: Counter[str] = Counter()
        for consumer in claim.status.reserved_for:
            pod = facts.pods.get((claim.metadata.namespace, consumer.name))
            if pod is not None and pod.metadata.uid == consumer.uid and not is_done(pod):
                continue  # most consumers
            why = _why_stale(facts, claim, consumer)
            if why:
                reasons[why.partition(" by ")[0]] += 1
                stale.append(f"Pod/{claim.metadata.namespace}/{consumer.name} ({consumer.uid}): {why}")
        if stale:
            kept = len(claim.status.reserved_for) - len(stale)
            parts = " and ".join(f"{format_count(count, 'pod')} that {why}" for why, count in reasons.items())
            message = f"is reserved for {parts}"
            if claim.allocation_results:
                message += f", and holds {format_count(len(claim.allocation_results), 'device')}"
            yield CheckProblem(
                subject_of(claim), message + (f"; {kept} in use" if kept else ""), tuple(stale)
            )


def _why_stale(facts: AuditFacts, claim: ResourceClaim, consumer: ResourceClaimConsumerReference) -> str:
    if not is_pod(consumer):
        return ""
    pod = facts.pods.get((claim.metadata.namespace, consumer.name))
    if pod is None:
        return "was deleted"
    if pod.metadata.uid != consumer.uid:
        return f"was replaced by one with UID {pod.metadata.uid}"
    if is_finished(pod):
        return f"has terminated ({pod.status.phase})"
    return "was deleted before it was scheduled" if is_done(pod) else ""


# -- leftovers


def find_zombie_claims(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim in facts.claims.values():
        if claim.status.reserved_for or claim.metadata.deletion_timestamp is not None:
            continue
        held = len(claim.allocation_results)
        holds = f"; it holds {format_count(held, 'device')}" if held else ""
        owner = owner_pod(claim)
        delete = delete_claim(claim)
        if owner is not None:
            pod = facts.pods.get((claim.metadata.namespace, owner[0]))
            replaced = pod is not None and pod.metadata.uid != owner[1]
            if pod is None or replaced or is_done(pod):
                state = "was deleted" if pod is None else "was replaced" if replaced else "has terminated"
                yield CheckProblem(
                    subject_of(claim),
                    f"was created for pod {owner[0]}, which {state}{holds}",
                    (_describe_age(facts, claim),),
                    delete,
                    severity=Severity.WARNING if held else Severity.INFO,
                    proven=True,
                )
            continue
        users = facts.users.get(claim.metadata.key, [])
        allocation = claim.status.allocation
        if allocation is None or users:
            continue
        since = parse_time(allocation.allocation_timestamp)
        if since is not None and facts.now - since < GRACE_SECONDS:
            continue
        when = f" since {allocation.allocation_timestamp}" if since is not None else ""
        yield CheckProblem(
            subject_of(claim),
            f"is allocated{when} but not used by any pod{holds}",
            (_describe_age(facts, claim),),
            f"if it is not needed: {delete}",
            severity=Severity.INFO,
            proven=True,
        )


def _describe_age(facts: AuditFacts, claim: ResourceClaim) -> str:
    created = parse_time(claim.metadata.creation_timestamp)
    devices = ", ".join(sorted({f"{result.pool}/{result.device}" for result in claim.allocation_results}))
    text = f"created {claim.metadata.creation_timestamp}" if created is not None else "of unknown age"
    return text + (f", devices {devices}" if devices else "")


def find_claims_stuck(facts: AuditFacts) -> Iterator[CheckProblem]:
    for claim in facts.claims.values():
        since = parse_time(claim.metadata.deletion_timestamp)
        if since is None or facts.now - since < GRACE_SECONDS:
            continue
        minutes = int(facts.now - since) // 60
        kept = ", ".join(claim.metadata.finalizers) or "none"
        evidence = [f"finalizers: {kept}"]
        users = facts.users.get(claim.metadata.key, [])
        live = [pod for pod in users if is_reserved_for(claim, pod)]
        if live:
            evidence.append(f"in use by Pod/{live[0].metadata.full_name}, which prevents its deletion")
            fix = f"delete its pods first: {delete_pods(live)}"
        else:
            reserved = format_count(len(claim.status.reserved_for), "pod")
            evidence.append(f"reserved for {reserved}, none of which is running")
            fix = "check that the resource claim controller and the driver are running: they release it"
        yield CheckProblem(
            subject_of(claim),
            f"has been terminating for {minutes} minutes and holds "
            f"{format_count(len(claim.allocation_results), 'device')}",
            tuple(evidence),
            fix,
            severity=Severity.INFO if live else None,
        )


# -- pods and their claims


def _is_settled(facts: AuditFacts, pod: Pod) -> bool:
    """Return whether a pod was bound some time ago: claims are listed before pods and may be older."""
    condition = find_condition(pod.status.conditions, "PodScheduled")
    since = parse_time(condition.last_transition_time) if condition is not None else None
    return since is None or not 0 <= facts.now - since < SETTLE_SECONDS


def find_pods_without_claims(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in facts.bound_with_claims:
        if _has_own_claims(each):  # most pods
            continue
        problems = [*_find_problems(facts, each.pod, each.names)]
        if problems and _is_settled(facts, each.pod):
            yield from problems


def _has_own_claims(each: PodClaims) -> bool:
    """Return whether all claims of a pod exist, are named in its spec, allocated, and reserved for it."""
    if len(each.claims) != len(each.pod.spec.resource_claims) or len(each.names) != len(each.claims):
        return False
    uid = each.pod.metadata.uid
    for reference in each.pod.spec.resource_claims:
        if reference.resource_claim_name is None:
            return False
    for claim in each.claims:
        users = claim.status.reserved_for
        if claim.status.allocation is None or len(users) != 1 or users[0].uid != uid:
            return False
    return True


def _find_problems(facts: AuditFacts, pod: Pod, names: Mapping[str, str]) -> Iterator[CheckProblem]:
    for reference in pod.spec.resource_claims:
        name = names.get(reference.name, "")
        if not name:
            generated = {each.name for each in pod.status.resource_claim_statuses}
            if reference.name in generated:
                continue  # none is needed
            message = f"has no claim for {reference.name}: none was created from its template"
            yield CheckProblem(
                subject_of(pod), message, (f"on node {pod.spec.node_name}",), key=reference.name
            )
            continue
        yield from _claim_problem(facts, pod, name, reference.name, reference.resource_claim_name is None)
    if extended := names.get(""):  # created for its extended resources
        yield from _claim_problem(facts, pod, extended, extended, True)


def _claim_problem(
    facts: AuditFacts, pod: Pod, name: str, key: str, generated: bool
) -> Iterator[CheckProblem]:
    claim = facts.claims.get((pod.metadata.namespace, name))
    problem = _describe_problem(pod, claim, name, generated)
    if problem:
        where = (f"on node {pod.spec.node_name}, phase {pod.status.phase or 'unknown'}",)
        yield CheckProblem(subject_of(pod), problem, where, key=key)


def _describe_problem(pod: Pod, claim: ResourceClaim | None, name: str, generated: bool) -> str:
    if claim is None:
        return f"is bound, but its claim {name} does not exist"
    if generated and not is_generated_for(claim, pod):
        return f"uses claim {name}, which was created for another pod"
    if claim.status.allocation is None:
        return f"is bound, but its claim {name} is not allocated"
    if not is_reserved_for(claim, pod):
        others = format_count(len(claim.status.reserved_for), "other")
        return f"is bound, but its claim {name} is not reserved for it ({others} in reservedFor)"
    return ""


def find_claims_elsewhere(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in facts.bound_with_claims:
        pod = each.pod
        node = facts.nodes.get(pod.spec.node_name)
        if node is None:
            continue
        for claim in each.claims:
            allocation = claim.status.allocation
            selector = allocation.node_selector if allocation is not None else None
            if selector is None or selector_matches(selector, node) is not False:
                continue
            devices = ", ".join(sorted({str(DeviceId.of(each)) for each in claim.allocation_results}))
            others = [other for other in facts.nodes.values() if selector_matches(selector, other) is True]
            where = ", ".join(other.metadata.name for other in others[:3]) or "no existing node"
            yield CheckProblem(
                subject_of(pod),
                f"runs on {node.metadata.name}, but claim {claim.metadata.name} is allocated for {where}",
                (f"devices {devices}",),
                key=claim.metadata.name,
            )


CHECKS = {
    "PLM040": find_stale_reservations,
    "PLM041": find_zombie_claims,
    "PLM042": find_claims_stuck,
    "PLM043": find_pods_without_claims,
    "PLM044": find_claims_elsewhere,
}
