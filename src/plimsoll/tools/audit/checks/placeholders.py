"""Checks of placeholder pods against the charges that they stand for."""

from __future__ import annotations

from collections.abc import Iterator

from plimsoll.api.timestamps import parse_time
from plimsoll.ledger.placeholders import OwnerKind
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


CHECKS = {
    "PLM018": find_missing_placeholders,
    "PLM019": find_faulty_placeholders,
}
