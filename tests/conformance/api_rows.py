"""Rows of the suites `validation` and `field-dropping` as writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation import PreparedObject, Write, prepare

#: The time of every write; field-dropping rows write it as `<now>`.
NOW = datetime(2025, 7, 1, 9, 30, tzinfo=UTC)
NOW_TEXT = "2025-07-01T09:30:00Z"


def prepare_row(row: dict[str, Any]) -> PreparedObject:
    """Run a row through the pipeline, with exactly the gates it says.

    Rows name the DRA gates only; for the others the defaults of Kubernetes 1.36 hold. The set is made
    directly, because rows may hold combinations that a whole cluster would refuse.
    """
    on = {gate.name for gate, enabled in Gates.upstream() if enabled}
    on |= {name for name, enabled in row["gates"].items() if enabled}
    on -= {name for name, enabled in row["gates"].items() if not enabled}
    write = Write(
        kind=row["kind"],
        operation=row["op"],
        subresource=row.get("subresource", ""),
        object=row["object"],
        old=row.get("oldObject"),
        gates=Gates(frozenset(on)),
        namespace_labels=row.get("namespaceLabels") or {},
        now=NOW,
    )
    return prepare(write)
