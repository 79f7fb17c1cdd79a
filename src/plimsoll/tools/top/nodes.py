"""Node rows: allocatable, requests, claims, overhead and free amount of each resource, and its holders.

All numbers come from the scheduler's ledger and add up to it: the three usage columns equal what the ledger
has charged, and so do the holders of a node. Amounts are integers in ledger units (`ledger/units.py`): milli
for cpu, units for everything else. The ledger rounds up once per pod and resource; the parts of a pod are
rounded here so that they add up to the same amount.

Columns by rule:

    requests   container and pod requests, less what they draw from the pool of a claim (ConsumeFrom)
               and less what is charged to a claim instead
    claims     what claims add by their policies, and pools of claims; a claim of several pods once;
               what placeholder pods request beyond what their pods and claims are charged
    overhead   pod overhead of runtime classes, and per-pod and per-container overhead of devices

See KEP-5517, "Scheduler Internal Cache Update" (docs/spec/keps.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.errors import InputError
from plimsoll.ledger.claims import effective_policy
from plimsoll.ledger.entries import ChargeRule, LedgerEntry, LedgerLine
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.placeholders import claim_key, is_placeholder, placeholder_owner
from plimsoll.ledger.units import PODS, is_accounted, to_unit
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.uncounted import UncountedClaim, uncounted_on

REQUESTS, CLAIMS, OVERHEAD = range(3)
_COLUMNS = {
    ChargeRule.REQUESTS: REQUESTS,
    ChargeRule.POD_LEVEL: REQUESTS,
    ChargeRule.HELD: REQUESTS,
    ChargeRule.ADD_PER_CLAIM: CLAIMS,
    ChargeRule.ADD_PER_REFERENCE: CLAIMS,
    ChargeRule.MAX: CLAIMS,
    ChargeRule.SHARED: CLAIMS,
    ChargeRule.PLACEHOLDER: CLAIMS,
    ChargeRule.OVERHEAD: OVERHEAD,
    ChargeRule.PER_POD: OVERHEAD,
    ChargeRule.PER_CONTAINER: OVERHEAD,
}


@dataclass(frozen=True, slots=True)
class ResourceRow:
    """One resource of a node, in ledger units; negative `free` means past the line.

    `uncounted` is what claims take in addition without being charged.
    """

    resource: str
    line: int
    requests: int
    claims: int
    overhead: int
    free: int
    uncounted: int = 0

    @property
    def used(self) -> int:
        return self.requests + self.claims + self.overhead

    @property
    def hidden_excess(self) -> int:
        """Amount past the line that only shows if uncounted claims are counted; 0 if there is none."""
        return max(0, self.uncounted - self.free) if self.uncounted and self.free >= 0 else 0

    def as_json(self) -> dict[str, str]:
        extra = {"notCounted": format_amount(self.resource, self.uncounted)} if self.uncounted else {}
        return {
            "resource": self.resource,
            "allocatable": format_amount(self.resource, self.line),
            "requests": format_amount(self.resource, self.requests),
            "claims": format_amount(self.resource, self.claims),
            "overhead": format_amount(self.resource, self.overhead),
            "free": format_amount(self.resource, self.free),
            **extra,
        }


@dataclass(frozen=True, slots=True)
class NodeRow:
    """Resources of one node; cpu and memory first."""

    name: str
    ready: bool
    unschedulable: bool
    pods: int  #: charged to the node
    rows: tuple[ResourceRow, ...]
    pod_line: int = 0  #: allocatable pods; 0 if unknown

    @property
    def past(self) -> tuple[str, ...]:
        """Resources of which more is charged than allocatable."""
        return tuple(row.resource for row in self.rows if row.free < 0)

    @property
    def past_uncounted(self) -> tuple[str, ...]:
        """Resources past their line only if uncounted claims are counted."""
        return tuple(row.resource for row in self.rows if row.hidden_excess)

    def row(self, resource: str) -> ResourceRow:
        """Return the row of a resource; all zero if the node does not have it."""
        return next(
            (row for row in self.rows if row.resource == resource), ResourceRow(resource, 0, 0, 0, 0, 0)
        )


@dataclass(frozen=True, slots=True)
class ResourceHolder:
    """Pod or claim that holds an amount of a node's resource, and the rule by which it is charged.

    The pool of a claim has no pod: it belongs to all pods that draw from it. A negative amount is what a pod
    draws from such a pool instead of the node, or (without a pod) what several pods are charged for the same
    claim and the node is not.
    """

    resource: str
    amount: int
    rule: str  #: `requests`, `overhead`, `AddPerClaim`, ...
    namespace: str
    pod: str
    claim: str
    devices: tuple[DeviceId, ...] = ()
    placeholder: str = ""  #: placeholder pod that requests the amount
    stands_for: str = (
        ""  #: pod or claim that a placeholder stands for, which is charged less than it requests
    )

    def as_json(self) -> dict[str, object]:
        return {
            "resource": self.resource,
            "amount": format_amount(self.resource, self.amount),
            "rule": self.rule,
            "namespace": self.namespace,
            "pod": self.pod or None,
            "claim": self.claim or None,
            "devices": [str(device) for device in self.devices],
            **({"placeholder": self.placeholder} if self.placeholder else {}),
            **({"standsFor": self.stands_for} if self.stands_for else {}),
        }


# -- node rows


def node_rows(cluster_state: ClusterState, *, names: Iterable[str] | None = None) -> list[NodeRow]:
    """Return the rows of all nodes, or of those named, by name; unknown names are ignored."""
    snapshot = cluster_state.snapshot
    wanted = sorted((node.metadata.name for node in cluster_state.nodes) if names is None else set(names))
    nodes = []
    for name in wanted:
        index = snapshot.row_of(name)
        if index is not None:
            uncounted = uncounted_on(cluster_state, index)
            nodes.append(node_row_of(snapshot.ledger(index), uncounted))
    return nodes


def node_row_of(ledger: NodeLedger, uncounted: Iterable[UncountedClaim] = ()) -> NodeRow:
    """Return the row of one ledger; `uncounted` are the claims that it does not count."""
    columns = _claims_and_overhead(ledger)
    missing: Counter[str] = Counter()
    for each in uncounted:
        missing[each.resource] += each.missing
    rows = []
    charged = ledger.charged()
    names = (name for name, amount in charged.items() if amount)
    for name in sorted({*ledger.allocatable, *names, *columns, *missing} - {PODS}, key=resource_order):
        _, claims, overhead = columns.get(name, (0, 0, 0))
        line, taken = ledger.allocatable.get(name, 0), charged.get(name, 0)
        if name not in ledger.allocatable and not any((taken, claims, overhead, missing[name])):
            continue  # an extended resource that devices serve
        rows.append(
            ResourceRow(name, line, taken - claims - overhead, claims, overhead, line - taken, missing[name])
        )
    node = ledger.node
    return NodeRow(
        ledger.name,
        is_ready(node),
        node.spec.unschedulable,
        len(ledger),
        tuple(rows),
        ledger.allocatable.get(PODS, 0),
    )


def is_ready(node: Node) -> bool:
    """Return whether a node is ready; True if it has no Ready condition."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def _claims_and_overhead(ledger: NodeLedger) -> dict[str, list[int]]:
    """Sum claims and overhead by resource; only pods that have either are visited."""
    total: dict[str, list[int]] = {}
    for entry in ledger.entries.values():
        if entry.charged_claims or entry.pod.spec.overhead or is_placeholder(entry.pod):
            for resource, parts in entry_columns(entry).items():
                column = total.setdefault(resource, [0, 0, 0])
                for index, amount in enumerate(parts):
                    column[index] += amount
    for resource, amount in _pool_charges(ledger):
        total.setdefault(resource, [0, 0, 0])[CLAIMS] += amount
    for units in (*ledger.repeated_charges.values(), *ledger.covered.values()):
        for resource, amount in units.items():
            total[resource][CLAIMS] -= amount
    return total


def _pool_charges(ledger: NodeLedger) -> Iterator[tuple[str, int]]:
    for state in ledger.claims.values():
        for resource, holding in state.claim_level_charges.items():
            if is_accounted(resource):
                yield resource, holding.units(resource)


def entry_columns(entry: LedgerEntry) -> dict[str, tuple[int, int, int]]:
    """Return requests, claims and overhead of a ledger entry by resource, in ledger units.

    A placeholder requests what claims take.
    """
    if is_placeholder(entry.pod):
        return {name: (0, amount, 0) for name, amount in entry.units.items()}
    if not entry.charged_claims and not entry.pod.spec.overhead:
        return {name: (amount, 0, 0) for name, amount in entry.units.items()}
    sums: dict[str, list[Quantity]] = {}
    for line in entry.lines:
        if line.counted and is_accounted(line.resource):
            column = sums.setdefault(line.resource, [ZERO, ZERO, ZERO])
            index = column_of(line)
            column[index] = column[index] + line.amount
    found = {}
    for name, amounts in sums.items():
        requests, claims, overhead = _round(name, amounts)
        found[name] = (requests, claims, overhead)
    return found


def column_of(line: LedgerLine) -> int:
    """Return the column of a charge line; what is drawn from a pool is not requested from the node."""
    if line.rule is ChargeRule.CONSUME_FROM:
        return REQUESTS if line.pod else CLAIMS
    return _COLUMNS[line.rule]


def _round(resource: str, amounts: Sequence[Quantity]) -> Iterator[int]:
    """Yield integers that add up to the sum of the amounts, rounded up once."""
    so_far, before = ZERO, 0
    for amount in amounts:
        so_far = so_far + amount
        after = to_unit(resource, so_far)
        yield after - before
        before = after


# -- holders


def holders(cluster_state: ClusterState, node: str, resource: str = "") -> list[ResourceHolder]:
    """Return the holders of a node's resources, largest first by resource. Raise InputError if the node is
    unknown.
    """
    index = cluster_state.snapshot.row_of(node)
    if index is None:
        raise InputError(f"node {node} not found")
    ledger = cluster_state.snapshot.ledger(index)
    found = [
        replace(each, placeholder=_placeholder_of(ledger, pod_key(entry.pod), each))
        for entry in ledger.entries.values()
        if not is_placeholder(entry.pod)
        for each in entry_holders(entry, _devices_of(cluster_state, entry))
    ]
    for state in ledger.claims.values():
        for name, holding in state.claim_level_charges.items():
            if is_accounted(name):
                rule = effective_policy(holding.policy).value
                amount = holding.units(name)
                holder = ResourceHolder(name, amount, rule, state.namespace, "", state.name, holding.devices)
                key = claim_key(state.namespace, state.name)
                found.append(replace(holder, placeholder=_placeholder_of(ledger, key, holder)))
    for key, units in ledger.repeated_charges.items():
        state = ledger.claims[key]
        rule = ChargeRule.SHARED.value
        found += [
            ResourceHolder(name, -amount, rule, state.namespace, "", state.name)
            for name, amount in units.items()
        ]
    found += placeholder_holders(ledger)
    kept = [each for each in found if each.amount and resource in ("", each.resource)]
    return sorted(kept, key=_biggest_first)


def _placeholder_of(ledger: NodeLedger, owner: str, holder: ResourceHolder) -> str:
    """Return the placeholder that requests what a claim takes, by the key of its owner; "" if none does."""
    entry = ledger.placeholder_of(owner) if holder.claim and holder.amount > 0 else None
    return entry.pod.metadata.name if entry is not None and holder.resource in entry.units else ""


def placeholder_holders(ledger: NodeLedger) -> Iterator[ResourceHolder]:
    """Yield what placeholders request beyond what the pods and claims that they stand for are charged."""
    if not ledger.has_placeholders:
        return
    for entry in ledger.entries.values():
        owner = placeholder_owner(entry.pod)
        if owner is None:
            continue
        covered = ledger.covered.get(owner.key, {}) if ledger.placeholder_of(owner.key) is entry else {}
        meta, rule = entry.pod.metadata, ChargeRule.PLACEHOLDER.value
        for name, amount in entry.units.items():
            rest = amount - covered.get(name, 0)
            if rest:
                yield ResourceHolder(name, rest, rule, meta.namespace, meta.name, "", stands_for=str(owner))


def entry_holders(
    entry: LedgerEntry, devices: dict[str, tuple[DeviceId, ...]] | None = None
) -> list[ResourceHolder]:
    """Return the charges of one pod, merged by rule and claim; they add up to the charged amounts.

    `devices` are those of its claims, for charges read from a status, which name no devices.
    """
    merged: dict[str, dict[tuple[int, str, str], tuple[Quantity, tuple[DeviceId, ...]]]] = {}
    for line in entry.lines:
        if line.counted and is_accounted(line.resource):
            key = (column_of(line), line.rule.value, line.claim)
            rows = merged.setdefault(line.resource, {})
            amount, known = rows.get(key, (ZERO, ()))
            rows[key] = (amount + line.amount, tuple(dict.fromkeys((*known, *line.devices))))
    found = []
    meta = entry.pod.metadata
    for resource, rows in merged.items():
        rounded = _round(resource, [amount for amount, _ in rows.values()])
        for ((_, rule, claim), (_, named)), units in zip(rows.items(), rounded, strict=True):
            named = named or (devices or {}).get(claim, ())
            found.append(ResourceHolder(resource, units, rule, meta.namespace, meta.name, claim, named))
    return found


def _devices_of(cluster_state: ClusterState, entry: LedgerEntry) -> dict[str, tuple[DeviceId, ...]]:
    """Return the devices of the pod's claims whose recorded charges do not name them."""
    found = {}
    for charged_claim in entry.charged_claims:
        if charged_claim.parts:
            continue
        claim = cluster_state.snapshot.claim(entry.pod.metadata.namespace, charged_claim.claim)
        if claim is not None and claim.status.allocation is not None:
            results = claim.status.allocation.devices.results
            found[charged_claim.claim] = tuple(dict.fromkeys(map(DeviceId.of, results)))
    return found


def _biggest_first(holder: ResourceHolder) -> tuple[object, ...]:
    return (
        resource_order(holder.resource),
        -holder.amount,
        holder.namespace,
        holder.pod,
        holder.claim,
        holder.rule,
    )
