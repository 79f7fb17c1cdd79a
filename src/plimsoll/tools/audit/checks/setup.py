"""Checks of the configuration: rules and classes that select too much, and references to missing objects."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.forms import read_device_class
from plimsoll.api.forms.annotations import CLASS_KEY, POD_KEY, find_pod_problem
from plimsoll.api.resource import DeviceRequest
from plimsoll.ledger.claims import resolve_claim_names
from plimsoll.tools.audit.facts import AuditFacts, key_of, name_of, subject_of
from plimsoll.tools.audit.findings import AuditSeverity, Check, CheckProblem


def find_rules_for_everything(facts: AuditFacts) -> Iterator[CheckProblem]:
    for rule in facts.rules:
        selector = rule.spec.device_selector
        if selector is None or any((selector.driver, selector.pool, selector.device)):
            continue
        taint = rule.spec.taint
        devices = sum(len(pool.devices) for pool in facts.pools.values())
        claims = [claim for claim in facts.claims.values() if claim.status.allocation is not None]
        pods = {name_of(pod) for claim in claims for pod in facts.users.get(key_of(claim), ())}
        evicts = taint.effect == "NoExecute"
        verb = "evicts every pod with a device" if evicts else "keeps every device from being allocated"
        if taint.effect not in ("NoExecute", "NoSchedule"):
            verb = f"taints every device ({taint.effect or 'no effect'})"
        yield CheckProblem(
            subject_of(rule),
            f"has an empty selector and {verb}",
            (f"{devices} devices, {len(claims)} allocated claims and {len(pods)} pods are concerned",),
            f"name a driver, pool or device in spec.deviceSelector, or: "
            f"kubectl delete devicetaintrule {rule.metadata.name}",
            severity=AuditSeverity.ERROR if evicts else AuditSeverity.WARNING,
        )


def find_classes_for_everything(facts: AuditFacts) -> Iterator[CheckProblem]:
    drivers = sorted({id.driver for id in facts.pools})
    for device_class in facts.classes.values():
        if device_class.spec.selectors:
            continue
        several = len(drivers) > 1
        text = f"drivers: {', '.join(drivers[:6])}" if drivers else "no driver publishes devices now"
        yield CheckProblem(
            subject_of(device_class),
            f"has no selectors: a request for it gets any device of any driver (there are {len(drivers)})",
            (text,),
            'give it a selector, such as device.driver == "DRIVER"',
            severity=AuditSeverity.WARNING if several else AuditSeverity.INFO,
        )


def find_classes_missing(facts: AuditFacts) -> Iterator[CheckProblem]:
    for thing, requests in (
        *((claim, claim.spec.devices.requests) for claim in facts.claims.values()),
        *((each, each.spec.spec.devices.requests) for each in facts.templates.values()),
    ):
        missing = sorted({name for name in _classes(requests) if name and name not in facts.classes})
        for name in missing:
            yield CheckProblem(
                subject_of(thing),
                f"asks for devices of class {name}, which does not exist",
                (f"there are: {', '.join(list(facts.classes)[:8]) or 'none'}",),
                key=name,
            )


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
    for pod in sorted(facts.cluster_state.pending, key=name_of):
        names = resolve_claim_names(pod)
        space = pod.metadata.namespace
        for reference in pod.spec.resource_claims:
            template = reference.resource_claim_template_name
            made = names.get(reference.name, "")
            if template and not made and templates_known and (space, template) not in facts.templates:
                message = f"waits for a claim from template {template}, which does not exist"
                fix = f"create ResourceClaimTemplate {template} in namespace {space}, or correct the pod"
                yield CheckProblem(subject_of(pod), message, (), fix, reference.name)
            elif reference.resource_claim_name and claims_known and (space, made) not in facts.claims:
                message = f"waits for claim {made}, which does not exist"
                fix = f"create ResourceClaim {made} in namespace {space}, or correct the pod"
                yield CheckProblem(subject_of(pod), message, (), fix, reference.name)


def find_annotations_unreadable(facts: AuditFacts) -> Iterator[CheckProblem]:
    for device_class in facts.classes.values():
        problem = read_device_class(device_class).problem
        if problem:
            detail = problem.partition(f"annotation {CLASS_KEY}: ")[2] or problem
            yield CheckProblem(
                subject_of(device_class),
                f"annotation {CLASS_KEY} cannot be used: {detail}",
                ("no device of this class is handed out while it is so",),
                key=CLASS_KEY,
            )
    for pod in sorted(facts.pods.values(), key=name_of):
        trouble = find_pod_problem(pod) if pod.metadata.annotations else None
        if trouble is not None and pod.spec.resource_claims:
            yield CheckProblem(
                subject_of(pod),
                f"annotation {POD_KEY} cannot be used: {trouble}",
                ("its claims are priced from their devices instead",),
                f"kubectl annotate pod -n {pod.metadata.namespace} {pod.metadata.name} {POD_KEY}-",
                POD_KEY,
                AuditSeverity.WARNING,
            )


CHECKS = (
    Check(
        "PLM060",
        "taint-rule-for-everything",
        AuditSeverity.ERROR,
        "a DeviceTaintRule has an empty selector: it taints every device of the cluster",
        "An empty deviceSelector means all devices of all drivers. With the effect NoExecute every pod "
        "with a device is evicted at once, which has happened. A rule without deviceSelector taints "
        "nothing.",
        "name a driver, pool or device in spec.deviceSelector, or delete the rule",
        find_rules_for_everything,
    ),
    Check(
        "PLM061",
        "class-without-selectors",
        AuditSeverity.WARNING,
        "a DeviceClass has no selectors: a request for it gets any device",
        "Without selectors a class stands for every device of every driver: a pod that asks for it for a "
        "network card may get a GPU. Information only while one driver has all devices.",
        "give the class a selector",
        find_classes_for_everything,
        ("deviceclasses",),
    ),
    Check(
        "PLM062",
        "class-missing",
        AuditSeverity.WARNING,
        "a claim or template asks for a DeviceClass that does not exist",
        "Nothing can be allocated for such a request. In a prioritized list one alternative of a missing "
        "class keeps the others from being used as well.",
        "create the class, or correct deviceClassName",
        find_classes_missing,
        ("deviceclasses",),
    ),
    Check(
        "PLM063",
        "name-missing",
        AuditSeverity.WARNING,
        "a pod waits for a claim or a template that does not exist",
        "The pod is held back before it is scheduled, without a condition that says why. It goes on by "
        "itself as soon as the claim or the template is there.",
        "create what is missing, or correct the pod",
        find_names_missing,
        ("pods",),
    ),
    Check(
        "PLM064",
        "annotation-unreadable",
        AuditSeverity.ERROR,
        "an annotation that says what devices charge cannot be used",
        "On clusters without the fields a DeviceClass says in an annotation what its devices charge, and a"
        " pod carries what it was charged. A class whose annotation cannot be read hands out nothing: "
        "wrong charges would be worse. A pod's annotation that cannot be read is a warning: its claims are"
        " priced anew.",
        "correct the annotation; docs/ledger.md has its form",
        find_annotations_unreadable,
    ),
)
