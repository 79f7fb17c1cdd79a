"""`audit`: run the checks on a cluster state. A pure function of state, checks and time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import length_hint

from plimsoll.api.forms import Form, device_forms
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import InputError
from plimsoll.tools.audit.checks import CHECKS
from plimsoll.tools.audit.facts import AuditFacts, is_live
from plimsoll.tools.audit.findings import Check, finding_order, make_finding
from plimsoll.tools.audit.report import AuditReport, SkippedCheck
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.findings import Finding


def audit(
    cluster_state: ClusterState,
    *,
    checks: Iterable[Check] | None = None,
    now: float | None = None,
    live: bool | None = None,
    tick: ProgressCallback = no_progress,
) -> AuditReport:
    """Run the given checks, by default all.

    `now` is the time for age-based checks, in seconds since 1970. `live` means that kinds without objects are
    really empty; a dump may lack them. `tick` is called before each check.
    """
    return audit_facts(find_facts(cluster_state, now=now, live=live), checks=checks, tick=tick)


def find_facts(
    cluster_state: ClusterState, *, now: float | None = None, live: bool | None = None
) -> AuditFacts:
    """Return what the checks read, which is computed as they read it; arguments as of `audit`."""
    timestamp = datetime.now(UTC).timestamp() if now is None else now
    return AuditFacts(cluster_state, timestamp, live=is_live(cluster_state) if live is None else live)


def audit_facts(
    facts: AuditFacts, *, checks: Iterable[Check] | None = None, tick: ProgressCallback = no_progress
) -> AuditReport:
    """Run the given checks, by default all."""
    chosen = CHECKS if checks is None else checks
    with without_collection():  # checks keep what they compute, and make no cycles
        findings, run, skipped = _run(chosen, facts, tick)
        return AuditReport(
            tuple(sorted(findings, key=finding_order)),
            tuple(run),
            tuple(skipped),
            facts.cluster_state.origin,
            _size(facts),
            _forms(facts),
        )


def _run(
    checks: Iterable[Check], facts: AuditFacts, tick: ProgressCallback
) -> tuple[list[Finding], list[Check], list[SkippedCheck]]:
    """Return the findings, the checks that ran, and those that could not."""
    findings: list[Finding] = []
    run: list[Check] = []
    skipped: list[SkippedCheck] = []
    # An iterator is read check by check: it may end the audit.
    count = length_hint(checks, len(CHECKS))
    for number, check in enumerate(checks):
        tick("checks", number, count)
        why = facts.lacks(check.needs)
        if why:
            skipped.append(SkippedCheck(check.id, check.name, why))
            continue
        run.append(check)
        findings += (make_finding(check, problem) for problem in check.run(facts))
    return findings, run, skipped


def choose_checks(only: Iterable[str] = (), skip: Iterable[str] = ()) -> tuple[Check, ...]:
    """Return the checks in `only` except those in `skip`. Raise InputError for an unknown name."""
    wanted, unwanted = [find_check(name) for name in only], [find_check(name) for name in skip]
    return tuple(check for check in CHECKS if (not wanted or check in wanted) and check not in unwanted)


def find_check(name: str) -> Check:
    """Return the check with this ID or name."""
    for check in CHECKS:
        if check.has_name(name):
            return check
    raise InputError(f"unknown check {name}; see plimsoll audit --list")


def _size(facts: AuditFacts) -> dict[str, int]:
    return {
        "node": len(facts.nodes),
        "pod": len(facts.pods),
        "claim": len(facts.claims),
        "device": sum(len(pool.devices) for pool in facts.pools.values()),
    }


def _forms(facts: AuditFacts) -> tuple[str, ...]:
    found: set[Form] = set()
    devices = {id(device): device for pool in facts.pools.values() for _, device in pool.devices.values()}
    for device in devices.values():
        found.update(device_forms(device))
    return tuple(sorted(form.value for form in found))
