"""`top`: the entry point of the command and the dashboard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches

from plimsoll.errors import InputError
from plimsoll.tools.availability import DeviceAvailability, closed_reason
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.report import Report
from plimsoll.tools.top.claims import claim_row, claim_rows
from plimsoll.tools.top.class_reports import ClassesReport
from plimsoll.tools.top.classes import class_rows, devices_of_class, free_by_class, unusable_devices
from plimsoll.tools.top.device_reports import ClaimsReport, DevicesReport, PoolsReport
from plimsoll.tools.top.devices import DeviceRow, device_rows
from plimsoll.tools.top.gpu_reports import GpusReport
from plimsoll.tools.top.namespaces import namespace_rows, sort_namespaces
from plimsoll.tools.top.node_reports import NODE_SORTS, NodeReport, NodesReport, label_of, sort_nodes
from plimsoll.tools.top.nodes import holders, node_rows
from plimsoll.tools.top.physical import CPUS, count_states, is_accelerator
from plimsoll.tools.top.pod_reports import NamespacesReport, PodsReport
from plimsoll.tools.top.pods import pod_rows
from plimsoll.tools.top.pools import physical_devices, pool_rows
from plimsoll.tools.top.uncounted_notes import note_uncounted

#: Kinds that a view needs in addition to nodes and pods.
_SHOWN = {
    "claims": "resourceclaims",
    "classes": "deviceclasses",
    "devices": "resourceslices",
    "gpus": "resourceslices",
    "pools": "resourceslices",
}
VIEWS = ("nodes", "pods", "claims", "classes", "gpus", "devices", "pools", "namespaces")
#: Orders of the rows, by view; others have one order.
SORTS: Mapping[str, tuple[str, ...]] = {
    "nodes": NODE_SORTS,
    "namespaces": ("name", "used", "claims", "devices"),
}


def top(
    cluster_state: ClusterState,
    what: str = "nodes",
    namespace: str = "",
    *,
    name: str = "",
    resources: tuple[str, ...] = (),
    sort: str = "name",
    limit: int = 0,
    device_class: str = "",
) -> Report:
    """Return the report of one of `VIEWS`; `name` is a node, pod, claim, class or namespace, or part of a
    device or pool name.

    `limit` is the number of rows to show (0: all), `device_class` limits devices to those that a class
    selects. Raises InputError if nothing has this name.
    """
    if what not in VIEWS:
        raise InputError(f"{what}: unknown view; valid views: {', '.join(VIEWS)}")
    if sort not in SORTS.get(what, ("name",)):
        orders = ", ".join(SORTS.get(what, ("name",)))
        raise InputError(f"{what} cannot be sorted by {sort}; valid values: {orders}")
    if device_class and what not in ("devices", "gpus"):
        raise InputError(f"{what} cannot be limited to a device class; devices and gpus can")
    _check_seen(cluster_state, what)
    if what == "nodes":
        return (
            _top_node(cluster_state, name, resources)
            if name
            else _top_nodes(cluster_state, resources, sort, limit)
        )
    if what == "pods":
        return _top_pods(cluster_state, namespace, name, resources, limit)
    if what == "claims":
        if name:
            claim = cluster_state.claim(name, namespace)
            note = note_uncounted(cluster_state, claims={claim.metadata.key})
            return ClaimsReport((claim_row(cluster_state, claim),), alone=True, uncounted=note)
        rows = tuple(claim_rows(cluster_state, namespace))
        shown = {(row.namespace, row.claim) for row in rows}
        return ClaimsReport(rows, limit=limit, uncounted=note_uncounted(cluster_state, claims=shown))
    if what == "classes":
        classes = class_rows(cluster_state, name)
        _found(classes, "device class", name, set(cluster_state.snapshot.classes))
        unusable = unusable_devices(cluster_state)
        return ClassesReport(tuple(classes), limit=limit, alone=bool(name), unusable=unusable)
    if what == "devices":
        return _top_devices(cluster_state, namespace, name, device_class, limit)
    if what == "gpus":
        return _top_gpus(cluster_state, namespace, name, device_class, limit)
    if what == "pools":
        pools = pool_rows(cluster_state)
        chosen = [row for row in pools if name in f"{row.driver}/{row.pool}" or name == row.node]
        _found(chosen, "pool", name, {row.pool for row in pools})
        return PoolsReport(tuple(chosen), limit=limit)
    spaces = namespace_rows(cluster_state, name or namespace)
    if name:
        _found(spaces, "namespace", name, {row.namespace for row in namespace_rows(cluster_state)})
    ordered = tuple(sort_namespaces(spaces, sort, resources))
    return NamespacesReport(ordered, resources, limit=limit)


def _check_seen(cluster_state: ClusterState, what: str) -> None:
    """Raise InputError if the kind that a view shows could not be read."""
    for gap in cluster_state.objects.gaps:
        if gap.kind == _SHOWN.get(what) and gap.refused:
            raise InputError(f"{gap.kind} cannot be shown: {gap.why}")


def _top_nodes(cluster_state: ClusterState, resources: tuple[str, ...], sort: str, limit: int) -> NodesReport:
    nodes = sort_nodes(node_rows(cluster_state), sort, resources)
    known = {row.resource for node in nodes for row in node.rows}
    for resource in resources:
        if nodes and resource not in known:
            raise InputError(_missing("resource", resource, known))
    note = note_uncounted(cluster_state, nodes)
    return NodesReport(tuple(nodes), resources, note, lambda: free_by_class(cluster_state), limit=limit)


def _top_node(cluster_state: ClusterState, name: str, resources: tuple[str, ...]) -> NodeReport:
    nodes = node_rows(cluster_state, names=[name])
    if not nodes:
        raise InputError(_missing("node", name, {node.metadata.name for node in cluster_state.nodes}))
    held = holders(cluster_state, name)
    if resources:
        held = [each for each in held if each.resource in resources]
    devices = tuple(device_rows(cluster_state, name))
    note = note_uncounted(cluster_state, nodes)
    free = free_by_class(cluster_state, [name]).get(name, {})
    return NodeReport(nodes[0], tuple(held), devices, resources, note, free)


def _top_devices(
    cluster_state: ClusterState, namespace: str, name: str, device_class: str, limit: int
) -> DevicesReport:
    availability = DeviceAvailability(cluster_state.snapshot)
    physical = physical_devices(cluster_state, availability)
    devices = sorted((part for each in physical for part in each.parts), key=lambda row: row.id)
    wanted = [row for row in devices if name in str(row.id) or name == row.node]
    _found(wanted, "device", name, {row.device for row in devices})
    is_shown = _device_filter(cluster_state, namespace, device_class)
    wanted = [row for row in wanted if is_shown(row)]
    shown = {row.id for row in wanted}
    counted = []
    for each in physical:
        parts = tuple(part for part in each.parts if part.id in shown)
        if parts:
            counted.append(replace(each, parts=parts) if each.kind == CPUS else each)
    return DevicesReport(tuple(wanted), count_states(counted, availability), limit=limit)


def _top_gpus(
    cluster_state: ClusterState, namespace: str, name: str, device_class: str, limit: int
) -> GpusReport:
    availability = DeviceAvailability(cluster_state.snapshot)
    devices = [each for each in physical_devices(cluster_state, availability) if is_accelerator(each)]
    wanted = [
        each
        for each in devices
        if name in each.product or any(name in str(part.id) or name == part.node for part in each.parts)
    ]
    known = {text for each in devices for text in (each.product, each.name, each.parts[0].node)}
    _found(wanted, "device", name, known)
    is_shown = _device_filter(cluster_state, namespace, device_class)
    wanted = [each for each in wanted if any(map(is_shown, each.parts))]
    nodes = node_rows(cluster_state, names={part.node for each in wanted for part in each.parts} - {""})
    labels = {node.name: label_of(node) for node in nodes}
    closed = {
        node.metadata.name
        for node in cluster_state.nodes
        if node.metadata.name in labels and closed_reason(node)
    }
    return GpusReport(tuple(wanted), availability, labels, closed, limit=limit)


def _device_filter(
    cluster_state: ClusterState, namespace: str, device_class: str
) -> Callable[[DeviceRow], bool]:
    """Return whether a device is held by claims of a namespace and selected by a class; "" is any."""
    classes = cluster_state.snapshot.classes
    _found(device_class in classes, "device class", device_class, set(classes))
    selected = devices_of_class(cluster_state, device_class) if device_class else None

    def is_shown(row: DeviceRow) -> bool:
        held = not namespace or any(each.namespace == namespace for each in row.holders)
        return held and (selected is None or row.id in selected)

    return is_shown


def _top_pods(
    cluster_state: ClusterState, namespace: str, name: str, resources: tuple[str, ...], limit: int
) -> PodsReport:
    if name:
        meta = cluster_state.pod(name, namespace).metadata
        rows = [row for row in pod_rows(cluster_state, meta.namespace) if row.pod == meta.name]
        if not rows:
            raise InputError(f"pod {meta.full_name} has terminated")
        return PodsReport(tuple(rows), resources, alone=True)
    return PodsReport(tuple(pod_rows(cluster_state, namespace)), resources, limit=limit)


def _found(chosen: object, word: str, name: str, names: set[str]) -> None:
    if name and not chosen:
        raise InputError(_missing(word, name, names))


def _missing(word: str, name: str, known: set[str]) -> str:
    near = get_close_matches(name, sorted(known), 3)
    hint = f"; did you mean {', '.join(near)}?" if near else f" ({len(known)} exist)"
    return f"{word} {name} not found{hint}"
