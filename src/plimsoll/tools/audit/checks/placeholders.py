"""Checks of placeholder pods against the charges that they stand for."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.forms import read_status
from plimsoll.api.forms.annotations import POD_KEY
from plimsoll.api.timestamps import parse_time
from plimsoll.ledger.placeholders import OwnerKind
from plimsoll.ledger.placement import find_missing_placeholders as find_missing_placeholders_on
from plimsoll.ledger.requests import pod_requests
from plimsoll.ledger.units import add_units, to_units
from plimsoll.tools.audit.checks.ledgers import remove_to_fit
from plimsoll.tools.audit.facts import GRACE_SECONDS, AuditFacts
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.audit.remedies import delete_pods
from plimsoll.tools.placeholders import find_faulty, find_missing, format_units, with_missing


def find_missing_placeholders(facts: AuditFacts) -> Iterator[CheckProblem]:
    snapshot = facts.cluster_state.snapshot
    for row in snapshot.rows():
        missing = find_missing(facts.cluster_state, row)
        if not missing:
            continue
        ledger, lacking = with_missing(snapshot.ledger(row), missing)
        fix = remove_to_fit(facts, ledger, lacking) if lacking else ""
        for each in missing:
            evidence = []
            if each.owner.kind is OwnerKind.CLAIM:
                evidence.append(f"used by Pod/{each.pod.metadata.full_name}")
            short = {name: by for name, by in lacking.items() if name in each.units or not each.units}
            short = short or lacking
            if short:
                evidence.append(f"node {ledger.name} has {format_units(short)} too little for it")
            owner = each.owner
            yield CheckProblem(
                f"{owner.kind.value}/{owner.namespace}/{owner.name}",
                each.text,
                tuple(evidence),
                fix,
                key=each.placeholder.metadata.name,
                proven=True,
            )


def find_faulty_placeholders(facts: AuditFacts) -> Iterator[CheckProblem]:
    snapshot = facts.cluster_state.snapshot
    for row in snapshot.rows():
        for pod, fault, text in find_faulty(facts.cluster_state, row):
            created = parse_time(pod.metadata.creation_timestamp)
            if created is not None and facts.latest - created < GRACE_SECONDS:
                continue  # its pod may not be bound yet
            yield CheckProblem(
                f"Pod/{pod.metadata.full_name}",
                f"is the placeholder of {text}",
                fix=f"delete the placeholder; the scheduler creates what is needed: {delete_pods([pod])}",
                key=fault.name,
            )


def find_unseen_charges(facts: AuditFacts) -> Iterator[CheckProblem]:
    """Find nodes whose pods have charges that the API server dropped, where no placeholder shows them."""
    if facts.cluster_state.uses_placeholders:
        return
    snapshot = facts.cluster_state.snapshot
    for row in snapshot.rows():
        ledger = snapshot.ledger(row)
        missing = {
            placeholder.metadata.name: (pod, placeholder)
            for pod, placeholder in find_missing_placeholders_on(ledger)
            if POD_KEY in pod.metadata.annotations and not read_status(pod.status)
        }
        if not missing:
            continue
        units: dict[str, int] = {}
        for _, placeholder in missing.values():
            add_units(units, to_units(pod_requests(placeholder)))
        names = sorted({pod.metadata.full_name for pod, _ in missing.values()})
        yield CheckProblem(
            f"Node/{ledger.name}",
            f"kube-scheduler and the kubelet do not count {format_units(units)} that claims take: the API "
            "server drops the charges of claims",
            tuple(f"charged in an annotation only: Pod/{name}" for name in names),
        )


CHECKS = {
    "PLM018": find_missing_placeholders,
    "PLM019": find_faulty_placeholders,
    "PLM065": find_unseen_charges,
}
