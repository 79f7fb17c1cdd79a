"""Checkpoints of a node: prepared claims, admitted pods, and the kubelet's claim checkpoint.

Read-only; damaged files are quarantined by the next agent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from plimsoll.common.checkpoint import SIZE_MAX, read
from plimsoll.node.admission.admission_handler import KIND as ADMITTED_KIND
from plimsoll.node.admission.admission_handler import read_admitted_pods
from plimsoll.node.claim_info import ClaimInfo
from plimsoll.node.claims import kubelet_checkpoint as kubelet_file
from plimsoll.node.claims.checkpoint import KIND as CLAIMS_KIND
from plimsoll.node.claims.checkpoint import VERSION, decode_body
from plimsoll.node.layout import Layout
from plimsoll.tools.columns import format_count
from plimsoll.tools.doctor.facts import NodeFacts, RecordFact, RecordFacts
from plimsoll.tools.doctor.files import read_file, size_text, stat_entry
from plimsoll.tools.doctor.findings import command, error, finding, move_away, note, ok, warning
from plimsoll.tools.findings import Finding, Severity

_ADMITTED_VERSION = 1
_OTHERS = 0o077


def gather(layout: Layout) -> RecordFacts:
    body, claims = _record(layout.claims, CLAIMS_KIND, VERSION)
    prepared: tuple[ClaimInfo, ...] = ()
    if claims.entry.exists and not claims.problem:
        try:
            prepared = decode_body(body).claims
        except ValueError as problem:
            claims = replace(claims, problem=str(problem))
    body, admitted = _record(layout.admitted, ADMITTED_KIND, _ADMITTED_VERSION)
    pods = _admitted(body)
    kubelet, theirs = _kubelet(layout.kubelet_claims)
    return RecordFacts(
        claims=replace(claims, count=len(prepared)),
        admitted=replace(admitted, count=len(pods)),
        kubelet=kubelet,
        prepared=prepared if claims.entry.exists else theirs,
        pods=pods,
    )


def _record(path: Path, kind: str, version: int) -> tuple[Any, RecordFact]:
    entry = stat_entry(path)
    if not entry.exists:
        return None, RecordFact(entry=entry)
    raw, problem = read_file(path, SIZE_MAX)
    if problem:
        return None, RecordFact(entry=entry, problem=problem)
    found = _version(raw)
    body, problem = read(raw, kind, version, {})
    newer = found is not None and found > version and problem != ""
    return body, RecordFact(entry=entry, problem=problem, newer=newer, version=found)


def _version(raw: bytes) -> int | None:
    try:
        tree = msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        return None
    found = tree.get("version") if isinstance(tree, dict) else None
    return found if type(found) is int else None


def _admitted(body: Any) -> dict[str, str]:
    """Return the pods of a record by UID, with names where known."""
    names: dict[str, str] = {}
    rows = body.get("pods") if isinstance(body, Mapping) else None
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and isinstance(row.get("uid"), str):
            name = row.get("name")
            names[row["uid"]] = f"{row.get('namespace')}/{name}" if isinstance(name, str) else ""
    return {uid: names.get(uid, "") for uid, _ in read_admitted_pods(body)}


def _kubelet(path: Path) -> tuple[RecordFact, tuple[ClaimInfo, ...]]:
    entry = stat_entry(path)
    if not entry.exists:
        return RecordFact(entry=entry), ()
    raw, problem = read_file(path, SIZE_MAX)
    if problem:
        return RecordFact(entry=entry, problem=problem), ()
    decoded = kubelet_file.decode(raw)
    problem = decoded.error or decoded.claims_error
    claims = tuple(map(kubelet_file.to_prepared, decoded.claims or ()))
    return RecordFact(entry=entry, problem=problem, count=len(claims)), claims


# -- checks


def check(facts: NodeFacts) -> Iterator[Finding]:
    records = facts.records
    if not facts.is_kubelet:
        yield from _check_record(facts, records.claims, "records.claims", "prepared claims")
        yield from _check_record(facts, records.admitted, "records.admitted", "admitted pods")
    yield from _check_kubelet(facts)
    yield from _check_claims(facts)


def _check_record(facts: NodeFacts, record: RecordFact, id: str, what: str) -> Iterator[Finding]:
    entry, subject = record.entry, str(record.entry.path)
    if not entry.exists:
        yield ok(id, subject, f"does not exist: no {what} yet")
    elif record.newer:
        fix = f"run the newer version, or start over: {move_away(entry.path, facts.layout.quarantine)}"
        yield error(id, subject, record.problem, fix)
    elif record.problem:
        fix = "start the agent: it quarantines the file and rebuilds its content"
        if facts.running:
            fix = "the agent has its content in memory and writes it again at the next change"
        yield error(id, subject, f"not usable: {record.problem}", fix)
    elif entry.mode & _OTHERS:
        fix = f"other users can read it: {command('chmod', '0600', entry.path)}"
        yield warning(id, subject, f"its mode is {entry.mode:04o}", fix)
    else:
        text = f"version {record.version}, checksum valid, {record.count} {what}, {size_text(entry.size)}"
        yield ok(id, subject, text)


def _check_kubelet(facts: NodeFacts) -> Iterator[Finding]:
    record = facts.records.kubelet
    entry, subject = record.entry, str(record.entry.path)
    if not entry.exists:
        return
    if record.problem and facts.is_kubelet:
        stop = "stop the kubelet; " if facts.running else ""
        fix = f"no kubelet can start with it; without it, claims are prepared again: {stop}"
        fix += move_away(entry.path, facts.layout.quarantine)
        yield error("records.kubelet", subject, f"not usable: {record.problem}", fix)
    elif record.problem:
        text = f"a kubelet checkpoint that is not usable: {record.problem}"
        yield note("records.kubelet", subject, text, "remove it once the pods' claims are prepared")
    elif facts.is_kubelet:
        yield ok("records.kubelet", subject, f"checksum valid, {record.count} prepared claims")
    else:
        taken = "not used: the agent has its own record"
        if not facts.records.claims.entry.exists:
            taken = "taken over by the next agent"
        yield note("records.kubelet", subject, f"{record.count} prepared claims of a kubelet, {taken}")


def _check_claims(facts: NodeFacts) -> Iterator[Finding]:
    """Compare the record of prepared claims with existing pods and drivers."""
    records = facts.records
    if not records.claims_known or not records.prepared:
        return
    known = _known_pods(facts)
    bad = False
    # A running agent releases claims itself.
    severity = Severity.INFO if facts.running else Severity.WARNING
    for claim in records.prepared:
        strange = sorted(claim.pods - known) if known is not None else []
        if not claim.pods:
            text = "no pod uses it"
        elif len(strange) == len(claim.pods):
            text = f"none of its {len(strange)} pods exists here, such as {strange[0]}"
        elif strange:
            text = f"{len(strange)} of its {len(claim.pods)} pods do not exist here, such as {strange[0]}"
        else:
            continue
        bad = True
        fix = (
            "start the agent: it releases the claim through its drivers"
            if not facts.running
            else "the agent releases it"
        )
        yield finding("records.users", severity, f"{claim.ref} ({claim.ref.uid})", text, fix)
    yield from _check_drivers(facts)
    if not bad:
        yield ok("records.users", f"{len(records.prepared)} claims", "all of their pods exist")


def _check_drivers(facts: NodeFacts) -> Iterator[Finding]:
    """Report drivers of prepared claims that are not registered."""
    counts = Counter(
        driver for claim in facts.records.prepared for driver in {*claim.drivers, *claim.pending}
    )
    for driver, count in sorted(counts.items()):
        if driver not in facts.sockets.served:
            # Without an agent, drivers may be stopped as well.
            make = warning if facts.running else note
            text = f"is not registered; has {format_count(count, 'claim')} on this node"
            yield make("records.driver", driver, text, "start the driver: only it can release them")


def _known_pods(facts: NodeFacts) -> frozenset[str] | None:
    """Return the UIDs of the node's pods, or None if unknown."""
    directories = {pod.uid for pod in facts.pods.pods}
    if facts.is_kubelet:
        return frozenset(directories) if not facts.pods.error else None
    return frozenset((*facts.records.pods, *directories)) if facts.records.admitted.usable else None
