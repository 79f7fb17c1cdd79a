"""Placeholder pods that do not match the charges on their nodes: missing, stale and different ones.

Only on clusters that use placeholders (`ClusterState.uses_placeholders`; `ledger/placeholders.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from plimsoll.api.core import Pod
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placeholders import PlaceholderOwner, placeholder_owner, plan_placeholders
from plimsoll.ledger.placement import find_missing_placeholders
from plimsoll.ledger.units import PODS, Units, to_units
from plimsoll.scheduler.binding.placeholders import find_refusal
from plimsoll.tools.amounts import format_short, resource_order
from plimsoll.tools.cluster_state import ClusterState


class MissingPlaceholder(Struct, frozen=True):
    """Placeholder that a bound pod needs and that is not on its node."""

    pod: Pod
    placeholder: Pod  #: as it would be created
    owner: PlaceholderOwner
    rejection: str = ""  #: by the kubelet; "" if the placeholder does not exist

    @property
    def units(self) -> Units:
        return to_units(self.placeholder.spec.containers[0].resources.requests)

    @property
    def text(self) -> str:
        """The problem in one line."""
        meta = self.placeholder.metadata
        state = f"was rejected ({self.rejection})" if self.rejection else "is missing"
        return (
            f"placeholder {meta.full_name} with {format_units(self.units)} {state}: kube-scheduler and the "
            f"kubelet of node {self.placeholder.spec.node_name} do not count what claims take"
        )


def find_missing(cluster_state: ClusterState, row: int) -> list[MissingPlaceholder]:
    """Return the placeholders that bound pods of a node need and that are not there, each once."""
    found: dict[str, MissingPlaceholder] = {}
    ledger = cluster_state.snapshot.ledger(row)
    for pod, placeholder in find_missing_placeholders(ledger) if ledger.profile.placeholders else ():
        meta, owner = placeholder.metadata, placeholder_owner(placeholder)
        known = cluster_state.objects.find(Pod, *meta.key)
        rejection = find_refusal(known) if known is not None and known.has_terminated else ""
        if owner is not None:
            found.setdefault(meta.name, MissingPlaceholder(pod, placeholder, owner, rejection))
    return list(found.values())


def with_missing(ledger: NodeLedger, missing: list[MissingPlaceholder]) -> tuple[NodeLedger, dict[str, int]]:
    """Return a node's ledger with the missing placeholders, and what it then has too little of for them."""
    after = ledger.clone()
    for each in missing:
        after.assume(each.placeholder)
    names = {PODS}.union(*(each.units for each in missing))
    left = after.headroom()
    return after, {name: -left[name] for name in sorted(names & left.keys()) if left[name] < 0}


class PlaceholderFault(Enum):
    """Reason why a placeholder does not match; the value is a text about its owner."""

    STALE = "{owner}, which is not on node {node}: its requests are not used"
    DIFFERENT = "{owner}, which is charged {charged} beyond its requests, and requests {requested}"


def find_faulty(cluster_state: ClusterState, row: int) -> Iterator[tuple[Pod, PlaceholderFault, str]]:
    """Yield the placeholders of a node that request something else than they should, and the text."""
    snapshot = cluster_state.snapshot
    ledger = snapshot.ledger(row)
    if not ledger.profile.placeholders or not ledger.has_placeholders:
        return
    planned = {
        each.owner.key: each.units
        for entry in ledger.entries.values()
        if entry.charged_claims
        for each in plan_placeholders(entry.pod, entry.charged_claims, ledger.options, ledger.profile)
    }
    for entry in ledger.entries.values():
        owner = placeholder_owner(entry.pod)
        if owner is None:
            continue
        fault, charged = PlaceholderFault.STALE, planned.get(owner.key, {})
        if not snapshot.is_stale_placeholder(row, entry.pod):
            requested = {name: amount for name, amount in entry.units.items() if amount}
            if requested == charged:
                continue
            fault = PlaceholderFault.DIFFERENT
        facts = {"owner": owner, "node": ledger.name}
        text = fault.value.format(**facts, charged=format_units(charged), requested=format_units(entry.units))
        yield entry.pod, fault, text


def format_units(units: Units) -> str:
    """Format amounts: `cpu 2, memory 4Gi`."""
    found = [f"{name} {format_short(name, units[name])}" for name in sorted(units, key=resource_order)]
    return ", ".join(found) or "nothing"
