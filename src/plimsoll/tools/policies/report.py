"""`PoliciesReport`: charges of nodes and pods by policy, and the pods each policy would refuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api.forms import AccountingPolicy
from plimsoll.ledger.messages import format_reason
from plimsoll.ledger.verdict import Reason
from plimsoll.tools.amounts import format_amount, format_short, resource_order
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count, wrap_text
from plimsoll.tools.top.table import Cell, Table

AS_IS = "as it is"
POLICIES = (
    AccountingPolicy.ADD_PER_CLAIM,
    AccountingPolicy.ADD_PER_REFERENCE,
    AccountingPolicy.MAX,
    AccountingPolicy.CONSUME_FROM,
)
#: The columns: the cluster as it is, then under each policy.
COLUMNS = (AS_IS, *(policy.value for policy in POLICIES))
#: Column heading and short description.
HEADINGS = {
    AS_IS: ("NOW", "the charges of today"),
    "AddPerClaim": ("ADD/CLAIM", "requests plus claims, each claim once"),
    "AddPerReference": ("ADD/REF", "requests plus claims, once per referencing container"),
    "Max": ("MAX", "the larger of requests and claims"),
    "ConsumeFrom": ("CONSUME", "claims; requests draw from them"),
}
#: Rows of each table by default.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class NodeCharges:
    """Charged amounts of one node resource by column, in ledger units."""

    node: str
    resource: str
    line: int
    charged: Mapping[str, int]

    def left(self, column: str) -> int:
        return self.line - self.charged[column]

    @property
    def differs(self) -> bool:
        return len(set(self.charged.values())) > 1

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "resource": self.resource,
            "allocatable": format_amount(self.resource, self.line),
            "charged": {name: format_amount(self.resource, amount) for name, amount in self.charged.items()},
            "headroom": {name: format_amount(self.resource, self.left(name)) for name in self.charged},
        }


@dataclass(frozen=True, slots=True)
class PodCharges:
    """Charges of a pod with claims for one resource; without `pod`, a pool that several pods share."""

    namespace: str
    pod: str
    node: str
    resource: str
    claims: tuple[str, ...]
    requests: int  #: of its containers, or at pod level
    claimed: int  #: total of its claims
    references: int  #: containers that reference any of the claims
    charged: Mapping[str, int] = field(default_factory=dict)

    @property
    def differs(self) -> bool:
        return len(set(self.charged.values())) > 1

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.pod or 'claim/' + self.claims[0]}"

    def as_json(self) -> dict[str, Any]:
        return {
            "namespace": self.namespace,
            "pod": self.pod or None,
            "node": self.node,
            "resource": self.resource,
            "claims": list(self.claims),
            "requests": format_amount(self.resource, self.requests),
            "claimed": format_amount(self.resource, self.claimed),
            "references": self.references,
            "charged": {name: format_amount(self.resource, amount) for name, amount in self.charged.items()},
        }


@dataclass(frozen=True, slots=True)
class PolicyRefusal:
    """Pod that a policy's rules would not admit to its node."""

    column: str
    namespace: str
    pod: str
    node: str
    reason: Reason

    def as_json(self) -> dict[str, Any]:
        return {
            "under": self.column,
            "namespace": self.namespace,
            "pod": self.pod,
            "node": self.node,
            "reason": format_reason(self.reason),
        }


@dataclass(frozen=True, slots=True)
class PoliciesReport:
    """Comparison of the policies."""

    nodes: tuple[NodeCharges, ...]
    pods: tuple[PodCharges, ...] = ()
    refusals: tuple[PolicyRefusal, ...] = ()
    believed: tuple[
        tuple[str, str], ...
    ] = ()  #: (pod, claim) whose recorded charge is used because it cannot be priced
    limit: int = SHOWN

    def past(self, column: str) -> list[str]:
        """Return the nodes past their line in any resource."""
        return sorted({row.node for row in self.nodes if row.left(column) < 0})

    # -- text

    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        if not self.pods:
            yield "No scheduled pod has a claim that is charged to its node: all policies are equal."
            return
        yield "All claims priced under one policy:"
        yield ""
        yield from self._summary_lines(paint, wide)
        yield ""
        yield from self._node_lines(paint, wide)
        yield ""
        yield from self._pod_lines(paint, wide)
        yield from self._refusal_lines(paint, wide)
        believed = self.believed if wide or not self.limit else self.believed[: self.limit]
        for pod, claim in believed:
            yield f"note: claim {claim} of pod {pod} cannot be priced; using its recorded charge."
        yield from _not_shown(len(self.believed) - len(believed), "claim")

    def _summary_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        names = [name for name in ("cpu", "memory") if any(row.resource == name for row in self.nodes)]
        heads = (">NODES PAST THE LINE", ">PODS REFUSED")
        table = Table(("POLICY", *(f">{name.upper()}" for name in names), *heads))
        for column in COLUMNS:
            past, refused = len(self.past(column)), len({*self._refused(column)})
            cells: list[str | Cell] = []
            for name in names:
                total = sum(row.charged[column] for row in self.nodes if row.resource == name)
                cells.append(format_short(name, total))
            cells.append(Cell(f"{past:,}", "red" if past else ""))
            cells.append(Cell(f"{refused:,}", "red" if refused else ""))
            table.add(Cell(column, "bold"), *cells)
        yield from table.lines(paint, wide=wide)
        yield from wrap_text(
            "; ".join(f"{column}: {text}" for column, (_, text) in HEADINGS.items()), paint.width
        )

    def _refused(self, column: str) -> Iterator[tuple[str, str]]:
        for refusal in self.refusals:
            if refusal.column == column:
                yield refusal.namespace, refusal.pod

    def _node_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        shown_rows = [
            row for row in self.nodes if wide or row.differs or any(row.left(c) < 0 for c in COLUMNS)
        ]
        shown_rows.sort(
            key=lambda row: (min(map(row.left, COLUMNS)) >= 0, row.node, resource_order(row.resource))
        )
        shown = shown_rows if wide or not self.limit else shown_rows[: self.limit]
        yield "Nodes: charged amounts, and excess over the line."
        table = Table(("NODE", "RESOURCE", ">LINE", *(f">{HEADINGS[column][0]}" for column in COLUMNS)))
        for row in shown:
            cells = [_cell(row, column, wide) for column in COLUMNS]
            table.add(row.node, row.resource, format_short(row.resource, row.line), *cells)
        yield from table.lines(paint, wide=wide)
        yield from _not_shown(len(shown_rows) - len(shown), "row")
        same = len({row.node for row in self.nodes} - {row.node for row in shown_rows})
        if same:
            yield f"{format_count(same, 'node')} equal under every policy."

    def _pod_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        shown_rows = [row for row in self.pods if wide or row.differs]
        if not shown_rows:
            yield "No pod is charged differently under another policy."
            return
        shown = shown_rows if wide or not self.limit else shown_rows[: self.limit]
        yield "Pods: requests, claimed amounts, and number of containers that reference the claims."
        heads = (">REQUESTS", ">CLAIMED", ">REFS", *(f">{HEADINGS[column][0]}" for column in COLUMNS))
        table = Table(("POD", "=RESOURCE", *heads), optional=(">REFS", ">REQUESTS", ">CLAIMED"))
        for row in shown:
            amounts = [format_short(row.resource, row.charged[column]) for column in COLUMNS]
            own = [format_short(row.resource, amount) for amount in (row.requests, row.claimed)]
            table.add(row.name, row.resource, *own, str(row.references), *amounts)
        yield from table.lines(paint, wide=wide)
        yield from _not_shown(len(shown_rows) - len(shown), "row")

    def _refusal_lines(self, paint: Paint, wide: bool) -> Iterator[str]:
        if not self.refusals:
            return
        yield ""
        yield "Refused by rule, regardless of capacity:"
        groups: dict[tuple[str, str], list[PolicyRefusal]] = {}
        for refusal in self.refusals:
            groups.setdefault((refusal.column, format_reason(refusal.reason)), []).append(refusal)
        shown = [*groups.items()] if wide or not self.limit else [*groups.items()][: self.limit]
        for (column, text), group in shown:
            first = f"{group[0].namespace}/{group[0].pod}"
            more = f" and {len(group) - 1} more" if len(group) > 1 else ""
            line_text = f"{column}: {first}{more}: {text}"
            for line in wrap_text(line_text, paint.width, "    ", first="  "):
                yield paint.red(line)
        yield from _not_shown(len(groups) - len(shown), "refusal")

    # -- JSON

    def as_json(self) -> dict[str, Any]:
        return {
            "columns": list(COLUMNS),
            "nodes": [row.as_json() for row in self.nodes],
            "pods": [row.as_json() for row in self.pods],
            "pastLine": {column: self.past(column) for column in COLUMNS},
            "refused": [refusal.as_json() for refusal in self.refusals],
            "believed": [{"pod": pod, "claim": claim} for pod, claim in self.believed],
        }


def _not_shown(left: int, word: str) -> Iterator[str]:
    if left > 0:
        yield f"{format_count(left, 'more ' + word)} not shown; -o wide or --limit 0 shows all."


def _cell(row: NodeCharges, column: str, wide: bool) -> Cell:
    left = row.left(column)
    text = format_short(row.resource, row.charged[column])
    if left < 0:
        return Cell(f"{text} (+{format_short(row.resource, -left)})", "red")
    return Cell(f"{text} ({format_short(row.resource, left)} left)" if wide else text)
