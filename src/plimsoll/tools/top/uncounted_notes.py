"""Notes about claims that are not counted, with the annotation that counts them; the same in all tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any

from plimsoll.tools.amounts import format_amount, format_short, resource_order
from plimsoll.tools.class_mappings import ClassMapping, suggest_mappings
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.colors import Paint
from plimsoll.tools.columns import format_count
from plimsoll.tools.top.nodes import NodeRow, node_rows
from plimsoll.tools.uncounted import UncountedClaim, uncounted_claims

OPTION = "--assume-mapping"
#: Nodes and classes listed by name.
_LISTED = 3


def suggest_annotations(
    cluster_state: ClusterState, found: Iterable[UncountedClaim]
) -> tuple[ClassMapping, ...]:
    """Return the annotations of classes that would count these claims."""
    uncharged = sorted({(each.device_class, each.driver) for each in found if not each.priced})
    return tuple(each for pair in uncharged for each in suggest_mappings(cluster_state, *pair))


@dataclass(frozen=True, slots=True)
class UncountedNote:
    """Uncounted claims of some nodes, and the nodes that are past their line because of them."""

    claims: tuple[UncountedClaim, ...] = ()
    nodes: tuple[NodeRow, ...] = ()  #: those with uncounted claims
    suggestions: tuple[ClassMapping, ...] = ()  #: that count them

    def __bool__(self) -> bool:
        return bool(self.claims)

    @property
    def past(self) -> list[NodeRow]:
        """Nodes past their line only if these claims are counted."""
        return [node for node in self.nodes if node.past_uncounted]

    def summary(self) -> str:
        """Return one line: how much is not counted, on how many nodes, of which drivers."""
        total: Counter[str] = Counter()
        for each in self.claims:
            total[each.resource] += each.missing
        amounts = [f"{name} {format_short(name, total[name])}" for name in sorted(total, key=resource_order)]
        drivers = sorted({each.driver for each in self.claims})
        claims = {each.claim.metadata.key for each in self.claims}
        one = len(claims) == 1
        verb = "take" if all(each.sure for each in self.claims) else "seem to take"
        nodes = sorted({each.node for each in self.claims})
        where = f"node {nodes[0]}" if len(nodes) == 1 else format_count(len(nodes), "node")
        short = any(each.charged for each in self.claims)
        return (
            f"{format_count(len(claims), 'claim')} of {', '.join(drivers)} "
            f"{verb.replace('take', 'takes').replace('seem ', 'seems ') if one else verb} "
            f"{', '.join(amounts)} of {where} {'beyond their charges' if short else 'without a mapping'}"
        )

    def past_lines(self) -> Iterator[str]:
        """Yield the nodes past their line with these claims."""
        for node in self.past[:_LISTED]:
            for name in node.past_uncounted:
                row = node.row(name)
                yield (
                    f"{node.name}: {name} {format_short(name, row.used + row.uncounted)} of "
                    f"{format_short(name, row.line)} with them, "
                    f"{format_short(name, row.hidden_excess)} past the line"
                )
        if len(self.past) > _LISTED:
            yield f"and {format_count(len(self.past) - _LISTED, 'more node')}"

    def lines(self, paint: Paint) -> Iterator[str]:
        """Yield the note, nodes past their line, and how to count the claims; nothing if there are none."""
        if not self.claims:
            return
        yield paint.yellow(f"Not counted: {self.summary()}.")
        for line in self.past_lines():
            yield paint.red(f"  {line}")
        if not self.suggestions:
            yield f"{OPTION} counts them."
            return
        what = "claims for these classes are counted" if self.suggestions[0].selectors else "this counts them"
        yield f"{OPTION} counts them here; {what} everywhere (kubectl apply --server-side -f):"
        for number, suggestion in enumerate(self.suggestions[:_LISTED]):
            yield from ["  ---"] if number else []
            yield from (f"  {line}" for line in suggestion.yaml_lines())

    def notes(self) -> tuple[str, ...]:
        """Return the note as single lines, without YAML."""
        if not self.claims:
            return ()
        commands = "".join(
            f"; or: {each.command}" for each in self.suggestions[:_LISTED] if not each.selectors
        )
        return (f"not counted: {self.summary()}", *self.past_lines(), f"{OPTION} counts them{commands}")

    def as_json(self) -> dict[str, Any]:
        return {
            "claims": [uncounted_json(each) for each in self.claims],
            "pastLine": [node.name for node in self.past],
            "text": self.summary() if self.claims else "",
            "pastLineText": list(self.past_lines()),
            "annotations": [each.as_json() for each in self.suggestions],
        }


def uncounted_json(each: UncountedClaim) -> dict[str, Any]:
    return {
        "namespace": each.claim.metadata.namespace,
        "name": each.claim.metadata.name,
        "node": each.node,
        "resource": each.resource,
        "amount": format_amount(each.resource, each.missing),
        "driver": each.driver,
        "deviceClass": each.device_class or None,
        "sure": each.sure,
    }


def note_uncounted(
    cluster_state: ClusterState,
    nodes: Sequence[NodeRow] | None = None,
    *,
    claims: Set[tuple[str, str]] | None = None,
) -> UncountedNote:
    """Return what is not counted: in the cluster, or on some nodes, or of some claims."""
    if nodes is None:
        found = uncounted_claims(cluster_state)
        affected = tuple(node_rows(cluster_state, names={each.node for each in found}))
    else:
        affected = tuple(row for row in nodes if any(each.uncounted for each in row.rows))
        found = uncounted_claims(cluster_state, {row.name for row in affected})
    if not affected:
        return UncountedNote()
    if claims is not None:
        found = [each for each in found if each.claim.metadata.key in claims]
        names = {each.node for each in found}
        affected = tuple(row for row in affected if row.name in names)
    return UncountedNote(tuple(found), affected, suggest_annotations(cluster_state, found))


def notes_about_nodes(cluster_state: ClusterState, names: Iterable[str]) -> tuple[str, ...]:
    """Return what is not counted on some nodes, for explanations that name them."""
    known = sorted({name for name in names if name})
    return note_uncounted(cluster_state, node_rows(cluster_state, names=known)).notes() if known else ()
