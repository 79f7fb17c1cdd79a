"""Checks of the ledgers: charged amounts against allocatable, and what claims add.

KEP-5517 is about this problem: pod requests and claims accounted separately on a node that runs both
(docs/spec/keps.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from plimsoll.api.core import Pod
from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import ResourceClaim
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.messages import format_reason
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.requests import is_pod_level_resource
from plimsoll.ledger.units import PODS, is_extended_resource, to_unit, units_to_nano
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.tools.amounts import format_distinct, format_short
from plimsoll.tools.audit.charges import (
    AuditedClaim,
    amounts_of,
    charged_claims,
    format_amounts,
    list_charged_devices,
    uncounted_claims,
)
from plimsoll.tools.audit.checks.drivers import is_of_other_driver
from plimsoll.tools.audit.facts import AuditFacts, subject_of
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.audit.remedies import delete_pods
from plimsoll.tools.class_mappings import describe_mappings
from plimsoll.tools.cluster_state.node_resources import taken_by
from plimsoll.tools.findings import Severity
from plimsoll.tools.fixes.harm import least_harmful_pods, removable_pods
from plimsoll.tools.top.nodes import ResourceHolder, holders, node_row_of
from plimsoll.tools.uncounted import UncountedClaim, requests_with_claim

#: Holders of a node listed by name.
_HOLDERS = 6


# -- past the line


def find_nodes_past_line(facts: AuditFacts) -> Iterator[CheckProblem]:
    snapshot = facts.cluster_state.snapshot
    for name in facts.nodes:
        place = snapshot.row_of(name)
        if place is None:
            continue
        ledger = snapshot.ledger(place)
        for resource, left in sorted(ledger.headroom().items()):
            if left < 0:
                yield _overcommit(facts, ledger, resource, -left)


def _overcommit(facts: AuditFacts, ledger: NodeLedger, resource: str, by: int) -> CheckProblem:
    subject = f"Node/{ledger.name}"
    severity = Severity.WARNING if is_extended_resource(resource) else Severity.ERROR
    if resource == PODS:
        line = ledger.allocatable[PODS]
        return CheckProblem(
            subject,
            f"pods: {len(ledger)} on the node, {line} allocatable, {by} over",
            fix=_removal(facts, ledger, PODS, by),
            key=PODS,
            severity=severity,
            proven=True,
        )
    row = node_row_of(ledger).row(resource)
    used, allocatable = format_distinct(resource, row.used, row.line)
    message = f"{resource}: {used} charged, {allocatable} allocatable, {format_short(resource, by)} over"
    parts = [
        f"{word} {format_short(resource, amount)}"
        for word, amount in (("requests", row.requests), ("claims", row.claims), ("overhead", row.overhead))
        if amount
    ]
    if row.requests > row.line:
        why = "requests alone exceed allocatable"
    elif row.claims:
        why = "requests alone fit: a scheduler that ignores claims sees free capacity"
    else:
        why = "requests fit, but not with overhead"
    evidence = [f"{', '.join(parts)}: {why}"]
    found = [each for each in holders(facts.cluster_state, ledger.name, resource) if each.amount > 0]
    evidence += [_describe_holder(each) for each in found[:_HOLDERS]]
    if len(found) > _HOLDERS:
        rest = sum(each.amount for each in found[_HOLDERS:])
        evidence.append(f"{len(found) - _HOLDERS} others hold {format_short(resource, rest)}")
    return CheckProblem(
        subject,
        message,
        tuple(evidence),
        _removal(facts, ledger, resource, by),
        resource,
        severity,
        proven=True,
    )


def _describe_holder(holder: ResourceHolder) -> str:
    who = f"Pod/{holder.namespace}/{holder.pod}" if holder.pod else f"ResourceClaim/{holder.namespace}"
    by = "by requests" if not holder.claim else f"by claim {holder.claim}"
    if not holder.claim and holder.rule != "requests":
        by = f"beyond the charge of {holder.stands_for}" if holder.stands_for else f"by {holder.rule}"
    elif holder.claim and not holder.pod:
        who, by = f"ResourceClaim/{holder.namespace}/{holder.claim}", f"as a pool ({holder.rule})"
    elif holder.claim and holder.rule != AccountingPolicy.ADD_PER_CLAIM.value:
        by += f" ({holder.rule})"
    return f"{who} holds {format_short(holder.resource, holder.amount)} {by}"


def _removal(facts: AuditFacts, ledger: NodeLedger, resource: str, by: int) -> str:
    """Return the removal of the pods that lose least, with which the node is within its line; "" if none."""
    return remove_to_fit(facts, ledger, {resource: by})


def remove_to_fit(facts: AuditFacts, ledger: NodeLedger, shortages: Mapping[str, int]) -> str:
    """Return the removal of the pods that lose least and free these amounts of a node; "" if none."""
    snapshot = facts.cluster_state.snapshot
    resources = {name: by for name, by in shortages.items() if name != PODS}
    pods = least_harmful_pods(facts.cluster_state, ledger.name, resources) if resources else ()
    if PODS in shortages:
        others = (
            pod for pod in removable_pods(snapshot, snapshot.row_of(ledger.name) or 0) if pod not in pods
        )
        pods = (*pods, *islice(others, max(0, shortages[PODS] - len(pods))))
    after = ledger.clone()
    for pod in pods:
        after.remove_with_placeholders(pod)
    before, now = ledger.headroom(), after.headroom()
    fits = all(now.get(name, 0) >= before.get(name, 0) + by for name, by in shortages.items())
    return f"{_describe_removal(pods)}: {delete_pods(pods)}" if pods and fits else ""


def _describe_removal(pods: Sequence[Pod]) -> str:
    if len(pods) > 1:
        return f"delete the {len(pods)} pods with the least harm"
    owner = controller_of(pods[0].metadata)
    by = f"its {owner.kind}" if owner is not None else "nothing"
    return f"delete the pod with the least harm ({by} recreates it)"


# -- claims that are not charged


def find_nodes_past_line_uncounted(facts: AuditFacts) -> Iterator[CheckProblem]:
    by_node: dict[tuple[str, str], list[UncountedClaim]] = {}
    for uncounted in uncounted_claims(facts):
        by_node.setdefault((uncounted.node, uncounted.resource), []).append(uncounted)
    snapshot = facts.cluster_state.snapshot
    for (name, resource), found in sorted(by_node.items()):
        place = snapshot.row_of(name)
        if place is None:
            continue
        ledger = snapshot.ledger(place)
        booked, line = ledger.requested.get(resource, 0), ledger.allocatable.get(resource, 0)
        missing = sum(uncounted.missing for uncounted in found)
        if not booked <= line < booked + missing:
            continue
        sure = all(uncounted.sure for uncounted in found)
        what = "" if sure else "what looks like "
        yield CheckProblem(
            f"Node/{name}",
            f"{resource}: {format_short(resource, booked)} charged and "
            f"{what}{format_short(resource, missing)} taken by claims that are not charged, "
            f"of {format_short(resource, line)}: {format_short(resource, booked + missing - line)} over",
            tuple(map(_describe_uncounted, sorted(found, key=_largest_first))),
            _removal_uncounted(facts, ledger, found, booked + missing - line),
            resource,
            Severity.ERROR if sure else Severity.WARNING,
            proven=True,
        )


def find_claims_not_counted(facts: AuditFacts) -> Iterator[CheckProblem]:
    for uncounted in uncounted_claims(facts):
        taken = format_short(uncounted.resource, uncounted.taken)
        verb = "takes" if uncounted.sure else "seems to take"
        asked = format_short(uncounted.resource, uncounted.mirrored)
        state = f"is not charged, and its pods request {asked}"
        why = f"the device has {uncounted.why} and no mapping to {uncounted.resource}"
        if uncounted.charged:
            state = f"is charged {format_short(uncounted.resource, uncounted.charged)}"
            why = f"the device has {uncounted.why}, and DeviceClass {uncounted.device_class} maps it to less"
        elif uncounted.priced:
            why = "the charge of its mapping is not recorded with the pod (PLM005)"
        yield CheckProblem(
            subject_of(uncounted.claim),
            f"{verb} {uncounted.resource} {taken} of node {uncounted.node}, {state}",
            (why, *(f"used by Pod/{pod.metadata.full_name}" for pod in uncounted.pods[:3])),
            _fix_uncounted(facts, [uncounted]),
            uncounted.resource,
            Severity.WARNING if uncounted.sure else Severity.INFO,
            proven=True,
        )


def _removal_uncounted(
    facts: AuditFacts, ledger: NodeLedger, found: Sequence[UncountedClaim], by: int
) -> str:
    """Return the removal of pods that makes room, and the annotations that count the claims from then on."""
    fixes = _removal(facts, ledger, found[0].resource, by), _fix_uncounted(facts, found)
    return "; and ".join(filter(None, fixes))


def _fix_uncounted(facts: AuditFacts, found: Iterable[UncountedClaim]) -> str:
    """Return the fix with the annotations that would count these claims; empty if there are none."""
    classes = sorted({(each.device_class, each.driver) for each in found if not each.priced})
    suggested = [one for each in classes for one in facts.suggest_mappings(*each)]
    return describe_mappings(suggested, brief=True)


def _largest_first(uncounted: UncountedClaim) -> tuple[int, str]:
    return -uncounted.missing, uncounted.claim.metadata.full_name


def _describe_uncounted(uncounted: UncountedClaim) -> str:
    amount = format_short(uncounted.resource, uncounted.missing)
    mirrored = format_short(uncounted.resource, uncounted.mirrored)
    requested_text = f", {mirrored} of it requested" if uncounted.mirrored else ""
    return f"{subject_of(uncounted.claim)} takes {amount} uncounted{requested_text} ({uncounted.why})"


# -- claims that are counted twice


def find_claims_counted_twice(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in charged_claims(facts):
        charged_claim = each.recorded if each.any_recorded else each.priced
        if not isinstance(charged_claim, ChargedClaim):
            continue
        for resource, charge in charged_claim.charge.resources.items():
            if charge.quantity and _request_in_all(each.pod, resource) >= charge.quantity.nano:
                yield from _mirrored(facts, each, charged_claim, resource)


def _request_in_all(pod: Pod, resource: str) -> int:
    """Return the sum of what all containers request of a resource, in nano-units and rounded up."""
    total = 0
    for containers in (pod.spec.containers, pod.spec.init_containers):
        for container in containers:
            amount = container.resources.requests.get(resource)
            if amount is not None:
                total += units_to_nano(resource, to_unit(resource, amount))
    return total


def _mirrored(
    facts: AuditFacts, each: AuditedClaim, charged_claim: ChargedClaim, resource: str
) -> Iterator[CheckProblem]:
    amount = charged_claim.charge.resources[resource].quantity
    adding = charged_claim.policy(resource) in (
        AccountingPolicy.ADD_PER_CLAIM,
        AccountingPolicy.ADD_PER_REFERENCE,
    )
    pod = each.pod
    if amount is None or not amount or not adding or _is_covered(pod, resource):
        return
    whole = to_unit(resource, amount)
    asked = requests_with_claim(pod, each.claim.metadata.name, resource)
    total = sum(to_unit(resource, request) for _, request in asked)
    same = [name for name, request in asked if to_unit(resource, request) == whole]
    if total != whole and not same:
        return
    if not _is_made_of(facts, each, resource):
        return  # overhead of another device: an equal request is a coincidence
    who = same[0] if same else " and ".join(name for name, _ in asked)
    text = format_short(resource, whole)
    yield CheckProblem(
        subject_of(pod),
        f"{resource} {text} of claim {each.claim.metadata.name} seems to be copied into the requests: "
        f"{format_short(resource, 2 * whole)} is charged instead of {text}",
        (
            f"claim {each.claim.metadata.full_name} charges {resource} {text} "
            f"({charged_claim.policy(resource).value})",
            f"container {who} requests {resource} {text}",
        ),
        key=f"{each.claim.metadata.name}/{resource}",
    )


def _is_covered(pod: Pod, resource: str) -> bool:
    """Return whether a pod-level request covers requests and claims."""
    resources = pod.spec.resources
    return resources is not None and is_pod_level_resource(resource) and resource in resources.requests


def _is_made_of(facts: AuditFacts, each: AuditedClaim, resource: str) -> bool:
    """Return whether a device of the claim is an instance of the resource it charges, as CPUs are of cpu."""
    for result in each.claim.allocation_results:
        device = facts.device(DeviceId.of(result))
        if device is not None and any(like.resource == resource for like in taken_by(result, device)):
            return True
    return False


# -- recorded charges


def find_charges_not_recorded(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in charged_claims(facts):
        if each.recorded is not None or not isinstance(each.priced, ChargedClaim):
            continue
        if is_assumed(facts, each.claim):
            continue  # it cannot be recorded: the cluster has no such mapping
        amounts = format_amounts(amounts_of(each.priced))
        name = each.claim.metadata.name
        if each.any_recorded:
            message = (
                f"claim {name} should charge {amounts}, but the pod's other claims are recorded and it is not"
            )
            seen = "no scheduler counts it: only recorded charges count"
        else:
            message = f"claim {name} should charge {amounts}, but nothing is recorded with the pod"
            seen = "kube-scheduler does not count it; Plimsoll prices it from its devices"
        yield CheckProblem(
            subject_of(each.pod),
            message,
            (
                seen,
                f"on node {each.pod.spec.node_name}, devices {_devices(facts, each)}",
            ),
            key=name,
        )


def is_assumed(facts: AuditFacts, claim: ResourceClaim) -> bool:
    """Return whether the mappings of a claim's devices are assumed (`--assume-mapping`)."""
    mappings = facts.cluster_state.assumed_mappings
    drivers = {result.driver for result in claim.allocation_results}
    return mappings is not None and drivers <= mappings.drivers.keys()


def _devices(facts: AuditFacts, each: AuditedClaim) -> str:
    return ", ".join(list_charged_devices(facts, each.pod, each.claim))


def find_charges_that_differ(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in charged_claims(facts):
        if each.recorded is None or isinstance(each.priced, Reason):
            continue
        if each.priced is not None and each.recorded.charge.resources == each.priced.charge.resources:
            continue
        before = amounts_of(each.recorded)
        now = {} if each.priced is None else amounts_of(each.priced)
        if before == now or is_of_other_driver(facts, each):
            continue
        yield CheckProblem(
            subject_of(each.pod),
            f"claim {each.claim.metadata.name} is charged {format_amounts(before)}; "
            f"a new pod would be charged {format_amounts(now)}",
            ("the recorded charge of a running pod does not change",),
            key=each.claim.metadata.name,
        )


def find_charges_unknown(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in charged_claims(facts):
        reason = each.priced
        if not isinstance(reason, Reason) or reason.cause in _REPORTED_ELSEWHERE:
            continue
        yield CheckProblem(
            subject_of(each.claim),
            f"what it charges to node {each.pod.spec.node_name} cannot be computed: {format_reason(reason)}",
            (f"used by Pod/{each.pod.metadata.full_name}",),
            key=reason.resource,
        )


#: By the checks of devices and of classes.
_REPORTED_ELSEWHERE = (Cause.DEVICE_NOT_IN_POOL, Cause.DEVICE_NOT_OF_DRIVER, Cause.BAD_ANNOTATION)


CHECKS = {
    "PLM001": find_nodes_past_line,
    "PLM002": find_nodes_past_line_uncounted,
    "PLM003": find_claims_not_counted,
    "PLM004": find_claims_counted_twice,
    "PLM005": find_charges_not_recorded,
    "PLM006": find_charges_that_differ,
    "PLM007": find_charges_unknown,
}
