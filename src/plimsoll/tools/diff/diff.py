"""`compare_clusters`: nodes, pods, claims, devices, charges and findings of two states of a cluster.

The rows of `top` and the findings of `audit` are compared, so the differences are those that the tools would
show. Objects are the same if their names are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.allocator.availability import BLOCKED, FREE
from plimsoll.api.core import Node
from plimsoll.api.resource import DeviceClass, expressions_of
from plimsoll.tools.amounts import format_amount
from plimsoll.tools.audit import audit
from plimsoll.tools.availability import DeviceAvailability
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.findings import Finding
from plimsoll.tools.node_terms import taint_text
from plimsoll.tools.pod_status import pod_status
from plimsoll.tools.top.claims import ClaimRow, claim_rows
from plimsoll.tools.top.device_reports import charges_of
from plimsoll.tools.top.devices import DeviceRow, device_rows
from plimsoll.tools.top.node_reports import status_of, totals_of
from plimsoll.tools.top.nodes import NodeRow, ResourceRow, node_rows
from plimsoll.tools.top.pools import physical_devices

#: Field -> text, in display order.
Fields = dict[str, str]


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Field of an object before and after; "" if it has no value."""

    field: str
    before: str
    after: str

    def as_json(self) -> dict[str, Any]:
        return {"field": self.field, "before": self.before or None, "after": self.after or None}


@dataclass(frozen=True, slots=True)
class ObjectDifference:
    """Object that was added, removed or changed."""

    name: str
    change: str  #: `added`, `removed` or `changed`
    fields: tuple[FieldChange, ...] = ()  #: of an added or removed object, those that describe it

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "change": self.change, "fields": [each.as_json() for each in self.fields]}


ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True, slots=True)
class ChargeChange:
    """Resource of a node whose charges or allocatable amount changed; None where it does not exist."""

    node: str  #: "" for all nodes together
    resource: str
    before: ResourceRow | None
    after: ResourceRow | None

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node or None,
            "resource": self.resource,
            "before": None if self.before is None else self.before.as_json(),
            "after": None if self.after is None else self.after.as_json(),
        }


@dataclass(frozen=True, slots=True)
class StateChanges:
    """Differences of two states; each list sorted by name."""

    nodes: tuple[ObjectDifference, ...] = ()
    classes: tuple[ObjectDifference, ...] = ()
    devices: tuple[ObjectDifference, ...] = ()
    #: Devices among them that only became blocked or are no longer blocked -> physical device.
    blocked: Mapping[str, str] = field(default_factory=dict)
    claims: tuple[ObjectDifference, ...] = ()
    pods: tuple[ObjectDifference, ...] = ()
    charges: tuple[ChargeChange, ...] = ()
    totals: tuple[ChargeChange, ...] = ()
    new_findings: tuple[Finding, ...] = ()
    resolved_findings: tuple[Finding, ...] = ()
    skipped_checks: tuple[str, ...] = field(default=())  #: checks that were run on one side only

    def __bool__(self) -> bool:
        return any((self.nodes, self.classes, self.devices, self.claims, self.pods, self.charges)) or bool(
            self.new_findings or self.resolved_findings
        )


def compare_clusters(
    old: ClusterState, new: ClusterState, *, now: float | None = None, namespace: str = ""
) -> StateChanges:
    """Compare two states; `now` is the time for age-based checks of both, `namespace` limits pods, claims and
    findings to one.
    """
    nodes = _nodes(old), _nodes(new)
    reports = [audit(each, now=now) for each in (old, new)]
    if namespace:
        reports = [each.within(namespace) for each in reports]
    run = [{check.id for check in each.checks} for each in reports]
    both = run[0] & run[1]
    found = [{each.identity: each for each in report.findings if each.id in both} for report in reports]
    devices = tuple(_changes(_devices(old), _devices(new)))
    return StateChanges(
        tuple(_changes(_describe_all(nodes[0], old), _describe_all(nodes[1], new))),
        tuple(_changes(_classes(old), _classes(new))),
        devices,
        _blocked(devices, new),
        tuple(_changes(_claims(old, namespace), _claims(new, namespace))),
        tuple(_changes(_pods(old, namespace), _pods(new, namespace))),
        tuple(_charges(nodes[0], nodes[1])),
        tuple(_total_charges(nodes[0], nodes[1])),
        tuple(each for key, each in found[1].items() if key not in found[0]),
        tuple(each for key, each in found[0].items() if key not in found[1]),
        tuple(sorted(run[0] ^ run[1])),
    )


def _changes(old: Mapping[str, Fields], new: Mapping[str, Fields]) -> Iterator[ObjectDifference]:
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            known = before or after or {}
            given = tuple(
                FieldChange(key, text if before is not None else "", text if after is not None else "")
                for key, text in known.items()
                if text
            )
            yield ObjectDifference(name, ADDED if before is None else REMOVED, given)
        elif before != after:
            changed = tuple(
                FieldChange(key, before.get(key, ""), after.get(key, ""))
                for key in dict.fromkeys((*before, *after))
                if before.get(key, "") != after.get(key, "")
            )
            yield ObjectDifference(name, CHANGED, changed)


# -- nodes and their charges


def _nodes(state: ClusterState) -> dict[str, NodeRow]:
    return {row.name: row for row in node_rows(state)}


def _describe_all(rows: Mapping[str, NodeRow], state: ClusterState) -> dict[str, Fields]:
    return {name: _node(row, state) for name, row in rows.items()}


def _node(row: NodeRow, state: ClusterState) -> Fields:
    made: Fields = {"status": status_of(row)}
    for each in row.rows:
        made[f"allocatable {each.resource}"] = format_amount(each.resource, each.line)
    node = state.objects.find(Node, "", row.name)
    taints = () if node is None else node.spec.taints
    made["taints"] = ", ".join(sorted(map(taint_text, taints)))
    return made


def _charges(old: Mapping[str, NodeRow], new: Mapping[str, NodeRow]) -> Iterator[ChargeChange]:
    for node in sorted({*old, *new}):
        sides = [
            {row.resource: row for row in rows[node].rows} if node in rows else {} for rows in (old, new)
        ]
        yield from _resource_changes(node, *sides)


def _total_charges(old: Mapping[str, NodeRow], new: Mapping[str, NodeRow]) -> Iterator[ChargeChange]:
    sides = [{row.resource: row for row in totals_of(rows.values())} for rows in (old, new)]
    yield from _resource_changes("", *sides)


def _resource_changes(
    node: str, old: Mapping[str, ResourceRow], new: Mapping[str, ResourceRow]
) -> Iterator[ChargeChange]:
    for resource in dict.fromkeys((*old, *new)):
        before, after = old.get(resource), new.get(resource)
        if before != after:
            yield ChargeChange(node, resource, before, after)


# -- objects


def _classes(state: ClusterState) -> dict[str, Fields]:
    found = {}
    for each in state.objects.all(DeviceClass):
        found[each.metadata.name] = {
            "selectors": " && ".join(expressions_of(each.spec.selectors)),
            "extended resource": each.spec.extended_resource_name or "",
        }
    return found


def _devices(state: ClusterState) -> dict[str, Fields]:
    return {str(row.id): _device(row) for row in device_rows(state)}


def _device(row: DeviceRow) -> Fields:
    used = [f"{name} {amount}" for name, (_, amount) in row.capacity.items() if row.shareable and amount]
    return {
        "node": row.node,
        "state": FREE if row.refusal and row.state == BLOCKED else row.state,
        "why": "" if row.refusal else row.why,
        "held by": ", ".join(sorted({f"{each.namespace}/{each.claim}" for each in row.holders})),
        "used": ", ".join(used),
        "capacity": ", ".join(f"{name} {total}" for name, (total, _) in row.capacity.items()),
        "taints": ", ".join(row.taints),
    }


def _blocked(changes: Iterable[ObjectDifference], state: ClusterState) -> dict[str, str]:
    """Return the physical devices of those devices whose counters others consumed or gave back."""
    states = {FREE, BLOCKED}
    found = {
        each.name
        for each in changes
        if each.change == CHANGED
        and all(
            change.field == "why" or (change.field == "state" and {change.before, change.after} == states)
            for change in each.fields
        )
    }
    if not found:
        return {}
    return {
        str(part.id): f"{part.driver}/{part.pool}/{device.name}"
        for device in physical_devices(state, DeviceAvailability(state.snapshot))
        for part in device.parts
        if str(part.id) in found and part.draws
    }


def _claims(state: ClusterState, namespace: str) -> dict[str, Fields]:
    return {f"{row.namespace}/{row.claim}": _claim(row) for row in claim_rows(state, namespace)}


def _claim(row: ClaimRow) -> Fields:
    return {
        "state": row.state,
        "node": row.node,
        "devices": ", ".join(f"{each.pool}/{each.device}" for each, _ in row.devices),
        "charges": ", ".join(charges_of(row)),
        "reserved for": ", ".join(row.reserved_for),
    }


def _pods(state: ClusterState, namespace: str) -> dict[str, Fields]:
    return {
        pod.metadata.full_name: {"node": pod.spec.node_name, "status": pod_status(pod)}
        for pod in state.pods
        if namespace in ("", pod.metadata.namespace)
    }
