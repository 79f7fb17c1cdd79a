"""Pod rows: node, resource usage by source, and the devices of their claims.

The rows add up to what the ledgers have charged: a pool that several pods draw from has its own row, named
after the claim. A placeholder pod has a row only if it requests more than its pod or claim is charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.ledger.entries import LedgerEntry, make_entry
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.ledger.qos import pod_qos
from plimsoll.ledger.units import is_accounted, to_unit
from plimsoll.tools.amounts import format_amount, resource_order
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.top.nodes import entry_columns, placeholder_holders

#: Resource -> (requests, claims, overhead), in ledger units.
Amounts = Mapping[str, tuple[int, int, int]]


def amounts_json(amounts: Amounts) -> list[dict[str, str]]:
    """Return the resources with requests, claims, overhead and total."""
    found = []
    for name in sorted(amounts, key=resource_order):
        parts = dict(zip(("requests", "claims", "overhead"), amounts[name], strict=True))
        parts["total"] = sum(amounts[name])
        found.append({"resource": name, **{key: format_amount(name, units) for key, units in parts.items()}})
    return found


class PodRow(Struct, frozen=True):
    """Usage of one pod: resource -> (requests, claims, overhead), in ledger units."""

    namespace: str
    pod: str  #: "" for the pool of a claim
    node: str  #: "" while it is pending: then the amounts are those of its spec
    amounts: Amounts
    qos: str = ""
    claims: tuple[str, ...] = ()
    devices: tuple[DeviceId, ...] = ()
    drawn: Mapping[str, int] = field(
        default_factory=dict
    )  #: amounts drawn from claim pools instead of the node

    @property
    def name(self) -> str:
        return self.pod or f"claim/{self.claims[0]}"

    def as_json(self) -> dict[str, Any]:
        resources = amounts_json(self.amounts)
        for tree in resources:
            if tree["resource"] in self.drawn:
                tree["drawn"] = format_amount(tree["resource"], self.drawn[tree["resource"]])
        return {
            "namespace": self.namespace,
            "pod": self.pod or None,
            "node": self.node or None,
            "qosClass": self.qos or None,
            "claims": list(self.claims),
            "devices": [str(device) for device in self.devices],
            "resources": resources,
        }


def pod_rows(cluster_state: ClusterState, namespace: str = "") -> list[PodRow]:
    """Return the rows of all pods that have not terminated and of claim pools, by namespace and name."""
    snapshot = cluster_state.snapshot
    rows = []
    for index in snapshot.rows():
        for row in rows_on(cluster_state, snapshot.ledger(index)):
            if namespace in ("", row.namespace):
                rows.append(row)
    charged = snapshot.pod_keys()
    for pod in cluster_state.pods:
        if pod_key(pod) not in charged and namespace in ("", pod.metadata.namespace):
            rows.append(_uncharged_row(cluster_state, pod))
    return sorted(rows, key=lambda row: (row.namespace, not row.pod, row.name))


def rows_on(cluster_state: ClusterState, ledger: NodeLedger) -> Iterator[PodRow]:
    """Yield the rows of one node: its pods, then its claim pools, and placeholders."""
    for entry in ledger.entries.values():
        if not is_placeholder(entry.pod):
            yield _charged_row(cluster_state, ledger.name, entry)
    for state in ledger.claims.values():
        pool_charges = {
            resource: (0, holding.units(resource), 0)
            for resource, holding in state.claim_level_charges.items()
            if is_accounted(resource)
        }
        if pool_charges:
            devices = dict.fromkeys(
                d for holding in state.claim_level_charges.values() for d in holding.devices
            )
            yield PodRow(state.namespace, "", ledger.name, pool_charges, "", (state.name,), tuple(devices))
    for key, units in ledger.repeated_charges.items():
        state = ledger.claims[key]
        repeated = {resource: (0, -amount, 0) for resource, amount in units.items()}
        yield PodRow(state.namespace, "", ledger.name, repeated, "", (state.name,))
    found: dict[tuple[str, str], dict[str, tuple[int, int, int]]] = {}
    for holder in placeholder_holders(ledger):
        found.setdefault((holder.namespace, holder.pod), {})[holder.resource] = (0, holder.amount, 0)
    for (namespace, name), amounts in found.items():
        yield PodRow(namespace, name, ledger.name, amounts)


def pod_row(cluster_state: ClusterState, pod: Pod) -> PodRow:
    """Return the row of one pod."""
    snapshot, key = cluster_state.snapshot, pod_key(pod)
    found = snapshot.find_pod(key)
    entry = None if found is None else snapshot.ledger(found[0]).entries.get(key)
    if found is None or entry is None:
        return _uncharged_row(cluster_state, pod)
    return _charged_row(cluster_state, snapshot.ledger(found[0]).name, entry)


def _charged_row(cluster_state: ClusterState, node: str, entry: LedgerEntry) -> PodRow:
    pod = entry.pod
    drawn: dict[str, int] = {}
    for hold in entry.holds:
        if hold.drawn and is_accounted(hold.resource):
            drawn[hold.resource] = drawn.get(hold.resource, 0) + to_unit(hold.resource, hold.drawn)
    return PodRow(
        pod.metadata.namespace,
        pod.metadata.name,
        node,
        entry_columns(entry),
        pod_qos(pod, entry.options.form, pod_level=not entry.options.skip_pod_level),
        *_claims(cluster_state, pod),
        drawn,
    )


def _uncharged_row(cluster_state: ClusterState, pod: Pod) -> PodRow:
    """Return the row of a pod that is pending or bound to an unknown node, from its spec."""
    snapshot = cluster_state.snapshot
    options = snapshot.options
    entry = make_entry(pod, (), options, cluster_state.profile)
    qos = pod_qos(pod, options.form, pod_level=not options.skip_pod_level)
    meta = pod.metadata
    return PodRow(meta.namespace, meta.name, "", entry_columns(entry), qos, *_claims(cluster_state, pod))


def _claims(cluster_state: ClusterState, pod: Pod) -> tuple[tuple[str, ...], tuple[DeviceId, ...]]:
    """Return the claims of a pod and their devices."""
    if not uses_claims(pod):
        return (), ()
    names = tuple(dict.fromkeys(resolve_claim_names(pod).values()))
    devices: dict[DeviceId, None] = {}
    for name in names:
        claim = cluster_state.snapshot.claim(pod.metadata.namespace, name)
        for result in claim.allocation_results if claim is not None else ():
            devices[DeviceId.of(result)] = None
    return names, tuple(devices)
