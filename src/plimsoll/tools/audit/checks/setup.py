"""Checks of the configuration: rules and classes that select too much, and references to missing objects."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from plimsoll.api.forms import read_device_class
from plimsoll.api.forms.annotations import CLASS_KEY, POD_KEY, find_pod_problem
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.resource import DeviceRequest, ResourceClaimSpec
from plimsoll.tools.audit.facts import AuditFacts, subject_of
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.audit.identity_cache import IdentityCache
from plimsoll.tools.findings import Severity


def find_rules_for_everything(facts: AuditFacts) -> Iterator[CheckProblem]:
    for rule in facts.rules:
        selector = rule.spec.device_selector
        if selector is None or any((selector.driver, selector.pool, selector.device)):
            continue
        taint = rule.spec.taint
        devices = sum(len(pool.devices) for pool in facts.pools.values())
        claims = [claim for claim in facts.claims.values() if claim.status.allocation is not None]
        pods = {pod.metadata.full_name for claim in claims for pod in facts.users.get(claim.metadata.key, ())}
        evicts = taint.effect == "NoExecute"
        verb = "evicts every pod with a device" if evicts else "keeps every device from being allocated"
        if taint.effect not in ("NoExecute", "NoSchedule"):
            verb = f"taints every device ({taint.effect or 'no effect'})"
        yield CheckProblem(
            subject_of(rule),
            f"has an empty selector and {verb}",
            (f"{devices} devices, {len(claims)} allocated claims and {len(pods)} pods are affected",),
            f"name a driver, pool or device in spec.deviceSelector, or: "
            f"kubectl delete devicetaintrule {rule.metadata.name}",
            severity=Severity.ERROR if evicts else Severity.WARNING,
        )


def find_classes_for_everything(facts: AuditFacts) -> Iterator[CheckProblem]:
    drivers = sorted({id.driver for id in facts.pools})
    for device_class in facts.classes.values():
        if device_class.spec.selectors:
            continue
        several = len(drivers) > 1
        text = f"drivers: {', '.join(drivers[:6])}" if drivers else "no driver publishes devices"
        yield CheckProblem(
            subject_of(device_class),
            f"has no selectors: it matches all devices of all {len(drivers)} drivers",
            (text,),
            'add a selector, such as device.driver == "DRIVER"',
            severity=Severity.WARNING if several else Severity.INFO,
        )


def find_classes_missing(facts: AuditFacts) -> Iterator[CheckProblem]:
    known: IdentityCache[list[str]] = IdentityCache()
    for thing, spec in (
        *((claim, claim.spec) for claim in facts.claims.values()),
        *((each, each.spec.spec) for each in facts.templates.values()),
    ):
        for name in known.get(spec, partial(_find_missing_classes, facts, spec)):
            yield CheckProblem(
                subject_of(thing),
                f"requests devices of class {name}, which does not exist",
                (f"existing classes: {', '.join(list(facts.classes)[:8]) or 'none'}",),
                key=name,
            )


def _find_missing_classes(facts: AuditFacts, spec: ResourceClaimSpec) -> list[str]:
    return sorted({name for name in _classes(spec.devices.requests) if name and name not in facts.classes})


def _classes(requests: tuple[DeviceRequest, ...]) -> Iterator[str]:
    for request in requests:
        if request.exactly is not None:
            yield request.exactly.device_class_name
        for sub in request.first_available:
            yield sub.device_class_name


def find_names_missing(facts: AuditFacts) -> Iterator[CheckProblem]:
    """Find pending pods that reference a missing claim or template; bound pods have other checks."""
    templates_known = not facts.lacks(("resourceclaimtemplates",))
    claims_known = not facts.lacks(("resourceclaims",))
    for pod in sorted(facts.cluster_state.pending, key=lambda pod: pod.metadata.full_name):
        names = resolve_claim_names(pod)
        space = pod.metadata.namespace
        for reference in pod.spec.resource_claims:
            template = reference.resource_claim_template_name
            claim_name = names.get(reference.name, "")
            if template and not claim_name and templates_known and (space, template) not in facts.templates:
                message = f"is pending: claim template {template} does not exist"
                fix = f"create ResourceClaimTemplate {template} in namespace {space}, or correct the pod"
                yield CheckProblem(subject_of(pod), message, (), fix, reference.name)
            elif reference.resource_claim_name and claims_known and (space, claim_name) not in facts.claims:
                message = f"is pending: claim {claim_name} does not exist"
                fix = f"create ResourceClaim {claim_name} in namespace {space}, or correct the pod"
                yield CheckProblem(subject_of(pod), message, (), fix, reference.name)


def find_annotations_unreadable(facts: AuditFacts) -> Iterator[CheckProblem]:
    for device_class in facts.classes.values():
        problem = read_device_class(device_class).problem
        if problem:
            detail = problem.partition(f"annotation {CLASS_KEY}: ")[2] or problem
            yield CheckProblem(
                subject_of(device_class),
                f"annotation {CLASS_KEY} is invalid: {detail}",
                ("no device of this class is allocated until it is corrected",),
                key=CLASS_KEY,
            )
    for pod in facts.pods.values():
        pod_problem = find_pod_problem(pod) if pod.metadata.annotations else None
        if pod_problem is not None and uses_claims(pod):
            yield CheckProblem(
                subject_of(pod),
                f"annotation {POD_KEY} is invalid: {pod_problem}",
                ("its claims are priced from their devices instead",),
                f"kubectl annotate pod -n {pod.metadata.namespace} {pod.metadata.name} {POD_KEY}-",
                POD_KEY,
                Severity.WARNING,
            )


CHECKS = {
    "PLM060": find_rules_for_everything,
    "PLM061": find_classes_for_everything,
    "PLM062": find_classes_missing,
    "PLM063": find_names_missing,
    "PLM064": find_annotations_unreadable,
}
