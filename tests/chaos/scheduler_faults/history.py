"""History of a cluster, replayed change by change against the invariants."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.chaos.scheduler_faults.invariants import Violation, find_violations
from tests.chaos.scheduler_faults.objects import (
    ClusterObjects,
    Tree,
    claim_names,
    is_finished,
    key_of,
    recorded_charges,
)

PODS, CLAIMS = "pods", "claims"


@dataclass(frozen=True, slots=True)
class Change:
    """Object as of a resource version; `deleted` if that version deleted it."""

    revision: int
    kind: str
    tree: Tree
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """Violation, with the resource versions between which it lasted."""

    violation: Violation
    first: int
    last: int | None  #: None: to the end

    def __str__(self) -> str:
        return f"{self.violation} (from {self.first} to {self.last or 'the end'})"


def replay(changes: Iterable[Change], constant: ClusterObjects) -> list[Finding]:
    """Return every violation that any state of the history shows.

    Resource versions of one server order the changes of all its objects; `constant` has those that do not
    change.
    """
    state: dict[str, dict[tuple[str, str], Tree]] = {PODS: {}, CLAIMS: {}}
    present: dict[Violation, int] = {}
    found: list[Finding] = []
    for change in sorted(changes, key=lambda each: each.revision):
        objects, key = state[change.kind], key_of(change.tree)
        before = objects.get(key)
        if change.deleted:
            objects.pop(key, None)
        else:
            objects[key] = change.tree
        if _relevant(change.kind, before) == _relevant(change.kind, objects.get(key)):
            continue
        pods, claims = list(state[PODS].values()), list(state[CLAIMS].values())
        now = set(find_violations(replace(constant, pods=pods, claims=claims)))
        for violation in present.keys() - now:
            found.append(Finding(violation, present.pop(violation), change.revision))
        for violation in now - present.keys():
            present[violation] = change.revision
    found += [Finding(violation, first, None) for violation, first in present.items()]
    return sorted(found, key=lambda each: (each.first, str(each.violation)))


def _relevant(kind: str, tree: Tree | None) -> Any:
    """Return the part of an object that the invariants read."""
    if tree is None:
        return None
    status = tree.get("status") or {}
    if kind == CLAIMS:
        return status.get("allocation"), status.get("reservedFor")
    uid, spec = tree["metadata"]["uid"], tree["spec"]
    return uid, spec, is_finished(tree), claim_names(tree), recorded_charges(tree)


def write_history(changes: Iterable[Change], path: Path) -> None:
    """Write the changes in order, one JSON document per line, to analyze a violation."""
    with path.open("w") as file:
        for change in sorted(changes, key=lambda each: each.revision):
            head = {"revision": change.revision, "kind": change.kind, "deleted": change.deleted}
            file.write(json.dumps({**head, "object": change.tree}) + "\n")
